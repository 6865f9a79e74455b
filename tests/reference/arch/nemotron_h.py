"""Nemotron-H, dense: each layer is one mixer, of Mamba-2 (M), attention without RoPE (*), or a feed-forward network with squared ReLU and without
a gate (-); untied. The head dimension is not that of the embeddings divided by heads, nor is the inner width of Mamba-2 twice that of the embeddings.

`transformers` clamps time steps to at least `time_step_min` if it computes more than one token; here all are greater. With the configuration
of `transformers` 5 llama.cpp's converter takes every model as one with experts, so it gets that of the published file. The GGUF has
the number of K and V heads, and the width of the feed-forward network per layer, and the RMS epsilon as `layer_norm_epsilon` too."""
import json
from importlib import import_module

import torch
from transformers import NemotronHConfig
from transformers.models.nemotron_h import modeling_nemotron_h

from arch.common import golden, on_hub
from arch.mamba2 import ABLATIONS, GROUP_ABLATIONS, NORM_ABLATIONS, check_decay, exact, realistic, to_checkpoint

exact(modeling_nemotron_h)
EXPERT_KEYS = (
    "moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size", "moe_shared_expert_overlap", "n_group", "n_routed_experts", "n_shared_experts",
    "norm_topk_prob", "num_experts_per_tok", "output_router_logits", "routed_scaling_factor", "topk_group")
# Keys that `transformers` 5 adds.
ADDED = ("layer_types", "layers_block_type", "mtp_layers_block_type", "num_nextn_predict_layers")
HEAD = 12


def config(pattern, **sizes):
    return NemotronHConfig(
        vocab_size=280, hidden_size=36, hybrid_override_pattern=pattern, num_attention_heads=4, num_key_value_heads=2, head_dim=HEAD, max_position_embeddings=256,
        layer_norm_epsilon=1e-5, pad_token_id=277, bos_token_id=277, eos_token_id=279, tie_word_embeddings=False, ssm_state_size=16, mamba_num_heads=8, mamba_head_dim=8,
        n_groups=2, conv_kernel=4, expand=2, chunk_size=32, use_bias=False, mlp_bias=False, attention_bias=False, use_conv_bias=True, mamba_proj_bias=False,
        mlp_hidden_act="relu2", **sizes)


def hub(pattern):
    return {"hybrid_override_pattern": pattern, "norm_eps": 1e-5, "num_hidden_layers": len(pattern), "rope_theta": 10000, "time_step_limit": [0.0, float("inf")]}


def read_published_config():
    """Lets llama.cpp's converter read config.json itself."""
    import_module("conversion").ModelBase.load_hparams = staticmethod(lambda folder, is_mistral_format: json.loads((folder / "config.json").read_text()))


def f32(tensors):
    """Stores the parameters of the recurrence and the biases of routers in F32, as published files do."""
    return {name: t.float() if name.endswith(("A_log", "dt_bias", ".D", "e_score_correction_bias")) else t for name, t in tensors.items()}


def attentions(model):
    return [m for m in model.modules() if hasattr(m, "q_proj")]


def squared_relu(model):
    for m in model.modules():
        if hasattr(m, "act_fn"):
            m.act_fn = torch.nn.ReLU()


def rope_free_attention(model):
    """Applies RoPE to queries and keys."""
    def rotate(module, args, out):
        rows = out.reshape(*out.shape[:2], -1, HEAD)
        angles = torch.arange(out.shape[1])[:, None, None] * 10000.0 ** (-torch.arange(0, HEAD, 2) / HEAD)
        first, second = rows.chunk(2, -1)
        return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1).reshape(out.shape)
    for m in attentions(model):
        m.q_proj.register_forward_hook(rotate)
        m.k_proj.register_forward_hook(rotate)


NEMOTRON_ABLATIONS = ABLATIONS + NORM_ABLATIONS + GROUP_ABLATIONS + (squared_relu, rope_free_attention)

if __name__ == "__main__":
    read_published_config()
    golden("nemotron_h", config("M-M*-", intermediate_size=40), layout=on_hub, hub=hub("M-M*-"), drop=ADDED + EXPERT_KEYS, adjust=realistic, weights=f32,
           to_checkpoint=to_checkpoint, mlx=True, ablations=NEMOTRON_ABLATIONS)
    check_decay("nemotron_h")
