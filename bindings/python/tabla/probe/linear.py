"""Linear probes: how well a linear model predicts a property from the activations of each layer.

Sources: Alain and Bengio 2016, "Understanding intermediate layers using linear classifier probes"
(https://arxiv.org/abs/1610.01644); Hewitt and Liang 2019, "Designing and Interpreting Probes with Control
Tasks" (https://arxiv.org/abs/1909.03368).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Hashable, List, Sequence, Tuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from . import _tables
from ._arrays import Features, Floats, matrices

Splits = List[Tuple[NDArray[np.intp], NDArray[np.intp]]]
"""Rows for training and for testing, for each fold."""

Score = Callable[[Floats, NDArray[Any], Floats, NDArray[Any]], float]
"""Trains on the first two arguments, features and targets. Returns the score on the last two."""

ITERATIONS = 1000
"""Maximum number of iterations of logistic regression."""

SMALL = 4_000_000
"""Maximum number of values of a layer for which a single thread is used. If other programs use the CPU, more threads
of the BLAS library wait for each other and are slower by a factor of 10 or more."""


@dataclass(frozen=True, eq=False, repr=False)
class ProbeResult:
    """Scores of the probes of all layers."""

    metric: str
    """`"accuracy"` or `"R²"`."""
    layers: tuple[str, ...]
    scores: Floats
    """Score of each fold, `[layers, folds]`."""
    control_scores: Floats
    """Scores of the control tasks, `[layers, controls, folds]`."""
    baseline: float
    """Score without activations: the frequency of the most frequent label, or 0 for R²."""

    @property
    def mean(self) -> Floats:
        """Mean score of the folds, `[layers]`."""
        return np.asarray(self.scores.mean(axis=1))

    @property
    def stderr(self) -> Floats:
        """Standard error of the mean, `std(folds, ddof=1) / sqrt(folds)`, `[layers]`. The training sets of folds
        overlap, so this underestimates the variance (Bengio and Grandvalet 2004)."""
        return np.asarray(self.scores.std(axis=1, ddof=1) / np.sqrt(self.scores.shape[1]))

    @property
    def control(self) -> Floats | None:
        """Mean score of the control tasks, `[layers]`. `None`: there are none."""
        return np.asarray(self.control_scores.mean(axis=(1, 2))) if self.control_scores.size else None

    @property
    def selectivity(self) -> Floats | None:
        """Difference between the mean scores of the task and of the control tasks, `[layers]`. A high score with
        a low selectivity is memorization by the probe. A control R² below 0 counts as 0."""
        return None if self.control is None else self.mean - np.maximum(self.control, 0)

    @property
    def best(self) -> str:
        """Layer with the highest mean score, the first one of several."""
        return self.layers[int(self.mean.argmax())]

    def _rows(self) -> list[list[object]]:
        head: list[object] = ["layer", self.metric, "± stderr"]
        columns: list[Any] = [self.layers, map(float, self.mean), map(float, self.stderr)]
        if self.control is not None and self.selectivity is not None:
            head += ["control", "selectivity"]
            columns += [map(float, self.control), map(float, self.selectivity)]
        return [head, *(list(row) for row in zip(*columns))]

    def _title(self) -> str:
        return f"{self.metric} of {self.scores.shape[1]} folds, baseline {self.baseline:.3f}"

    def __repr__(self) -> str:
        return _tables.text(self._title(), self._rows())

    def _repr_html_(self) -> str:
        return _tables.html(self._title(), self._rows())


def linear_probe(
    features: Features,
    labels: Sequence[Hashable] | NDArray[Any],
    *,
    items: Sequence[Hashable] | NDArray[Any] | None = None,
    split_items: bool = False,
    folds: int = 5,
    l2: float = 1.0,
    controls: int = 1,
    seed: int = 0,
) -> ProbeResult:
    """Predicts labels from the activations of each layer with logistic regression.

    `features` has `[examples, dim]` for each layer, `labels` has `[examples]` values of at least two classes. The
    score is the accuracy on the test examples of each of `folds` stratified folds. Columns are standardized with
    mean and standard deviation of the training examples. The weights `w` minimize
    `sum(log loss) + l2 / 2 · |w|²`. The same arguments give the same result.

    `controls` is the number of control tasks (Hewitt and Liang 2019). In a control task, every item has a random
    label, drawn from the labels of the examples. `items` has the item of each example, such as its word; examples
    of the same item have the same random label. By default, every example is an item of its own, and no probe
    can predict the labels of test examples better than chance. The folds are those of the task.

    `split_items` puts all examples of an item into the same fold, so that the score is that of items that the probe
    was not trained on.
    """
    values = matrices(features, "features")
    classes, targets = np.unique(_column(labels, "labels", values, [1]), return_inverse=True)
    counts = np.bincount(targets)
    if len(classes) < 2:
        raise ValueError(f"expected labels of at least 2 classes, got only {classes[0].item()!r}")
    if counts.min() < folds:
        rare = classes[counts.argmin()].item()
        raise ValueError(f"label {rare!r} has {counts.min()} examples, expected at least {folds} (folds)")
    numbers = _item_numbers(items, len(targets))
    if split_items:
        _check_items(numbers, folds)
        splits = StratifiedGroupKFold(folds, shuffle=True, random_state=seed).split(targets, targets, numbers)
    else:
        splits = StratifiedKFold(folds, shuffle=True, random_state=seed).split(targets, targets)

    def accuracy(x: Floats, y: NDArray[Any], x_test: Floats, y_test: NDArray[Any]) -> float:
        if (y == y[0]).all():  # possible in a control task
            return float((y_test == y[0]).mean())
        fitted = LogisticRegression(C=1 / l2, max_iter=ITERATIONS).fit(x, y)
        return float((fitted.predict(x_test) == y_test).mean())

    tasks = [targets, *_control_tasks(targets, numbers, controls, seed)]
    scores = _scores(values, tasks, list(splits), accuracy)
    return ProbeResult("accuracy", tuple(values), scores[:, 0], scores[:, 1:], counts.max() / len(targets))


def ridge_probe(
    features: Features,
    targets: ArrayLike,
    *,
    items: Sequence[Hashable] | NDArray[Any] | None = None,
    split_items: bool = False,
    folds: int = 5,
    l2: float = 1.0,
    controls: int = 1,
    seed: int = 0,
) -> ProbeResult:
    """Predicts numbers from the activations of each layer with ridge regression.

    `targets` has `[examples]` or `[examples, outputs]` numbers. The score of a fold is the coefficient of
    determination on its test examples, `R² = 1 - sum((y - ŷ)²) / sum((y - mean(y))²)`, averaged over outputs. It
    is 1 for perfect predictions and may be negative. The weights minimize `sum((y - ŷ)²) + l2 · |w|²`. The other
    arguments are those of `linear_probe`; in a control task, every item has the target of a random example.
    """
    values = matrices(features, "features")
    wanted = _column(np.asarray(targets, dtype=np.float64), "targets", values, [1, 2])
    if not np.isfinite(wanted).all():
        raise ValueError("expected finite targets, got NaN or infinity")
    if len(wanted) < 2 * folds:
        raise ValueError(f"expected at least {2 * folds} examples for {folds} folds, got {len(wanted)}")
    numbers = _item_numbers(items, len(wanted))
    units = numbers if split_items else np.arange(len(wanted))
    _check_items(units, folds)
    tests = [
        np.isin(units, test)
        for _, test in KFold(folds, shuffle=True, random_state=seed).split(np.arange(units.max() + 1))
    ]
    splits = [(np.flatnonzero(~test), np.flatnonzero(test)) for test in tests]

    def r2(x: Floats, y: NDArray[Any], x_test: Floats, y_test: NDArray[Any]) -> float:
        return float(r2_score(y_test, Ridge(alpha=l2).fit(x, y).predict(x_test)))

    tasks = [wanted, *_control_tasks(wanted, numbers, controls, seed)]
    scores = _scores(values, tasks, splits, r2)
    return ProbeResult("R²", tuple(values), scores[:, 0], scores[:, 1:], 0.0)


def _column(values: Any, name: str, features: dict[str, Floats], dims: Sequence[int]) -> NDArray[Any]:
    array = np.asarray(values)
    examples = len(next(iter(features.values())))
    if array.ndim not in dims or len(array) != examples:
        raise ValueError(f"shape mismatch: features have {examples} rows, {name} has shape {list(array.shape)}")
    return array


def _item_numbers(items: Any, examples: int) -> NDArray[np.intp]:
    """Returns the number of each example's item, from 0 in order of first occurrence."""
    if items is None:
        return np.arange(examples)
    if len(items) != examples:
        raise ValueError(f"expected {examples} items, got {len(items)}")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(item, len(numbers)) for item in items])


