"""HTML for notebooks, from plain values. Text of models and files is escaped."""

from __future__ import annotations

import math
from html import escape
from typing import Any, Iterable, Mapping, Sequence, Tuple

Token = Tuple[str, Sequence[Tuple[int, float]]]
"""The text of a token, and pairs of token id and log-probability: first its own, then the most likely ones.
No pairs: the log-probabilities were not requested."""


def answer(tokens: Iterable[Token], note: str) -> str:
    """Returns the tokens of an answer. The less likely a token was, the more red it is; its tooltip lists the
    log-probabilities."""
    spans = "".join(_token(*token) for token in tokens)
    return f'<div style="white-space: pre-wrap">{spans}</div><div style="opacity: 0.6">{escape(note)}</div>'


def _token(text: str, logprobs: Sequence[tuple[int, float]]) -> str:
    if not logprobs:
        return escape(text)
    (own, logprob), *top = logprobs
    lines = [f"token {own}: {_percent(logprob)}", *(f"{token}: {_percent(lp)}" for token, lp in top)]
    redness = 1 - math.exp(logprob)
    return (
        f'<span style="background: rgba(255, 80, 80, {redness:.2f})" title="{escape(chr(10).join(lines))}">'
        f"{escape(text)}</span>"
    )


def _percent(logprob: float) -> str:
    return f"{100 * math.exp(logprob):.2f} %"


def model(name: str, facts: Mapping[str, object], table: str | None) -> str:
    """Returns the facts about a model and, collapsed, the HTML of its dispatch table."""
    rows = [[key.replace("_", " "), value] for key, value in facts.items() if value is not None]
    listing = "" if table is None else f"<details><summary>dispatch table</summary>{table}</details>"
    return f"<b>{escape(name)}</b>{_rows(rows)}{listing}"


def table(commands: Iterable[Mapping[str, Any]]) -> str:
    """Returns a dispatch table with one row per command."""
    head = ["", "kernel", "writes and reads", "shape", "bytes", "flops"]
    return _rows([head, *(_command(command) for command in commands)])


def _command(command: Mapping[str, Any]) -> list[object]:
    slots = command["slots"]
    names = ", ".join(slot["name"] for slot in slots)
    weight = next((slot for slot in slots if slot["place"].startswith("weight")), None)
    shape = "×".join(str(n) for n in weight["shape"]) if weight else ""
    return [command["index"], command["kernel"], names, shape, command["bytes"], command["flops"]]


def _rows(rows: Iterable[Sequence[object]]) -> str:
    def cell(value: object) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            return f'<td style="text-align: right">{value:,}</td>'
        return f'<td style="text-align: left">{escape(str(value))}</td>'

    return "<table>" + "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows) + "</table>"
