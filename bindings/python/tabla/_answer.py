"""Answers, their pieces and their statistics."""

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
class Logprob:
    """Log-probability of a token, before logit biases and samplers."""

    token: int
    logprob: float
    """Natural logarithm of the probability."""


@dataclass(frozen=True)
class Stats:
    """Statistics of an answer."""

    prompt_tokens: int
    tokens: int
    """Number of generated tokens."""
    prompt_ms: float
    """Duration of prefill in milliseconds; 0 in a batch, which computes several prompts together."""
    predicted_ms: float
    """Duration of decoding in milliseconds."""
    drafted_tokens: int
    """Number of draft tokens of speculative decoding."""
    accepted_tokens: int
    """Number of accepted draft tokens."""

    @property
    def tokens_per_second(self) -> float:
        """Decoding speed; 0 if no tokens were generated."""
        return self.tokens / self.predicted_ms * 1e3 if self.predicted_ms else 0.0


@dataclass(frozen=True)
class Piece:
    """A piece of an answer: one token, text that was held back to the end, or the end itself."""

    text: str
    """Text that the token completes; empty while a character is incomplete or a stop string may have started."""
    token: int | None = None
    """Token id; `None` for text that was held back to the end, and for the end."""
    logprob: float | None = None
    """Log-probability of the token (natural logarithm), if `logprobs` is set."""
    top_logprobs: tuple[Logprob, ...] = ()
    """Likeliest tokens at this position, in descending order of probability."""
    index: int = 0
    """Index of the answer in its batch."""
    seed: int = 0
    """Seed of the answer: `seed` repeats it."""
    finish_reason: str | None = None
    """Reason why the answer ended, in its last piece, which has no text; otherwise `None`. `"stop"` (stop
    token, stop string or end of the grammar), `"length"` (`max_tokens`), `"context"` (the context is full)
    or `"cancelled"`; in a batch also `"failed"`."""
    stats: Stats | None = None
    """Statistics of the answer, in its last piece."""
    error: TablaError | None = None
    """Error of a failed answer of a batch, in its last piece."""

    def _logprobs(self) -> list[tuple[int, float]]:
        """Returns pairs of token id and log-probability for `_html.answer`."""
        if self.token is None or self.logprob is None:
            return []
        return [(self.token, self.logprob), *((top.token, top.logprob) for top in self.top_logprobs)]


@dataclass(frozen=True)
class Answer:
    """A complete answer. `str()` returns its text. A notebook colours the tokens by probability if
    `logprobs` is set."""

    text: str
    pieces: tuple[Piece, ...] = field(repr=False)
    """All pieces of the answer except the last one, which has no text."""
    finish_reason: str
    """Same as `Piece.finish_reason`."""
    stats: Stats
    seed: int
    """Seed of its random numbers: the same call with this `seed` returns the same answer."""

    @property
    def tokens(self) -> list[int]:
        """Ids of the generated tokens."""
        return [piece.token for piece in self.pieces if piece.token is not None]

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        note = f"{self.stats.tokens} tokens, {self.stats.tokens_per_second:.1f}/s, {self.finish_reason}"
        return _html.answer([(piece.text, piece._logprobs()) for piece in self.pieces], note)


def join_pieces(pieces: Iterable[Piece]) -> Answer:
    """Joins all pieces of an answer, including the last one."""
    *pieces, end = pieces
    assert end.finish_reason is not None and end.stats is not None
    text = "".join(piece.text for piece in pieces)
    return Answer(text, tuple(pieces), end.finish_reason, end.stats, end.seed)


def next_piece(
    handle: Handle,
    c: CData,
    seed_of: Callable[[int], int],
    take: Callable[..., int],
    stats: Callable[..., int],
) -> Piece:
    """Returns the next piece of a session or batch. `take` writes it to `c`, and `stats` writes the
    statistics of the answer. `seed_of` returns the seed of an answer."""
    with handle._reading:
        pointer = handle._pointer
        check(take(pointer, c))
        seed = seed_of(c.request)
        if c.finish == lib.TABLA_FINISH_NONE:
            return _token(c, seed)
        reason = FINISH_REASONS[c.finish]
        if c.status != 0:
            error = failure(c.status, ffi.unpack(c.text, c.text_bytes).decode())
            return Piece("", index=c.request, seed=seed, finish_reason=reason, error=error)
        c_stats = Struct("TablaStats").c
        check(stats(pointer, c_stats))
        values = Stats(**{f.name: getattr(c_stats, f.name) for f in fields(Stats)})
        return Piece("", index=c.request, seed=seed, finish_reason=reason, stats=values)


def _token(c: CData, seed: int) -> Piece:
    token, logprob, count = c.token, c.logprob, c.top_logprobs_count
    return Piece(
        ffi.unpack(c.text, c.text_bytes).decode(),
        None if token == lib.TABLA_NO_TOKEN else token,
        None if math.isnan(logprob) else logprob,
        tuple(Logprob(top.token, top.logprob) for top in c.top_logprobs[0:count]) if count else (),
        c.request,
        seed,
    )
