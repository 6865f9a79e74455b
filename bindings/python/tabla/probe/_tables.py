"""Tables of results as text and HTML. Text of models and names is escaped."""

from __future__ import annotations

from html import escape
from typing import Iterable, Sequence


def text(title: str, rows: Iterable[Sequence[object]]) -> str:
    """Returns a title and aligned columns; the first row is the head."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = (
        "  ".join(
            cell.rjust(width) if at else cell.ljust(width) for at, (cell, width) in enumerate(zip(row, widths))
        )
        for row in cells
    )
    return "\n".join([title, *(line.rstrip() for line in lines)])


def html(title: str, rows: Iterable[Sequence[object]], colors: Sequence[Sequence[str]] | None = None) -> str:
    """Returns a title and a table; the first row and the first column are the heads. `colors` has a CSS color
    for each cell that is not in a head."""

    def cell(value: object, row: int, column: int) -> str:
        if row == 0 or column == 0:
            return f"<th>{escape(_cell(value))}</th>"
        color = f"; background: {escape(colors[row - 1][column - 1])}" if colors else ""
        return f'<td style="text-align: right; white-space: pre{color}">{escape(_cell(value))}</td>'

    body = "".join(
        f"<tr>{''.join(cell(value, row, column) for column, value in enumerate(values))}</tr>"
        for row, values in enumerate(rows)
    )
    return f"<b>{escape(title)}</b><table>{body}</table>"


def printable(value: str) -> str:
    """Replaces control characters, such as line feeds, by their escape sequences."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in value)


def _cell(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, float) else str(value)
