"""Async functions: calls run in a thread pool, and cancelling a task cancels its call."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import AsyncIterator, Callable, Protocol, TypeVar

from ._answer import Answer, Piece, join_pieces
from ._handle import CANCEL_AGAIN_SECONDS, in_child
from ._stream import Stream

T = TypeVar("T")


class _Threads:
    """Thread pool for blocking calls of the library."""

    pool: ThreadPoolExecutor

    @classmethod
    def start(cls) -> None:
        cls.pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="tabla")


_Threads.start()
in_child(_Threads.start)


async def run(call: Callable[[], T], cancel: Callable[[], object]) -> T:
    """Runs a call in the thread pool and waits until it returns, even if the task is cancelled."""
    loop = asyncio.get_running_loop()
    has_returned: asyncio.Future[None] = loop.create_future()

    def notify(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(_settle, has_returned)

    future = _Threads.pool.submit(call)
    future.add_done_callback(notify)
    try:
        await has_returned
    except asyncio.CancelledError:
        # The library ignores a cancellation before the call has started, so it is repeated.
        while not future.done():
            cancel()
            await asyncio.sleep(CANCEL_AGAIN_SECONDS)
        raise
    return future.result()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def run_uncancellable(call: Callable[[], T]) -> T:
    """Runs a call that cannot be cancelled, such as rendering a template or compiling a grammar."""
    return await run(call, lambda: None)


class Pieces(Protocol):
    """Interface of `Stream` and `Batch`."""

    def __next__(self) -> Piece: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class AsyncStream(AsyncIterator[Piece]):
    """Async version of `Stream`, for `async for` and `async with`. Cancelling the task that waits for
    a piece ends the answer."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    async def __anext__(self) -> Piece:
        try:
            piece = await run(self._next, self._pieces.cancel)
        except BaseException:
            self._pieces.close()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    def _next(self) -> Piece | None:
        try:
            return next(self._pieces)
        except StopIteration:  # a future cannot raise it
            return None

    async def aclose(self) -> None:
        """Ends the answer. Does nothing if it has ended."""
        await run(self._pieces.close, self._pieces.cancel)

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def gather(stream: Stream) -> Answer:
    """Returns the remaining pieces of a stream as one answer."""
    return join_pieces([piece async for piece in AsyncStream(stream)])
