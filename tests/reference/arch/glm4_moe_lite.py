"""GLM-4.7-Flash: latent attention with norms of a smaller epsilon than that of the other norms; the first layer dense, then three of eight
experts without groups, chosen by sigmoids plus a bias, with normalized sigmoids times a factor as weights; no YaRN; a block that predicts
a further token; untied.

The latents are small here, so that the epsilon matters; llama.cpp and `mlx-lm` take that of the other norms. The GGUF has the additional
block as its last one, and lacks `expert_gating_func`."""
from transformers import Glm4MoeLiteConfig, Glm4MoeLitePreTrainedModel

from arch.common import golden
from arch.mla import ABLATIONS, QUERY_RANK, RANK, SIZES, attentions, mtp_block, on_hub, query_norm
from arch.moe import SIGMOID_ABLATIONS, f32_biases, random_biases, scaling_factor, shared_expert

FURTHER = f"model.layers.{SIZES['num_hidden_layers']}."
HUB = {"first_k_dense_replace": 1, "num_nextn_predict_layers": 1, "partial_rotary_factor": 1.0, "topk_method": "noaux_tc"}


def realistic(model):
    """Sets biases of the router, and small latents."""
    random_biases(model)
    for m in attentions(model):
        m.kv_a_proj_with_mqa.weight.data[:RANK] *= 0.01
        m.q_a_proj.weight.data *= 0.01


def latent_epsilon(model):
    for m in attentions(model):
        m.kv_a_layernorm.variance_epsilon = m.q_a_layernorm.variance_epsilon = model.config.rms_norm_eps


if __name__ == "__main__":
    Glm4MoeLitePreTrainedModel._keys_to_ignore_on_load_unexpected = [FURTHER]
    golden("glm4_moe_lite", Glm4MoeLiteConfig(
        **SIZES, q_lora_rank=QUERY_RANK, n_routed_experts=8, n_shared_experts=1, routed_scaling_factor=1.8, n_group=1, topk_group=1, norm_topk_prob=True, rms_norm_eps=1e-5,
        max_position_embeddings=256, rope_interleave=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ), layout=on_hub, hub=HUB, drop=("mlp_layer_types", "rope_interleave"), adjust=realistic, weights=lambda tensors: f32_biases(tensors | mtp_block(tensors, SIZES)), mtp=True,
        mlx=True, mlx_agrees=False, ablations=ABLATIONS + SIGMOID_ABLATIONS + (query_norm, latent_epsilon, shared_expert, scaling_factor, {"rope_interleave": False}))
