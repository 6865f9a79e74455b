"""OLMoE: nine experts, four per token, whose weights are not normalized. The norms of Q and K are over all heads; untied.

`intermediate_size` is the width of an expert."""
import torch
from transformers import OlmoeConfig

from arch.common import golden
from arch.moe import one_expert_less


def q_norm(model):
    for layer in model.model.layers:
        layer.self_attn.q_norm.weight.data.fill_(1)


def k_norm_of_heads(model):
    """Normalizes the keys of every head by itself."""
    for layer in model.model.layers:
        norm, heads = layer.self_attn.k_norm, model.config.num_key_value_heads
        norm.forward = lambda x, norm=norm: (torch.nn.functional.rms_norm(x.unflatten(-1, (heads, -1)), (x.shape[-1] // heads,), eps=1e-5).flatten(-2) * norm.weight)


golden("olmoe", OlmoeConfig(
    vocab_size=275, hidden_size=40, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_experts=9,
    num_experts_per_tok=4, norm_topk_prob=False, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False, pad_token_id=272, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
), hub={"num_experts": 9}, drop=("num_local_experts",), mlx=True, ablations=({"norm_topk_prob": True}, one_expert_less, q_norm, k_norm_of_heads))
