"""Many streams in one thread, of which each ends when it has had its time.

python tasks.py [model]
"""

from __future__ import annotations

import asyncio
import sys

import tabla


async def tell(model: tabla.Model, animal: str, seconds: float) -> None:
    said = ""

    async def listen() -> None:
        nonlocal said
        async for piece in model.astream(f"Once upon a time there was a {animal}"):
            said += piece.text

    try:
        await asyncio.wait_for(listen(), seconds)
    except asyncio.TimeoutError:
        said += " ..."
    print(f"{animal}: {said.strip()}")


async def main() -> None:
    path = sys.argv[1] if len(sys.argv) > 1 else None
    with tabla.Model.load(path, sequences=4) as model:
        await asyncio.gather(*(tell(model, animal, 1.0) for animal in ("fox", "owl", "duck")))


asyncio.run(main())
