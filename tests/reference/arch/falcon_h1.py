"""Falcon H1: in every layer Mamba-2 with two groups and attention on the same normalized row, whose outputs are added; multipliers of embeddings, logits, keys,
inputs and outputs of both mixers, the five parts of the input projection of Mamba-2, gate and output of the feed-forward network; no norm
in Mamba-2, whose output is multiplied by the gate; untied.

All multipliers are powers of two here, because a GGUF has them multiplied into the weights, rounded to BF16. Files of `mlx-lm` too, but without
that of the keys, and without that of the attention input for values, which its code does not apply either."""
import torch
from transformers import FalconH1Config
from transformers.models.falcon_h1 import modeling_falcon_h1

from arch.common import golden, on_hub
from arch.mamba2 import ABLATIONS, check_decay, exact, head_groups, mixers, realistic
from arch.mamba2 import to_checkpoint as decay_to_checkpoint

exact(modeling_falcon_h1)
INNER, STATES = 64, 2 * 16
MULTIPLIERS = {
    "embedding_multiplier": 4.0, "lm_head_multiplier": 0.5, "key_multiplier": 2.0, "attention_in_multiplier": 0.5, "attention_out_multiplier": 2.0, "ssm_in_multiplier": 0.5,
    "ssm_out_multiplier": 0.25, "ssm_multipliers": [2.0, 4.0, 0.5, 2.0, 0.5], "mlp_multipliers": [2.0, 0.5]}
HUB = {"mamba_use_mlp": True, "mlp_expansion_factor": 8, "rope_scaling": None}
# Keys that `transformers` 5 adds.
ADDED = ("time_step_limit", "layer_types", "layers_block_type")


def config(multipliers, **options):
    return FalconH1Config(
        vocab_size=280, hidden_size=36, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=10, max_position_embeddings=256,
        rms_norm_eps=1e-5, pad_token_id=277, bos_token_id=277, eos_token_id=279, tie_word_embeddings=False, mamba_d_ssm=INNER, mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2,
        mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=32, mamba_conv_bias=True, mamba_proj_bias=False, mamba_norm_before_gate=False,
        projectors_bias=False, attention_bias=False, mlp_bias=False, rope_parameters={"rope_type": "default", "rope_theta": 1e11}, **multipliers, **options)


def multiplier_ablations(multipliers):
    """Returns configurations with each of the multipliers replaced by 1."""
    for key, value in multipliers.items():
        if isinstance(value, list):
            yield from ({key: value[:i] + [1.0] + value[i + 1:]} for i in range(len(value)))
        else:
            yield {key: 1.0}


def to_checkpoint(multipliers):
    """Returns the function that maps the values of a GGUF to those of the checkpoint."""
    attention = multipliers["attention_in_multiplier"]
    factors = {
        "token_embd": multipliers["embedding_multiplier"], "output": multipliers["lm_head_multiplier"], "attn_q": attention, "attn_v": attention,
        "attn_k": attention * multipliers["key_multiplier"], "attn_output": multipliers["attention_out_multiplier"], "ssm_out": multipliers["ssm_out_multiplier"],
        "ffn_gate": multipliers["mlp_multipliers"][0], "ffn_down": multipliers["mlp_multipliers"][1]}

    def divided(name, array):
        part = name.removesuffix(".weight").split(".")[-1]
        if part == "ssm_in":
            sizes = torch.tensor([INNER, INNER, STATES, STATES, array.shape[0] - 2 * (INNER + STATES)])
            factor = multipliers["ssm_in_multiplier"] * torch.tensor(multipliers["ssm_multipliers"]).repeat_interleave(sizes)[:, None]
        elif part in factors:
            factor = factors[part]
        else:
            return decay_to_checkpoint(name, array)
        return (torch.from_numpy(array.copy()) / factor).bfloat16().float().numpy()
    return divided


def no_mamba(model):
    for m in mixers(model):
        m.out_proj.weight.data.zero_()


def no_attention(model):
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()


FALCON_ABLATIONS = ABLATIONS + (head_groups, no_mamba, no_attention)

if __name__ == "__main__":
    golden("falcon_h1", config(MULTIPLIERS, mamba_rms_norm=False), layout=on_hub, hub=HUB, drop=ADDED, adjust=realistic, to_checkpoint=to_checkpoint(MULTIPLIERS), mlx=True,
           mlx_agrees=False, ablations=(*FALCON_ABLATIONS, *multiplier_ablations(MULTIPLIERS)))
    check_decay("falcon_h1")
