"""Validation of arrays and mappings of arrays."""

from __future__ import annotations

from typing import Any, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

Features = Mapping[str, ArrayLike]
"""Activations of each layer, as returned by `capture`: `[examples, dim]` by name."""


def matrix(values: ArrayLike, name: str) -> Floats:
    """Converts a matrix of finite numbers, `[examples, dim]`, to float64. `name` is used in errors."""
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise ValueError(f"{name}: expected a matrix [examples, dim], got shape {list(array.shape)}")
    array = array.astype(np.float64)
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise ValueError(f"{name}: value {array[row, column]} in row {row}, column {column} is not finite")
    return array


def matrices(features: Mapping[str, Any], name: str) -> dict[str, Floats]:
    """Converts the matrices of a mapping, which must have the same number of rows."""
    if not features:
        raise ValueError(f"{name}: expected at least one layer, got an empty mapping")
    converted = {layer: matrix(values, f"{name}[{layer!r}]") for layer, values in features.items()}
    first = next(iter(converted))
    for layer, values in converted.items():
        same_rows(converted[first], values, f"{name}[{first!r}]", f"{name}[{layer!r}]")
    return converted


def same_rows(x: Floats, y: Floats, x_name: str, y_name: str) -> None:
    """Raises an error if two matrices have different numbers of rows."""
    if len(x) != len(y):
        raise ValueError(f"row count mismatch: {x_name} has {len(x)} rows, {y_name} has {len(y)}")


def rounding(values: ArrayLike) -> float:
    """Returns the relative rounding error of the values' type: 2⁻²³ for float32, 2⁻⁵² for float64."""
    dtype = np.asarray(values).dtype
    return float(np.finfo(dtype if np.issubdtype(dtype, np.floating) else np.float64).eps)
