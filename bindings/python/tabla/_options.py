"""How tokens are picked, and how many: keyword arguments as the library's options."""

from __future__ import annotations

import difflib
import warnings
from typing import Any, Callable, Mapping, Sequence, TypedDict

from ._c import Struct, choice, count, json_text, numbers, text
from ._errors import ArgumentError, check
from ._grammar import Grammar
from ._handle import Handle
from ._model_handle import ModelHandle
from ._native import ffi, lib


class Ignored(TypedDict, total=False):
    """Arguments of OpenAI's interface that do nothing here: each is a warning."""

    audio: Any
    best_of: Any
    function_call: Any
    functions: Any
    metadata: Any
    modalities: Any
    moderation: Any
    parallel_tool_calls: Any
    prediction: Any
    prompt_cache_key: Any
    prompt_cache_options: Any
    prompt_cache_retention: Any
    reasoning_effort: Any
    safety_identifier: Any
    service_tier: Any
    store: Any
    suffix: Any
    user: Any
    verbosity: Any
    web_search_options: Any


class GenerateOptions(Ignored, total=False):
    """How tokens are picked, and how many; docs/sampling.md has the formulas and their order.

    `None` is the default of each.
    """

    max_tokens: int | None
    """Tokens at most; 0, the default, goes on until a stop token or a full context."""
    max_completion_tokens: int | None
    """The same, as OpenAI's interface calls it now."""
    min_tokens: int | None
    """So many tokens come before a stop token may. Default 0."""
    temperature: float | None
    """Logits are divided by it; 0 takes the likeliest token. Default 0.8."""
    top_k: int | None
    """Only the `top_k` likeliest tokens; 0: off. Default 40."""
    top_p: float | None
    """Only the likeliest tokens that hold `top_p` of the probability; 1: off. Default 0.95."""
    min_p: float | None
    """Only tokens at least `min_p` times as likely as the likeliest; 0: off. Default 0.05."""
    typical_p: float | None
    """Only tokens of the most typical surprise that hold so much of the probability. Default 1: off."""
    top_n_sigma: float | None
    """Only logits within so many standard deviations of the largest. Default 0: off."""
    seed: int | None
    """The same seed draws the same tokens. Default 0."""
    repeat_penalty: float | None
    """Weakens tokens among the last `repeat_last`. Default 1: off."""
    repeat_last: int | None
    """How many tokens back the penalties reach, 1024 at most. Default 64."""
    frequency_penalty: float | None
    """Taken off a token's logit as often as it stands among the last `repeat_last`. Default 0."""
    presence_penalty: float | None
    """Taken off a token's logit once if it stands there. Default 0."""
    dynatemp_range: float | None
    """How far the temperature goes down and up with the entropy. Default 0: it stays."""
    dynatemp_exponent: float | None
    """The power of the entropy that it goes by. Default 1."""
    xtc_probability: float | None
    """How likely all but the last of the top choices are taken away. Default 0."""
    xtc_threshold: float | None
    """The probability from which on a token is a top choice. Default 0.1."""
    dry_multiplier: float | None
    """What a token loses that goes on with a repetition. Default 0: off."""
    dry_base: float | None
    """By how much the loss grows with each token. Default 1.75."""
    dry_allowed_length: int | None
    """Tokens of a repetition that cost nothing yet. Default 2."""
    dry_last: int | None
    """How many tokens back DRY looks. Default: all."""
    dry_breakers: Sequence[str] | None
    """What repetitions end at. Default: line break, `:`, `"` and `*`."""
    mirostat_tau: float | None
    """The surprise that tokens are held to, in bits (Mirostat 2). Default 0: off."""
    mirostat_eta: float | None
    """How fast Mirostat learns. Default 0.1."""
    stop: str | Sequence[str] | None
    """Texts that end the answer; no part of one comes out."""
    stop_tokens: Sequence[int] | None
    """Further tokens that end it."""
    ignore_stops: bool | None
    """Stop tokens are ordinary."""
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    """What is added to the logits of tokens; minus infinity bans one."""
    logprobs: bool | int | None
    """How likely each token was is told, and so many of the likeliest in its place, 20 at most."""
    top_logprobs: int | None
    """How many of the likeliest, where `logprobs` is `True`."""
    grammar: Grammar | None
    """What the answer follows."""
    context_shift: bool | None
    """A full context does not end the answer: the older half of the sequence is forgotten."""
    keep: int | None
    """Tokens at the front that a context shift keeps. Default 0."""
    speculate: str | None
    """Guesses at the next tokens: `"off"`, `"lookup"`, by what stood there before, or `"draft"`."""
    draft: ModelHandle | None
    """A smaller model with the same vocabulary that guesses."""
    chain: int | None
    """Tokens of one submission to the device; 0, the default, adapts."""


