"""Load options, and loading of models."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Callable, Mapping, TypedDict, Union

from ._c import CData, Struct, choice, text
from ._c import path as c_path
from ._errors import failure
from ._native import ffi, lib


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


class LoadOptions(TypedDict, total=False):
    """Options of `Model.load`. `None` is the default of each."""

    device: str | None
    """`"auto"`: a hardware GPU if there is one, otherwise the CPU; `"cpu"`; `"gpu"`, including a software one."""
    adapter: str | None
    """The GPU: its number or a part of its name. Default: the best one."""
    gpu_baseline: bool | None
    """Use only GPU features that every WebGPU device supports."""
    cpu_expert_layers: bool | int | None
    """Number of layers, from the first one on, whose experts are computed on the CPU while a GPU computes the rest
    of the model; their weights stay in host memory. `True`: all layers. Default 0."""
    precision: str | None
    """`"fast"`, or `"exact"`, which computes every matrix product in f32."""
    threads: int | None
    """Number of CPU threads. Default 0: one for each physical core."""
    max_context: int | None
    """Context length in tokens. Default: the length that the model was trained with, at most 4096."""
    sequences: int | None
    """Maximum number of sequences that are computed at the same time, each of `max_context` tokens. For a speech
    model: number of recordings that are transcribed at the same time, at most 32. Default 1."""
    embeddings: bool | None
    """Enable embeddings for a model that generates text. Encoder models always support them."""
    cache_type: str | None
    """Type of the KV cache: `"f16"`, `"f32"` or `"q8_0"`. Default: by `precision`."""
    weights: str | None
    """Location of weights on a CPU: `"mapped"` uses the file, `"packed"` copies them to a faster layout, or
    `"auto"`."""
    lm_head_type: str | None
    """Type to quantize the output projection (lm_head) to: `"q8_0"` or `"q6_k"`. Default `"as_stored"`."""
    chunk_tokens: int | None
    """Number of prompt tokens in one batch (chunked prefill). Default: chosen for the device."""
    gpu_speculation: bool | None
    """Enable speculative decoding on a GPU: `prompt_lookup`, `drafting_head` and `draft_model` of `generate`. A CPU always
    supports it."""
    drafter_path: str | os.PathLike[str] | None
    """EAGLE-3 drafter for `drafting_head` of `generate`: a GGUF file or a directory of Hugging Face."""
    mtp: bool | None
    """Load the head of the model for multi-token prediction (MTP), for `drafting_head` of
    `generate`."""
    prefix_bytes: int | None
    """Additional KV cache memory for the prefix cache, in bytes. Default: no additional memory, only cache
    pages that active sequences do not use. 0: no prefix cache."""
    samplers: str | None
    """Names of samplers in the order of their use, separated by `;`. Samplers that are not listed are off."""
    i2s_layout: str | None
    """Layout of `I2_S` tensors: `"128"`, `"64"` or `"1x4"`. Default: the usual layout."""
    shader_path: str | os.PathLike[str] | None
    """Directory of shaders that override those of the library."""
    tuning_path: str | os.PathLike[str] | None
    """Directory of tuning files for GPUs."""
    pipeline_cache_path: str | os.PathLike[str] | None
    """Directory of the GPU pipeline cache, which keeps compiled kernels for the next load."""


CHOICES = {
    "device": ("TABLA_DEVICE", ("auto", "cpu", "gpu")),
    "precision": ("TABLA_PRECISION", ("fast", "exact")),
    "weights": ("TABLA_WEIGHTS", ("auto", "mapped", "packed")),
    "lm_head_type": ("TABLA_LM_HEAD", ("as_stored", "q8_0", "q6_k")),
    "cache_type": ("TABLA_CACHE", ("default", "f16", "f32", "q8_0")),
}

TEXTS = ("adapter", "samplers", "i2s_layout")

PATHS = ("shader_path", "tuning_path", "pipeline_cache_path")


def load_options(arguments: Mapping[str, Any]) -> Struct:
    """Converts checked arguments to `TablaLoadOptions`."""
    options = Struct("TablaLoadOptions")
    for name, value in arguments.items():
        if name in CHOICES:
            value = choice(name, value, *CHOICES[name])
        if name == "prefix_bytes" and value == 0:
            value = lib.TABLA_PREFIX_NONE
        if name == "cpu_expert_layers" and value is True:
            value = lib.TABLA_CPU_EXPERTS_ALL
        if name in TEXTS:
            options.point(name, text(value, name))
        elif name in PATHS:
            options.point(name, c_path(value, name))
        else:
            options.put(name, value)
    return options


def load(path: str | bytes | os.PathLike[str] | None, options: Struct, progress: Progress) -> CData:
    """Loads a model and returns its handle. An exception in `progress`, including `KeyboardInterrupt`,
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
        c_path_or_null = ffi.NULL if path is None else c_path(path, "path")
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
