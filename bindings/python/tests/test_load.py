"""Loading: progress, cancellation, options, logging, and forks."""

from __future__ import annotations

import builtins
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import tabla

from conftest import ARCH, ROOT


def test_progress_reports_every_stage() -> None:
    stages: list[tabla.LoadStage] = []
    tabla.Model.load(device="cpu", max_context=64, progress=stages.append).close()
    assert [stage.stage for stage in stages] == list(range(1, 19))
    done = [stage.done for stage in stages]
    assert done == sorted(done) and done[-1] == pytest.approx(1)
    assert all(stage.name and stage.milliseconds >= 0 for stage in stages)


def test_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tqdm", reason="tqdm is not installed: the progress bar was not tested")
    tabla.Model.load(device="cpu", max_context=64, progress=True).close()
    assert "100%" in capsys.readouterr().err

    real = builtins.__import__

    def without_tqdm(name: str, *rest: Any) -> Any:
        if name.startswith("tqdm"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without_tqdm)
    with pytest.raises(ImportError, match=r"pip install 'tabla-runtime\[progress\]'"):
        tabla.Model.load(device="cpu", progress=True)


def test_exception_in_progress_cancels_loading() -> None:
    stages: list[int] = []

    def fail(stage: tabla.LoadStage) -> None:
        stages.append(stage.stage)
        raise ZeroDivisionError("enough")

    with pytest.raises(ZeroDivisionError, match="enough"):
        tabla.Model.load(device="cpu", progress=fail)
    assert len(stages) == 1


def test_model_in_memory_is_that_of_the_file() -> None:
    data = (ROOT / "models/story.gguf").read_bytes()
    with tabla.Model.load(device="cpu") as story:
        digest, text = story.digest, story.generate("Once", temperature=0, max_tokens=8).text
    for source in (data, bytearray(data), memoryview(data)):
        with tabla.Model.load(source, device="cpu") as model:
            assert (model.name, model.digest) == ("memory", digest)
            assert model.generate("Once", temperature=0, max_tokens=8).text == text
    with tabla.Model.load(data, device="cpu", max_context=64) as model:
        with pickle.loads(pickle.dumps(model)) as again:
            assert (again.digest, again.info.context) == (digest, 64)
    with pytest.raises(tabla.FormatError, match="the model in memory"):
        tabla.Model.load(data[:100], device="cpu")


def test_file_name_may_be_invalid_utf8(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/m\xff.gguf"
    try:
        shutil.copy(os.fsencode(ROOT / "tests/golden/llama.gguf"), odd)
    except OSError:
        pytest.skip("this file system only supports UTF-8 names")
    with tabla.Model.load(os.fsdecode(odd), device="cpu") as model:
        assert model.info.architecture == "llama"


def test_ctrl_c_cancels_loading() -> None:
    def press(stage: tabla.LoadStage) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        tabla.Model.load(device="cpu", progress=press)


def test_load_options_are_applied() -> None:
    with tabla.Model.load(
        device="cpu",
        precision="exact",
        cache_type="f32",
        threads=1,
        max_context=64,
        prefix_bytes=0,
        weights="mapped",
        lm_head_type="q8_0",
        sequences=2,
        samplers="top_k;temperature",
        adapter=None,
    ) as model:
        assert model.info.sequences == 2
        assert model.info.context == 64
        assert any("f32" in command["kernel"] for command in model.table().commands)
        options = model.load_options
        assert options["samplers"] == "top_k;temperature" and "draft_model" not in options
        options["sequences"] = 3  # a copy
        assert model.load_options["sequences"] == 2
    with pytest.raises(tabla.ArgumentError, match="lottery"):
        tabla.Model.load(device="cpu", samplers="lottery")


def test_set_log_forwards_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "tabla")
    try:
        tabla.set_log("debug")
        tabla.Model.load(device="cpu", max_context=64).close()
        assert {record.name for record in caplog.records} == {"tabla"}
        tabla.set_log(None)
        caplog.clear()
        tabla.Model.load(device="cpu", max_context=64).close()
        assert not caplog.records
        with pytest.raises(tabla.ArgumentError, match="invalid level 'loud': expected one of error"):
            tabla.set_log("loud")
    finally:
        tabla.set_log(None)


def run(script: str) -> str:
    """Runs a program and returns its output. The program must succeed."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_program_can_exit_with_open_objects() -> None:
    out = run(
        """
        import tabla
        tabla.set_log("debug")
        model = tabla.Model.load(device="cpu", max_context=64, sequences=2)
        session = model.session()
        stream = session.stream("Once", ignore_eos=True)
        batch = model.batch()
        batch.add("Once")
        print(next(stream).text != "")
        """
    )
    assert out == "True\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_fork_fails_in_the_child_and_not_in_the_parent() -> None:
    out = run(
        """
        import asyncio, os, threading, time, warnings
        import tabla

        warnings.simplefilter("ignore", DeprecationWarning)  # of threads and forks
        model = tabla.Model.load(device="cpu", max_context=64, sequences=2)
        session = model.session()
        endless = dict(ignore_eos=True, context_shift=True)
        stream = session.stream("Once", **endless)
        next(stream)
        busy = threading.Thread(target=lambda: list(stream))  # holds what a fork does not open
        busy.start()
        time.sleep(0.1)

        def forked(call):
            try:
                call()
            except tabla.ForkedError as error:
                return "fork" in str(error)
            return False

        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            calls = [
                lambda: model.generate("Once"), lambda: model.tokenize("a"), lambda: next(stream),
                lambda: session.logits(), lambda: model.chat([]), lambda: tabla.Model.load(),
                lambda: model.embed("a") if model.info.embedding_dim else model.session(),
                lambda: asyncio.run(model.agenerate("Once")),
                lambda: asyncio.run(model.achat([])),
            ]
            found = [forked(call) for call in calls]
            stream.close(), session.close(), model.close()
            os.write(write, repr(found).encode())
            os._exit(0)
        os.waitpid(child, 0)
        print(os.read(read, 1000).decode())
        stream.cancel()
        busy.join()
        print(model.generate("Once", max_tokens=2, seed=0).finish_reason)
        """
    )
    assert out == f"{[True] * 9}\nlength\n"


def test_constructors_that_are_not_public_name_the_call_that_creates_an_object(model: tabla.Model) -> None:
    classes: list[tuple[Any, tuple[Any, ...], str]] = [
        (tabla.Model, (), 'tabla.Model.load("model.gguf")'),
        (tabla.Model, ("model.gguf",), 'tabla.Model.load("model.gguf")'),
        (tabla.Session, (model,), "model.session()"),
    ]
    for cls, arguments, call in classes:
        with pytest.raises(TypeError, match=re.escape(f"objects are created by {call}")):
            cls(*arguments)


def test_an_empty_prompt_of_a_model_without_bos_token_is_named() -> None:
    with tabla.Model.load(ARCH / "gpt2/model.gguf", device="cpu") as model:
        with pytest.raises(tabla.StateError, match="an empty text has none, because the model has no BOS token"):
            model.generate("")


def test_listing_gpus_prints_nothing() -> None:
    hidden = {"XDG_RUNTIME_DIR", "NODEVICE_SELECT"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    listed = subprocess.run(
        [sys.executable, "-c", "import tabla; print(len(tabla.devices()['gpus']))"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stderr == "" and int(listed.stdout) >= 0
