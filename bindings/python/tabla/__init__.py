"""Runs language, embedding, reranking and speech models from GGUF and safetensors files.

>>> import tabla
>>> with tabla.Model.load() as model:  # the small built-in story model
...     print(model.generate("Once upon a time", max_tokens=8).text)
"""

import os as _os

from ._aio import AsyncStream
from ._answer import Answer, Logprob, Piece, Stats
from ._batch import Batch
from ._chat import ChatRequest, Messages
from ._complete import CompleteRequest, Prompts
from ._errors import (
    ArgumentError,
    BusyError,
    CancelledError,
    DeviceError,
    DeviceLostError,
    ForkedError,
    FormatError,
    GrammarError,
    HandleError,
    InternalError,
    IoError,
    OutOfMemoryError,
    PanicError,
    PoisonedError,
    ReentrantError,
    StateError,
    TablaError,
    TokenizerError,
    TooLargeError,
    UnsupportedError,
)
from ._facts import ModelInfo, Table
from ._grammar import Grammar
from ._hooks import Adapter, Captured, ControlVector, Edit, Hooks, Steer
from ._load import LoadStage
from ._log import set_log
from ._model import Model, catch_file_faults, devices
from ._model_handle import Prompt
from ._native import ffi, lib
from ._option_types import ChatOptions, EmbedOptions, GenerateOptions, LoadOptions, TranscribeOptions
from ._session import Session
from ._stream import Stream
from ._transcribe import AsyncTranscription, Segment, Transcript, Transcription, Word

# Outside of a desktop session, Mesa's layer that sorts GPUs by their screens prints an error for each list of GPUs.
if not _os.environ.get("XDG_RUNTIME_DIR"):
    _os.environ.setdefault("NODEVICE_SELECT", "1")

__version__ = ffi.string(lib.tabla_version()).decode()

__all__ = [
    "Adapter",
    "Answer",
    "ArgumentError",
    "AsyncStream",
    "AsyncTranscription",
    "Batch",
    "BusyError",
    "CancelledError",
    "Captured",
    "ChatOptions",
    "ChatRequest",
    "CompleteRequest",
    "ControlVector",
    "DeviceError",
    "DeviceLostError",
    "Edit",
    "EmbedOptions",
    "ForkedError",
    "FormatError",
    "GenerateOptions",
    "Grammar",
    "GrammarError",
    "HandleError",
    "Hooks",
    "InternalError",
    "IoError",
    "LoadOptions",
    "LoadStage",
    "Logprob",
    "Messages",
    "Model",
    "ModelInfo",
    "OutOfMemoryError",
    "PanicError",
    "Piece",
    "PoisonedError",
    "Prompt",
    "Prompts",
    "ReentrantError",
    "Segment",
    "Session",
    "StateError",
    "Stats",
    "Steer",
    "Stream",
    "Table",
    "TablaError",
    "TokenizerError",
    "TooLargeError",
    "TranscribeOptions",
    "Transcript",
    "Transcription",
    "UnsupportedError",
    "Word",
    "catch_file_faults",
    "devices",
    "set_log",
]
