"""Sessions: a sequence of tokens on a model, with its KV cache."""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

import numpy as np

from . import _aio
from ._aio import AsyncStream
from ._answer import Answer
from ._c import CData, Floats, Struct, call_for_array, choice, count, floats, numbers, text
from ._c import path as c_path
from ._c import texts as c_texts
from ._errors import ArgumentError, StateError, check
from ._handle import Handle, interruptible
from ._hooks import Captured, Hooks, read_captured
from ._model_handle import ModelHandle, Prompt
from ._native import ffi, lib
from ._option_types import EmbedOptions, GenerateOptions
from ._options import checked, generate_options, put_option
from ._stream import Stream, gather

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Session(Handle):
    """A sequence of tokens on a model, created by `Model.session()`.

    A method that `Model` has, too, does the same there, in a new session. Any number of sessions share a
    model; at most `sequences` of `Model.load` are computed at the same time, and the others wait. A session
    executes one call at a time: a second one at the same time raises `BusyError`, and other calls during an
    answer raise `StateError`.

    Attributes
    ----------
    model : Model
        The model.
    step_seed : int or None
        Seed of the last `step`.
    """

    _created_by = "model.session()"

    def __init__(self, model: ModelHandle, pointer: CData) -> None:
        super().__init__(pointer, lib.tabla_session_free)
        self.model = model
        self.step_seed: int | None = None
        self._stream: Callable[[], Stream | None] = lambda: None
        self._hooks: Hooks | None = None

    @classmethod
    def load(cls, model: ModelHandle, path: str | os.PathLike[str]) -> Session:
        """Loads a session that `save` wrote to a file, for the same model."""
        return cls(model, lib.tabla_session_load(model._pointer, c_path(path, "path")))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the session to a file, including its KV cache."""
        self._run(lib.tabla_session_save, c_path(path, "path"))

    def fork(self) -> Session:
        """Returns a session with a copy of the sequence. Nothing is recomputed."""
        fork = Session(self.model, lib.tabla_session_fork(self._pointer))
        fork._hooks = self._hooks
        return fork

    def move_to(self, model: ModelHandle) -> None:
        """Continues on another load of the model, after `DeviceLostError`. The sequence is kept, and computed again
        when it is needed; so sampling with the same seed goes on as it would have without the loss."""
        check(lib.tabla_session_move(self._pointer, model._pointer))
        self.model = model

    @property
    def tokens(self) -> list[int]:
        """The tokens of the sequence, both prompt and generated ones."""
        return list(call_for_array("uint32_t", lib.tabla_session_tokens, self._pointer))

    def truncate(self, keep: int = 0) -> None:
        """Removes all tokens after the first `keep` ones."""
        check(lib.tabla_session_truncate(self._pointer, count(keep, "keep")))

    def prefill(self, prompt: Prompt) -> None:
        """Appends a prompt to the sequence and runs the model on it. At the start of the sequence, a
        string also gets the model's BOS token."""
        if isinstance(prompt, str):
            prompt = self.model.tokenize(prompt, add_special=not self.tokens)
        tokens = numbers("uint32_t", prompt, "prompt")
        self._run(lib.tabla_session_prefill, tokens, len(tokens))

    def step(self, **options: Unpack[GenerateOptions]) -> int:
        """Samples the next token and appends it to the sequence. Only the sampling options are used.
        Afterwards, the attribute `step_seed` has the seed."""
        token = ffi.new("uint32_t *")
        c_options = generate_options(checked(options, "step")).c
        self._run(lib.tabla_session_step, c_options, token)
        self.step_seed = c_options.seed
        return int(token[0])

    def stream(self, prompt: Prompt | None = None, **options: Unpack[GenerateOptions]) -> Stream:
        """Appends a prompt to the sequence and continues it piece by piece. Without a prompt, continues the
        sequence as it is. Closing the stream ends the answer; tokens of pieces that were read stay in the
        sequence."""
        return self._start(prompt, checked(options, "stream"))

    def generate(self, prompt: Prompt | None = None, **options: Unpack[GenerateOptions]) -> Answer:
        """Like `stream`, but returns the complete answer. Ctrl-C ends it."""
        return gather(self._start(prompt, checked(options, "generate")))

    def astream(self, prompt: Prompt | None = None, **options: Unpack[GenerateOptions]) -> AsyncStream:
        """Async version of `stream`."""
        return AsyncStream(self._start(prompt, checked(options, "astream")))

    async def agenerate(self, prompt: Prompt | None = None, **options: Unpack[GenerateOptions]) -> Answer:
        """Async version of `generate`. Cancelling the task ends the answer."""
        return await _aio.gather(self._start(prompt, checked(options, "agenerate")))

    def logits(
        self, prompt: Prompt | None = None, *, rows: str = "last", out: Floats | None = None
    ) -> Floats:
        """Appends a prompt, if there is one, to the sequence. Returns the logits after the last token, `[vocab]`,
        or with `rows="all"` after every token, `[tokens, vocab]`.

        The library writes them directly to the array: `out`, or a new one. `out` must be contiguous
        float32 of that shape.
        """
        if prompt is not None:
            self.prefill(prompt)
        which = choice("rows", rows, "TABLA_LOGITS", ("last", "all"))
        vocab = self.model.info.vocab
        shape = (vocab,) if rows == "last" else (len(self.tokens), vocab)
        return self._floats(lib.tabla_session_logits, (which,), shape, out)

    def score(self, prompt: Prompt, start: int = 1) -> Floats:
        """Returns the log-probability (natural logarithm) of each token of a prompt from index `start` on,
        given all tokens before it: `[tokens - start]`. The first token has no context. The sequence does not
        change."""
        tokens = self.model.tokenize(prompt) if isinstance(prompt, str) else prompt
        array = numbers("uint32_t", tokens, "prompt")
        if not 1 <= count(start, "start") < len(array):
            raise ArgumentError(f"start must be at least 1 and less than the {len(array)} tokens, got {start}")
        shape = (len(array) - start,)
        return self._floats(lib.tabla_session_score, (array, len(array), start), shape)

    def set_hooks(self, hooks: Hooks | None) -> None:
        """Sets the hooks of the session; `None` removes them. Tokens in the sequence are computed again when they
        are needed."""
        check(lib.tabla_session_set_hooks(self._pointer, ffi.NULL if hooks is None else hooks._pointer))
        self._hooks = hooks

    def set_adapter_scales(self, scales: Sequence[float]) -> None:
        """Sets the scales of the adapters of the session's hooks, in the order of `Model.hooks`; 0 disables an
        adapter. Sessions with the same hooks and other scales are decoded together."""
        array = ffi.new("float[]", list(scales))
        check(lib.tabla_session_set_adapter_scales(self._pointer, array, len(array)))

    def captured(self) -> Captured:
        """Returns the values of the sequence that the hooks of the session capture."""
        if self._hooks is None:
            raise StateError("the session has no hooks: set them with set_hooks")
        return read_captured(self, self._hooks)

    def capture_prompt(self, prompt: Prompt) -> Captured:
        """Replaces the sequence by a prompt and returns the values that the hooks of the session capture. Unlike
        `prefill`, it also works for encoders."""
        tokens = self.model.tokenize(prompt) if isinstance(prompt, str) else prompt
        array = numbers("uint32_t", tokens, "prompt")
        self._run(lib.tabla_session_capture, array, len(array))
        return self.captured()

    def embed(self, texts: str | Sequence[str], **options: Unpack[EmbedOptions]) -> Floats:
        """Returns the embeddings of texts, `[texts, dimensions]`. The sequence does not change.

        A model that generates text must be loaded with `embeddings=True`.
        """
        return self._embed(texts, checked(options, "embed", EmbedOptions))

    async def aembed(self, texts: str | Sequence[str], **options: Unpack[EmbedOptions]) -> Floats:
        """Async version of `embed`."""
        chosen = checked(options, "aembed", EmbedOptions)
        return await _aio.run(lambda: self._embed(texts, chosen), self.cancel)

    def rerank(self, query: str, documents: Sequence[str], instruction: str | None = None) -> Floats:
        """Returns a relevance score for each document, `[documents]`. The sequence does not change.

        A cross-encoder gives the sigmoid of its logit, or the logit if its files set the identity as
        activation function; `classify` returns logits of any cross-encoder and truncates documents. A
        generative reranker, which answers "yes" or "no", gives a score from 0 to 1; `instruction`
        describes the relevance criterion to it. Other models raise `UnsupportedError`."""
        given = c_texts(documents, "documents")
        c_instruction = ffi.NULL if instruction is None else text(instruction, "instruction")
        arguments = (text(query, "query"), c_instruction, ffi.new("const char *[]", given), len(given))
        return self._floats(lib.tabla_session_rerank, arguments, (len(given),))

    def classify(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        logits: bool = False,
        truncate: bool = False,
    ) -> Floats:
        """Returns the scores of the labels for each text, `[texts, labels]`. The sequence does not change.

        Parameters
        ----------
        texts
            Texts.
        pairs
            A second text for each text; the model reads each pair together.
        logits
            Return logits. Default: the logits after the activation function of the model's files, otherwise
            after sigmoid for one label and softmax for several.
        truncate
            Truncate texts that are too long, of a pair only the second one, instead of raising an error.
        """
        if not self.model.info.labels:
            raise StateError("the model has no classification head")
        given = c_texts([texts] if isinstance(texts, str) else texts, "texts")
        seconds = ffi.NULL
        if pairs is not None:
            others = c_texts([pairs] if isinstance(pairs, str) else pairs, "pairs")
            if len(others) != len(given):
                raise ArgumentError(f"{len(given)} texts, but {len(others)} second texts")
            seconds = ffi.new("const char *[]", others)
        options = Struct("TablaClassifyOptions")
        options.put("logits", int(logits))
        options.put("truncate", int(truncate))
        arguments = (ffi.new("const char *[]", given), seconds, len(given), options.c)
        return self._floats(lib.tabla_session_classify, arguments, (len(given), self.model.info.labels))

    def end(self) -> None:
        """Ends the answer in progress, if there is one, like closing its stream."""
        stream = self._stream()
        if stream is not None:
            stream.close()

    def cancel(self) -> None:
        """Cancels the current call, from any thread: an answer ends, other calls raise `CancelledError`."""
        lib.tabla_session_cancel(self._pointer_or_null)

    def _cancel(self) -> None:
        self.cancel()

    def _start(
        self, prompt: Prompt | None, arguments: Mapping[str, Any], *, closes_session: bool = False
    ) -> Stream:
        """Returns a stream of the answer to a prompt. The answer starts with the stream's first piece."""
        options = generate_options(arguments)
        begin = partial(self._begin, prompt, options)
        return Stream(self, begin, options.c.seed, closes_session=closes_session)

    def _begin(self, prompt: Prompt | None, options: Struct, stream: Stream) -> None:
        """Starts the answer of a stream. On failure the sequence is unchanged."""
        begin = lib.tabla_session_begin
        # A C string would end at a NUL, and an empty one adds no BOS token.
        if isinstance(prompt, str) and (not prompt or "\0" in prompt):
            prompt = self.model.tokenize(prompt, add_special=not self.tokens)
        if prompt is None:
            check(begin(self._pointer, ffi.NULL, options.c))
        elif isinstance(prompt, str):
            check(begin(self._pointer, text(prompt, "prompt"), options.c))
        else:
            before = len(self.tokens)
            tokens = numbers("uint32_t", prompt, "prompt")
            try:
                check(lib.tabla_session_prefill(self._pointer, tokens, len(tokens)))
                check(begin(self._pointer, ffi.NULL, options.c))
            except BaseException:
                lib.tabla_session_truncate(self._pointer, before)
                raise
        self._stream = weakref.ref(stream)

    def _embed(self, texts: str | Sequence[str], chosen: Mapping[str, Any]) -> Floats:
        if not self.model.info.embedding_dim:
            raise StateError("the model was loaded without embeddings=True")
        given = c_texts([texts] if isinstance(texts, str) else texts, "texts")
        dimensions = chosen.get("dimensions") or self.model.info.embedding_dim
        arguments = (ffi.new("const char *[]", given), len(given), embed_options(chosen).c)
        return self._floats(lib.tabla_session_embed, arguments, (len(given), dimensions))

    def _run(self, function: Callable[..., int], *arguments: object) -> None:
        pointer = self._pointer
        interruptible(lambda: check(function(pointer, *arguments)), self.cancel)

    def _floats(
        self,
        function: Callable[..., int],
        arguments: tuple[object, ...],
        shape: tuple[int, ...],
        out: Floats | None = None,
    ) -> Floats:
        """Returns the floats that a function writes, in a numpy array."""
        array = np.empty(shape, np.float32) if out is None else _checked(out, shape)
        written = ffi.new("size_t *")
        self._run(function, *arguments, floats(array), array.size, written)
        if written[0] != array.size:
            raise StateError("the sequence was changed by another thread during the call")
        return array


def _checked(out: Floats, shape: tuple[int, ...]) -> Floats:
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a numpy array, not {type(out).__name__}")
    if out.dtype != np.float32 or out.shape != shape or not out.flags.c_contiguous:
        raise ValueError(f"out must be contiguous float32 {shape}, got {out.dtype} {out.shape}")
    return out


def embed_options(arguments: Mapping[str, Any]) -> Struct:
    """Converts checked arguments to `TablaEmbedOptions`."""
    options = Struct("TablaEmbedOptions")
    for name, value in arguments.items():
        put_option(options, name, (1 if value else -1) if name == "normalize" else value)
    return options
