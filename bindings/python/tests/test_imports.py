"""The modules of the package import each other without cycles."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
import tabla

PACKAGE = Path(tabla.__file__).parent


def imports(source: str, modules: set[str]) -> set[str]:
    """Returns the modules of the package that a module imports, including imports in functions and for type
    checkers only. `__init__` is the package itself."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = "tabla" if node.level else None
            module = ".".join(filter(None, [package, node.module]))
            names = [f"{module}.{alias.name}" for alias in node.names]
        for name in names:
            first, _, rest = f"{name}.__init__".partition(".")
            if first == "tabla":
                module = rest.split(".")[0]
                found.add(module if module in modules else "__init__")
    return found


def test_imports_have_no_cycle() -> None:
    sources = {path.stem: path.read_text(encoding="utf-8") for path in PACKAGE.glob("*.py")}
    modules = {*sources, "_native"}
    graph = {module: imports(source, modules) for module, source in sources.items()}
    assert {"_errors", "_native"} <= graph["_c"] and {"_model", "_native"} <= graph["__init__"]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(reversed(error.args[1]))}")


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
