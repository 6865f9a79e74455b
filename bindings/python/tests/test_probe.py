"""`tabla.probe` against independent formulas and known results.

Skipped if scikit-learn or matplotlib is not installed; with TABLA_REQUIRE_PROBE=1 that is a failure.
"""

from __future__ import annotations

import logging
import os
import sys
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

try:
    import matplotlib
    import sklearn
except ImportError as missing:
    if os.environ.get("TABLA_REQUIRE_PROBE"):
        raise
    reason = f"{missing}: the tests of tabla.probe are skipped, pip install 'tabla-runtime[probe]' runs them"
    print(reason, file=sys.__stderr__)
    pytest.skip(reason, allow_module_level=True)

from tabla import Prompt, probe
from tabla.probe import names, plots, steering
from tabla.probe._arrays import matrix
from tabla.probe.capture import Floats

from test_html import EVIL, Reader

LAYERS = 4
HEADS = 2
Array = NDArray[Any]


def random(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rotation(size: int, seed: int = 0) -> Array:
    """Returns a random orthogonal matrix."""
    return np.asarray(np.linalg.qr(random(seed).normal(size=(size, size)))[0])


# Names


def test_point_names_resolve_both_ways() -> None:
    kinds = [f"blk.{layer}.{kind}" for layer in range(LAYERS) for kind in names.KINDS]
    for gated in (True, False):
        hooks = set()
        for point in [*names.residual_points(LAYERS), *kinds]:
            if not gated and point.endswith(".ffn_gate"):
                continue
            assert names.resolve(point, LAYERS, gated=gated) == point
            hook = names.to_transformer_lens(point, LAYERS, gated=gated)
            assert names.resolve(hook, LAYERS, gated=gated) == point
            hooks.add(hook)
        assert len(hooks) == 1 + LAYERS * (len(names.KINDS) + gated)


@pytest.mark.parametrize(
    ("hook", "point"),
    [
        ("hook_embed", "token_embd"),
        ("blocks.0.hook_resid_pre", "token_embd"),
        ("blocks.3.hook_resid_pre", "blk.2"),
        ("blocks.3.hook_resid_post", "blk.3"),
        ("blocks.3.ln1.hook_normalized", "blk.3.attn_norm"),
        ("blocks.3.attn.hook_q", "blk.3.attn_q"),
        ("blocks.3.attn.hook_rot_q", "blk.3.attn_q_rope"),
        ("blocks.3.attn.hook_pattern", "blk.3.attn_weights"),
        ("blocks.3.attn.hook_z", "blk.3.attn"),
        ("blocks.3.hook_attn_out", "blk.3.attn_output"),
        ("blocks.3.mlp.hook_pre", "blk.3.ffn_gate"),
        ("blocks.3.mlp.hook_pre_linear", "blk.3.ffn_up"),
        ("blocks.3.mlp.hook_post", "blk.3.ffn"),
        ("blocks.3.hook_mlp_out", "blk.3.ffn_down"),
    ],
)
def test_transformer_lens_names(hook: str, point: str) -> None:
    assert names.resolve(hook, LAYERS) == point


def test_feed_forward_layer_without_gate() -> None:
    assert names.resolve("blocks.1.mlp.hook_pre", LAYERS, gated=False) == "blk.1.ffn_up"
    for name in ("blocks.1.mlp.hook_pre_linear", "blk.1.ffn_gate"):
        with pytest.raises(ValueError, match="no counterpart|unknown point"):
            names.resolve(name, LAYERS, gated=False)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("blk.4", "layer out of range: 'blk.4', expected 0 to 3"),
        ("blocks.9.attn.hook_q", "layer out of range"),
        ("blk.1.attn_scores", "unknown point: .* expected blk.1 or one of its attn_norm, attn_q"),
        ("blk.01", "unknown point"),
        ("blk.1.", "unknown point"),
        ("residual", "unknown point: 'residual', expected token_embd, blk.N or blk.N.KIND"),
        ("blocks.2.hook_resid_mid", "no counterpart: .* blk.1 \\+ blk.2.attn_output"),
        ("blocks.0.hook_resid_mid", "no counterpart: .* token_embd \\+ blk.0.attn_output"),
        ("blocks.2.attn.hook_attn_scores", "no counterpart: .* blk.2.attn_weights"),
        ("blocks.2.hook_unknown", "no counterpart: .* expected one of hook_resid_pre"),
        ("blocks.2", "no counterpart"),
        ("hook_pos_embed", "no counterpart"),
        ("ln_final.hook_normalized", "no counterpart"),
    ],
)
def test_errors_of_names(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        names.resolve(name, LAYERS)


def test_lists_of_points() -> None:
    assert names.residual_points(2) == ["token_embd", "blk.0", "blk.1"]
    assert names.layer_points("attn", 2) == ["blk.0.attn", "blk.1.attn"]
    assert names.split("blk.3.attn_q") == (3, "attn_q") and names.split("token_embd") == (None, "")


# Capture


class FakeModel:
    """Activations that depend on the point and on all tokens up to each one. Overwrites them at the next call."""

    def __init__(self, digest: bytes = bytes(32), device: str = "cpu") -> None:
        self.digest = digest
        self.info = SimpleNamespace(layers=LAYERS, device=device)
        self.calls: list[list[str]] = []
        self._last: dict[str, Floats] = {}

    def capture_each(self, prompts: Iterable[Prompt], points: Sequence[str]) -> Iterator[Mapping[str, Floats]]:
        for prompt in prompts:
            for values in self._last.values():
                values.fill(np.nan)
            self.calls.append(list(points))
            self._last = {point: activations(prompt, point) for point in points}
            yield self._last


def activations(prompt: Prompt, point: str) -> Floats:
    tokens = np.array(list(prompt.encode()) if isinstance(prompt, str) else prompt, dtype=np.float64)
    cols = HEADS * len(tokens) if point.endswith("attn_weights") else 6
    weights = random(zlib.crc32(point.encode())).normal(size=(1, cols))
    return (np.cumsum(tokens)[:, None] * weights).astype(np.float32)


PROMPTS: list[Prompt] = ["fox", "a longer prompt", [7, 8]]


def test_capture_selects_tokens() -> None:
    model = FakeModel()
    expected = [activations(prompt, "blk.1") for prompt in PROMPTS]
    last = probe.capture(model, PROMPTS, ["blk.1", "token_embd"])
    assert list(last) == ["blk.1", "token_embd"] and last["blk.1"].dtype == np.float32
    np.testing.assert_array_equal(last["blk.1"], [values[-1] for values in expected])
    mean = probe.capture(model, PROMPTS, "blk.1", tokens="mean")["blk.1"]
    np.testing.assert_allclose(mean, [values.mean(axis=0) for values in expected], rtol=1e-6)
    positions = probe.capture(model, PROMPTS, ["blk.1"], tokens=[0, -1])["blk.1"]
    np.testing.assert_array_equal(positions, [values[[0, -1]] for values in expected])
    every = probe.capture(model, PROMPTS, ["blk.1"], tokens="all")["blk.1"]
    for values, reference in zip(every, expected):
        np.testing.assert_array_equal(values, reference)


def test_capture_accepts_aliases() -> None:
    model = FakeModel()
    hook, point = "blocks.2.hook_resid_pre", "blk.1"
    result = probe.capture(model, ["fox"], [hook, point])
    assert list(result) == [hook, point] and model.calls == [[point]]
    np.testing.assert_array_equal(result[hook], result[point])
    with pytest.raises(ValueError, match="layer out of range"):
        probe.capture(model, ["fox"], ["blk.4"])


def test_capture_of_attention() -> None:
    every = probe.capture(FakeModel(), PROMPTS, "blk.0.attn_weights", tokens="all")["blk.0.attn_weights"]
    maps = probe.split_heads(every[1], HEADS)
    assert maps.shape == (15, HEADS, 15)
    np.testing.assert_array_equal(maps[:, 1], every[1][:, 15:])
    with pytest.raises(ValueError, match='6 columns for prompt 0 and 30 for prompt 1: .*tokens="all"'):
        probe.capture(FakeModel(), PROMPTS, "blk.0.attn_weights")
    with pytest.raises(ValueError, match="30 columns are not divisible by 4 heads"):
        probe.split_heads(every[1], 4)


@pytest.mark.parametrize("tokens", ["first", [3], [-4], []])
def test_errors_of_tokens(tokens: Any) -> None:
    with pytest.raises(ValueError, match="invalid tokens|outside its 3 tokens|at least one position"):
        probe.capture(FakeModel(), ["fox"], "blk.0", tokens=tokens)


@pytest.mark.parametrize("tokens", ["last", "all", [0, 1]])
def test_cache_hit(tokens: Any, tmp_path: Path) -> None:
    model = FakeModel()
    points = ["blk.2", "blk.0"]
    first = probe.capture(model, PROMPTS, points, tokens=tokens, cache_dir=tmp_path / "new")
    again = probe.capture(model, PROMPTS, points, tokens=tokens, cache_dir=tmp_path / "new")
    # The order and the names of points do not matter.
    aliases = ["blocks.0.hook_resid_post", "blk.2"]
    other = probe.capture(model, PROMPTS, aliases, tokens=tokens, cache_dir=tmp_path / "new")
    assert len(model.calls) == len(PROMPTS) and list(other) == aliases
    for point in points:
        for a, b in zip(first[point], again[point]):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first["blk.0"][0], other[aliases[0]][0])
    assert [path.suffix for path in (tmp_path / "new").iterdir()] == [".npz"]


