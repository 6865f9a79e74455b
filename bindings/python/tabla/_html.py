"""What notebooks show. Every text of a model or a file is escaped."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._answer import Answer, Piece
    from ._facts import ModelInfo, Table


def answer(shown: Answer) -> str:
    """An answer, its tokens as red as they were unlikely, with the likeliest ones as tooltips."""
    tokens = "".join(_token(piece) for piece in shown.pieces)
    note = f"{shown.stats.tokens} tokens, {shown.stats.tokens_per_second:.1f}/s, {shown.finish_reason}"
    return f'<div style="white-space: pre-wrap">{tokens}</div><div style="opacity: 0.6">{escape(note)}</div>'


def _token(piece: Piece) -> str:
    text = escape(piece.text)
    if piece.logprob is None:
        return text
    lines = [f"token {piece.token}: {_percent(piece.logprob)}"]
    lines += [f"{top.token}: {_percent(top.logprob)}" for top in piece.top_logprobs]
    redness = 1 - math.exp(piece.logprob)
    return (
        f'<span style="background: rgba(255, 80, 80, {redness:.2f})" title="{escape(chr(10).join(lines))}">'
        f"{text}</span>"
    )


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(logprob):.2f} %"


def model(name: str, info: ModelInfo, table: Table | None) -> str:
    """A model: its facts, and its dispatch table to open."""
    facts = {key.replace("_", " "): value for key, value in vars(info).items() if value is not None}
    listing = ""
    if table is not None:
        listing = f"<details><summary>dispatch table</summary>{table._repr_html_()}</details>"
    return f"<b>{escape(name)}</b>{_rows([[key, value] for key, value in facts.items()])}{listing}"


def table(shown: Table) -> str:
    """A dispatch table, a row for each command."""
    head = ["", "kernel", "writes and reads", "shape", "bytes", "flops"]
    return _rows([head, *(_command(command) for command in shown.commands)])


def _command(command: dict[str, Any]) -> list[object]:
    slots = command["slots"]
    names = ", ".join(slot["name"] for slot in slots)
    weight = next((slot for slot in slots if slot["place"].startswith("weight")), None)
    shape = "×".join(str(n) for n in weight["shape"]) if weight else ""
    return [command["index"], command["kernel"], names, shape, command["bytes"], command["flops"]]


def _rows(rows: list[list[Any]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            return f'<td style="text-align: right">{value:,}</td>'
        return f'<td style="text-align: left">{escape(str(value))}</td>'

    return "<table>" + "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows) + "</table>"
