"""`tabla.ray`: failed rows, dead actors, resumed runs.

Skipped if Ray is not installed; with TABLA_REQUIRE_RAY=1 that is a failure.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Iterator, Mapping

import numpy as np
import pytest
import tabla

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
    import ray.data
except ImportError as missing:
    if os.environ.get("TABLA_REQUIRE_RAY"):
        raise
    reason = f"{missing}: the tests of tabla.ray are skipped, pip install 'tabla-runtime[ray]' runs them"
    print(reason, file=sys.__stderr__)
    pytest.skip(reason, allow_module_level=True)

import tabla.ray
from tabla.ray import Predictor, Summary, run

from conftest import ARCH, ROOT
from test_chat import HERMES, TOOLS

# Warnings of Ray and its dependencies.
pytestmark = pytest.mark.filterwarnings("default", "ignore::DeprecationWarning:ray")

untyped: Any = ray
"""For functions of Ray that have no annotations."""

BERT = str(ARCH / "bert/model.gguf")
PAGE = (ROOT / "docs/ray.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "bindings/python/examples").glob("ray_*.py"))
PROGRAMS = {
    "docs/ray.md": "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)),
    **{path.name: path.read_text(encoding="utf-8") for path in EXAMPLES},
}
CPUS = 4
"""CPUs of the cluster: those of two engines, and some for the tasks of Ray Data."""
LOAD = {"device": "cpu", "max_context": 64, "threads": 1}
SHORT: dict[str, Any] = {"load": LOAD, "max_tokens": 4}
LONG = "The fox " * 100
"""A prompt that does not fit `LOAD`."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts a local cluster. Returns its address."""
    here = os.getcwd()
    # Ray's processes import from the folder that it is started in; the current one has the package's source.
    os.chdir(tmp_path_factory.mktemp("cluster"))
    context: Any = ray.init(
        num_cpus=CPUS, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False
    )
    os.chdir(here)
    untyped.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # this module is not importable there
    yield context.address_info["address"]
    ray.shutdown()


def column(*values: Any) -> dict[str, Any]:
    batch = np.empty(len(values), object)
    batch[:] = values
    return {"prompt": batch}


def lists(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values.tolist() for name, values in columns.items() if name != "prompt"}


# One actor


def test_failed_text_does_not_affect_others(model: tabla.Model) -> None:
    done = lists(Predictor(**SHORT)(column("Once", None, LONG, 5, "The")))
    texts = [model.generate(prompt, max_tokens=4, seed=0).text for prompt in ("Once", "The")]
    assert done["completion"] == [texts[0], None, None, None, texts[1]]
    assert done["finish_reason"] == ["length", None, None, None, "length"]
    assert done["error"][0] is done["error"][4] is None
    assert done["error"][1] == "TypeError: the row must be str, not NoneType"
    assert re.match("(StateError|TooLargeError): .*64", done["error"][2])
    assert done["error"][3] == "TypeError: the row must be str, not int"


