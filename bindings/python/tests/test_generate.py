"""Answers: complete, piece by piece, in batches, and ended early."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import os
import signal
import threading
from typing import Any

import pytest
import tabla
from tabla._handle import interruptible

from conftest import ENDLESS

PROMPT = "Once upon a time"


def test_same_seed_gives_same_text_with_every_method(model: tabla.Model) -> None:
    answer = model.generate(PROMPT, max_tokens=5, seed=7)
    assert answer.text and len(answer.tokens) == 5
    assert (answer.finish_reason, answer.stats.tokens) == ("length", 5)
    assert str(answer) == answer.text == model.detokenize(answer.tokens)

    with model.stream(PROMPT, max_tokens=5, seed=7) as stream:
        *pieces, end = stream
    assert tuple(pieces) == answer.pieces
    assert (end.text, end.token, end.finish_reason) == ("", None, "length")

    with model.session() as session:
        assert session.generate(PROMPT, max_tokens=5, seed=7).pieces == answer.pieces
        assert session.tokens == [*model.tokenize(PROMPT), *answer.tokens]

    tokens = model.tokenize(PROMPT)
    assert model.generate(tokens, max_tokens=5, seed=7).tokens == answer.tokens
    others = model.generate_many([PROMPT, "The fox", tokens], max_tokens=5, seed=7)
    assert [other.text for other in others[::2]] == [answer.text] * 2
    assert others[1].tokens == model.generate("The fox", max_tokens=5, seed=7).tokens

    assert model.generate(PROMPT, max_tokens=5, seed=8).tokens != answer.tokens


WILD: dict[str, Any] = {"max_tokens": 12, "temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0}
"""Options with which two seeds practically never give the same answer."""


def test_default_seed_is_random_and_reported(model: tabla.Model) -> None:
    answers = [model.generate(PROMPT, **WILD) for _ in range(3)]
    assert len({answer.seed for answer in answers}) == len({answer.text for answer in answers}) == 3
    assert all(0 <= answer.seed < 2**32 for answer in answers)
    for answer in answers:
        again = model.generate(PROMPT, **WILD, seed=answer.seed)
        assert (again.pieces, again.seed) == (answer.pieces, answer.seed)
        assert {piece.seed for piece in answer.pieces} == {answer.seed}
    assert model.generate(PROMPT, max_tokens=1, seed=2**64 - 1).seed == 2**64 - 1

    with model.stream(PROMPT, **WILD) as stream:
        pieces = list(stream)
    assert len({piece.seed for piece in pieces}) == 1
    again = model.session().generate(PROMPT, **WILD, seed=pieces[0].seed)
    assert again.pieces == tuple(pieces[:-1])


def test_each_answer_of_a_batch_has_its_own_random_seed(model: tabla.Model) -> None:
    many = model.generate_many([PROMPT] * 3, **WILD)
    assert len({answer.seed for answer in many}) == 3
    assert [model.generate(PROMPT, **WILD, seed=answer.seed).text for answer in many] == [
        answer.text for answer in many
    ]
    assert {answer.seed for answer in model.generate_many([PROMPT] * 3, max_tokens=1, seed=7)} == {7}

    with model.batch() as batch:
        added = [batch.add(PROMPT, **WILD), batch.add(PROMPT, **WILD, seed=5)]
        pieces = list(batch)
    seeds = [{piece.seed for piece in pieces if piece.index == index} for index in added]
    assert len(seeds[0]) == 1 and seeds[1] == {5}
    text = "".join(piece.text for piece in pieces if piece.index == added[0])
    assert model.generate(PROMPT, **WILD, seed=seeds[0].pop()).text == text


def test_a_maximum_of_no_tokens_computes_the_prompt(model: tabla.Model) -> None:
    answer = model.generate(PROMPT, max_tokens=0)
    assert (answer.text, answer.tokens, answer.finish_reason) == ("", [], "length")
    assert list(model.stream(PROMPT, max_tokens=0))[-1].finish_reason == "length"
    (answer,) = model.generate_many([PROMPT], max_tokens=0)
    assert (answer.text, answer.finish_reason) == ("", "length")
    with model.session() as session:
        assert session.generate(PROMPT, max_tokens=0).text == ""
        after = session.generate("", max_tokens=4, temperature=0)
    assert after.text == model.generate(PROMPT, max_tokens=4, temperature=0).text


def test_answers_have_no_limit_of_tokens_by_default(model: tabla.Model) -> None:
    async def last(stream: tabla.AsyncStream) -> tabla.Piece:
        return [piece async for piece in stream][-1]

    options: dict[str, Any] = {"ignore_eos": True, "seed": 0}
    with model.batch() as batch, model.session() as session:
        batch.add(PROMPT, **options)
        ends: list[tabla.Answer | tabla.Piece] = [
            model.generate(PROMPT, **options),
            model.generate(PROMPT, **options, max_tokens=None),
            model.generate(PROMPT, **options, max_tokens=2**32 - 1),
            *model.generate_many([PROMPT], **options),
            list(model.stream(PROMPT, **options))[-1],
            list(batch)[-1],
            asyncio.run(model.agenerate(PROMPT, **options)),
            asyncio.run(last(model.astream(PROMPT, **options))),
            session.generate(PROMPT, **options),
        ]
    assert [end.finish_reason for end in ends] == ["context"] * len(ends)
    counts = {end.stats.tokens for end in ends if end.stats is not None}
    assert len(counts) == 1
    total = counts.pop() + len(model.tokenize(PROMPT))
    chat = model.chat([{"role": "user", "content": PROMPT}], chat_template="chatml", **options)
    assert chat["usage"]["total_tokens"] == model.complete(PROMPT, **options)["usage"]["total_tokens"] == total


def test_pieces_are_frozen(model: tabla.Model) -> None:
    with model.stream(PROMPT, max_tokens=1) as stream:
        piece = next(stream)
    with pytest.raises(dataclasses.FrozenInstanceError):
        piece.text = ""  # type: ignore[misc]


def test_logprobs_match_the_logits(model: tabla.Model) -> None:
    import numpy as np

    answer = model.generate(PROMPT, max_tokens=3, seed=0, logprobs=2)
    logits = model.logits(PROMPT).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum())
    first = answer.pieces[0]
    assert first.token is not None
    assert first.logprob == pytest.approx(logprobs[first.token], abs=1e-4)
    likeliest = np.argsort(-logits)[:2]
    assert [top.token for top in first.top_logprobs] == list(likeliest)
    assert all(piece.logprob is None for piece in model.generate(PROMPT, max_tokens=2, seed=0).pieces)


def test_stop_strings_end_the_answer(model: tabla.Model) -> None:
    full = model.generate(PROMPT, max_tokens=8, seed=0).text
    word = full.split()[2]
    answer = model.generate(PROMPT, max_tokens=8, seed=0, stop=[word])
    assert answer.finish_reason == "stop"
    assert answer.text == full[: full.index(word)]


def test_grammars_constrain_answers(model: tabla.Model) -> None:
    with tabla.Grammar.regex(model, "(red|green) (dog|cat)") as grammar:
        answer = model.generate("The", grammar=grammar)
    assert answer.text in {"red dog", "red cat", "green dog", "green cat"}
    assert answer.finish_reason == "stop"
    for grammar in (
        tabla.Grammar.gbnf(model, 'root ::= "yes"'),
        tabla.Grammar.lark(model, 'start: "yes"'),
        tabla.Grammar.json_schema(model, {"const": "yes"}),
        tabla.Grammar.json_schema(model, '{"const": "yes"}'),
    ):
        assert model.generate("The", grammar=grammar).text.strip('"') == "yes"


def test_speculation_does_not_change_tokens(model: tabla.Model) -> None:
    plain = model.generate(PROMPT, max_tokens=8, seed=0)
    assert model.generate(PROMPT, max_tokens=8, seed=0, prompt_lookup=True).tokens == plain.tokens
    with tabla.Model.load(device="cpu", max_context=128) as draft:
        drafted = model.generate(PROMPT, max_tokens=8, seed=0, draft_model=draft)
    assert drafted.tokens == plain.tokens
    assert drafted.stats.drafted_tokens >= drafted.stats.accepted_tokens > 0


def test_closing_a_stream_cancels_it(model: tabla.Model) -> None:
    session = model.session()
    with session.stream(PROMPT, **ENDLESS) as stream:
        first = [next(stream), next(stream)]
        with pytest.raises(tabla.StateError, match="in progress.*Session.end"):
            session.prefill("more")
    stream.close()
    assert list(stream) == []
    assert session.tokens == [*model.tokenize(PROMPT), *(piece.token for piece in first)]
    # The session accepts other calls.
    assert session.generate(max_tokens=1, seed=0).finish_reason == "length"


def test_unreferenced_stream_is_closed(model: tabla.Model) -> None:
    session = model.session()
    for _ in session.stream(PROMPT, **ENDLESS):
        break
    gc.collect()
    assert session.generate(max_tokens=1, seed=0).finish_reason == "length"

    stream = session.stream(**ENDLESS)
    next(stream)
    session.end()
    assert list(stream) == []
    assert session.generate(max_tokens=1, seed=0).finish_reason == "length"


def test_closing_an_unstarted_stream_does_nothing(model: tabla.Model) -> None:
    session = model.session()
    session.stream(PROMPT, **ENDLESS).close()
    assert session.tokens == []


def test_another_thread_can_cancel(model: tabla.Model) -> None:
    session = model.session()
    with session.stream(PROMPT, **ENDLESS) as stream:
        next(stream)
        threading.Timer(0.05, stream.cancel).start()
        *_, end = stream
    assert end.finish_reason == "cancelled"

    threading.Timer(0.05, session.cancel).start()
    assert session.generate(**ENDLESS).finish_reason == "cancelled"


def test_another_thread_can_close(model: tabla.Model) -> None:
    session = model.session()
    stream = session.stream(PROMPT, **ENDLESS)
    next(stream)
    closing = threading.Timer(0.05, session.close)
    closing.start()
    ended = (tabla.HandleError, tabla.CancelledError)
    with contextlib.suppress(*ended):  # or the last piece has the finish reason "cancelled"
        for _ in stream:
            pass
    assert list(stream) == []
    closing.join()  # close() cancels the answer, which ends the loop
    with pytest.raises(tabla.HandleError):
        session.generate()


def press_ctrl_c_in(seconds: float) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()


def test_ctrl_c_ends_an_answer(model: tabla.Model) -> None:
    session = model.session()
    press_ctrl_c_in(0.2)
    with pytest.raises(KeyboardInterrupt):
        session.generate(PROMPT, **ENDLESS)
    assert session.generate(max_tokens=1, ignore_eos=True).finish_reason == "length"


def test_ctrl_c_ends_a_batch(model: tabla.Model) -> None:
    press_ctrl_c_in(0.2)
    with pytest.raises(KeyboardInterrupt):
        model.generate_many([PROMPT] * 3, **ENDLESS)
    assert model.generate(PROMPT, max_tokens=1, seed=0).finish_reason == "length"


def test_ctrl_c_interrupts_a_blocking_call() -> None:
    stopped = threading.Event()
    calls: list[str] = []

    def call() -> None:
        stopped.wait(30)
        calls.append("returned")

    press_ctrl_c_in(0.05)
    with pytest.raises(KeyboardInterrupt):
        interruptible(call, stopped.set)
    assert calls == ["returned"], "the call has returned"
    with pytest.raises(ZeroDivisionError):
        interruptible(lambda: 1 // 0, stopped.set)
    assert interruptible(lambda: 5, stopped.set) == 5


def test_threads_share_a_model(model: tabla.Model) -> None:
    expected = [model.generate(PROMPT, max_tokens=3, seed=seed).tokens for seed in range(6)]
    results: dict[int, list[int]] = {}

    def work(seed: int) -> None:
        results[seed] = model.generate(PROMPT, max_tokens=3, seed=seed).tokens

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[seed] for seed in range(6)] == expected


def test_session_rejects_concurrent_calls(model: tabla.Model) -> None:
    session = model.session()
    stream = session.stream(PROMPT, **ENDLESS)
    next(stream)
    errors: list[Exception] = []

    def truncate() -> None:
        try:
            session.truncate(0)
        except tabla.TablaError as error:
            errors.append(error)

    thread = threading.Thread(target=truncate)
    thread.start()
    thread.join()
    stream.close()
    assert isinstance(errors[0], (tabla.StateError, tabla.BusyError))


def test_batch_continues_after_an_answer_is_cancelled(model: tabla.Model) -> None:
    with model.batch() as batch:
        fine = batch.add("Once", max_tokens=3, seed=0)
        stopped = batch.add("Once", **ENDLESS)
        pieces: dict[int, list[tabla.Piece]] = {fine: [], stopped: []}
        for piece in batch:
            pieces[piece.index].append(piece)
            if len(pieces[stopped]) == 2:
                batch.cancel(stopped)
    assert pieces[fine][-1].finish_reason == "length"
    assert pieces[stopped][-1].finish_reason == "cancelled"
    assert list(model.batch()) == []


def test_generate_many_with_failing_prompts(model: tabla.Model) -> None:
    prompts: list[tabla.Prompt] = ["Once", [9999], "The", [0] * 4000, "Once"]
    with pytest.raises(tabla.ArgumentError, match="9999"):
        model.generate_many(prompts, max_tokens=2, seed=0)
    answers = model.generate_many(prompts, max_tokens=2, seed=0, return_exceptions=True)
    assert isinstance(answers[1], tabla.ArgumentError)
    assert isinstance(answers[3], tabla.TooLargeError)
    assert [str(answers[n]) for n in (0, 4)] == [model.generate("Once", max_tokens=2, seed=0).text] * 2


def test_generate_many_with_more_prompts_than_batch_limit(model: tabla.Model) -> None:
    answers = model.generate_many([[0]] * 520, max_tokens=1, seed=0)
    assert len(answers) == 520
    assert len({answer.text for answer in answers}) == 1


def test_empty_prompt_starts_with_bos(model: tabla.Model) -> None:
    answer = model.generate("", max_tokens=4, seed=1)
    assert model.generate_many([""], max_tokens=4, seed=1)[0].tokens == answer.tokens
    with model.session() as session:
        assert session.generate("", max_tokens=4, seed=1).tokens == answer.tokens
        assert session.tokens == [*model.tokenize(""), *answer.tokens]
