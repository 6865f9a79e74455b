"""Many prompts on many machines: a class for Ray Data, and a resumable run over a folder.

Each actor has its own engine. A failed row gets an `error` and does not affect others; an actor
that dies is replaced, and its rows are computed again. docs/ray.md shows both.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections import deque
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Callable, Iterator, List, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tabla import DeviceLostError, Model, PoisonedError

try:
    import pyarrow as _pyarrow  # noqa: F401
    import ray
except ImportError as missing:
    message = f"tabla.ray needs Ray and pyarrow: pip install 'tabla-runtime[ray]' ({missing})"
    raise ImportError(message, name=missing.name) from missing

from ray.exceptions import RayActorError

from ._folder import Output, prompts
from ._tasks import Options, Outcome, Row, find_task

UNUSABLE = (DeviceLostError, PoisonedError)
"""Errors after which the model must be loaded again. They are not caused by the rows."""

CHANGES_ROWS = ("precision", "max_context", "cache_type", "lm_head_type", "samplers", "i2s_layout")
"""Load options that change the results. The others depend on the machine."""

DEATHS = 3
"""Maximum number of consecutive deaths of engines without a result."""

log = logging.getLogger("tabla")

Part = List[Row]
"""Rows that are computed together and written to one file."""


class Predictor:
    """A class for `ray.data.Dataset.map_batches`: computes completions or embeddings of texts or
    conversations.

    `task` is the computation on the rows of `column`:

    - `"generate"` continues texts, with the options of `Model.generate`. Columns: `completion` and
      `finish_reason`.
    - `"chat"` answers conversations, lists of messages or single strings, with the options of `Model.chat`.
      Columns: `completion`, `finish_reason`, `reasoning_content`, and `tool_calls` as JSON.
    - `"embed"` embeds texts, with the options of `Model.embed`. Column: `embedding`.

    `output` renames the first of these columns. A failed row has nulls in them and the message in
    `error`, which is null in other rows. Errors that affect every row, such as an unknown option,
    are raised when the actor starts.

    `load` has the options of `Model.load`. At most `sequences` rows of a batch are computed at the
    same time, by default 4. The default `seed` is 0, not random, so that a row that is computed again
    has the same result.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        task: str = "generate",
        column: str = "prompt",
        output: str | None = None,
        load: Options | None = None,
        **options: Any,
    ) -> None:
        self.task = find_task(task)
        self.column = column
        self.output = output or next(iter(self.task.columns))
        self.options = self.task.with_defaults(options)
        self._load = partial(Model.load, model, **{**self.task.load, **(load or {})})
        self.model = self._load()
        self.task.begin(self.model, self.options)

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """Returns the batch with the result columns."""
        columns = self.task.arrays(self.predict([_plain(value) for value in batch[self.column]]))
        first = next(iter(self.task.columns))
        return {**batch, self.output: columns.pop(first), **columns}

    def predict(self, values: Sequence[Any]) -> list[Outcome]:
        """Returns the result columns or an exception for each row."""
        outcomes = self.task.run(self.model, values, self.options)
        again = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, UNUSABLE)]
        if again:
            self.model.close()
            self.model = self._load()
            others = self.task.run(self.model, [values[at] for at in again], self.options)
            for at, outcome in zip(again, others):
                outcomes[at] = outcome
        return outcomes


