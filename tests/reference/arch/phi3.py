"""Phi-4-mini: fused Q/K/V and gate/up, RoPE on three quarters of a head, longrope over the original context (long factors), tied."""
from transformers import Phi3Config

from arch.common import VOCAB, golden, sentencepiece

SHORT, LONG = [1.0, 1.0, 1.05, 1.1, 1.3, 1.6], [1.0, 1.2, 1.9, 3.0, 5.5, 9.0]
ROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "short_factor": SHORT, "long_factor": LONG}

golden("phi3", Phi3Config(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=60, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
    max_position_embeddings=128, original_max_position_embeddings=32, sliding_window=None, rms_norm_eps=1e-5, tie_word_embeddings=True,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, rope_parameters=ROPE,
), sentencepiece, notes="all tokens, greedy ones too, by the long factors", hub={"rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG}},
    generated=("rope_factors_long.weight", "rope_factors_short.weight"), ablations=(
        {"rope_parameters": ROPE | {"long_factor": SHORT}},
        {"rope_parameters": ROPE | {"attention_factor": 1.0}},
        {"rope_parameters": ROPE | {"partial_rotary_factor": 1.0, "long_factor": LONG + [9.0, 9.0], "short_factor": SHORT + [2.0, 2.0]}},
    ))
