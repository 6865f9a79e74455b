"""Semantic search: prints the lines whose meaning is most similar to a question.

    python search.py question [model < lines]

The default is the built-in story model, which was not trained for embeddings, and example lines.
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

similarity = rows[1:] @ rows[0]  # cosine similarity: embeddings are normalized
for at in np.argsort(-similarity)[:10]:
    print(f"{similarity[at]:.3f}  {lines[at]}")
