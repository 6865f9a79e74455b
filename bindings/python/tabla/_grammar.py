"""Grammars that constrain answers: JSON schemas, regular expressions, context-free grammars."""

from __future__ import annotations

from typing import Any, Mapping

from ._c import json_text, text
from ._handle import Handle
from ._model_handle import ModelHandle
from ._native import ffi, lib


class Grammar(Handle):
    """A grammar that is compiled for a model's vocabulary. Any number of answers can use it at the
    same time.

    An invalid grammar raises `GrammarError`, one that takes too long to compile `TooLargeError`.
    """

    def __init__(self, pointer: Any) -> None:
        super().__init__(pointer, lib.tabla_grammar_free)

    @classmethod
    def json(cls, model: ModelHandle) -> Grammar:
        """Any JSON object."""
        return cls(lib.tabla_grammar_new(model._pointer, lib.TABLA_GRAMMAR_JSON_OBJECT, ffi.NULL))

    @classmethod
    def json_schema(cls, model: ModelHandle, schema: Mapping[str, Any] | str) -> Grammar:
        """JSON that matches a JSON schema, given as an object or as text."""
        source = text(schema, "schema") if isinstance(schema, str) else json_text(schema, "schema")
        return cls(lib.tabla_grammar_new(model._pointer, lib.TABLA_GRAMMAR_JSON_SCHEMA, source))

    @classmethod
    def regex(cls, model: ModelHandle, pattern: str) -> Grammar:
        """Text that matches a regular expression as a whole."""
        return cls._of_text(model, lib.TABLA_GRAMMAR_REGEX, pattern)

    @classmethod
    def lark(cls, model: ModelHandle, grammar: str) -> Grammar:
        """Text of a grammar in Lark syntax."""
        return cls._of_text(model, lib.TABLA_GRAMMAR_LARK, grammar)

    @classmethod
    def gbnf(cls, model: ModelHandle, grammar: str) -> Grammar:
        """Text of a grammar in GBNF, the syntax of llama.cpp."""
        return cls._of_text(model, lib.TABLA_GRAMMAR_GBNF, grammar)

    @classmethod
    def _of_text(cls, model: ModelHandle, kind: int, grammar: str) -> Grammar:
        return cls(lib.tabla_grammar_new(model._pointer, kind, text(grammar, "grammar")))
