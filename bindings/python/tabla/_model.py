"""The `Model` class."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Sequence, overload

from . import _aio, _hub, _reply, _transcribe
from ._aio import AsyncStream
from ._answer import Answer
from ._batch import Batch, answer_all
from ._c import CData, Floats, call_for_bytes
from ._chat import ChatReply, ChatRequest, Messages, encode, render
from ._complete import CompleteReply, CompleteRequest, Prompts
from ._errors import check
from ._handle import interruptible
from ._hooks import Adapter, Captured, Edit, Hooks, Positions, Steer
from ._load import ModelBytes, Progress, load, load_options
from ._model_handle import ModelHandle, Prompt
from ._native import lib
from ._option_types import ChatOptions, EmbedOptions, GenerateOptions, LoadOptions, TranscribeOptions
from ._options import chat_options, checked
from ._reply import AsyncChunks, Chunks
from ._session import Session
from ._stream import Stream, gather
from ._transcribe import AsyncTranscription, Audio, Transcript, Transcription
from .types import ChatCompletion, ChatCompletionChunk, Completion, CompletionChunk

if TYPE_CHECKING:
    from typing_extensions import Literal, Unpack


class Model(ModelHandle):
    """A loaded model, created by `Model.load()`. Any number of threads can share it.

    A method that `Session` has, too, runs in a new session, which starts with an empty sequence; the prefix
    cache avoids recomputing common prefixes. Unpickling a model loads it again from the same path
    or bytes.

    Attributes
    ----------
    name : str
        Path or name that it was loaded from.
    info : ModelInfo
        Properties of the model.
    """

    _created_by = 'tabla.Model.load("model.gguf")'

    def __init__(self, pointer: CData, name: str) -> None:
        super().__init__(pointer, name)
        self._source: str | os.PathLike[str] | ModelBytes | None = None
        self._load_options: LoadOptions = {}

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | ModelBytes | None = None,
        *,
        progress: Progress = False,
        **options: Unpack[LoadOptions],
    ) -> Model:
        """Loads a model.

        Parameters
        ----------
        path
            A GGUF file, a safetensors file or a directory with them. `"hf:org/repo"`, `"hf:org/repo:Q8_0"` or
            `"hf:org/repo:name.gguf"`: a model of the Hugging Face Hub, which is downloaded once. Bytes: a GGUF
            file in memory, which is copied. `None`: the small built-in story model.
        progress
            `True`: shows a progress bar (needs tqdm). A function: is called with every `LoadStage`; an
            exception cancels loading.
        **options
            See `LoadOptions`.
        """
        given = load_options(checked(options, "load", LoadOptions))
        if isinstance(path, (bytes, bytearray, memoryview)):
            name = "memory"
        else:
            name = "story" if path is None else os.fsdecode(path)
        source = _hub.fetch(name) if name.startswith("hf:") else path
        model = cls(load(source, given, progress), name)
        model._source, model._load_options = path, options
        return model

    @property
    def load_options(self) -> LoadOptions:
        """Options that `load` was called with. All others have their defaults."""
        return self._load_options.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reload, (self._source, self._load_options)

    # Answers

    def session(self) -> Session:
        """Creates a session with an empty sequence."""
        return Session(self, lib.tabla_session_new(self._pointer))

    def batch(self) -> Batch:
        """Creates an empty batch."""
        return Batch(self)

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Continues a prompt piece by piece. Closing the stream ends the answer."""
        return self._stream(prompt, checked(options, "stream"))

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Answer:
        """Continues a prompt. Ctrl-C ends the answer."""
        return gather(self._stream(prompt, checked(options, "generate")))

    def astream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncStream:
        """Async version of `stream`."""
        return AsyncStream(self._stream(prompt, checked(options, "astream")))

    async def agenerate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Answer:
        """Async version of `generate`. Cancelling the task ends the answer."""
        return await _aio.gather(self._stream(prompt, checked(options, "agenerate")))

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
        """Continues many prompts, at most `sequences` of `load` at the same time. Each answer is the same as
        with `generate`.

        Raises the first error; with `return_exceptions`, the result contains exceptions instead of the
        failed answers.
        """
        answers = answer_all(self, prompts, checked(options, "generate_many"))
        if return_exceptions:
            return answers
        return [_raise_error(answer) for answer in answers]

    # OpenAI API formats

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[False] = False, **request: Unpack[ChatRequest]
    ) -> ChatCompletion: ...

    @overload
    def chat(
        self, messages: Messages, *, stream: Literal[True], **request: Unpack[ChatRequest]
    ) -> Chunks[ChatCompletionChunk]: ...

    @overload
    def chat(
        self, messages: Messages, *, stream: bool, **request: Unpack[ChatRequest]
    ) -> ChatCompletion | Chunks[ChatCompletionChunk]: ...

    def chat(
        self, messages: Messages, *, stream: bool = False, **request: Unpack[ChatRequest]
    ) -> ChatCompletion | Chunks[ChatCompletionChunk]:
        """Answers a conversation: a `chat.completion`, or with `stream` its chunks; `close()` ends them."""
        reply = ChatReply(self, messages, checked(request, "chat", ChatRequest))
        return _reply.stream(reply) if stream else _reply.answer(reply)

    @overload
    async def achat(
        self, messages: Messages, *, stream: Literal[False] = False, **request: Unpack[ChatRequest]
    ) -> ChatCompletion: ...

    @overload
    async def achat(
        self, messages: Messages, *, stream: Literal[True], **request: Unpack[ChatRequest]
    ) -> AsyncChunks[ChatCompletionChunk]: ...

    @overload
    async def achat(
        self, messages: Messages, *, stream: bool, **request: Unpack[ChatRequest]
    ) -> ChatCompletion | AsyncChunks[ChatCompletionChunk]: ...

    async def achat(
        self, messages: Messages, *, stream: bool = False, **request: Unpack[ChatRequest]
    ) -> ChatCompletion | AsyncChunks[ChatCompletionChunk]:
        """Async version of `chat`: `async for chunk in await model.achat(..., stream=True)`."""
        arguments = checked(request, "achat", ChatRequest)
        reply = await _aio.run_uncancellable(lambda: ChatReply(self, messages, arguments))
        if stream:
            return _reply.astream(reply)
        return await _reply.aanswer(reply)

    @overload
    def complete(
        self, prompt: Prompts, *, stream: Literal[False] = False, **request: Unpack[CompleteRequest]
    ) -> Completion: ...

    @overload
    def complete(
        self, prompt: Prompts, *, stream: Literal[True], **request: Unpack[CompleteRequest]
    ) -> Chunks[CompletionChunk]: ...

    @overload
    def complete(
        self, prompt: Prompts, *, stream: bool, **request: Unpack[CompleteRequest]
    ) -> Completion | Chunks[CompletionChunk]: ...

    def complete(
        self, prompt: Prompts, *, stream: bool = False, **request: Unpack[CompleteRequest]
    ) -> Completion | Chunks[CompletionChunk]:
        """Continues prompts: a `text_completion`, or with `stream` its chunks; `close()` ends them."""
        reply = CompleteReply(self, prompt, checked(request, "complete", CompleteRequest))
        return _reply.stream(reply) if stream else _reply.answer(reply)

    @overload
    async def acomplete(
        self, prompt: Prompts, *, stream: Literal[False] = False, **request: Unpack[CompleteRequest]
    ) -> Completion: ...

    @overload
    async def acomplete(
        self, prompt: Prompts, *, stream: Literal[True], **request: Unpack[CompleteRequest]
    ) -> AsyncChunks[CompletionChunk]: ...

    @overload
    async def acomplete(
        self, prompt: Prompts, *, stream: bool, **request: Unpack[CompleteRequest]
    ) -> Completion | AsyncChunks[CompletionChunk]: ...

    async def acomplete(
        self, prompt: Prompts, *, stream: bool = False, **request: Unpack[CompleteRequest]
    ) -> Completion | AsyncChunks[CompletionChunk]:
        """Async version of `complete`."""
        arguments = checked(request, "acomplete", CompleteRequest)
        reply = await _aio.run_uncancellable(lambda: CompleteReply(self, prompt, arguments))
        if stream:
            return _reply.astream(reply)
        return await _reply.aanswer(reply)

    # Speech

    @overload
    def transcribe(
        self, audio: Audio, *, stream: Literal[False] = False, **options: Unpack[TranscribeOptions]
    ) -> Transcript: ...

    @overload
    def transcribe(
        self, audio: Audio, *, stream: Literal[True], **options: Unpack[TranscribeOptions]
    ) -> Transcription: ...

    def transcribe(
        self, audio: Audio, *, stream: bool = False, **options: Unpack[TranscribeOptions]
    ) -> Transcript | Transcription:
        """Transcribes the path of an audio file, the bytes of one, or an array of samples. Returns the transcript,
        or with `stream` its segments as they are found. Ctrl-C ends it.

        An array is `[samples]` or `[samples, channels]`, float from -1 to 1 or int16, at `sample_rate`.
        """
        arguments = checked(options, "transcribe", TranscribeOptions)
        # Waits for the first bytes of a pipe.
        start = interruptible(lambda: _transcribe.start(self, audio, arguments), lambda: None)
        return start if stream else _transcribe.gather(start)

    @overload
    async def atranscribe(
        self, audio: Audio, *, stream: Literal[False] = False, **options: Unpack[TranscribeOptions]
    ) -> Transcript: ...

    @overload
    async def atranscribe(
        self, audio: Audio, *, stream: Literal[True], **options: Unpack[TranscribeOptions]
    ) -> AsyncTranscription: ...

    async def atranscribe(
        self, audio: Audio, *, stream: bool = False, **options: Unpack[TranscribeOptions]
    ) -> Transcript | AsyncTranscription:
        """Async version of `transcribe`: `async for segment in await model.atranscribe(..., stream=True)`.
        Cancelling the task ends it."""
        arguments = checked(options, "atranscribe", TranscribeOptions)
        start = await _aio.run_uncancellable(lambda: _transcribe.start(self, audio, arguments))
        return AsyncTranscription(start) if stream else await _transcribe.agather(start)

    def transcription(self, *, channels: int = 1, **options: Unpack[TranscribeOptions]) -> Transcription:
        """Creates a transcription of samples that the program passes with `push`, such as those of a
        microphone, with this number of interleaved channels."""
        return _transcribe.push(self, checked(options, "transcription", TranscribeOptions), channels)

    # Embeddings, logits and scores

    def embed(self, texts: str | Sequence[str], **options: Unpack[EmbedOptions]) -> Floats:
        """Returns the embeddings of texts, `[texts, dimensions]`.

        A model that generates text must be loaded with `embeddings=True`.
        """
        with self.session() as session:
            return session.embed(texts, **options)

    async def aembed(self, texts: str | Sequence[str], **options: Unpack[EmbedOptions]) -> Floats:
        """Async version of `embed`."""
        with self.session() as session:
            return await session.aembed(texts, **options)

    def logits(self, prompt: Prompt, *, rows: str = "last", out: Floats | None = None) -> Floats:
        """Returns the logits after the last token of a prompt, `[vocab]`, or with `rows="all"` after
        every token, `[tokens, vocab]`, in `out` or a new array."""
        with self.session() as session:
            return session.logits(prompt, rows=rows, out=out)

    def hooks(
        self,
        capture: str | Iterable[str] = (),
        *,
        positions: Positions = "all",
        attention_positions: int = 0,
        edits: Edit | Iterable[Edit] = (),
        adapters: Iterable[Adapter] = (),
        steers: Iterable[Steer] = (),
    ) -> Hooks:
        """Compiles hooks, which sessions use after `Session.set_hooks`. Other sessions are not affected.

        `capture` are patterns of points, in which `*` stands for any text without a dot. A point has the name of
        the tensor that computes it: `"blk.*.attn_q"`; `"blk.3"` is the residual stream after layer 3,
        `"token_embd"` that before the first layer. An unknown point raises `ArgumentError`, whose message has all
        of them. `positions` selects the tokens whose values are captured: `"all"`, `"last"` or a list. `edits`
        are applied in this order at each point, before its value is captured. Rows of attention weights have
        `attention_positions` positions; 0: the context of the model. `adapters` are LoRA adapters, whose scales
        `Session.set_adapter_scales` sets; `steers` are control vectors, which are added after the edits.
        """
        return Hooks(
            self,
            capture,
            positions=positions,
            attention_positions=attention_positions,
            edits=edits,
            adapters=adapters,
            steers=steers,
        )

    def load_adapter(self, path: str | os.PathLike[str]) -> Adapter:
        """Reads a LoRA adapter for this model: a folder of `peft`, or a GGUF file of llama.cpp. `hooks` applies
        it."""
        return Adapter(self, path)

    def capture(self, prompt: Prompt, points: str | Iterable[str], *, edits: Edit | Iterable[Edit] = ()) -> Captured:
        """Returns the values of points for each token of a prompt, `[tokens, cols]`. `attn_weights` are
        `[tokens, heads * tokens]`. See `hooks` for `points` and `edits`."""
        return next(self.capture_each([prompt], points, edits=edits))

    def capture_each(
        self, prompts: Iterable[Prompt], points: str | Iterable[str], *, edits: Edit | Iterable[Edit] = ()
    ) -> Iterator[Captured]:
        """Yields the values of each prompt, like `capture`. Compiles the hooks once, unless rows of attention
        weights depend on the length of the prompt."""
        patterns = [points] if isinstance(points, str) else list(points)
        changes = [edits] if isinstance(edits, Edit) else list(edits)
        hooks, fits = None, False
        with self.session() as session:
            for prompt in prompts:
                tokens = self.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
                if hooks is None or not (fits or positions == len(tokens)):
                    positions = len(tokens)
                    hooks = self.hooks(patterns, attention_positions=positions, edits=changes)
                    fits = not any(point.endswith("attn_weights") for point in hooks.points)
                    session.set_hooks(hooks)
                yield session.capture_prompt(tokens)

    def score(self, prompt: Prompt, start: int = 1) -> Floats:
        """Returns the log-probability (natural logarithm) of each token of a prompt from index `start`
        on, given all tokens before it: `[tokens - start]`. The first token has no context."""
        with self.session() as session:
            return session.score(prompt, start)

    def rerank(self, query: str, documents: Sequence[str], instruction: str | None = None) -> Floats:
        """Returns a relevance score for each document, `[documents]`: see `Session.rerank`."""
        with self.session() as session:
            return session.rerank(query, documents, instruction)

    def classify(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        logits: bool = False,
        truncate: bool = False,
    ) -> Floats:
        """Returns the scores of the labels for each text, `[texts, labels]`: see `Session.classify`."""
        with self.session() as session:
            return session.classify(texts, pairs, logits=logits, truncate=truncate)

    # Chat templates

    def apply_chat_template(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        **chat: Unpack[ChatOptions],
    ) -> str:
        """Renders a conversation as text, for display. Use `tokenize_chat` for input of the model: the text
        does not distinguish special tokens of the template from the same names in a message."""
        options = chat_options(checked(chat, "apply_chat_template", ChatOptions), add_generation_prompt)
        return render(self, messages, options)

    def tokenize_chat(
        self,
        messages: Messages,
        *,
        add_generation_prompt: bool = True,
        **chat: Unpack[ChatOptions],
    ) -> list[int]:
        """Returns the tokens of a conversation. Only the template produces special tokens."""
        options = chat_options(checked(chat, "tokenize_chat", ChatOptions), add_generation_prompt)
        return encode(self, messages, options)


def _reload(path: str | os.PathLike[str] | ModelBytes | None, options: LoadOptions) -> Model:
    return Model.load(path, **options)


def _raise_error(answer: Answer | Exception) -> Answer:
    if isinstance(answer, Exception):
        raise answer
    return answer


def catch_file_faults() -> None:
    """Makes truncated model files errors: a call that reads a page of a mapped file that is no longer there raises
    `IoError`, and so do later calls with that model, instead of the process being ended by `SIGBUS`.

    Installs a handler of `SIGBUS` for the whole process, which passes other faults on to the handler that was
    installed before. Raises `UnsupportedError` where the system has no such signal.
    """
    check(lib.tabla_catch_file_faults())


def devices() -> dict[str, Any]:
    """Returns the devices of this machine: `"cpu"`, and `"gpus"` in the order of their numbers for
    `adapter` of `Model.load`."""
    listing: dict[str, Any] = json.loads(call_for_bytes(lib.tabla_device_list))
    return listing
