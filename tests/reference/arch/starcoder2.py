"""StarCoder 2: LayerNorm and biases as in GPT-2, RoPE and GQA as in Llama, no gate, tied."""
from transformers import Starcoder2Config

from arch.common import golden

golden("starcoder2", Starcoder2Config(
    vocab_size=275, hidden_size=40, intermediate_size=60, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1,
    max_position_embeddings=256, norm_epsilon=1e-5, use_bias=True, hidden_act="gelu_pytorch_tanh", sliding_window=None,
    tie_word_embeddings=True, pad_token_id=272, bos_token_id=None, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 999999.0},
), ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, {"hidden_act": "relu"}))
