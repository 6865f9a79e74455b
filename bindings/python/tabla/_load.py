"""Load options, and loading of models."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Mapping, Union

from ._c import CData, Struct
from ._c import path as c_path
from ._errors import failure
from ._native import ffi, lib
from ._options import put_option


@dataclass(frozen=True)
class LoadStage:
    """A completed stage of loading. Stages 1 to 18 are completed in this order."""

    stage: int
    name: str
    milliseconds: float
    done: float
    """Fraction of completed stages, 0 to 1."""


Progress = Union[bool, Callable[[LoadStage], object]]
"""`True` for a tqdm progress bar, or a function that is called with every stage."""


def load_options(arguments: Mapping[str, Any]) -> Struct:
    """Converts checked arguments to `TablaLoadOptions`."""
    options = Struct("TablaLoadOptions")
    for name, value in arguments.items():
        if name == "prefix_bytes" and value == 0:
            value = lib.TABLA_PREFIX_NONE
        if name == "cpu_expert_layers" and value is True:
            value = lib.TABLA_CPU_EXPERTS_ALL
        put_option(options, name, value)
    return options


ModelBytes = Union[bytes, bytearray, memoryview]
"""A model in memory: a GGUF file, or a ggml file of Whisper."""


def load(source: str | os.PathLike[str] | ModelBytes | None, options: Struct, progress: Progress) -> CData:
    """Loads a model and returns its handle. Bytes are copied. An exception in `progress`, including `KeyboardInterrupt`,
    cancels loading and is raised."""
    report, close = _progress_functions(progress)
    raised: list[BaseException] = []

    def stage(number: int, name: CData, milliseconds: float, done: float, _: CData) -> int:
        report(LoadStage(number, ffi.string(name).decode(), milliseconds, done))
        return 0

    def on_error(_: object, error: BaseException, __: object) -> None:
        raised.append(error)

    signature = "int32_t(uint32_t, const char *, double, float, void *)"
    callback = ffi.callback(signature, stage, error=1, onerror=on_error)
    options.point("progress", callback)
    try:
        if isinstance(source, (bytes, bytearray, memoryview)):
            data = ffi.from_buffer(source)
            model = lib.tabla_load_memory(data, len(data), ffi.NULL, ffi.NULL, options.c)
        else:
            c_path_or_null = ffi.NULL if source is None else c_path(source, "path")
            model = lib.tabla_model_load(c_path_or_null, options.c)
        if raised:
            raise raised[0]
        if model == ffi.NULL:
            raise failure(lib.tabla_last_error_code())
        return model
    finally:
        close()


def _progress_functions(progress: Progress) -> tuple[Callable[[LoadStage], object], Callable[[], None]]:
    """Returns the function to call with each stage, and the one to call at the end."""
    if callable(progress):
        return progress, lambda: None
    if not progress:
        return lambda stage: None, lambda: None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'tabla-runtime[progress]'") from None
    bar = tqdm(total=100, unit="%", bar_format="{desc:<24} {percentage:3.0f}% {bar} {elapsed}")

    def report(stage: LoadStage) -> None:
        bar.set_description_str(stage.name, refresh=False)
        bar.update(round(100 * stage.done) - bar.n)

    return report, bar.close