def test_cache_miss(tmp_path: Path) -> None:
    model = FakeModel()
    calls: list[Callable[[], Any]] = [
        lambda: probe.capture(model, ["fox"], "blk.0", cache_dir=tmp_path),
        lambda: probe.capture(model, ["cat"], "blk.0", cache_dir=tmp_path),
        lambda: probe.capture(model, [[102, 111, 120]], "blk.0", cache_dir=tmp_path),
        lambda: probe.capture(model, ["fox"], "blk.1", cache_dir=tmp_path),
        lambda: probe.capture(model, ["fox"], "blk.0", tokens="mean", cache_dir=tmp_path),
        lambda: probe.capture(model, ["fox"], "blk.0", tokens=[-1], cache_dir=tmp_path),
        lambda: probe.capture(FakeModel(bytes([1] * 32)), ["fox"], "blk.0", cache_dir=tmp_path),
        lambda: probe.capture(FakeModel(device="gpu"), ["fox"], "blk.0", cache_dir=tmp_path),
    ]
    for count, call in enumerate(calls, 1):
        call()
        assert len(list(tmp_path.iterdir())) == count
    exact: Any = FakeModel()
    exact.load_options = {"precision": "exact", "threads": 2}
    probe.capture(exact, ["fox"], "blk.0", cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == len(calls) + 1


def test_cache_ignores_damaged_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = FakeModel()

    def run() -> Array:
        return probe.capture(model, PROMPTS, ["blk.0"], cache_dir=tmp_path)["blk.0"]

    expected = run()
    [path] = tmp_path.iterdir()
    good = path.read_bytes()
    flips = range(0, len(good), 23)
    damaged = [good[:size] for size in range(0, len(good), 97)]
    damaged += [good[:at] + bytes([good[at] ^ 0x40]) + good[at + 1 :] for at in flips]
    damaged += [b"not an archive", good[:100] + good[50:]]
    calls = len(model.calls)
    caplog.set_level(logging.WARNING, "tabla")
    for data in damaged:
        path.write_bytes(data)
        np.testing.assert_array_equal(run(), expected)
    # Only changes of bytes without meaning, such as dates, may go unnoticed.
    recomputed = (len(model.calls) - calls) // len(PROMPTS)
    assert recomputed > 0.5 * len(damaged) and f"ignoring damaged cache file {path}" in caplog.text
    path.write_bytes(good)
    assert run().tolist() == expected.tolist() and len(list(tmp_path.iterdir())) == 1


def test_cache_rejects_results_of_another_call(tmp_path: Path) -> None:
    model = FakeModel()
    probe.capture(model, ["fox"], "blk.0", cache_dir=tmp_path)
    [fox] = tmp_path.iterdir()
    expected = probe.capture(model, ["cat"], "blk.0", cache_dir=tmp_path)["blk.0"]
    [cat] = set(tmp_path.iterdir()) - {fox}
    cat.write_bytes(fox.read_bytes())
    result = probe.capture(model, ["cat"], "blk.0", cache_dir=tmp_path)["blk.0"]
    np.testing.assert_array_equal(result, expected)


def test_cache_leaves_no_partial_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        probe.capture(FakeModel(), ["fox"], "blk.0", cache_dir=tmp_path)
    assert not list(tmp_path.iterdir())


# Linear probes


def planted(layer: int, examples: int = 200, dim: int = 20, seed: int = 0) -> tuple[dict[str, Array], Array]:
    """Returns activations where a label of two classes is linear in one layer and absent in the others."""
    generator = random(seed)
    labels = generator.integers(0, 2, examples)
    features = {f"blk.{at}": generator.normal(size=(examples, dim)) for at in range(LAYERS)}
    features[f"blk.{layer}"] += 4 * np.outer(labels - 0.5, rotation(dim)[0])
    return features, labels


def test_probe_finds_the_layer() -> None:
    features, labels = planted(2)
    result = probe.linear_probe(features, np.array(["noun", "verb"])[labels], controls=3)
    assert result.layers == tuple(features) and result.best == "blk.2" and result.metric == "accuracy"
    assert result.scores.shape == (LAYERS, 5) and result.control_scores.shape == (LAYERS, 3, 5)
    assert result.control is not None and result.selectivity is not None
    assert result.mean[2] > 0.9 and (np.delete(result.mean, 2) < 0.65).all()
    assert (np.abs(result.control - 0.5) < 0.12).all() and result.selectivity[2] > 0.3
    assert result.baseline == max(labels.mean(), 1 - labels.mean())
    np.testing.assert_allclose(result.stderr, np.std(result.scores, axis=1, ddof=1) / 5**0.5)


def test_probe_is_deterministic() -> None:
    features, labels = planted(1, examples=60)
    results = [probe.linear_probe(features, labels, seed=seed) for seed in (3, 3, 4)]
    np.testing.assert_array_equal(results[0].scores, results[1].scores)
    np.testing.assert_array_equal(results[0].control_scores, results[1].control_scores)
    assert (results[0].control_scores != results[2].control_scores).any()


def test_control_task_of_items_is_memorized() -> None:
    generator = random(5)
    items = generator.integers(0, 12, 240)
    words = generator.normal(size=(12, 30))
    features = {"blk.0": words[items] + 0.01 * generator.normal(size=(240, 30))}
    labels = (items % 2).tolist()
    result = probe.linear_probe(features, labels, items=[f"word {item}" for item in items])
    assert result.control is not None and result.selectivity is not None
    # The probe identifies the words, so its score says nothing about the labels.
    assert result.mean[0] == 1 and result.control[0] > 0.99 and abs(result.selectivity[0]) < 0.01
    alone = probe.linear_probe(features, labels)
    assert alone.selectivity is not None and alone.selectivity[0] > 0.3


def test_items_are_in_one_fold() -> None:
    generator = random(8)
    items = generator.integers(0, 40, 240)
    numbers = generator.normal(size=40)[items]
    features = {"blk.0": generator.normal(size=(40, 60))[items], "blk.1": numbers[:, None] * np.ones((1, 3))}
    labels = numbers > 0
    # Words identify the label only if they were in the training examples; blk.1 has the label itself.
    seen = probe.linear_probe(features, labels, items=items)
    unseen = probe.linear_probe(features, labels, items=items, split_items=True)
    assert seen.mean[0] > 0.95 and unseen.mean[0] < 0.75 and unseen.mean[1] > 0.9
    assert unseen.control is not None and unseen.control[0] < 0.75
    seen = probe.ridge_probe(features, numbers, items=items)
    unseen = probe.ridge_probe(features, numbers, items=items, split_items=True)
    assert seen.mean[0] > 0.9 and unseen.mean[0] < 0.5 and unseen.mean[1] > 0.9
    for function in (probe.linear_probe, probe.ridge_probe):
        with pytest.raises(ValueError, match="at least 5 different items for 5 folds, got 2"):
            function(features, labels, items=(items % 2).tolist(), split_items=True)


def test_probe_with_more_columns_than_examples() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    features, labels = planted(0, examples=50, dim=120)
    result = probe.linear_probe(features, labels, l2=10.0, seed=1, controls=0)
    assert result.control is None and result.selectivity is None and "control" not in repr(result)
    folds = StratifiedKFold(5, shuffle=True, random_state=1)
    for layer, x in enumerate(list(features.values())[:2]):
        for fold, (train, test) in enumerate(folds.split(x, labels)):
            reference = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-8, max_iter=5000))
            with threadpool_limits(1):
                expected = reference.fit(x[train], labels[train]).score(x[test], labels[test])
            assert result.scores[layer, fold] == pytest.approx(expected)


