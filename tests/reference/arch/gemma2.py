"""Gemma 2: norms before and after, softcapping of attention and logits, sliding window in every second layer, query scale.

The GGUF format lacks the query scale, which llama.cpp derives from the number of layers (46: dim / heads, else head_dim);
here it is in the key `attention.scale`."""
from transformers import Gemma2Config

from arch.common import VOCAB, golden
from arch.gemma import subtract_one, one_plus_w, unscaled_embeddings
from common import gemma

SCALAR = 7  # dim / heads, as in the 27B model


golden("gemma2", Gemma2Config(
    vocab_size=VOCAB, hidden_size=42, intermediate_size=50, num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
    head_dim=10, query_pre_attn_scalar=SCALAR, sliding_window=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
    max_position_embeddings=256, rms_norm_eps=1e-6,
), gemma, hub={"hidden_act": "gelu_pytorch_tanh", "cache_implementation": "hybrid"}, drop=("layer_types",), adjust=one_plus_w, to_checkpoint=subtract_one,
    keys=lambda writer: writer.add_attention_scale(SCALAR**-0.5), ablations=(
        unscaled_embeddings, one_plus_w, {"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
        {"query_pre_attn_scalar": 10}, {"sliding_window": 96}, {"layer_types": ["full_attention", "sliding_attention", "full_attention"]},
    ))
