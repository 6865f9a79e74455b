"""What can go wrong: an exception for every status of the library."""

from __future__ import annotations

from typing import ClassVar

from ._native import ffi, lib


class TablaError(Exception):
    """A failure of the library. Those below are one each of its codes, which docs/ABI.md registers."""

    code: ClassVar[int] = 0
    """The number of the status; 0 for one that this package does not know yet."""


class ArgumentError(TablaError, ValueError):
    """An argument is out of its range."""

    code = 1


class IoError(TablaError, OSError):
    """The operating system refused: a missing file, a directory, a read error."""

    code = 2


class FormatError(TablaError):
    """The file is damaged, or is not what it claims to be."""

    code = 3


class UnsupportedError(TablaError):
    """The file is sound but uses something that the library does not know."""

    code = 4


class TooLargeError(TablaError):
    """A size is over a limit: of the model, of its context, of the device."""

    code = 5


class TokenizerError(TablaError):
    """The tokenizer cannot be built, or cannot encode this text."""

    code = 6


class GrammarError(TablaError):
    """A grammar or a schema is refused."""

    code = 7


class OutOfMemoryError(TablaError, MemoryError):
    """Memory could not be had."""

    code = 8


class DeviceError(TablaError):
    """The device refused work."""

    code = 9


class DeviceLostError(TablaError):
    """The device is gone; the model must be loaded again."""

    code = 10


class CancelledError(TablaError):
    """Someone asked to stop."""

    code = 11


class StateError(TablaError):
    """The call does not fit the state of the object: an empty sequence, an answer that is under way."""

    code = 12


class InternalError(TablaError):
    """A promise of the library itself does not hold."""

    code = 13


class PanicError(TablaError):
    """The library panicked inside the call; close the object."""

    code = 14


class HandleError(TablaError):
    """The object was closed."""

    code = 15


class BusyError(TablaError):
    """Another thread has what the call needs; it may succeed later."""

    code = 16


class ReentrantError(TablaError):
    """A callback calls the object that is calling it."""

    code = 17


class PoisonedError(TablaError):
    """A panic left the object unusable; close it and make it anew."""

    code = 18


class ForkedError(TablaError):
    """The process is a fork of one that loaded a model; load the model in the child instead."""

    code = 19


CLASSES = {cls.code: cls for cls in TablaError.__subclasses__()}


def failure(status: int, message: str | None = None) -> TablaError:
    """The exception of a status; without a message with that of this thread's last call."""
    if message is None:
        message = ffi.string(lib.tabla_last_error()).decode()
    return CLASSES.get(status, TablaError)(message)


def check(status: int) -> None:
    """Raises what a status stands for; 0 stands for success."""
    if status != 0:
        raise failure(status)