def test_ridge_probe_matches_its_formula() -> None:
    features, _ = planted(0, examples=100, dim=8)
    targets = features["blk.3"] @ np.arange(8) + 0.1 * random().normal(size=100)
    result = probe.ridge_probe(features, targets, l2=3.0)
    assert result.best == "blk.3" and result.mean[3] > 0.99 and result.baseline == 0
    assert result.control is not None and result.selectivity is not None
    assert (result.control < 0).all() and result.selectivity[3] == result.mean[3]
    from sklearn.model_selection import KFold

    x = features["blk.3"]
    for fold, (train, test) in enumerate(KFold(5, shuffle=True, random_state=0).split(x)):
        mean, scale = x[train].mean(axis=0), x[train].std(axis=0)
        a, b = (x[train] - mean) / scale, (x[test] - mean) / scale
        y = targets[train] - targets[train].mean()
        weights = np.linalg.solve(a.T @ a + 3.0 * np.eye(8), a.T @ y)
        residuals = targets[test] - targets[train].mean() - b @ weights
        r2 = 1 - (residuals**2).sum() / ((targets[test] - targets[test].mean()) ** 2).sum()
        assert result.scores[3, fold] == pytest.approx(r2)
    two = probe.ridge_probe(features, np.stack([targets, -targets], axis=1), l2=3.0, controls=0)
    np.testing.assert_allclose(two.scores, result.scores)


