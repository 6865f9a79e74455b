"""gpt-oss as released: experts in MXFP4, with biases and an interleaved, clamped SwiGLU; a learned sink per head in every softmax;
sliding windows in every second layer; YaRN whose limits are not rounded to whole dimensions (`truncate` false); untied.

The blocks of the checkpoint have rows of gate and up in turn, and two neighbouring elements per byte; GGUF blocks have elements i
and i + 16 in a byte. The keys of the GGUF lack `truncate`, the kinds of layers, and the limit of the SwiGLU.

`mlx-lm` rounds the limits of YaRN. `transformers` needs the package accelerate to read this format."""
import torch
from transformers import GptOssConfig

from arch.common import golden
from arch.moe import one_expert_less, reweighted
from transformers.integrations.mxfp4 import FP4_VALUES, convert_moe_packed_tensors

S, F = "sliding_attention", "full_attention"
SCALING = {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 256, "rope_type": "yarn", "truncate": False}
ROPE = SCALING | {"rope_theta": 1000.0}
QUANTIZATION = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
MATRICES = ("gate_up_proj", "down_proj")


def config(**sizes):
    return GptOssConfig(
        vocab_size=275, num_hidden_layers=2, layer_types=[S, F], sliding_window=16, max_position_embeddings=8192, rms_norm_eps=1e-5, tie_word_embeddings=False,
        attention_bias=True, swiglu_limit=7.0, pad_token_id=272, eos_token_id=274, rope_parameters=ROPE, **sizes)


def on_hub(config):
    """Returns config.json with the keys of the published files."""
    config["torch_dtype"] = config.pop("dtype")
    for key in ("rope_parameters", "transformers_version", "swiglu_alpha", "bos_token_id"):
        config.pop(key)
    return config | {"experts_per_token": config["num_experts_per_tok"], "initial_context_length": SCALING["original_max_position_embeddings"],
                     "rope_scaling": SCALING, "rope_theta": ROPE["rope_theta"]}


def experts(model):
    return [layer.mlp.experts for layer in model.model.layers]


def wide(model):
    """Scales the inner values of the experts such that some exceed the limit, and the sinks to compete with scores."""
    for e in experts(model):
        e.gate_up_proj.data *= 3
        e.down_proj.data /= 6
    for layer in model.model.layers:
        layer.self_attn.sinks.data = 5 * layer.self_attn.sinks.data + 1


def encode(rows):
    """Encodes rows of 32 n elements in MXFP4: blocks u8 [.., n, 16] and scales u8 [.., n]."""
    blocks = rows.float().unflatten(-1, (-1, 32))
    exponents = torch.floor(torch.log2(blocks.abs().amax(-1))) - 2
    scaled = blocks / 2 ** exponents[..., None]
    codes = (scaled[..., None].abs() - torch.tensor(FP4_VALUES[:8])).abs().argmin(-1) + 8 * torch.signbit(scaled)
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8), (exponents + 127).to(torch.uint8)


def quantized(model):
    wide(model)
    for e in experts(model):
        for name in MATRICES:
            p = getattr(e, name)
            p.data = convert_moe_packed_tensors(*encode(p.data.mT.contiguous()), dtype=torch.float32)


def weights(tensors):
    """Encodes the experts."""
    out = {}
    for name, t in tensors.items():
        if name.endswith(MATRICES):
            out[f"{name}_blocks"], out[f"{name}_scales"] = encode(t.mT.contiguous())
        else:
            out[name] = t
    return out


def decode(tensors):
    """Decodes the experts of `weights`."""
    stems = [name.removesuffix("_blocks") for name in tensors if name.endswith("_blocks")]
    return ({name: t for name, t in tensors.items() if not name.endswith(("_blocks", "_scales"))}
            | {stem: convert_moe_packed_tensors(tensors[f"{stem}_blocks"], tensors[f"{stem}_scales"]) for stem in stems})


def sinks(model):
    for layer in model.model.layers:
        layer.self_attn.sinks.data.fill_(-1e9)


def interleaved(model):
    """Takes the first half of the rows as gate."""
    for e in experts(model):
        order = torch.arange(e.gate_up_proj.shape[-1]).reshape(2, -1).T.flatten()
        e.gate_up_proj.data, e.gate_up_proj_bias.data = e.gate_up_proj.data[..., order], e.gate_up_proj_bias.data[..., order]


def expert_biases(model):
    for e in experts(model):
        e.gate_up_proj_bias.data.zero_()
        e.down_proj_bias.data.zero_()


def biases(model):
    for name, p in model.named_parameters():
        if "self_attn" in name and name.endswith("bias"):
            p.data.zero_()


def router_bias(model):
    for layer in model.model.layers:
        layer.mlp.router.bias.data.zero_()


def softmax_of_all(model):
    """Takes the softmax over all experts as weights."""
    reweighted(model, lambda scores, weights, ids: scores.softmax(-1).gather(-1, ids))


ABLATIONS = (sinks, interleaved, expert_biases, biases, router_bias, softmax_of_all, one_expert_less, {"swiglu_limit": 100.0}, {"sliding_window": 96},
             {"layer_types": [F, S]}, {"rope_parameters": ROPE | {"truncate": True}}, {"rope_parameters": ROPE | {"attention_factor": 1.0}},
             {"rope_parameters": {"rope_type": "default", "rope_theta": ROPE["rope_theta"]}})

if __name__ == "__main__":
    golden("gpt_oss", config(hidden_size=64, intermediate_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, num_local_experts=5, num_experts_per_tok=2),
           layout=on_hub, hub={"num_local_experts": 5, "quantization_config": QUANTIZATION}, weights=weights, decode=decode, adjust=quantized, mlx=True, mlx_agrees=False,
           ablations=ABLATIONS)
