"""Models of the Hugging Face Hub: `hf:org/repo`, `hf:org/repo:quantization`, `hf:org/repo:file`.

Selects the same files as `tabla pull`; `huggingface_hub` downloads and caches them.
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
"""Default quantizations in order of preference."""

COMPANIONS = (
    "config.json",
    "config_sentence_transformers.json",
    "generation_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer*.json",
    "tokenizer*.model",
    "chat_template.*",
)
"""Files next to safetensors weights that are needed to load them."""

INNER_COMPANIONS = (
    "additional_chat_templates/*.jinja",
    "*_Pooling/config.json",
    "*_Dense/config.json",
    "*_Dense/model.safetensors",
)
"""Such files in folders: named chat templates, and modules of sentence-transformers."""

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"

PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.gguf|\.safetensors)")

LISTED = 12
"""Maximum number of file names in a message."""


def fetch(name: str) -> str:
    """Returns the local path of a model. Downloads missing files; without a network connection, uses
    the cache."""
    match = re.fullmatch(r"hf:([^/:]+/[^/:]+)(?::(.+))?", name)
    if match is None:
        forms = "hf:org/repo, hf:org/repo:quantization or hf:org/repo:file"
        raise ArgumentError(f"invalid model name {name!r}: expected {forms}")
    repo, pick = match.groups()
    try:
        import huggingface_hub as hub
    except ImportError:
        raise ImportError(f"{name} needs huggingface_hub: pip install 'tabla-runtime[hub]'") from None

    def download(files: Iterable[str]) -> Path:
        patterns = [glob.escape(name) for name in files]
        folder = hub.snapshot_download(repo, allow_patterns=patterns, local_files_only=offline)
        return Path(folder)

    offline = False
    try:
        names = hub.list_repo_files(repo)
    except hub.errors.HfHubHTTPError:
        raise  # response of the server: the model does not exist or is not public
    except Exception:
        # No network; HTTP libraries raise different exceptions. Lists the files in the cache instead.
        offline = True
        folder = download([])
        names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    files = choose(names, pick, repo)
    folder = download(files)
    if files[0] == INDEX:
        folder = download([*files, *shards(folder / INDEX, names)])
    return str(folder if files[0] in (INDEX, WEIGHTS) else folder / files[0])


def choose(names: list[str], pick: str | None, repo: str) -> list[str]:
    """Returns the files to download; the first one is the file to load."""
    if pick in names:
        return with_other_parts(pick, names, repo)
    ggufs = sorted({first_part(name) for name in names if name.endswith(".gguf")})
    # A multimodal projector (mmproj) is not a model.
    models = [name for name in ggufs if "mmproj" not in name]
    for quant in PREFERRED if pick is None else [pick]:
        for name in models:
            if has_quant(name, quant):
                return with_other_parts(name, names, repo)
    if pick is not None:
        raise IoError(f"{repo} has no file or quantization {pick!r}; available: {listed(ggufs or names)}")
    if models:
        return with_other_parts(models[0], names, repo)
    weights = [name for name in (WEIGHTS, INDEX) if name in names]
    if not weights:
        raise IoError(f"{repo} has neither GGUF files nor {WEIGHTS}; available: {listed(names)}")
    patterns = {0: COMPANIONS, 1: INNER_COMPANIONS}
    companions = [n for n in names if any(fnmatch.fnmatch(n, c) for c in patterns.get(n.count("/"), ()))]
    return [weights[0], *companions]


def shards(index: Path, names: list[str]) -> list[str]:
    """Returns the shards that an index lists. If one does not exist, the index is outdated, and the shards are
    the only complete set of numbered files."""
    files = sorted(set(json.loads(index.read_text(encoding="utf-8-sig"))["weight_map"].values()))
    missing = [name for name in files if name not in names]
    if missing:
        parts = [part for part in map(PART.fullmatch, names) if part and part[4] == ".safetensors"]
        # Before a count of the listing becomes a number of names.
        parts = [part for part in parts if int(part[3]) <= len(names)]
        sets = {tuple(parts_of(part)) for part in parts}
        complete = [parts for parts in sets if all(name in names for name in parts)]
        if len(complete) == 1:
            return list(complete[0])
        raise IoError(f"{INDEX} lists {missing[0]!r}, which does not exist")
    return files


def first_part(name: str) -> str:
    """Returns the first part of a split GGUF file, or the name itself."""
    part = PART.fullmatch(name)
    return parts_of(part)[0] if part else name


def parts_of(part: re.Match[str]) -> list[str]:
    """Returns the names of all parts of a file that `PART` matches."""
    return [f"{part[1]}-{n:05}-of-{part[3]}{part[4]}" for n in range(1, int(part[3]) + 1)]


def with_other_parts(name: str, names: list[str], repo: str) -> list[str]:
    """Returns all parts of a split GGUF file, the first part first."""
    part = PART.fullmatch(name)
    if part is None:
        return [name]
    parts = parts_of(part)
    missing = [name for name in parts if name not in names]
    if missing:
        raise IoError(f"{repo} has no {missing[0]}, which is a part of {name}")
    return parts


def has_quant(name: str, quant: str) -> bool:
    """Whether a name contains this quantization as a word: `Q4_K` does not match `x-Q4_K_M.gguf`."""
    return bool(re.search(rf"(?<![^\W_]){re.escape(quant)}(?!\w)", name, re.IGNORECASE))


def listed(names: Iterable[str]) -> str:
    """Returns the first names as a list in text."""
    first = list(names)
    others = [f"{len(first) - LISTED} others"] if len(first) > LISTED else []
    return ", ".join([*first[:LISTED], *others]) or "no files"