def test_errors_of_probes() -> None:
    features, labels = planted(0, examples=20)
    bad = {**features, "blk.1": np.full((20, 3), np.nan)}
    cases: list[tuple[Any, Any, str]] = [
        (features, labels[:-1], "features have 20 rows, labels has shape \\[19\\]"),
        (features, [0] * 20, "at least 2 classes, got only 0"),
        (features, [1] * 3 + [0] * 17, "label 1 has 3 examples, expected at least 5"),
        (features, [(label, 0) for label in labels], "labels has shape \\[20, 2\\]"),
        ({}, labels, "at least one layer"),
        (bad, labels, r"features\['blk.1'\]: value nan in row 0, column 0 is not finite"),
        ({**features, "blk.1": np.zeros((19, 3))}, labels, "row count mismatch"),
        ({"blk.0": np.zeros(20)}, labels, "expected a matrix"),
    ]
    for x, y, message in cases:
        with pytest.raises(ValueError, match=message):
            probe.linear_probe(x, y)
    with pytest.raises(ValueError, match="expected 20 items, got 1"):
        probe.linear_probe(features, labels, items=["word"])
    with pytest.raises(ValueError, match="at least 22 examples for 11 folds"):
        probe.ridge_probe(features, labels, folds=11)
    with pytest.raises(ValueError, match="finite targets"):
        probe.ridge_probe(features, [np.inf] * 20)


