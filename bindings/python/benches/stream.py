"""Measures the overhead of Python per token: a stream of pieces compared with one call of the library.

    python benches/stream.py [model.gguf]

All variants generate the same tokens, in turns. Prints the median time per token over all rounds,
and the median difference to the single call of the same round, also as a share of a token at 500
tokens per second. The times with log-probabilities include their cost in the library.
"""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Callable

import tabla
from tabla._errors import check
from tabla._native import ffi, lib
from tabla._options import checked, generate_options

TOKENS = 200
ROUNDS = 40
TOKEN_US = 1e6 / 500
OPTIONS = tabla.GenerateOptions(max_tokens=TOKENS, ignore_eos=True)
LOGPROBS = tabla.GenerateOptions(max_tokens=TOKENS, ignore_eos=True, logprobs=5)


def one_call(session: tabla.Session) -> None:
    """One call of the library, without Python objects."""
    options = generate_options(checked(OPTIONS, "one_call"))
    pointer = session._pointer
    check(lib.tabla_session_generate(pointer, ffi.NULL, options.c, ffi.NULL, ffi.NULL, ffi.NULL))


def stream(session: tabla.Session) -> None:
    """A stream of pieces."""
    for _ in session.stream(**OPTIONS):
        pass


def stream_logprobs(session: tabla.Session) -> None:
    """A stream of pieces with the five likeliest tokens of each position."""
    for _ in session.stream(**LOGPROBS):
        pass


def async_stream(session: tabla.Session) -> None:
    """An async stream."""

    async def take() -> None:
        async for _ in session.astream(**OPTIONS):
            pass

    asyncio.run(take())


VARIANTS: list[Callable[[tabla.Session], None]] = [one_call, stream, stream_logprobs, async_stream]


def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else None
    with tabla.Model.load(path, device="cpu") as model, model.session() as session:
        session.prefill("Once upon a time")
        prompt = len(session.tokens)
        took: dict[str, list[float]] = {variant.__name__: [] for variant in VARIANTS}
        for round in range(ROUNDS + 1):
            for variant in VARIANTS:
                session.truncate(prompt)
                start = time.perf_counter()
                variant(session)
                assert len(session.tokens) == prompt + TOKENS
                if round > 0:  # the first warms up
                    took[variant.__name__].append((time.perf_counter() - start) / TOKENS * 1e6)
    for name, times in took.items():
        more = median(time - alone for time, alone in zip(times, took["one_call"]))
        share = 100 * more / TOKEN_US
        print(f"{name:16} {median(times):8.1f} us/token  {more:+7.1f} us  {share:+6.2f} % at 500 tokens/s")


if __name__ == "__main__":
    main()
