"""Embeddings, reranking and classification, compared with the reference implementation."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import tabla

from conftest import ARCH

GOLDEN = json.loads((ARCH / "bert/golden.json").read_text(encoding="utf-8"))
TEXTS = [case["text"] for case in GOLDEN["texts"]]


def test_embeddings_match_the_reference(bert: tabla.Model) -> None:
    # The first row is for a sequence of tokens, not for a text.
    expected = np.load(ARCH / "bert/embeddings.npy")[1:]
    rows = bert.embed(TEXTS)
    assert rows.shape == (len(TEXTS), bert.info.embedding_dim) and rows.dtype == np.float32
    np.testing.assert_allclose(rows[: len(expected)], expected, atol=1e-5)
    np.testing.assert_array_equal(bert.embed(TEXTS[0]), rows[:1])
    np.testing.assert_array_equal(asyncio.run(bert.aembed(TEXTS)), rows)
    assert bert.embed([]).shape == (0, bert.info.embedding_dim)


def test_tokens_match_the_reference(bert: tabla.Model) -> None:
    for case in GOLDEN["texts"]:
        assert bert.tokenize(case["text"]) == case["tokens"]


def test_options_change_embeddings(bert: tabla.Model) -> None:
    mean, cls = bert.embed(TEXTS, pooling="mean"), bert.embed(TEXTS, pooling="cls")
    assert not np.allclose(mean, cls)
    assert np.linalg.norm(bert.embed(TEXTS, normalize=True), axis=1) == pytest.approx(1)
    assert not np.allclose(np.linalg.norm(bert.embed(TEXTS, normalize=False), axis=1), 1)
    leading = bert.embed(TEXTS, dimensions=8, normalize=False)
    np.testing.assert_array_equal(leading, bert.embed(TEXTS, normalize=False)[:, :8])
    with pytest.raises(tabla.ArgumentError, match="invalid pooling 'median'"):
        bert.embed(TEXTS, pooling="median")
    with pytest.raises(tabla.ArgumentError, match="dimensions"):
        bert.embed(TEXTS, dimensions=10_000)


def test_prompts_of_the_model_are_prepended() -> None:
    folder = ARCH / "bert_cls"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    text = golden["texts"][0]["text"]
    with tabla.Model.load(folder / "hf", device="cpu", precision="exact", embeddings=True) as model:
        for prompt, expected in golden["prompted"].items():
            np.testing.assert_allclose(model.embed(text, prompt_name=prompt)[0], expected, atol=1e-5)
        with pytest.raises(tabla.ArgumentError, match="nowhere"):
            model.embed(text, prompt_name="nowhere")


def test_long_texts_are_rejected_or_truncated(bert: tabla.Model) -> None:
    long = "the sun " * 2000
    with pytest.raises(tabla.TooLargeError):
        bert.embed(long)
    assert bert.embed(long, truncate=True).shape == (1, bert.info.embedding_dim)


def test_generative_model_supports_embeddings(model: tabla.Model) -> None:
    rows = model.embed(["a red ball", "a red ball", "the fox"], pooling="mean")
    assert rows.shape == (3, model.info.embedding_dim)
    np.testing.assert_array_equal(rows[0], rows[1])
    assert np.abs(rows[0] - rows[2]).max() > 0.01
    with tabla.Model.load(device="cpu", max_context=64) as plain:
        with pytest.raises(tabla.TablaError, match="embeddings=True"):
            plain.embed("a red ball")


def test_rerank_scores_match_the_reference() -> None:
    folder = ARCH.parent / "reranker"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    with tabla.Model.load(folder / "model.gguf", device="cpu", precision="exact") as model:
        for case in golden["ranked"]:
            scores = model.rerank(golden["query"], golden["documents"], case["instruction"])
            np.testing.assert_allclose(scores, case["scores"], atol=1e-5)


def test_cross_encoder_scores_match_the_reference() -> None:
    folder = ARCH.parent / "cross_encoder/bert"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    queries, documents = ([pair[name] for pair in golden["pairs"]] for name in ("query", "document"))
    with tabla.Model.load(folder / "hf", device="cpu", precision="exact") as model:
        assert model.info.labels == 1 and model.label_names() == golden["labels"]
        logits = model.classify(queries, documents, logits=True, truncate=True)
        np.testing.assert_allclose(logits, golden["logits"], atol=1e-4)
        # The files of this model set the identity as activation function.
        scores = model.rerank(queries[0], documents[:2])
        np.testing.assert_array_equal(scores, logits[:2, 0])
        with pytest.raises(tabla.TooLargeError):
            model.classify(queries, documents)
        with pytest.raises(tabla.ArgumentError, match="second texts"):
            model.classify(queries, documents[:1])


def test_classification_returns_a_score_for_each_label(model: tabla.Model) -> None:
    folder = ARCH.parent / "cross_encoder/xlm_roberta_labels"
    golden = json.loads((folder / "golden.json").read_text(encoding="utf-8"))
    with tabla.Model.load(folder / "model.gguf", device="cpu", precision="exact") as classifier:
        assert classifier.label_names() == golden["labels"]
        assert classifier.classify("the sun").sum() == pytest.approx(1)
        assert classifier.classify([]).shape == (0, 3)
    assert model.label_names() == []
    with pytest.raises(tabla.StateError, match="classification head"):
        model.classify("the sun")
