"""Granite 4.0 without Mamba-2 layers, of the class of hybrid models: attention with RoPE in every layer, a dense feed-forward network named `shared_mlp`; tied.

The GGUF is of architecture `granite`, with rows of Q and K interleaved, and has keys of Mamba-2 without effect."""
from arch.common import golden, on_hub
from arch.granite_hybrid import ADDED, HUB, MULTIPLIER_ABLATIONS, A, config

if __name__ == "__main__":
    kinds = [A, A]
    golden("granite_hybrid_attention", config(
        kinds, intermediate_size=40, shared_intermediate_size=40, num_local_experts=0, num_experts_per_tok=0, mamba_n_groups=1, position_embedding_type="rope",
    ), layout=on_hub, hub=HUB | {"layer_types": kinds}, drop=ADDED, mlx=True, ablations=MULTIPLIER_ABLATIONS + ({"position_embedding_type": "nope"},))
