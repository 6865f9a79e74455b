"""Completions in the format of the OpenAI API."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Mapping, Sequence, Union, cast

from ._answer import Piece
from ._model_handle import ModelHandle, Prompt
from ._option_types import GenerateOptions
from ._options import Ignored
from ._reply import Object, Reply
from .types import Completion, CompletionChunk

Prompts = Union[Prompt, Sequence[Prompt]]
"""One or several prompts, each a string or token ids."""


class CompleteRequest(GenerateOptions, Ignored, total=False):
    """Keyword arguments of `Model.complete`."""

    model: str | None
    """Name that is returned in the answer."""
    n: int | None
    """Number of choices for each prompt, sampled with `seed`, `seed + 1` and so on. Default 1. The result has
    the first seed as `seed`."""
    echo: bool | None
    """Prepends the prompt to each choice. `logprobs` do not include the prompt; use `Session.score` for
    it."""
    stream_options: Mapping[str, Any] | None
    """`{"include_usage": True}`: adds a last chunk with the usage."""


class CompleteReply(Reply[Completion, CompletionChunk]):
    """Reply to a completion request."""

    kind = chunk_kind = "text_completion"
    id_prefix = "cmpl"

    def __init__(self, model: ModelHandle, prompts: Prompts, arguments: dict[str, Any]) -> None:
        echo = arguments.pop("echo", False)
        n = arguments.get("n", 1)
        given = as_list(prompts)
        tokens = [model.tokenize(p) if isinstance(p, str) else p for p in given]
        super().__init__(model, tokens, arguments)
        texts = [p if isinstance(p, str) else model.detokenize(p) for p in given] if echo else []
        self._choices = [choice(index) for index in range(n * len(given))]
        for entry in self._choices[: n * len(texts)]:
            entry["text"] = texts[entry["index"] // n]

    def first(self) -> list[Object]:
        return [choice(entry["index"], entry["text"]) for entry in self._choices if entry["text"]]

    def take(self, piece: Piece) -> list[Object]:
        entry = self._choices[piece.index]
        if piece.finish_reason is not None:
            entry["finish_reason"] = self.end(piece)
            return [choice(piece.index, finish_reason=entry["finish_reason"])]
        logprobs = self._logprobs(piece, len(entry["text"])) if self.has_logprobs else None
        entry["text"] += piece.text
        if logprobs is not None:
            so_far = entry["logprobs"] or {name: [] for name in logprobs}
            entry["logprobs"] = {name: so_far[name] + logprobs[name] for name in logprobs}
        return [choice(piece.index, piece.text, logprobs)]

    def choices(self) -> list[Object]:
        return self._choices

    def _logprobs(self, piece: Piece, offset: int) -> Object | None:
        if piece.token is None:
            return None
        top = {self._token_text(likely.token): likely.logprob for likely in piece.top_logprobs}
        return {
            "tokens": [self._token_text(piece.token)],
            "token_logprobs": [piece.logprob],
            "top_logprobs": [top],
            "text_offset": [offset],
        }

    def _token_text(self, token: int) -> str:
        return self.model.token_bytes(token).decode(errors="replace")


def choice(
    index: int, text: str = "", logprobs: Object | None = None, finish_reason: str | None = None
) -> Object:
    """Returns a choice, or its entry in a chunk."""
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


def as_list(prompts: Prompts) -> list[Prompt]:
    """Returns a list of prompts. A string or a list of integers is a single prompt."""
    is_one = isinstance(prompts, str) or any(isinstance(token, Integral) for token in prompts)
    return cast("list[Prompt]", [prompts] if is_one else list(prompts))
