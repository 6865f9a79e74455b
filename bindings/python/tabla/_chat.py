"""Chat completions in the format of the OpenAI API."""

from __future__ import annotations

import json
import uuid
from typing import Any, Mapping, Sequence

from ._answer import Piece
from ._c import CData, Struct, call_for_array, call_for_bytes, json_text, text
from ._errors import ArgumentError, check
from ._grammar import Grammar
from ._handle import Handle
from ._model_handle import ModelHandle
from ._native import ffi, lib
from ._option_types import ChatOptions, GenerateOptions
from ._options import Ignored, chat_options
from ._reply import Object, Reply
from .types import ChatCompletion, ChatCompletionChunk

Messages = Sequence[Mapping[str, Any]]
"""Messages in the format of the OpenAI API: `{"role": "user", "content": "..."}`."""


class ChatRequest(ChatOptions, GenerateOptions, Ignored, total=False):
    """Keyword arguments of `Model.chat`."""

    max_completion_tokens: int | None
    """Alias of `max_tokens`."""
    model: str | None
    """Name that is returned in the answer."""
    n: int | None
    """Number of choices, sampled with `seed`, `seed + 1` and so on. Default 1. The result has the first seed
    as `seed`."""
    reasoning_budget: int | None
    """Maximum number of tokens of the reasoning; then it is closed. Default -1: no maximum."""
    response_format: Mapping[str, Any] | None
    """Format that constrains the answer: `{"type": "json_object"}`, or `"json_schema"` with the schema."""
    stream_options: Mapping[str, Any] | None
    """`{"include_usage": True}`: adds a last chunk with the usage."""
    tool_choice: str | Mapping[str, Any] | None
    """`"auto"`, `"none"`, `"required"`, or `{"type": "function", "function": {"name": ...}}`."""


class ChatReply(Reply[ChatCompletion, ChatCompletionChunk]):
    """Reply to a chat completion request."""

    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    id_prefix = "chatcmpl"

    def __init__(self, model: ModelHandle, messages: Messages, arguments: dict[str, Any]) -> None:
        chat = {name: arguments.pop(name) for name in ChatOptions.__annotations__ if name in arguments}
        tool_choice = arguments.pop("tool_choice", "auto")
        if tool_choice == "none":
            chat.pop("tools", None)
        options = chat_options(chat)
        self._is_parallel = chat.get("parallel_tool_calls", True)
        grammars = [
            forced_call(model, tool_choice, options),
            response_grammar(model, arguments.pop("response_format", {"type": "text"})),
            arguments.pop("grammar", None),
        ]
        given = [grammar for grammar in grammars if grammar is not None]
        if len(given) > 1:
            raise ArgumentError("only one of tool_choice, response_format and grammar can be set")
        if given:
            arguments["grammar"] = given[0]
        arguments["chat"] = options
        count = arguments.get("n", 1)
        prompt = render(model, messages, options)
        super().__init__(model, [encode(model, messages, options)], arguments)
        self._choices = [Choice(Parser(model, options, prompt)) for _ in range(count)]

    def first(self) -> list[Object]:
        begin = {"role": "assistant", "content": ""}
        return [delta(index, begin) for index in range(len(self._choices))]

    def take(self, piece: Piece) -> list[Object]:
        choice = self._choices[piece.index]
        if choice.is_complete and piece.finish_reason is None:
            return []
        deltas = [delta(piece.index, part) for part in choice.take(piece)]
        if piece.token is not None and self.has_logprobs:
            choice.logprobs.append(self._logprob(piece))
            deltas = deltas or [delta(piece.index, {})]
            deltas[0]["logprobs"] = {"content": choice.logprobs[-1:], "refusal": None}
        if choice.tool_calls and not self._is_parallel:
            choice.is_complete = True
            if piece.finish_reason is None:
                self.batch.cancel(piece.index)
        if piece.finish_reason is not None:
            reason = self.end(piece, choice.is_complete)
            choice.finish_reason = "tool_calls" if choice.tool_calls and reason == "stop" else reason
            deltas.append(delta(piece.index, {}, choice.finish_reason))
        return deltas

    def choices(self) -> list[Object]:
        return [
            {
                "index": index,
                "message": choice.message(),
                "logprobs": {"content": choice.logprobs, "refusal": None} if self.has_logprobs else None,
                "finish_reason": choice.finish_reason,
            }
            for index, choice in enumerate(self._choices)
        ]

    def _logprob(self, piece: Piece) -> Object:
        assert piece.token is not None
        own = self._likely(piece.token, piece.logprob)
        top = [self._likely(likely.token, likely.logprob) for likely in piece.top_logprobs]
        return {**own, "top_logprobs": top}

    def _likely(self, token: int, logprob: float | None) -> Object:
        data = self.model.token_bytes(token)
        return {"token": data.decode(errors="replace"), "bytes": list(data), "logprob": logprob}


