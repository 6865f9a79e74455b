"""Gemma 2: norms before and behind, soft caps of attention and logits, every second layer a window, its own query scale.

The GGUF says nothing of the query scale, which llama.cpp takes from the number of layers (46: dim / heads, else
head_dim); here the key `attention.scale` says it."""
from transformers import Gemma2Config

from arch.common import VOCAB, golden
from arch.gemma import less_one, w_for_one_more, scale_of_embeddings
from common import gemma

SCALAR = 7  # dim / heads, as the 27B has it


golden("gemma2", Gemma2Config(
    vocab_size=VOCAB, hidden_size=42, intermediate_size=50, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
    head_dim=10, query_pre_attn_scalar=SCALAR, sliding_window=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
    max_position_embeddings=256, rms_norm_eps=1e-6,
), gemma, hub={"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"}, drop=("layer_types",), temper=w_for_one_more, before=less_one,
    keys=lambda writer: writer.add_attention_scale(SCALAR**-0.5), matters=(
        scale_of_embeddings, w_for_one_more, {"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
        {"query_pre_attn_scalar": 10}, {"sliding_window": 96}, {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    ))
