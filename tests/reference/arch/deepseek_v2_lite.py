"""DeepSeek V2 Lite: latent attention without compressed queries, YaRN with a factor of the scores; the first layer dense, then three of
eight experts, with the softmax over all experts as weights, and two shared experts as one matrix; untied.

In GGUF the rows of keys in `kv_b_proj` are transposed per head as `attn_k_b`, the rows of values are `attn_v_b`, and RoPE rotates
neighbours, as in the checkpoint."""
from transformers import DeepseekV2Config

from arch.common import golden
from arch.mla import ABLATIONS, SIZES, YARN_ABLATIONS, on_hub, yarn
from arch.moe import one_expert_less, raw_weights, shared_expert

HUB = {"aux_loss_alpha": 0.001, "moe_layer_freq": 1, "norm_topk_prob": False, "pretraining_tp": 1, "scoring_func": "softmax", "seq_aux": True}

if __name__ == "__main__":
    golden("deepseek_v2_lite", DeepseekV2Config(
        **SIZES, q_lora_rank=None, n_routed_experts=8, n_shared_experts=2, routed_scaling_factor=1.0, topk_method="greedy", n_group=1, topk_group=1, norm_topk_prob=False,
        first_k_dense_replace=1, rms_norm_eps=1e-6, max_position_embeddings=2560, rope_parameters=yarn(0.707),
    ), layout=on_hub, hub=HUB, mlx=True, ablations=ABLATIONS + YARN_ABLATIONS + (raw_weights, one_expert_less, shared_expert))
