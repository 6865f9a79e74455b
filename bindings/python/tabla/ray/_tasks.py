"""Tasks of `tabla.ray`. A row that fails does not affect other rows."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence, Union

import pyarrow as pa
from tabla import Model

Row = Mapping[str, Any]
Outcome = Union[Row, Exception]
"""The result columns of a row, or its error."""

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """Computation on rows."""

    run: Callable[[Model, Sequence[Any], Options], list[Outcome]]
    begin: Callable[[Model, Options], object]
    """Checks the options and the model: raises errors that would affect every row."""
    load: Options
    """Default load options of the task."""
    options: Options
    """Default options of the task, which differ from those of the method of `Model`."""
    columns: Mapping[str, pa.DataType]

    def with_defaults(self, options: Options) -> Options:
        """Returns the options with the defaults of the task in place of missing ones and of `None`."""
        return {**self.options, **{name: value for name, value in options.items() if value is not None}}

    def arrays(self, outcomes: Iterable[Outcome]) -> dict[str, pa.Array]:
        """Returns the result columns and the `error` column."""
        rows = [
            {"error": described(outcome)} if isinstance(outcome, Exception) else outcome
            for outcome in outcomes
        ]
        columns = {**self.columns, "error": pa.string()}
        return {name: pa.array([row.get(name) for row in rows], columns[name]) for name in columns}


def attempt(function: Callable[[Any], Row], value: Any) -> Outcome:
    """Returns the result of a function, or its exception."""
    try:
        return function(value)
    except Exception as error:
        return error


def described(error: Exception) -> str:
    """Formats an error for the `error` column."""
    return f"{type(error).__name__}: {error}"


def _generate(model: Model, values: Sequence[Any], options: Options) -> list[Outcome]:
    def continued(texts: list[str]) -> Iterator[Outcome]:
        for answer in model.generate_many(texts, return_exceptions=True, **options):
            if isinstance(answer, Exception):
                yield answer
            else:
                yield {"completion": answer.text, "finish_reason": answer.finish_reason}

    return _of_texts(values, continued)


def _begin_generate(model: Model, options: Options) -> None:
    with model.stream("a", **options) as pieces:
        next(pieces)


def _chat(model: Model, values: Sequence[Any], options: Options) -> list[Outcome]:
    def answered(value: Any) -> Row:
        choice = model.chat(_messages(value), **options)["choices"][0]
        message = choice["message"]
        calls = message.get("tool_calls")
        return {
            "completion": message["content"],
            "reasoning_content": message.get("reasoning_content"),
            "tool_calls": json.dumps(calls) if calls else None,
            "finish_reason": choice["finish_reason"],
        }

    # Each conversation is a separate call. Twice as many threads as sequences keep the engine busy: one
    # half runs, the other half waits for a free sequence.
    with ThreadPoolExecutor(2 * model.info.sequences) as threads:
        return list(threads.map(lambda value: attempt(answered, value), values))


def _begin_chat(model: Model, options: Options) -> None:
    chunks = model.chat(_messages("a"), **options, stream=True)
    next(chunks)
    chunks.close()


def _messages(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


def _embed(model: Model, values: Sequence[Any], options: Options) -> list[Outcome]:
    def embedded(texts: list[str]) -> Iterator[Outcome]:
        try:
            rows = list(model.embed(texts, **options))
        except Exception:
            # At least one text failed. Embeds each one alone to find out which.
            for text in texts:
                yield attempt(lambda text: {"embedding": model.embed(text, **options)[0]}, text)
        else:
            yield from ({"embedding": row} for row in rows)

    return _of_texts(values, embedded)


def _begin_embed(model: Model, options: Options) -> None:
    model.embed("a", **options)


def _of_texts(
    values: Sequence[Any], run: Callable[[list[str]], Iterable[Outcome]]
) -> list[Outcome]:
    """Runs all strings together; other values are errors."""
    outcomes = iter(run([value for value in values if isinstance(value, str)]))
    return [
        next(outcomes)
        if isinstance(value, str)
        else TypeError(f"the row must be str, not {type(value).__name__}")
        for value in values
    ]


SEQUENCES = {"sequences": 4}
# A row that is computed again has the same result.
FIXED_SEED = {"seed": 0}
TEXT = {"completion": pa.string(), "finish_reason": pa.string()}
MESSAGE = {**TEXT, "reasoning_content": pa.string(), "tool_calls": pa.string()}
EMBEDDING = {"embedding": pa.list_(pa.float32())}

TASKS = {
    "generate": Task(_generate, _begin_generate, SEQUENCES, FIXED_SEED, TEXT),
    "chat": Task(_chat, _begin_chat, SEQUENCES, FIXED_SEED, MESSAGE),
    "embed": Task(_embed, _begin_embed, {"embeddings": True}, {}, EMBEDDING),
}


def find_task(name: str) -> Task:
    """Returns the task of a name."""
    if name not in TASKS:
        raise ValueError(f"invalid task {name!r}: expected one of {', '.join(TASKS)}")
    return TASKS[name]
