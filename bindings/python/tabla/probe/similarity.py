"""Similarity of activations and of predictions of layers and models.

The functions compare two sets of activations of the same examples: `x` is `[examples, dim]`, `y` is `[examples,
other dim]`, row `i` of both belongs to example `i`. They compute in float64.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Mapping, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from . import _tables
from ._arrays import Features, Floats, matrix, rounding, same_rows

GRAM_ROWS = 2048
"""Maximum number of examples for which CKA uses matrices `[examples, examples]` instead of `[dim, dim]`."""


# Canonical correlation analysis


class _Basis(NamedTuple):
    """Singular value decomposition of a centered matrix, without directions of singular value 0."""

    u: Floats
    """Orthonormal basis of the columns, `[examples, rank]`."""
    s: Floats
    """Singular values, `[rank]`."""
    centered: Floats


def _basis(values: ArrayLike, name: str = "x") -> _Basis:
    x = matrix(values, name)
    centered = x - x.mean(axis=0)
    u, s, _ = np.linalg.svd(centered, full_matrices=False)
    # Bound on the singular values of rounding errors: of the input, and of the decomposition.
    relative = max(rounding(values), float(np.finfo(np.float64).eps) * max(x.shape))
    rank = int((s > relative * np.linalg.norm(x)).sum())
    if rank == 0:
        raise ValueError(f"{name}: all rows are equal, correlations are undefined")
    return _Basis(u[:, :rank], s[:rank], centered)


def _most_variance(values: ArrayLike, name: str = "x", variance: float = 0.99) -> _Basis:
    """Returns the first directions that have this fraction of the variance."""
    if not 0 < variance <= 1:
        raise ValueError(f"invalid variance: {variance}, expected a value in (0, 1]")
    u, s, centered = _basis(values, name)
    fraction = np.cumsum(s**2) / np.sum(s**2)
    rank = min(int(np.searchsorted(fraction, variance)) + 1, len(s))
    return _Basis(u[:, :rank], s[:rank], centered)


def _correlations(x: _Basis, y: _Basis) -> tuple[Floats, Floats]:
    """Returns the canonical correlations and the canonical variates of `x`, `[examples, correlations]`."""
    same_rows(x.u, y.u, "x", "y")
    forced = x.u.shape[1] + y.u.shape[1] - (len(x.u) - 1)
    if forced > 0:
        ranks = f"ranks {x.u.shape[1]} and {y.u.shape[1]} with {len(x.u)} examples"
        message = f"{ranks} force {forced} canonical correlations to 1: use svcca, cka or more examples"
        warnings.warn(message, RuntimeWarning, stacklevel=4)
    rotation, correlations, _ = np.linalg.svd(x.u.T @ y.u, full_matrices=False)
    return np.clip(correlations, 0, 1), x.u @ rotation


def _mean_correlation(x: _Basis, y: _Basis) -> float:
    return float(_correlations(x, y)[0].mean())


def _weighted_correlation(x: _Basis, y: _Basis) -> float:
    correlations, variates = _correlations(x, y)
    weights = np.abs(variates.T @ x.centered).sum(axis=1)
    return float(weights @ correlations / weights.sum())


def canonical_correlations(x: ArrayLike, y: ArrayLike) -> Floats:
    """Returns the canonical correlations in descending order, `[min(rank(x), rank(y))]`, each from 0 to 1.

    They are the singular values of `Qxᵀ Qy` for orthonormal bases of the centered columns (Björck and Golub 1973),
    and do not change if `x` or `y` is multiplied with an invertible matrix. Directions whose singular value is
    within the rounding error of the input are ignored.

    If `rank(x) + rank(y) >= examples`, some correlations are 1 for any input, and there is a `RuntimeWarning`.
    """
    return _correlations(_basis(x, "x"), _basis(y, "y"))[0]


def cca(x: ArrayLike, y: ArrayLike) -> float:
    """Returns the mean canonical correlation, from 0 to 1. See `canonical_correlations`."""
    return _mean_correlation(_basis(x, "x"), _basis(y, "y"))


def svcca(x: ArrayLike, y: ArrayLike, variance: float = 0.99) -> float:
    """Returns the mean canonical correlation of the first principal components of `x` and of `y` that have the
    fraction `variance` of their variance, from 0 to 1. Source: Raghu et al. 2017
    (https://arxiv.org/abs/1706.05806)."""
    return _mean_correlation(_most_variance(x, "x", variance), _most_variance(y, "y", variance))


def pwcca(x: ArrayLike, y: ArrayLike) -> float:
    """Returns the projection-weighted mean of canonical correlations, from 0 to 1.

    The weight of correlation `i` is `sum_j |h_i · x_j|`, where `h_i` is its canonical variate and `x_j` are the
    columns of `x`. It is not symmetric. Source: Morcos et al. 2018 (https://arxiv.org/abs/1806.05759)."""
    return _weighted_correlation(_basis(x, "x"), _basis(y, "y"))


# Centered kernel alignment


def cka(x: ArrayLike, y: ArrayLike, *, unbiased: bool = False) -> float:
    """Returns the linear centered kernel alignment, from 0 to 1.

    `|Yᵀ X|² / (|Xᵀ X| |Yᵀ Y|)` with Frobenius norms of centered matrices. It does not change with rotations and
    isotropic scaling of `x` or `y`. Source: Kornblith et al. 2019 (https://arxiv.org/abs/1905.00414).

    With fewer examples than dimensions, it is high for any input. `unbiased` uses the unbiased estimator of HSIC
    (Song et al. 2012), for at least 4 examples; the result is near 0 for independent input and may be negative.
    """
    return _compare_cka(_prepare_cka(x, "x", unbiased), _prepare_cka(y, "y", unbiased), unbiased)


def _prepare_cka(values: ArrayLike, name: str = "x", unbiased: bool = False) -> Floats:
    """Returns a matrix of norm 1 `[examples, examples]`, or with many examples the centered `[examples, dim]`."""
    x = matrix(values, name)
    error = rounding(values) * np.linalg.norm(x)
    x -= x.mean(axis=0)
    if np.linalg.norm(x) <= error:
        raise ValueError(f"{name}: all rows are equal, the alignment is undefined")
    x /= np.linalg.norm(x)
    if not unbiased:
        if len(x) > GRAM_ROWS:
            return np.asarray(x / np.sqrt(np.linalg.norm(x.T @ x)))
        gram = x @ x.T
        return np.asarray(gram / np.linalg.norm(gram))
    n = len(x)
    if n < 4:
        raise ValueError(f"{name}: unbiased CKA needs at least 4 examples, got {n}")
    gram = x @ x.T
    np.fill_diagonal(gram, 0)
    # With U-centered matrices, HSIC is a dot product: Székely and Rizzo 2014, definition 2.
    rows = gram.sum(axis=1) / (n - 2)
    gram -= rows[:, None] + rows[None, :] - rows.sum() / (n - 1)
    np.fill_diagonal(gram, 0)
    norm = np.linalg.norm(gram)
    if norm == 0:
        raise ValueError(f"{name}: the unbiased norm is 0, the alignment is undefined")
    return np.asarray(gram / norm)


def _compare_cka(x: Floats, y: Floats, unbiased: bool = False) -> float:
    same_rows(x, y, "x", "y")
    if unbiased:
        return float(np.clip(np.vdot(x, y), -1, 1))
    similarity = np.vdot(x, y) if len(x) <= GRAM_ROWS else np.linalg.norm(y.T @ x) ** 2
    return float(np.clip(similarity, 0, 1))


# Representational similarity analysis


def dissimilarity(x: ArrayLike, metric: str = "correlation") -> Floats:
    """Returns the representational dissimilarity matrix, `[examples, examples]`.

    `metric` is the distance of two rows: `"correlation"` (1 - Pearson correlation, 0 to 2), `"cosine"`
    (1 - cosine, 0 to 2) or `"euclidean"`.
    """
    rows = matrix(x, "x")
    if metric == "euclidean":
        # Not from dot products, which lose precision for rows that are near each other.
        return np.stack([np.linalg.norm(rows - row, axis=1) for row in rows])
    if metric not in ("correlation", "cosine"):
        raise ValueError(f'invalid metric: {metric!r}, expected "correlation", "cosine" or "euclidean"')
    error = rounding(x) * np.linalg.norm(rows, axis=1)
    if metric == "correlation":
        rows = rows - rows.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(rows, axis=1)
    if (norms <= error).any():
        row = int((norms <= error).argmax())
        raise ValueError(
            f"row {row} of x is {'constant' if metric == 'correlation' else '0'}: no {metric} distance"
        )
    rows = rows / norms[:, None]
    distances = np.clip(1 - rows @ rows.T, 0, 2)
    np.fill_diagonal(distances, 0)
    return np.asarray(distances)


def rsa(x: ArrayLike, y: ArrayLike, metric: str = "correlation") -> float:
    """Returns the representational similarity: the Spearman correlation of the upper triangles of the
    dissimilarity matrices of `x` and `y`, from -1 to 1. Ties have their average rank. Needs at least 3 examples.
    Source: Kriegeskorte et al. 2008 (https://doi.org/10.3389/neuro.06.004.2008)."""
    return _compare_rsa(_prepare_rsa(x, "x", metric), _prepare_rsa(y, "y", metric))


def _prepare_rsa(values: ArrayLike, name: str = "x", metric: str = "correlation") -> Floats:
    """Returns the ranks of the distances, centered and of norm 1."""
    distances = dissimilarity(values, metric)
    if len(distances) < 3:
        raise ValueError(f"{name}: RSA needs at least 3 examples, got {len(distances)}")
    ranks = _ranks(distances[np.triu_indices(len(distances), k=1)])
    ranks -= ranks.mean()
    if not ranks.any():
        raise ValueError(f"{name}: all distances are equal, the rank correlation is undefined")
    return np.asarray(ranks / np.linalg.norm(ranks))


def _compare_rsa(x: Floats, y: Floats) -> float:
    if len(x) != len(y):
        raise ValueError(f"number of examples of x and y differs: {len(x)} and {len(y)} distances")
    return float(np.clip(x @ y, -1, 1))


def _ranks(values: Floats) -> Floats:
    """Returns the rank of each value from 1 on; ties have their average rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(counts) - (counts - 1) / 2)[inverse])


# Jensen-Shannon divergence


def js_divergence(p: ArrayLike, q: ArrayLike) -> Floats:
    """Returns the Jensen-Shannon divergence of `softmax(p)` and `softmax(q)` in bits, from 0 to 1.

    `p` and `q` are logits of the same shape `[..., vocab]`; -inf is probability 0. The result has shape `[...]`.
    `JSD(P, Q) = KL(P, M) / 2 + KL(Q, M) / 2` with `M = (P + Q) / 2` and base 2. Source: Lin 1991
    (https://doi.org/10.1109/18.61115).
    """
    log_p, log_q = _log_softmax(p, "p"), _log_softmax(q, "q")
    if log_p.shape != log_q.shape:
        raise ValueError(f"shape mismatch: p has {list(log_p.shape)}, q has {list(log_q.shape)}")
    log_m = np.logaddexp(log_p, log_q) - np.log(2)
    divergence = (_kl_terms(log_p, log_m) + _kl_terms(log_q, log_m)).sum(axis=-1) / (2 * np.log(2))
    return np.asarray(np.clip(divergence, 0, 1))


def _log_softmax(logits: ArrayLike, name: str) -> Floats:
    values = np.asarray(logits, dtype=np.float64)
    if values.ndim == 0 or values.size == 0:
        raise ValueError(f"{name}: expected logits [..., vocab], got shape {list(values.shape)}")
    top = values.max(axis=-1, keepdims=True)
    if not np.isfinite(top).all():
        raise ValueError(f"{name}: a row of logits has NaN or infinity, or only -inf")
    shifted = values - top
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def _kl_terms(log_p: Floats, log_m: Floats) -> Floats:
    # Where the probability is 0, the term is 0, its limit.
    difference = np.subtract(log_p, log_m, out=np.zeros_like(log_p), where=log_p > -np.inf)
    return np.asarray(np.exp(log_p) * difference)


@dataclass(frozen=True, eq=False, repr=False)
class LayerDivergence:
    """Jensen-Shannon divergence between the predictions of each layer and those of a reference."""

    layers: tuple[str, ...]
    reference: str
    """Layer that the others are compared with."""
    values: Floats
    """Divergence in bits, from 0 to 1, `[layers, tokens]`."""

    @property
    def mean(self) -> Floats:
        """Mean of the tokens, `[layers]`."""
        return np.asarray(self.values.mean(axis=1))

    @property
    def stderr(self) -> Floats:
        """Standard error of the mean, `[layers]`. 0 for a single token."""
        tokens = self.values.shape[1]
        return np.asarray(self.values.std(axis=1, ddof=min(1, tokens - 1)) / np.sqrt(tokens))

    def _rows(self) -> list[list[object]]:
        columns = zip(self.layers, map(float, self.mean), map(float, self.stderr))
        return [["layer", "divergence", "± stderr"], *(list(row) for row in columns)]

    def _title(self) -> str:
        return f"Jensen-Shannon divergence from {self.reference}, {self.values.shape[1]} tokens"

    def __repr__(self) -> str:
        return _tables.text(self._title(), self._rows())

    def _repr_html_(self) -> str:
        return _tables.html(self._title(), self._rows())


def layer_divergence(logits: Mapping[str, ArrayLike], reference: str | None = None) -> LayerDivergence:
    """Compares the predictions of each layer with those of `reference`, by default the last layer.

    `logits` has `[tokens, vocab]` for each layer, such as logits of the logit lens.
    """
    if not logits:
        raise ValueError("logits: expected at least one layer, got an empty mapping")
    base = list(logits)[-1] if reference is None else reference
    if base not in logits:
        raise ValueError(f"reference {base!r} is not one of the layers {', '.join(logits)}")
    values = [np.atleast_1d(js_divergence(rows, logits[base])) for rows in logits.values()]
    return LayerDivergence(tuple(logits), base, np.stack(values))


# All pairs of layers

_MEASURES: dict[str, tuple[Callable[..., Any], Callable[..., float]]] = {
    "cca": (_basis, _mean_correlation),
    "svcca": (_most_variance, _mean_correlation),
    "pwcca": (_basis, _weighted_correlation),
    "cka": (_prepare_cka, _compare_cka),
    "unbiased cka": (partial(_prepare_cka, unbiased=True), partial(_compare_cka, unbiased=True)),
    "rsa": (_prepare_rsa, _compare_rsa),
}
"""Preparation of a layer and comparison of two prepared layers, by name of the measure."""


@dataclass(frozen=True, eq=False, repr=False)
class LayerSimilarity:
    """Similarity of each pair of layers."""

    measure: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Floats
    """`[rows, columns]`."""

    def _table(self) -> list[list[object]]:
        head: list[object] = ["", *self.columns]
        return [head, *([name, *map(float, row)] for name, row in zip(self.rows, self.values))]

    def __repr__(self) -> str:
        return _tables.text(self.measure, self._table())

    def _repr_html_(self) -> str:
        colors = [[f"rgba(80, 160, 255, {min(max(value, 0), 1):.2f})" for value in row] for row in self.values]
        return _tables.html(self.measure, self._table(), colors)


def layer_similarity(x: Features, y: Features | None = None, measure: str = "cka") -> LayerSimilarity:
    """Compares each layer of `x` with each layer of `y`, by default with those of `x`.

    `x` and `y` have `[examples, dim]` for each layer, of the same examples. `measure` is `"cca"`, `"svcca"`,
    `"pwcca"`, `"cka"`, `"unbiased cka"` or `"rsa"`, with the default options of these functions.
    """
    if measure not in _MEASURES:
        raise ValueError(f"invalid measure: {measure!r}, expected one of {', '.join(_MEASURES)}")
    if not x or (y is not None and not y):
        raise ValueError("expected at least one layer, got an empty mapping")
    prepare, compare = _MEASURES[measure]
    left = {layer: prepare(values, f"x[{layer!r}]") for layer, values in x.items()}
    right = left
    if y is not None:
        right = {layer: prepare(values, f"y[{layer!r}]") for layer, values in y.items()}
    values = np.array([[compare(a, b) for b in right.values()] for a in left.values()])
    return LayerSimilarity(measure, tuple(left), tuple(right), values)
