"""Generates `tabla._native`, the cffi module of the C ABI.

    python native.py LIBRARY FOLDER

installs the package into FOLDER, such as `site-packages`, with a shared library that is already built. The
result has the files of the wheel, without its metadata.
"""

import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The repository, or an unpacked source distribution, which has this file in its root.
ROOT = next(folder for folder in (HERE, *HERE.parents) if (folder / "include/tabla.h").exists())

LIMITS = {"UINT32_MAX": "0xffffffff", "UINT64_MAX": "0xffffffffffffffff"}

# As maturin writes it.
INIT = """\
__all__ = ["lib", "ffi"]

import os
from .ffi import ffi

lib = ffi.dlopen(os.path.join(os.path.dirname(__file__), '{name}'))
del os
"""


def install(library, folder):
    """Copies the package and a library into a folder, and generates the cffi module."""
    from cffi import FFI, recompiler

    native = folder / "tabla/_native"
    shutil.copytree(HERE / "tabla", folder / "tabla", ignore=shutil.ignore_patterns("__pycache__"))
    name = f"lib_native{library.suffix}"
    shutil.copy(library, native / name)
    (native / "__init__.py").write_text(INIT.format(name=name), encoding="utf-8")
    ffi = FFI()
    ffi.cdef(declarations((ROOT / "include/tabla.h").read_text(encoding="utf-8")))
    recompiler.make_py_source(ffi, "ffi", str(native / "ffi.py"))


def declarations(header):
    """Returns the declarations of a header for `cdef` of cffi, which has no preprocessor: without comments and
    `#include`, and with the branches of `#if` that apply where none of their names is defined."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)
    lines = []
    taken = [True]  # of each condition around the line: whether its branch is read
    for line in text.splitlines():
        word, rest = re.match(r"(?:\s*#\s*(\w+))?\s*(.*)", line).groups()
        if word in ("if", "ifdef", "ifndef"):
            taken.append(word == "ifndef")
        elif word == "else":
            taken[-1] = not taken[-1]
        elif word == "endif":
            taken.pop()
        elif word == "define":
            name, _, value = rest.partition(" ")
            if value and all(taken):
                # cffi accepts integer literals only, without parentheses.
                value = value.strip("()")
                lines.append(f"#define {name} {LIMITS.get(value, value)}")
        elif word not in (None, "include"):
            raise ValueError(f"include/tabla.h: #{word} is not understood here")
        elif word is None and rest and all(taken):
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    install(Path(sys.argv[1]), Path(sys.argv[2]))