def test_failed_conversation_does_not_affect_others() -> None:
    schema = {"enum": [7]}
    predictor = Predictor(
        task="chat",
        output="answer",
        load={**LOAD, "max_context": 256},
        chat_template="chatml",
        response_format={"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    )
    # Arrow converts lists of structs to numpy like this.
    messages = np.array([{"role": "user", "content": "How old?", "name": None}], object)
    done = lists(predictor(column("How old?", messages, [{"role": "user"}], 5)))
    assert done["answer"][:2] == ["7", "7"]
    assert done["answer"][2:] == [None, None]
    assert done["finish_reason"][:2] == ["stop"] * 2
    assert [error is None for error in done["error"]] == [True, True, False, False]
    assert done["tool_calls"] == done["reasoning_content"] == [None] * 4


def test_tool_calls_are_a_column() -> None:
    predictor = Predictor(
        task="chat",
        load={**LOAD, "max_context": 512},
        chat_template=HERMES,
        tools=TOOLS,
        tool_choice="required",
    )
    done = lists(predictor(column("What is it like outside?")))
    assert done["error"] == [None]
    [call] = json.loads(done["tool_calls"][0])
    assert call["function"]["name"] in ["weather", "time"]
    assert json.loads(call["function"]["arguments"])["city"] in ["Paris", "Rome"]
    assert (done["completion"], done["finish_reason"]) == ([None], ["tool_calls"])


def test_failed_embedding_does_not_affect_others(bert: tabla.Model) -> None:
    texts = ["the sun", "the fox"]
    predictor = Predictor(BERT, task="embed", load={"device": "cpu", "precision": "exact"})
    assert lists(predictor(column(*texts)))["embedding"] == bert.embed(texts).tolist()
    done = lists(predictor(column(texts[0], LONG, None, texts[1])))
    first, second = bert.embed(texts).tolist()
    assert done["embedding"] == [first, None, None, second]
    assert done["error"][1].startswith("TooLargeError: ")
    assert done["error"][2].startswith("TypeError: ")


def test_errors_of_every_row_are_raised() -> None:
    with pytest.raises(TypeError, match="did you mean 'max_tokens'"):
        Predictor(load=LOAD, max_tokns=4)
    with pytest.raises(tabla.ArgumentError, match="temperature"):
        Predictor(load=LOAD, temperature=-1)
    with pytest.raises(ValueError, match="invalid task 'embedd': expected one of generate, chat, embed"):
        Predictor(task="embedd")
    with pytest.raises(tabla.TablaError, match="chat template"):
        Predictor(task="chat", load=LOAD)


def test_seed_is_fixed_by_default(model: tabla.Model) -> None:
    values = ["Once", "The"]
    options: dict[str, Any] = {"load": LOAD, "max_tokens": 8, "temperature": 2, "top_k": 0}
    done = lists(Predictor(**options)(column(*values)))
    assert done["completion"] == [
        model.generate(value, max_tokens=8, temperature=2, top_k=0, seed=0).text for value in values
    ]
    assert lists(Predictor(**options, seed=None)(column(*values))) == done
    assert lists(Predictor(**options, seed=1)(column(*values))) != done
    chat = Predictor(task="chat", chat_template="chatml", **options)
    assert lists(chat(column(*values))) == lists(chat(column(*values)))


def test_poisoned_model_is_loaded_again() -> None:
    predictor = Predictor(**SHORT)
    lost, work = predictor.model, predictor.task.run

    def poisoned(model: tabla.Model, values: Any, options: Any) -> Any:
        outcomes = work(model, values, options)
        return [outcomes[0], tabla.PoisonedError("poisoned")] if model is lost else outcomes

    predictor.task = dataclasses.replace(predictor.task, run=poisoned)
    done = lists(predictor(column("Once", "The")))
    assert done["error"] == [None, None]
    assert lost.closed and not predictor.model.closed


# Two actors


def begin(folder: Path) -> None:
    """Writes the id of this process to a folder, then waits until there are three: two processes, one of
    which `kill_one` kills before it has computed its rows, and its replacement."""
    (folder / str(os.getpid())).touch()
    deadline = time.monotonic() + 60
    while len(list(folder.iterdir())) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)


def kill_one(folder: Path) -> threading.Thread:
    """Kills one of the first two processes that write their ids to a folder."""

    def kill() -> None:
        while len(ids := list(folder.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(int(ids[0].name), signal.SIGKILL)

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread


def rows_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(output).to_pylist()
    return rows


def write_prompts(folder: Path, count: int) -> list[str]:
    """Writes half of the prompts as JSONL, half as Parquet."""
    prompts = [f"The fox saw {number} birds" for number in range(count)]
    half = count // 2
    (folder / "more").mkdir(parents=True)
    lines = [json.dumps({"id": at, "prompt": text}) for at, text in enumerate(prompts[:half])]
    (folder / "a.jsonl").write_text("\n\n".join(lines), encoding="utf-8")
    table = pa.table({"id": list(range(half, count)), "prompt": prompts[half:]})
    pq.write_table(table, folder / "more/b.parquet")
    return prompts


def test_dataset_replaces_a_dead_actor(cluster: str, tmp_path: Path) -> None:
    class Marked(Predictor):
        def __call__(self, batch: Any) -> Any:
            begin(tmp_path)
            return super().__call__(batch)

    killer = kill_one(tmp_path)
    rows = [{"id": number, "prompt": LONG if number == 5 else "Once"} for number in range(16)]
    done = (
        ray.data.from_items(rows, override_num_blocks=8)
        .map_batches(
            Marked,
            fn_constructor_kwargs=SHORT,
            compute=ray.data.ActorPoolStrategy(size=2),
            batch_size=2,
            num_cpus=1,
        )
        .take_all()
    )
    killer.join(timeout=10)
    assert not killer.is_alive() and len(list(tmp_path.iterdir())) == 3
    assert Counter(row["id"] for row in done) == Counter(range(16))
    assert [row["id"] for row in done if row["error"] is not None] == [5]
    assert len({row["completion"] for row in done if row["id"] != 5}) == 1


def test_run_replaces_a_dead_engine(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tmp_path / "ids"
    ids.mkdir()

    class Marked(tabla.ray._Engine):
        def write(self, part: Any) -> int:
            begin(ids)
            return super().write(part)

    monkeypatch.setattr(tabla.ray, "_Engine", Marked)
    prompts = write_prompts(tmp_path / "in", 24)
    killer = kill_one(ids)
    output = tmp_path / "out"
    summary = run(str(tmp_path / "in"), str(output), actors=2, batch_size=4, **SHORT)
    killer.join(timeout=10)
    assert not killer.is_alive() and len(list(ids.iterdir())) == 3
    assert summary == Summary(rows=24, failed=0, kept=0)
    assert Counter(row["prompt"] for row in rows_of(output)) == Counter(prompts)
    assert all(row["completion"] for row in rows_of(output))
    assert not list(output.glob(".*"))


def test_row_that_kills_engines_is_marked_as_failed(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mortal(tabla.ray._Engine):
        def write(self, part: Any) -> int:
            if any("saw 3 birds" in row["value"] for row in part):
                os.kill(os.getpid(), signal.SIGKILL)
            failed = super().write(part)
            if any("saw 0 birds" in row["value"] for row in part):
                # Dies after writing the part and before returning.
                os.kill(os.getpid(), signal.SIGKILL)
            return failed

    monkeypatch.setattr(tabla.ray, "_Engine", Mortal)
    prompts = write_prompts(tmp_path / "in", 6)
    output = tmp_path / "out"
    assert run(str(tmp_path / "in"), str(output), batch_size=3, **SHORT) == Summary(6, 1, 0)
    assert Counter(row["prompt"] for row in rows_of(output)) == Counter(prompts)
    [failed] = [row for row in rows_of(output) if row["error"] is not None]
    assert failed["prompt"] == prompts[3]
    assert failed["error"] == "RuntimeError: the engine process died"


def test_run_fails_if_engines_cannot_start(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailsToStart(tabla.ray._Engine):
        def start(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    write_prompts(tmp_path / "in", 2)
    with pytest.raises(TypeError, match="did you mean 'max_tokens'"):
        run(str(tmp_path / "in"), str(tmp_path / "out"), load=LOAD, max_tokns=4)
    monkeypatch.setattr(tabla.ray, "_Engine", FailsToStart)
    with pytest.raises(ray.exceptions.RayActorError):
        run(str(tmp_path / "in"), str(tmp_path / "out"), **SHORT)
    assert sorted(os.listdir(tmp_path / "out")) == ["_tabla.json"]


def test_only_needed_engines_start(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(tabla.ray._Engine):
        def start(self) -> None:
            (tmp_path / f"{os.getpid()}.started").touch()
            super().start()

    monkeypatch.setattr(tabla.ray, "_Engine", Counted)
    source, output = str(tmp_path / "in"), str(tmp_path / "out")
    write_prompts(tmp_path / "in", 4)
    assert run(source, output, actors=2, batch_size=4, **SHORT) == Summary(rows=4, failed=0, kept=0)
    assert len(list(tmp_path.glob("*.started"))) == 1
    assert run(source, output, actors=2, batch_size=4, **SHORT) == Summary(rows=0, failed=0, kept=4)
    assert len(list(tmp_path.glob("*.started"))) == 1
    # Its engines are killed, and do not hold their CPUs.
    wait_for_cpus()


def wait_for_cpus() -> None:
    """Waits until Ray has ended its actors. Fails after a minute."""
    for _ in range(600):
        if untyped.available_resources().get("CPU") == CPUS:
            return
        time.sleep(0.1)
    pytest.fail(f"engines hold CPUs: {untyped.available_resources()}")


def test_interrupted_run_is_resumed(cluster: str, tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "in", 40)
    source, output = str(tmp_path / "in"), tmp_path / "out"
    options: dict[str, Any] = {"key": "id", "batch_size": 1, **SHORT}
    program = f"import tabla.ray; tabla.ray.run({source!r}, {str(output)!r}, **{options!r})"
    driver = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": cluster, "RAY_LOG_TO_DRIVER": "0"},
    )
    while len(list(output.glob("[!.]*.parquet"))) < 2:
        assert driver.poll() is None
        time.sleep(0.01)
    driver.kill()
    driver.wait()
    wait_for_cpus()
    before = {part: part.stat().st_mtime_ns for part in output.glob("[!.]*.parquet")}
    completed = len(rows_of(output))
    assert 2 <= completed < 40
    (output / ".half.parquet").write_bytes(b"PAR1")

    assert run(source, str(output), **options) == Summary(rows=40 - completed, failed=0, kept=completed)
    assert sorted(int(row["key"]) for row in rows_of(output)) == list(range(40))
    assert Counter(row["prompt"] for row in rows_of(output)) == Counter(prompts)
    assert all(part.stat().st_mtime_ns == written for part, written in before.items())
    assert not list(output.glob(".*"))
    assert run(source, str(output), actors=2, **options) == Summary(0, 0, 40)

    for change, message in {
        "max_tokens": "created with options {'seed': 0, 'max_tokens': 4} and cannot continue with "
        "{'seed': 0, 'max_tokens': 5}",
        "key": "created with key 'id' and cannot continue with 'prompt'",
        "load": "created with load {'max_context': 64} and cannot continue with {}",
        "model": "created with model '",
    }.items():
        other = {"max_tokens": 5, "key": "prompt", "load": {"device": "cpu"}, "model": BERT}
        with pytest.raises(ValueError, match=re.escape(message)):
            run(source, str(output), **{**options, change: other[change]})


def test_failed_rows_are_computed_again(cluster: str, tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    prompts = write_prompts(source, 4)
    bad = ["{", "5", '{"text": 1}', '{"prompt": 5}', json.dumps({"prompt": LONG})]
    (source / "bad.jsonl").write_text("\n".join(bad), encoding="utf-8")
    assert run(str(source), str(output), **SHORT) == Summary(rows=9, failed=5, kept=0)
    errors = {
        row["key"].split(":")[1]: row["error"] for row in rows_of(output) if row["error"] is not None
    }
    assert [errors[line].split(": ")[0] for line in "1234"] == [
        "JSONDecodeError",
        "ValueError",
        "ValueError",
        "TypeError",
    ]
    assert "64" in errors["5"]
    (source / "bad.jsonl").write_text("\n".join([*bad[:3], '{"prompt": "Five"}']), encoding="utf-8")
    assert run(str(source), str(output), **SHORT) == Summary(rows=4, failed=3, kept=4)
    done = [row["prompt"] for row in rows_of(output) if row["error"] is None]
    assert Counter(done) == Counter([*prompts, "Five"])


def test_embeddings_of_a_folder(cluster: str, tmp_path: Path, bert: tabla.Model) -> None:
    texts = ["the sun", "the river", "the fox"]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"text": texts}), tmp_path / "in/texts.parquet")
    load = {"device": "cpu", "precision": "exact"}
    options: dict[str, Any] = {"task": "embed", "column": "text", "batch_size": 2, "load": load}
    summary = run(str(tmp_path / "in"), str(tmp_path / "out"), BERT, **options)
    assert summary == Summary(rows=3, failed=0, kept=0)
    embeddings = {row["prompt"]: row["embedding"] for row in rows_of(tmp_path / "out")}
    assert [embeddings[text] for text in texts] == bert.embed(texts).tolist()


def test_invalid_folders_are_rejected(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    with pytest.raises(FileNotFoundError, match="no .parquet or .jsonl files"):
        run(str(source), str(tmp_path / "out"))
    write_prompts(source / "sub", 2)
    with pytest.raises(ValueError, match="is inside the source"):
        run(str(source), str(source / "out"))


def test_folder_with_other_files_is_not_changed(cluster: str, tmp_path: Path) -> None:
    write_prompts(tmp_path / "in", 2)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.txt").touch()
    with pytest.raises(ValueError, match="was not created by a run"):
        run(str(tmp_path / "in"), str(tmp_path / "out"), **SHORT)
    assert os.listdir(tmp_path / "out") == ["thesis.txt"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_code_of_page_and_examples_runs(program: str, cluster: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAMS[program]],
        cwd=tmp_path,
        env={**os.environ, "RAY_ADDRESS": cluster},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    summaries = re.findall(r"^# (Summary.*)", PROGRAMS[program], re.MULTILINE)
    assert re.findall(r"^Summary.*", done.stdout, re.MULTILINE) == summaries
    assert "was a fox" in done.stdout
