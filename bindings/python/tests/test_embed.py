"""Embeddings, held against those of the reference implementation."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import tabla

from conftest import ARCH

GOLDEN = json.loads((ARCH / "bert/golden.json").read_text(encoding="utf-8"))
TEXTS = [case["text"] for case in GOLDEN["texts"]]


def test_embeddings_are_those_of_the_reference(bert: tabla.Model) -> None:
    # Its first row is of a sequence that is no text.
    expected = np.load(ARCH / "bert/embeddings.npy")[1:]
    found = bert.embed(TEXTS)
    assert found.shape == (len(TEXTS), bert.info.embedding_dim) and found.dtype == np.float32
    np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)
    np.testing.assert_array_equal(bert.embed(TEXTS[0]), found[:1])
    np.testing.assert_array_equal(asyncio.run(bert.aembed(TEXTS)), found)
    assert bert.embed([]).shape == (0, bert.info.embedding_dim)


def test_tokens_are_those_of_the_reference(bert: tabla.Model) -> None:
    for case in GOLDEN["texts"]:
        assert bert.tokenize(case["text"]) == case["tokens"]


def test_options_change_embeddings(bert: tabla.Model) -> None:
    mean, cls = bert.embed(TEXTS, pooling="mean"), bert.embed(TEXTS, pooling="cls")
    assert not np.allclose(mean, cls)
    assert np.linalg.norm(bert.embed(TEXTS, normalize=True), axis=1) == pytest.approx(1)
    assert not np.allclose(np.linalg.norm(bert.embed(TEXTS, normalize=False), axis=1), 1)
    few = bert.embed(TEXTS, dimensions=8, normalize=False)
    np.testing.assert_array_equal(few, bert.embed(TEXTS, normalize=False)[:, :8])
    with pytest.raises(tabla.ArgumentError, match="pooling is 'median'"):
        bert.embed(TEXTS, pooling="median")
    with pytest.raises(tabla.ArgumentError, match="dimensions"):
        bert.embed(TEXTS, dimensions=10_000)


def test_prompts_of_the_model_stand_in_front() -> None:
    folder = ARCH / "bert_cls"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    text = golden["texts"][0]["text"]
    with tabla.Model.load(folder / "hf", device="cpu", precision="exact", embeddings=True) as model:
        for prompt, expected in golden["prompted"].items():
            np.testing.assert_allclose(model.embed(text, prompt=prompt)[0], expected, atol=1e-5)
        with pytest.raises(tabla.ArgumentError, match="nowhere"):
            model.embed(text, prompt="nowhere")


def test_long_texts_are_refused_or_cut(bert: tabla.Model) -> None:
    long = "the sun " * 2000
    with pytest.raises(tabla.TooLargeError):
        bert.embed(long)
    assert bert.embed(long, truncate=True).shape == (1, bert.info.embedding_dim)


def test_a_model_that_generates_embeds_too(model: tabla.Model) -> None:
    found = model.embed(["a red ball", "a red ball", "the fox"], pooling="mean")
    assert found.shape == (3, model.info.embedding_dim)
    np.testing.assert_array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 0.01
    with tabla.Model.load(device="cpu", max_context=64) as plain:
        with pytest.raises(tabla.TablaError, match="embeddings=True"):
            plain.embed("a red ball")


def test_documents_are_ranked_as_by_the_reference() -> None:
    folder = ARCH.parent / "reranker"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    with tabla.Model.load(folder / "model.gguf", device="cpu", precision="exact") as model:
        for case in golden["ranked"]:
            found = model.rerank(golden["query"], golden["documents"], case["instruction"])
            np.testing.assert_allclose(found, case["scores"], atol=1e-5)
