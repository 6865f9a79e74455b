"""A small speech model with a known transcript, as in `cli/tests/cli/speech_model.rs`."""

from __future__ import annotations

import struct
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ENGLISH, MULTILINGUAL = 51_864, 51_865
"""Number of tokens of English models and of multilingual ones."""
TEXT = " w300"
"""Text of every segment."""
SEGMENTS = 3
"""Number of segments of a window, of 10 seconds each."""

CONTEXT, POSITIONS, DIM, MELS = 1500, 64, 16, 80


def write_model(path: Path, vocab: int) -> Path:
    """Writes a ggml file whose every window has 3 segments. A multilingual model detects German."""
    # Without special tokens and timestamps.
    texts = vocab - 1608
    sizes = [vocab, CONTEXT, DIM, 1, 1, POSITIONS, DIM, 1, 1, MELS, 0, MELS, 201]
    filters = np.zeros((MELS, 201), np.float32)
    for band in range(MELS):
        filters[band, 2 * band : 2 * band + 2] = 0.01
    parts = [b"lmgg", struct.pack("<13I", *sizes), filters.tobytes(), struct.pack("<I", texts)]
    for token in range(texts):
        data = bytes([token]) if token < 256 else f" w{token}".encode()
        parts.append(struct.pack("<I", len(data)) + data)
    random = np.random.default_rng(0)
    for name, shape in shapes(vocab).items():
        parts.append(struct.pack("<3I", len(shape), len(name), 0))
        parts.append(struct.pack(f"<{len(shape)}I", *reversed(shape)) + name.encode())
        parts.append(tensor(name, shape, random).tobytes())
    path.write_bytes(b"".join(parts))
    return path


def tensor(name: str, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[np.float32]:
    """The last norm of the decoder ignores its input, so that the logits of a token are its embedding."""
    values = np.zeros(shape, np.float32)
    if name == "decoder.ln.weight":
        return values
    if name == "decoder.ln.bias":
        values[0] = 1
    elif name == "decoder.token_embedding.weight":
        values[300, 0] = 20
        # The language token of German.
        values[50_261, 0] = 10 if shape[0] == MULTILINGUAL else 0
        # Timestamps, every 10 seconds.
        first = shape[0] - 1501
        values[first::500, 0] = 40 - 6 * np.arange(4)
    else:
        values[...] = random.uniform(-0.25, 0.25, shape)
    return values


def shapes(vocab: int) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all tensors."""
    all: dict[str, tuple[int, ...]] = {
        "encoder.conv1.weight": (DIM, MELS, 3),
        "encoder.conv1.bias": (DIM, 1),
        "encoder.conv2.weight": (DIM, DIM, 3),
        "encoder.conv2.bias": (DIM, 1),
        "encoder.positional_embedding": (CONTEXT, DIM),
        "decoder.positional_embedding": (POSITIONS, DIM),
        "decoder.token_embedding.weight": (vocab, DIM),
    }
    norms = ["encoder.ln_post", "decoder.ln"]
    for side, attentions in ("encoder", ["attn"]), ("decoder", ["attn", "cross_attn"]):
        block = f"{side}.blocks.0"
        for attention in attentions:
            for part in "query", "key", "value", "out":
                all[f"{block}.{attention}.{part}.weight"] = (DIM, DIM)
                if part != "key":
                    all[f"{block}.{attention}.{part}.bias"] = (DIM,)
        all[f"{block}.mlp.0.weight"] = (4 * DIM, DIM)
        all[f"{block}.mlp.0.bias"] = (4 * DIM,)
        all[f"{block}.mlp.2.weight"] = (DIM, 4 * DIM)
        all[f"{block}.mlp.2.bias"] = (DIM,)
        norms += [f"{block}.{attention}_ln" for attention in [*attentions, "mlp"]]
    for norm in norms:
        all[f"{norm}.weight"] = all[f"{norm}.bias"] = (DIM,)
    return all


VOICE_NUMBERS = [512, 64, 4, 129, 128, 3, 128, 64, 3, 64, 64, 3, 64, 128, 3, 128, 128, 128, 1]
"""Sizes of Silero's model of voices."""


def write_voice_model(path: Path, bias: float) -> Path:
    """Writes a file of Silero's model of voices whose weights are 0: every probability is the sigmoid of `bias`."""
    shapes: dict[str, tuple[int, ...]] = {
        "stft.forward_basis_buffer": (258, 1, 256),
        "decoder.rnn.weight_ih": (512, 128),
        "decoder.rnn.weight_hh": (512, 128),
        "decoder.rnn.bias_ih": (512,),
        "decoder.rnn.bias_hh": (512,),
        "decoder.decoder.2.weight": (128,),
        "decoder.decoder.2.bias": (),
    }
    for layer, (outputs, inputs) in enumerate([(128, 129), (64, 128), (64, 64), (128, 64)]):
        shapes[f"encoder.{layer}.reparam_conv.weight"] = (outputs, inputs, 3)
        shapes[f"encoder.{layer}.reparam_conv.bias"] = (outputs,)
    parts = [b"lmgg", struct.pack("<I10s3I", 10, b"silero-16k", 6, 2, 0), struct.pack("<19I", *VOICE_NUMBERS)]
    for key, shape in shapes.items():
        name = f"_model.{key}".encode()
        parts.append(struct.pack(f"<{3 + len(shape)}I", len(shape), len(name), 0, *reversed(shape)) + name)
        parts.append(np.full(shape, bias if shape == () else 0, "<f4").tobytes())
    path.write_bytes(b"".join(parts))
    return path


def tone(seconds: float) -> NDArray[np.float32]:
    """Returns samples at 16 kHz."""
    samples: NDArray[np.float32] = np.arange(int(seconds * 16_000), dtype=np.float32)
    samples = np.sin(0.3 * samples) * np.float32(0.3)
    return samples


def write_wav(path: Path, seconds: float) -> Path:
    """Writes a tone."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((tone(seconds) * 32767).astype("<i2").tobytes())
    return path
