"""Python code in the documentation and the examples: runs it and checks its types."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tabla

from conftest import ROOT

PAGES = {"README.md": 1, "docs/inside.md": 12, "docs/python.md": 10}
"""The pages, and their minimum number of code blocks."""
PYTHON = ROOT / "bindings/python"
EXAMPLES = [path for path in sorted((PYTHON / "examples").glob("*.py")) if "ray" not in path.name]


def blocks(page: str) -> list[str]:
    """Returns the code blocks of a page, padded with empty lines so that line numbers in errors are correct."""
    text = (ROOT / page).read_text(encoding="utf-8")
    matches = re.finditer(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return ["\n" * text[: block.start(1)].count("\n") + block[1] for block in matches]


@pytest.mark.parametrize("page", PAGES)
def test_code_of_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if page == "docs/inside.md" and not os.environ.get("TABLA_REQUIRE_PROBE"):
        pytest.importorskip("sklearn")
        pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    try:
        for block in blocks(page):
            exec(compile(block, page, "exec"), names)
            assert capsys.readouterr().out or "print" not in block
    finally:
        tabla.set_log(None)
        logging.getLogger().handlers.clear()
    assert len(blocks(page)) >= PAGES[page]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(
        command, cwd=tmp_path, input="Tell me of a fox.\n", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_types_are_correct(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed: no types were checked")
    for page in (*PAGES, "docs/ray.md"):
        text = "\n".join(block.lstrip("\n") for block in blocks(page))
        (tmp_path / f"{Path(page).stem.lower()}_page.py").write_text(text, encoding="utf-8")
    folders = [tmp_path, *(PYTHON / name for name in ("examples", "benches", "tests"))]
    modules = [path.stem for folder in folders for path in sorted(folder.glob("*.py"))]
    # A single run of mypy, which spends most of its time on the types of numpy and Ray.
    command = [sys.executable, "-m", "mypy", "--config-file", str(PYTHON / "pyproject.toml"), "-p", "tabla"]
    done = subprocess.run(
        [*command, *(f"--module={name}" for name in modules)],
        cwd=tmp_path,
        env={
            **os.environ,
            "MYPYPATH": os.pathsep.join(map(str, folders)),
            # mypy does not use the library. Memory checks would only slow it down.
            "PYTHONMALLOC": "",
            "MALLOC_PERTURB_": "0",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
