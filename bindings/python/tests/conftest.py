"""Shared fixtures: models, and options of endless answers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any, Iterator

import pytest
import tabla

ROOT = Path(__file__).parents[3]
ARCH = ROOT / "tests/golden/arch"

# Python ignores SIGINT when it is started in the background, but some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

ENDLESS: dict[str, Any] = {"max_tokens": None, "ignore_eos": True, "context_shift": True, "n_keep": 1}
"""Options of an answer that does not end by itself."""


@pytest.fixture(scope="session")
def model() -> Iterator[tabla.Model]:
    """The story model, with embeddings."""
    with tabla.Model.load(device="cpu", sequences=4, max_context=128, embeddings=True) as model:
        yield model


@pytest.fixture(scope="session")
def bert() -> Iterator[tabla.Model]:
    """A tiny encoder model."""
    with tabla.Model.load(ARCH / "bert/model.gguf", device="cpu", precision="exact") as model:
        yield model
