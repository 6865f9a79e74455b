"""Keyword arguments of the library and of the OpenAI API, and misspelled ones."""

from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import weakref
from typing import Any

import numpy as np
import pytest
import tabla
from tabla import _c, _chat, _complete, _load, _option_types, _options
from tabla._native import ffi, lib

INTERNAL = {"struct_size", "reserved", "progress", "user_data"}


def test_every_c_option_has_an_argument() -> None:
    for ctype, arguments in (
        ("TablaGenerateOptions", _chat.ChatRequest),
        ("TablaLoadOptions", tabla.LoadOptions),
        ("TablaEmbedOptions", tabla.EmbedOptions),
        ("TablaTranscribeOptions", tabla.TranscribeOptions),
    ):
        names = set(arguments.__annotations__)
        fields = {field for field, _ in ffi.typeof(ctype).fields} - INTERNAL
        fields -= {f"{field}_count" for field in fields}
        # `prompt_lookup`, `drafting_head` and `draft_model` select the method of speculative decoding.
        # The number of channels is that of the array, or an argument of `Model.transcription`. `Model.chat`
        # sets the options of its conversation.
        assert fields - names <= {"speculate", "channels", "chat"}, ctype


def test_texts_and_paths_of_loading_are_passed() -> None:
    texts = _option_types.TEXTS | _option_types.PATHS
    names = [name for name in tabla.LoadOptions.__annotations__ if name in texts]
    assert "drafter_path" in names and "samplers" in names
    options = _load.load_options({name: f"/{name}" for name in names})
    assert [ffi.string(getattr(options.c, name)) for name in names] == [f"/{name}".encode() for name in names]


def test_help_lists_every_option() -> None:
    types = (tabla.LoadOptions, tabla.GenerateOptions, tabla.ChatOptions, tabla.EmbedOptions, tabla.TranscribeOptions)
    for options in types:
        text = inspect.getdoc(options) or ""
        assert [name for name in options.__annotations__ if f"\n{name}: " not in text] == [], options


def test_options_keep_referenced_memory_alive() -> None:
    options = _c.Struct("TablaEmbedOptions")
    prompt = _c.text("query", "prompt")
    alive = weakref.ref(prompt)
    options.point("prompt_name", prompt)
    c = options.c
    del options, prompt
    gc.collect()
    assert alive() is not None and ffi.string(c.prompt_name) == b"query"
    del c
    gc.collect()
    assert alive() is None


def test_arguments_set_their_fields(model: tabla.Model) -> None:
    grammar = tabla.Grammar.json(model)
    given: dict[str, Any] = {
        "max_tokens": 7,
        "temperature": 0,
        "seed": 2**64 - 1,
        "stop": "\n",
        "stop_token_ids": [1, 2],
        "logit_bias": {"5": -100, 6: float("-inf")},
        "logprobs": True,
        "top_logprobs": 3,
        "dry_sequence_breakers": ["a", "b", "c"],
        "repetition_penalty": 1.5,
        "prompt_lookup": True,
        "ignore_eos": True,
        "grammar": grammar,
        "top_k": None,
    }
    c = _options.generate_options(_options.checked(given, "generate")).c
    assert (c.max_tokens, c.temperature, c.seed, c.top_k) == (7, 0, 2**64 - 1, 40)
    assert [ffi.string(c.stop[0]), c.stop_count] == [b"\n", 1]
    assert list(c.stop_token_ids[0 : c.stop_token_ids_count]) == [1, 2]
    biases = [(c.logit_bias[n].token, c.logit_bias[n].bias) for n in range(c.logit_bias_count)]
    assert biases == [(5, -100), (6, float("-inf"))]
    assert (c.logprobs, c.speculate, c.ignore_eos) == (3, 1, 1)
    assert [ffi.string(c.dry_sequence_breakers[n]) for n in range(c.dry_sequence_breakers_count)] == [b"a", b"b", b"c"]
    assert c.grammar == grammar._pointer
    assert c.repetition_penalty == 1.5
    off = _options.generate_options({"prompt_lookup": False, "draft_model": model}).c
    assert (off.speculate, off.draft_model) == (lib.TABLA_SPECULATE_DRAFT, model._pointer)


@pytest.mark.parametrize(
    ("logprobs", "top", "expected"),
    [(None, None, -1), (False, None, -1), (True, None, 0), (True, 5, 5), (0, None, 0), (4, None, 4)],
)
def test_both_forms_of_logprobs_are_supported(
    logprobs: Any, top: int | None, expected: int
) -> None:
    for names in (("logprobs", "top_logprobs"), ("top_logprobs", "logprobs")):
        values = {"logprobs": logprobs, "top_logprobs": top}
        arguments = _options.checked({name: values[name] for name in names}, "chat", _chat.ChatRequest)
        assert _options.generate_options(arguments).c.logprobs == expected


def test_typos_are_type_errors(model: tabla.Model) -> None:
    with pytest.raises(TypeError, match="generate.*'temprature'; did you mean 'temperature'?"):
        model.generate("Once", temprature=0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="chat.*'mesages'"):
        model.chat([], mesages=[])  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="embed.*'normalise'; did you mean 'normalize'?"):
        model.embed("a", normalise=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="apply_chat_template.*'template'"):
        model.apply_chat_template([], template="chatml")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="load.*'max_contxt'; did you mean 'max_context'?"):
        tabla.Model.load(max_contxt=5)  # type: ignore[call-arg]
    for old, new in {
        "repeat_penalty": "repetition_penalty",
        "repeat_last": "repeat_last_n",
        "stop_tokens": "stop_token_ids",
        "draft": "draft_model",
        "max_new_tokens": "max_tokens",
    }.items():
        with pytest.raises(TypeError, match=f"did you mean '{new}'"):
            model.generate("Once", **{old: 1})  # type: ignore[arg-type]


