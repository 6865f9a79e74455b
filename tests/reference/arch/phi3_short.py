"""Phi-3 within its original context: short factors of longrope, a sliding window of 24 positions, untied.

llama.cpp ignores the window of this architecture, though the converter writes it."""
from transformers import Phi3Config

from arch.common import VOCAB, golden, sentencepiece

SHORT, LONG = [1.0, 1.0, 1.05, 1.1, 1.3, 1.6], [1.0, 1.2, 1.9, 3.0, 5.5, 9.0]
ROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": SHORT, "long_factor": LONG}

golden("phi3_short", Phi3Config(
    vocab_size=VOCAB, hidden_size=36, intermediate_size=60, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3,
    max_position_embeddings=512, original_max_position_embeddings=128, sliding_window=24, rms_norm_eps=1e-5, tie_word_embeddings=False,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, rope_parameters=ROPE,
), sentencepiece, hub={"rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG}},
    generated=("rope_factors_long.weight", "rope_factors_short.weight"), ablations=(
        {"rope_parameters": ROPE | {"short_factor": LONG}},
        {"sliding_window": None},
    ))
