"""Writes a small llama in the packed formats of the Hub: ../golden/packed/NAME/, with logits.

    gptq      GPTQ with zero points of version 1: symmetric, asymmetric, act-order, 2, 3, 4 and 8 bits
    awq       AWQ, version gemm
    ct-int    compressed-tensors, integers: packed with 4 and 8 bits, bytes; groups, channels, the matrix; zero points
    ct-float  compressed-tensors, floats: FP8, NVFP4, MXFP4, MXFP8
    bnb       bitsandbytes: NF4, FP4, LLM.int8, with and without nested scales

The model is the first layer of ../golden/hf/bf16. NAME/ has its linear layers; embedding and norms are in
unquantized.safetensors, the second file of every folder. NAME/logits.npy has the logits of `transformers` in float32
on the dequantized weights, which are decoded here from the stored tensors, element by element from the formulas of
the formats. Requires torch, transformers, safetensors, numpy; run without arguments.
"""
import json
import shutil

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from common import GOLDEN, logits

FOLDER, SOURCE = GOLDEN / "packed", GOLDEN / "hf" / "bf16"
SEED, GROUP = 7, 32
LAYER = "model.layers.0."
ATTENTION = {part: f"{LAYER}self_attn.{part}" for part in ("q_proj", "k_proj", "v_proj", "o_proj")}
MODULES = ATTENTION | {part: f"{LAYER}mlp.{part}" for part in ("gate_proj", "up_proj", "down_proj")}


