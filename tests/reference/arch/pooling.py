"""Writes `../../golden/arch/bert/pooling.json`: embeddings by sentence-transformers of the checkpoint `bert/hf` with other modules.

    cases  name; inner: folder of the transformer, "" for the root; files: JSON files of the root; weights: for each Dense
           module, its matrix [out, in] and bias; embeddings: a row per text of `bert/golden.json` except the last two

Run from `tests/reference`: python -m arch.pooling
"""
import json
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

ROOT = Path(__file__).resolve().parents[2] / "golden/arch/bert"
DIM = 44
OLD, NEW = "sentence_transformers.models.", "sentence_transformers.sentence_transformer.modules.pooling."
IDENTITY, TANH = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Tanh"


def case(name, pooling, dense=(), normalize=False, inner=""):
    """`dense` has a pair of output size and activation per module; None leaves the activation out, which is then Tanh."""
    rng = torch.Generator().manual_seed(len(name))
    kinds = ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * normalize]
    paths = [f"{i}_{kind}" if i else inner for i, kind in enumerate(kinds)]
    prefix = NEW if isinstance(pooling.get("pooling_mode"), list) else OLD
    types = [(prefix if kind == "Pooling" else OLD) + kind for kind in kinds]
    files = {"modules.json": [{"idx": i, "name": str(i), "path": path, "type": type} for i, (path, type) in enumerate(zip(paths, types))],
             "1_Pooling/config.json": {"word_embedding_dimension": DIM, **pooling}}
    modes = pooling.get("pooling_mode", [key for key, flag in pooling.items() if flag])
    width, weights = DIM * (len(modes) if isinstance(modes, list) else 1), []
    for path, (out, activation) in zip(paths[2:], dense):
        files[f"{path}/config.json"] = {"in_features": width, "out_features": out, "bias": True} | ({"activation_function": activation} if activation else {})
        matrix, bias = torch.randn(out, width, generator=rng) / width**0.5, torch.randn(out, generator=rng)
        weights.append({"matrix": rounded(matrix), "bias": rounded(bias)})
        width = out
    return {"name": name, "inner": inner, "files": files, "weights": weights}


def rounded(x):
    """Multiples of 1/64, which JSON has exactly."""
    return (x * 64).round().div(64).tolist()


CASES = [
    case("weighted mean", {"pooling_mode": "weightedmean"}, normalize=True),
    case("root", {"pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": True}),
    case("three flags", {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True, "pooling_mode_cls_token": True}, normalize=True),
    case("list", {"pooling_mode": ["lasttoken", "weightedmean"]}),
    case("tanh", {"pooling_mode_mean_tokens": True}, [(8, TANH)], normalize=True, inner="0_Transformer"),
    case("default activation", {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, [(6, None)]),
    case("dense after several", {"pooling_mode": ["cls", "mean"]}, [(6, IDENTITY), (4, TANH)], inner="0_Transformer"),
    case("dense after root", {"pooling_mode_mean_tokens": False, "pooling_mode_mean_sqrt_len_tokens": True}, [(5, IDENTITY)], normalize=True),
    case("dense after weighted mean", {"pooling_mode": "weightedmean"}, [(5, IDENTITY)]),
]


def embed(case, texts):
    with tempfile.TemporaryDirectory() as root:
        root = Path(root)
        shutil.copytree(ROOT / "hf", root / case["inner"], dirs_exist_ok=True)
        for path in ("modules.json", "1_Pooling"):
            target = root / case["inner"] / path
            shutil.rmtree(target) if target.is_dir() else target.unlink()
        for path, value in case["files"].items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_text(json.dumps(value))
        for i, weights in enumerate(case["weights"]):
            tensors = {"linear.weight": torch.tensor(weights["matrix"]), "linear.bias": torch.tensor(weights["bias"])}
            save_file(tensors, root / f"{i + 2}_Dense/model.safetensors")
        model = SentenceTransformer(str(root), device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
        # Every text alone, because of padding.
        return [[float(f"{x:.9g}") for x in model.encode(text)] for text in texts]


texts = [text["text"] for text in json.loads((ROOT / "golden.json").read_text())["texts"][:-2]]
cases = [case | {"embeddings": embed(case, texts)} for case in CASES]
record = {"cases": cases, "versions": {name: version(name) for name in ("sentence-transformers", "transformers", "torch")}}
(ROOT / "pooling.json").write_text(json.dumps(record) + "\n")