class Choice:
    """One answer, whose reasoning, content and tool calls are separated during decoding."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self.tool_calls: list[Object] = []
        # Whether the only allowed tool call is complete.
        self.is_complete = False
        self.logprobs: list[Object] = []
        self.finish_reason: str | None = None

    def take(self, piece: Piece) -> list[Object]:
        """Returns the parts of the message that a piece completes."""
        has_ended = piece.finish_reason is not None
        parts = self._parser.finish() if has_ended else self._parser.push(piece)
        return [self._add(part) for part in parts]

    def _add(self, part: Object) -> Object:
        call = part.get("tool_call")
        if call is None:
            ((name, more),) = part.items()
            self._texts[name].append(more)
            return part
        function = {"name": call["name"], "arguments": call["arguments"]}
        call_id = call["id"] or f"call_{uuid.uuid4().hex}"
        self.tool_calls.append({"id": call_id, "type": "function", "function": function})
        return {"tool_calls": [{"index": call["index"], **self.tool_calls[-1]}]}

    def message(self) -> Object:
        """Returns the complete message."""
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        content = texts["content"] if texts["content"] or not self.tool_calls else None
        message: Object = {"role": "assistant", "content": content, "refusal": None}
        if texts["reasoning_content"]:
            message["reasoning_content"] = texts["reasoning_content"]
        if self.tool_calls:
            message["tool_calls"] = self.tool_calls
        return message


class Parser(Handle):
    """Parser of answers: returns a list of parts for each piece, in the format of `tabla_parser_push`."""

    def __init__(self, model: ModelHandle, options: Struct, prompt: str) -> None:
        # The parser reads only the reasoning markers of the prompt, so a NUL can be removed.
        c_prompt = text(prompt.replace("\0", ""), "prompt")
        super().__init__(lib.tabla_parser_new(model._pointer, options.c, c_prompt), lib.tabla_parser_free)
        self._parts = ffi.new("const char **")

    def push(self, piece: Piece) -> list[Object]:
        token = lib.TABLA_NO_TOKEN if piece.token is None else piece.token
        given = piece.text.encode()
        return self._take(lib.tabla_parser_push, token, given, len(given))

    def finish(self) -> list[Object]:
        return self._take(lib.tabla_parser_finish)

    def _take(self, function: CData, *arguments: object) -> list[Object]:
        with self._reading:
            check(function(self._pointer, *arguments, self._parts))
            parts: list[Object] = json.loads(ffi.string(self._parts[0]))
            return parts


def render(model: ModelHandle, messages: Messages, options: Struct) -> str:
    """Returns a conversation as text."""
    given = json_text(messages, "messages")
    return call_for_bytes(lib.tabla_model_apply_chat_template, model._pointer, given, options.c).decode()


def encode(model: ModelHandle, messages: Messages, options: Struct) -> list[int]:
    """Returns a conversation as tokens."""
    given = json_text(messages, "messages")
    return list(call_for_array("uint32_t", lib.tabla_model_tokenize_chat, model._pointer, given, options.c))


def delta(index: int, added: Object, finish_reason: str | None = None) -> Object:
    """Returns the entry of a choice in a chunk."""
    return {"index": index, "delta": added, "logprobs": None, "finish_reason": finish_reason}


def forced_call(model: ModelHandle, choice: str | Mapping[str, Any], options: Struct) -> Grammar | None:
    """Returns the grammar for a `tool_choice`, or `None`."""
    if choice in ("auto", "none"):
        return None
    if choice == "required":
        return Grammar(lib.tabla_grammar_new_tool_call(model._pointer, options.c, ffi.NULL))
    try:
        name = choice["function"]["name"]  # type: ignore[index]
    except (TypeError, KeyError):
        raise ArgumentError(
            f"invalid tool_choice {choice!r}: expected auto, none, required or a function"
        ) from None
    return Grammar(
        lib.tabla_grammar_new_tool_call(model._pointer, options.c, text(name, "tool_choice.function.name"))
    )


def response_grammar(model: ModelHandle, response_format: Mapping[str, Any]) -> Grammar | None:
    """Returns the grammar for a `response_format`, or `None`."""
    kind = response_format.get("type") if isinstance(response_format, Mapping) else response_format
    if kind == "text":
        return None
    if kind == "json_object":
        return Grammar.json(model)
    if kind == "json_schema":
        try:
            return Grammar.json_schema(model, response_format["json_schema"]["schema"])
        except KeyError as missing:
            raise ArgumentError(f"missing key {missing} in response_format") from None
    raise ArgumentError(f"invalid response_format type {kind!r}: expected text, json_object or json_schema")
