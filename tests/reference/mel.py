#!/usr/bin/env python3
"""Log-mel spectrograms of generated signals, and the mel filters, as transformers computes them: writes tests/golden/mel.npy
(signal, frame, mel) and tests/golden/mel_filters.npy (the weights of 80 filters that are not 0, then of 128).

    pip install numpy transformers
    python3 tests/reference/mel.py

The signals are those of crates/audio/tests/mel.rs: 16-bit samples, so that both compute the same.
"""
from pathlib import Path

import numpy as np
from transformers import WhisperFeatureExtractor

COUNT = 4000
GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def noise(seed):
    """Numbers from -1 to 1 of a linear congruential generator."""
    out = []
    for _ in range(COUNT):
        seed = (seed * 1664525 + 1013904223) % 2**32
        out.append((seed >> 16) / 32768 - 1)
    return np.array(out)


def signals():
    t = np.arange(COUNT)
    sine = lambda hertz: np.sin(2 * np.pi * hertz * t / 16000)
    yield 0.5 * sine(440)
    yield 0.8 * np.sin(2 * np.pi * (100 * t / 16000 + 3500 / (2 * COUNT / 16000) * (t / 16000) ** 2))
    yield 0.3 * noise(1)
    yield 0.0 * t
    yield 3.0 * sine(200)
    yield np.where(t % 1000 == 500, 0.9, 0.0)
    yield 0.0002 * noise(2)
    yield 0.25 + 0.0 * t
    yield 0.4 * sine(1000) + 0.05 * sine(7900)
    yield np.where(t < 2000, 0.6 * sine(3000), 0.0)


mel = []
extract = WhisperFeatureExtractor(feature_size=80)
for x in signals():
    samples = np.clip(np.rint(x * 32768), -32768, 32767) / 32768
    mel.append(extract._np_extract_fbank_features(samples.astype(np.float32)[None], "cpu")[0].T)
np.save(GOLDEN / "mel.npy", np.array(mel, np.float32))
filters = [WhisperFeatureExtractor(feature_size=n).mel_filters.T.astype(np.float32) for n in (80, 128)]
np.save(GOLDEN / "mel_filters.npy", np.concatenate([rows[rows != 0] for rows in filters]))