# Similarity


def test_cka_matches_its_definition_and_invariances() -> None:
    generator = random()
    x = generator.normal(size=(40, 10))
    y = x @ generator.normal(size=(10, 7)) + generator.normal(size=(40, 7))
    center = np.eye(40) - 1 / 40
    k, m = center @ x @ x.T @ center, center @ y @ y.T @ center
    expected = np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m))
    assert probe.cka(x, y) == pytest.approx(expected) == pytest.approx(probe.cka(y, x))
    for unbiased in (False, True):
        value = probe.cka(x, y, unbiased=unbiased)
        other = probe.cka(1e-6 * x @ rotation(10) + 3, 1e6 * y @ rotation(7) - 5, unbiased=unbiased)
        assert other == pytest.approx(value)
        assert probe.cka(x, x @ rotation(10), unbiased=unbiased) == pytest.approx(1)
    assert probe.cka(x, x @ np.diag(np.arange(1.0, 11))) < 0.999


def test_unbiased_cka_matches_hsic() -> None:
    def hsic(k: Array, m: Array) -> float:  # Song et al. 2012
        n = len(k)
        k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
        middle = k.sum() * m.sum() / ((n - 1) * (n - 2))
        return float((np.trace(k @ m) + middle - 2 * (k @ m).sum() / (n - 2)) / (n * (n - 3)))

    generator = random(1)
    x, y = generator.normal(size=(12, 30)), generator.normal(size=(12, 5))
    k, m = x @ x.T, y @ y.T
    expected = hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))
    assert probe.cka(x, y, unbiased=True) == pytest.approx(expected)
    many = [
        probe.cka(random(s).normal(size=(10, 200)), random(s + 99).normal(size=(10, 200)), unbiased=True)
        for s in range(30)
    ]
    assert abs(np.mean(many)) < 0.1
    assert probe.cka(random(2).normal(size=(10, 200)), random(3).normal(size=(10, 200))) > 0.5


def test_cka_of_many_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = random(1).normal(size=(50, 6)), random(2).normal(size=(50, 8))
    expected = probe.cka(x, y)
    monkeypatch.setattr("tabla.probe.similarity.GRAM_ROWS", 10)
    assert probe.cka(x, y) == pytest.approx(expected)


def test_cca_matches_a_planted_correlation() -> None:
    u = np.linalg.qr(random().normal(size=(60, 9)) - random().normal(size=(60, 9)).mean(axis=0))[0]
    u = np.linalg.qr(u - u.mean(axis=0))[0]
    rho = np.array([0.9, 0.5, 0.2])
    x = u[:, :3]
    y = x * rho + u[:, 3:6] * np.sqrt(1 - rho**2)
    mixed = y @ random(3).normal(size=(3, 3)) + 7
    np.testing.assert_allclose(probe.canonical_correlations(x @ rotation(3), mixed), rho, atol=1e-9)
    assert probe.cca(x, mixed) == pytest.approx(rho.mean())
    # Weights of the columns of x, which are the variates themselves.
    assert probe.pwcca(x, mixed) == pytest.approx(rho.mean())
    weighted = x * [3.0, 2.0, 1.0]
    assert probe.pwcca(weighted, mixed) == pytest.approx(rho @ [3, 2, 1] / 6)


