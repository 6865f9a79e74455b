"""Directions in the residual stream that separate two sets of prompts, for steering.

Adding a multiple of such a direction to the residual stream moves the model's answers towards the positive
prompts. Sources: Turner et al. 2023, "Activation Addition" (https://arxiv.org/abs/2308.10248); Rimsky et al.
2023, "Steering Llama 2 via Contrastive Activation Addition" (https://arxiv.org/abs/2312.06681); Zou et al.
2023, "Representation Engineering" (https://arxiv.org/abs/2310.01405).
"""

from __future__ import annotations

import os
from typing import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import names
from ._arrays import Features, Floats, matrices

Directions = Mapping[str, ArrayLike]
"""Direction `[dim]` of each layer, by name of the point."""


def mean_difference(positive: Features, negative: Features, *, normalize: bool = False) -> dict[str, Floats]:
    """Returns the difference of means of each layer, `mean(positive) - mean(negative)`, `[dim]`.

    Both arguments have `[prompts, dim]` for the same layers; the numbers of prompts may differ. `normalize`
    scales each direction to length 1. Otherwise its length is in units of the residual stream.
    """
    return {
        layer: _scaled(p.mean(axis=0) - n.mean(axis=0), normalize, layer)
        for layer, (p, n) in _pairs(positive, negative).items()
    }


def pca_direction(positive: Features, negative: Features, *, normalize: bool = False) -> dict[str, Floats]:
    """Returns the first principal component of the differences of pairs of each layer, `[dim]`.

    Row `i` of `positive` and of `negative` are a pair. The component is the unit vector `v` that maximizes
    `sum(((positive[i] - negative[i]) · v)²)`. The differences are not centered, which is the same as centering
    the differences of both signs; the mean difference would be lost otherwise. The sign of `v` is that of its
    product with the mean difference. Without `normalize`, its length is that product: the distance of the
    means along `v`.
    """
    directions = {}
    for layer, (p, n) in _pairs(positive, negative).items():
        if len(p) != len(n):
            raise ValueError(f"{layer}: expected pairs, got {len(p)} positive and {len(n)} negative rows")
        differences = p - n
        mean = differences.mean(axis=0)
        component = np.linalg.svd(differences, full_matrices=False)[2][0]
        directions[layer] = _scaled(component * (component @ mean), normalize, layer)
    return directions


def save(path: str | os.PathLike[str], directions: Directions, layers: int) -> None:
    """Writes directions to a .npy file: float32, `[layers, dim]`, row `N` for `blk.N`.

    `layers` is the number of layers of the model. Rows of layers without a direction are 0.
    """
    rows = {}
    for name, direction in directions.items():
        layer, kind = names.split(names.resolve(name, layers))
        if layer is None or kind:
            raise ValueError(f"expected points blk.N of the residual stream, got {name!r}")
        rows[layer] = np.asarray(direction, dtype=np.float32)
    sizes = {row.shape for row in rows.values()}
    if len(sizes) != 1 or len(next(iter(sizes))) != 1:
        raise ValueError(f"expected directions of the same shape [dim], got shapes {sorted(map(list, sizes))}")
    [(dim,)] = sizes
    table = np.zeros((layers, dim), dtype=np.float32)
    for layer, row in rows.items():
        table[layer] = row
    with open(path, "wb") as file:  # numpy.save would add an extension to a path
        np.save(file, table, allow_pickle=False)


def load(path: str | os.PathLike[str]) -> dict[str, NDArray[np.float32]]:
    """Returns the directions that `save` wrote, float32 `[dim]` by `blk.N`, without rows that are 0."""
    table = np.load(path, allow_pickle=False)
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.floating) or not np.isfinite(table).all():
        shape = f"{table.dtype} {list(table.shape)}"
        raise ValueError(f"{os.fspath(path)}: expected finite floats [layers, dim], got {shape}")
    rows = table.astype(np.float32)
    return {f"blk.{layer}": row for layer, row in enumerate(rows) if row.any()}


def _pairs(positive: Features, negative: Features) -> dict[str, tuple[Floats, Floats]]:
    p, n = matrices(positive, "positive"), matrices(negative, "negative")
    if p.keys() != n.keys():
        raise ValueError(f"layer mismatch: positive has {', '.join(p)}, negative has {', '.join(n)}")
    for layer in p:
        if p[layer].shape[1] != n[layer].shape[1]:
            columns = f"positive has {p[layer].shape[1]} columns, negative has {n[layer].shape[1]}"
            raise ValueError(f"{layer}: dim mismatch: {columns}")
    return {layer: (p[layer], n[layer]) for layer in p}


def _scaled(direction: Floats, normalize: bool, layer: str) -> Floats:
    if not normalize:
        return direction
    length = float(np.linalg.norm(direction))
    if length == 0:
        raise ValueError(f"{layer}: positive and negative rows have the same mean: there is no direction")
    return direction / length
