"""Conversions between Python values and C values."""

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
"""An object of cffi, which has no type annotations."""

Floats = NDArray[np.float32]


def utf8(value: str, name: str) -> bytes:
    """Encodes a string as UTF-8."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be str, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{name} cannot be encoded as UTF-8: {error}") from None


def text(value: str, name: str) -> CData:
    """Converts a string to a C string. A NUL in the string is an error."""
    return _c_string(utf8(value, name), name)


def path(value: str | bytes | os.PathLike[str], name: str) -> CData:
    """Converts a path to a C string in the encoding of the file system."""
    return _c_string(os.fsencode(value), name)


def _c_string(value: bytes, name: str) -> CData:
    if b"\0" in value:
        raise ArgumentError(f"{name} contains a NUL at byte {value.index(0)}")
    return ffi.new("char[]", value)


def texts(values: Sequence[str], name: str) -> list[CData]:
    """Converts strings to C strings."""
    if isinstance(values, str):
        raise TypeError(f"{name} must be a list of str, not str")
    return [text(value, f"{name}[{at}]") for at, value in enumerate(values)]


def json_text(value: object, name: str) -> CData:
    """Serializes a value as JSON in a C string."""
    try:
        return text(json.dumps(value), name)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} cannot be serialized as JSON: {error}") from None


def numbers(ctype: str, values: Sequence[int], name: str) -> CData:
    """Converts integers to a C array."""
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name} must be a list of integers, not {type(values).__name__}")
    try:
        return ffi.new(f"{ctype}[]", [operator.index(value) for value in values])
    except TypeError as error:
        raise TypeError(f"{name} must be a list of integers: {error}") from None
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"{name}: invalid value for {ctype}: {error}") from None


def count(value: int, name: str, least: int = 0) -> int:
    """Checks a `uint32_t` argument of at least `least`."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ArgumentError(f"{name} must be an integer, got {value!r}") from None
    if not least <= number < 2**32:
        raise ArgumentError(f"{name} must be in the range {least} to {2**32 - 1}, got {value!r}")
    return number


def call_for_array(ctype: str, function: Callable[..., int], *arguments: object) -> CData:
    """Returns the array that a function writes. The last arguments of the function are buffer,
    capacity and count. It is called twice: first for the count, then for the values."""
    size = ffi.new("size_t *")
    check(function(*arguments, ffi.NULL, 0, size))
    buffer = ffi.new(f"{ctype}[]", size[0])
    check(function(*arguments, buffer, size[0], size))
    return buffer


def call_for_bytes(function: Callable[..., int], *arguments: object) -> bytes:
    """Like `call_for_array`, for bytes."""
    return bytes(ffi.buffer(call_for_array("char", function, *arguments)))


def floats(array: Floats) -> CData:
    """Returns the memory of a numpy array as a C array that can be written."""
    return ffi.from_buffer("float[]", array, require_writable=True)


INTEGERS = {
    "uint32_t": (0, 2**32 - 1),
    "uint64_t": (0, 2**64 - 1),
    "int32_t": (-(2**31), 2**31 - 1),
    "int64_t": (-(2**63), 2**63 - 1),
}
"""Ranges of the integer types of fields."""

# Objects that the pointers of a struct refer to. cffi does not keep them alive.
_POINTED_TO: weakref.WeakKeyDictionary[CData, list[object]] = weakref.WeakKeyDictionary()


class Struct:
    """A C struct with a `struct_size` field. Keeps the objects that its pointers refer to alive as long as `c`."""

    def __init__(self, ctype: str) -> None:
        self.c: CData = ffi.new(f"{ctype} *")
        self.c.struct_size = ffi.sizeof(ctype)
        self._references = _POINTED_TO[self.c] = []

    def put(self, name: str, value: object) -> None:
        """Sets a field; errors contain its name."""
        try:
            setattr(self.c, name, value)
        except TypeError as error:
            raise TypeError(f"{name}={value!r}: {error}") from None
        except OverflowError as error:
            ctype = dict(ffi.typeof(self.c).item.fields)[name].type
            if ctype.cname not in INTEGERS:
                raise ArgumentError(f"{name}={value!r}: {error}") from None
            least, most = INTEGERS[ctype.cname]
            raise ArgumentError(f"{name} must be in the range {least} to {most}, got {value!r}") from None

    def point(self, name: str, to: CData) -> None:
        """Sets a pointer field."""
        self._references.append(to)
        setattr(self.c, name, to)

    def point_to_texts(self, name: str, values: Sequence[str]) -> None:
        """Sets a field to an array of C strings, and the `_count` field to their number."""
        strings = texts(values, name)
        self._references.append(strings)
        self.point_to_array(name, ffi.new("const char *[]", strings))

    def point_to_array(self, name: str, array: CData) -> None:
        """Sets a field to an array, and the `_count` field to its length."""
        self.point(name, array)
        setattr(self.c, f"{name}_count", len(array))


def choice(name: str, value: str, prefix: str, choices: Sequence[str]) -> int:
    """Returns the constant for a name: for `"mean"`, the value of `TABLA_POOLING_MEAN`."""
    if value not in choices:
        raise ArgumentError(f"invalid {name} {value!r}: expected one of {', '.join(choices)}")
    return int(getattr(lib, f"{prefix}_{value.upper()}"))
