"""The async twins: calls go to threads, and a task that is cancelled cancels its call."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import AsyncIterator, Callable, Protocol, TypeVar

from ._answer import Answer, Piece, whole
from ._handle import CANCEL_AGAIN_SECONDS, in_child
from ._stream import Stream

T = TypeVar("T")


class _Threads:
    """Where calls wait: for the device, or for their turn at it."""

    pool: ThreadPoolExecutor

    @classmethod
    def start(cls) -> None:
        cls.pool = ThreadPoolExecutor(max_workers=64, thread_name_prefix="tabla")


_Threads.start()
in_child(_Threads.start)


async def run(call: Callable[[], T], cancel: Callable[[], object]) -> T:
    """Makes a call on a thread. It has returned when this does, cancelled or not."""
    loop = asyncio.get_running_loop()
    has_returned: asyncio.Future[None] = loop.create_future()

    def tell(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has gone
            loop.call_soon_threadsafe(_settle, has_returned)

    future = _Threads.pool.submit(call)
    future.add_done_callback(tell)
    try:
        await has_returned
    except asyncio.CancelledError:
        # The library forgets what comes before a call begins.
        while not future.done():
            cancel()
            await asyncio.sleep(CANCEL_AGAIN_SECONDS)
        raise
    return future.result()


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def begun(call: Callable[[], T]) -> T:
    """Makes a call that nothing cancels: a template is rendered, a grammar compiled."""
    return await run(call, lambda: None)


class Pieces(Protocol):
    """A stream or a batch."""

    def __next__(self) -> Piece: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class AsyncStream(AsyncIterator[Piece]):
    """The async twin of `Stream`: for `async for` and `async with`. Cancelling the task that waits for a
    piece ends the answer."""

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
        except StopIteration:  # which no future can hold
            return None

    async def aclose(self) -> None:
        """Ends the answer here. One that has ended stays as it is."""
        await run(self._pieces.close, self._pieces.cancel)

    async def __aenter__(self) -> AsyncStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def gather(stream: Stream) -> Answer:
    """The rest of an answer as one."""
    return whole([piece async for piece in AsyncStream(stream)])
