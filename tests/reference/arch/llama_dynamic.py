"""Llama with dynamic NTK RoPE scaling: frequencies depend on the length of the pass, here 96 positions, also for greedy tokens.

No GGUF: the format has no key for it, and the converter drops it."""
from transformers import LlamaConfig

from arch.common import VOCAB, golden, sentencepiece

golden("llama_dynamic", LlamaConfig(
    vocab_size=VOCAB, hidden_size=40, intermediate_size=60, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
    max_position_embeddings=48, rms_norm_eps=1e-5, tie_word_embeddings=True,
    rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
), sentencepiece, to_gguf=False, notes="all tokens, greedy ones too, by the frequencies of 96 positions", hub={"rope_scaling": {"type": "dynamic", "factor": 2.0}},
    ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},))