def bit_stream(codes, bits):
    """Packs the codes of each row into 32-bit words, from the lowest bits on."""
    rows, count = codes.shape
    fields = (codes[:, :, None] >> np.arange(bits)) & 1
    padded = np.zeros((rows, -(-count * bits // 32) * 32), np.uint8)
    padded[:, :count * bits] = fields.reshape(rows, -1)
    return np.packbits(padded, axis=1, bitorder="little").view("<i4")


def stream_codes(words, bits, count):
    """Reverses `bit_stream`."""
    flat = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=1, bitorder="little")[:, :count * bits]
    return (flat.reshape(len(words), count, bits).astype(np.int64) << np.arange(bits)).sum(-1)


def quantized(w, bits, group_of, symmetric, signed_max=None):
    """Returns scales and zero points per row and group, and the codes."""
    levels = 2 ** bits - 1
    groups = group_of.max() + 1
    scales, zeros = np.empty((len(w), groups), np.float16), np.empty((len(w), groups), np.int64)
    for g in range(groups):
        part = w[:, group_of == g]
        if symmetric:
            scales[:, g] = 2 * np.abs(part).max(1) / levels
            zeros[:, g] = 2 ** (bits - 1)
        else:
            low, high = np.minimum(part.min(1), 0), np.maximum(part.max(1), 0)
            scales[:, g] = (high - low) / levels
            zeros[:, g] = np.clip(np.round(-low / scales[:, g].astype(np.float32)), 0, levels)
    wide = scales.astype(np.float32)[:, group_of]
    codes = np.clip(np.round(w / wide) + zeros[:, group_of], 0, levels).astype(np.int64)
    return scales, zeros, codes


def in_order(cols, width=GROUP):
    return np.arange(cols) // width


def scattered(cols, rng):
    return rng.permutation(in_order(cols))


def blocks_swapped(cols, _):
    """The groups are consecutive columns, from the last to the first."""
    return in_order(cols)[::-1].copy()


def tensor(array):
    return torch.from_numpy(np.array(array, order="C"))


ZERO_OFFSET = 1  # of version 1
GPTQ = {  # bits, symmetric, the group of each column
    "q_proj": (4, True, None), "k_proj": (4, False, None), "v_proj": (4, False, scattered), "o_proj": (4, True, blocks_swapped),
    "gate_proj": (8, True, None), "up_proj": (3, False, None), "down_proj": (2, False, scattered)}


def gptq(part, w):
    bits, symmetric, order = GPTQ[part]
    g_idx = order(w.shape[1], np.random.default_rng(SEED)) if order else in_order(w.shape[1])
    scales, zeros, codes = quantized(w, bits, g_idx, symmetric)
    if part == "v_proj":
        zeros[:3, 0] = 0, 1, 15  # stored as 15, 0 and 14
    stored = {"qweight": bit_stream(codes, bits).T, "qzeros": bit_stream((zeros.T - ZERO_OFFSET) % 2 ** bits, bits),
              "scales": scales.T, "g_idx": g_idx.astype(np.int32)}
    out, cols = w.shape
    q = stream_codes(stored["qweight"].T, bits, cols)
    z = (stream_codes(stored["qzeros"], bits, out) + ZERO_OFFSET) % 2 ** bits
    x = stored["scales"].astype(np.float32)[g_idx].T * (q - z[g_idx].T).astype(np.float32)
    return {k: tensor(v) for k, v in stored.items()}, x


AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_words(codes):
    """Packs the codes of eight outputs into a word, in the order of AWQ."""
    eight = codes.reshape(len(codes), -1, 8)
    words = sum(eight[:, :, output].astype(np.uint32) << np.uint32(4 * i) for i, output in enumerate(AWQ_ORDER))
    return words.view(np.int32)


def awq_codes(words):
    codes = np.empty((*words.shape, 8), np.int64)
    for i, output in enumerate(AWQ_ORDER):
        codes[:, :, output] = words.view(np.uint32) >> np.uint32(4 * i) & np.uint32(15)
    return codes.reshape(len(words), -1)


def awq(part, w):
    group = in_order(w.shape[1])
    scales, zeros, codes = quantized(w, 4, group, False)
    stored = {"qweight": awq_words(codes.T), "qzeros": awq_words(zeros.T), "scales": np.ascontiguousarray(scales.T)}
    x = stored["scales"].astype(np.float32)[group] * (awq_codes(stored["qweight"]) - awq_codes(stored["qzeros"])[group])
    return {k: tensor(v) for k, v in stored.items()}, x.T


CT_INT = {  # format, bits, symmetric, strategy
    "q_proj": ("pack-quantized", 4, True, "group"), "k_proj": ("pack-quantized", 4, False, "group"),
    "v_proj": ("pack-quantized", 8, True, "channel"), "o_proj": ("int-quantized", 8, False, "channel"),
    "gate_proj": ("int-quantized", 8, True, "tensor"), "up_proj": ("pack-quantized", 4, False, "channel"),
    "down_proj": ("pack-quantized", 4, True, "group")}


def ct_int(part, w):
    form, bits, symmetric, strategy = CT_INT[part]
    out, cols = w.shape
    g_idx = scattered(cols, np.random.default_rng(SEED)) if part == "down_proj" else in_order(cols)
    group_of = g_idx if strategy == "group" else np.zeros(cols, np.int64)
    scales, zeros, codes = quantized(w.reshape(1, -1), bits, np.zeros(w.size, np.int64), symmetric) if strategy == "tensor" \
        else quantized(w, bits, group_of, symmetric)
    middle = 2 ** (bits - 1)
    codes = codes.reshape(out, cols)
    scale = torch.from_numpy(scales).to(torch.bfloat16)
    stored = {"weight_scale": scale.reshape(1) if strategy == "tensor" else scale}
    if form == "pack-quantized":
        stored |= {"weight_packed": tensor(bit_stream(codes, bits)), "weight_shape": torch.tensor([out, cols])}
        if not symmetric:
            stored["weight_zero_point"] = tensor(bit_stream(zeros.T, bits).T)
        q = stream_codes(stored["weight_packed"].numpy(), bits, cols) - middle
    else:
        stored["weight"] = tensor((codes - middle).astype(np.int8))
        if not symmetric:
            stored["weight_zero_point"] = tensor((zeros - middle).astype(np.int8))
        q = stored["weight"].numpy().astype(np.int64)
    if part == "down_proj":
        stored["weight_g_idx"] = tensor(g_idx.astype(np.int32))
    zero = np.zeros_like(zeros) if symmetric else zeros - middle
    wide = scale.float().numpy()[:, group_of] if strategy != "tensor" else scale.float().numpy().reshape(1, 1)
    return stored, wide * (q - (zero[:, group_of] if strategy != "tensor" else 0)).astype(np.float32)


FP4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], np.float32)
CT_FLOAT = {"q_proj": "fp8-channel", "k_proj": "fp8-tensor", "v_proj": "nvfp4", "o_proj": "nvfp4", "gate_proj": "mxfp4",
            "up_proj": "mxfp8", "down_proj": "nvfp4"}


def fp4_codes(x):
    return np.abs(x[:, :, None] - FP4[:8] * np.where(x < 0, -1, 1)[:, :, None]).argmin(-1) + np.where(x < 0, 8, 0)


