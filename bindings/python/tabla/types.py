"""Types of the dictionaries that `chat` and `complete` return: the JSON objects of the OpenAI API.

They have two additional fields: `seed`, and `reasoning_content` of messages, which other servers have, too.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Literal, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired


class Usage(TypedDict):
    """Numbers of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Envelope(TypedDict):
    """Fields of every object."""

    id: str
    created: int
    """Time in seconds since 1970."""
    model: str
    system_fingerprint: str
    """Hash of version, model and device: if it and `seed` are the same, so is the answer."""
    seed: int
    """Seed of the random numbers of the first choice; the argument `seed` repeats the answer."""


class TopLogprob(TypedDict):
    """Log-probability (natural logarithm) of a token."""

    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    """Log-probability of a generated token, and of the likeliest tokens at its position."""

    top_logprobs: list[TopLogprob]


class ChatLogprobs(TypedDict):
    """Log-probabilities of the tokens of a message."""

    content: list[TokenLogprob]
    refusal: None


class FunctionCall(TypedDict):
    """Name of the function to call, and its arguments as JSON, which may be invalid."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    """Call of a tool."""

    id: str
    type: Literal["function"]
    function: FunctionCall


class ToolCallDelta(ToolCall):
    """Call of a tool in a chunk. It is complete."""

    index: int


class ChatMessage(TypedDict):
    """The model's message."""

    role: Literal["assistant"]
    content: str | None
    """`None` if there are only tool calls."""
    refusal: None
    reasoning_content: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class ChatChoice(TypedDict):
    """One of `n` answers."""

    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatCompletion(Envelope):
    """Result of `chat`."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class ChatDelta(TypedDict, total=False):
    """Parts that a chunk adds to a message."""

    role: Literal["assistant"]
    content: str
    reasoning_content: str
    tool_calls: list[ToolCallDelta]


class ChatChunkChoice(TypedDict):
    """Part of one of `n` answers."""

    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None
    """Not `None` in the last chunk of the answer."""


class ChatCompletionChunk(Envelope):
    """Chunk of `chat` with `stream=True`."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatChunkChoice]
    usage: NotRequired[Usage | None]
    """With `include_usage`: `None` except in the last chunk, which has no choices."""


class CompletionLogprobs(TypedDict):
    """Log-probabilities of the tokens of a completion: lists with an element for each token."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class CompletionChoice(TypedDict):
    """One of `n` completions of a prompt."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"]


class Completion(Envelope):
    """Result of `complete`."""

    object: Literal["text_completion"]
    choices: list[CompletionChoice]
    usage: Usage


class CompletionChunkChoice(TypedDict):
    """Part of one of `n` completions."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None
    """Not `None` in the last chunk of the completion."""


class CompletionChunk(Envelope):
    """Chunk of `complete` with `stream=True`."""

    object: Literal["text_completion"]
    choices: list[CompletionChunkChoice]
    usage: NotRequired[Usage | None]
    """With `include_usage`: `None` except in the last chunk, which has no choices."""
