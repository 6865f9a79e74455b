"""The build: maturin's, with a header that cffi understands.

maturin hands `header.h` in cargo's target folder to cffi's `cdef`, which knows no preprocessor. So
include/tabla.h is written there as a C99 compiler would see it behind `#include` and `#if`.
"""

import os
import re
from pathlib import Path

import maturin
from maturin import *  # noqa: F403  every hook that is not below

# In the repository, and in a source distribution, which has this file at its root.
ROOT = next(p for p in Path(__file__).resolve().parents if (p / "include/tabla.h").exists())

LIMITS = {"UINT32_MAX": "0xffffffff", "UINT64_MAX": "0xffffffffffffffff"}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    write_header()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    write_header()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def write_header():
    """Writes the header where maturin looks for it, and settles where that is."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
    os.environ["CARGO_TARGET_DIR"] = str(target)
    target.mkdir(parents=True, exist_ok=True)
    header = (ROOT / "include/tabla.h").read_text(encoding="utf-8")
    (target / "header.h").write_text(declarations(header), encoding="utf-8")


def declarations(header):
    """The declarations of a header whose only conditions ask for names that C99 does not define."""
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
                lines.append(f"#define {name} {LIMITS.get(value, value)}")
        elif word not in (None, "include"):
            raise ValueError(f"include/tabla.h: #{word} is not understood here")
        elif word is None and rest and all(taken):
            lines.append(line)
    return "\n".join(lines) + "\n"
