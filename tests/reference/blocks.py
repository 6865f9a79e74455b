"""Writes blocks of every GGUF tensor type with their decoded values: blocks/<type>.bin.

A file has the blocks, then the values as f32, both little endian. The values are from the package
gguf; for Q8_K, Q1_0, Q2_0 and I2_S, which it lacks, from the formulas in ggml-quants.c
(`dequantize_row_q8_K`, `dequantize_row_q1_0`, `dequantize_row_q2_0`) and BitNet's ggml-bitnet-mad.cpp
(`quantize_i2_s`). Run: python blocks.py
"""
import pathlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType as Type
from gguf.quants import dequantize

FOLDER = pathlib.Path(__file__).parent.parent / "golden" / "blocks"
# -0, the smallest subnormal, a negative subnormal, infinity, NaN, the maximum, two common values.
SCALES = np.array([0x8000, 0x0001, 0x83FF, 0x7C00, 0x7E00, 0x7BFF, 0x2E66, 0xA1F0], np.uint16)
# Offsets of the f16 scales of a block; IQ1_M, MXFP4 and Q8_K have other scale formats.
OFFSETS = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "Q8_K": [], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
    "IQ3_XXS": [0], "IQ3_S": [0], "IQ1_S": [0], "IQ1_M": [], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [],
    "TQ1_0": [52], "TQ2_0": [64],
}
# Types of 2026, written with random numbers of their own.
NEW = {"NVFP4": [], "Q1_0": [0], "Q2_0": [0]}


def set_scales(name, blocks, scales):
    """Sets the scale of each block; a minimum is set to the scale of the next block."""
    for nth, at in enumerate((OFFSETS | NEW)[name]):
        blocks[:, at:at + 2] = np.roll(scales, -nth)[:, None].view(np.uint8)
    if name == "IQ1_M":  # A nibble on top of each 16-bit word.
        words = blocks[:, 48:].view(np.uint16)
        words[:] = words & 0xFFF | (scales[:, None] >> np.array([0, 4, 8, 12], np.uint16) & 15) << 12
    if name == "MXFP4":
        blocks[:, 0] = np.resize(np.array([0, 1, 2, 255, 254, 253, 120, 130], np.uint8), len(blocks))
    if name == "NVFP4":
        blocks[:, :4] = np.resize(np.array([0, 1, 7, 8, 0x7F, 0x7E, 0x38, 0x45, 0x80, 0xFF], np.uint8), (len(blocks), 4))
    if name == "Q8_K":
        blocks[:, :4] = scales.view(np.float16).astype(np.float32)[:, None].view(np.uint8) | [1, 0, 0, 0]


def numbers(name, blocks):
    if name == "Q8_K":  # f32 d, 256 int8, 16 int16 sums.
        return blocks[:, :4].copy().view(np.float32) * blocks[:, 4:260].view(np.int8).astype(np.float32)
    if name in ("Q1_0", "Q2_0"):  # f16 d, then codes from the lowest bits on.
        bits = int(name[1])
        codes = blocks[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1
        values = codes.reshape(len(blocks), -1).astype(np.float32) * np.float32(2 / bits) - 1
        return blocks[:, :2].copy().view(np.float16).astype(np.float32) * values
    return dequantize(blocks, Type[name])


def i2_s(random):
    """Decodes I2_S: a byte has four codes 32 elements apart, the first in the top bits; an f32 scale follows all codes."""
    codes = random.integers(0, 3, 1024, np.uint8)
    fours = codes.reshape(-1, 4, 32)
    data = fours[:, 0] << 6 | fours[:, 1] << 4 | fours[:, 2] << 2 | fours[:, 3]
    scale = np.float32(0.7853982)
    tail = np.frombuffer(scale.tobytes() + bytes([0xAA] * 28), np.uint8)
    return np.concatenate([data.ravel(), tail]), (codes.astype(np.float32) - 1) * scale


def plain():
    whole = [0, 1, -1, 127, -128, 32767, -32768, 2**24 + 1, -(2**24) - 3, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63)]
    real = [0.0, -0.0, 0.1, -1 / 3, 1 + 2**-24, 1 + 3 * 2**-24, 1e-40, -1e-46, 3e38, 3.5e38, np.inf, -np.inf, np.nan]
    for name in ("int8", "int16", "int32", "int64"):
        limits = np.iinfo(name)
        yield f"i{limits.bits}", np.array([n for n in whole if limits.min <= n <= limits.max], name)
    yield "f64", np.array(real, np.float64)
    yield "f32", np.array(real, np.float32)
    yield "f16", np.concatenate([np.arange(64), np.arange(1 << 6) << 10 | 5, SCALES]).astype(np.uint16).view(np.float16)


def write(name, blocks, values):
    (FOLDER / f"{name}.bin").write_bytes(blocks.tobytes() + values.astype("<f4").tobytes())


if __name__ == "__main__":
    np.seterr(all="ignore")
    FOLDER.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
    for name in OFFSETS | NEW:
        block, size = GGML_QUANT_SIZES[Type[name]]
        source = np.random.default_rng(2) if name in NEW else random
        blocks = source.integers(0, 256, (10 if block == 256 else 26, size), np.uint8)
        scales = np.resize(SCALES, len(blocks))
        blocks[0], blocks[1], scales[:2] = 0, 255, 0x3C00
        set_scales(name, blocks, scales)
        write(name.lower(), blocks, numbers(name, blocks))
    write("i2_s", *i2_s(random))
    for name, values in plain():
        write(name, values, values.astype(np.float32))
    bf16 = np.concatenate([SCALES, np.arange(1 << 6) << 9 | 5]).astype(np.uint16)
    write("bf16", bf16, (bf16.astype(np.uint32) << 16).view(np.float32))
