"""Qwen 2: biases on Q, K and V, YaRN, tied; config.json has a disabled sliding window."""
from transformers import Qwen2Config

from arch.common import golden

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}

golden("qwen2", Qwen2Config(
    vocab_size=275, hidden_size=48, intermediate_size=60, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
    max_position_embeddings=128, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=272, eos_token_id=274, rope_parameters=YARN,
), drop=("layer_types",), hub={"use_sliding_window": False, "sliding_window": 16, "max_window_layers": 1,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}}, ablations=(
    {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    {"rope_parameters": YARN | {"attention_factor": 1.0}},
))
