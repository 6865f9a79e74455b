"""The modules of the package import each other without cycles, and `tabla.probe` and `tabla.ray` use only the public
API of `tabla`."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest
import tabla

PACKAGE = Path(tabla.__file__).parent
PROJECT = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")

EXTRAS = ("probe", "ray")
"""Packages in `tabla` with their own dependencies, which the extra of the same name installs."""


def imported_names(node: ast.AST, package: str) -> list[str]:
    """Returns the names that a statement in a module of `package` imports, such as `tabla.probe.names.split`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        parents = package.split(".")
        base = parents[: len(parents) + 1 - node.level] if node.level else []
        module = ".".join([*base, *filter(None, [node.module])])
        return [f"{module}.{alias.name}" for alias in node.names]
    return []


def imports(source: str, modules: set[str], package: str = "tabla") -> set[str]:
    """Returns the modules that a module of `package` imports, including imports in functions and for type checkers
    only. `__init__` is `tabla` itself, `probe` is `tabla.probe`, `probe.names` is a module in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        for name in imported_names(node, package):
            first, *rest = name.split(".")
            if first == "tabla":
                prefixes = [".".join(rest[:end]) for end in range(len(rest), 0, -1)]
                found.add(next((prefix for prefix in prefixes if prefix in modules), "__init__"))
    return found


def test_imports_have_no_cycle() -> None:
    sources: dict[str, tuple[str, str]] = {}
    for path in [*PACKAGE.glob("*.py"), *(path for extra in EXTRAS for path in (PACKAGE / extra).rglob("*.py"))]:
        folders = path.relative_to(PACKAGE).parts[:-1]
        name = ".".join([*folders, path.stem] if path.stem != "__init__" or not folders else folders)
        sources[name] = (path.read_text(encoding="utf-8"), ".".join(["tabla", *folders]))
    modules = {*sources, "_native"}
    graph = {module: imports(source, modules, package) for module, (source, package) in sources.items()}
    assert {"_errors", "_native"} <= graph["_c"] and {"_model", "_native"} <= graph["__init__"]
    assert {"probe.capture", "probe.names"} <= graph["probe"] and "probe._arrays" in graph["probe.linear"]
    assert {"__init__", "ray._tasks"} <= graph["ray"]
    # The other modules, and those of other extras, do not import these packages.
    for module, imported in graph.items():
        assert {name.split(".")[0] for name in imported} & set(EXTRAS) <= {module.split(".")[0]}, module
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(reversed(error.args[1]))}")


def test_package_needs_no_optional_dependency() -> None:
    code = "import sys, tabla; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    optional = {"huggingface_hub", "matplotlib", "pyarrow", "ray", "scipy", "sklearn", "tqdm"}
    assert not {*optional, *(f"tabla.{extra}" for extra in EXTRAS)} & set(done.stdout.split())


def private_uses(source: str, package: str) -> list[str]:
    """Returns the names that a module of `package`, such as `tabla.probe`, uses although they are private: names of
    `tabla` that are not in `__all__`, and names with an underscore outside of the package."""
    names = (name for node in ast.walk(ast.parse(source)) for name in used_names(node, package))
    return [name for name in names if not f"{name}.".startswith(f"{package}.") and is_private(name)]


def used_names(node: ast.AST, package: str) -> list[str]:
    """Returns the names of imports, and of attributes of other objects than `self` and `cls`."""
    if isinstance(node, ast.Attribute):
        owner = ast.unparse(node.value)
        return [] if owner in ("self", "cls") else [f"tabla.{node.attr}" if owner == "tabla" else node.attr]
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr", "delattr"):
        return [ast.unparse(node.args[1]).strip("'")]
    return imported_names(node, package)


def is_private(name: str) -> bool:
    """Returns whether a name such as `tabla._model.Model` is not part of a public API."""
    parts = name.split(".")
    if parts[0] == "tabla" and len(parts) > 1 and parts[1] not in (*tabla.__all__, "types"):
        return True
    return any(part.startswith("_") and not part.endswith("__") for part in parts)


@pytest.mark.parametrize("extra", EXTRAS)
def test_packages_use_only_the_public_api(extra: str) -> None:
    for path in (PACKAGE / extra).rglob("*.py"):
        package = ".".join(["tabla", *path.relative_to(PACKAGE).parts[:-1]])
        assert private_uses(path.read_text(encoding="utf-8"), package) == [], path


@pytest.mark.parametrize(("extra", "expected"), [("probe", "sklearn"), ("ray", "pyarrow")])
def test_extras_have_the_dependencies_of_their_packages(extra: str, expected: str) -> None:
    sources = [path.read_text(encoding="utf-8") for path in (PACKAGE / extra).rglob("*.py")]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    imported = {name.split(".")[0] for node in nodes for name in imported_names(node, "tabla")}
    imported -= {"tabla", *sys.stdlib_module_names}
    lists = re.findall(rf"^(?:dependencies|{extra}) = (.*)", PROJECT, re.M)
    declared = set(re.findall(r'"([\w-]+)', "".join(lists)))
    assert expected in imported
    # The distribution of sklearn has another name.
    assert {{"sklearn": "scikit-learn"}.get(name, name) for name in imported} <= declared


def test_commands_install_this_distribution() -> None:
    folder = Path(__file__).parents[1]
    named = re.search(r'^name = "(.+?)"', PROJECT, re.M)
    assert named is not None
    sources = [*PACKAGE.rglob("*.py"), *(folder / "tests").glob("*.py"), *(folder / "../../docs").glob("*.md")]
    commands = re.findall(r"pip install '?([\w./-]+)\[", "".join(path.read_text(encoding="utf-8") for path in sources))
    assert {named[1], "./bindings/python", "."} == set(commands)


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("tabla.probe", "matplotlib"),
        ("tabla.probe", "sklearn"),
        ("tabla.probe", "threadpoolctl"),
        ("tabla.ray", "pyarrow"),
        ("tabla.ray", "ray"),
        ("tabla.ray.serve", "aiohttp"),
    ],
)
def test_packages_name_missing_dependencies(package: str, name: str) -> None:
    if package == "tabla.ray.serve" and find_spec("ray") is None:
        pytest.skip("tabla-runtime[ray] is not installed")
    code = f"import sys, tabla; sys.modules[{name!r}] = None; import {package}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    message = done.stderr.splitlines()[-1]
    extra = package.split(".")[1]
    assert message.startswith(f"ImportError: {package} needs ") and name in message
    assert f"pip install 'tabla-runtime[{extra}]'" in message


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


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import tabla, numpy\nfrom tabla import Model, types\ntabla.Model.load().name", []),
        ("from tabla.types import ChatCompletion", []),
        ("from . import _tables, names\nfrom ._arrays import matrix\nfrom tabla.probe import _arrays", []),
        ("self._model\ncls._names\nmodel.__class__\ngetattr(model, 'info')", []),
        ("from tabla import _model", ["tabla._model"]),
        ("import tabla._model", ["tabla._model"]),
        ("from tabla._model import Model", ["tabla._model.Model"]),
        ("from .._model import Model", ["tabla._model.Model"]),
        ("from .. import devices, _c", ["tabla._c"]),
        ("from tabla import ray", ["tabla.ray"]),
        ("from tabla.ray._tasks import Row", ["tabla.ray._tasks.Row"]),
        ("def f():\n    from tabla import lib", ["tabla.lib"]),
        ("import tabla\ntabla.ffi", ["tabla.ffi"]),
        ("model._pointer", ["_pointer"]),
        ("load().info._fields", ["_fields"]),
        ("getattr(model, '_load_options', {})", ["_load_options"]),
    ],
)
def test_private_uses_finds_every_form_of_use(source: str, found: list[str]) -> None:
    assert private_uses(source, "tabla.probe") == found