def _check_items(numbers: NDArray[np.intp], folds: int) -> None:
    if numbers.max() + 1 < folds:
        raise ValueError(
            f"expected at least {folds} different items for {folds} folds, got {numbers.max() + 1}"
        )


def _control_tasks(
    targets: NDArray[Any], numbers: NDArray[np.intp], controls: int, seed: int
) -> list[NDArray[Any]]:
    """Returns random targets, which are equal for examples of the same item."""
    random = np.random.default_rng(seed)
    return [targets[random.permutation(len(targets))][numbers] for _ in range(controls)]


def _scores(values: dict[str, Floats], tasks: list[NDArray[Any]], splits: Splits, score: Score) -> Floats:
    """Returns the score of each layer, task and fold: `[layers, tasks, folds]`."""
    scores = np.empty((len(values), len(tasks), len(splits)))
    for layer, x in enumerate(values.values()):
        with threadpool_limits(1 if x.size <= SMALL else None):
            for fold, (train, test) in enumerate(splits):
                x_train, x_test = _standardized(x[train], x[test])
                for task, y in enumerate(tasks):
                    scores[layer, task, fold] = score(x_train, y[train], x_test, y[test])
    return scores


def _standardized(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Scales the columns to mean 0 and variance 1 of the training examples.

    With more columns than examples, the result has coordinates in the space that the training examples span. The
    optimal weights of regression with an L2 penalty are in this space, so predictions stay the same.
    """
    scaler = StandardScaler().fit(train)
    train, test = scaler.transform(train), scaler.transform(test)
    if train.shape[1] <= len(train):
        return train, test
    basis = np.linalg.qr(train.T)[0]
    return train @ basis, test @ basis
