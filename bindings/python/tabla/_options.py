"""Generation and chat options: converts keyword arguments to C structs."""

from __future__ import annotations

import difflib
import secrets
import warnings
from typing import Any, Callable, Mapping, Sequence, TypedDict

from ._c import Struct, count, json_text, numbers, text
from ._errors import ArgumentError, check
from ._grammar import Grammar
from ._handle import Handle
from ._model_handle import ModelHandle
from ._native import ffi, lib


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


class GenerateOptions(TypedDict, total=False):
    """Options of sampling and generation; docs/sampling.md has the formulas and the order of samplers.

    `None` is the default of each.
    """

    max_tokens: int | None
    """Maximum number of tokens to generate. Default 0: no limit, until a stop token or a full context."""
    min_tokens: int | None
    """Minimum number of tokens before a stop token is allowed. Default 0."""
    temperature: float | None
    """Divisor of the logits; 0: always the likeliest token. Default 0.8."""
    top_k: int | None
    """Number of likeliest tokens that are kept; 0: off. Default 40."""
    top_p: float | None
    """Probability mass of the likeliest tokens that are kept; 1: off. Default 0.95."""
    min_p: float | None
    """Minimum probability of a token relative to the likeliest one; 0: off. Default 0.05."""
    typical_p: float | None
    """Probability mass of the most typical tokens that are kept (locally typical). Default 1: off."""
    top_n_sigma: float | None
    """Maximum distance of a logit from the largest one, in standard deviations. Default 0: off."""
    seed: int | None
    """Seed of the random numbers, 0 to 2**64 - 1; the same seed gives the same tokens. Default: random. The
    seed of an answer is `Answer.seed`, or `Piece.seed` of its pieces."""
    repetition_penalty: float | None
    """Penalty of tokens among the last `repeat_last_n`. Default 1: off."""
    repeat_last_n: int | None
    """Number of recent tokens that the penalties apply to, at most 1024. Default 64."""
    frequency_penalty: float | None
    """Amount subtracted from a token's logit for each occurrence in the last `repeat_last_n`. Default 0."""
    presence_penalty: float | None
    """Amount subtracted once from the logit of a token in the last `repeat_last_n`. Default 0."""
    dynatemp_range: float | None
    """Maximum change of the temperature with the entropy, in both directions. Default 0: off."""
    dynatemp_exponent: float | None
    """Exponent of the entropy in the dynamic temperature. Default 1."""
    xtc_probability: float | None
    """Probability of removing all tokens above `xtc_threshold` except the least likely. Default 0."""
    xtc_threshold: float | None
    """Minimum probability of the tokens that XTC removes. Default 0.1."""
    dry_multiplier: float | None
    """Penalty of a token that extends a repetition (DRY). Default 0: off."""
    dry_base: float | None
    """Growth of the DRY penalty with each repeated token. Default 1.75."""
    dry_allowed_length: int | None
    """Length of the longest repetition without a DRY penalty, in tokens. Default 2."""
    dry_penalty_last_n: int | None
    """Number of recent tokens that DRY searches for repetitions. Default: all."""
    dry_sequence_breakers: Sequence[str] | None
    """Strings that end a repetition for DRY. Default: line break, `:`, `"` and `*`."""
    mirostat_tau: float | None
    """Target surprise of a token in bits (Mirostat 2). Default 0: off."""
    mirostat_eta: float | None
    """Learning rate of Mirostat. Default 0.1."""
    stop: str | Sequence[str] | None
    """Stop strings, which end the answer and are not part of its text. In `Model.chat`, they do not apply to the
    reasoning."""
    stop_token_ids: Sequence[int] | None
    """Additional tokens that end the answer."""
    ignore_eos: bool | None
    """Do not end the answer at a stop token, neither of the model nor of `stop_token_ids`."""
    logit_bias: Mapping[int, float] | Mapping[str, float] | None
    """Values that are added to the logits of tokens; minus infinity bans a token."""
    logprobs: bool | int | None
    """Return the log-probability of each token, and of this number of likeliest tokens, at most 20."""
    top_logprobs: int | None
    """Number of likeliest tokens if `logprobs` is `True`."""
    grammar: Grammar | None
    """Grammar that constrains the answer."""
    context_shift: bool | None
    """When the context is full, discard the older half of the sequence instead of ending the answer."""
    n_keep: int | None
    """Number of tokens at the start of the sequence that a context shift keeps. Default 0."""
    prompt_lookup: bool | None
    """Speculative decoding by prompt lookup: drafts the tokens that followed earlier occurrences of the last
    tokens. The answer stays the same."""
    drafting_head: bool | None
    """Speculative decoding with a drafting head of the model, which `mtp=True` or `drafter_path` of `Model`
    loads. The answer stays the same."""
    draft_model: ModelHandle | None
    """Speculative decoding with a draft model: a smaller `Model` with the same vocabulary. The answer stays
    the same."""
    burst: int | None
    """Number of tokens in one submission to the device. Default 0: adaptive."""


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


def generate_options(arguments: Mapping[str, Any]) -> Struct:
    """Converts checked arguments to `TablaGenerateOptions`. Without a seed, draws a random one."""
    options = Struct("TablaGenerateOptions")
    check(lib.tabla_generate_options_init(options.c, ffi.sizeof("TablaGenerateOptions")))
    options.put("seed", random_seed())
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


class ChatOptions(TypedDict, total=False):
    """Options of rendering a conversation. `None` is the default of each."""

    tools: Sequence[Mapping[str, Any]] | None
    """Tools that the model can call, in the format of the OpenAI API. If the template does not describe them, a
    system message does, and a log message says so."""
    documents: Sequence[Mapping[str, Any]] | None
    """Documents for templates that support retrieval."""
    chat_template: str | None
    """Name or source of a chat template; do not accept it from users. Default: the model's own, or one that
    its special tokens identify."""
    chat_template_kwargs: Mapping[str, Any] | None
    """Additional template variables, for example `{"enable_thinking": False}`."""
    reasoning_effort: str | None
    """Effort of the reasoning: `"none"` disables it, other values such as `"low"` and `"high"` enable it. Sets
    the template variables `enable_thinking` and `reasoning_effort`; a log message reports a template that reads
    neither."""
    parallel_tool_calls: bool | None
    """Whether an answer may have several tool calls. Default `True`."""


def chat_options(arguments: Mapping[str, Any], add_generation_prompt: bool = True) -> Struct:
    """Converts checked arguments to `TablaChatOptions`."""
    options = Struct("TablaChatOptions")
    options.put("no_generation_prompt", not add_generation_prompt)
    options.put("no_parallel_tool_calls", not arguments.get("parallel_tool_calls", True))
    for name, value in arguments.items():
        if name == "parallel_tool_calls":
            continue
        write = text if name in ("chat_template", "reasoning_effort") else json_text
        options.point(name, write(value, name))
    return options
