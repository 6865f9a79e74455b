"""Ministral 3, text only: Llama with YaRN, and queries multiplied after RoPE by a factor that grows with the position; tied.

The factor is 1 + beta ln(1 + floor(position / original context)), here for an original context of 32 positions. Cos and sin have no factor,
as `mscale` equals `mscale_all_dim`. In GGUF beta is `attention.temperature_scale`."""
import torch
from transformers import Ministral3Config

from arch.common import VOCAB, as_saved, golden, sentencepiece

ROPE = {"type": "yarn", "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0,
        "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}
SIZES = dict(vocab_size=VOCAB, num_hidden_layers=2, max_position_embeddings=128, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def text(model):
    return getattr(model.model, "language_model", model.model)


def query_factor(model):
    text(model).config.rope_parameters["llama_4_scaling_beta"] = 0.0


def rounded_position(model):
    """Grows the factor with the position itself."""
    name = "get_llama_4_attn_scale"
    for layer in text(model).layers:
        module = __import__(type(layer).__module__, fromlist=[name])
        original = getattr(module, name)
        layer.register_forward_pre_hook(lambda *_, module=module: setattr(module, name, lambda ids, beta, length: (1 + beta * torch.log(1 + ids / length))[:, None, :, None]))
        layer.register_forward_hook(lambda *_, module=module, original=original: setattr(module, name, original))


def yarn(model):
    rotary, dim = text(model).rotary_emb, text(model).config.head_dim
    rotary.inv_freq = ROPE["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)


def mscale(model):
    """Multiplies cos and sin by the factor of YaRN without `mscale_all_dim`."""
    text(model).rotary_emb.attention_scaling = 0.1 * torch.log(torch.tensor(ROPE["factor"])).item() + 1


ABLATIONS = (query_factor, rounded_position, yarn, mscale)

if __name__ == "__main__":
    golden("ministral3", Ministral3Config(
        hidden_size=36, intermediate_size=44, num_attention_heads=4, num_key_value_heads=2, head_dim=14, tie_word_embeddings=True, rope_parameters=ROPE, **SIZES,
    ), sentencepiece, layout=as_saved, mlx=True, ablations=ABLATIONS)
