"""Folders of `tabla.ray.run`: input in Parquet and JSONL, output in Parquet."""

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

from ._tasks import Outcome, Row, attempt, described

SETTINGS = "_tabla.json"
"""File in the output folder with the settings of the run."""

KEYS = pa.schema({"key": pa.string(), "error": pa.string()})


def resolve(path: str) -> tuple[pf.FileSystem, str]:
    """Converts a path or URI to a pyarrow file system and path."""
    system, inner = pf.FileSystem.from_uri(path if "://" in path else os.path.abspath(path))
    return system, inner.rstrip("/")


def prompts(source: str, column: str, key: str | None) -> Iterator[Row]:
    """Returns the rows of a folder's files: the `key` of each, the `value` of its column as JSON, or
    an `error`."""
    system, folder = resolve(source)
    selected = system.get_file_info(pf.FileSelector(folder, recursive=True))
    files = sorted(info.path for info in selected if _extension(info.path) in READERS)
    if not files:
        raise FileNotFoundError(f"{source} has no {' or '.join(READERS)} files")
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
        raise ValueError(f"the row has no column {name!r}")
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
        raise ValueError(f"expected a JSON object, got {type(value).__name__}")
    return value


READERS = {".parquet": _parquet, ".jsonl": _jsonl}


class Output:
    """Output folder of a run. Each part is a file named after the hash of its keys, so that writing a
    part again replaces it."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.system, self.folder = resolve(path)
        if f"{self.folder}/".startswith(f"{resolve(source)[1]}/"):
            raise ValueError(f"the output {path} is inside the source {source}")

    def resume(self, settings: Mapping[str, Any]) -> set[str]:
        """Deletes incomplete files and failed rows, and returns the keys of the other rows. Raises
        `ValueError` if the output was created with other settings; a new output stores them."""
        self.system.create_dir(self.folder, recursive=True)
        files = self.system.get_file_info(pf.FileSelector(self.folder))
        paths = {info.base_name: info.path for info in files}
        parts = [name for name in paths if _extension(name) == ".parquet"]
        if parts and SETTINGS in paths:
            with self.system.open_input_stream(paths[SETTINGS]) as file:
                self._check_settings(json.loads(file.read()), json.loads(json.dumps(settings)))
        elif any(name != SETTINGS and not name.startswith(".") for name in paths):
            raise ValueError(f"{self.path} is not empty and was not created by a run")
        else:
            with self._atomic_file(f"{self.folder}/{SETTINGS}") as file:
                file.write(json.dumps(settings, indent=1).encode())
        # Deletes incomplete files of `_atomic_file`, but no other hidden files.
        for name, path in paths.items():
            if name == f".{SETTINGS}" or (name.startswith(".") and _extension(name) == ".parquet"):
                self.system.delete_file(path)
        return self._keys()

    def _check_settings(self, stored: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        for name, value in settings.items():
            if stored[name] != value:
                raise ValueError(
                    f"{self.path} was created with {name} {stored[name]!r} and cannot continue with "
                    f"{value!r}: use another folder"
                )

    def _keys(self) -> set[str]:
        parts = pd.dataset(self.folder, filesystem=self.system, format="parquet", schema=KEYS)
        rows = parts.to_table(columns=["key", "error", "__filename"])
        failed = rows["error"].is_valid()
        for path in pc.unique(rows["__filename"].filter(failed)).to_pylist():
            table = pq.read_table(path, filesystem=self.system)
            with self._atomic_file(path) as file:
                pq.write_table(table.filter(table["error"].is_null()), file)
        return set(rows["key"].filter(pc.invert(failed)).to_pylist())

    def write(self, rows: Sequence[Row], columns: Mapping[str, pa.Array]) -> None:
        """Writes a part: keys, prompts and result columns."""
        keys = pa.array([row["key"] for row in rows], pa.string())
        prompts = pa.array([_prompt_text(row["value"]) for row in rows], pa.string())
        with self._atomic_file(self._path(rows)) as file:
            pq.write_table(pa.table({"key": keys, "prompt": prompts, **columns}), file)

    def failed(self, rows: Sequence[Row]) -> int | None:
        """Returns the number of failed rows of a part, or `None` if it is not written."""
        path = self._path(rows)
        if not self.system.get_file_info(path).is_file:
            return None
        errors = pq.read_table(path, filesystem=self.system, columns=["error"])["error"]
        return len(rows) - int(errors.null_count)

    def _path(self, rows: Sequence[Row]) -> str:
        keys = "\n".join(row["key"] for row in rows)
        return f"{self.folder}/{hashlib.sha256(keys.encode()).hexdigest()[:32]}.parquet"

    @contextmanager
    def _atomic_file(self, path: str) -> Iterator[pa.NativeFile]:
        """Opens a file that replaces the file at `path` when it is complete."""
        folder, name = os.path.split(path)
        with self.system.open_output_stream(f"{folder}/.{name}") as file:
            yield file
        self.system.move(f"{folder}/.{name}", path)


def _prompt_text(value: str | None) -> str | None:
    """Returns a string as it is, any other value as JSON."""
    plain = None if value is None else json.loads(value)
    return plain if isinstance(plain, str) else value
