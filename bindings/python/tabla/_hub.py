"""Models of the Hugging Face Hub: `hf:org/repo`, `hf:org/repo:quantisation`, `hf:org/repo:file`.

Which files those are is chosen as `tabla pull` chooses; `huggingface_hub` fetches and keeps them.
"""

from __future__ import annotations

import fnmatch
import glob
import json
import re
from pathlib import Path
from typing import Iterable

from ._errors import ArgumentError, IoError

PREFERRED = ("Q4_K_M", "Q8_0")
"""Quantisations in the order in which one is taken where none was asked for."""

COMPANIONS = (
    "config.json",
    "generation_config.json",
    "special_tokens_map.json",
    "tokenizer*.json",
    "tokenizer*.model",
    "chat_template.*",
)
"""Files beside the weights of safetensors that loading reads."""

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")

LISTED = 12
"""Names that a message lists at most."""


def fetch(name: str) -> str:
    """The path of a model, fetched where it is not there yet; without a network, of what is there."""
    wanted = re.fullmatch(r"hf:([^/:]+/[^/:]+)(?::(.+))?", name)
    if wanted is None:
        raise ArgumentError(f"{name!r} is not hf:org/repo, with :quantisation or :file behind it")
    repo, pick = wanted.groups()
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ImportError(f"{name} needs huggingface_hub: pip install 'tabla[hub]'") from None

    def download(files: Iterable[str]) -> Path:
        patterns = [glob.escape(name) for name in files]
        folder = hub.snapshot_download(repo, allow_patterns=patterns, local_files_only=offline)
        return Path(folder)

    offline = False
    try:
        names = hub.list_repo_files(repo)
    except hub.errors.HfHubHTTPError:
        raise  # the server has answered: there is no such model, or not for everybody
    except Exception:
        # There is no network, in one of the words that HTTP libraries have for it: the names are those
        # of the folder in the cache.
        offline = True
        folder = download([])
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    files = choose(names, pick, repo)
    folder = download(files)
    if files[0] == INDEX:
        folder = download([*files, *shards(folder / INDEX, names)])
    return str(folder if files[0] in (INDEX, WEIGHTS) else folder / files[0])


def choose(names: list[str], pick: str | None, repo: str) -> list[str]:
    """The files to have: what to open first, and what belongs to it."""
    if pick in names:
        return with_other_parts(pick, names, repo)
    ggufs = sorted({first_part(name) for name in names if name.endswith(".gguf")})
    # A projector of images is no model by itself.
    models = [name for name in ggufs if "mmproj" not in name]
    for quant in PREFERRED if pick is None else [pick]:
        for name in models:
            if has_quant(name, quant):
                return with_other_parts(name, names, repo)
    if pick is not None:
        raise IoError(f"{repo} has no file or quantisation {pick!r}; it has {listed(ggufs or names)}")
    if models:
        return with_other_parts(models[0], names, repo)
    weights = [name for name in (WEIGHTS, INDEX) if name in names]
    if not weights:
        raise IoError(f"{repo} has neither GGUF files nor {WEIGHTS}; it has {listed(names)}")
    beside = [n for n in names if "/" not in n and any(fnmatch.fnmatch(n, c) for c in COMPANIONS)]
    return [weights[0], *beside]


def shards(index: Path, names: list[str]) -> list[str]:
    """The shards that an index speaks of."""
    found = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    missing = [name for name in found if name not in names]
    if missing:
        raise IoError(f"{INDEX} names {missing[0]!r}, which is not there")
    return found


def first_part(name: str) -> str:
    """The GGUF file that stands for this one: itself, or the first of its parts."""
    part = PART.fullmatch(name)
    return f"{part[1]}-00001-of-{part[3]}.gguf" if part else name


def with_other_parts(name: str, names: list[str], repo: str) -> list[str]:
    """The file and the others that it is split into, the first one first."""
    part = PART.fullmatch(name)
    if part is None:
        return [name]
    parts = [f"{part[1]}-{n:05}-of-{part[3]}.gguf" for n in range(1, int(part[3]) + 1)]
    missing = [name for name in parts if name not in names]
    if missing:
        raise IoError(f"{repo} has no {missing[0]}, a part of {name}")
    return parts


def has_quant(name: str, quant: str) -> bool:
    """Whether a name has this quantisation as a word: `Q4_K` is none of `x-Q4_K_M.gguf`."""
    return bool(re.search(rf"(?<![^\W_]){re.escape(quant)}(?!\w)", name, re.IGNORECASE))


def listed(names: Iterable[str]) -> str:
    """The first few names."""
    first = list(names)
    others = [f"{len(first) - LISTED} others"] if len(first) > LISTED else []
    return ", ".join([*first[:LISTED], *others]) or "no files"
