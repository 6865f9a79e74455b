"""Gemma 1: tied, norms with 1 + w, embeddings times sqrt(dim), one KV head, head dimension different from dim / heads.

Published files have hidden_act "gelu" but use the tanh approximation. The GGUF has w + 1 and no keys for any of this."""
from transformers import GemmaConfig

from arch.common import VOCAB, golden
from common import gemma


def unscaled_embeddings(model):
    model.model.embed_tokens.embed_scale.fill_(1)


def one_plus_w(model):
    """Subtracts 1 from the weight of every norm, so that 1 + w is the original w."""
    for name, p in model.named_parameters():
        if name.endswith("norm.weight"):
            p.data -= 1


def subtract_one(name, array):
    return array - 1 if name.endswith("norm.weight") else array


if __name__ == "__main__":
    golden("gemma", GemmaConfig(
        vocab_size=VOCAB, hidden_size=44, intermediate_size=76, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=18, max_position_embeddings=256, rms_norm_eps=1e-6,
    ), gemma, hub={"hidden_act": "gelu", "hidden_activation": None}, adjust=one_plus_w, to_checkpoint=subtract_one, ablations=(
        unscaled_embeddings, one_plus_w, {"hidden_act": "silu"},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ))
