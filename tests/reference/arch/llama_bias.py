"""Llama with all biases, head dimension smaller than hidden / heads, linear RoPE scaling, untied; config.json of transformers 5."""
from transformers import LlamaConfig

from arch.common import VOCAB, as_saved, golden, sentencepiece

golden("llama_bias", LlamaConfig(
    vocab_size=VOCAB, hidden_size=40, intermediate_size=60, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
    max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
    rope_parameters={"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0},
), sentencepiece, layout=as_saved, ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},))
