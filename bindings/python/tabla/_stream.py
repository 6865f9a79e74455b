"""An answer that comes piece by piece."""

from __future__ import annotations

from typing import Callable, Iterator

from ._answer import Answer, Piece, next_piece, whole
from ._c import Struct
from ._handle import Handle, interruptible
from ._native import lib


class Stream(Iterator[Piece]):
    """An answer, piece by piece; the last piece says why it ended and what it took.

    It begins when its first piece is asked for. `close()`, the end of a `with`, an error on the way
    (Ctrl-C, too) or its last reference end it: the tokens that were taken stay in the session's sequence,
    and none behind them.
    """

    _has_begun = False
    _has_ended = True  # until it is made

    def __init__(
        self, session: Handle, begin: Callable[[Stream], None], *, closes_session: bool = False
    ) -> None:
        """Takes the session that yields the pieces and the function that begins the answer on it."""
        self._session = session
        self._closes_session = closes_session
        self._begin_answer = begin
        self._piece = Struct("TablaPiece").c
        self._has_ended = False

    def __next__(self) -> Piece:
        if self._has_ended:
            raise StopIteration
        try:
            if not self._has_begun:
                interruptible(self._begin, self.cancel)
            piece = next_piece(self._session, self._piece, lib.tabla_session_next, lib.tabla_session_stats)
        except BaseException:
            self.close()
            raise
        if piece.finish_reason is not None:
            self._leave()
        return piece

    def _begin(self) -> None:
        self._begin_answer(self)
        self._has_begun = True

    def cancel(self) -> None:
        """Stops the answer, from any thread: the next piece is its end."""
        self._session.cancel()

    def close(self) -> None:
        """Ends the answer here. One that has ended stays as it is."""
        if self._has_ended:
            return
        if self._has_begun:
            self.cancel()
            with self._session._reading:
                # It is over whatever the status is.
                lib.tabla_session_end(self._session._pointer_or_null)
        self._leave()

    def _leave(self) -> None:
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
    """The rest of an answer as one."""
    with stream:
        return whole(stream)
