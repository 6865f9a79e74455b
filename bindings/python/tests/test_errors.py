"""Exception classes and messages."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tabla
from tabla import _errors
from tabla._native import ffi, lib

from conftest import ROOT


def test_every_status_has_an_exception_class() -> None:
    header = (ROOT / "include/tabla.h").read_text(encoding="utf-8")
    codes = {int(code): name for name, code in re.findall(r"TABLA_ERROR_(\w+) = (\d+),", header)}
    assert set(_errors.CLASSES) == set(codes)
    for code, name in codes.items():
        cls = _errors.CLASSES[code]
        assert getattr(tabla, cls.__name__) is cls
        assert ffi.string(lib.tabla_status_name(code)).decode() == f"TABLA_ERROR_{name}"
        words = {"MEMORY": "OUT_OF_MEMORY"}.get(name, name)
        assert cls.__name__ == "".join(word.capitalize() for word in words.split("_")) + "Error"


def test_unknown_status_is_a_tabla_error() -> None:
    error = _errors.failure(12345, "message")
    assert type(error) is tabla.TablaError
    assert str(error) == "message"


def test_errors_derive_from_builtin_exceptions() -> None:
    assert issubclass(tabla.ArgumentError, ValueError)
    assert issubclass(tabla.IoError, OSError)
    assert issubclass(tabla.OutOfMemoryError, MemoryError)


def test_load_errors_name_the_cause(tmp_path: Path) -> None:
    with pytest.raises(tabla.IoError, match="nowhere.gguf"):
        tabla.Model.load(tmp_path / "nowhere.gguf")
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(tabla.TablaError, match="damaged.gguf"):
        tabla.Model.load(damaged)
    with pytest.raises(tabla.ArgumentError, match="invalid precision 'rough': expected one of fast, exact"):
        tabla.Model.load(precision="rough")
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_ctx'"):
        tabla.Model.load(n_ctx=512)  # type: ignore[call-arg]
    with pytest.raises(tabla.ArgumentError, match="max_context must be in the range 0 to 4294967295, got -1"):
        tabla.Model.load(max_context=-1)


def test_errors_have_the_class_of_their_code(model: tabla.Model, bert: tabla.Model) -> None:
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
    with pytest.raises(tabla.ArgumentError, match="invalid value for uint32_t"):
        model.generate([-1])


def test_prompts_may_contain_nul_and_other_strings_may_not(model: tabla.Model) -> None:
    with pytest.raises(tabla.ArgumentError, match=r"texts\[1\] contains a NUL at byte 2"):
        model.embed(["a", "ab\0c"])
    with pytest.raises(TypeError, match="prompt"):
        model.session().generate(3)  # type: ignore[arg-type]
    assert model.detokenize(model.tokenize("a\0b", add_special=False)) == "a\0b"
    [answer] = model.generate_many(["a\0b"], max_tokens=3, seed=0)
    assert model.generate("a\0b", max_tokens=3, seed=0).tokens == answer.tokens


def test_arguments_of_the_wrong_type_are_rejected(model: tabla.Model) -> None:
    with pytest.raises(TypeError, match="prompt must be a list of integers, not bytes"):
        model.generate(b"Once")
    with pytest.raises(TypeError, match="prompt must be a list of integers: 'float'"):
        model.generate([1.5])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="text must be str, not bytes"):
        model.tokenize(b"Once")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="documents must be a list of str, not str"):
        model.rerank("query", "a document")
    with pytest.raises(TypeError, match="prompts must be a list of prompts, not str"):
        model.generate_many("Once")
    with pytest.raises(tabla.ArgumentError, match="keep must be in the range 0 to 4294967295, got -1"):
        model.session().truncate(-1)
    messages = [{"role": "user", "content": "Once"}]
    with pytest.raises(tabla.ArgumentError, match="n must be an integer, got 'two'"):
        model.chat(messages, chat_template="chatml", n="two")  # type: ignore[call-overload]
    with pytest.raises(tabla.ArgumentError, match="stream_options must be an object, got True"):
        model.complete("Once", stream_options=True)  # type: ignore[call-overload]
    with pytest.raises(tabla.ArgumentError, match="invalid response_format type 'json'"):
        model.chat(messages, chat_template="chatml", response_format="json")  # type: ignore[call-overload]


def test_closed_objects_raise_handle_errors(model: tabla.Model) -> None:
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


def test_sessions_work_after_their_model_is_closed() -> None:
    model = tabla.Model.load(device="cpu", max_context=64)
    session = model.session()
    model.close()
    session.prefill([0])
    assert session.logits().shape == (model.info.vocab,)
    with pytest.raises(tabla.HandleError, match="this Model is closed"):
        model.tokenize("Once")


def test_logits_rejects_invalid_arrays(model: tabla.Model) -> None:
    session = model.session()
    session.prefill("Once")
    for wrong in (np.empty(3, np.float32), np.empty(model.info.vocab, np.float64)):
        with pytest.raises(ValueError, match="must be contiguous float32"):
            session.logits(out=wrong)  # type: ignore[arg-type]
    with pytest.raises(tabla.ArgumentError, match="invalid rows 'first'"):
        session.logits(rows="first")
