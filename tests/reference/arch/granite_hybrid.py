"""Granite 4.0 H, dense: Mamba-2 layers with two groups, attention without RoPE, the multipliers of Granite, and a feed-forward network named
`shared_mlp`, whose gate and up rows are one matrix; tied.

The GGUF has head counts of K and V per layer, 0 in Mamba-2 layers. `mlx-lm` does not divide the norm into groups."""
from transformers import GraniteMoeHybridConfig
from transformers.models.granitemoehybrid import modeling_granitemoehybrid

from arch.common import golden, on_hub
from arch.mamba2 import ABLATIONS, GROUP_ABLATIONS, NORM_ABLATIONS, check_decay, exact, realistic, to_checkpoint

exact(modeling_granitemoehybrid)
M, A = "mamba", "attention"
MULTIPLIERS = {"embedding_multiplier": 6.0, "attention_multiplier": 0.21875, "residual_multiplier": 0.75, "logits_scaling": 0.375}
MULTIPLIER_ABLATIONS = ({"embedding_multiplier": 1.0}, {"attention_multiplier": 8**-0.5}, {"residual_multiplier": 1.0}, {"logits_scaling": 1.0})
HUB = {"init_method": "mup", "normalization_function": "rmsnorm", "rope_scaling": None}
# Keys that `transformers` 5 adds.
ADDED = ("time_step_limit", "layers_block_type")


def config(kinds, **sizes):
    names = {M: "linear_attention", A: "full_attention"}
    return GraniteMoeHybridConfig(
        vocab_size=280, hidden_size=32, num_hidden_layers=len(kinds), num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5,
        tie_word_embeddings=True, pad_token_id=277, bos_token_id=None, eos_token_id=279, attention_bias=False, layer_types=[names[kind] for kind in kinds],
        mamba_n_heads=8, mamba_d_head=8, mamba_d_state=16, mamba_d_conv=4, mamba_expand=2, mamba_chunk_size=32, mamba_conv_bias=True, mamba_proj_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **MULTIPLIERS, **sizes)


if __name__ == "__main__":
    kinds = [M, M, A, M]
    golden("granite_hybrid", config(
        kinds, intermediate_size=40, shared_intermediate_size=40, num_local_experts=0, num_experts_per_tok=0, mamba_n_groups=2, position_embedding_type="nope",
    ), layout=on_hub, hub=HUB | {"layer_types": kinds}, drop=ADDED, adjust=realistic, to_checkpoint=to_checkpoint, mlx=True, mlx_agrees=False,
        ablations=ABLATIONS + NORM_ABLATIONS + GROUP_ABLATIONS + MULTIPLIER_ABLATIONS + ({"position_embedding_type": "rope"},))
    check_decay("granite_hybrid")
