"""Chat and completions in the formats of the OpenAI API."""

from __future__ import annotations

import json
import re
from typing import Any, Iterator

import pytest
import tabla

from json_types import validate

MESSAGES = [{"role": "user", "content": "Tell me of a fox."}]
CHATML: dict[str, Any] = {"chat_template": "chatml"}

HERMES = """{%- for tool in tools or [] %}{{ tool.function.name }} {% endfor %}
{%- for message in messages %}{{ message.content }}{% endfor %}{# <tool_call> #}"""
"""A template with the tool-call format of Hermes and Qwen."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"city": {"enum": ["Paris", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("weather", "time")
]


def test_chat_answers_a_conversation(model: tabla.Model) -> None:
    answer = model.chat(MESSAGES, **CHATML, max_tokens=5, seed=0, model="mine")
    validate("chat", answer)
    prompt = model.tokenize_chat(MESSAGES, **CHATML)
    choice = answer["choices"][0]
    expected = model.generate(prompt, max_tokens=5, seed=0)
    assert choice["message"] == {"role": "assistant", "content": expected.text, "refusal": None}
    assert choice["finish_reason"] == "length"
    assert answer["model"] == "mine"
    assert answer["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": 5,
        "total_tokens": len(prompt) + 5,
    }


def test_chunks_equal_the_complete_answer(model: tabla.Model) -> None:
    request: dict[str, Any] = {**CHATML, "max_tokens": 4, "seed": 0, "logprobs": True, "top_logprobs": 2}
    whole = model.chat(MESSAGES, **request)
    validate("chat", whole)
    chunks = list(model.chat(MESSAGES, **request, stream=True, stream_options={"include_usage": True}))
    for chunk in chunks:
        validate("chat chunk", chunk)
    assert len({chunk["id"] for chunk in chunks}) == 1
    first, *middle, last, usage = chunks
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in middle)
    message = whole["choices"][0]["message"]
    assert text == message["content"]
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "length")
    assert (usage["choices"], usage["usage"]) == ([], whole["usage"])
    assert all(chunk["usage"] is None for chunk in chunks[:-1])

    logprobs = whole["choices"][0]["logprobs"]["content"]
    streamed = [chunk["choices"][0]["logprobs"] for chunk in middle]
    assert [entry for part in streamed if part for entry in part["content"]] == logprobs
    assert bytes(byte for entry in logprobs for byte in entry["bytes"]).decode() == text
    assert all(len(entry["top_logprobs"]) == 2 for entry in logprobs)


def test_choices_have_different_seeds(model: tabla.Model) -> None:
    answer = model.chat(MESSAGES, **CHATML, max_tokens=4, n=2, seed=3)
    validate("chat", answer)
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    alone = [
        model.chat(MESSAGES, **CHATML, max_tokens=4, seed=seed)["choices"][0]["message"]["content"]
        for seed in (3, 4)
    ]
    assert texts == alone
    assert answer["usage"]["completion_tokens"] == 8
    with pytest.raises(tabla.ArgumentError, match="n must be in the range 1 to 4294967295, got 0"):
        model.chat(MESSAGES, **CHATML, n=0)


def test_random_seed_is_reported(model: tabla.Model) -> None:
    request: dict[str, Any] = {"max_tokens": 12, "temperature": 2, "top_k": 0, "n": 2}
    answers = [model.chat(MESSAGES, **CHATML, **request) for _ in range(2)]
    assert answers[0]["seed"] != answers[1]["seed"]
    again = model.chat(MESSAGES, **CHATML, **request, seed=answers[0]["seed"])
    assert (again["choices"], again["seed"]) == (answers[0]["choices"], answers[0]["seed"])

    chunks = list(model.complete("Once upon", **request, stream=True))
    for chunk in chunks:
        validate("completion chunk", chunk)
    [seed] = {chunk["seed"] for chunk in chunks}
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["text"]
    whole = model.complete("Once upon", **request, seed=seed)
    validate("completion", whole)
    assert [choice["text"] for choice in whole["choices"]] == texts and whole["seed"] == seed


def test_closing_chunks_ends_the_answer(model: tabla.Model) -> None:
    chunks = model.chat(MESSAGES, **CHATML, stream=True, max_tokens=None, ignore_eos=True)
    next(chunks)
    next(chunks)
    chunks.close()
    assert list(chunks) == []


def test_required_tool_is_called(model: tabla.Model) -> None:
    answer = model.chat(
        MESSAGES,
        chat_template=HERMES,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=60,
        seed=0,
    )
    validate("chat", answer)
    message = answer["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert answer["choices"][0]["finish_reason"] == "tool_calls"
    assert message["content"] is None
    assert call["function"]["name"] in ("weather", "time")
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")


def test_named_tool_is_called_in_chunks(model: tabla.Model) -> None:
    choice = {"type": "function", "function": {"name": "time"}}
    chunks = list(
        model.chat(
            MESSAGES,
            chat_template=HERMES,
            tools=TOOLS,
            tool_choice=choice,
            max_tokens=60,
            seed=0,
            stream=True,
        )
    )
    for chunk in chunks:
        validate("chat chunk", chunk)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    ((call,),) = [delta["tool_calls"] for delta in deltas if "tool_calls" in delta]
    assert (call["index"], call["type"], call["function"]["name"]) == (0, "function", "time")
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


TWO_CALLS = "\n".join(
    f'<tool_call>{{"name": "{name}", "arguments": {{"city": "Rome"}}}}</tool_call>' for name in ("weather", "time")
)


@pytest.mark.parametrize("parallel", [None, True, False])
def test_parallel_tool_calls(model: tabla.Model, parallel: bool | None) -> None:
    request: dict[str, Any] = {"chat_template": HERMES, "tools": TOOLS, "parallel_tool_calls": parallel}
    names = ["weather"] if parallel is False else ["weather", "time"]
    with tabla.Grammar.regex(model, re.escape(TWO_CALLS)) as grammar:
        answer = model.chat(MESSAGES, grammar=grammar, **request)
        chunks = list(model.chat(MESSAGES, grammar=grammar, stream=True, **request))
    validate("chat", answer)
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == names
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert [call["function"]["name"] for call in calls] == names
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.fixture(scope="module")
def wide_model() -> Iterator[tabla.Model]:
    """The story model with space for the description of tools."""
    with tabla.Model.load(device="cpu", max_context=1024) as model:
        yield model


def test_what_templates_lack_is_reported(wide_model: tabla.Model, caplog: pytest.LogCaptureFixture) -> None:
    model = wide_model
    tabla.set_log("warning")
    try:
        prompt = model.apply_chat_template(MESSAGES, **CHATML, tools=TOOLS)
        assert "# Tools" in prompt and '"name":"weather"' in prompt
        assert model.chat(MESSAGES, **CHATML, tools=TOOLS, max_tokens=1)
        assert "tools: the chat template does not describe tools" in caplog.text
        assert model.chat(MESSAGES, **CHATML, reasoning_effort="high", max_tokens=1)
        assert 'reasoning_effort: "high" has no effect' in caplog.text
    finally:
        tabla.set_log(None)
    history: list[dict[str, Any]] = [
        *MESSAGES,
        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "b'}}]},
        {"role": "tool", "content": "done"},
    ]
    rendered = model.apply_chat_template(history, **CHATML)
    assert '<tool_call>\n{"name": "f", "arguments": {"a": "b}\n</tool_call>' in rendered
    assert "<tool_response>\ndone\n</tool_response>" in rendered
    template = "{{ enable_thinking }} {{ reasoning_effort }}"
    assert model.apply_chat_template(MESSAGES, chat_template=template, reasoning_effort="none") == "False "
    assert model.apply_chat_template(MESSAGES, chat_template=template, reasoning_effort="low") == "True low"


def test_tools_are_called_without_a_template_for_them(wide_model: tabla.Model) -> None:
    answer = wide_model.chat(
        MESSAGES, **CHATML, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, max_tokens=60, seed=0
    )
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] in ("weather", "time")


def test_tool_choice_is_validated(model: tabla.Model) -> None:
    plain = model.chat(MESSAGES, chat_template=HERMES, max_tokens=2, seed=0)
    none = model.chat(MESSAGES, chat_template=HERMES, tools=TOOLS, tool_choice="none", max_tokens=2, seed=0)
    auto = model.chat(MESSAGES, chat_template=HERMES, tools=TOOLS, max_tokens=2, seed=0)
    assert none["usage"] == plain["usage"] != auto["usage"]
    for wrong in ("some", {"type": "function"}):
        with pytest.raises(tabla.ArgumentError, match="invalid tool_choice"):
            model.chat(MESSAGES, chat_template=HERMES, tools=TOOLS, tool_choice=wrong)
    with pytest.raises(tabla.TablaError, match="nobody"):
        named = {"type": "function", "function": {"name": "nobody"}}
        model.chat(MESSAGES, chat_template=HERMES, tools=TOOLS, tool_choice=named)


def test_reasoning_is_separated_from_content(model: tabla.Model) -> None:
    with tabla.Grammar.regex(model, "<think>so it is</think>yes") as grammar:
        template = "{{ messages[0].content }}{# <think></think> #}"
        answer = model.chat(MESSAGES, chat_template=template, grammar=grammar)
    message = answer["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("so it is", "yes")


def test_response_format_constrains_the_answer(model: tabla.Model) -> None:
    schema = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
    schema["additionalProperties"] = False  # type: ignore[assignment]
    formats: list[dict[str, Any]] = [{"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}]
    for response_format in formats:
        answer = model.chat(MESSAGES, **CHATML, max_tokens=30, seed=0, response_format=response_format)
        assert json.loads(answer["choices"][0]["message"]["content"]) == {"a": 1}
    free = model.chat(MESSAGES, **CHATML, max_tokens=3, seed=0, response_format={"type": "json_object"})
    assert free["choices"][0]["message"]["content"].lstrip().startswith("{")
    model.chat(MESSAGES, **CHATML, max_tokens=1, response_format={"type": "text"})
    with pytest.raises(tabla.ArgumentError, match="invalid response_format type 'yaml'"):
        model.chat(MESSAGES, **CHATML, response_format={"type": "yaml"})
    with pytest.raises(tabla.ArgumentError, match="missing key 'schema' in response_format"):
        model.chat(MESSAGES, **CHATML, response_format={"type": "json_schema", "json_schema": {}})
    with tabla.Grammar.json(model) as grammar:
        with pytest.raises(tabla.ArgumentError, match="one of tool_choice, response_format"):
            model.chat(MESSAGES, **CHATML, grammar=grammar, response_format={"type": "json_object"})


def test_templates_render(model: tabla.Model) -> None:
    text = model.apply_chat_template(MESSAGES, **CHATML)
    assert text.endswith("<|im_start|>user\nTell me of a fox.<|im_end|>\n<|im_start|>assistant\n")
    bare = model.apply_chat_template(MESSAGES, **CHATML, add_generation_prompt=False)
    assert text.startswith(bare) and not bare.endswith("assistant\n")
    rendered = model.apply_chat_template(
        MESSAGES,
        chat_template="{{ mood }}{{ documents[0].text }}",
        chat_template_kwargs={"mood": "glad "},
        documents=[{"text": "a document"}],
    )
    assert rendered == "glad a document"
    special = [{"role": "user", "content": model.token_bytes(0).decode()}]
    assert 0 not in model.tokenize_chat(special, chat_template="{{ messages[0].content }}")
    with pytest.raises(tabla.ArgumentError, match="no alternation"):
        model.chat(MESSAGES, chat_template="{{ raise_exception('no alternation') }}")
    with pytest.raises(tabla.ArgumentError, match="messages"):
        model.chat({"role": "user"}, **CHATML)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="messages cannot be serialized as JSON"):
        model.chat([{"role": "user", "content": object()}], **CHATML)
    nul = [{"role": "user", "content": "a\0b"}]
    assert model.chat(nul, **CHATML, max_tokens=1, seed=0)["usage"]["completion_tokens"] == 1


def test_prompts_are_completed(model: tabla.Model) -> None:
    answer = model.complete("Once upon", max_tokens=3, seed=0)
    validate("completion", answer)
    assert answer["choices"][0]["text"] == model.generate("Once upon", max_tokens=3, seed=0).text
    assert answer["object"] == "text_completion"

    tokens = model.tokenize("The fox")
    prompts: list[tabla.Prompt] = ["Once upon", tokens]
    many = model.complete(prompts, max_tokens=3, seed=0, n=2, echo=True, logprobs=1)
    validate("completion", many)
    texts = [choice["text"] for choice in many["choices"]]
    assert [choice["index"] for choice in many["choices"]] == [0, 1, 2, 3]
    assert texts[0] == "Once upon" + answer["choices"][0]["text"]
    assert texts[1] == model.complete("Once upon", max_tokens=3, echo=True, seed=1)["choices"][0]["text"]
    assert texts[2] == model.complete(tokens, max_tokens=3, seed=0, echo=True)["choices"][0]["text"]
    for choice in many["choices"]:
        logprobs = choice["logprobs"]
        assert logprobs is not None
        assert len(logprobs["tokens"]) == len(logprobs["top_logprobs"]) == 3
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            assert choice["text"][offset:].startswith(token)

    chunks = list(model.complete("Once upon", max_tokens=3, seed=0, echo=True, stream=True))
    for chunk in chunks:
        validate("completion chunk", chunk)
    validate("completion", {**chunks[-1], "usage": answer["usage"]})
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == texts[0]
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"


def test_a_stop_token_closes_the_reasoning(model: tabla.Model) -> None:
    template = HERMES + "<think>\n{# </think> #}"
    stop: dict[str, Any] = {"logit_bias": {model.info.eos_token: 100}, "min_tokens": 3}
    schema = {"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}}
    for limit in (stop, {"reasoning_budget": 3}):
        request: dict[str, Any] = {"chat_template": template, "max_tokens": 80, "seed": 0, **limit}
        choice = model.chat(MESSAGES, **request, response_format=schema)["choices"][0]
        assert choice["finish_reason"] == "stop"
        assert choice["message"]["content"] in ("true", "false")
        assert choice["message"]["reasoning_content"]
        choice = model.chat(MESSAGES, **request, tools=TOOLS, tool_choice="required")["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        arguments = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
        assert arguments["city"] in ("Paris", "Rome")
