"""Plots of results. Each function returns a matplotlib `Figure`.

The functions do not use `matplotlib.pyplot`, so they need no display and no `close`. `figure.savefig(path)` writes
an image. Notebooks show figures after `%matplotlib inline`.
"""

from __future__ import annotations

from typing import Any, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from ._arrays import matrix
from ._tables import printable
from .lens import LogitLens
from .linear import ProbeResult
from .similarity import LayerDivergence, LayerSimilarity

COLORS = "viridis"
"""Color map of heat maps."""

TEXT = 24
"""Maximum number of characters of a name or token. Longer text is cut, so that it leaves room for the plot."""


def accuracy(result: ProbeResult) -> Figure:
    """Plots the mean score of each layer with its standard error, the control tasks and the baseline."""
    figure, axes = _line_plot(result.layers, result.metric)
    at = np.arange(len(result.layers))
    axes.errorbar(at, result.mean, yerr=result.stderr, marker="o", capsize=3, label="probe")
    if result.control is not None:
        axes.plot(at, result.control, marker="s", linestyle="--", label="control task")
    axes.axhline(result.baseline, color="gray", linestyle=":", label="baseline")
    axes.legend()
    return figure


def divergence(result: LayerDivergence) -> Figure:
    """Plots the mean divergence of each layer with its standard error."""
    figure, axes = _line_plot(result.layers, f"JS divergence from {_short(result.reference)} (bits)")
    axes.errorbar(np.arange(len(result.layers)), result.mean, yerr=result.stderr, marker="o", capsize=3)
    axes.set_ylim(bottom=0)
    return figure


def heads(values: ArrayLike, *, label: str = "") -> Figure:
    """Plots a heat map of a value of each head, `[layers, heads]`. `label` describes the value. If there are
    negative values, the colors are symmetric around 0."""
    table = matrix(values, "values")
    figure, axes = _axes(table.shape[1], table.shape[0], 0.35)
    _heat_map(axes, table, label)
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    axes.set_xticks(range(table.shape[1]))
    axes.set_yticks(range(table.shape[0]))
    return figure


def similarity(result: LayerSimilarity) -> Figure:
    """Plots a heat map of the similarity of each pair of layers."""
    figure, axes = _axes(len(result.columns), len(result.rows), 0.35)
    _heat_map(axes, result.values, result.measure)
    _name_ticks(axes, result.columns, result.rows)
    return figure


def logit_lens(result: LogitLens) -> Figure:
    """Plots a table with a row for each token and a column for each layer. A cell has the text of the most likely
    next token; its color is the probability."""
    figure, axes = _axes(len(result.layers), len(result.tokens), 0.9, 0.35)
    _heat_map(axes, result.probabilities, "probability", aspect="auto", vmin=0, vmax=1)
    for row, texts in enumerate(result.predictions):
        for column, text in enumerate(texts):
            color = "black" if result.probabilities[row, column] > 0.5 else "white"
            style: dict[str, Any] = {"ha": "center", "va": "center", "clip_on": True, "parse_math": False}
            axes.text(column, row, _short(text), color=color, fontsize=8, **style)
    _name_ticks(axes, result.layers, result.tokens)
    return figure


def attention(weights: ArrayLike, tokens: Sequence[str]) -> Figure:
    """Plots the attention map of a head, `[queries, keys]`. `tokens` has the text of each key; the queries are the
    last ones of them."""
    table = matrix(weights, "weights")
    if table.shape[1] != len(tokens) or table.shape[0] > len(tokens):
        raise ValueError(
            f"expected weights [queries, {len(tokens)}] for {len(tokens)} tokens, got {table.shape}"
        )
    figure, axes = _axes(table.shape[1], table.shape[0], 0.35)
    _heat_map(axes, table, "attention weight", vmin=0)
    _name_ticks(axes, tokens, tokens[len(tokens) - len(table) :])
    axes.set_xlabel("key")
    axes.set_ylabel("query")
    return figure


def _axes(columns: int, rows: int, width: float, height: float | None = None) -> tuple[Figure, Axes]:
    """Returns axes for cells of `width` and `height` inches, within bounds, and a margin for names."""
    size = (min(4 + width * columns, 30), min(3 + (height or width) * rows, 30))
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.add_subplot()


def _line_plot(layers: Sequence[str], label: str) -> tuple[Figure, Axes]:
    figure, axes = _axes(len(layers), 8, 0.35)
    axes.set_xticks(range(len(layers)), [_short(name) for name in layers], rotation=90, parse_math=False)
    axes.set_ylabel(label, parse_math=False)
    axes.grid(alpha=0.3)
    return figure, axes


def _heat_map(axes: Axes, values: Any, label: str, **options: Any) -> None:
    if "vmin" not in options and values.min() < 0:
        limit = np.abs(values).max()
        options.update(vmin=-limit, vmax=limit, cmap="RdBu_r")
    image = axes.imshow(values, **{"cmap": COLORS, "aspect": "equal", **options})
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label(label, parse_math=False)


def _name_ticks(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    # Text of models may contain dollar signs, which would start a formula.
    axes.set_xticks(range(len(columns)), [_short(text) for text in columns], rotation=90, parse_math=False)
    axes.set_yticks(range(len(rows)), [_short(text) for text in rows], parse_math=False)


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= TEXT else f"{text[: TEXT - 1]}…"
