"""DeepSeek V2: latent attention with compressed queries; the first layer dense, then three of nine experts from two of three groups, the score of
a group being its best expert, with the softmax over all experts times a factor as weights, and a shared expert; untied.

llama.cpp takes the sum of the two best experts as the score of a group, for any router."""
from transformers import DeepseekV2Config

from arch.common import golden
from arch.deepseek_v2_lite import HUB
from arch.mla import ABLATIONS, QUERY_RANK, SIZES, YARN_ABLATIONS, on_hub, query_norm, yarn
from arch.moe import group_sums, groups, one_expert_less, raw_weights, scaling_factor, shared_expert

golden("deepseek_v2", DeepseekV2Config(
    **SIZES, q_lora_rank=QUERY_RANK, n_routed_experts=9, n_shared_experts=1, routed_scaling_factor=2.5, topk_method="group_limited_greedy", n_group=3, topk_group=2,
    norm_topk_prob=False, first_k_dense_replace=1, rms_norm_eps=1e-6, max_position_embeddings=2560, rope_parameters=yarn(1.0),
), layout=on_hub, hub=HUB, ablations=ABLATIONS + YARN_ABLATIONS + (query_norm, raw_weights, one_expert_less, shared_expert, scaling_factor, groups, group_sums))
