"""Llama 3: six heads with two KV heads, llama3 RoPE scaling, tied. The converter writes the scaling as rope_freqs.weight."""
from transformers import LlamaConfig

from arch.common import VOCAB, golden, sentencepiece

SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

golden("llama", LlamaConfig(
    vocab_size=VOCAB, hidden_size=48, intermediate_size=76, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters={"rope_theta": 500.0, **SCALING},
), sentencepiece, generated=("rope_freqs.weight",), ablations=(
    {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    {"rope_parameters": {"rope_theta": 10000.0, **SCALING}},
))
