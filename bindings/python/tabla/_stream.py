"""Answers that are read piece by piece."""

from __future__ import annotations

from typing import Callable, Iterator

from ._answer import Answer, Piece, join_pieces, next_piece
from ._c import Struct
from ._handle import Handle, interruptible
from ._native import lib


class Stream(Iterator[Piece]):
    """An answer, piece by piece. The last piece has the finish reason and the statistics.

    The answer starts when the first piece is requested. `close()`, the end of a `with` block, an
    exception (including Ctrl-C) or the last reference ends it: tokens of pieces that were read stay
    in the session's sequence, later ones are removed.
    """

    _has_begun = False
    _has_ended = True  # until __init__ completes

    def __init__(
        self, session: Handle, begin: Callable[[Stream], None], seed: int, *, closes_session: bool = False
    ) -> None:
        """`session` yields the pieces; `begin` starts the answer on it, whose seed is `seed`."""
        self._session = session
        self._closes_session = closes_session
        self._begin_answer = begin
        self._seed = seed
        self._piece = Struct("TablaPiece").c
        self._has_ended = False

    def __next__(self) -> Piece:
        if self._has_ended:
            raise StopIteration
        try:
            if not self._has_begun:
                interruptible(self._begin, self.cancel)
            take, stats = lib.tabla_session_next, lib.tabla_session_stats
            piece = next_piece(self._session, self._piece, self._seed_of, take, stats)
        except BaseException:
            self.close()
            raise
        if piece.finish_reason is not None:
            self._finish()
        return piece

    def _seed_of(self, _: int) -> int:
        return self._seed

    def _begin(self) -> None:
        self._begin_answer(self)
        self._has_begun = True

    def cancel(self) -> None:
        """Cancels the answer, from any thread: the next piece is its last."""
        self._session._cancel()

    def close(self) -> None:
        """Ends the answer. Does nothing if it has ended."""
        if self._has_ended:
            return
        if self._has_begun:
            self.cancel()
            with self._session._reading:
                # The answer ends whatever the status is.
                lib.tabla_session_end(self._session._pointer_or_null)
        self._finish()

    def _finish(self) -> None:
        self._has_ended = True
        if self._closes_session:
            self._session.close()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


def gather(stream: Stream) -> Answer:
    """Returns the remaining pieces of a stream as one answer."""
    with stream:
        return join_pieces(stream)
