"""Many prompts on many machines: a class for Ray Data, and a run over a folder that can be resumed.

Each actor has an engine of its own. A row that fails gets an `error` and takes no other with it; an actor
that dies is replaced, and its rows are done again. docs/ray.md shows both ways.
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
import ray
from numpy.typing import NDArray
from ray.exceptions import RayActorError

from ._errors import DeviceLostError, PoisonedError
from ._model import Model
from ._ray_folder import Output, prompts
from ._ray_tasks import TASKS, Options, Outcome, Row

UNUSABLE = (DeviceLostError, PoisonedError)
"""A model that fails so must be loaded anew, and its rows are not to blame."""

CHANGES_ROWS = ("precision", "max_context", "cache_type", "head_type", "samplers", "i2s_layout")
"""What of `load` changes what comes out; the rest is how a machine does it."""

DEATHS = 3
"""So many engines may die one after the other without a result."""

log = logging.getLogger("tabla")

Part = List[Row]
"""Rows that are run together, and written to one file."""


class Predictor:
    """A class for `ray.data.Dataset.map_batches`: texts or conversations become completions or embeddings.

    `task` says what is done with the rows of `column`:

    - `"generate"` continues texts, with the options of `Model.generate`: columns `completion` and
      `finish_reason`.
    - `"chat"` answers conversations, lists of messages or a text alone, with the options of `Model.chat`:
      `completion`, `finish_reason`, `reasoning_content`, and `tool_calls` as JSON.
    - `"embed"` embeds texts, with the options of `Model.embed`: `embedding`.

    `output` is another name for the first of these. A row that fails has nulls there and says why in
    `error`, which is null in all others. What would fail every row, like an option that nobody knows, is
    raised when the actor starts.

    `load` has the options of `Model.load`. As many rows of a batch go on together as it has `sequences`,
    4 where it does not say.
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
        if task not in TASKS:
            raise ValueError(f"task is {task!r}, none of {', '.join(TASKS)}")
        self.task = TASKS[task]
        self.column = column
        self.output = output or next(iter(self.task.columns))
        self.options = options
        self._load = partial(Model.load, model, **{**self.task.load, **(load or {})})
        self.model = self._load()
        self.task.begin(self.model, options)

    def __call__(self, batch: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        """The batch with the columns that it gets."""
        columns = self.task.arrays(self.predict([_plain(value) for value in batch[self.column]]))
        first = next(iter(self.task.columns))
        return {**batch, self.output: columns.pop(first), **columns}

    def predict(self, values: Sequence[Any]) -> list[Outcome]:
        """What becomes of each row: its columns, or an exception."""
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
    """A row without what numpy has made of it."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


@dataclass(frozen=True)
class Summary:
    """What a run did."""

    rows: int
    """Rows that it computed."""
    failed: int
    """Those of them that have an `error`."""
    kept: int
    """Rows that were there already."""


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
    """Runs a task over a folder of Parquet and JSONL files, and goes on where an earlier run has ended.

    `source` and `output` are folders that all machines see: paths, or URIs like `s3://bucket/prompts`. The
    output is Parquet files, each written as `batch_size` rows are done, with the columns `key`, `prompt`
    (what stood in `column`, as JSON where it is no text), those of the task, and `error`. Every row of the
    source is there once, in no order.

    A row's `key` is what stands in the column of that name, and must be no other row's. Where none is named
    it is made of the file, the number of the row, and a hash of what stands there. Rows whose key is in the
    output are left out, but for those that failed, which are done again. Another model, task, option or
    column than the output was made with is a `ValueError`. One run at a time writes to a folder.

    There are `actors` engines, each with `num_cpus` CPUs, which are its threads where `load` does not say,
    and `num_gpus` GPUs. `model`, `task`, `load` and `options` are those of `Predictor`. Where an engine dies,
    another does its rows again, one by one; a row with which that one dies, too, has failed.
    `logging.getLogger("tabla")` hears of every part.
    """
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
    there = to.resume(settings)
    todo = (row for row in rows if row["key"] not in there)
    parts = iter(lambda: list(islice(todo, batch_size)), [])
    predictor = partial(Predictor, model, task=task, load={"threads": num_cpus, **load}, **options)
    engine = ray.remote(_Engine).options(num_cpus=num_cpus, num_gpus=num_gpus)
    crew = _Crew(partial(engine.remote, to, digest, predictor), actors)
    count = failed = 0
    try:
        for part, errors in crew.run(parts):
            if errors is None:
                # Its engine died, perhaps just after it had written the part.
                errors = to.failed(part)
            if errors is None and len(part) > 1:
                crew.again.extend([row] for row in part)
                continue
            if errors is None:
                to.write(part, TASKS[task].arrays([RuntimeError("the process of the engine died")]))
                errors = 1
            count, failed = count + len(part), failed + errors
            log.info("%s: %d rows, %d failed", output, count, failed)
    finally:
        crew.dismiss()
    return Summary(count, failed, len(there))


def _digest(model: str | None) -> str:
    with Model.load(model, device="cpu", weights="mapped") as opened:
        return opened.digest.hex()


class _Engine:
    """An actor: it runs parts, and writes them."""

    def __init__(self, output: Output, digest: str, load: Callable[[], Predictor]) -> None:
        self.output = output
        self.digest = digest
        self.load = load

    def start(self) -> None:
        """Loads the model. It is a call of its own so that its errors are, too."""
        self.predictor = self.load()
        digest = self.predictor.model.digest.hex()
        if digest != self.digest:
            raise ValueError(f"{socket.gethostname()} has another model: {digest}, not {self.digest}")

    def write(self, part: Part) -> int:
        """Returns how many rows have failed."""
        readable = [json.loads(row["value"]) for row in part if row["error"] is None]
        outcomes = iter(self.predictor.predict(readable))
        columns = self.predictor.task.arrays(
            next(outcomes) if row["error"] is None else row for row in part
        )
        self.output.write(part, columns)
        return len(part) - int(columns["error"].null_count)


class _Crew:
    """Engines, of which the dead are replaced."""

    def __init__(self, hire: Callable[[], Any], size: int) -> None:
        self.again: deque[Part] = deque()
        self._hire = hire
        self._deaths = 0
        self._engines: list[Any] = []
        self._idle: list[Any] = []
        self._under_way: dict[ray.ObjectRef[Any], tuple[Any, Part | None]] = {}
        for _ in range(size):
            self._start()

    def _start(self) -> None:
        engine = self._hire()
        self._engines.append(engine)
        self._under_way[engine.start.remote()] = (engine, None)

    def run(self, parts: Iterator[Part]) -> Iterator[tuple[Part, int | None]]:
        """Gives parts to engines, each as it is free, those of `again` first. Yields a part as it is done,
        with how many of its rows have failed, or `None` where its engine died."""
        part: Part | None = None
        while True:
            part = part or (self.again.popleft() if self.again else next(parts, None))
            if part and self._idle:
                engine = self._idle.pop()
                self._under_way[engine.write.remote(part)] = (engine, part)
                part = None
            elif part or any(given for _, given in self._under_way.values()):
                given, failed = self._wait()
                if given is not None:
                    yield given, failed
            else:
                return

    def _wait(self) -> tuple[Part | None, int | None]:
        [ref], _ = ray.wait(list(self._under_way))
        engine, given = self._under_way.pop(ref)
        try:
            failed = ray.get(ref)
        except RayActorError:
            ray.kill(engine)  # It may be out of reach alone.
            self._deaths += 1
            if given is None and self._deaths > DEATHS:
                raise
            self._start()
            return given, None
        self._deaths = 0
        self._idle.append(engine)
        return given, failed

    def dismiss(self) -> None:
        """Ends all of them."""
        for engine in self._engines:
            ray.kill(engine)
