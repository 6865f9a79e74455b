"""Transcription of speech: audio in, segments out."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Iterator, Mapping, Sequence, Union

import numpy as np
from numpy.typing import NDArray

from . import _aio
from ._c import CData, Struct, call_for_bytes, text
from ._c import path as c_path
from ._errors import ArgumentError, StateError, check
from ._handle import Handle, interruptible
from ._model_handle import ModelHandle
from ._native import ffi, lib
from ._options import put_option

Audio = Union[str, "os.PathLike[str]", bytes, bytearray, NDArray[Any]]
"""The path of an audio file, the bytes of an audio file, or an array of samples: `[samples]` or
`[samples, channels]`, float from -1 to 1 or int16."""

BLOCK = 1 << 16
"""Samples of each channel of an array that are passed at a time. A cancellation takes effect between two blocks."""

FORMATS = ("text", "srt", "vtt", "tsv", "lrc", "json", "verbose_json")


@dataclass(frozen=True)
class Word:
    """A word of a segment."""

    text: str
    """Text, with the space before it and with its punctuation."""
    start: float
    """Start in seconds."""
    end: float
    """End in seconds."""
    probability: float
    """Mean probability of its tokens."""


@dataclass(frozen=True)
class Segment:
    """A segment of a transcript."""

    id: int
    """Number of the segment, from 0."""
    start: float
    """Start in seconds."""
    end: float
    """End in seconds."""
    text: str
    """Text. It starts with a space in most languages."""
    tokens: tuple[int, ...]
    """Token ids, timestamps included."""
    words: tuple[Word, ...]
    """Words, with `word_timestamps`."""
    temperature: float
    """Temperature of its window."""
    avg_logprob: float
    """Average log-probability of the tokens of its window."""
    compression_ratio: float
    """Compression ratio of the text of its window."""
    no_speech_prob: float
    """Probability that its window has no speech."""
    seek: int
    """First frame of its window, in units of 10 ms."""


@dataclass(frozen=True)
class Transcript:
    """The transcript of a recording. `str()` returns its text."""

    text: str
    """Text of all segments, without white space at the ends."""
    segments: tuple[Segment, ...]
    """Segments in order."""
    language: str
    """Code of the language, such as `"de"`; empty if the recording is silent and the language was not given."""
    duration: float
    """Duration of the audio in seconds."""
    _formats: Mapping[str, str] = field(repr=False)

    def write(self, format: str) -> str:
        """Returns the transcript in a format: `"text"`, `"srt"`, `"vtt"`, `"tsv"`, `"lrc"`, `"json"` or
        `"verbose_json"`. The JSON formats are those of OpenAI's API."""
        if format not in FORMATS:
            raise ArgumentError(f"invalid format {format!r}: expected one of {', '.join(FORMATS)}")
        return self._formats[format]

    def to_srt(self) -> str:
        """Returns SubRip subtitles."""
        return self.write("srt")

    def to_vtt(self) -> str:
        """Returns WebVTT subtitles."""
        return self.write("vtt")

    def __str__(self) -> str:
        return self.text


class Transcription(Handle, Iterator[Segment]):
    """A transcription, segment by segment: created by `Model.transcription()` for samples that the program
    passes, and by `Model.transcribe(..., stream=True)` for a recording.

    Iteration returns the segments that are found. It ends when more samples are needed, or at the end of the
    recording. The model transcribes windows of 30 seconds, so segments are found up to 30 seconds after their
    samples were passed.
    """

    def __init__(self, pointer: CData) -> None:
        super().__init__(pointer, lib.tabla_transcription_free)
        # Samples of an array that are not passed yet. `None`: there is no array, or all are passed.
        self._rest: NDArray[np.float32] | None = None
        self._segment = Struct("TablaSegment").c
        self._found = ffi.new("int32_t *")

    def push(self, samples: NDArray[Any]) -> None:
        """Adds samples, `[samples]` or `[samples, channels]`, with the channels and the sample rate that were
        given to `Model.transcription()`."""
        array = _floats(samples)
        if self._rest is not None:
            raise StateError("the recording is read from an array")
        self._run(lambda: self._push(array))

    def finish(self) -> None:
        """Ends the recording: iteration then returns the segments of the rest."""
        self._rest = None
        self._run(lambda: lib.tabla_transcription_finish(self._pointer))

    def next_segment(self) -> Segment | None:
        """Returns the next segment, or `None` if more samples are needed or the recording has ended."""
        return interruptible(self._next, self.cancel)

    def __next__(self) -> Segment:
        segment = self.next_segment()
        if segment is None:
            raise StopIteration
        return segment

    @property
    def language(self) -> str:
        """Code of the language, such as `"de"`; empty before it is detected."""
        return _string(self._info().language)

    @property
    def duration(self) -> float:
        """Duration of the audio so far in seconds."""
        return float(self._info().duration)

    @property
    def position(self) -> float:
        """Position up to which the audio is transcribed, in seconds."""
        return float(self._info().position)

    def write(self, format: str) -> str:
        """Returns the segments that were returned so far in a format: see `Transcript.write`."""
        name = text(format, "format")
        return call_for_bytes(lib.tabla_transcription_write, self._pointer, name).decode()

    def cancel(self) -> None:
        """Cancels the current call, from any thread: it raises `CancelledError`."""
        lib.tabla_transcription_cancel(self._pointer_or_null)

    def _cancel(self) -> None:
        self.cancel()

    def _next(self) -> Segment | None:
        with self._reading:
            while True:
                check(lib.tabla_transcription_next(self._pointer, self._segment, self._found))
                if self._found[0]:
                    return _segment(self._segment)
                if self._rest is None:
                    return None
                self._pass_block(self._rest)

    def _pass_block(self, rest: NDArray[np.float32]) -> None:
        """Passes the next samples of an array, or ends the recording after the last ones."""
        if len(rest) > 0:
            check(self._push(rest[:BLOCK]))
            self._rest = rest[BLOCK:]
        else:
            check(lib.tabla_transcription_finish(self._pointer))
            self._rest = None

    def _push(self, samples: NDArray[np.float32]) -> int:
        data = ffi.from_buffer("float[]", samples)
        return int(lib.tabla_transcription_push(self._pointer, data, samples.size))

    def _info(self) -> CData:
        info = Struct("TablaTranscriptionInfo").c
        check(lib.tabla_transcription_info(self._pointer, info))
        return info

    def _run(self, call: Any) -> None:
        interruptible(lambda: check(call()), self.cancel)