def test_cca_invariances_and_rank() -> None:
    generator = random(4)
    x, y = generator.normal(size=(80, 6)), generator.normal(size=(80, 5))
    value = probe.cca(x, y)
    assert probe.cca(x @ generator.normal(size=(6, 6)) + 2, y @ generator.normal(size=(5, 5))) == pytest.approx(
        value
    )
    assert probe.cca(x, x @ generator.normal(size=(6, 6))) == pytest.approx(1)
    # Dependent and constant columns add no dimensions, also after rounding to float32.
    wide = np.concatenate([x, x @ generator.normal(size=(6, 20)), np.ones((80, 2))], axis=1)
    assert len(probe.canonical_correlations(wide, wide)) == 6
    assert probe.cca(wide, y) == pytest.approx(value)
    assert len(probe.canonical_correlations(wide.astype(np.float32), wide)) == 6
    assert probe.cca(wide.astype(np.float32), y) == pytest.approx(value, abs=1e-5)
    with pytest.raises(ValueError, match="x: all rows are equal"):
        probe.cca(np.full((80, 3), 0.1), y)
    with pytest.raises(ValueError, match="row count mismatch: x has 80 rows, y has 79"):
        probe.cca(x, y[:-1])


def test_cca_with_few_examples() -> None:
    x, y = random(1).normal(size=(20, 50)), random(2).normal(size=(20, 50))
    with pytest.warns(
        RuntimeWarning, match="ranks 19 and 19 with 20 examples force 19 canonical correlations to 1"
    ):
        assert probe.cca(x, y) == pytest.approx(1)
    signal = random(3).normal(size=(20, 2))
    a, b = (
        np.concatenate([10 * signal @ rotation(2, s), 1e-3 * random(s).normal(size=(20, 50))], 1)
        for s in (1, 2)
    )
    assert probe.svcca(a, b) == pytest.approx(1, abs=1e-3)
    assert probe.svcca(a, random(9).normal(size=(20, 3))) < 0.9
    with pytest.raises(ValueError, match="invalid variance: 0"):
        probe.svcca(x, y, variance=0)


def test_rsa_matches_scipy() -> None:
    from scipy.spatial.distance import pdist, squareform
    from scipy.stats import spearmanr

    generator = random(6)
    x = generator.normal(size=(15, 8)) + 3
    y = np.round(x @ generator.normal(size=(8, 4)))  # ties
    for metric in ("correlation", "cosine", "euclidean"):
        np.testing.assert_allclose(probe.dissimilarity(x, metric), squareform(pdist(x, metric)), atol=1e-12)
        expected = spearmanr(pdist(x, metric), pdist(y, metric))[0]
        assert probe.rsa(x, y, metric) == pytest.approx(expected, abs=1e-3)
        assert probe.rsa(x, x, metric) == pytest.approx(1)
    assert probe.rsa(x, 5 * x @ rotation(8) - 1, "euclidean") == pytest.approx(1)
    near = 1e6 + 1e-3 * x
    np.testing.assert_allclose(probe.dissimilarity(near, "euclidean"), squareform(pdist(near)), rtol=1e-12)
    for bad, metric, message in [
        (np.ones((4, 3)), "correlation", "row 0 of x is constant"),
        (np.diag([1.0, 1, 0]), "cosine", "row 2 of x is 0"),
        (x, "manhattan", "invalid metric: 'manhattan'"),
    ]:
        with pytest.raises(ValueError, match=message):
            probe.dissimilarity(bad, metric)
    with pytest.raises(ValueError, match="at least 3 examples, got 2"):
        probe.rsa(x[:2], x[:2])
    with pytest.raises(ValueError, match="differs"):
        probe.rsa(x, y[:-1])


def test_js_divergence() -> None:
    generator = random(7)
    p, q = generator.normal(size=(2, 5, 30)) * 5
    values = probe.js_divergence(p, q)
    assert values.shape == (5,) and (values > 0).all() and (values < 1).all()
    from scipy.spatial.distance import jensenshannon
    from scipy.special import softmax

    expected = [jensenshannon(softmax(a), softmax(b), base=2) ** 2 for a, b in zip(p, q)]
    np.testing.assert_allclose(values, expected, rtol=1e-9)
    np.testing.assert_allclose(probe.js_divergence(q + 1000, p - 1000), values)  # symmetric, shift of logits
    assert (probe.js_divergence(p, p) == 0).all()
    apart = probe.js_divergence([0, -np.inf, -1e30], [-np.inf, 0, -np.inf])
    assert apart == 1
    assert probe.js_divergence([0, -np.inf], [0, 0]) == pytest.approx(1.5 - 0.75 * np.log2(3))
    for bad in ([np.nan, 0.0], [-np.inf, -np.inf], [np.inf, 0.0]):
        with pytest.raises(ValueError, match="p: a row of logits has NaN or infinity"):
            probe.js_divergence(bad, [0.0, 0.0])
    with pytest.raises(ValueError, match="shape mismatch"):
        probe.js_divergence(p, q[:-1])


