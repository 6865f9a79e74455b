"""SmolLM3: every fourth layer without RoPE, tied. The GGUF has no key for these layers; they are implied by the architecture."""
from transformers import SmolLM3Config

from arch.common import golden

golden("smollm3", SmolLM3Config(
    vocab_size=275, hidden_size=36, intermediate_size=44, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, no_rope_layers=[1, 1, 1, 0], no_rope_layer_interval=4,
    use_sliding_window=False, sliding_window=None, pad_token_id=None, bos_token_id=None, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 50000.0},
), ablations=({"no_rope_layers": [1, 1, 1, 1]}, {"no_rope_layers": [0, 1, 1, 0]}))
