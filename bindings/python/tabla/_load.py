"""How a model is loaded."""

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
    """A stage of loading that has ended. Stages 1 to 18 end in this order."""

    stage: int
    name: str
    milliseconds: float
    done: float
    """How much of the whole is done, from 0 to 1."""


Progress = Union[bool, Callable[[LoadStage], object]]
"""`True` for a bar of tqdm, or a function that hears of every stage."""


class LoadOptions(TypedDict, total=False):
    """How a model is loaded. `None` is the default of each."""

    device: str | None
    """`"auto"` takes a GPU that is one, else the CPU; `"cpu"`; `"gpu"`, be it a software one."""
    adapter: str | None
    """The GPU, by a part of its name or its number. Default: the best one."""
    gpu_baseline: bool | None
    """A GPU is asked for no more than every device of WebGPU has."""
    precision: str | None
    """`"fast"`, or `"exact"`, which computes every product in f32."""
    threads: int | None
    """Threads on a CPU; 0, the default, takes one for every physical core."""
    max_context: int | None
    """Positions of the KV cache. Default: what the model was trained for, 4096 at most."""
    sequences: int | None
    """Sequences that go on together, each of `max_context` positions. Default 1."""
    embeddings: bool | None
    """A model that generates text yields embeddings, too. Encoders always do."""
    cache_type: str | None
    """How the KV cache is stored: `"f16"`, `"f32"` or `"q8_0"`. Default: by the precision."""
    weights: str | None
    """Where a CPU has them: `"mapped"` from the file, `"packed"` in memory of their own, which is faster,
    or `"auto"`."""
    head_type: str | None
    """The output matrix encoded anew while loading: `"q8_0"` or `"q6_k"`. Default `"as_stored"`."""
    chunk_tokens: int | None
    """Tokens of a prompt that go through the model at once. Default: what suits the device."""
    wide_steps: bool | None
    """A GPU can check guesses: `speculate` of `generate`. A CPU always can."""
    prefix_bytes: int | None
    """Bytes for what was computed for sequences that have gone, and serves whoever comes with the same
    beginning. Default: what the sequences leave; 0 keeps nothing."""
    samplers: str | None
    """Names of samplers in their order, `;` between them; what is not among them stays off."""
    i2s_layout: str | None
    """How tensors of type `I2_S` are laid out: `"128"`, `"64"` or `"1x4"`. Default: the usual."""
    shader_path: str | os.PathLike[str] | None
    """A folder whose shaders stand in front of the library's own."""
    tuning_path: str | os.PathLike[str] | None
    """A folder of tunings for GPUs."""
    kernel_path: str | os.PathLike[str] | None
    """A folder that keeps compiled kernels of GPUs for the next load."""


CHOICES = {
    "device": ("TABLA_DEVICE", ("auto", "cpu", "gpu")),
    "precision": ("TABLA_PRECISION", ("fast", "exact")),
    "weights": ("TABLA_WEIGHTS", ("auto", "mapped", "packed")),
    "head_type": ("TABLA_HEAD", ("as_stored", "q8_0", "q6_k")),
    "cache_type": ("TABLA_CACHE", ("default", "f16", "f32", "q8_0")),
}

TEXTS = ("adapter", "samplers", "i2s_layout")

PATHS = ("shader_path", "tuning_path", "kernel_path")


def load_options(given: Mapping[str, Any]) -> Struct:
    """The library's options. What is no argument of `Model.load` is a `TypeError`."""
    options = Struct("TablaLoadOptions")
    for name, value in given.items():
        if name not in LoadOptions.__annotations__:
            raise TypeError(f"load() got an unexpected keyword argument {name!r}")
        if value is None:
            continue
        if name in CHOICES:
            value = choice(name, value, *CHOICES[name])
        if name == "prefix_bytes" and value == 0:
            value = lib.TABLA_PREFIX_NONE
        if name in TEXTS:
            options.point(name, text(value, name))
        elif name in PATHS:
            options.point(name, c_path(value, name))
        else:
            options.put(name, value)
    return options


def load(path: str | bytes | os.PathLike[str] | None, options: Struct, progress: Progress) -> CData:
    """A model's handle. An error of `progress`, Ctrl-C among them, stops the load and is raised."""
    hear, close = _listener(progress)
    raised: list[BaseException] = []

    def stage(number: int, name: CData, milliseconds: float, done: float, _: CData) -> int:
        hear(LoadStage(number, ffi.string(name).decode(), milliseconds, done))
        return 0

    def refuse(_: object, error: BaseException, __: object) -> None:
        raised.append(error)

    signature = "int32_t(uint32_t, const char *, double, float, void *)"
    callback = ffi.callback(signature, stage, error=1, onerror=refuse)
    options.point("progress", callback)
    try:
        where = ffi.NULL if path is None else c_path(path, "path")
        model = lib.tabla_load_model_with(where, options.c)
        if raised:
            raise raised[0]
        if model == ffi.NULL:
            raise failure(lib.tabla_last_error_code())
        return model
    finally:
        close()


def _listener(progress: Progress) -> tuple[Callable[[LoadStage], object], Callable[[], None]]:
    """What hears of stages, and what comes behind the last one."""
    if callable(progress):
        return progress, lambda: None
    if not progress:
        return lambda stage: None, lambda: None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError("progress=True needs tqdm: pip install 'tabla[progress]'") from None
    bar = tqdm(total=100, unit="%", bar_format="{desc:<24} {percentage:3.0f}% {bar} {elapsed}")

    def hear(stage: LoadStage) -> None:
        bar.set_description_str(stage.name, refresh=False)
        bar.update(round(100 * stage.done) - bar.n)

    return hear, bar.close
