"""Capture of activations of prompts, with a cache on disk.

A cache file has the activations of one call. Its name is the SHA-256 hash of everything that determines them.
"""

from __future__ import annotations

import hashlib
import json
import logging
import operator
import os
import tempfile
import zipfile
from typing import Any, Iterable, Literal, Mapping, Protocol, Sequence, overload

import numpy as np
from numpy.typing import NDArray
from tabla import Prompt

from . import names

Floats = NDArray[np.float32]

VERSION = 1
"""Version of the cache format. It is part of the hash, so that files of other versions are not found."""

CHANGES_VALUES = ("precision", "max_context", "cache_type", "i2s_layout")
"""Options of `Model.load` that change activations."""

log = logging.getLogger("tabla")


class Source(Protocol):
    """Interface of `Model` that `capture` uses."""

    @property
    def digest(self) -> bytes: ...
    @property
    def info(self) -> Any: ...
    def capture_each(self, prompts: Iterable[Prompt], points: Sequence[str]) -> Iterable[Mapping[str, Floats]]:
        """Runs each prompt in a new sequence. Yields `[tokens, cols]` for each point; the arrays may be views that
        the next run invalidates."""


def _identity(model: Source) -> list[Any]:
    """Returns the values that determine the activations of a prompt: digest, device and load options."""
    digest: Any = model.digest
    # A source that is not a `Model` may have no load options.
    options: Mapping[str, Any] = getattr(model, "load_options", {})
    return [
        digest if isinstance(digest, str) else digest.hex(),
        getattr(model.info, "device", None),
        {name: options[name] for name in CHANGES_VALUES if name in options},
    ]


@overload
def capture(
    model: Source,
    prompts: Iterable[Prompt],
    points: str | Iterable[str],
    *,
    tokens: Literal["all"],
    cache_dir: str | os.PathLike[str] | None = None,
) -> dict[str, list[Floats]]: ...


@overload
def capture(
    model: Source,
    prompts: Iterable[Prompt],
    points: str | Iterable[str],
    *,
    tokens: Literal["last", "mean"] | Sequence[int] = "last",
    cache_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Floats]: ...


