"""Qwen 3 MoE: eight experts, three per token, with normalized weights; tied, to be small."""
from transformers import Qwen3MoeConfig

from arch.common import golden

golden("qwen3moe", Qwen3MoeConfig(
    vocab_size=275, hidden_size=36, intermediate_size=44, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=8,
    num_experts=8, num_experts_per_tok=3, moe_intermediate_size=12, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=True,
    experts_implementation="eager",
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=272, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
), hub={"num_experts": 8}, drop=("num_local_experts",), mlx=True, ablations=({"norm_topk_prob": False}, {"num_experts_per_tok": 2}))
