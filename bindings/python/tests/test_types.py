"""`tabla.types`: compared with the types of the openai package, if it is installed."""

from __future__ import annotations

import typing
from typing import Any

import pytest
from tabla import types

from json_types import OPENAI_TYPES, TYPES, fields_of, fits, validate

USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
MESSAGE = {"role": "assistant", "content": None, "refusal": None}


def test_invalid_objects_are_rejected() -> None:
    assert fits(USAGE, types.Usage) and fits(MESSAGE, types.ChatMessage) and fits({}, types.ChatDelta)
    assert not fits({**USAGE, "total_tokens": "2"}, types.Usage)
    assert not fits({**MESSAGE, "role": "user"}, types.ChatMessage)
    assert not fits({**MESSAGE, "more": 1}, types.ChatMessage)
    assert not fits({"role": "assistant"}, types.ChatMessage)
    assert not fits({"more": 1}, types.ChatDelta)
    with pytest.raises(AssertionError):
        validate("chat", {"choices": [{"index": 0}]})


def test_openai_types_reject_invalid_objects() -> None:
    if not OPENAI_TYPES:
        pytest.skip("openai is not installed: objects were not validated")
    with pytest.raises(ValueError, match="finish_reason"):
        OPENAI_TYPES["chat"].model_validate({"choices": [{"index": 0}]}, strict=True)


def test_types_have_the_fields_of_openai() -> None:
    for kind, theirs in OPENAI_TYPES.items():
        compare_fields(TYPES[kind], theirs)


def compare_fields(ours: Any, theirs: Any) -> None:
    """Checks that OpenAI's type has all of our fields except the two that are documented."""
    fields, models = fields_of(ours), theirs.model_fields
    assert set(fields) - set(models) <= {"seed", "reasoning_content"}, ours.__name__
    for name in set(fields) & set(models):
        inner = [cls for cls in classes(fields[name]) if typing.is_typeddict(cls)]
        outer = [cls for cls in classes(models[name].annotation) if hasattr(cls, "model_fields")]
        if inner and len(outer) == 1:
            compare_fields(inner[0], outer[0])


def classes(annotation: Any) -> list[Any]:
    """Returns the classes in a type, such as `list[A] | None`."""
    arguments = typing.get_args(annotation)
    return [cls for inner in arguments for cls in classes(inner)] if arguments else [annotation]