def test_layer_divergence() -> None:
    final = random(1).normal(size=(4, 10))
    logits = {f"blk.{at}": final + (3 - at) * random(at).normal(size=(4, 10)) for at in range(4)}
    result = probe.layer_divergence(logits)
    assert result.reference == "blk.3" and result.values.shape == (4, 4)
    assert result.mean[3] == 0 and result.mean[0] > result.mean[2] > 0
    np.testing.assert_array_equal(result.values[1], probe.js_divergence(logits["blk.1"], final))
    assert probe.layer_divergence({"blk.0": final[:1]}).stderr == 0
    with pytest.raises(ValueError, match="reference 'blk.9' is not one of the layers"):
        probe.layer_divergence(logits, "blk.9")


@pytest.mark.parametrize("measure", ["cca", "svcca", "pwcca", "cka", "unbiased cka", "rsa"])
def test_layer_similarity(measure: str) -> None:
    x = {f"blk.{at}": random(at).normal(size=(30, 6)) for at in range(3)}
    y = {"other.0": x["blk.1"] @ rotation(6), "other.1": random(8).normal(size=(30, 4))}
    function = {
        "unbiased cka": lambda a, b: probe.cka(a, b, unbiased=True),
        **{name: getattr(probe, name) for name in ("cca", "svcca", "pwcca", "cka", "rsa")},
    }[measure]
    result = probe.layer_similarity(x, y, measure)
    assert result.values.shape == (3, 2) and result.rows == tuple(x) and result.columns == tuple(y)
    for row, a in enumerate(x.values()):
        for column, b in enumerate(y.values()):
            assert result.values[row, column] == pytest.approx(function(a, b))
    np.testing.assert_allclose(np.diag(probe.layer_similarity(x, measure=measure).values), 1)
    assert measure == "rsa" or result.values[:, 0].argmax() == 1


def test_layer_similarity_checks_arguments() -> None:
    x = {"blk.0": random().normal(size=(5, 2))}
    with pytest.raises(ValueError, match="invalid measure: 'dot', expected one of cca"):
        probe.layer_similarity(x, measure="dot")
    with pytest.raises(ValueError, match="at least one layer"):
        probe.layer_similarity(x, {})
    with pytest.raises(ValueError, match="row count mismatch"):
        probe.layer_similarity(x, {"blk.0": x["blk.0"][:4]})


# Steering


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("find", [steering.mean_difference, steering.pca_direction])
def test_steering_recovers_a_planted_direction(find: Callable[..., dict[str, Array]]) -> None:
    generator = random(3)
    direction = rotation(16)[0]
    base = generator.normal(size=(60, 16))
    positive = {"blk.2": base + 3 * direction, "blk.3": base}
    noise = 0.2 * generator.normal(size=(60, 16))
    negative = {"blk.2": base + noise, "blk.3": base - direction + noise}
    found = find(positive, negative)
    assert list(found) == ["blk.2", "blk.3"]
    assert cosine(found["blk.2"], direction) > 0.99
    assert np.linalg.norm(found["blk.2"]) == pytest.approx(3, rel=0.05)
    assert np.linalg.norm(find(positive, negative, normalize=True)["blk.3"]) == pytest.approx(1)
    assert cosine(find(negative, positive)["blk.2"], direction) < -0.99


def test_steering_pca_finds_the_direction_of_most_variance() -> None:
    # The differences vary along one axis, and their mean has a small part along it and along another one.
    differences = np.zeros((50, 4))
    differences[:, 0] = np.linspace(-8, 10, 50)
    differences[:, 1] = 0.5
    zeros = {"blk.0": np.zeros((50, 4))}
    found = steering.pca_direction({"blk.0": differences}, zeros, normalize=True)["blk.0"]
    assert found[0] > 0.99
    scaled = steering.pca_direction({"blk.0": differences}, zeros)["blk.0"]
    assert np.linalg.norm(scaled) == pytest.approx(found @ differences.mean(axis=0))


