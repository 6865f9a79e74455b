"""Forwards log messages of the library to `logging`."""

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

PYTHON_LEVELS = dict(LEVELS.values())


@ffi.callback("void(int32_t, const char *, void *)")  # type: ignore[untyped-decorator]
def _log(level: int, message: Any, _: Any) -> None:
    LOGGER.log(PYTHON_LEVELS[level], "%s", ffi.string(message).decode())


def set_log(level: str | None) -> None:
    """Sends log messages of the library to `logging.getLogger("tabla")`, up to a level: `"error"`,
    `"warning"`, `"info"` or `"debug"`. `None`, the default, sends nothing.

    Handlers run on any thread and must not call the library.
    """
    if level is not None and level not in LEVELS:
        raise ArgumentError(f"invalid level {level!r}: expected one of {', '.join(LEVELS)}")
    number = lib.TABLA_LOG_OFF if level is None else LEVELS[level][0]
    check(lib.tabla_log_set_callback(number, _log, ffi.NULL))


# Threads of the library must not call Python after it has exited.
atexit.register(lib.tabla_log_set_callback, lib.TABLA_LOG_OFF, ffi.NULL, ffi.NULL)
