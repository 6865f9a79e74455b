"""Finds the lines that mean most nearly what a question does.

    python search.py question [model < lines]

Without a model it is the built-in story model, which was not trained for it, and lines of its own.
"""

from __future__ import annotations

import sys

import numpy as np
import tabla

LINES = ["The fox laughed.", "A boat sailed over the sea.", "The owl slept all day.", "It rained."]

question = sys.argv[1] if len(sys.argv) > 1 else "Who was tired?"
path = sys.argv[2] if len(sys.argv) > 2 else None
lines = [line.strip() for line in sys.stdin] if path else LINES

with tabla.Model.load(path, embeddings=True) as model:
    rows = model.embed([question, *lines], pooling=None if path else "mean", normalize=True)

likeness = rows[1:] @ rows[0]  # both have the length 1: the cosine of the angle between them
for at in np.argsort(-likeness)[:10]:
    print(f"{likeness[at]:.3f}  {lines[at]}")
