"""Gemma 4 like E2B: per-layer embeddings, two head dimensions, last layers that share the KV cache of earlier ones and have a
wide MLP, V norms without weights, RoPE on a quarter of the head dimension in full-attention layers, and a scale per layer.
Norms use w, not 1 + w.

Published files nest the text model (`model.language_model.*`; `mlx-lm` saves `language_model.model.*`), have head_dim and
global_head_dim (transformers 5 writes per_layer_config), and contain unused K and V weights of the sharing layers, which are
noise here. In GGUF the sharing layers are the last `attention.shared_kv_layers`, the quarter is in `rope_freqs.weight` (1 or
1e30, only for full-attention layers), and the MLP width is an array."""
import torch
from transformers import Gemma4TextConfig

from arch.common import VOCAB, golden
from common import gemma4

S, F = "sliding_attention", "full_attention"
# Keys that transformers 5 does not preserve.
SIZES = {"global_head_dim": 16, "num_global_key_value_heads": None}
ROPE = {S: {"rope_type": "default", "rope_theta": 10000.0}, F: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"}}
CONFIG = dict(
    vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, hidden_size=36, intermediate_size=30, num_hidden_layers=5, num_attention_heads=3,
    num_key_value_heads=1, head_dim=8, hidden_size_per_layer_input=6, num_kv_shared_layers=2, use_double_wide_mlp=True,
    sliding_window=16, final_logit_softcapping=3.0, max_position_embeddings=256, layer_types=[S, S, F, S, F], rope_parameters=ROPE)


def nested(config, sizes):
    """Returns the layout of config.json of a multimodal file."""
    def layout(text):
        text = {key: value for key, value in text.items() if key not in ("architectures", "transformers_version", "per_layer_config")}
        return {"architectures": ["Gemma4ForConditionalGeneration"], "audio_config": None, "boi_token_id": 255999, "dtype": "bfloat16",
                "eoi_token_id": 258882, "eos_token_id": [1, 106], "image_token_id": 258880, "initializer_range": 0.02, "model_type": "gemma4",
                "text_config": text | sizes | {"rope_parameters": config["rope_parameters"]}, "tie_word_embeddings": True,
                "vision_config": None, "vocab_size": VOCAB}
    return layout


def renamed(tensors):
    return {name.replace("model.", "model.language_model.", 1): t for name, t in tensors.items()}


def weights(tensors):
    noise = torch.Generator().manual_seed(0)
    more = {"model.vision_tower.patch_embedder.input_proj.weight": (8, 12), "model.embed_vision.embedding_projection.weight": (36, 8)}
    for layer, dim in ((3, 8), (4, 16)):
        path = f"model.language_model.layers.{layer}.self_attn"
        more |= {f"{path}.k_proj.weight": (dim, 36), f"{path}.v_proj.weight": (dim, 36), f"{path}.k_norm.weight": (dim,)}
    return renamed(tensors) | {name: torch.randn(shape, generator=noise).to(torch.bfloat16) for name, shape in more.items()}


def text(model):
    return getattr(model.model, "language_model", model.model)


def soft_keys(model):
    """Scales the K norms down, because attention has no other scale."""
    for name, p in model.named_parameters():
        if name.endswith("k_norm.weight"):
            p.data *= 0.3


def layer_scalars(model):
    for layer in text(model).layers:
        layer.layer_scalar.fill_(1)


def v_norms(model):
    for layer in text(model).layers:
        layer.self_attn.v_norm = torch.nn.Identity()


def embeddings_of_layers(model):
    text(model).embed_tokens_per_layer.weight.data.zero_()


def window(model):
    text(model).config.sliding_window = 96


def proportion(model):
    freqs = text(model).rotary_emb.full_attention_inv_freq
    freqs.copy_(1e6 ** -(torch.arange(len(freqs)) / len(freqs)))


def soft_cap(model):
    model.config.get_text_config().final_logit_softcapping = None


if __name__ == "__main__":
    golden("gemma4", Gemma4TextConfig(**CONFIG, **SIZES), gemma4, adjust=soft_keys, layout=nested(CONFIG, SIZES), weights=weights, generated=("rope_freqs.weight",), excluded=("vision",), mlx=True,
           ablations=(layer_scalars, v_norms, embeddings_of_layers, window, proportion, soft_cap))
