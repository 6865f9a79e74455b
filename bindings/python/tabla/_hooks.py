"""Hooks: captured and changed values of the forward pass, LoRA adapters and control vectors."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Iterable, Iterator, Mapping, Sequence, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ._c import CData, Floats, Struct, choice, count, floats, numbers, path, text
from ._errors import ArgumentError, check
from ._handle import Handle
from ._model_handle import ModelHandle
from ._native import ffi, lib

Positions = Union[str, Sequence[int]]
"""`"all"`, `"last"` or positions."""

Range = Union["tuple[int, int]", None]
"""First and end of columns or positions; `None`: all."""

MAX = 2**32 - 1


@dataclass(frozen=True)
class Edit:
    """A change of the value at the points that match a pattern, in which `*` stands for any text without a dot.

    `columns` and `positions` are pairs of first and end. Columns of an attention head `h` of size `n` at the
    point `blk.3.attn` are `(h * n, (h + 1) * n)`.
    """

    point: str
    action: str
    vector: ArrayLike | None
    factor: float
    columns: Range
    positions: Range

    @classmethod
    def set(cls, point: str, vector: ArrayLike, *, columns: Range = None, positions: Range = None) -> Edit:
        """Replaces the value by a vector, `[cols]`, or by a vector for each position, `[positions, cols]`:
        activation patching."""
        return cls(point, "set", vector, 0.0, columns, positions)

    @classmethod
    def add(
        cls, point: str, vector: ArrayLike, scale: float = 1.0, *, columns: Range = None, positions: Range = None
    ) -> Edit:
        """Adds `scale * vector`: steering."""
        return cls(point, "add", vector, scale, columns, positions)

    @classmethod
    def scale(cls, point: str, factor: float, *, columns: Range = None, positions: Range = None) -> Edit:
        """Multiplies the value by a factor; 0 removes it: ablation."""
        return cls(point, "scale", None, factor, columns, positions)

    @classmethod
    def project_out(
        cls, point: str, vector: ArrayLike, strength: float = 1.0, *, columns: Range = None, positions: Range = None
    ) -> Edit:
        """Subtracts `strength` times the projection on a vector; 1 removes the direction."""
        return cls(point, "project_out", vector, strength, columns, positions)

    def _write(self, to: Any) -> list[object]:
        """Fills a C struct. Returns the objects that it points to."""
        pattern = text(self.point, "point")
        to.point = pattern
        to.action = choice("action", self.action, "TABLA_EDIT", ("set", "add", "scale", "project_out"))
        to.factor = self.factor
        to.first_column, to.column_count = _range(self.columns, "columns")
        to.first_position, to.position_count = _range(self.positions, "positions")
        if self.vector is None:
            return [pattern]
        values = np.ascontiguousarray(self.vector, np.float32)
        if values.ndim != 1 and not (values.ndim == 2 and self.action == "set"):
            raise ArgumentError(f"edit of {self.point}: expected a vector, got shape {list(values.shape)}")
        vector = values.reshape(-1)
        to.vector = ffi.from_buffer("float[]", vector)
        to.vector_count = len(vector)
        return [pattern, vector]


def _range(ends: Range, name: str) -> tuple[int, int]:
    """Returns the first element and the number of elements; 0: all."""
    if ends is None:
        return 0, 0
    first, end = (count(number, name) for number in ends)
    if first >= end:
        raise ArgumentError(f"{name} must be a pair of first and end, got {ends!r}")
    return first, end - first


class Adapter(Handle):
    """A LoRA adapter of a model, created by `Model.load_adapter()`."""

    def __init__(self, model: ModelHandle, file: str | os.PathLike[str]) -> None:
        pointer = lib.tabla_adapter_load(model._pointer, path(file, "path"))
        super().__init__(pointer, lib.tabla_adapter_free)


class ControlVector(Handle):
    """A vector per layer that is added to the output of the layer, created by `load` or `of`."""

    def __init__(self, pointer: CData) -> None:
        super().__init__(pointer, lib.tabla_control_vector_free)

    @classmethod
    def load(cls, file: str | os.PathLike[str]) -> ControlVector:
        """Reads a GGUF file of llama.cpp, or an .npy file `[layers, dim]`."""
        return cls(lib.tabla_control_vector_load(path(file, "path")))

    @classmethod
    def of(cls, vectors: Mapping[int, ArrayLike], model_hint: str = "") -> ControlVector:
        """Creates a control vector from vectors by layer, counted from 0. `model_hint` is the architecture of the
        model."""
        rows = np.ascontiguousarray([np.asarray(row, np.float32) for row in vectors.values()], np.float32)
        if rows.ndim != 2:
            raise ArgumentError("expected a vector of the same length for each layer")
        layers = numbers("uint32_t", list(vectors), "layers")
        data = ffi.from_buffer("float[]", rows)
        hint = text(model_hint, "model_hint")
        return cls(lib.tabla_control_vector_new(hint, layers, len(layers), data, rows.shape[1]))

    def save(self, file: str | os.PathLike[str]) -> None:
        """Writes an .npy file if the name ends in .npy, otherwise a GGUF file, which cannot have a vector of
        layer 0."""
        check(lib.tabla_control_vector_save(self._pointer, path(file, "path")))


@dataclass(frozen=True)
class Steer:
    """A control vector of hooks, with its factor and the first and end of its layers; `None`: all."""

    vector: ControlVector
    scale: float = 1.0
    layers: Range = None

    def _write(self, to: Any) -> None:
        to.vector = self.vector._pointer
        to.scale = self.scale
        to.first_layer, to.layer_count = _range(self.layers, "layers")


class Captured(Mapping[str, Floats]):
    """Values that hooks captured, by the name of the point: views of one array, `[positions, cols]` each.

    Attributes
    ----------
    positions : ndarray
        Position of each row, in ascending order.
    rows : ndarray
        All rows, with the columns of every point.
    """

    def __init__(self, columns: Mapping[str, slice], positions: NDArray[np.uint32], rows: Floats) -> None:
        self._columns = columns
        self.positions = positions
        self.rows = rows

    def __getitem__(self, point: str) -> Floats:
        return self.rows[:, self._columns[point]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {list(self[name].shape)}" for name in list(self)[:4])
        return f"<tabla.Captured {shapes}{', …' if len(self) > 4 else ''}>"


class Hooks(Handle):
    """Values to capture and to change, created by `Model.hooks()`. Any number of sessions can use them.

    Attributes
    ----------
    points : dict
        Columns of each captured point, in the order of the forward pass.
    """

    def __init__(
        self,
        model: ModelHandle,
        capture: str | Iterable[str] = (),
        *,
        positions: Positions = "all",
        attention_positions: int = 0,
        edits: Edit | Iterable[Edit] = (),
        adapters: Iterable[Adapter] = (),
        steers: Iterable[Steer] = (),
    ) -> None:
        self.model = model
        options = Struct("TablaHookOptions")
        patterns = [capture] if isinstance(capture, str) else list(capture)
        options.point_to_texts("capture", patterns)
        options.put("attention_positions", attention_positions)
        if isinstance(positions, str):
            if positions not in ("all", "last"):
                raise ArgumentError(f'invalid positions {positions!r}: expected "all", "last" or a list')
            options.put("positions", getattr(lib, f"TABLA_POSITIONS_{positions.upper()}"))
        else:
            options.put("positions", lib.TABLA_POSITIONS_LIST)
            options.point_to_array("position_list", numbers("uint32_t", sorted(set(positions)), "positions"))
        changes = [edits] if isinstance(edits, Edit) else list(edits)
        c_edits = ffi.new("TablaEdit[]", len(changes))
        references = [edit._write(c_edits[at]) for at, edit in enumerate(changes)]
        options.point("edits", c_edits)
        options.put("edit_count", len(changes))
        c_adapters = ffi.new("const TablaAdapter *[]", [adapter._pointer for adapter in adapters])
        options.point("adapters", c_adapters)
        options.put("adapter_count", len(c_adapters))
        vectors = list(steers)
        c_steers = ffi.new("TablaSteer[]", len(vectors))
        for at, steer in enumerate(vectors):
            steer._write(c_steers[at])
        options.point("steers", c_steers)
        options.put("steer_count", len(vectors))
        super().__init__(lib.tabla_hooks_new(model._pointer, options.c), lib.tabla_hooks_free)
        del references
        self.points = dict(self._read_points())

    def _read_points(self) -> Iterator[tuple[str, slice]]:
        total = ffi.new("size_t *")
        check(lib.tabla_hooks_point(self._pointer, 0, ffi.NULL, total))
        for index in range(total[0]):
            point = Struct("TablaCapturedPoint").c
            check(lib.tabla_hooks_point(self._pointer, index, point, total))
            yield ffi.string(point.name).decode(), slice(point.offset, point.offset + point.cols)

    def lens(self, residual: ArrayLike) -> Floats:
        """Returns the logits that the model's final norm and output projection give for rows of the residual
        stream: `[rows, dim]` gives `[rows, vocab]` (logit lens)."""
        rows = np.ascontiguousarray(residual, np.float32)
        dim, vocab = self.model.info.dim, self.model.info.vocab
        if rows.ndim != 2 or rows.shape[1] != dim:
            raise ArgumentError(f"residual must be [rows, {dim}], got {list(rows.shape)}")
        logits = np.empty((len(rows), vocab), np.float32)
        written = ffi.new("size_t *")
        data = ffi.from_buffer("float[]", rows)
        arguments = (self.model._pointer, self._pointer, data, len(rows))
        check(lib.tabla_hooks_lens(*arguments, floats(logits), logits.size, written))
        return logits


def read_captured(session: Any, hooks: Hooks) -> Captured:
    """Returns the values that the hooks of a session captured, in new arrays."""
    rows, width = ffi.new("size_t *"), ffi.new("size_t *")
    session._run(lib.tabla_session_captured, ffi.NULL, 0, ffi.NULL, 0, rows, width)
    positions = np.empty(rows[0], np.uint32)
    values = np.empty((rows[0], width[0]), np.float32)
    c_positions = ffi.from_buffer("uint32_t[]", positions, require_writable=True)
    sizes = (c_positions, len(positions), floats(values), values.size)
    check(lib.tabla_session_captured(session._pointer, *sizes, rows, width))
    return Captured(hooks.points, positions, values)