def test_steering_files(tmp_path: Path) -> None:
    path = tmp_path / "directions"
    directions = {"blocks.1.hook_resid_post": np.arange(3.0), "blk.3": -np.ones(3)}
    steering.save(path, directions, LAYERS)
    table = np.load(path)
    assert table.shape == (LAYERS, 3) and table.dtype == np.float32
    loaded = steering.load(path)
    assert list(loaded) == ["blk.1", "blk.3"] and loaded["blk.1"].tolist() == [0, 1, 2]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"token_embd": np.ones(3)}, "expected points blk.N"),
        ({"blk.1.attn": np.ones(3)}, "expected points blk.N"),
        ({"blk.7": np.ones(3)}, "layer out of range"),
        ({"blk.1": np.ones(3), "blk.2": np.ones(4)}, "same shape"),
        ({"blk.1": np.ones((2, 3))}, "same shape"),
        ({}, "same shape"),
    ]
    for bad, message in cases:
        with pytest.raises(ValueError, match=message):
            steering.save(path, bad, LAYERS)
    for table in (np.ones(3), np.array([[np.nan]]), np.array([["a"]])):
        with open(path, "wb") as file:
            np.save(file, table)
        with pytest.raises(ValueError, match="expected finite floats"):
            steering.load(path)


def test_errors_of_steering() -> None:
    x = {"blk.0": np.ones((3, 2))}
    cases: list[tuple[Any, str]] = [
        ({"blk.1": np.ones((3, 2))}, "layer mismatch"),
        ({"blk.0": np.ones((3, 4))}, "dim mismatch: positive has 2 columns, negative has 4"),
        ({"blk.0": np.ones((2, 2))}, "expected pairs, got 3 positive and 2 negative"),
        (x, "there is no direction"),
    ]
    for y, message in cases:
        with pytest.raises(ValueError, match=message):
            steering.pca_direction(x, y, normalize=True)
    steering.mean_difference(x, {"blk.0": np.zeros((2, 2))})


# Results in notebooks and plots


def results() -> dict[str, Any]:
    """Returns one result of each class, with names that are HTML and formulas."""
    features, labels = planted(1, examples=40)
    evil = {EVIL: features["blk.0"], "$x^$": features["blk.1"]}
    logits = {name: random().normal(size=(3, 5)) * 4 for name in evil}
    return {
        "accuracy": probe.linear_probe(evil, labels),
        "divergence": probe.layer_divergence(logits),
        "similarity": probe.layer_similarity(evil),
        "logit_lens": probe.logit_lens(logits, [EVIL, "$a_", "line\n\x00"], lambda token: f"{EVIL}{token}"),
    }


def test_results_are_shown_in_notebooks() -> None:
    for result in results().values():
        read = Reader(result._repr_html_())
        assert "script" not in read.tags and EVIL in read.text and read.tags.count("table") == 1
        assert EVIL in repr(result) and "\x00" not in repr(result)


def test_repr_is_a_table() -> None:
    features, labels = planted(1, examples=40)
    lines = repr(probe.linear_probe(features, labels)).splitlines()
    assert lines[0].startswith("accuracy of 5 folds, baseline 0.")
    assert lines[1].split() == ["layer", "accuracy", "±", "stderr", "control", "selectivity"]
    assert [line.split()[0] for line in lines[2:]] == list(features)


def test_logit_lens() -> None:
    logits = {"blk.0": [[0.0, 2.0], [0.0, 0.0]], "blk.1": [[5.0, 1.0], [0.0, 9.0]]}
    lens = probe.logit_lens(logits, ["a", "b"], lambda token: f"t{token}")
    assert lens.predictions == (("t1", "t0"), ("t0", "t1"))
    assert lens.probabilities[0, 0] == pytest.approx(1 / (1 + np.exp(-2)))
    with pytest.raises(ValueError, match="blk.0: expected logits \\[1, vocab\\], got shape \\[2, 2\\]"):
        probe.logit_lens(logits, ["a"], str)


def test_plots_are_saved(tmp_path: Path) -> None:
    figures = {name: getattr(plots, name)(result) for name, result in results().items()}
    figures["heads"] = plots.heads(random().normal(size=(LAYERS, HEADS)), label="effect $of^ ablation")
    figures["attention"] = plots.attention(np.tril(np.ones((3, 3))), ["<s>", "$x", "\n"])
    figures["queries"] = plots.attention(np.ones((1, 3)), ["a", "b", "c"])
    for name, figure in figures.items():
        figure.savefig(tmp_path / f"{name}.png", dpi=40)
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    # No figure is registered, so none has to be closed.
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    with pytest.raises(ValueError, match="for 2 tokens"):
        plots.attention(np.ones((3, 3)), ["a", "b"])


def test_public_names_are_documented() -> None:
    for name in probe.__all__:
        assert getattr(probe, name).__doc__, name
    assert matplotlib.__version__ and sklearn.__version__ and matrix([[1]], "x").dtype == np.float64
