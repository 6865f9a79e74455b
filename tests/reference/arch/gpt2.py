"""GPT-2: learned positions, LayerNorm, fused Q/K/V, tanh GELU, matrices stored as [in, out], tied.

The published file has n_ctx in config.json, names without prefix, and the causal mask of every layer as attn.bias."""
import torch
from transformers import GPT2Config

from arch.common import POSITIONS, golden


def published(weights):
    mask = torch.ones(POSITIONS, POSITIONS, dtype=torch.bfloat16).tril()[None, None]
    return {key.removeprefix("transformer."): w for key, w in weights.items()} | {f"h.{layer}.attn.bias": mask.clone() for layer in range(2)}


golden("gpt2", GPT2Config(
    vocab_size=275, n_positions=POSITIONS, n_embd=30, n_layer=2, n_head=3, n_inner=None, activation_function="gelu_new", layer_norm_epsilon=1e-5,
    bos_token_id=272, eos_token_id=272,
), weights=published, hub={"n_ctx": POSITIONS}, mlx=True, ablations=({"activation_function": "gelu"}, {"activation_function": "relu"}))
