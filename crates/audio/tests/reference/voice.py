#!/usr/bin/env python3
"""Speech probabilities of Silero's network for a generated model and signal: writes crates/audio/tests/golden/voice.npy.

    pip install numpy
    python3 crates/audio/tests/reference/voice.py
    python3 crates/audio/tests/reference/voice.py silero.bin 16khz_16bit_mono.wav

The second command prints the probabilities of a recording with a model file of whisper.cpp. The generated model and
signal are those of crates/audio/tests/voice.rs. The network is computed in f64; inputs of convolutions are rounded to
f16, as ggml does.
"""
import struct
import sys
import wave
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
WINDOW, PAD, SAMPLES = 512, 64, 128_300
LAYERS = [(129, 128, 3), (128, 64, 3), (64, 64, 3), (64, 128, 3)]
STRIDES = [1, 2, 2, 1]

# Name, shape with the contiguous dimension first, ggml type (0 is f32, 1 is f16), biased exponent of the smallest weights.
TENSORS = [
    *(
        tensor
        for i, (inputs, outputs, taps) in enumerate(LAYERS)
        for tensor in [
            (f"_model.encoder.{i}.reparam_conv.weight", (taps, inputs, outputs), 1, 8 if i < 2 else 9),
            (f"_model.encoder.{i}.reparam_conv.bias", (outputs,), 0, 119),
        ]
    ),
    ("_model.decoder.rnn.weight_ih", (128, 512), 0, 122),
    ("_model.decoder.rnn.weight_hh", (128, 512), 0, 121),
    ("_model.decoder.rnn.bias_ih", (512,), 0, 120),
    ("_model.decoder.rnn.bias_hh", (512,), 0, 120),
    ("_model.decoder.decoder.2.weight", (128,), 1, 13),
    ("_model.decoder.decoder.2.bias", (), 0, 121),
    ("_model.stft.forward_basis_buffer", (256, 1, 258), 1, 10),
]


def random(seed):
    """States of a linear congruential generator."""
    while True:
        seed = (seed * 1664525 + 1013904223) % 2**32
        yield seed


def generate_model():
    """A model file. Weights have a random sign, two random bits of exponent and a random mantissa."""
    out = b"lmgg" + struct.pack("<i10s", 10, b"silero-16k") + struct.pack("<6i", 6, 2, 0, WINDOW, PAD, len(LAYERS))
    for layer in LAYERS:
        out += struct.pack("<3i", *layer)
    out += struct.pack("<4i", 128, 128, 128, 1)
    numbers = random(1)
    for name, shape, kind, exponent in TENSORS:
        out += struct.pack("<3i", len(shape), len(name), kind) + struct.pack(f"<{len(shape)}i", *shape) + name.encode()
        for _, number in zip(range(int(np.prod(shape))), numbers):
            if kind == 1:
                out += struct.pack("<H", (number >> 16 & 0x8FFF) + (exponent << 10))
            else:
                out += struct.pack("<I", (number & 0x81FFFFFF) + (exponent << 23))
    return out


def generate_signal():
    """A sawtooth and noise; every 5000 samples the attenuation of both changes."""
    out = []
    for t, number in zip(range(SAMPLES), random(2)):
        part = t // 5000
        noise = (number >> 16) - 32768 >> 1 + (0, 4, 15, 2, 8)[part % 5]
        tone = (t * 331 * (1 + part % 4) & 0x7FFF) - 16384 >> (3, 0, 15, 1)[part // 2 % 4]
        out.append((noise + tone) / 32768)
    return np.array(out)


def parse(data):
    """Tensors of a model file by name, with torch's order of dimensions."""
    at = 4 + 4 + 10 + 6 * 4 + len(LAYERS) * 12 + 4 * 4
    tensors = {}
    while at < len(data):
        dims, length, kind = struct.unpack_from("<3i", data, at)
        shape = struct.unpack_from(f"<{dims}i", data, at + 12)[::-1]
        at += 12 + 4 * dims
        name = data[at : at + length].decode()
        dtype = np.dtype(["<f4", "<f2"][kind])
        count = int(np.prod(shape))
        tensors[name] = np.frombuffer(data, dtype, count, at + length).reshape(shape).astype(np.float64)
        at += length + count * dtype.itemsize
    return tensors


def round_to_f16(x):
    return x.astype(np.float16).astype(np.float64)


def conv(x, weight, bias, stride, pad):
    """Convolution of [inputs, time] with [outputs, inputs, taps]."""
    x = np.pad(round_to_f16(x), ((0, 0), (pad, pad)))
    taps = weight.shape[2]
    columns = [x[:, t : t + taps] for t in range(0, x.shape[1] - taps + 1, stride)]
    return np.stack([np.tensordot(weight, column) for column in columns], 1) + bias[:, None]


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def probabilities(tensors, samples):
    """One probability per 512 samples; zeros follow the last sample."""
    h, c = np.zeros(128), np.zeros(128)
    rnn = {name: tensors[f"_model.decoder.rnn.{name}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    samples = np.pad(samples, (0, -len(samples) % WINDOW))
    for window in samples.reshape(-1, WINDOW):
        window = np.pad(window, PAD, mode="reflect")
        spectrum = conv(window[None], tensors["_model.stft.forward_basis_buffer"], np.zeros(258), 128, 0)
        x = np.hypot(spectrum[:129], spectrum[129:])
        for i, stride in enumerate(STRIDES):
            name = f"_model.encoder.{i}.reparam_conv"
            x = np.maximum(conv(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"], stride, 1), 0)
        gates = rnn["weight_ih"] @ x[:, 0] + rnn["bias_ih"] + rnn["weight_hh"] @ h + rnn["bias_hh"]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        out = tensors["_model.decoder.decoder.2.weight"].ravel() @ round_to_f16(np.maximum(h, 0))
        yield sigmoid(out + tensors["_model.decoder.decoder.2.bias"].item())


def main():
    if len(sys.argv) == 3:
        with wave.open(sys.argv[2]) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2") / 32768
        for probability in probabilities(parse(Path(sys.argv[1]).read_bytes()), samples):
            print(f"{probability:.7f}")
        return
    expected = np.array(list(probabilities(parse(generate_model()), generate_signal())), np.float32)
    np.save(GOLDEN / "voice.npy", expected)
    print(f"{len(expected)} probabilities from {expected.min():.3f} to {expected.max():.3f}")


if __name__ == "__main__":
    main()
