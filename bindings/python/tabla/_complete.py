"""Continued prompts in the shape of OpenAI's completions."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Mapping, Sequence, Union, cast

from ._answer import Piece
from ._model_handle import ModelHandle, Prompt
from ._options import GenerateOptions
from ._reply import Object, Reply

Prompts = Union[Prompt, Sequence[Prompt]]
"""A prompt, as a text or tokens, or several."""


class CompleteRequest(GenerateOptions, total=False):
    """What `Model.complete` takes beside the prompts."""

    model: str | None
    """Comes back in the answer."""
    n: int | None
    """Choices for each prompt, drawn with `seed`, `seed + 1` and so on. Default 1."""
    echo: bool | None
    """The prompt comes in front of each choice. `logprobs` are of the choice alone: those of a prompt are
    `Session.score`."""
    stream_options: Mapping[str, Any] | None
    """`{"include_usage": True}`: a last chunk has the usage."""


class CompleteReply(Reply):
    """As `text_completion`."""

    kind = chunk_kind = "text_completion"
    id_prefix = "cmpl"

    def __init__(self, model: ModelHandle, prompts: Prompts, arguments: dict[str, Any]) -> None:
        echo = arguments.pop("echo", False)
        n = arguments.get("n", 1)
        given = several(prompts)
        tokens = [model.tokenize(p) if isinstance(p, str) else p for p in given]
        super().__init__(model, tokens, arguments)
        texts = [p if isinstance(p, str) else model.detokenize(p) for p in given] if echo else []
        self._choices = [choice(index) for index in range(n * len(given))]
        for whole in self._choices[: n * len(texts)]:
            whole["text"] = texts[whole["index"] // n]

    def first(self) -> list[Object]:
        return [choice(whole["index"], whole["text"]) for whole in self._choices if whole["text"]]

    def take(self, piece: Piece) -> list[Object]:
        whole = self._choices[piece.index]
        if piece.finish_reason is not None:
            whole["finish_reason"] = self.end(piece)
            return [choice(piece.index, finish_reason=whole["finish_reason"])]
        logprobs = self._logprobs(piece, len(whole["text"])) if self.wants_logprobs else None
        whole["text"] += piece.text
        if logprobs is not None:
            so_far = whole["logprobs"] or {name: [] for name in logprobs}
            whole["logprobs"] = {name: so_far[name] + logprobs[name] for name in logprobs}
        return [choice(piece.index, piece.text, logprobs)]

    def choices(self) -> list[Object]:
        return self._choices

    def _logprobs(self, piece: Piece, offset: int) -> Object | None:
        if piece.token is None:
            return None
        top = {self._spelt(likely.token): likely.logprob for likely in piece.top_logprobs}
        return {
            "tokens": [self._spelt(piece.token)],
            "token_logprobs": [piece.logprob],
            "top_logprobs": [top],
            "text_offset": [offset],
        }

    def _spelt(self, token: int) -> str:
        return self.model.token_bytes(token).decode(errors="replace")


def choice(
    index: int, text: str = "", logprobs: Object | None = None, finish_reason: str | None = None
) -> Object:
    """A choice, or what a chunk has of it."""
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}


def several(prompts: Prompts) -> list[Prompt]:
    """The prompts, of which there may be one alone: a text, or a list of numbers."""
    is_one = isinstance(prompts, str) or any(isinstance(token, Integral) for token in prompts)
    return cast("list[Prompt]", [prompts] if is_one else list(prompts))
