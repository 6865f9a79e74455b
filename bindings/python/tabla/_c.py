"""Python's values as C takes them, and C's as Python does."""

from __future__ import annotations

import json
import operator
import os
import weakref
from typing import Any, Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ._errors import ArgumentError, check
from ._native import ffi, lib

CData = Any
"""What cffi hands out: it has no types of its own."""

Floats = NDArray[np.float32]


def utf8(value: str, name: str) -> bytes:
    """The bytes of a text."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is of type {type(value).__name__}, not str")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} is no text: {error}") from None


def text(value: str, name: str) -> CData:
    """A text as C has it, with a NUL behind it, so that it can have none inside."""
    return _ended(utf8(value, name), name)


def path(value: str | bytes | os.PathLike[str], name: str) -> CData:
    """A path as the file system has it."""
    return _ended(os.fsencode(value), name)


def _ended(value: bytes, name: str) -> CData:
    if b"\0" in value:
        raise ArgumentError(f"{name} has a NUL at byte {value.index(0)}")
    return ffi.new("char[]", value)


def texts(values: Sequence[str], name: str) -> list[CData]:
    """Several of them."""
    if isinstance(values, str):
        raise TypeError(f"{name} is a str, not a list of them")
    return [text(value, f"{name}[{at}]") for at, value in enumerate(values)]


def json_text(value: object, name: str) -> CData:
    """A value as JSON."""
    try:
        return text(json.dumps(value), name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} cannot be written as JSON: {error}") from None


def numbers(ctype: str, values: Sequence[int], name: str) -> CData:
    """An array of numbers."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} is of type {type(values).__name__}, not a list of numbers")
    try:
        return ffi.new(f"{ctype}[]", [operator.index(value) for value in values])
    except TypeError as error:
        raise TypeError(f"{name} is no list of numbers: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"{name} has what is no {ctype}: {error}") from None


def count(value: int, name: str, least: int = 0) -> int:
    """A number of things."""
    try:
        whole = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} is {value!r}, no whole number") from None
    if not least <= whole < 2**32:
        raise ArgumentError(f"{name} is {value!r}, no number from {least} on")
    return whole


def taken(ctype: str, function: Callable[..., int], *arguments: object) -> CData:
    """The array that a function fills, which ends in room, capacity and count: it is asked for the count
    first."""
    size = ffi.new("size_t *")
    check(function(*arguments, ffi.NULL, 0, size))
    room = ffi.new(f"{ctype}[]", size[0])
    check(function(*arguments, room, size[0], size))
    return room


def taken_bytes(function: Callable[..., int], *arguments: object) -> bytes:
    """As `taken`, of bytes."""
    return bytes(ffi.buffer(taken("char", function, *arguments)))


def floats(array: Floats) -> CData:
    """The memory of a numpy array, for C to write to."""
    return ffi.from_buffer("float[]", array, require_writable=True)


# The memory of a struct knows nothing of what lies behind its pointers.
_POINTED_TO: weakref.WeakKeyDictionary[CData, list[object]] = weakref.WeakKeyDictionary()


class Struct:
    """A struct of C that begins with its size. What its pointers point to lives as long as `c` does."""

    def __init__(self, ctype: str) -> None:
        self.c: CData = ffi.new(f"{ctype} *")
        self.c.struct_size = ffi.sizeof(ctype)
        self._kept = _POINTED_TO[self.c] = []

    def put(self, name: str, value: object) -> None:
        """Sets a field; an error says which."""
        try:
            setattr(self.c, name, value)
        except TypeError as error:
            raise TypeError(f"{name}={value!r}: {error}") from None
        except OverflowError as error:
            raise ArgumentError(f"{name}={value!r}: {error}") from None

    def point(self, name: str, to: CData) -> None:
        """Has a field point to memory."""
        self._kept.append(to)
        setattr(self.c, name, to)

    def point_to_texts(self, name: str, values: Sequence[str]) -> None:
        """Has a field point to texts, and the field behind it say how many there are."""
        kept = texts(values, name)
        self._kept.append(kept)
        self.point_to_array(name, ffi.new("const char *[]", kept))

    def point_to_array(self, name: str, array: CData) -> None:
        """Has a field point to an array, and the field behind it say how long it is."""
        self.point(name, array)
        setattr(self.c, f"{name}_count", len(array))


def choice(name: str, value: str, prefix: str, choices: Sequence[str]) -> int:
    """The library's number for one of several names: of `"mean"` that of `TABLA_POOLING_MEAN`."""
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}, none of {', '.join(choices)}")
    return int(getattr(lib, f"{prefix}_{value.upper()}"))
