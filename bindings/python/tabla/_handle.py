"""What has an end: objects of the library behind handles."""

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import Future, wait
from typing import Any, Callable, TypeVar

from ._c import CData
from ._errors import HandleError, failure
from ._native import ffi, lib

T = TypeVar("T")
Self = TypeVar("Self", bound="Handle")

CANCEL_AGAIN_SECONDS = 0.01


class Handle:
    """An object of the library. `close()`, the end of a `with`, or its last reference frees it.

    Closing twice is fine, and any thread may close: what is under way in another one is cancelled.
    Whatever is asked of a closed object is a `HandleError`.
    """

    _pointer_or_null: CData = ffi.NULL

    def __init__(self, pointer: CData, free: Callable[[CData], int]) -> None:
        if pointer == ffi.NULL:
            raise failure(lib.tabla_last_error_code())
        self._pointer_or_null = pointer
        self._free = free
        # Held while what the last call points to is read, which the next call takes away.
        self._reading = threading.Lock()
        _OPEN.add(self)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return bool(self._pointer_or_null == ffi.NULL)

    @property
    def _pointer(self) -> CData:
        if self.closed:
            raise HandleError(f"this {type(self).__name__} is closed")
        return self._pointer_or_null

    def cancel(self) -> None:
        """Stops what is under way in it, if anything is. Any thread may, at any time."""

    def close(self) -> None:
        """Frees it. What is under way in it is cancelled."""
        if self.closed:
            return
        self.cancel()
        with self._reading:
            pointer, self._pointer_or_null = self._pointer_or_null, ffi.NULL
            # That it was freed already, or belongs to the parent of this process, is as well.
            self._free(pointer)

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(f"a {type(self).__name__} is not to be copied or pickled")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


_OPEN: weakref.WeakSet[Handle] = weakref.WeakSet()


def in_child(action: Callable[[], None]) -> None:
    """Has something done in every child that this process forks, which has one thread alone."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def _unlock() -> None:
    for handle in _OPEN:
        handle._reading = threading.Lock()


in_child(_unlock)


def interruptible(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Runs a call that may take long so that Ctrl-C cancels it.

    Python hears of a signal between two of its own instructions on the main thread, of which there are
    none within a call of C: another thread makes the call.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[T] = Future()
    threading.Thread(target=_fulfil, args=(future, call), daemon=True).start()
    try:
        return future.result()
    except BaseException:
        # The library forgets what comes before a call begins.
        while not future.done():
            cancel()
            wait([future], CANCEL_AGAIN_SECONDS)
        raise
    finally:
        del future  # it has the error, which has this frame


def _fulfil(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future, call
