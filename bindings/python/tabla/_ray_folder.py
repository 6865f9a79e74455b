"""The folders of `tabla.ray.run`: prompts in Parquet and JSONL, and what becomes of them in Parquet."""

from __future__ import annotations

import hashlib
import io
import json
import os
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pd
import pyarrow.fs as pf
import pyarrow.parquet as pq

from ._ray_tasks import Outcome, Row, attempt, described

SETTINGS = "_tabla.json"
"""Beside the parts of an output: what they were made with."""

KEYS = pa.schema({"key": pa.string(), "error": pa.string()})


def place(path: str) -> tuple[pf.FileSystem, str]:
    """A path or an URI as pyarrow has it."""
    system, inner = pf.FileSystem.from_uri(path if "://" in path else os.path.abspath(path))
    return system, inner.rstrip("/")


def prompts(source: str, column: str, key: str | None) -> Iterator[Row]:
    """The rows of a folder's files: the `key` of each, the `value` in its column as JSON, and an `error`
    where there is none."""
    system, folder = place(source)
    selected = system.get_file_info(pf.FileSelector(folder, recursive=True))
    files = sorted(info.path for info in selected if _extension(info.path) in READERS)
    if not files:
        raise FileNotFoundError(f"{source} has no files that end with {' or '.join(READERS)}")
    return (
        _prompt(f"{file[len(folder) + 1 :]}:{number}", row, column, key)
        for file in files
        for number, row in enumerate(READERS[_extension(file)](system, file), 1)
    )


def _extension(path: str) -> str:
    return os.path.splitext(path)[1]


def _prompt(where: str, row: Outcome, column: str, key: str | None) -> Row:
    value = error = own = None
    try:
        if isinstance(row, Exception):
            raise row
        value = json.dumps(_field(row, column))
        own = None if key is None else str(_field(row, key))
    except Exception as failure:
        error = described(failure)
    digest = hashlib.sha256((value or "").encode()).hexdigest()[:16]
    return {"key": own or f"{where}:{digest}", "value": value, "error": error}


def _field(row: Row, name: str) -> Any:
    if row.get(name) is None:
        raise ValueError(f"the row has no {name!r}")
    return row[name]


def _parquet(system: pf.FileSystem, path: str) -> Iterator[Outcome]:
    with system.open_input_file(path) as file:
        for batch in pq.ParquetFile(file).iter_batches(1024):
            yield from batch.to_pylist()


def _jsonl(system: pf.FileSystem, path: str) -> Iterator[Outcome]:
    with system.open_input_stream(path) as file:
        for line in io.BufferedReader(file):
            if not line.isspace():
                yield attempt(_object, line)


def _object(line: bytes) -> Row:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError(f"the line is a JSON {type(value).__name__}, not an object")
    return value


READERS = {".parquet": _parquet, ".jsonl": _jsonl}


class Output:
    """The folder that a run writes: a file for each part, named after the keys of its rows, so that a part
    that is written again takes its own place."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.system, self.folder = place(path)
        if f"{self.folder}/".startswith(f"{place(source)[1]}/"):
            raise ValueError(f"the output {path} is in the source {source}, and would be read as one")

    def resume(self, settings: Mapping[str, Any]) -> set[str]:
        """The keys that are there, once what is half written or has failed is taken away. An output of
        other settings is refused; a new one gets these."""
        self.system.create_dir(self.folder, recursive=True)
        there = self.system.get_file_info(pf.FileSelector(self.folder))
        paths = {info.base_name: info.path for info in there}
        parts = [name for name in paths if _extension(name) == ".parquet"]
        if parts and SETTINGS in paths:
            with self.system.open_input_stream(paths[SETTINGS]) as file:
                self._agree(json.loads(file.read()), json.loads(json.dumps(settings)))
        elif any(name != SETTINGS and not name.startswith(".") for name in paths):
            raise ValueError(f"{self.path} has files, and is not what a run has left")
        else:
            with self._whole(f"{self.folder}/{SETTINGS}") as file:
                file.write(json.dumps(settings, indent=1).encode())
        # What `_whole` has left half written, and no other hidden file.
        for name, path in paths.items():
            if name == f".{SETTINGS}" or (name.startswith(".") and _extension(name) == ".parquet"):
                self.system.delete_file(path)
        return self._keys()

    def _agree(self, made_with: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if made_with[name] != value:
                raise ValueError(
                    f"{self.path} was made with {name} {made_with[name]!r} and cannot go on with "
                    f"{value!r}: take another folder"
                )

    def _keys(self) -> set[str]:
        parts = pd.dataset(self.folder, filesystem=self.system, format="parquet", schema=KEYS)
        rows = parts.to_table(columns=["key", "error", "__filename"])
        failed = rows["error"].is_valid()
        for path in pc.unique(rows["__filename"].filter(failed)).to_pylist():
            table = pq.read_table(path, filesystem=self.system)
            with self._whole(path) as file:
                pq.write_table(table.filter(table["error"].is_null()), file)
        return set(rows["key"].filter(pc.invert(failed)).to_pylist())

    def write(self, rows: Sequence[Row], columns: Mapping[str, pa.Array]) -> None:
        """Writes a part: keys, prompts, and what has become of them."""
        keys = pa.array([row["key"] for row in rows], pa.string())
        prompts = pa.array([_shown(row["value"]) for row in rows], pa.string())
        with self._whole(self._path(rows)) as file:
            pq.write_table(pa.table({"key": keys, "prompt": prompts, **columns}), file)

    def failed(self, rows: Sequence[Row]) -> int | None:
        """How many rows of a part have failed; `None` where it is not written."""
        path = self._path(rows)
        if not self.system.get_file_info(path).is_file:
            return None
        errors = pq.read_table(path, filesystem=self.system, columns=["error"])["error"]
        return len(rows) - int(errors.null_count)

    def _path(self, rows: Sequence[Row]) -> str:
        keys = "\n".join(row["key"] for row in rows)
        return f"{self.folder}/{hashlib.sha256(keys.encode()).hexdigest()[:32]}.parquet"

    @contextmanager
    def _whole(self, path: str) -> Iterator[pa.NativeFile]:
        """A file that is there once it is whole, in the place of what was there."""
        folder, name = os.path.split(path)
        with self.system.open_output_stream(f"{folder}/.{name}") as file:
            yield file
        self.system.move(f"{folder}/.{name}", path)


def _shown(value: str | None) -> str | None:
    """A text as it is, anything else as JSON."""
    plain = None if value is None else json.loads(value)
    return plain if isinstance(plain, str) else value
