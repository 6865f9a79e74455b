"""Direct logit attribution: the parts of the logits that attention, heads and feed-forward layers add directly.

The residual stream before the final norm is the sum of the token embedding and the outputs of all layers. The final norm
divides by one number per token and the output projection is linear, so a logit is the sum of the contributions of these
parts (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence

import numpy as np
from numpy.typing import NDArray
from tabla import ArgumentError, Edit, Hooks, Model, Prompt

from . import _tables

Floats = NDArray[np.float64]

LARGE = 1e4
"""Length of the rows that are sent through the final norm, so that its epsilon does not matter."""

TOLERANCE = 1e-3
"""Largest error of the sum of the contributions, relative to the largest logit."""


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Contributions to logits after the last token of a prompt.

    Attributes
    ----------
    parts : tuple of str
        Names of the parts: `token_embd`, `blk.N.attn_output` or `blk.N.attn_output[head]`, `blk.N.ffn_down`, and `bias`.
    tokens : tuple of int
        Token ids.
    values : ndarray
        `[parts, tokens]`. Columns sum to the logits.
    """

    parts: tuple[str, ...]
    tokens: tuple[int, ...]
    values: Floats

    def _table(self) -> list[list[object]]:
        rows: list[list[object]] = [["part", *self.tokens]]
        rows.extend([part, *(f"{value:.3f}" for value in row)] for part, row in zip(self.parts, self.values))
        return rows

    def __repr__(self) -> str:
        return _tables.text("direct logit attribution", self._table())

    def _repr_html_(self) -> str:
        return _tables.html("direct logit attribution", self._table())


def logit_attribution(
    model: Model, prompt: Prompt, tokens: Sequence[int], *, heads: bool = False
) -> Attribution:
    """Returns the contributions of all parts to the logits of `tokens` after the last token of a prompt.

    With `heads`, attention is separated into its heads. Their outputs are computed by passes of the model in which rows of
    `blk.N.attn` are replaced by those of single heads.

    Raises `ArgumentError` for models whose layers add other parts, scale them, or whose logits are softcapped.
    """
    ids = model.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
    attention, feed_forward = _outputs(model)
    layers = range(model.info.layers)
    points = ["token_embd", f"blk.*.{attention}", f"blk.*.{feed_forward}", "blk.*", "blk.*.attn"]
    with model.hooks(points, positions="last") as hooks, model.session() as session:
        session.set_hooks(hooks)
        captured = session.capture_prompt(ids)
        last = {point: captured[point][-1].astype(np.float64) for point in captured}
        if heads and attention != "attn_output":
            raise ArgumentError("heads cannot be separated: the architecture normalizes the output of attention")
        separated = _heads(model, last) if heads else {}
        parts = {"token_embd": last["token_embd"]}
        for layer in layers:
            name = f"blk.{layer}.{attention}"
            parts.update(separated.get(layer) or {name: last[name]})
            parts[f"blk.{layer}.{feed_forward}"] = last[f"blk.{layer}.{feed_forward}"]
        final = last[f"blk.{layers[-1]}"]
        values = _logits(hooks, np.stack(list(parts.values())), final, tokens)
        expected = hooks.lens(final[None].astype(np.float32))[0, list(tokens)]
    error = np.abs(values.sum(axis=0) - expected).max()
    if not error <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise ArgumentError(
            f"the contributions differ from the logits by {error:.3g}: the architecture scales or adds other parts, or softcaps"
            " its logits"
        )
    return Attribution((*parts, "bias"), tuple(tokens), values)


def _outputs(model: Model) -> tuple[str, str]:
    """Returns the points that layers add to the residual stream."""
    try:
        model.hooks(["blk.0.post_attention_norm", "blk.0.post_ffw_norm"]).close()
    except ArgumentError:
        return "attn_output", "ffn_down"
    return "post_attention_norm", "post_ffw_norm"


def _logits(hooks: Hooks, parts: Floats, final: Floats, tokens: Sequence[int]) -> Floats:
    """Returns the contributions of rows to logits, and as the last row those of the biases.

    The norm of a row `x` is `f(x) / s(x)` with a linear `f` and a length `s`. The final norm divides by the length of
    `final`, so the contribution of `x` is `lens(x) s(x) / s(final)` without the biases, which are the lens of 0.
    """
    rows = np.concatenate([parts, np.zeros_like(final)[None]])
    # A layer norm subtracts the mean, so that the lens of a constant row is that of 0.
    ones = hooks.lens(np.stack([np.ones_like(final) * LARGE, final * 0]).astype(np.float32))
    centered = np.abs(ones[0] - ones[1]).max() < 1e-3 * max(1.0, float(np.abs(ones).max()))

    def length(x: Floats) -> Floats:
        x = x - x.mean(axis=-1, keepdims=True) if centered else x
        return np.asarray(np.sqrt((x * x).mean(axis=-1)), np.float64)

    lengths = length(rows)
    scaled = rows * np.divide(LARGE, lengths, out=np.zeros_like(lengths), where=lengths > 0)[:, None]
    logits = hooks.lens(scaled.astype(np.float32))[:, list(tokens)].astype(np.float64)
    bias = logits[-1]
    contributions = (logits[:-1] - bias) * (lengths[:-1] / length(final))[:, None]
    return np.concatenate([contributions, bias[None]])


def _heads(model: Model, last: dict[str, Floats]) -> dict[int, dict[str, Floats]]:
    """Returns the outputs of the heads of each layer, and the bias of their projection as a part of its own.

    A pass has a token for each head, at which the columns of the other heads are set to 0, and one without any."""
    heads, layers = model.info.heads, range(model.info.layers)
    rows = {}
    for layer in layers:
        z = last[f"blk.{layer}.attn"]
        mask = np.repeat(np.eye(heads + 1, heads), len(z) // heads, axis=1)
        rows[layer] = mask * z
    outputs: dict[int, list[Floats]] = {layer: [] for layer in layers}
    step = min(heads + 1, model.info.context)
    for start in range(0, heads + 1, step):
        count = min(step, heads + 1 - start)
        edits = [
            Edit.set(f"blk.{layer}.attn", rows[layer][start : start + count], positions=(0, count)) for layer in layers
        ]
        with model.hooks("blk.*.attn_output", edits=edits) as hooks, model.session() as session:
            session.set_hooks(hooks)
            captured = session.capture_prompt([0] * count)
            for layer in layers:
                outputs[layer].append(captured[f"blk.{layer}.attn_output"].astype(np.float64))
    separated = {}
    for layer in layers:
        point, output = f"blk.{layer}.attn_output", np.concatenate(outputs[layer])
        separated[layer] = {f"{point}[{head}]": output[head] - output[-1] for head in range(heads)}
        if np.any(output[-1]):
            separated[layer][f"{point}.bias"] = output[-1]
    return separated
