"""Qwen 2 MoE: seven experts, three per token, whose weights are not normalized, and a shared expert with a sigmoid gate.
Biases of Q, K and V; untied."""
from transformers import Qwen2MoeConfig

from arch.common import golden
from arch.moe import one_expert_less, shared_expert, shared_gate


def biases(model):
    for layer in model.model.layers:
        for part in "qkv":
            getattr(layer.self_attn, f"{part}_proj").bias.data.zero_()


golden("qwen2_moe", Qwen2MoeConfig(
    vocab_size=275, hidden_size=36, intermediate_size=44, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, num_experts=7,
    num_experts_per_tok=3, moe_intermediate_size=14, shared_expert_intermediate_size=26, decoder_sparse_step=1, mlp_only_layers=[], norm_topk_prob=False,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=272, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
), hub={"num_experts": 7}, drop=("num_local_experts",), mlx=True,
    ablations=({"norm_topk_prob": True}, one_expert_less, shared_expert, shared_gate, biases))
