"""HTML output for notebooks."""

from __future__ import annotations

from html.parser import HTMLParser

import tabla
from tabla import _html

EVIL = "<script>alert('hi')</script>\"&"


class Reader(HTMLParser):
    """Collects tags and text, and checks that tags are nested correctly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open.append(tag)
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_answer_shows_token_probabilities(model: tabla.Model) -> None:
    answer = model.generate("Once upon a time", max_tokens=4, seed=0, logprobs=2)
    read = Reader(answer._repr_html_())
    assert read.text.startswith(answer.text)
    assert read.tags.count("span") == len(read.titles) == 4
    assert all(len(title.splitlines()) == 3 and "%" in title for title in read.titles)
    plain = Reader(model.generate("Once upon a time", max_tokens=4, seed=0)._repr_html_())
    assert plain.tags == ["div", "div"]


def test_model_shows_its_table(model: tabla.Model) -> None:
    read = Reader(model._repr_html_())
    assert model.info.device in read.text and "gemv_q8_0" in read.text
    table = Reader(model.table()._repr_html_())
    assert table.tags.count("tr") == len(model.table()) + 1
    assert "blk.0.attn_q.weight" in table.text
    closed = tabla.Model.load(device="cpu", max_context=64)
    closed.close()
    assert "llama" in Reader(closed._repr_html_()).text


def test_text_is_escaped(model: tabla.Model) -> None:
    stats = tabla.Stats(1, 1, 1.0, 1.0, 0, 0)
    pieces = tuple(tabla.Piece(EVIL, 5, logprob) for logprob in (None, -0.5))
    answer = tabla.Answer(EVIL * 2, pieces, "stop", stats, seed=7)
    command = {
        "index": 0,
        "kernel": EVIL,
        "bytes": 1,
        "flops": 1,
        "slots": [{"name": EVIL, "place": "weight 0", "shape": [1, 1]}],
    }
    table = tabla.Table(EVIL, (command,))
    html_of_model = _html.model(EVIL, vars(model.info), table._repr_html_())
    for html in (answer._repr_html_(), table._repr_html_(), html_of_model):
        read = Reader(html)
        assert "script" not in read.tags
        assert EVIL in read.text