def test_errors_name_the_invalid_argument(model: tabla.Model) -> None:
    with pytest.raises(TypeError, match="temperature='hot'"):
        model.generate("Once", temperature="hot")  # type: ignore[arg-type]
    with pytest.raises(tabla.ArgumentError, match="max_tokens must be in the range 0 to 4294967295, got -1"):
        model.generate("Once", max_tokens=-1)
    with pytest.raises(TypeError, match="two values for max_tokens: 1, 2"):
        model.chat([], max_tokens=1, max_completion_tokens=2)
    with pytest.raises(tabla.ArgumentError, match="logit_bias"):
        model.generate("Once", logit_bias={"the": 1.0})
    with pytest.raises(tabla.ArgumentError, match="^repetition_penalty 0 is outside"):
        model.generate("Once", repetition_penalty=0)
    with pytest.raises(tabla.ArgumentError, match="repeat_last_n must be in the range 0 to 4294967295, got -1"):
        model.generate("Once", repeat_last_n=-1)
    with pytest.raises(tabla.ArgumentError, match="^logprobs must be in the range -2147483648 to 2147483647"):
        _c.Struct("TablaGenerateOptions").put("logprobs", 2**31)
    with pytest.raises(tabla.ArgumentError, match="^temperature=1000.*: int too large"):
        model.generate("Once", temperature=10**400)
    with pytest.raises(tabla.ArgumentError, match="^logprobs must be at most 20"):
        model.generate("Once", logprobs=21)
    with pytest.raises(tabla.ArgumentError, match="only one of prompt_lookup, drafting_head and draft_model"):
        model.generate("Once", prompt_lookup=True, draft_model=model)
    with pytest.raises(TypeError, match="draft_model must be a Model, not str"):
        model.generate("Once", draft_model="small.gguf")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="grammar must be a Grammar, not str"):
        model.generate("Once", grammar="root ::= x")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"stop\[1\] must be str, not int"):
        model.generate("Once", stop=["a", 1])  # type: ignore[list-item]


def test_ignored_openai_arguments_are_warnings(model: tabla.Model) -> None:
    messages = [{"role": "user", "content": "Once"}]
    with pytest.warns(UserWarning, match=r"chat\(\) ignores (user|store)") as warned:
        model.chat(messages, chat_template="chatml", max_tokens=1, user="me", store=False)
    assert len(warned) == 2
    assert {warning.filename for warning in warned} == {__file__}
    with pytest.warns(UserWarning, match=r"complete\(\) ignores service_tier") as warned:
        model.complete("Once", max_tokens=1, service_tier="auto")
    assert warned[0].filename == __file__
    model.complete("Once", max_tokens=1, service_tier=None)  # None is not passed on, so there is no warning


def test_only_chat_and_complete_accept_openai_arguments(model: tabla.Model) -> None:
    session = model.session()
    given: dict[str, Any] = {"service_tier": "auto"}
    for call in (
        lambda: model.generate("Once", **given),
        lambda: model.stream("Once", **given),
        lambda: model.astream("Once", **given),
        lambda: asyncio.run(model.agenerate("Once", **given)),
        lambda: model.generate_many(["Once"], **given),
        lambda: model.batch().add("Once", **given),
        lambda: model.embed("Once", **given),
        lambda: session.generate("Once", **given),
        lambda: session.stream("Once", **given),
        lambda: session.step(**given),
    ):
        with pytest.raises(TypeError, match="'service_tier'; only chat and complete accept it"):
            call()
    with pytest.raises(TypeError, match="'max_completion_tokens'; did you mean 'max_tokens'?"):
        model.generate("Once", max_completion_tokens=1)  # type: ignore[call-arg]


def test_every_openai_argument_is_accepted() -> None:
    pytest.importorskip("openai", reason="openai is not installed: its arguments were not compared")
    from openai.resources.chat.completions import Completions as Chat
    from openai.resources.completions import Completions

    client_arguments = {"self", "extra_headers", "extra_query", "extra_body", "timeout", "stream"}
    for ours, theirs, positional in (
        (_chat.ChatRequest, Chat.create, {"messages"}),
        (_complete.CompleteRequest, Completions.create, {"prompt"}),
    ):
        names = set(inspect.signature(theirs).parameters) - client_arguments - positional
        assert names <= set(ours.__annotations__)


@pytest.mark.parametrize(
    "options",
    [
        {"max_tokens": -1},
        {"seed": 2**64},
        {"temperature": float("nan")},
        {"logprobs": -1},
        {"stop": ["\ud800"]},
    ],
)
def test_value_out_of_range_is_an_argument_error(
    model: tabla.Model, options: dict[str, Any]
) -> None:
    with pytest.raises(tabla.ArgumentError, match=next(iter(options))):
        model.generate("Once", **options)


def test_numpy_integers_are_accepted(model: tabla.Model) -> None:
    tokens: Any = np.array(model.tokenize("Once"))
    assert model.token_bytes(tokens[-1]) == model.token_bytes(int(tokens[-1]))
    assert model.complete(tokens, max_tokens=1, seed=0)["usage"]["completion_tokens"] == 1


def test_too_many_choices_are_rejected(model: tabla.Model) -> None:
    with pytest.raises(tabla.ArgumentError, match="513"):
        model.complete("Once", n=513, max_tokens=1)


def test_handles_cannot_be_copied(model: tabla.Model) -> None:
    with model.session() as session, pytest.raises(TypeError, match="Session"):
        copy.copy(session)