def ct_float(part, w):
    form = CT_FLOAT[part]
    out, cols = w.shape
    if form.startswith("fp8"):
        largest = torch.from_numpy(np.abs(w).max(1, keepdims=True) if form == "fp8-channel" else np.abs(w).max().reshape(1))
        scale = (largest / 448).to(torch.bfloat16)
        codes = (torch.from_numpy(w) / scale.float()).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale": scale}, (codes.float() * scale.float()).numpy()
    width = 16 if form == "nvfp4" else 32
    largest = np.abs(w).reshape(out, -1, width).max(-1)
    if form == "nvfp4":
        divisor = np.float32(6 * 448 / np.abs(w).max())
        scale = torch.from_numpy(largest / 6 * divisor).to(torch.float8_e4m3fn)
        wide, stored = scale.float().numpy() / divisor, {"weight_global_scale": torch.tensor([divisor])}
    else:
        exponent = np.floor(np.log2(largest)) - (2 if form == "mxfp4" else 8)
        scale, wide, stored = tensor((exponent + 127).astype(np.uint8)), 2 ** exponent.astype(np.float32), {}
    wide = wide.repeat(width, 1)
    if form == "mxfp8":
        codes = torch.from_numpy(w / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale": scale}, codes.float().numpy() * wide
    codes = fp4_codes(w / wide)
    stored |= {"weight_packed": tensor((codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)), "weight_scale": scale}
    packed = stored["weight_packed"].numpy()
    q = np.stack([packed & 15, packed >> 4], -1).reshape(out, cols)
    return stored, FP4[q] * wide


# The values of the codes of `bitsandbytes`: quantiles of the normal distribution, and floats of 4 bits.
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)
BNB_FP4 = np.array([0, 0.0625, 8, 12, 4, 6, 2, 3, -0., -0.0625, -8, -12, -4, -6, -2, -3], np.float32) / np.float32(12)
BNB = {"q_proj": ("nf4", "bfloat16", True), "k_proj": ("nf4", "float16", False), "v_proj": ("fp4", "float32", False),
       "o_proj": ("int8", None, False), "gate_proj": ("nf4", "bfloat16", True), "up_proj": ("fp4", "float16", True),
       "down_proj": ("int8", None, False)}


def bnb(part, w):
    kind, dtype, nested = BNB[part]
    if kind == "int8":
        largest = np.abs(w).max(1)
        codes = np.round(w * (127 / largest)[:, None]).astype(np.int8)
        stored = {"weight": tensor(codes), "SCB": tensor(largest), "weight_format": torch.tensor(0, dtype=torch.uint8)}
        return stored, codes.astype(np.float32) * (largest / np.float32(127))[:, None]
    table = NF4 if kind == "nf4" else BNB_FP4
    block, outer = 64, 8
    maxima = np.abs(w).reshape(-1, block).max(1)
    state = {"quant_type": kind, "blocksize": block, "dtype": dtype, "shape": list(w.shape)}
    stored = {"weight.quant_map": tensor(table)}
    if nested:
        # A table of 256 values, and blocks of 8 magnitudes; the library has blocks of 256.
        values = np.sort(np.random.default_rng(SEED).uniform(-1, 1, 256)).astype(np.float32)
        offset = maxima.mean()
        centred = (maxima - offset).reshape(-1, outer)
        factors = np.abs(centred).max(1)
        codes = np.abs((centred / factors[:, None])[:, :, None] - values).argmin(-1).astype(np.uint8).reshape(-1)
        state |= {"nested_blocksize": outer, "nested_dtype": "float32", "nested_offset": float(offset)}
        stored |= {"weight.absmax": tensor(codes), "weight.nested_absmax": tensor(factors), "weight.nested_quant_map": tensor(values)}
        maxima = values[codes] * factors.repeat(outer) + offset
    else:
        stored["weight.absmax"] = tensor(maxima)
    wide = maxima.repeat(block).reshape(w.shape)
    codes = np.abs((w / wide)[:, :, None] - table).argmin(-1).reshape(-1)
    stored["weight"] = tensor((codes[::2] << 4 | codes[1::2]).astype(np.uint8)[:, None])
    text = json.dumps(state).encode()
    stored[f"weight.quant_state.bitsandbytes__{kind}"] = torch.tensor(list(text), dtype=torch.uint8)
    packed = stored["weight"].numpy()[:, 0]
    q = np.stack([packed >> 4, packed & 15], -1).reshape(w.shape)
    return stored, torch.from_numpy(table[q] * wide).to(getattr(torch, dtype)).float().numpy()


