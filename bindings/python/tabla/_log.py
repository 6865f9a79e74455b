"""What the library has to say beside its results."""

from __future__ import annotations

import atexit
import logging
from typing import Any

from ._errors import ArgumentError, check
from ._native import ffi, lib

LOGGER = logging.getLogger("tabla")

LEVELS = {
    "error": (lib.TABLA_LOG_ERROR, logging.ERROR),
    "warning": (lib.TABLA_LOG_WARN, logging.WARNING),
    "info": (lib.TABLA_LOG_INFO, logging.INFO),
    "debug": (lib.TABLA_LOG_DEBUG, logging.DEBUG),
}

OF_PYTHON = dict(LEVELS.values())


@ffi.callback("void(int32_t, const char *, void *)")  # type: ignore[untyped-decorator]
def _hear(level: int, message: Any, _: Any) -> None:
    LOGGER.log(OF_PYTHON[level], "%s", ffi.string(message).decode())


def set_log(level: str | None) -> None:
    """Sends what the library says to `logging.getLogger("tabla")`, up to a level: `"error"`, `"warning"`,
    `"info"` or `"debug"`; `None`, as at first, sends nothing.

    Handlers run on any thread and must not call the library.
    """
    if level is not None and level not in LEVELS:
        raise ArgumentError(f"level is {level!r}, none of {', '.join(LEVELS)}")
    number = lib.TABLA_LOG_OFF if level is None else LEVELS[level][0]
    check(lib.tabla_set_log_callback(number, _hear, ffi.NULL))


# No thread of the library may call Python once it has gone.
atexit.register(lib.tabla_set_log_callback, lib.TABLA_LOG_OFF, ffi.NULL, ffi.NULL)
