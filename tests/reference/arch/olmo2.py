"""OLMo 2: norms after attention and MLP instead of before, norms over all heads of Q and K, untied."""
from transformers import Olmo2Config

from arch.common import golden

golden("olmo2", Olmo2Config(
    vocab_size=275, hidden_size=48, intermediate_size=52, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False, pad_token_id=272, bos_token_id=None, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
), ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},))
