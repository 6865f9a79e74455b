"""A model: what a program begins with."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Iterable, Sequence, overload

from . import _aio, _hub, _reply
from ._aio import AsyncStream
from ._answer import Answer
from ._batch import Batch, answer_all
from ._c import CData, Floats, taken_bytes
from ._chat import ChatReply, ChatRequest, Messages, encode, render
from ._complete import CompleteReply, CompleteRequest, Prompts
from ._load import LoadOptions, Progress, load, load_options
from ._model_handle import ModelHandle, Prompt
from ._native import lib
from ._options import ChatOptions, GenerateOptions, chat_options, known
from ._reply import AsyncChunks, Chunks, Object
from ._session import EmbedOptions, Session
from ._stream import Stream, gather

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack


class Model(ModelHandle):
    """A loaded model, made by `Model.load()`, which any number of threads share.

    What answers a prompt here begins anew each time, and finds again what was computed for the same
    beginning; a conversation that goes on is a `Session`. Pickling a model loads it anew from the same
    place.

    Attributes
    ----------
    name : str
        What it was loaded as.
    info : ModelInfo
        Facts about it.
    """

    def __init__(self, pointer: CData, name: str) -> None:
        super().__init__(pointer, name)
        self._arguments: tuple[Any, ...] = ()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        progress: Progress = False,
        **options: Unpack[LoadOptions],
    ) -> Model:
        """Loads a model.

        Parameters
        ----------
        path
            A GGUF file, a safetensors file or a folder with them; `"hf:org/repo"`, `"hf:org/repo:Q8_0"`
            or `"hf:org/repo:name.gguf"` for a model of the Hugging Face Hub, which is fetched once;
            `None` for the small story model that is part of the library.
        progress
            `True` shows a bar, if tqdm is installed; a function is called with every `LoadStage`. What it
            raises stops the load.
        **options
            As of `LoadOptions`.
        """
        given = load_options(options)
        name = "story" if path is None else os.fsdecode(path)
        where = _hub.fetch(name) if name.startswith("hf:") else path
        model = cls(load(where, given, progress), name)
        model._arguments = (path, options)
        return model

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_again, self._arguments

    # Answers

    def session(self) -> Session:
        """A session with an empty sequence."""
        return Session(self, lib.tabla_session_new(self._pointer))

    def batch(self) -> Batch:
        """An empty batch."""
        return Batch(self)

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Continues a prompt piece by piece; closing the stream ends the answer."""
        return self._stream(prompt, known(options, "stream"))

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Answer:
        """Continues a prompt. Ctrl-C ends it."""
        return gather(self._stream(prompt, known(options, "generate")))

    def astream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncStream:
        """The async twin of `stream`."""
        return AsyncStream(self._stream(prompt, known(options, "astream")))

    async def agenerate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Answer:
        """The async twin of `generate`; cancelling the task ends the answer."""
        return await _aio.gather(self._stream(prompt, known(options, "agenerate")))

    def _stream(self, prompt: Prompt, arguments: dict[str, Any]) -> Stream:
        return self.session()._start(prompt, arguments, closes_session=True)

    @overload
    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        return_exceptions: Literal[False] = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Answer]: ...

    @overload
    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        return_exceptions: Literal[True],
        **options: Unpack[GenerateOptions],
    ) -> list[Answer | Exception]: ...

    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        return_exceptions: bool = False,
        **options: Unpack[GenerateOptions],
    ) -> list[Answer] | list[Answer | Exception]:
        """Continues many prompts at once, as many as `sequences` of `load`. What one gets is what it gets
        alone.

        The first that fails raises its error; with `return_exceptions` errors stand in the places of the
        answers instead.
        """
        answers = answer_all(self, prompts, known(options, "generate_many"))
        if return_exceptions:
            return answers
        return [_raised(answer) for answer in answers]

    # In the shapes of OpenAI's interface

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[False] = False, **request: Unpack[ChatRequest]
    ) -> Object: ...

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[True], **request: Unpack[ChatRequest]
    ) -> Chunks: ...

    @overload
    def chat(
        self, messages: Messages, *, stream: bool, **request: Unpack[ChatRequest]
    ) -> Object | Chunks: ...

    def chat(
        self, messages: Messages, *, stream: bool = False, **request: Unpack[ChatRequest]
    ) -> Object | Chunks:
        """Answers a conversation: a `chat.completion`, or with `stream` its chunks, which `close()` ends."""
        reply = ChatReply(self, messages, known(request, "chat", ChatRequest))
        return _reply.stream(reply) if stream else _reply.answer(reply)

    @overload
    async def achat(
        self, messages: Messages, *, stream: Literal[False] = False, **request: Unpack[ChatRequest]
    ) -> Object: ...

    @overload
    async def achat(
        self, messages: Messages, *, stream: Literal[True], **request: Unpack[ChatRequest]
    ) -> AsyncChunks: ...

    @overload
    async def achat(
        self, messages: Messages, *, stream: bool, **request: Unpack[ChatRequest]
    ) -> Object | AsyncChunks: ...

    async def achat(
        self, messages: Messages, *, stream: bool = False, **request: Unpack[ChatRequest]
    ) -> Object | AsyncChunks:
        """The async twin of `chat`: `async for chunk in await model.achat(..., stream=True)`."""
        arguments = known(request, "achat", ChatRequest)
        reply = await _aio.begun(lambda: ChatReply(self, messages, arguments))
        return _reply.astream(reply) if stream else await _reply.aanswer(reply)

    @overload
    def complete(
        self, prompt: Prompts, *, stream: Literal[False] = False, **request: Unpack[CompleteRequest]
    ) -> Object: ...

    @overload
    def complete(
        self, prompt: Prompts, *, stream: Literal[True], **request: Unpack[CompleteRequest]
    ) -> Chunks: ...

    @overload
    def complete(
        self, prompt: Prompts, *, stream: bool, **request: Unpack[CompleteRequest]
    ) -> Object | Chunks: ...

    def complete(
        self, prompt: Prompts, *, stream: bool = False, **request: Unpack[CompleteRequest]
    ) -> Object | Chunks:
        """Continues prompts: a `text_completion`, or with `stream` its chunks, which `close()` ends."""
        reply = CompleteReply(self, prompt, known(request, "complete", CompleteRequest))
        return _reply.stream(reply) if stream else _reply.answer(reply)

    @overload
    async def acomplete(
        self, prompt: Prompts, *, stream: Literal[False] = False, **request: Unpack[CompleteRequest]
    ) -> Object: ...

    @overload
    async def acomplete(
        self, prompt: Prompts, *, stream: Literal[True], **request: Unpack[CompleteRequest]
    ) -> AsyncChunks: ...

    @overload
    async def acomplete(
        self, prompt: Prompts, *, stream: bool, **request: Unpack[CompleteRequest]
    ) -> Object | AsyncChunks: ...

    async def acomplete(
        self, prompt: Prompts, *, stream: bool = False, **request: Unpack[CompleteRequest]
    ) -> Object | AsyncChunks:
        """The async twin of `complete`."""
        arguments = known(request, "acomplete", CompleteRequest)
        reply = await _aio.begun(lambda: CompleteReply(self, prompt, arguments))
        return _reply.astream(reply) if stream else await _reply.aanswer(reply)

    # Numbers

    def embed(self, texts: str | Sequence[str], **options: Unpack[EmbedOptions]) -> Floats:
        """The embeddings of texts, `[texts, dimensions]`.

        A model that generates text must have been loaded with `embeddings=True`.
        """
        with self.session() as session:
            return session.embed(texts, **options)

    async def aembed(self, texts: str | Sequence[str], **options: Unpack[EmbedOptions]) -> Floats:
        """The async twin of `embed`."""
        with self.session() as session:
            return await _aio.run(lambda: session.embed(texts, **options), session.cancel)

    def logits(self, prompt: Prompt, rows: str = "last") -> Floats:
        """The logits after the last token of a prompt, `[vocab]`, or with `"all"` after every one,
        `[tokens, vocab]`."""
        with self.session() as session:
            session.prefill(prompt)
            return session.logits(rows)

    def score(self, prompt: Prompt, start: int = 1) -> Floats:
        """The natural logarithm of how likely each token from `start` on is, given all in front of it:
        `[tokens - start]`. The first token has nothing in front of it."""
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else prompt
        with self.session() as session:
            return session.score(tokens, start)

    def rerank(self, query: str, documents: Sequence[str], instruction: str | None = None) -> Floats:
        """How well each document answers a query, from 0 to 1, `[documents]`, for models that were trained
        to rank by "yes" and "no". `instruction` says what answers it; `None` takes the usual one."""
        with self.session() as session:
            return session.rerank(query, documents, instruction)

    # Chat templates

    def apply_chat_template(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        **chat: Unpack[ChatOptions],
    ) -> str:
        """A conversation as a text, for people to read. For the model take `tokenize_chat`: in the text
        nobody can tell the template's special tokens from those that a message spells."""
        options = chat_options(known(chat, "apply_chat_template", ChatOptions), add_generation_prompt)
        return render(self, messages, options)

    def tokenize_chat(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        **chat: Unpack[ChatOptions],
    ) -> list[int]:
        """The tokens of a conversation, in which special tokens come from the template alone."""
        options = chat_options(known(chat, "tokenize_chat", ChatOptions), add_generation_prompt)
        return encode(self, messages, options)


def _load_again(path: str | os.PathLike[str] | None, options: LoadOptions) -> Model:
    return Model.load(path, **options)


def _raised(answer: Answer | Exception) -> Answer:
    if isinstance(answer, Exception):
        raise answer
    return answer


def devices() -> dict[str, Any]:
    """What models can run on here: `"cpu"`, and `"gpus"` in the order of the numbers by which `adapter` of
    `Model.load` takes them."""
    found: dict[str, Any] = json.loads(taken_bytes(lib.tabla_devices))
    return found