class AsyncTranscription(AsyncIterator[Segment]):
    """Async version of `Transcription`, for `async for` and `async with`. Cancelling the task that waits for a
    segment closes the transcription."""

    def __init__(self, transcription: Transcription) -> None:
        self._transcription = transcription

    async def __anext__(self) -> Segment:
        try:
            segment = await _aio.run(self._transcription._next, self._transcription.cancel)
        except BaseException:
            self._transcription.close()
            raise
        if segment is None:
            raise StopAsyncIteration
        return segment

    async def aclose(self) -> None:
        """Ends the transcription."""
        await _aio.run_uncancellable(self._transcription.close)

    async def __aenter__(self) -> AsyncTranscription:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def start(model: ModelHandle, audio: Audio, arguments: Mapping[str, Any]) -> Transcription:
    """Starts the transcription of a recording, with checked arguments."""
    if isinstance(audio, np.ndarray):
        samples = _floats(audio)
        if np.may_share_memory(samples, audio):
            samples = samples.copy()  # the program may change the array before it is read
        transcription = push(model, arguments, 1 if samples.ndim == 1 else samples.shape[1])
        transcription._rest = samples
        return transcription
    options = transcribe_options(arguments).c
    if isinstance(audio, (bytes, bytearray)):
        data = ffi.from_buffer(audio)
        return Transcription(lib.tabla_transcription_open_memory(model._pointer, data, len(data), options))
    return Transcription(lib.tabla_transcription_open(model._pointer, c_path(audio, "audio"), options))


def push(model: ModelHandle, arguments: Mapping[str, Any], channels: int) -> Transcription:
    """Starts a transcription of samples that the program passes, with checked arguments."""
    options = transcribe_options(arguments)
    options.put("channels", channels)
    return Transcription(lib.tabla_transcription_new(model._pointer, options.c))


def gather(transcription: Transcription) -> Transcript:
    """Returns the transcript of a recording."""
    with transcription:
        return join(transcription, list(transcription))


async def agather(transcription: Transcription) -> Transcript:
    """Async version of `gather`."""
    async with AsyncTranscription(transcription) as segments:
        return join(transcription, [segment async for segment in segments])


def join(transcription: Transcription, segments: Sequence[Segment]) -> Transcript:
    """Returns the transcript of all segments of a transcription."""
    return Transcript(
        "".join(segment.text for segment in segments).strip(),
        tuple(segments),
        transcription.language,
        transcription.duration,
        {name: transcription.write(name) for name in FORMATS},
    )


def transcribe_options(arguments: Mapping[str, Any]) -> Struct:
    """Converts checked arguments to `TablaTranscribeOptions`."""
    options = Struct("TablaTranscribeOptions")
    check(lib.tabla_transcribe_options_init(options.c, ffi.sizeof("TablaTranscribeOptions")))
    for name, value in arguments.items():
        put_option(options, name, value)
    return options


def _floats(samples: NDArray[Any]) -> NDArray[np.float32]:
    """Converts samples to contiguous float32."""
    if not isinstance(samples, np.ndarray):
        raise TypeError(f"samples must be a numpy array, not {type(samples).__name__}")
    if samples.ndim not in (1, 2):
        raise ArgumentError(f"samples must have the shape [samples] or [samples, channels], got {samples.shape}")
    if samples.dtype == np.int16:
        samples = samples.astype(np.float32) / 32768
    if not np.issubdtype(samples.dtype, np.floating):
        raise ArgumentError(f"samples must be float or int16, got {samples.dtype}")
    return np.ascontiguousarray(samples, np.float32)


def _segment(c: CData) -> Segment:
    return Segment(
        c.id,
        c.start,
        c.end,
        ffi.unpack(c.text, c.text_bytes).decode(),
        tuple(ffi.unpack(c.tokens, c.tokens_count)) if c.tokens_count else (),
        tuple(_word(c.words[at]) for at in range(c.words_count)),
        c.temperature,
        c.avg_logprob,
        c.compression_ratio,
        c.no_speech_prob,
        c.seek,
    )


def _word(c: CData) -> Word:
    return Word(ffi.unpack(c.text, c.text_bytes).decode(), c.start, c.end, c.probability)


def _string(c: CData) -> str:
    data: bytes = ffi.string(c)
    return data.decode()
