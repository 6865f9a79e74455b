"""Gemma 1: tied, norms by 1 + w, embeddings times sqrt(dim), one KV head of another size than dim / heads.

Published files say hidden_act "gelu" and mean its tanh form. The GGUF has w + 1 and no key of its own for any of this."""
from transformers import GemmaConfig

from arch.common import VOCAB, golden
from common import gemma


def scale_of_embeddings(model):
    model.model.embed_tokens.embed_scale.fill_(1)


def w_for_one_more(model):
    """Takes one from the weight of every norm: 1 + w is then what w was."""
    for name, p in model.named_parameters():
        if name.endswith("norm.weight"):
            p.data -= 1


def less_one(name, array):
    return array - 1 if name.endswith("norm.weight") else array


if __name__ == "__main__":
    golden("gemma", GemmaConfig(
        vocab_size=VOCAB, hidden_size=44, intermediate_size=76, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=18, max_position_embeddings=256, rms_norm_eps=1e-6,
    ), gemma, hub={"hidden_act": "gelu", "hidden_activation": None}, temper=w_for_one_more, before=less_one, matters=(
        scale_of_embeddings, w_for_one_more, {"hidden_act": "silu"},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ))