ALIASES = {"max_completion_tokens": "max_tokens"}


def known(given: Mapping[str, Any], caller: str, names: type = GenerateOptions) -> dict[str, Any]:
    """The arguments that say something, under one name each; for public functions, whose caller a warning
    points to. What is none of `names` is a `TypeError`."""
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
        # Of one name alone there is one value, which may be NaN.
        if name in arguments and arguments[name] != value:
            raise TypeError(f"{caller}() got two values for {name}: {arguments[name]!r}, {value!r}")
        arguments[name] = value
    return arguments


def unexpected(name: str, caller: str, names: type) -> str:
    """The message for an argument that nobody knows."""
    close = difflib.get_close_matches(name, names.__annotations__, 1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return f"{caller}() got an unexpected keyword argument {name!r}{hint}"


def generate_options(arguments: Mapping[str, Any]) -> Struct:
    """The library's options of known arguments."""
    options = Struct("TablaGenerateOptions")
    check(lib.tabla_generate_options_init(options.c, ffi.sizeof("TablaGenerateOptions")))
    for name, value in arguments.items():
        PUT.get(name, Struct.put)(options, name, value)
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
        raise ArgumentError(f"{name} does not map tokens to numbers: {error}") from None


def _put_handle(options: Struct, name: str, value: Any) -> None:
    if not isinstance(value, Handle):
        raise TypeError(f"{name} is of type {type(value).__name__}")
    options.point(name, value._pointer)


def _put_speculate(options: Struct, name: str, value: str) -> None:
    options.put(name, choice(name, value, "TABLA_SPECULATE", ("off", "lookup", "draft")))


def _put_log_probs(options: Struct, name: str, value: bool | int) -> None:
    if value is not False:
        wanted = 0 if value is True else count(value, name)
        # `logprobs=True` and `top_logprobs` come in any order.
        options.put("log_probs", max(options.c.log_probs, wanted))


PUT: Mapping[str, Callable[[Struct, str, Any], None]] = {
    "stop": _put_texts,
    "dry_breakers": _put_texts,
    "stop_tokens": _put_tokens,
    "logit_bias": _put_biases,
    "grammar": _put_handle,
    "draft": _put_handle,
    "speculate": _put_speculate,
    "logprobs": _put_log_probs,
    "top_logprobs": _put_log_probs,
}
"""What is more than a field of its name with the value in it."""


class ChatOptions(TypedDict, total=False):
    """How a conversation is rendered. `None` is the default of each."""

    tools: Sequence[Mapping[str, Any]] | None
    """What the model may call, as OpenAI's interface has it."""
    documents: Sequence[Mapping[str, Any]] | None
    """What templates for retrieval put in front."""
    chat_template: str | None
    """The name of a template or the source of one; never one from a user of the program. Default: the
    model's own, or what its special tokens leave no doubt about."""
    chat_template_kwargs: Mapping[str, Any] | None
    """Further variables of the template, like `{"enable_thinking": False}`."""


CHAT_FIELDS = {
    "tools": "tools",
    "documents": "documents",
    "chat_template": "chat_template",
    "chat_template_kwargs": "variables",
}
"""The names of HF and OpenAI, and those of the library."""


def chat_options(arguments: Mapping[str, Any], add_generation_prompt: bool = True) -> Struct:
    """The library's options of known arguments."""
    options = Struct("TablaChatOptions")
    options.put("no_generation_prompt", not add_generation_prompt)
    for name, value in arguments.items():
        write = text if name == "chat_template" else json_text
        options.point(CHAT_FIELDS[name], write(value, name))
    return options
