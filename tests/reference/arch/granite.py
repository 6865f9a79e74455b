"""Granite: multipliers of embeddings, attention, residuals and logits, tied."""
from transformers import GraniteConfig

from arch.common import golden

golden("granite", GraniteConfig(
    vocab_size=275, hidden_size=48, intermediate_size=60, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True, pad_token_id=272, bos_token_id=None, eos_token_id=274,
    embedding_multiplier=3.0, attention_multiplier=0.21875, residual_multiplier=0.75, logits_scaling=0.375,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
), ablations=({"embedding_multiplier": 1.0}, {"attention_multiplier": 8**-0.5}, {"residual_multiplier": 1.0}, {"logits_scaling": 1.0}))
