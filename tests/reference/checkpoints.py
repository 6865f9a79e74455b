"""Writes a small llama as Hugging Face and MLX checkpoints: ../golden/hf/NAME/, with logits.

    bf16            as `transformers` writes it, in three shards, with its tokenizer; bf16.gguf is the same
    mlx-*           quantized by `mlx-lm`: affine codes, the float formats mxfp4, mxfp8, nvfp4, and a mixture
    fp8-*, int8     codes with scales per block, channel and tensor
    ternary-*       BitNet's packing, with a scale that multiplies or divides

NAME/logits.npy has the logits of `transformers` in float32 on the dequantized weights, which are
decoded here from the files. MLX's are also checked against `mlx-lm`. BitNet's are from
`transformers` on the packed file, whose linear layers quantize activations to int8, and are checked
against an implementation here. Requires torch, transformers, tokenizers, safetensors, mlx, mlx-lm,
numpy; run without arguments.
"""
import json
import math
import os
import shutil

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # BitNet's layers as they are written, not compiled

import mlx.core as mx
import mlx.utils
import numpy as np
import torch
from mlx_lm.utils import load_model, quantize_model, save_config, save_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from common import GOLDEN, POSITIONS, Type, logits, random_tokens, randomise, sentencepiece, sentencepiece_tokenizer, versions, write

FOLDER = GOLDEN / "hf"
VOCAB, SEED, ROWS = 288, 5, 12
SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
# Linear layers, which the Hugging Face methods quantize.
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Configuration keys as written by `transformers` 4, which MLX expects.
OLD_CONFIG = {"rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", **SCALING}, "torch_dtype": "bfloat16", "head_dim": None}


def build():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, **SCALING}, attn_implementation="eager"))


def fresh(name):
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def model_with(weights):
    """Returns the model with these weights, in float32."""
    model = build().eval()
    model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    model.tie_weights()
    return model


def to_int8(module, args):
    """Quantizes the activations of a BitNet layer to int8, per row by the largest element."""
    x, = args
    scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
    # Close to a half, rounding would depend on the machine.
    assert ((x * scale) % 1 - 0.5).abs().min() > 1e-4
    return ((x * scale).round().clamp(-128, 127) / scale,)


def bitnet(name, weights):
    """Loads the packed checkpoint with `transformers`, and checks it against this implementation."""
    model = AutoModelForCausalLM.from_pretrained(FOLDER / name, dtype=torch.float32, attn_implementation="eager").eval()
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            tensor.data = tensor.data.float()
    own = model_with(weights)
    for path, module in own.named_modules():
        if path.endswith(LINEAR):
            module.register_forward_pre_hook(to_int8)
    tokens = random_tokens(VOCAB, SEED)[:ROWS]
    gap = (logits(model, tokens) - logits(own, tokens)).abs().max().item()
    print(f"    own implementation: {gap:.2e}")
    assert gap < 1e-5, name
    return model


def finish(name, tokens, weights, plain, model=None):
    answers = logits(model or model_with(weights), tokens[:ROWS])
    np.save(FOLDER / name / "logits.npy", answers.numpy().astype(np.float32))
    size = sum(f.stat().st_size for f in (FOLDER / name).iterdir())
    gap = None if plain is None else (answers - plain).abs().max().item()
    print(f"{name}: {size} bytes, max |logit| {answers.abs().max():.3f}, difference to unquantized {gap}")
    return answers


def unpack_mlx(weights, config):
    """Returns the dequantized weights of an MLX checkpoint in float32."""
    out = {}
    for key, w in weights.items():
        path, part = key.rsplit(".", 1)
        if part in ("scales", "biases"):
            continue
        if f"{path}.scales" in weights:
            how = {**{k: config["quantization"].get(k) for k in ("group_size", "bits", "mode")}, **config["quantization"].get(path, {})}
            scales, biases = weights[f"{path}.scales"], weights.get(f"{path}.biases")
            if how["mode"] == "affine":
                scales, biases = scales.astype(mx.float32), biases.astype(mx.float32)
            w = mx.dequantize(w, scales, biases, group_size=how["group_size"], bits=how["bits"], mode=how["mode"])
        out[key] = torch.from_numpy(np.array(w.astype(mx.float32)))
    return out


def mlx_checkpoint(source, name, tokens, plain, predicate=None, **how):
    folder = fresh(name)
    model, config = load_model(source)
    model, config = quantize_model(model, config, how["group_size"], how["bits"], mode=how.get("mode", "affine"), quant_predicate=predicate)
    save_model(folder, model)
    save_config(config, folder / "config.json")
    weights = mx.load(str(folder / "model.safetensors"))
    answers = finish(name, tokens, unpack_mlx(weights, config), plain)
    # The logits of MLX, with unquantized tensors in float32.
    model, _ = load_model(folder)
    model.set_dtype(mx.float32)
    own = torch.from_numpy(np.array(model(mx.array([tokens[:ROWS]]))[0]))
    gap = (own - answers).abs().max().item()
    print(f"    mlx-lm: {gap:.2e}")
    assert gap < 1e-4, name


