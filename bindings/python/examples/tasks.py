"""Many streams in one thread, each with a time limit.

python tasks.py [model]
"""

from __future__ import annotations

import asyncio
import sys

import tabla


async def tell(model: tabla.Model, animal: str, seconds: float) -> None:
    text = ""

    async def read() -> None:
        nonlocal text
        async for piece in model.astream(f"Once upon a time there was a {animal}"):
            text += piece.text

    try:
        await asyncio.wait_for(read(), seconds)
    except asyncio.TimeoutError:
        text += " ..."
    print(f"{animal}: {text.strip()}")


async def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else None
    with tabla.Model.load(path, sequences=4) as model:
        await asyncio.gather(*(tell(model, animal, 1.0) for animal in ("fox", "owl", "duck")))


asyncio.run(main())
