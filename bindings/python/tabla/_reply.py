"""Answers in the shapes of OpenAI's interface, whole or in chunks."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from hashlib import sha256
from typing import Any, AsyncGenerator, Dict, Generator, Mapping, Sequence

from ._aio import AsyncStream
from ._answer import Piece
from ._batch import Batch
from ._c import count
from ._errors import ArgumentError, CancelledError
from ._model_handle import ModelHandle
from ._native import ffi, lib
from ._options import generate_options

Object = Dict[str, Any]
"""As JSON has them."""

Chunks = Generator[Object, None, None]
AsyncChunks = AsyncGenerator[Object, None]

# As many as a batch has under way.
CHOICES_MAX = 512

FINISH_REASONS = {"stop": "stop", "length": "length", "context": "length"}
"""Why an answer ended, and what OpenAI's interface calls that."""


class Reply(ABC):
    """The answers to a request: a batch whose pieces become choices, in chunks or as a whole."""

    kind: str
    """`object` of the whole."""
    chunk_kind: str
    """`object` of a chunk."""
    id_prefix: str

    def __init__(self, model: ModelHandle, prompts: Sequence[Sequence[int]], arguments: dict[str, Any]) -> None:
        """Takes what is of the request alone out of the arguments, and begins to answer."""
        n = count(arguments.pop("n", 1), "n", least=1)
        if n * len(prompts) > CHOICES_MAX:
            raise ArgumentError(f"{n * len(prompts)} choices are over the limit of {CHOICES_MAX}")
        options = arguments.pop("stream_options", {})
        if not isinstance(options, Mapping):
            raise ArgumentError(f"stream_options is {options!r}, no object")
        self.model = model
        self.wants_logprobs = arguments.get("logprobs", False) is not False
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._chunk_usage: Object = {"usage": None} if options.get("include_usage") else {}
        self._envelope = {
            "id": f"{self.id_prefix}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": arguments.pop("model", model.name),
            "system_fingerprint": fingerprint(model),
        }
        self.batch = Batch(model)
        for prompt in prompts:
            self._count("prompt_tokens", len(prompt))
            for choice in range(n):
                # Each is a draw of its own.
                seeded = {**arguments, "seed": arguments.get("seed", 0) + choice}
                self.batch._add(prompt, generate_options(seeded))

    @abstractmethod
    def first(self) -> list[Object]:
        """The choices of the chunks in front of all pieces."""

    @abstractmethod
    def take(self, piece: Piece) -> list[Object]:
        """The choices of the chunks that a piece adds."""

    @abstractmethod
    def choices(self) -> list[Object]:
        """The choices of the whole, behind the last piece."""

    def whole(self) -> Object:
        """The whole, behind the last piece."""
        return self._object(self.kind, self.choices(), {"usage": self.usage})

    def chunks(self, choices: list[Object]) -> list[Object]:
        """A chunk for each of them."""
        return [self._object(self.chunk_kind, [choice], self._chunk_usage) for choice in choices]

    def last(self) -> list[Object]:
        """The chunk of the usage, where it is wanted."""
        usage = {"usage": self.usage}
        return [self._object(self.chunk_kind, [], usage)] if self._chunk_usage else []

    def end(self, piece: Piece) -> str:
        """Why an answer ended; that counts its tokens. One that failed or was cancelled is none."""
        if piece.error is not None:
            raise piece.error
        if piece.finish_reason not in FINISH_REASONS:
            raise CancelledError("the answer was cancelled")
        assert piece.stats is not None
        self._count("completion_tokens", piece.stats.tokens)
        return FINISH_REASONS[piece.finish_reason]

    def _count(self, of: str, tokens: int) -> None:
        self.usage[of] += tokens
        self.usage["total_tokens"] += tokens

    def _object(self, kind: str, choices: list[Object], more: Mapping[str, Any]) -> Object:
        return {**self._envelope, "object": kind, "choices": choices, **more}


def fingerprint(model: ModelHandle) -> str:
    """Tells builds, devices and models apart, which draw other tokens of the same seed."""
    version = ffi.string(lib.tabla_version())
    return f"fp_{sha256(repr((version, model.info)).encode()).hexdigest()[:12]}"


def answer(reply: Reply) -> Object:
    """The whole."""
    with reply.batch:
        for piece in reply.batch:
            reply.take(piece)
    return reply.whole()


def stream(reply: Reply) -> Chunks:
    """The chunks. Closing it ends the answers."""
    with reply.batch:
        yield from reply.chunks(reply.first())
        for piece in reply.batch:
            yield from reply.chunks(reply.take(piece))
    yield from reply.last()


async def aanswer(reply: Reply) -> Object:
    """The async twin of `answer`."""
    async with AsyncStream(reply.batch) as pieces:
        async for piece in pieces:
            reply.take(piece)
    return reply.whole()


async def astream(reply: Reply) -> AsyncChunks:
    """The async twin of `stream`."""
    async with AsyncStream(reply.batch) as pieces:
        for chunk in reply.chunks(reply.first()):
            yield chunk
        async for piece in pieces:
            for chunk in reply.chunks(reply.take(piece)):
                yield chunk
    for chunk in reply.last():
        yield chunk