def capture(
    model: Source,
    prompts: Iterable[Prompt],
    points: str | Iterable[str],
    *,
    tokens: str | Sequence[int] = "last",
    cache_dir: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Returns the activations of prompts at points, as float32 by name of the point.

    Every prompt is computed in its own sequence. `points` are names that `names.resolve` accepts, also those of
    TransformerLens; the result has the same names. `tokens` selects the tokens of each prompt:

    - `"last"`: the last one. Shape `[prompts, cols]`.
    - `"mean"`: the mean of all tokens, including special ones. Shape `[prompts, cols]`.
    - positions, negative ones from the end: shape `[prompts, len(tokens), cols]`.
    - `"all"`: a list with `[tokens, cols]` for each prompt.

    The number of columns of `attn_weights` depends on the length of the prompt. If lengths differ, only
    `"all"` is possible for it. `split_heads` separates the heads of a result.

    `cache_dir` is a directory for results, which is created if necessary. A later call with the same model,
    device, prompts, points and tokens reads them. A damaged file is computed again. Files are never deleted.
    """
    if isinstance(prompts, str):
        raise ValueError("prompts must be a list of prompts, not a string")
    inputs = [prompt if isinstance(prompt, str) else [operator.index(t) for t in prompt] for prompt in prompts]
    selected = _selection(tokens)
    asked = [points] if isinstance(points, str) else list(points)
    # By resolved name, so that two names of one point are captured once.
    resolved = {name: names.resolve(name, model.info.layers) for name in asked}
    order = sorted(set(resolved.values()))
    if not inputs or not order:
        raise ValueError(f"expected at least one prompt and one point, got {len(inputs)} and {len(order)}")

    results = None
    path = description = ""
    if cache_dir is not None:
        description = json.dumps([VERSION, _identity(model), order, selected, inputs], ensure_ascii=True)
        path = os.path.join(cache_dir, f"{hashlib.sha256(description.encode()).hexdigest()}.npz")
        results = _read(path, description, order, len(inputs))
    if results is None:
        results = _compute(model, inputs, order, selected)
        if cache_dir is not None:
            _write(path, description, results)
    if selected == "all":
        return {name: results[point] for name, point in resolved.items()}
    stacked = {point: _stack(point, arrays) for point, arrays in results.items()}
    return {name: stacked[point] for name, point in resolved.items()}


def split_heads(values: NDArray[Any], heads: int) -> NDArray[Any]:
    """Returns a view with the columns of each head: `[..., heads * n]` becomes `[..., heads, n]`.

    For `attn_weights` of a prompt, `[tokens, heads * positions]`, `split_heads(values, heads)[:, h]` is the
    attention map of head `h`: a row for each query, a column for each key. `attn_k` and `attn_v` have
    `kv_heads` heads.
    """
    cols = values.shape[-1]
    if heads < 1 or cols % heads:
        raise ValueError(f"{cols} columns are not divisible by {heads} heads")
    return values.reshape(*values.shape[:-1], heads, cols // heads)


def _selection(tokens: str | Sequence[int]) -> str | list[int]:
    if isinstance(tokens, str):
        if tokens not in ("last", "mean", "all"):
            raise ValueError(f'invalid tokens: {tokens!r}, expected "last", "mean", "all" or positions')
        return tokens
    positions = [operator.index(position) for position in tokens]
    if not positions:
        raise ValueError("expected at least one position in tokens, got an empty list")
    return positions


def _compute(
    model: Source, prompts: Sequence[Prompt], points: Sequence[str], tokens: str | list[int]
) -> dict[str, list[Floats]]:
    results: dict[str, list[Floats]] = {point: [] for point in points}
    for index, captured in enumerate(model.capture_each(prompts, points)):
        for point in points:
            results[point].append(_select(captured[point], tokens, f"{point} of prompt {index}"))
    return results


def _select(values: Floats, tokens: str | list[int], where: str) -> Floats:
    """Returns a copy of the selected tokens of `[tokens, cols]`."""
    if values.ndim != 2 or not len(values):
        raise ValueError(f"{where}: expected [tokens, cols], got shape {list(values.shape)}")
    if tokens == "mean":
        return np.asarray(values.mean(axis=0, dtype=np.float64), dtype=np.float32)
    if isinstance(tokens, list):
        for position in tokens:
            if not -len(values) <= position < len(values):
                raise ValueError(f"{where}: position {position} is outside its {len(values)} tokens")
        return np.array(values[tokens], dtype=np.float32)
    return np.array(values if tokens == "all" else values[-1], dtype=np.float32)


def _stack(point: str, arrays: Sequence[Floats]) -> Floats:
    for index, array in enumerate(arrays):
        if array.shape != arrays[0].shape:
            raise ValueError(
                f"{point} has {arrays[0].shape[-1]} columns for prompt 0 and {array.shape[-1]} for prompt {index}"
                ': capture it with tokens="all"'
            )
    return np.stack(arrays)


# Cache


def _read(path: str, description: str, points: Sequence[str], prompts: int) -> dict[str, list[Floats]] | None:
    """Returns the arrays of a cache file. `None`: there is none, or it is damaged."""
    try:
        # numpy reads the header of an array before its checksum is verified, so all checksums come first.
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"checksum mismatch in {damaged}")
        with np.load(path, allow_pickle=False) as arrays:
            if str(arrays["description"]) != description:
                raise ValueError("it has the results of another call")
            return {point: [arrays[f"{point}/{index}"] for index in range(prompts)] for point in points}
    except FileNotFoundError:
        return None
    except Exception as error:  # a damaged archive can raise any exception
        log.warning("ignoring damaged cache file %s: %s", path, error)
    return None


def _write(path: str, description: str, results: Mapping[str, Sequence[Floats]]) -> None:
    """Writes a cache file. Another process sees the complete file or none."""
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    arrays = {f"{point}/{index}": a for point, values in results.items() for index, a in enumerate(values)}
    handle, temporary = tempfile.mkstemp(dir=folder, prefix="partial-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, description=np.array(description), **arrays)  # type: ignore[arg-type]
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
