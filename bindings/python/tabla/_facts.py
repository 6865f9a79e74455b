"""What a model tells of itself."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from . import _html
from ._c import CData
from ._native import ffi, lib


@dataclass(frozen=True)
class ModelInfo:
    """Facts about a model."""

    architecture: str
    device: str
    layers: int
    dim: int
    """Width of the residual stream."""
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Width of the feed-forward layer."""
    vocab: int
    """Tokens of the vocabulary: the length of a row of logits."""
    context: int
    """Positions that fit the KV cache."""
    context_trained: int
    """Positions that the model was trained for."""
    parameters: int
    file_bytes: int
    cache_bytes: int
    scratch_bytes: int
    bos_token: int | None
    """What begins a text, if anything does."""
    eos_token: int | None
    """What ends one."""
    embedding_dim: int
    """Numbers of an embedding; 0 where the model yields none."""
    embedding_length: int
    """Tokens of a text at most that becomes an embedding."""
    is_encoder: bool
    """It yields embeddings and no text."""
    sequences: int
    """Sequences that go on together."""


def _fact(value: Any) -> Any:
    if isinstance(value, ffi.CData):
        return ffi.string(value).decode()
    return None if value == lib.TABLA_NO_TOKEN else value


def read_info(c: CData) -> ModelInfo:
    """Those of C."""
    facts = {f.name: _fact(getattr(c, f.name)) for f in fields(ModelInfo)}
    return ModelInfo(**{**facts, "is_encoder": bool(facts["is_encoder"])})


@dataclass(frozen=True)
class Table:
    """A dispatch table: what is replayed for every token. `str()` is its listing."""

    text: str
    commands: tuple[dict[str, Any], ...] = field(repr=False)
    """An object for each command, as `tabla table --json` prints them."""

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.commands)

    def _repr_html_(self) -> str:
        return _html.table(self.commands)
