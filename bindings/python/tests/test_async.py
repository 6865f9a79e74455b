"""Async functions: same answers as the synchronous ones, and cancelled tasks."""

from __future__ import annotations

import asyncio
from typing import Any, AsyncIterator, Mapping, Sequence, TypeVar

import pytest
import tabla

from conftest import ENDLESS

PROMPT = "Once upon a time"
MESSAGES = [{"role": "user", "content": "Tell me of a fox."}]
CHATML: dict[str, Any] = {"chat_template": "chatml", "max_tokens": 3, "seed": 0}


T = TypeVar("T")


async def collect(chunks: AsyncIterator[T]) -> list[T]:
    return [chunk async for chunk in chunks]


def choices(chunks: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [chunk["choices"] for chunk in chunks]


def test_async_answers_equal_sync_answers(model: tabla.Model) -> None:
    async def check() -> None:
        expected = model.generate(PROMPT, max_tokens=4, seed=0)
        answer = await model.agenerate(PROMPT, max_tokens=4, seed=0)
        assert answer.pieces == expected.pieces
        async with model.astream(PROMPT, max_tokens=4, seed=0) as stream:
            *pieces, end = [piece async for piece in stream]
        assert (tuple(pieces), end.finish_reason) == (expected.pieces, "length")
        with model.session() as session:
            assert (await session.agenerate(PROMPT, max_tokens=2, seed=0)).tokens == expected.tokens[:2]
            more = [piece async for piece in session.astream(max_tokens=1, seed=0)]
            assert len(more) == 2 and len(session.tokens) == 5 + 2 + 1

        chat = await model.achat(MESSAGES, **CHATML)
        assert chat["choices"] == model.chat(MESSAGES, **CHATML)["choices"]
        chunks = await collect(await model.achat(MESSAGES, **CHATML, stream=True))
        assert choices(chunks) == choices(list(model.chat(MESSAGES, **CHATML, stream=True)))
        text = await model.acomplete(PROMPT, max_tokens=3, seed=0)
        assert text["choices"] == model.complete(PROMPT, max_tokens=3, seed=0)["choices"]
        usage = {"include_usage": True}
        chunks = await collect(
            await model.acomplete(PROMPT, max_tokens=3, seed=0, stream=True, stream_options=usage)
        )
        chunked = model.complete(PROMPT, max_tokens=3, seed=0, stream=True, stream_options=usage)
        assert choices(chunks) == choices(list(chunked)) and chunks[-1]["usage"] == text["usage"]

    asyncio.run(check())


def test_many_tasks_share_a_model(model: tabla.Model) -> None:
    async def check() -> list[list[int]]:
        tasks = [model.agenerate(PROMPT, max_tokens=3, seed=seed) for seed in range(8)]
        return [answer.tokens for answer in await asyncio.gather(*tasks)]

    expected = [model.generate(PROMPT, max_tokens=3, seed=seed).tokens for seed in range(8)]
    assert asyncio.run(check()) == expected


def test_cancelling_a_task_cancels_its_answer(model: tabla.Model) -> None:
    async def check() -> None:
        session = model.session()
        for work in (
            session.agenerate(PROMPT, **ENDLESS),
            model.agenerate(PROMPT, **ENDLESS),
            model.achat(MESSAGES, chat_template="chatml", **ENDLESS),
        ):
            task = asyncio.create_task(work)
            await asyncio.sleep(0.3)
            assert not task.done()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        # The session is idle again, and its sequence has the tokens that were read.
        assert len(session.tokens) > len(model.tokenize(PROMPT))
        assert session.generate(max_tokens=1, ignore_eos=True).finish_reason == "length"

    asyncio.run(check())


def test_wait_for_times_out(model: tabla.Model) -> None:
    async def check() -> None:
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(model.agenerate(PROMPT, **ENDLESS), 0.2)
        stream = model.astream(PROMPT, **ENDLESS)
        await stream.__anext__()
        await stream.aclose()
        assert [piece async for piece in stream] == []

    asyncio.run(check())


def test_await_raises_errors(model: tabla.Model) -> None:
    async def check() -> None:
        with pytest.raises(tabla.ArgumentError, match="9999"):
            await model.agenerate([9999])
        with pytest.raises(TypeError, match=r"achat\(\) got an unexpected"):
            await model.achat(MESSAGES, temprature=0)  # type: ignore[call-overload]
        with pytest.warns(UserWarning, match=r"achat\(\) ignores user") as warned:
            await model.achat(MESSAGES, **CHATML, user="me")
        assert warned[0].filename == __file__

    asyncio.run(check())
