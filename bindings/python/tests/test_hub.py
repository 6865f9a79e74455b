"""Models of the Hugging Face Hub: selection of files, and use without a network."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import tabla
from tabla import _hub

from conftest import ROOT

SPLIT = [f"m-Q8_0-0000{n}-of-00003.gguf" for n in (2, 3, 1)]


@pytest.mark.parametrize(
    ("names", "pick", "opens"),
    [
        (["m-BF16.gguf", "m-Q4_K_M.gguf", "m-Q8_0.gguf"], None, "m-Q4_K_M.gguf"),
        (["m-BF16.gguf", "m-Q8_0.gguf", "mmproj-a.gguf"], None, "m-Q8_0.gguf"),
        (["m-F16.gguf", "m-BF16.gguf", "mmproj-a.gguf"], None, "m-BF16.gguf"),
        (["m-IQ4_XS.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf"], "q4_k_s", "m-Q4_K_S.gguf"),
        (["m_q8_0.gguf", "m-Q4_K_M.gguf"], "Q8_0", "m_q8_0.gguf"),
        (["UD-Q2_K_XL/m-00001-of-00001.gguf"], "UD-Q2_K_XL", "UD-Q2_K_XL/m-00001-of-00001.gguf"),
        (["m-IQ4_XS.gguf", "m-Q4_K_M.gguf"], "m-IQ4_XS.gguf", "m-IQ4_XS.gguf"),
        (SPLIT, None, "m-Q8_0-00001-of-00003.gguf"),
        (SPLIT, "q8_0", "m-Q8_0-00001-of-00003.gguf"),
        (SPLIT, "m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00001-of-00003.gguf"),
        (["config.json", "model.safetensors", "model.safetensors.index.json"], None, "model.safetensors"),
    ],
)
def test_files_are_chosen(names: list[str], pick: str | None, opens: str) -> None:
    files = _hub.choose(names, pick, "org/repo")
    assert files[0] == opens
    if names is SPLIT:
        assert files == sorted(SPLIT)


@pytest.mark.parametrize(
    ("names", "pick", "message"),
    [
        (["m-Q4_K_M.gguf"], "Q4_K", "no file or quantization 'Q4_K'; available: m-Q4_K_M.gguf"),
        (SPLIT[1:], None, "has no m-Q8_0-00002-of-00003.gguf"),
        (["mmproj-a.gguf"], None, "neither GGUF files nor model.safetensors; available: mmproj-a.gguf"),
        ([], None, "available: no files"),
        ([f"{n}.txt" for n in range(20)], None, "8 others"),
    ],
)
def test_missing_files_are_errors(names: list[str], pick: str | None, message: str) -> None:
    with pytest.raises(tabla.IoError, match=message):
        _hub.choose(names, pick, "org/repo")


def test_safetensors_include_companion_files() -> None:
    names = ["README.md", "config.json", "model.safetensors", "onnx/tokenizer.json", "tokenizer.json"]
    names += ["tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "config.json.bak"]
    names += ["modules.json", "1_Pooling/config.json", "additional_chat_templates/rag.jinja"]
    names += ["openvino/1_Pooling/config.json", "onnx/model.safetensors"]
    companions = {"modules.json", "1_Pooling/config.json", "additional_chat_templates/rag.jinja"}
    companions |= {"config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json"}
    assert set(_hub.choose(names, None, "org/repo")) == companions | {
        "model.safetensors",
        "chat_template.jinja",
    }


def test_an_outdated_index_is_ignored(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": {"x": "model-00001-of-00003.safetensors"}}', encoding="utf-8-sig")
    names = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"]
    assert _hub.shards(index, names) == names
    with pytest.raises(tabla.IoError, match="does not exist"):
        _hub.shards(index, names[:1])


@pytest.mark.parametrize("name", ["hf:repo", "hf:", "hf:org/repo/more", "hf:org/repo:"])
def test_invalid_names_are_rejected(name: str) -> None:
    with pytest.raises(tabla.ArgumentError, match="hf:org/repo"):
        tabla.Model.load(name)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A mock Hub: this folder has the files of the repository, `cache` next to it the downloaded ones."""
    library = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    remote, cache = tmp_path / "remote", tmp_path / "cache"
    remote.mkdir()

    def list_repo_files(repo: str) -> list[str]:
        if not remote.exists():
            raise ConnectionError("no network")
        return sorted(path.name for path in remote.iterdir())

    def snapshot_download(repo: str, *, allow_patterns: list[str], local_files_only: bool) -> str:
        cache.mkdir(exist_ok=local_files_only or True)
        for name in allow_patterns if not local_files_only else []:
            shutil.copy(remote / name, cache)
        return str(cache)

    monkeypatch.setattr(library, "list_repo_files", list_repo_files)
    monkeypatch.setattr(library, "snapshot_download", snapshot_download)
    return remote


def test_downloaded_model_is_loaded_without_network(hub: Path) -> None:
    golden = ROOT / "tests/golden/llama.gguf"
    for name in ("m-Q8_0.gguf", "m-F16.gguf"):
        shutil.copy(golden, hub / name)
    with tabla.Model.load("hf:org/repo", device="cpu") as model:
        assert model.name == "hf:org/repo"
    cache = hub.parent / "cache"
    assert [path.name for path in cache.iterdir()] == ["m-Q8_0.gguf"]
    shutil.rmtree(hub)
    with tabla.Model.load("hf:org/repo:Q8_0", device="cpu") as model:
        assert model.info.architecture == "llama"
    with pytest.raises(tabla.IoError, match="F16"):
        tabla.Model.load("hf:org/repo:F16")


def test_shards_of_the_index_are_downloaded(hub: Path) -> None:
    index: dict[str, Any] = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (hub / _hub.INDEX).write_text(json.dumps(index), encoding="utf-8")
    for name in ("config.json", "model-1.safetensors", "model-2.safetensors", "other.safetensors"):
        (hub / name).write_text("{}", encoding="utf-8")
    folder = _hub.fetch("hf:org/repo")
    names = {path.name for path in Path(folder).iterdir()}
    assert names == {_hub.INDEX, "config.json", "model-1.safetensors", "model-2.safetensors"}
    (hub / "model-2.safetensors").unlink()
    with pytest.raises(tabla.IoError, match="model-2.safetensors"):
        _hub.fetch("hf:org/repo")
