"""Phi-3.5-MoE: LayerNorms and projections with biases, longrope within the original context, two experts per token by SparseMixer; untied.

The weight of each of the two experts is the softmax over the experts whose scores are within 2% of its score (two times
`router_jitter_noise`), so it is 1 unless there are near ties. `short_mscale` is the factor of cos and sin; the converter of
llama.cpp writes the factor of Phi-3 instead, which is replaced here.

In `transformers` 5.23 the long factors have no effect. The routers of llama.cpp and `mlx-lm` take other weights."""
import torch
from transformers import PhimoeConfig

from arch.common import VOCAB, golden, routers, sentencepiece
from arch.moe import reweighted

SHORT, LONG, MSCALE = [1.0, 1.1, 1.5], [1.2, 3.0, 9.0], 1.243
SCALING = {"short_factor": SHORT, "long_factor": LONG, "short_mscale": MSCALE, "long_mscale": 1.35, "original_max_position_embeddings": 128}
ROPE = {"rope_type": "longrope", "rope_theta": 10000.0} | SCALING
CONFIG = PhimoeConfig(
    vocab_size=VOCAB, hidden_size=36, intermediate_size=14, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
    num_local_experts=8, num_experts_per_tok=2, router_jitter_noise=0.01, input_jitter_noise=0.01, attention_bias=True, lm_head_bias=True,
    max_position_embeddings=512, sliding_window=512, rms_norm_eps=1e-5, tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, rope_parameters=ROPE)
TIE = 2 * CONFIG.router_jitter_noise


def far_from_ties(model, ids):
    """Returns true if some weights are not 1, and no score is close to the limit of near ties."""
    distances, ties = [], []

    def look(module, args, out):
        scores, weights, chosen = out
        for first in (scores.gather(-1, chosen[:, :1]), scores.gather(-1, chosen[:, 1:])):
            distances.append(((first - scores) / scores.abs().maximum(first) - TIE).abs().min().item())
        ties.append((weights < 1).sum().item())
    hooks = [router.register_forward_hook(look) for router in routers(model)]
    with torch.no_grad():
        model(torch.tensor([ids]))
    for hook in hooks:
        hook.remove()
    return min(distances) > 1e-5 and sum(ties) >= 8


def on_hub(config):
    """Returns config.json with the keys of the published file."""
    config["torch_dtype"] = config.pop("dtype")
    for key in ("rope_parameters", "transformers_version"):
        config.pop(key)
    return config | {"architectures": ["PhiMoEForCausalLM"], "rope_theta": ROPE["rope_theta"], "rope_scaling": SCALING | {"type": "longrope"},
                     "original_max_position_embeddings": SCALING["original_max_position_embeddings"]}


def near_ties(model):
    reweighted(model, lambda scores, weights, ids: torch.ones_like(weights))


def sparse_mixer(model):
    """Takes the normalized softmax as weights."""
    reweighted(model, lambda scores, weights, ids: scores.gather(-1, ids).softmax(-1))


def biases(model):
    for name, p in model.named_parameters():
        if name.endswith("_proj.bias"):
            p.data.zero_()


def norm_biases(model):
    for name, p in model.named_parameters():
        if name.endswith("norm.bias"):
            p.data.zero_()


def head_bias(model):
    model.lm_head.bias.data.zero_()


def mscale(model):
    """Multiplies cos and sin by the factor of Phi-3."""
    model.config.rope_parameters["short_mscale"] = (1 + torch.log(torch.tensor(4.0)) / torch.log(torch.tensor(128.0))).sqrt().item()


golden("phimoe", CONFIG, sentencepiece, layout=on_hub, fits=far_from_ties, generated=("rope_factors_long.weight", "rope_factors_short.weight"),
       keys=lambda writer: writer.add_rope_scaling_attn_factors(MSCALE), mlx=True, mlx_agrees=False,
       ablations=(near_ties, sparse_mixer, biases, norm_biases, head_bias, mscale, {"rope_parameters": ROPE | {"short_factor": [1.0, 1.0, 1.0]}}))
