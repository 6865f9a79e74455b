"""GPT-2: learned positions, LayerNorm, fused Q/K/V, GELU by tanh, matrices stored as [in, out], tied.

config.json has n_ctx, which published files have and transformers 5 no longer writes."""
from transformers import GPT2Config

from arch.common import golden

golden("gpt2", GPT2Config(
    vocab_size=275, n_positions=128, n_embd=36, n_layer=2, n_head=3, n_inner=None, activation_function="gelu_new", layer_norm_epsilon=1e-5,
    bos_token_id=272, eos_token_id=272,
), hub={"n_ctx": 128}, mlx=True, matters=({"activation_function": "gelu"}, {"activation_function": "relu"}))
