"""Gemma 4 like the 31B model: no per-layer embeddings, no shared layers. Full-attention layers have fewer KV heads and no V
weights: V is K before norm and RoPE, with its own norm. In GGUF `attention.head_count_kv` is an array, and `attn_v` is missing."""
from transformers import Gemma4TextConfig

from arch.common import VOCAB, golden
from arch.gemma4 import F, ROPE, S, layer_scalars, nested, proportion, renamed, soft_cap, soft_keys, v_norms, window
from common import gemma4

SIZES = {"global_head_dim": 16, "num_global_key_value_heads": 2}
CONFIG = dict(
    vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, hidden_size=44, intermediate_size=46, num_hidden_layers=3, num_attention_heads=6,
    num_key_value_heads=3, head_dim=8, hidden_size_per_layer_input=0, num_kv_shared_layers=0, attention_k_eq_v=True,
    sliding_window=16, final_logit_softcapping=3.0, max_position_embeddings=256, layer_types=[S, S, F], rope_parameters=ROPE)

golden("gemma4_dense", Gemma4TextConfig(**CONFIG, **SIZES), gemma4, layout=nested(CONFIG, SIZES), weights=renamed,
       adjust=soft_keys, generated=("rope_freqs.weight",), ablations=(layer_scalars, v_norms, window, proportion, soft_cap))
