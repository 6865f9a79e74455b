"""Writes golden/beam.json: beam searches of OpenAI's decoding.py on random tables.

    pip install openai-whisper==20250625
    python beam.py > ../golden/beam.json

The logits after a sequence are a hash of its tokens, over a vocabulary of 12 of which the last is eot.
Each case: seed, beams, patience, length penalty or null, bias of eot, number of steps, then the tokens
of all beams after each step, and tokens and sum of the best hypothesis.
"""

import json
import random

import numpy as np
import torch
from whisper.decoding import BeamSearchDecoder, MaximumLikelihoodRanker

VOCAB, EOT, SOT = 12, 11, 0


def mix(x):
    x = (x ^ x >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    return x ^ x >> 13


def logits(seed, sequence, bias):
    """Multiples of 2^-10 from 0 to 4, plus the bias of eot, which is not the first token."""
    state = seed
    for token in sequence:
        state = mix((state * 31 + token + 1) & 0xFFFFFFFF)
    row = [(mix((state + i * 2654435761) & 0xFFFFFFFF) >> 20) * 2.0**-10 for i in range(VOCAB)]
    row[EOT] += bias if sequence else -np.inf
    return row


class Inference:
    def rearrange_kv_cache(self, source_indices):
        self.sources = source_indices


def search(seed, beams, patience, penalty, bias, steps):
    inference = Inference()
    decoder = BeamSearchDecoder(beams, EOT, inference, patience)
    tokens = torch.full((beams, 1), SOT)
    sums = torch.zeros(beams)
    trace = []
    for step in range(steps):
        rows = [logits(seed, t[1:], bias) for t in tokens.tolist()]
        tokens, completed = decoder.update(tokens, torch.tensor(rows), sums)
        trace.append([t[1:] for t in tokens.tolist()])
        if completed:
            break
    all_tokens, all_sums = decoder.finalize(tokens[None], sums[None])
    cut = [[t[1 : (t == EOT).nonzero()[0, 0]] for t in s] for s in all_tokens]
    best = MaximumLikelihoodRanker(penalty).rank(cut, all_sums)[0]
    return trace, cut[0][best].tolist(), all_sums[0][best]


def main():
    draw = random.Random(3)
    cases = []
    for seed in range(60):
        beams = draw.randrange(1, 6)
        patience = draw.choice([None, None, 2.0, 0.6 if beams > 1 else None])
        penalty = draw.choice([None, None, 0.0, 0.6, 1.0])
        bias, steps = draw.choice([-4.0, 0.0, 1.0, 2.0]), draw.choice([1, 4, 8])
        result = search(seed, beams, patience, penalty, bias, steps)
        cases.append([seed, beams, patience or 1.0, penalty, bias, steps, *result])
    print("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]")


main()
