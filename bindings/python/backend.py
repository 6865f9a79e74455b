"""The build backend: maturin, with the header that its cffi bindings need.

maturin passes `header.h` in Cargo's target folder to `cdef` of cffi.
"""

import os
from pathlib import Path

import maturin
from maturin import *  # noqa: F403  every hook that is not below

from native import ROOT, declarations


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
