"""Writes golden/rules.json: the tokens that OpenAI's timestamp rules allow for random logits.

    pip install openai-whisper==20250625
    python rules.py > ../golden/rules.json

Each case: vocabulary, seed of the logits, number that is added to the logits of timestamps, tokens
generated so far, largest first timestamp or null, and the ranges of allowed ids.
"""

import json
import random
from types import SimpleNamespace

import numpy as np
import torch
from whisper.decoding import ApplyTimestampRules


def logits(seed, count):
    """Multiples of 2^-20 from -8 to 8, from a multiplicative hash of the id."""
    x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    x += np.uint32(seed * 0x9E3779B9 % 2**32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    return (x >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-20) - np.float32(8)


def ranges(mask):
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(int), [0]])))
    return edges.reshape(-1, 2).tolist()


def generated(draw, first_timestamp, eot):
    """Text and timestamps: mostly well-formed segments, cut anywhere, sometimes at random."""
    if draw.random() < 0.2:
        kinds = [draw.random() < 0.5 for _ in range(draw.randrange(5))]
        return [first_timestamp + draw.randrange(1501) if k else draw.randrange(eot) for k in kinds]
    tokens, at = [], draw.randrange(51)
    for _ in range(draw.randrange(1, 4)):
        end = at + draw.randrange(1, 400)
        texts = [draw.randrange(eot) for _ in range(draw.randrange(1, 4))]
        tokens += [first_timestamp + at, *texts, first_timestamp + end]
        at = end + draw.choice([0, 0, 7])
    return tokens[: draw.randrange(len(tokens) + 1)]


def main():
    draw = random.Random(7)
    cases = []
    for seed in range(240):
        vocab = draw.choice([51864, 51865, 51866])
        eot, first = 50256 + (vocab > 51864), vocab - 1501
        tokenizer = SimpleNamespace(no_timestamps=first - 1, timestamp_begin=first, eot=eot)
        max_initial = draw.choice([50, 50, 50, 0, 200, None])
        bias = draw.choice([-8.0, -5.5, -5.0, -4.5, -4.0, 0.0])
        tokens = generated(draw, first, eot)
        row = logits(seed, vocab)
        row[first:] += np.float32(bias)
        row = torch.tensor(row)[None]
        prompt = [1, 2, 3]
        rules = ApplyTimestampRules(tokenizer, len(prompt), max_initial)
        rules.apply(row, torch.tensor([prompt + tokens]))
        allowed = ranges(np.isfinite(row[0].numpy()))
        cases.append([vocab, seed, bias, tokens, max_initial, allowed])
    print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")


main()