def compressed(form, groups):
    """Returns the configuration of `compressed-tensors`, with a group of modules for each entry."""
    def weights(how):
        bits, kind, symmetric, strategy = how
        group = {"group": GROUP, "tensor_group": 16}.get(strategy)
        return {"num_bits": bits, "type": kind, "symmetric": symmetric, "strategy": strategy, "group_size": group}
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed", "ignore": ["lm_head", "re:.*norm"],
            "config_groups": {f"group_{i}": {"targets": [f"re:.*{part}"], "format": own, "weights": weights(how), "output_activations": None,
                                             "input_activations": {"num_bits": 8, "type": how[1], "dynamic": True, "strategy": "token"}}
                              for i, (part, (own, *how)) in enumerate(groups.items())}}


FLOAT_GROUPS = {"fp8-channel": ("float-quantized", 8, "float", True, "channel"), "fp8-tensor": ("float-quantized", 8, "float", True, "tensor"),
                "nvfp4": ("nvfp4-pack-quantized", 4, "float", True, "tensor_group"), "mxfp4": ("mxfp4-pack-quantized", 4, "float", True, "group"),
                "mxfp8": ("mxfp8-quantized", 8, "float", True, "group")}


def write(name, weights, config, how, quantize):
    folder = FOLDER / name
    folder.mkdir(parents=True)
    stored, dequantized = {}, dict(weights)
    for part, module in MODULES.items():
        parts, x = quantize(part, weights[f"{module}.weight"].float().numpy())
        stored |= {f"{module}.{suffix}": t.contiguous() for suffix, t in parts.items()}
        dequantized[f"{module}.weight"] = torch.from_numpy(np.ascontiguousarray(x, np.float32))
    files = {key: "unquantized.safetensors" for key in unquantized(weights)} | {key: "model.safetensors" for key in stored}
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}, indent=1) + "\n")
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": how}, indent=1) + "\n")
    model = model_with(config, dequantized)
    answers = logits(model, tokens)
    np.save(folder / "logits.npy", answers.numpy().astype(np.float32))
    plain = logits(model_with(config, weights), tokens)
    error = ((answers - plain).square().mean() / plain.square().mean()).sqrt()
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes, max |logit| {answers.abs().max():.3f}, relative RMS difference to unquantized {error:.3f}")
    return stored, dequantized


def model_with(config, weights):
    keys = {k: v for k, v in config.items() if k not in ("architectures", "model_type", "quantization_config")}
    model = LlamaForCausalLM(LlamaConfig(**keys, attn_implementation="eager")).float().eval()
    model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    model.tie_weights()
    return model


def unquantized(weights):
    linear = tuple(f"{module}.weight" for module in MODULES.values())
    return {k: v for k, v in weights.items() if k not in linear}


if __name__ == "__main__":
    torch.set_num_threads(1)
    tokens = json.loads((GOLDEN / "hf" / "tokens.json").read_text())["tokens"]
    shutil.rmtree(FOLDER, ignore_errors=True)
    config = json.loads((SOURCE / "config.json").read_text()) | {"num_hidden_layers": 1}
    weights = {k: v for file in SOURCE.glob("*.safetensors") for k, v in load_file(file).items()}
    weights = {k: v for k, v in weights.items() if k.startswith(LAYER) or not k.startswith("model.layers.")}
    FOLDER.mkdir()
    save_file({k: v.contiguous() for k, v in unquantized(weights).items()}, FOLDER / "unquantized.safetensors", metadata={"format": "pt"})
    how = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True, "sym": False, "checkpoint_format": "gptq",
           "dynamic": {f"+:.*{part}": {"bits": bits} for part, (bits, *_) in GPTQ.items() if bits != 4}}
    write("gptq", weights, config, how, gptq)
    write("awq", weights, config, {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}, awq)
    write("ct-int", weights, config, compressed("mixed-precision", {part: (own, bits, "int", symmetric, strategy)
                                                for part, (own, bits, symmetric, strategy) in CT_INT.items()}), ct_int)
    write("ct-float", weights, config, compressed("mixed-precision", {part: FLOAT_GROUPS[form] for part, form in CT_FLOAT.items()}), ct_float)
    how = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
    write("bnb", weights, config, how, bnb)
