"""Hooks: captured and changed values, control vectors, adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Sequence

import numpy as np
import pytest
import tabla
from tabla import ControlVector, Edit, Model, Prompt, Steer

PROMPT = "Once upon a time"


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load(device="cpu", max_context=128)


def text_with(model: Model, **hooks: Any) -> str:
    with model.session() as session:
        session.set_hooks(model.hooks(**hooks))
        return session.generate(PROMPT, max_tokens=12, temperature=0).text


def test_captures_points(model: Model) -> None:
    tokens = model.tokenize(PROMPT)
    captured = model.capture(PROMPT, ["token_embd", "blk.*", "blk.0.attn_weights"])
    layers, dim = model.info.layers, model.info.dim
    assert list(captured)[0] == "token_embd" and len(captured) == layers + 2
    assert captured["blk.1"].shape == (len(tokens), dim)
    assert captured["blk.1"].base is captured.rows, "a view"
    assert captured.positions.tolist() == list(range(len(tokens)))
    weights = captured["blk.0.attn_weights"].reshape(len(tokens), model.info.heads, len(tokens))
    np.testing.assert_allclose(weights.sum(axis=2), 1, atol=1e-5)
    assert np.all(weights[0, :, 1:] == 0), "causal"
    assert "token_embd" in repr(captured)


def test_captures_each_prompt(model: Model) -> None:
    prompts: list[Prompt] = [PROMPT, "The cat sat", model.tokenize("Tom")]
    for points in (["blk.*"], ["blk.1", "blk.0.attn_weights"]):
        for prompt, captured in zip(prompts, model.capture_each(prompts, points)):
            alone = model.capture(prompt, points)
            assert list(captured) == list(alone)
            np.testing.assert_array_equal(captured.rows, alone.rows)


def test_positions_select_rows(model: Model) -> None:
    everything = model.capture(PROMPT, "blk.1")["blk.1"]
    cases: list[tuple[str | Sequence[int], list[int]]] = [("last", [len(everything) - 1]), ([2, 0], [0, 2])]
    for positions, expected in cases:
        with model.hooks("blk.1", positions=positions) as hooks, model.session() as session:
            session.set_hooks(hooks)
            captured = session.capture_prompt(PROMPT)
            assert captured.positions.tolist() == expected
            np.testing.assert_array_equal(captured["blk.1"], everything[np.array(expected)])


def test_generated_tokens_are_captured(model: Model) -> None:
    with model.session() as session:
        session.set_hooks(model.hooks(["blk.0"]))
        session.generate(PROMPT, max_tokens=5, temperature=0)
        tokens = session.tokens
        captured = session.captured()
        assert len(captured.positions) == len(tokens)
    again = model.capture(tokens, "blk.0")
    np.testing.assert_allclose(captured["blk.0"], again["blk.0"], atol=1e-4)


def test_edits_change_the_text(model: Model) -> None:
    plain = model.generate(PROMPT, max_tokens=12, temperature=0).text
    dim = model.info.dim
    vector = np.sin(np.arange(dim))
    assert text_with(model) == plain
    assert text_with(model, edits=[Edit.add("blk.1", vector, 5.0)]) != plain
    assert text_with(model, edits=[Edit.scale("blk.*.ffn_down", 0)]) != plain
    captured = model.capture(PROMPT, "blk.0", edits=[Edit.set("blk.0", vector, positions=(1, 2))])["blk.0"]
    np.testing.assert_allclose(captured[1], vector, rtol=1e-6)
    rows = np.stack([vector, -vector])
    captured = model.capture(PROMPT, "blk.0", edits=[Edit.set("blk.0", rows, positions=(1, 3))])["blk.0"]
    np.testing.assert_allclose(captured[1:3], rows, rtol=1e-6)
    captured = model.capture(PROMPT, "blk.0", edits=[Edit.project_out("blk.0", vector)])["blk.0"]
    np.testing.assert_allclose(captured @ vector, 0, atol=1e-3)
    heads = model.capture(PROMPT, "blk.0.attn", edits=[Edit.scale("blk.0.attn", 0, columns=(1, 3))])
    assert np.all(heads["blk.0.attn"][:, 1:3] == 0)


def test_lens_of_the_last_layer_is_the_output(model: Model) -> None:
    with model.hooks("blk.*") as hooks, model.session() as session:
        session.set_hooks(hooks)
        last = session.capture_prompt(PROMPT)[f"blk.{model.info.layers - 1}"]
        logits = hooks.lens(last)
    np.testing.assert_allclose(logits, model.logits(PROMPT, rows="all"), atol=1e-3)
    with model.hooks("blk.*") as hooks, pytest.raises(tabla.ArgumentError, match="residual must be"):
        hooks.lens(last[:, 1:])


def test_control_vectors(model: Model, tmp_path: Path) -> None:
    vector = np.cos(np.arange(model.info.dim))
    control = ControlVector.of({1: vector, 2: -vector}, "llama")
    for name in ("style.gguf", "style.npy"):
        control.save(tmp_path / name)
        loaded = ControlVector.load(tmp_path / name)
        steered = text_with(model, steers=[Steer(loaded, 4.0)])
        edits = [Edit.add("blk.1", vector, 4.0), Edit.add("blk.2", vector, -4.0)]
        assert steered == text_with(model, edits=edits)
        only = text_with(model, steers=[Steer(loaded, 4.0, layers=(1, 2))])
        assert only == text_with(model, edits=edits[:1])
    with pytest.raises(tabla.IoError):
        ControlVector.load(tmp_path / "missing.gguf")


def test_errors_name_the_item(model: Model, tmp_path: Path) -> None:
    with pytest.raises(tabla.ArgumentError, match="blk.99.*blk.N.attn_output"):
        model.hooks("blk.99")
    with pytest.raises(tabla.ArgumentError, match="expected a vector of"):
        model.hooks(edits=[Edit.add("blk.0", [1.0, 2.0])])
    with pytest.raises(tabla.ArgumentError, match="expected a vector, got shape"):
        model.hooks(edits=Edit.add("blk.0", np.ones((2, model.info.dim // 2))))
    control = ControlVector.of({1: np.ones(model.info.dim)})
    for layers, words in (((50, 60), "out of range"), ((2, 3), "no vector for the layers")):
        with pytest.raises(tabla.ArgumentError, match=words):
            model.hooks(steers=[Steer(control, layers=layers)])
    with pytest.raises(tabla.ArgumentError, match="the model has the layers 0 to"):
        model.hooks(steers=[Steer(ControlVector.of({99: np.ones(model.info.dim)}))])
    with pytest.raises(tabla.ArgumentError, match="the residual stream of the model has"):
        model.hooks(steers=[Steer(ControlVector.of({1: np.ones(3)}))])
    with pytest.raises(tabla.ArgumentError, match="pair of first and end"):
        model.hooks(edits=[Edit.scale("blk.0", 0, positions=(2, 2))])
    with pytest.raises(tabla.ArgumentError, match="invalid positions"):
        model.hooks("blk.0", positions="first")
    with model.session() as session:
        with pytest.raises(tabla.StateError, match="no hooks"):
            session.captured()
        with pytest.raises(tabla.StateError):
            session.set_adapter_scales([1.0])
    with pytest.raises(tabla.TablaError, match="adapter"):
        model.load_adapter(tmp_path)
