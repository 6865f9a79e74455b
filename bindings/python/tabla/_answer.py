"""What an answer is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Callable, Iterable

from . import _html
from ._c import CData, Struct
from ._errors import TablaError, check, failure
from ._handle import Handle
from ._native import ffi, lib

FINISH_REASONS = {
    lib.TABLA_FINISH_STOP: "stop",
    lib.TABLA_FINISH_LENGTH: "length",
    lib.TABLA_FINISH_CONTEXT: "context",
    lib.TABLA_FINISH_CALLBACK: "ended",
    lib.TABLA_FINISH_CANCELLED: "cancelled",
    lib.TABLA_FINISH_FAILED: "failed",
}


@dataclass(frozen=True)
class LogProb:
    """How likely the model held a token, before biases and samplers."""

    token: int
    logprob: float
    """The natural logarithm."""


@dataclass(frozen=True)
class Stats:
    """What an answer took."""

    prompt_tokens: int
    tokens: int
    """Tokens that were picked."""
    prompt_ms: float
    """Milliseconds of the prompt; 0 in a batch, where they are part of the others'."""
    tokens_ms: float
    """Milliseconds of the tokens behind it."""
    guesses: int
    """Guesses that were made at tokens."""
    guesses_right: int

    @property
    def tokens_per_second(self) -> float:
        """How fast tokens came behind the prompt; 0 where none did."""
        return self.tokens / self.tokens_ms * 1e3 if self.tokens_ms else 0.0


@dataclass(frozen=True)
class Piece:
    """A piece of an answer: one token, text that was held back to the end, or the end itself."""

    text: str
    """What the token completes: empty while a character is incomplete or a stop string may have begun."""
    token: int | None = None
    """`None` where text was held back to the end, and at the end."""
    logprob: float | None = None
    """How likely the token was, as a natural logarithm, where `logprobs` asked for it."""
    top_logprobs: tuple[LogProb, ...] = ()
    """The likeliest tokens in its place, the likeliest first."""
    index: int = 0
    """Of a batch: whose piece it is."""
    finish_reason: str | None = None
    """`None` while the answer goes on. Its last piece has no text and says why it ended: `"stop"` (a stop
    token, a stop string, the end of a grammar), `"length"` (`max_tokens`), `"context"` (it is full),
    `"cancelled"`; in a batch also `"failed"`."""
    stats: Stats | None = None
    """What the answer took, in its last piece."""
    error: TablaError | None = None
    """Of a batch: why the answer failed, in its last piece."""

    def _logprobs(self) -> list[tuple[int, float]]:
        """Pairs of token id and log-probability, as `_html.answer` takes them."""
        if self.token is None or self.logprob is None:
            return []
        return [(self.token, self.logprob), *((top.token, top.logprob) for top in self.top_logprobs)]


@dataclass(frozen=True)
class Answer:
    """A whole answer. `str()` is its text; a notebook colours its tokens by how likely they were, where
    `logprobs` asked for that."""

    text: str
    pieces: tuple[Piece, ...] = field(repr=False)
    """As a stream yields them, without the end."""
    finish_reason: str
    """As of `Piece`."""
    stats: Stats

    @property
    def tokens(self) -> list[int]:
        """What was picked."""
        return [piece.token for piece in self.pieces if piece.token is not None]

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        note = f"{self.stats.tokens} tokens, {self.stats.tokens_per_second:.1f}/s, {self.finish_reason}"
        return _html.answer([(piece.text, piece._logprobs()) for piece in self.pieces], note)


def whole(pieces: Iterable[Piece]) -> Answer:
    """The answer of all pieces, the end among them."""
    *pieces, end = pieces
    assert end.finish_reason is not None and end.stats is not None
    text = "".join(piece.text for piece in pieces)
    return Answer(text, tuple(pieces), end.finish_reason, end.stats)


def next_piece(handle: Handle, c: CData, take: Callable[..., int], stats: Callable[..., int]) -> Piece:
    """The next piece of a session or batch: `take` writes it to `c`, and `stats` what an answer took."""
    with handle._reading:
        pointer = handle._pointer
        check(take(pointer, c))
        if c.finish == lib.TABLA_FINISH_NONE:
            return _token(c)
        reason = FINISH_REASONS[c.finish]
        if c.status != 0:
            error = failure(c.status, ffi.unpack(c.text, c.text_bytes).decode())
            return Piece("", index=c.number, finish_reason=reason, error=error)
        done = Struct("TablaStats").c
        check(stats(pointer, done))
        took = Stats(**{f.name: getattr(done, f.name) for f in fields(Stats)})
        return Piece("", index=c.number, finish_reason=reason, stats=took)


def _token(c: CData) -> Piece:
    token, logprob, count = c.token, c.log_prob, c.likeliest_count
    return Piece(
        ffi.unpack(c.text, c.text_bytes).decode(),
        None if token == lib.TABLA_NO_TOKEN else token,
        None if math.isnan(logprob) else logprob,
        tuple(LogProb(top.token, top.log_prob) for top in c.likeliest[0:count]) if count else (),
        c.number,
    )
