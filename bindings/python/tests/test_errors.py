"""Every status is an exception of its own, and bad input says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tabla
from tabla import _errors
from tabla._native import ffi, lib

from conftest import ROOT


def test_there_is_a_class_for_every_status() -> None:
    header = (ROOT / "include/tabla.h").read_text(encoding="utf-8")
    codes = {int(code): name for name, code in re.findall(r"TABLA_ERROR_(\w+) = (\d+),", header)}
    assert set(_errors.CLASSES) == set(codes)
    for code, name in codes.items():
        cls = _errors.CLASSES[code]
        assert getattr(tabla, cls.__name__) is cls
        assert ffi.string(lib.tabla_status_name(code)).decode() == f"TABLA_ERROR_{name}"
        words = {"MEMORY": "OUT_OF_MEMORY"}.get(name, name)
        assert cls.__name__ == "".join(word.capitalize() for word in words.split("_")) + "Error"


def test_a_status_that_nobody_knows_is_an_error_all_the_same() -> None:
    error = _errors.failure(12345, "what it was")
    assert type(error) is tabla.TablaError
    assert str(error) == "what it was"


def test_errors_are_those_of_python_where_it_has_them() -> None:
    assert issubclass(tabla.ArgumentError, ValueError)
    assert issubclass(tabla.IoError, OSError)
    assert issubclass(tabla.OutOfMemoryError, MemoryError)


def test_loading_says_what_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(tabla.IoError, match="nowhere.gguf"):
        tabla.Model.load(tmp_path / "nowhere.gguf")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(tabla.TablaError, match="damaged.gguf"):
        tabla.Model.load(damaged)
    with pytest.raises(tabla.ArgumentError, match="precision is 'rough', none of fast, exact"):
        tabla.Model.load(precision="rough")
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_ctx'"):
        tabla.Model.load(n_ctx=512)  # type: ignore[call-arg]
    with pytest.raises(tabla.ArgumentError, match="max_context=-1"):
        tabla.Model.load(max_context=-1)


def test_every_kind_of_failure_has_its_class(model: tabla.Model, bert: tabla.Model) -> None:
    with pytest.raises(tabla.ArgumentError, match="top_p"):
        model.generate("Once", top_p=2.0)
    with pytest.raises(tabla.TooLargeError):
        model.generate([0] * 4000)
    with pytest.raises(tabla.GrammarError):
        tabla.Grammar.regex(model, "(")
    with pytest.raises(tabla.StateError):
        model.session().generate()
    with pytest.raises(tabla.TablaError):
        bert.generate("Once")
    with pytest.raises(tabla.ArgumentError, match="9999"):
        model.generate([9999])
    with pytest.raises(tabla.ArgumentError, match="no uint32_t"):
        model.generate([-1])


def test_a_text_for_c_has_no_nul_and_a_prompt_may_have_one(model: tabla.Model) -> None:
    with pytest.raises(tabla.ArgumentError, match=r"texts\[1\] has a NUL at byte 2"):
        model.embed(["a", "ab\0c"])
    with pytest.raises(TypeError, match="prompt"):
        model.session().generate(3)  # type: ignore[arg-type]
    assert model.detokenize(model.tokenize("a\0b", add_special=False)) == "a\0b"
    [answer] = model.generate_many(["a\0b"], max_tokens=3)
    assert model.generate("a\0b", max_tokens=3).tokens == answer.tokens


def test_what_is_of_the_wrong_type_is_not_taken_for_another(model: tabla.Model) -> None:
    with pytest.raises(TypeError, match="prompt is of type bytes, not a list of numbers"):
        model.generate(b"Once")
    with pytest.raises(TypeError, match="prompt is no list of numbers: 'float'"):
        model.generate([1.5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="text is of type bytes, not str"):
        model.tokenize(b"Once")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="documents is a str, not a list"):
        model.rerank("query", "a document")
    with pytest.raises(TypeError, match="prompts is a str, not a list"):
        model.generate_many("Once")
    with pytest.raises(tabla.ArgumentError, match="keep is -1, no number from 0 on"):
        model.session().truncate(-1)
    messages = [{"role": "user", "content": "Once"}]
    with pytest.raises(tabla.ArgumentError, match="n is 'two', no whole number"):
        model.chat(messages, chat_template="chatml", n="two")  # type: ignore[call-overload]
    with pytest.raises(tabla.ArgumentError, match="stream_options is True, no object"):
        model.complete("Once", stream_options=True)  # type: ignore[call-overload]
    with pytest.raises(tabla.ArgumentError, match="response_format is of type 'json'"):
        model.chat(messages, chat_template="chatml", response_format="json")  # type: ignore[call-overload]


def test_what_is_closed_says_so(model: tabla.Model) -> None:
    session = model.session()
    session.prefill("Once")
    session.close()
    session.close()
    assert session.closed
    with pytest.raises(tabla.HandleError, match="this Session is closed"):
        session.generate()
    with model.batch() as batch:
        batch.add("Once")
    with pytest.raises(tabla.HandleError, match="this Batch is closed"):
        batch.add("Once")
    with pytest.raises(tabla.HandleError, match="this Batch is closed"):
        next(batch)


def test_sessions_outlive_the_object_of_their_model() -> None:
    model = tabla.Model.load(device="cpu", max_context=64)
    session = model.session()
    model.close()
    session.prefill([0])
    assert session.logits().shape == (model.info.vocab,)
    with pytest.raises(tabla.HandleError, match="this Model is closed"):
        model.tokenize("Once")


def test_a_wrong_array_is_refused(model: tabla.Model) -> None:
    session = model.session()
    session.prefill("Once")
    for wrong in (np.empty(3, np.float32), np.empty(model.info.vocab, np.float64)):
        with pytest.raises(ValueError, match="not contiguous float32"):
            session.logits(out=wrong)  # type: ignore[arg-type]
    with pytest.raises(tabla.ArgumentError, match="rows is 'first'"):
        session.logits("first")
