"""Nemotron 3 Nano: mixers of Nemotron-H, with layers of experts (E); three of eight experts with squared ReLU, chosen by sigmoids plus a bias, with
normalized sigmoids times a factor as weights, and a shared expert of another width; untied."""
from arch.common import golden, on_hub
from arch.mamba2 import check_decay, realistic, to_checkpoint
from arch.moe import SIGMOID_ABLATIONS, random_biases, scaling_factor, shared_expert
from arch.nemotron_h import ADDED, NEMOTRON_ABLATIONS, config, f32, hub, read_published_config

EXPERTS = dict(intermediate_size=10, moe_intermediate_size=10, moe_shared_expert_intermediate_size=14, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3,
               n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5)
MOE_ABLATIONS = SIGMOID_ABLATIONS + (scaling_factor, shared_expert)


def adjusted(model):
    realistic(model)
    random_biases(model)


if __name__ == "__main__":
    read_published_config()
    golden("nemotron_h_moe", config("MEM*E", **EXPERTS), layout=on_hub, hub=hub("MEM*E"), drop=ADDED + ("moe_latent_size",), adjust=adjusted, weights=f32,
           to_checkpoint=to_checkpoint, mlx=True, ablations=NEMOTRON_ABLATIONS + MOE_ABLATIONS)
    check_decay("nemotron_h_moe")