def spread(scale, shape, block):
    """Expands block scales to all elements."""
    rows, cols = (torch.arange(n) // b for n, b in zip(shape, block))
    return scale.float()[rows][:, cols]


def blocks(w, block, limit):
    """Returns for every block the scale that maps its largest element to `limit`."""
    rows, cols = (math.ceil(n / b) for n, b in zip(w.shape, block))
    largest = [[w[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]].abs().max() for j in range(cols)] for i in range(rows)]
    return torch.tensor(largest) / limit


def hf_checkpoint(name, tokens, plain, weights, config, quantize):
    """Writes a checkpoint; `quantize` returns for the weight of a linear layer the stored tensors and the dequantized weight."""
    folder, stored, dequantized = fresh(name), {}, {}
    for key, w in weights.items():
        if any(part in key for part in LINEAR):
            parts, dequantized[key] = quantize(key, w.float())
            path = key.rsplit(".", 1)[0]
            stored |= {f"{path}.{part}": t.contiguous() for part, t in parts.items()}
        else:
            stored[key] = dequantized[key] = w
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    packed = config["quantization_config"]["quant_method"] == "bitnet"
    finish(name, tokens, dequantized, plain, bitnet(name, dequantized) if packed else None)


def fp8(block, part, dtype):
    def quantize(key, w):
        size = block(key, w) if callable(block) else block
        scale = blocks(w, size, 448.0).to(dtype)
        wide = spread(scale, w.shape, size)
        codes = (w / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"weight": codes, part: scale}, codes.float() * wide
    return quantize


def int8(key, w):
    scale = blocks(w, (1, w.shape[1]), 127.0).to(torch.bfloat16)
    wide = spread(scale, w.shape, (1, w.shape[1]))
    codes = (w / wide).round().clamp(-128, 127).to(torch.int8)
    return {"weight": codes, "weight_scale": scale}, codes.float() * wide


def ternary(divides):
    def quantize(key, w):
        mean = 0.9 * w.abs().mean()  # keeps the activations away from halves, see to_int8
        scale = (1 / mean if divides else mean).to(torch.bfloat16).reshape(1)
        codes = (w / mean).round().clamp(-1, 1)
        packed = torch.zeros(w.shape[0] // 4, w.shape[1], dtype=torch.uint8)
        for i, quarter in enumerate((codes + 1).to(torch.uint8).chunk(4)):
            packed |= quarter << (2 * i)
        return {"weight": packed, "weight_scale": scale}, codes / scale.float() if divides else codes * scale.float()
    return quantize


def compressed(kind, **weights):
    group = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": kind, "symmetric": True, "strategy": "channel", **weights},
             "input_activations": None, "output_activations": None}
    return {"quant_method": "compressed-tensors", "format": f"{kind}-quantized", "quantization_status": "compressed",
            "config_groups": {"group_0": group}, "ignore": ["lm_head"], "kv_cache_scheme": None}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tokens = random_tokens(VOCAB, SEED)
    model = randomise(build(), SEED).to(torch.bfloat16)
    folder = fresh("bf16")
    model.generation_config.eos_token_id = [2, 7]
    model.save_pretrained(folder, max_shard_size="70KB")
    sentencepiece_tokenizer().save_pretrained(folder)
    weights = {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}
    plain = finish("bf16", tokens, weights, None)
    write(model_with(weights), "llama", "hf/bf16", sentencepiece, Type.BF16, scaling=SCALING)
    config = json.loads((folder / "config.json").read_text())
    config = {k: v for k, v in config.items() if k != "rope_parameters"} | OLD_CONFIG

    source = fresh("source")
    save_file(weights, source / "model.safetensors", metadata={"format": "pt"})
    (source / "config.json").write_text(json.dumps(config))
    for bits, group in ((2, 32), (3, 64), (4, 64), (5, 32), (6, 64), (8, 128)):
        mlx_checkpoint(source, f"mlx-{bits}", tokens, plain, bits=bits, group_size=group)
    for mode, bits, group in (("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)):
        mlx_checkpoint(source, f"mlx-{mode}", tokens, plain, bits=bits, group_size=group, mode=mode)
    own = {"q_proj": {"group_size": 32, "bits": 8, "mode": "affine"}, "v_proj": False, "down_proj": {"group_size": 128, "bits": 6, "mode": "affine"},
           "gate_proj": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}
    mlx_checkpoint(source, "mlx-mixed", tokens, plain, bits=4, group_size=64,
                   predicate=lambda path, module: next((how for part, how in own.items() if part in path), True))
    shutil.rmtree(source)

    def hf(name, quantization, quantize):
        hf_checkpoint(name, tokens, plain, weights, config | {"quantization_config": quantization}, quantize)

    # Neither 64 nor 128 is a multiple of 48 or 96: the last blocks are partial.
    hf("fp8-block", {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [48, 96]}, fp8((48, 96), "weight_scale_inv", torch.float32))
    hf("fp8-channel", compressed("float"), fp8(lambda key, w: w.shape if "up_proj" in key else (1, w.shape[1]), "weight_scale", torch.bfloat16))
    hf("int8", compressed("int"), int8)
    for name, linear in (("ternary-multiplies", "autobitlinear"), ("ternary-divides", "bitlinear")):
        hf(name, {"quant_method": "bitnet", "linear_class": linear, "quantization_mode": "offline"}, ternary(linear == "bitlinear"))
    (FOLDER / "tokens.json").write_text(json.dumps({"tokens": tokens[:ROWS], "seed": SEED, "positions": POSITIONS, "versions": versions()}) + "\n")
