"""Qwen 3: norms on the heads of Q and K, head dimension larger than hidden / heads, tied, but the file has lm_head.

config.json of transformers 5."""
from transformers import Qwen3Config

from arch.common import as_saved, golden

golden("qwen3", Qwen3Config(
    vocab_size=275, hidden_size=44, intermediate_size=60, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=272, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
), layout=as_saved, weights=lambda w: w | {"lm_head.weight": w["model.embed_tokens.weight"].clone()}, ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},))
