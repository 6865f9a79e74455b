"""Base class of models: properties, tokenizer and dispatch tables, which need no session."""

from __future__ import annotations

import json
from typing import Sequence, Union

from . import _html
from ._c import CData, Struct, call_for_array, call_for_bytes, count, numbers, utf8
from ._c import text as c_text
from ._errors import check
from ._facts import Table, read_info
from ._handle import Handle
from ._native import ffi, lib

Prompt = Union[str, Sequence[int]]
"""A text, whose special tokens are not parsed, or token ids."""


class ModelHandle(Handle):
    """Base class of `Model`, for the modules that `Model` itself imports: sessions, batches, grammars."""

    def __init__(self, pointer: CData, name: str) -> None:
        super().__init__(pointer, lib.tabla_free_model)
        self.name = name
        facts = Struct("TablaModelInfo").c
        check(lib.tabla_model_info(self._pointer, facts))
        self.info = read_info(facts)

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Returns the token ids of a text.

        `add_special` adds the model's BOS and EOS tokens. `parse_special` parses the names of special tokens;
        do not use it on text from users.
        """
        flags = add_special * lib.TABLA_TOKENIZE_ADD_SPECIAL
        flags |= parse_special * lib.TABLA_TOKENIZE_PARSE_SPECIAL
        data = utf8(text, "text")
        return list(call_for_array("uint32_t", lib.tabla_model_tokenize, self._pointer, data, len(data), flags))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of token ids. Incomplete UTF-8 becomes U+FFFD."""
        array = numbers("uint32_t", tokens, "tokens")
        data = call_for_bytes(lib.tabla_model_detokenize, self._pointer, array, len(array))
        return data.decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """Returns the bytes of a token, which may be a part of a character. For a special token: its name."""
        return call_for_bytes(lib.tabla_model_token_bytes, self._pointer, count(token, "token"))

    def label_names(self) -> list[str]:
        """Returns the names of the labels of the classification head, in the order of the scores."""
        names = (call_for_bytes(lib.tabla_model_label, self._pointer, label) for label in range(self.info.labels))
        return [name.decode() for name in names]

    def stop_token_ids(self) -> list[int]:
        """Returns the token ids that end an answer."""
        return list(call_for_array("uint32_t", lib.tabla_model_stop_token_ids, self._pointer))

    @property
    def digest(self) -> bytes:
        """Digest of the model's configuration and weights, 32 bytes. Independent of device and load options."""
        digest = ffi.new("uint8_t[]", 32)
        check(lib.tabla_model_digest(self._pointer, digest))
        return bytes(digest)

    def table(self, name: str | None = None, tokens: int = 1) -> Table:
        """Returns a dispatch table: `"step"`, `"batch"` or `"embed"`, by default the first one. If several
        have this name, returns the smallest one that processes `tokens` tokens at once."""
        which = (ffi.NULL if name is None else c_text(name, "name"), count(tokens, "tokens"))
        listing, commands = (
            call_for_bytes(lib.tabla_model_table, self._pointer, *which, form).decode()
            for form in (lib.TABLA_TABLE_TEXT, lib.TABLA_TABLE_JSON)
        )
        return Table(listing, tuple(json.loads(commands)))

    def __repr__(self) -> str:
        return f"<tabla.Model {self.name!r} on {self.info.device}>"

    def _repr_html_(self) -> str:
        table = None if self.closed else self.table()._repr_html_()
        return _html.model(self.name, vars(self.info), table)