def _plain(value: Any) -> Any:
    """Converts numpy values to plain Python values."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Summary:
    """Result of a run."""

    rows: int
    """Number of computed rows, including failed ones."""
    failed: int
    """Number of computed rows with an `error`."""
    kept: int
    """Number of rows that an earlier run had computed."""


def run(
    source: str,
    output: str,
    model: str | None = None,
    *,
    task: str = "generate",
    column: str = "prompt",
    key: str | None = None,
    actors: int = 1,
    num_cpus: int = 1,
    num_gpus: float = 0,
    batch_size: int = 64,
    load: Options | None = None,
    **options: Any,
) -> Summary:
    """Runs a task over a folder of Parquet and JSONL files. Continues where an earlier run ended.

    `source` and `output` are folders that all machines can access: paths, or URIs such as
    `s3://bucket/prompts`. The output consists of Parquet files, one for every `batch_size` rows,
    with the columns `key`, `prompt` (the value of `column`, as JSON if it is not a string), those
    of the task, and `error`. Every row of the source is there once; the order is unspecified.

    The `key` of a row is the value of the column of that name, which must be unique. By default it
    is made of the file, the number of the row, and a hash of the prompt. Rows whose key is in the
    output are skipped, except failed rows, which are computed again. If the output was created with
    another model, task, option or column, it is a `ValueError`. Only one run at a time may write to
    a folder.

    There are at most `actors` engines, each with `num_cpus` CPUs, which is also the default number of
    threads, and `num_gpus` GPUs. An engine computes `batch_size` rows at a time, so fewer rows need
    fewer engines. `model`, `task`, `load` and `options` are those of `Predictor`. If an engine dies,
    another one computes its rows again, one by one; a row with which this one also dies is marked as
    failed. Every completed part is logged to `logging.getLogger("tabla")`.
    """
    options = dict(find_task(task).with_defaults(options))
    rows = prompts(source, column, key)
    to = Output(output, source)
    load = load or {}
    model = os.path.abspath(model) if model is not None and os.path.exists(model) else model
    digest = ray.get(ray.remote(_digest).remote(model))
    settings = {
        "model": digest,
        "task": task,
        "column": column,
        "key": key,
        "options": options,
        "load": {name: load[name] for name in CHANGES_ROWS if name in load},
    }
    completed = to.resume(settings)
    todo = (row for row in rows if row["key"] not in completed)
    parts = iter(lambda: list(islice(todo, batch_size)), [])
    predictor = partial(Predictor, model, task=task, load={"threads": num_cpus, **load}, **options)
    engine = ray.remote(_Engine).options(num_cpus=num_cpus, num_gpus=num_gpus)
    pool = _EnginePool(partial(engine.remote, to, digest, predictor), actors)
    count = failed = 0
    try:
        for part, errors in pool.run(parts):
            if errors is None:
                # The engine died, possibly after it had written the part.
                errors = to.failed(part)
            if errors is None and len(part) > 1:
                pool.waiting.extendleft([row] for row in part)
                continue
            if errors is None:
                to.write(part, find_task(task).arrays([RuntimeError("the engine process died")]))
                errors = 1
            count, failed = count + len(part), failed + errors
            log.info("%s: %d rows, %d failed", output, count, failed)
    finally:
        pool.shutdown()
    return Summary(count, failed, len(completed))


def _digest(model: str | None) -> str:
    with Model.load(model, device="cpu", weights="mapped") as opened:
        return opened.digest.hex()


class _Engine:
    """An actor that computes parts and writes them."""

    def __init__(self, output: Output, digest: str, load: Callable[[], Predictor]) -> None:
        self.output = output
        self.digest = digest
        self.load = load

    def start(self) -> None:
        """Loads the model. Not part of `__init__`, so that errors are raised as they are."""
        self.predictor = self.load()
        digest = self.predictor.model.digest.hex()
        if digest != self.digest:
            host = socket.gethostname()
            raise ValueError(f"different model on {host}: expected digest {self.digest}, got {digest}")

    def write(self, part: Part) -> int:
        """Computes and writes a part. Returns the number of failed rows."""
        readable = [json.loads(row["value"]) for row in part if row["error"] is None]
        outcomes = iter(self.predictor.predict(readable))
        columns = self.predictor.task.arrays(
            next(outcomes) if row["error"] is None else row for row in part
        )
        self.output.write(part, columns)
        return len(part) - int(columns["error"].null_count)


class _EnginePool:
    """Pool of at most `size` engines. It starts them when parts wait for them, and replaces dead ones."""

    def __init__(self, create: Callable[[], Any], size: int) -> None:
        self.waiting: deque[Part] = deque()
        """The next parts. Parts that are computed again can be added."""
        self._create = create
        self._size = size
        self._deaths = 0
        self._idle: list[Any] = []
        self._running: dict[ray.ObjectRef[Any], tuple[Any, Part | None]] = {}
        """Engines that start or, with a part, work, by the result they will return."""

    def run(self, parts: Iterator[Part]) -> Iterator[tuple[Part, int | None]]:
        """Assigns parts to engines. Yields each completed part with the number of failed rows, or `None` if its
        engine died."""
        while True:
            # As many as engines, so that all of them start at the same time.
            self.waiting.extend(islice(parts, max(0, self._size - len(self.waiting))))
            while self.waiting and self._idle:
                engine, part = self._idle.pop(), self.waiting.popleft()
                self._running[engine.write.remote(part)] = (engine, part)
            starting = sum(part is None for _, part in self._running.values())
            for _ in range(min(self._size - len(self._running), len(self.waiting) - starting)):
                engine = self._create()
                self._running[engine.start.remote()] = (engine, None)
            if not self.waiting and starting == len(self._running):
                return
            given, failed = self._wait()
            if given is not None:
                yield given, failed

    def _wait(self) -> tuple[Part | None, int | None]:
        [ref], _ = ray.wait(list(self._running))
        engine, given = self._running.pop(ref)
        try:
            failed = ray.get(ref)
        except RayActorError:
            ray.kill(engine)  # it may only be unreachable
            self._deaths += 1
            if given is None and self._deaths > DEATHS:
                raise
            return given, None
        self._deaths = 0
        self._idle.append(engine)
        return given, failed

    def shutdown(self) -> None:
        """Kills all engines, including those that are starting, which would hold their CPUs until then."""
        for engine in [*self._idle, *(engine for engine, _ in self._running.values())]:
            ray.kill(engine)
        self._idle.clear()
        self._running.clear()
