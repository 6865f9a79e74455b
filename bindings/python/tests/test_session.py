"""Sessions: generation, forks, files, logits and scores; tokenizer and model information."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from pathlib import Path

import numpy as np
import pytest
import tabla
from tabla._handle import Handle

PROMPT = "Once upon a time"


def test_session_continues_its_sequence(model: tabla.Model) -> None:
    whole = model.generate(PROMPT, max_tokens=6, seed=0)
    with model.session() as session:
        session.prefill(PROMPT)
        first = session.generate(max_tokens=4, seed=0)
        rest = session.generate(max_tokens=2, seed=0)
        assert first.tokens == whole.tokens[:4]
        assert session.tokens == [*model.tokenize(PROMPT), *first.tokens, *rest.tokens]

        session.truncate(2)
        assert session.tokens == model.tokenize(PROMPT)[:2]
        session.truncate()
        assert session.tokens == []


def test_session_moves_to_another_load_of_its_model(model: tabla.Model) -> None:
    with model.session() as session, tabla.Model.load(device="cpu") as again:
        session.prefill(PROMPT)
        session.generate(max_tokens=4, seed=0)
        with session.fork() as fork:
            session.move_to(again)
            assert session.model is again
            assert session.generate(max_tokens=4, seed=0).tokens == fork.generate(max_tokens=4, seed=0).tokens
        assert len(session.tokens) == len(model.tokenize(PROMPT)) + 8


def test_model_and_session_have_the_same_methods_of_a_sequence(model: tabla.Model) -> None:
    def methods(cls: type) -> dict[str, inspect.Signature]:
        members = inspect.getmembers(cls, inspect.isfunction)
        return {name: inspect.signature(member) for name, member in members if name[0] != "_"}

    ours, theirs = methods(tabla.Model), methods(tabla.Session)
    shared = set(ours) & set(theirs) - set(methods(Handle))
    assert shared == {
        *("generate", "agenerate", "stream", "astream"),
        *("logits", "score", "embed", "aembed", "rerank", "classify"),
    }
    for name in shared:
        of_model = [(p.name, p.kind) for p in ours[name].parameters.values()]
        assert of_model == [(p.name, p.kind) for p in theirs[name].parameters.values()], name

    # Each of them does the same on a new session.
    texts = ["a red ball", "a blue ball"]
    with model.session() as session:
        np.testing.assert_array_equal(session.embed(texts, pooling="mean"), model.embed(texts, pooling="mean"))
        embeddings = asyncio.run(session.aembed(texts, pooling="mean"))
        np.testing.assert_array_equal(embeddings, model.embed(texts, pooling="mean"))
        np.testing.assert_array_equal(session.score(PROMPT), model.score(PROMPT))
        assert session.tokens == []
        out = np.empty(model.info.vocab, np.float32)
        assert model.logits(PROMPT, out=out) is out
        np.testing.assert_array_equal(session.logits(PROMPT), out)
        assert session.tokens == model.tokenize(PROMPT)
        np.testing.assert_array_equal(session.logits(), out)
    assert not hasattr(model, "cancel")


def test_bos_is_only_added_at_the_start(model: tabla.Model) -> None:
    bos = model.info.bos_token
    session = model.session()
    session.prefill("Once")
    session.prefill(" upon")
    assert session.tokens[0] == bos and bos not in session.tokens[1:]
    session.generate(" a time", max_tokens=1, seed=0)
    assert session.tokens[: len(model.tokenize(PROMPT))] == model.tokenize(PROMPT)


def test_fork_does_not_change_the_original(model: tabla.Model) -> None:
    session = model.session()
    session.prefill(PROMPT)
    with session.fork() as fork:
        assert fork.generate(max_tokens=3, seed=0).text == session.generate(max_tokens=3, seed=0).text
        fork.truncate(1)
    assert len(session.tokens) == len(model.tokenize(PROMPT)) + 3


def test_step_samples_one_token(model: tabla.Model) -> None:
    session = model.session()
    session.prefill(PROMPT)
    likeliest = int(session.logits().argmax())
    assert session.step(temperature=0) == likeliest
    assert session.tokens[-1] == likeliest


def test_step_reports_its_random_seed(model: tabla.Model) -> None:
    session = model.session()
    session.prefill(PROMPT)
    assert session.step_seed is None
    before = len(session.tokens)
    seeds: set[int] = set()
    for _ in range(3):
        token = session.step(temperature=2, top_k=0)
        assert session.step_seed is not None
        seeds.add(session.step_seed)
        session.truncate(before)
        assert session.step(temperature=2, top_k=0, seed=session.step_seed) == token
        session.truncate(before)
    assert len(seeds) == 3


def test_logits_are_written_to_out(model: tabla.Model) -> None:
    session = model.session()
    session.prefill(PROMPT)
    tokens, vocab = len(session.tokens), model.info.vocab

    last = session.logits()
    assert last.shape == (vocab,) and last.dtype == np.float32
    everything = session.logits(rows="all")
    assert everything.shape == (tokens, vocab)
    np.testing.assert_allclose(everything[-1], last, atol=1e-4)
    np.testing.assert_array_equal(model.logits(PROMPT), last)

    out = np.full((2, vocab), np.nan, np.float32)
    row = session.logits(out=out[1])
    assert np.shares_memory(row, out) and row.ctypes.data == out.ctypes.data + 4 * vocab
    np.testing.assert_array_equal(out[1], last)
    assert np.isnan(out[0]).all()


def test_logits_match_the_reference() -> None:
    golden = Path(__file__).parents[3] / "tests/golden"
    tokens = json_tokens(golden / "llama.json")
    with tabla.Model.load(golden / "llama.gguf", device="cpu", precision="exact") as model:
        logits = model.logits(tokens, rows="all")
    expected = np.load(golden / "llama.npy")
    np.testing.assert_allclose(logits, expected.reshape(logits.shape), atol=1e-4)


def json_tokens(path: Path) -> list[int]:
    import json

    tokens: list[int] = json.loads(path.read_text(encoding="utf-8"))["tokens"]
    return tokens


def test_scores_match_the_logits(model: tabla.Model) -> None:
    tokens = model.tokenize(PROMPT)
    logits = model.logits(tokens, rows="all").astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    expected = [logprobs[at, token] for at, token in enumerate(tokens[1:])]
    np.testing.assert_allclose(model.score(tokens), expected, atol=1e-3)
    np.testing.assert_array_equal(model.score(PROMPT, start=3), model.score(tokens)[2:])
    for start in (0, len(tokens)):
        with pytest.raises(tabla.ArgumentError, match="^start must be"):
            model.score(tokens, start=start)


def test_sessions_are_saved_and_loaded(model: tabla.Model, tmp_path: Path) -> None:
    file = tmp_path / "a.session"
    with model.session() as session:
        session.prefill(PROMPT)
        session.save(file)
        expected = session.generate(max_tokens=4, seed=0).text
    with tabla.Session.load(model, file) as again:
        assert again.tokens == model.tokenize(PROMPT)
        assert again.generate(max_tokens=4, seed=0).text == expected
    with pytest.raises(tabla.IoError):
        tabla.Session.load(model, tmp_path / "none.session")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(tabla.FormatError):
        tabla.Session.load(model, file)


def test_tokenizer_round_trips(model: tabla.Model) -> None:
    tokens = model.tokenize(PROMPT, add_special=False)
    assert model.tokenize(PROMPT) == [model.info.bos_token, *tokens]
    assert model.detokenize(tokens) == PROMPT
    assert b"".join(model.token_bytes(token) for token in tokens) == PROMPT.encode()
    assert model.tokenize("") == [model.info.bos_token]
    assert model.stop_token_ids() == [model.info.eos_token]
    assert model.detokenize(model.tokenize("é🙂", add_special=False)) == "é🙂"
    name = model.token_bytes(0).decode()
    assert model.tokenize(name, add_special=False, parse_special=True) == [0]
    assert model.tokenize(name, add_special=False) != [0]


def test_unpickled_model_is_loaded_again(model: tabla.Model) -> None:
    with pickle.loads(pickle.dumps(model)) as again:
        assert again.info == model.info
        assert again.digest == model.digest
        assert again.load_options == model.load_options
        texts = [each.generate(PROMPT, max_tokens=3, seed=0).text for each in (model, again)]
        assert texts[0] == texts[1]


def test_model_information(model: tabla.Model) -> None:
    info = model.info
    assert (info.architecture, info.layers, info.vocab, info.sequences) == ("llama", 6, 1280, 4)
    assert (info.bos_token, info.is_encoder, info.embedding_dim) == (0, False, 192)
    assert repr(model) == f"<tabla.Model 'story' on {info.device}>"
    assert len(model.digest) == 32
    table = model.table("step")
    assert str(table).startswith("; table step")
    listed = [line for line in str(table).splitlines() if not line.startswith(";")]
    assert len(table) == len([line for line in listed if line.split()[0].isdigit()]) > 100
    assert table.commands[0]["op"].startswith("embed")
    assert str(model.table("step", tokens=5)).startswith("; table step, 8 tokens")
    with pytest.raises(tabla.ArgumentError, match="step for 8 tokens"):
        model.table("step", tokens=33)
    with pytest.raises(tabla.ArgumentError, match="stride"):
        model.table("stride")
    devices = tabla.devices()
    assert devices["cpu"]["threads"] >= 1 and isinstance(devices["gpus"], list)
