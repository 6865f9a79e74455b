"""Granite 4.0 H with experts: Mamba-2 layers with one group, attention without RoPE, three of seven experts in every layer, with the softmax of the chosen
scores as weights, and a shared expert without a gate; tied.

The experts of a layer are two stacked tensors, in `input_linear` gate rows first."""
from arch.common import golden, on_hub
from arch.granite_hybrid import ADDED, HUB, MULTIPLIER_ABLATIONS, A, M, config
from arch.mamba2 import ABLATIONS, NORM_ABLATIONS, check_decay, realistic, to_checkpoint
from arch.moe import normalization, one_expert_less


def shared_expert(model):
    for layer in model.model.layers:
        layer.shared_mlp.output_linear.weight.data.zero_()


if __name__ == "__main__":
    kinds = [M, A, M]
    golden("granite_hybrid_moe", config(
        kinds, intermediate_size=10, shared_intermediate_size=14, num_local_experts=7, num_experts_per_tok=3, mamba_n_groups=1, position_embedding_type="nope",
    ), layout=on_hub, hub=HUB | {"layer_types": kinds}, drop=ADDED, adjust=realistic, to_checkpoint=to_checkpoint, mlx=True,
        ablations=ABLATIONS + NORM_ABLATIONS + MULTIPLIER_ABLATIONS + (normalization, one_expert_less, shared_expert, {"position_embedding_type": "rope"}))
    check_decay("granite_hybrid_moe")
