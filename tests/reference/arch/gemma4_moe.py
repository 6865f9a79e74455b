"""Gemma 4 like 26B-A4B: every layer has a dense MLP and experts next to each other, each with its own norms; the router reads the residual
stream by a norm of its own, and each expert has a scale. Otherwise like the dense model: no per-layer embeddings, no V weights in
full-attention layers.

The stacked experts have gate rows first. In GGUF `router.scale` is `ffn_gate_inp.scale`, and `per_expert_scale` is `ffn_down_exps.scale`."""
from transformers import Gemma4TextConfig

from arch.common import VOCAB, golden, routers
from arch.gemma4 import F, ROPE, S, layer_scalars, nested, proportion, renamed, soft_cap, soft_keys, text, v_norms, window
from arch.moe import one_expert_less
from common import gemma4

SIZES = {"global_head_dim": 16, "num_global_key_value_heads": 1}
CONFIG = dict(
    vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, hidden_size=36, intermediate_size=26, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, hidden_size_per_layer_input=0, num_kv_shared_layers=0, attention_k_eq_v=True, enable_moe_block=True, num_experts=6,
    top_k_experts=2, moe_intermediate_size=14, sliding_window=16, final_logit_softcapping=3.0, max_position_embeddings=256, layer_types=[S, S, F], rope_parameters=ROPE)


def realistic(model):
    """Scales keys down like the dense model, and router scales up, because scores are divided by the root of the dimension."""
    soft_keys(model)
    for router in routers(model):
        router.scale.data = 3 * (1 + router.scale.data)
        router.per_expert_scale.data += 1


def router_scale(model):
    for router in routers(model):
        router.scale.data.fill_(router.scale.mean())


def expert_scales(model):
    for router in routers(model):
        router.per_expert_scale.data.fill_(1)


def experts(model):
    for layer in text(model).layers:
        layer.experts.down_proj.data.zero_()


def dense_branch(model):
    for layer in text(model).layers:
        layer.mlp.down_proj.weight.data.zero_()


def router_input(model):
    """Gives the router the input of the experts."""
    for layer in text(model).layers:
        layer.router.register_forward_pre_hook(lambda module, args, norm=layer.pre_feedforward_layernorm_2: (norm(args[0]),))


golden("gemma4_moe", Gemma4TextConfig(**CONFIG, **SIZES), gemma4, layout=nested(CONFIG, SIZES), weights=renamed, adjust=realistic, mlx=True,
       generated=("rope_freqs.weight",),
       ablations=(router_scale, expert_scales, experts, dense_branch, router_input, one_expert_less, layer_scalars, v_norms, window, proportion, soft_cap))
