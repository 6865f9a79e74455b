"""The logit lens: the next token that each layer predicts.

Logits of a layer are `lm_head(output_norm(residual stream))`. Source: nostalgebraist 2020, "interpreting GPT: the
logit lens" (https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from . import _tables
from ._arrays import Floats
from .similarity import _log_softmax


@dataclass(frozen=True, eq=False, repr=False)
class LogitLens:
    """Most likely next token after each token, for each layer."""

    layers: tuple[str, ...]
    tokens: tuple[str, ...]
    """Text of each token of the prompt."""
    predictions: tuple[tuple[str, ...], ...]
    """Text of the most likely next token, `[tokens][layers]`."""
    probabilities: Floats
    """Its probability, `[tokens, layers]`."""

    def _table(self) -> list[list[object]]:
        rows: list[list[object]] = [["token", *self.layers]]
        for token, texts in zip(self.tokens, self.predictions):
            rows.append([_tables.printable(text) for text in (token, *texts)])
        return rows

    def __repr__(self) -> str:
        return _tables.text("logit lens", self._table())

    def _repr_html_(self) -> str:
        colors = [[f"rgba(80, 160, 255, {p:.2f})" for p in row] for row in self.probabilities]
        return _tables.html("logit lens", self._table(), colors)


def logit_lens(logits: Mapping[str, ArrayLike], tokens: Sequence[str], text: Callable[[int], str]) -> LogitLens:
    """Returns the most likely next token of each layer.

    `logits` has `[tokens, vocab]` for each layer, `tokens` the text of each token of the prompt. `text` returns
    the text of a token id, such as `lambda token: model.detokenize([token])`.
    """
    if not logits:
        raise ValueError("logits: expected at least one layer, got an empty mapping")
    predictions, probabilities = [], []
    for layer, values in logits.items():
        log_p = _log_softmax(values, f"logits[{layer!r}]")
        if log_p.ndim != 2 or len(log_p) != len(tokens):
            raise ValueError(f"{layer}: expected logits [{len(tokens)}, vocab], got shape {list(log_p.shape)}")
        predictions.append([text(int(token)) for token in log_p.argmax(axis=1)])
        probabilities.append(np.exp(log_p.max(axis=1)))
    return LogitLens(tuple(logits), tuple(tokens), tuple(zip(*predictions)), np.stack(probabilities, axis=1))
