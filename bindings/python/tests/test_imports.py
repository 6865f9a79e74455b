"""The modules of the package import each other without cycles."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import tabla

PACKAGE = Path(tabla.__file__).parent


def imports(source: str, modules: set[str], package: str = "tabla") -> set[str]:
    """Returns the modules that a module of `package` imports, including imports in functions and for type checkers
    only. `__init__` is `tabla` itself, `probe` is `tabla.probe`, `probe.names` is a module in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = parents[: len(parents) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            first, *rest = name.split(".")
            if first == "tabla":
                prefixes = [".".join(rest[:end]) for end in range(len(rest), 0, -1)]
                found.add(next((prefix for prefix in prefixes if prefix in modules), "__init__"))
    return found


def test_imports_have_no_cycle() -> None:
    sources: dict[str, tuple[str, str]] = {}
    for path in [*PACKAGE.glob("*.py"), *PACKAGE.glob("probe/*.py")]:
        folders = path.relative_to(PACKAGE).parts[:-1]
        name = ".".join([*folders, path.stem] if path.stem != "__init__" or not folders else folders)
        sources[name] = (path.read_text(encoding="utf-8"), ".".join(["tabla", *folders]))
    modules = {*sources, "_native"}
    graph = {module: imports(source, modules, package) for module, (source, package) in sources.items()}
    assert {"_errors", "_native"} <= graph["_c"] and {"_model", "_native"} <= graph["__init__"]
    assert {"probe.capture", "probe.names"} <= graph["probe"] and "probe._arrays" in graph["probe.linear"]
    # Optional dependencies are imported only by modules that need them.
    assert not [module for module in graph if module.split(".")[0] != "probe" and "probe" in graph[module]]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(reversed(error.args[1]))}")


def test_package_needs_no_optional_dependency() -> None:
    code = "import sys, tabla; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    optional = {"huggingface_hub", "matplotlib", "pyarrow", "ray", "scipy", "sklearn", "tabla.probe", "tqdm"}
    assert not optional & set(done.stdout.split())


def test_commands_install_this_distribution() -> None:
    folder = Path(__file__).parents[1]
    named = re.search(r'^name = "(.+?)"', (folder / "pyproject.toml").read_text(encoding="utf-8"), re.M)
    assert named is not None
    sources = [*PACKAGE.rglob("*.py"), *(folder / "tests").glob("*.py"), *(folder / "../../docs").glob("*.md")]
    commands = re.findall(r"pip install '?([\w./-]+)\[", "".join(path.read_text(encoding="utf-8") for path in sources))
    assert {named[1], "./bindings/python", "."} <= set(commands) <= {named[1], "./bindings/python", ".", "ray"}


@pytest.mark.parametrize("name", ["matplotlib", "numpy", "sklearn"])
def test_probe_names_missing_dependencies(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.split(".")[:2] == ["tabla", "probe"]]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'tabla-runtime\[probe\]'"):
        importlib.import_module("tabla.probe")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import json, tabla._c", {"_c"}),
        ("from tabla import _c, Model", {"_c", "__init__"}),
        ("from tabla._c import text", {"_c"}),
        ("from . import _c", {"_c"}),
        ("from ._c import text", {"_c"}),
        ("if TYPE_CHECKING:\n    from ._c import text", {"_c"}),
        ("def f():\n    import tabla", {"__init__"}),
        ("import ray\nfrom ray import _c", set()),
    ],
)
def test_imports_finds_every_form_of_import(source: str, found: set[str]) -> None:
    assert imports(source, {"_c", "ray"}) == found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from . import names", {"probe.names"}),
        ("from .names import split", {"probe.names"}),
        ("from .. import _c", {"_c"}),
        ("from .._c import text", {"_c"}),
        ("from . import linear_probe", {"probe"}),
        ("from tabla.probe.names import split", {"probe.names"}),
    ],
)
def test_imports_finds_imports_of_a_subpackage(source: str, found: set[str]) -> None:
    assert imports(source, {"_c", "probe", "probe.names"}, "tabla.probe") == found
