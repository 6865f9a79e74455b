"""Replies in the format of the OpenAI API, complete or in chunks."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from hashlib import sha256
from typing import Any, AsyncGenerator, Dict, Generator, Generic, Mapping, Sequence, TypeVar, cast

from ._aio import AsyncStream
from ._answer import Piece
from ._batch import Batch
from ._c import count
from ._errors import ArgumentError, CancelledError
from ._model_handle import ModelHandle
from ._native import ffi, lib
from ._options import generate_options

Object = Dict[str, Any]
"""A JSON object."""

Whole = TypeVar("Whole")
"""Type of complete replies, of `types`."""
Chunk = TypeVar("Chunk")
"""Type of chunks, of `types`."""

Chunks = Generator[Chunk, None, None]
AsyncChunks = AsyncGenerator[Chunk, None]

# Maximum number of answers in progress in a batch.
CHOICES_MAX = 512

FINISH_REASONS = {"stop": "stop", "length": "length", "context": "length"}
"""Finish reasons, and their names in the OpenAI API."""


class Reply(ABC, Generic[Whole, Chunk]):
    """The answers to a request: a batch whose pieces become choices, in chunks or in one object."""

    kind: str
    """`object` field of a complete reply."""
    chunk_kind: str
    """`object` field of a chunk."""
    id_prefix: str

    def __init__(self, model: ModelHandle, prompts: Sequence[Sequence[int]], arguments: dict[str, Any]) -> None:
        """Removes the request options from the arguments, and starts the answers."""
        n = count(arguments.pop("n", 1), "n", least=1)
        if n * len(prompts) > CHOICES_MAX:
            raise ArgumentError(f"too many choices: {n * len(prompts)}, limit {CHOICES_MAX}")
        options = arguments.pop("stream_options", {})
        if not isinstance(options, Mapping):
            raise ArgumentError(f"stream_options must be an object, got {options!r}")
        name = arguments.pop("model", model.name)
        self.model = model
        self.has_logprobs = arguments.get("logprobs", False) is not False
        seed: int = generate_options(arguments).c.seed
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._chunk_usage: Object = {"usage": None} if options.get("include_usage") else {}
        self._envelope = {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": name,
            "system_fingerprint": fingerprint(model),
            "seed": seed,
        }
        self.batch = Batch(model)
        for prompt in prompts:
            self._add_usage("prompt_tokens", len(prompt))
            for choice in range(n):
                # Each choice has its own seed.
                self.batch._add(prompt, generate_options({**arguments, "seed": (seed + choice) % 2**64}))

    @abstractmethod
    def first(self) -> list[Object]:
        """Returns the choices of the chunks before the first piece."""

    @abstractmethod
    def take(self, piece: Piece) -> list[Object]:
        """Returns the choices of the chunks for a piece."""

    @abstractmethod
    def choices(self) -> list[Object]:
        """Returns the complete choices. Call it after the last piece."""

    def whole(self) -> Whole:
        """Returns the complete reply. Call it after the last piece."""
        return cast(Whole, self._object(self.kind, self.choices(), {"usage": self.usage}))

    def chunks(self, choices: list[Object]) -> list[Chunk]:
        """Returns a chunk for each choice."""
        return [self._chunk([choice], self._chunk_usage) for choice in choices]

    def last(self) -> list[Chunk]:
        """Returns the chunk with the usage, if `include_usage` is set."""
        return [self._chunk([], {"usage": self.usage})] if self._chunk_usage else []

    def end(self, piece: Piece, is_complete: bool = False) -> str:
        """Returns the finish reason of an answer and counts its tokens. Raises if it failed, or was cancelled
        before it was complete."""
        if piece.error is not None:
            raise piece.error
        if piece.finish_reason not in FINISH_REASONS and not is_complete:
            raise CancelledError("the answer was cancelled")
        assert piece.stats is not None
        self._add_usage("completion_tokens", piece.stats.tokens)
        return "stop" if is_complete else FINISH_REASONS[str(piece.finish_reason)]

    def _add_usage(self, kind: str, tokens: int) -> None:
        self.usage[kind] += tokens
        self.usage["total_tokens"] += tokens

    def _chunk(self, choices: list[Object], usage: Object) -> Chunk:
        return cast(Chunk, self._object(self.chunk_kind, choices, usage))

    def _object(self, kind: str, choices: list[Object], more: Mapping[str, Any]) -> Object:
        return {**self._envelope, "object": kind, "choices": choices, **more}


def fingerprint(model: ModelHandle) -> str:
    """Returns a hash of version, model and device, which determine the tokens for a seed."""
    version = ffi.string(lib.tabla_version())
    return f"fp_{sha256(repr((version, model.info)).encode()).hexdigest()[:12]}"


def answer(reply: Reply[Whole, Any]) -> Whole:
    """Returns the complete reply."""
    with reply.batch:
        for piece in reply.batch:
            reply.take(piece)
    return reply.whole()


def stream(reply: Reply[Any, Chunk]) -> Chunks[Chunk]:
    """Yields the chunks. Closing the generator ends the answers."""
    with reply.batch:
        yield from reply.chunks(reply.first())
        for piece in reply.batch:
            yield from reply.chunks(reply.take(piece))
    yield from reply.last()


async def aanswer(reply: Reply[Whole, Any]) -> Whole:
    """Async version of `answer`."""
    async with AsyncStream(reply.batch) as pieces:
        async for piece in pieces:
            reply.take(piece)
    return reply.whole()


async def astream(reply: Reply[Any, Chunk]) -> AsyncChunks[Chunk]:
    """Async version of `stream`."""
    async with AsyncStream(reply.batch) as pieces:
        for chunk in reply.chunks(reply.first()):
            yield chunk
        async for piece in pieces:
            for chunk in reply.chunks(reply.take(piece)):
                yield chunk
    for chunk in reply.last():
        yield chunk
