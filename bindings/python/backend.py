"""Build backend: maturin, plus the header for its cffi bindings.

maturin passes `header.h` in Cargo's target directory to `cdef` of cffi.
"""

import os
from pathlib import Path

import maturin
from maturin import *  # noqa: F403  all hooks that are not defined below

from native import ROOT, declarations


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    write_header()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    write_header()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def write_header():
    """Writes the header to Cargo's target directory, and sets `CARGO_TARGET_DIR`."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
    os.environ["CARGO_TARGET_DIR"] = str(target)
    target.mkdir(parents=True, exist_ok=True)
    header = (ROOT / "include/tabla.h").read_text(encoding="utf-8")
    (target / "header.h").write_text(declarations(header), encoding="utf-8")
