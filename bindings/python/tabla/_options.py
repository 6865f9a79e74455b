"""Generation and chat options: converts keyword arguments to C structs."""

from __future__ import annotations

import difflib
import secrets
import warnings
from typing import Any, Callable, Mapping, Sequence, TypedDict

from ._c import Struct, choice, count, json_text, numbers, path, text
from ._errors import ArgumentError, check
from ._handle import Handle
from ._native import ffi, lib
from ._option_types import CHOICES, JSON, PATHS, TEXTS, GenerateOptions


class Ignored(TypedDict, total=False):
    """Arguments of the OpenAI API that `chat` and `complete` ignore with a warning."""

    audio: Any
    best_of: Any
    function_call: Any
    functions: Any
    metadata: Any
    modalities: Any
    moderation: Any
    prediction: Any
    prompt_cache_key: Any
    prompt_cache_options: Any
    prompt_cache_retention: Any
    safety_identifier: Any
    service_tier: Any
    store: Any
    suffix: Any
    user: Any
    verbosity: Any
    web_search_options: Any


ALIASES = {"max_completion_tokens": "max_tokens"}


def checked(given: Mapping[str, Any], caller: str, names: type = GenerateOptions) -> dict[str, Any]:
    """Returns the arguments that are not `None`, without aliases and ignored ones. Raises `TypeError` for an
    argument that is not in `names`. Call it directly in public functions: warnings point to their caller."""
    arguments: dict[str, Any] = {}
    for name, value in given.items():
        if name not in names.__annotations__:
            raise TypeError(unexpected(name, caller, names))
        if value is None:
            continue
        if name in Ignored.__annotations__:
            warnings.warn(f"{caller}() ignores {name}", UserWarning, stacklevel=3)
            continue
        name = ALIASES.get(name, name)
        # Only aliases can set a name twice. NaN is never equal to itself, so the name is checked first.
        if name in arguments and arguments[name] != value:
            raise TypeError(f"{caller}() got two values for {name}: {arguments[name]!r}, {value!r}")
        arguments[name] = value
    return arguments


def unexpected(name: str, caller: str, names: type) -> str:
    """Returns the message for an unknown argument."""
    message = f"{caller}() got an unexpected keyword argument {name!r}"
    if name in Ignored.__annotations__:
        return f"{message}; only chat and complete accept it"
    same = ALIASES.get(name)
    close = [same] if same in names.__annotations__ else difflib.get_close_matches(name, names.__annotations__, 1)
    return f"{message}; did you mean {close[0]!r}?" if close else message


def random_seed() -> int:
    """Returns a random seed of 32 bits, which is short enough to retype."""
    return secrets.randbits(32)


def put_option(options: Struct, name: str, value: Any) -> None:
    """Sets an option that has the same name and meaning in C."""
    if name in CHOICES:
        options.put(name, choice(name, value, *CHOICES[name]))
    elif name in TEXTS:
        options.point(name, text(value, name))
    elif name in PATHS:
        options.point(name, path(value, name))
    elif name in JSON:
        options.point(name, json_text(value, name))
    else:
        options.put(name, value)


def generate_options(arguments: Mapping[str, Any]) -> Struct:
    """Converts checked arguments to `TablaGenerateOptions`. Without a seed, draws a random one."""
    options = Struct("TablaGenerateOptions")
    check(lib.tabla_generate_options_init(options.c, ffi.sizeof("TablaGenerateOptions")))
    options.put("seed", random_seed())
    for name, value in arguments.items():
        PUT.get(name, put_option)(options, name, value)
    return options


def _put_texts(options: Struct, name: str, value: str | Sequence[str]) -> None:
    options.point_to_texts(name, [value] if isinstance(value, str) else value)


def _put_tokens(options: Struct, name: str, value: Sequence[int]) -> None:
    options.point_to_array(name, numbers("uint32_t", value, name))


def _put_biases(options: Struct, name: str, value: Mapping[Any, float]) -> None:
    try:
        biases = [(int(token), float(bias)) for token, bias in value.items()]
        options.point_to_array(name, ffi.new("TablaLogitBias[]", biases))
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise ArgumentError(f"{name} must map token ids to numbers: {error}") from None


def _put_handle(options: Struct, name: str, value: Any) -> None:
    if not isinstance(value, Handle):
        expected = "Model" if name == "draft_model" else "Grammar"
        raise TypeError(f"{name} must be a {expected}, not {type(value).__name__}")
    options.point(name, value._pointer)


def _put_struct(options: Struct, name: str, value: Struct) -> None:
    options.point(name, value.c)


def _put_prompt_lookup(options: Struct, name: str, value: bool) -> None:
    if value:
        _speculate(options, lib.TABLA_SPECULATE_LOOKUP)


def _put_drafting_head(options: Struct, name: str, value: bool) -> None:
    if value:
        _speculate(options, lib.TABLA_SPECULATE_HEAD)


def _put_draft_model(options: Struct, name: str, value: Any) -> None:
    _put_handle(options, name, value)
    _speculate(options, lib.TABLA_SPECULATE_DRAFT)


def _speculate(options: Struct, method: int) -> None:
    if options.c.speculate != lib.TABLA_SPECULATE_OFF:
        raise ArgumentError("only one of prompt_lookup, drafting_head and draft_model can be set")
    options.put("speculate", method)


def _put_logprobs(options: Struct, name: str, value: bool | int) -> None:
    if value is not False:
        number = 0 if value is True else count(value, name)
        # `logprobs=True` and `top_logprobs` can be in any order.
        options.put("logprobs", max(options.c.logprobs, number))


PUT: Mapping[str, Callable[[Struct, str, Any], None]] = {
    "stop": _put_texts,
    "dry_sequence_breakers": _put_texts,
    "stop_token_ids": _put_tokens,
    "logit_bias": _put_biases,
    "grammar": _put_handle,
    "chat": _put_struct,
    "prompt_lookup": _put_prompt_lookup,
    "drafting_head": _put_drafting_head,
    "draft_model": _put_draft_model,
    "logprobs": _put_logprobs,
    "top_logprobs": _put_logprobs,
}
"""Setters of options that are not a field with the same name and value."""


def chat_options(arguments: Mapping[str, Any], add_generation_prompt: bool = True) -> Struct:
    """Converts checked arguments to `TablaChatOptions`."""
    options = Struct("TablaChatOptions")
    options.put("no_generation_prompt", not add_generation_prompt)
    options.put("no_parallel_tool_calls", not arguments.get("parallel_tool_calls", True))
    for name, value in arguments.items():
        if name != "parallel_tool_calls":
            put_option(options, name, value)
    return options
