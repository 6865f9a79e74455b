"""Exceptions, one for every error code of the library."""

from __future__ import annotations

from typing import ClassVar

from ._native import ffi, lib


class TablaError(Exception):
    """An error of the library. Each error code has a subclass; docs/ABI.md lists the codes."""

    code: ClassVar[int] = 0
    """Error code; 0 for a code that this package does not define."""


class ArgumentError(TablaError, ValueError):
    """An argument is outside its range."""

    code = 1


class IoError(TablaError, OSError):
    """The operating system reported an error: a missing file, a directory, a read error."""

    code = 2


class FormatError(TablaError):
    """The file is damaged or has another format than expected."""

    code = 3


class UnsupportedError(TablaError):
    """The file is valid but uses a feature that the library does not support."""

    code = 4


class TooLargeError(TablaError):
    """A size exceeds a limit of the model, its context or the device."""

    code = 5


class TokenizerError(TablaError):
    """The tokenizer cannot be built, or cannot encode the text."""

    code = 6


class GrammarError(TablaError):
    """A grammar or a JSON schema is invalid."""

    code = 7


class OutOfMemoryError(TablaError, MemoryError):
    """A memory allocation failed."""

    code = 8


class DeviceError(TablaError):
    """The device reported an error."""

    code = 9


class DeviceLostError(TablaError):
    """The device was lost; the model must be loaded again."""

    code = 10


class CancelledError(TablaError):
    """The operation was cancelled."""

    code = 11


class StateError(TablaError):
    """The call is not valid in the current state: an empty sequence, an answer in progress."""

    code = 12


class InternalError(TablaError):
    """An invariant of the library does not hold: a bug of the library, or a model that computes numbers that are
    not finite."""

    code = 13


class PanicError(TablaError):
    """The library panicked inside the call; close the object."""

    code = 14


class HandleError(TablaError):
    """The object is closed."""

    code = 15


class BusyError(TablaError):
    """The object is in use by another thread; the call may succeed later."""

    code = 16


class ReentrantError(TablaError):
    """A callback called the object that called it."""

    code = 17


class PoisonedError(TablaError):
    """A panic left the object unusable; create a new one."""

    code = 18


class ForkedError(TablaError):
    """The process was forked from one that had loaded a model; load the model only in the child."""

    code = 19


_PYTHON_FUNCTIONS = {"tabla_session_end": "Session.end", "tabla_batch_add": "Batch.add"}
"""Functions of the C ABI in error messages."""

CLASSES = {cls.code: cls for cls in TablaError.__subclasses__()}


def failure(status: int, message: str | None = None) -> TablaError:
    """Returns the exception for a status. The default message is that of the last call that failed on this thread."""
    if message is None:
        message = ffi.string(lib.tabla_last_error()).decode()
    for c, python in _PYTHON_FUNCTIONS.items():
        message = message.replace(c, python)
    return CLASSES.get(status, TablaError)(message)


def check(status: int) -> None:
    """Raises the exception for a status, unless it is 0."""
    if status != 0:
        raise failure(status)
