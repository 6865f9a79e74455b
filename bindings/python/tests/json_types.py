"""Validates the objects of `chat` and `complete`: with their types, and with those of the openai package."""

from __future__ import annotations

import json
import typing
from typing import Any, Mapping

from tabla import types

TYPES: dict[str, Any] = {
    "chat": types.ChatCompletion,
    "chat chunk": types.ChatCompletionChunk,
    "completion": types.Completion,
    "completion chunk": types.CompletionChunk,
}

try:
    from openai.types import Completion
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
except ImportError:
    OPENAI_TYPES: dict[str, Any] = {}
else:
    # OpenAI's package has no type for chunks of completions.
    OPENAI_TYPES = {"chat": ChatCompletion, "chat chunk": ChatCompletionChunk, "completion": Completion}


def validate(kind: str, given: Mapping[str, Any]) -> None:
    """Validates an object. With the openai package, if it is installed: the object must have no unknown fields."""
    check_type(given, TYPES[kind])
    if kind in OPENAI_TYPES:
        read = OPENAI_TYPES[kind].model_validate(given, strict=True)
        assert json.loads(read.model_dump_json(exclude_unset=True)) == json.loads(json.dumps(given))


def check_type(value: Any, expected: Any) -> None:
    """Checks a JSON value against a `TypedDict`, `list`, `dict`, `Literal`, union or class."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if typing.is_typeddict(expected):
        fields = fields_of(expected)
        required = {name for name, field in fields.items() if typing.get_origin(field) is not typing.NotRequired}
        assert isinstance(value, dict), f"{value!r} is not {expected}"
        assert set(value) <= set(fields), f"{expected.__name__}: {sorted(value)}"
        assert required <= set(value) or not expected.__total__, f"{expected.__name__}: {sorted(value)}"
        for name in value:
            check_type(value[name], fields[name])
    elif origin is list:
        assert isinstance(value, list)
        for element in value:
            check_type(element, arguments[0])
    elif origin is dict:
        for key, element in value.items():
            check_type(key, arguments[0])
            check_type(element, arguments[1])
    elif origin is typing.Literal:
        assert value in arguments, f"{value!r} is not {expected}"
    elif arguments:  # a union or `NotRequired`
        assert any(fits(value, argument) for argument in arguments), f"{value!r} is not {expected}"
    else:
        assert isinstance(value, expected), f"{value!r} is not {expected}"


def fits(value: Any, expected: Any) -> bool:
    """Returns whether `check_type` accepts a value."""
    try:
        check_type(value, expected)
    except AssertionError:
        return False
    return True


def fields_of(typed: Any) -> dict[str, Any]:
    """Returns the types of the fields of a `TypedDict`."""
    return typing.get_type_hints(typed, include_extras=True)
