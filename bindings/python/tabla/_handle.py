"""Base class of objects that own a handle of the library."""

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
    """An object of the library. `close()`, the end of a `with` block, or its last reference frees it.

    `close()` can be called twice and from any thread; it cancels running calls. Using a closed
    object raises `HandleError`.
    """

    _pointer_or_null: CData = ffi.NULL
    _created_by = ""
    """Call that creates an object whose constructor is not public."""

    def __new__(cls: type[Self], *arguments: Any, **options: Any) -> Self:
        given = (*arguments, *options.values())
        if cls._created_by and not any(isinstance(argument, ffi.CData) for argument in given):
            raise TypeError(f"tabla.{cls.__name__} objects are created by {cls._created_by}")
        return super().__new__(cls)

    def __init__(self, pointer: CData, free: Callable[[CData], int]) -> None:
        if pointer == ffi.NULL:
            raise failure(lib.tabla_last_error_code())
        self._pointer_or_null = pointer
        self._free = free
        # Held while the result of the last call is read, because the next call overwrites it.
        self._reading = threading.Lock()
        _OPEN.add(self)

    @property
    def closed(self) -> bool:
        """Whether the object is closed."""
        return bool(self._pointer_or_null == ffi.NULL)

    @property
    def _pointer(self) -> CData:
        if self.closed:
            raise HandleError(f"this {type(self).__name__} is closed")
        return self._pointer_or_null

    def _cancel(self) -> None:
        """Cancels the current call of an object whose calls can be cancelled."""

    def close(self) -> None:
        """Frees the object and cancels its current call."""
        if self.closed:
            return
        self._cancel()
        with self._reading:
            pointer, self._pointer_or_null = self._pointer_or_null, ffi.NULL
            # An error is ignored: the object was already freed, or belongs to the parent process.
            self._free(pointer)

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(f"cannot copy or pickle a {type(self).__name__}")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


_OPEN: weakref.WeakSet[Handle] = weakref.WeakSet()


def in_child(action: Callable[[], None]) -> None:
    """Registers an action for every forked child process, which has only one thread."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=action)


def _unlock() -> None:
    for handle in _OPEN:
        handle._reading = threading.Lock()


in_child(_unlock)


def interruptible(call: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Runs a blocking call so that Ctrl-C cancels it.

    Python handles signals between two bytecode instructions of the main thread, so not during a C
    call. Therefore another thread makes the call.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    future: Future[T] = Future()
    threading.Thread(target=_run_future, args=(future, call), daemon=True).start()
    try:
        return future.result()
    except BaseException:
        # The library ignores a cancellation before the call has started, so it is repeated.
        while not future.done():
            cancel()
            wait([future], CANCEL_AGAIN_SECONDS)
        raise
    finally:
        del future  # breaks the reference cycle: future, exception, traceback, this frame


def _run_future(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except BaseException as error:
        future.set_exception(error)
    finally:
        del future, call
