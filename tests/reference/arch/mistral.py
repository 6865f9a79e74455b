"""Mistral: a sliding window of 16 positions in every layer, untied.

The converter drops the window, and published GGUF files have none; here it is in the key of other architectures."""
from transformers import MistralConfig

from arch.common import VOCAB, golden, sentencepiece

golden("mistral", MistralConfig(
    vocab_size=VOCAB, hidden_size=44, intermediate_size=60, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=10,
    max_position_embeddings=256, sliding_window=16, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
), sentencepiece, keys=lambda writer: writer.add_sliding_window(16), ablations=({"sliding_window": None}, {"sliding_window": 17}))
