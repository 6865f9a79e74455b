"""Model information and dispatch tables."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from . import _html
from ._c import CData
from ._native import ffi, lib


@dataclass(frozen=True)
class ModelInfo:
    """Properties of a model."""

    architecture: str
    device: str
    layers: int
    dim: int
    """Hidden size (width of the residual stream)."""
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    """Size of the feed-forward layer."""
    vocab: int
    """Vocabulary size in tokens: the length of a row of logits."""
    context: int
    """Context length of the KV cache, in tokens."""
    context_trained: int
    """Context length that the model was trained with, in tokens."""
    parameters: int
    file_bytes: int
    cache_bytes: int
    scratch_bytes: int
    bos_token: int | None
    """Beginning-of-sequence token, if there is one."""
    eos_token: int | None
    """End-of-sequence token, if there is one."""
    embedding_dim: int
    """Number of dimensions of an embedding; 0 if embeddings are not enabled."""
    embedding_max_tokens: int
    """Maximum length of a text to embed or to classify, in tokens."""
    is_encoder: bool
    """Whether the model is an encoder, which only computes embeddings or classifies texts."""
    sequences: int
    """Maximum number of sequences that are computed at the same time."""
    labels: int
    """Number of labels of the classification head; 0 if the model has none."""


def _fact(value: Any) -> Any:
    if isinstance(value, ffi.CData):
        return ffi.string(value).decode()
    return None if value == lib.TABLA_NO_TOKEN else value


def read_info(c: CData) -> ModelInfo:
    """Converts `TablaModelInfo`."""
    facts = {f.name: _fact(getattr(c, f.name)) for f in fields(ModelInfo)}
    return ModelInfo(**{**facts, "is_encoder": bool(facts["is_encoder"])})


@dataclass(frozen=True)
class Table:
    """A dispatch table: the list of commands that are replayed for every token. `str()` is its listing."""

    text: str
    commands: tuple[dict[str, Any], ...] = field(repr=False)
    """One object for each command, as printed by `tabla table --json`."""

    def __str__(self) -> str:
        return self.text

    def __len__(self) -> int:
        return len(self.commands)

    def _repr_html_(self) -> str:
        return _html.table(self.commands)
