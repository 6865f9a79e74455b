"""Tests of `/v1/responses` and `/v1/messages` with the SDKs of OpenAI and Anthropic.

    pip install openai anthropic pytest
    TABLA_URL=http://127.0.0.1:8080 TABLA_MODEL=gemma pytest test_dialects.py

`TABLA_URL` is the address of a running server, `TABLA_MODEL` the name of a model with a chat template. The tests
do not depend on the text that the model writes. `TABLA_KEY` is the API key, if the server needs one.
"""

import json
import os
import urllib.error
import urllib.request

import anthropic
import openai
import pytest
from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

URL = os.environ.get("TABLA_URL", "http://127.0.0.1:8080").rstrip("/")
MODEL = os.environ.get("TABLA_MODEL", "gemma")
KEY = os.environ.get("TABLA_KEY", "none")

# Bounds the answer: small models may not end by themselves.
TOKENS = 16
GREEDY = {"temperature": 0}
FUNCTION = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
NAMESPACE = {
    "type": "namespace",
    "name": "mcp__notes",
    "description": "Notes",
    "tools": [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}],
}
TOOL = {"name": "get_weather", "description": "Weather", "input_schema": FUNCTION["parameters"]}


@pytest.fixture(scope="module")
def oai():
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=120)


@pytest.fixture(scope="module")
def ant():
    return anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=120)


def http(path, body, method="POST"):
    """Returns status and text of an answer."""
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def frames(text):
    """Returns names and data of the events of a stream."""
    parsed = []
    for frame in text.split("\n\n"):
        if not frame or frame.startswith(":"):
            continue
        name, data = frame.split("\n", 1)
        assert name.startswith("event: ") and data.startswith("data: "), frame
        parsed.append((name[7:], data[6:]))
    return parsed


def response_request(**fields):
    return {"model": MODEL, "input": "Say hello.", "max_output_tokens": TOKENS, **GREEDY, **fields}


def message_request(**fields):
    messages = [{"role": "user", "content": "Say hello."}]
    return {"model": MODEL, "messages": messages, "max_tokens": TOKENS, **GREEDY, **fields}


def strict(kind, text):
    """Validates JSON text against a type of an SDK, without conversions."""
    return TypeAdapter(kind).validate_json(text, strict=True)


def create(ant, **fields):
    """Returns a message. The method of the SDK has no sampling parameters."""
    return ant.messages.create(**sdk_request(**fields))


def sdk_request(**fields):
    request = message_request(**fields)
    names = ("temperature", "min_tokens")
    extra = {name: request.pop(name) for name in names if name in request}
    return {**request, "extra_body": extra}


# Responses


def test_response_is_strictly_valid():
    status, text = http("/v1/responses", response_request(tools=[FUNCTION, NAMESPACE], metadata={"a": "b"}))
    assert status == 200, text
    response = strict(Response, text)
    assert response.status in ("completed", "incomplete")
    assert response.output and response.metadata == {"a": "b"}
    usage = response.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 < usage.output_tokens <= TOKENS


def test_response_events_are_strictly_valid():
    status, text = http("/v1/responses", response_request(stream=True, tools=[FUNCTION]))
    assert status == 200, text
    events = [(name, strict(ResponseStreamEvent, data)) for name, data in frames(text)]
    assert [event.sequence_number for _, event in events] == list(range(len(events)))
    assert all(name == event.type for name, event in events)
    names = [name for name, _ in events]
    assert names[:2] == ["response.created", "response.in_progress"]
    assert names[-1] in ("response.completed", "response.incomplete")
    assert events[0][1].response.output == []
    last = events[-1][1].response
    done = [event.item for name, event in events if name == "response.output_item.done"]
    assert last.output == done
    deltas = [event.delta for name, event in events if name == "response.output_text.delta"]
    assert "".join(deltas) == last.output_text


def test_response_stream_equals_whole_answer(oai):
    whole = oai.responses.create(**response_request())
    with oai.responses.create(**response_request(), stream=True) as stream:
        last = list(stream)[-1].response
    assert last.output_text == whole.output_text
    assert last.status == whole.status
    assert last.usage.output_tokens == whole.usage.output_tokens


def test_response_stream_helper(oai):
    with oai.responses.stream(**response_request()) as stream:
        events = list(stream)
    assert events[0].type == "response.created"
    snapshot = [event.snapshot for event in events if event.type == "response.output_text.delta"]
    assert not snapshot or snapshot[-1] == events[-1].response.output_text


def test_response_log_probabilities(oai):
    fields = response_request(include=["message.output_text.logprobs"], top_logprobs=2)
    response = oai.responses.create(**fields)
    part = response.output[-1].content[0]
    assert part.type != "output_text" or all(len(entry.top_logprobs) == 2 for entry in part.logprobs)


def test_response_limit(oai):
    # The stop token of the model is banned by `min_tokens`.
    response = oai.responses.create(**response_request(max_output_tokens=4), extra_body={"min_tokens": 4})
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.completed_at is None


def test_responses_are_stored(oai):
    first = oai.responses.create(**response_request(input="My name is Ada."))
    stored = oai.responses.retrieve(first.id)
    assert stored.output_text == first.output_text
    fields = response_request(input="What is my name?", previous_response_id=first.id)
    second = oai.responses.create(**fields)
    assert second.previous_response_id == first.id
    items = [{"role": "user", "content": "My name is Ada."}, *first.model_dump()["output"]]
    items.append({"role": "user", "content": "What is my name?"})
    count = oai.responses.input_tokens.count(model=MODEL, input=items)
    assert second.usage.input_tokens == count.input_tokens
    reference = [{"type": "item_reference", "id": first.output[-1].id}]
    user = {"role": "user", "content": "b"}
    oai.responses.create(**response_request(input=[user, *reference, user], store=False))
    oai.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as error:
        oai.responses.create(**fields)
    assert error.value.code == "previous_response_not_found"
    with pytest.raises(openai.NotFoundError):
        oai.responses.create(**response_request(input=reference))


def test_response_without_store(oai):
    response = oai.responses.create(**response_request(store=False))
    with pytest.raises(openai.NotFoundError):
        oai.responses.retrieve(response.id)


def test_response_input_tokens(oai):
    fields = {"model": MODEL, "input": "Say hello.", "instructions": "Be brief."}
    count = oai.responses.input_tokens.count(**fields).input_tokens
    response = oai.responses.create(**fields, max_output_tokens=1)
    assert response.usage.input_tokens == count


def test_response_json_schema(oai):
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}}
    response = oai.responses.create(**response_request(text=text, max_output_tokens=64))
    assert json.loads(response.output_text) == {"a": 1}


def test_responses_in_strange_forms(oai):
    for fields in [
        {"input": "", "max_output_tokens": 1},
        {"input": [], "tools": None, "tool_choice": None, "reasoning": None, "text": None, "metadata": None},
        {"input": [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"},
                   {"role": "user", "content": [{"type": "input_text", "text": "c"}]}]},
        {"tools": [{"type": "web_search", "external_web_access": False}, NAMESPACE,
                   {"type": "custom", "name": "patch", "format": {"type": "text"}}]},
        {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
         "client_metadata": {"a": "b"}, "unknown": [1]},
    ]:
        status, text = http("/v1/responses", response_request(**{"max_output_tokens": 2, **fields}))
        assert status == 200, text
        strict(Response, text)


def test_response_errors(oai):
    for fields, param in [
        ({"input": 1}, "input"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
         "input[0].content[0].type"),
        ({"temperature": 101}, "temperature"),
        ({"max_output_tokens": -2}, "max_output_tokens"),
    ]:
        for stream in [False, True]:
            status, text = http("/v1/responses", response_request(**{**fields, "stream": stream}))
            assert status == 400, text
            error = json.loads(text)["error"]
            assert error["param"] == param and set(error) >= {"message", "type", "param", "code"}
    with pytest.raises(openai.BadRequestError) as error:
        oai.responses.create(**response_request(input="word " * 200_000))
    assert error.value.code == "context_length_exceeded" and error.value.param == "input"
    status, _ = http("/v1/responses/compact", {"model": MODEL, "input": []})
    assert status == 404


# What Codex sends

CODEX = {
    "model": MODEL,
    "max_output_tokens": TOKENS,
    "stream": True,
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "a",
    "client_metadata": {"x-codex-installation-id": "a"},
    "tools": [FUNCTION, NAMESPACE, {"type": "web_search", "external_web_access": False}],
    "input": [
        {"type": "message", "id": "msg_1", "role": "developer", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "message", "id": "msg_2", "role": "developer", "content": [{"type": "input_text", "text": "b"}]},
        {"type": "message", "id": "msg_3", "role": "user", "content": [{"type": "input_text", "text": "c"}]},
    ],
}
CODEX_TURN = [
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None},
    {"type": "function_call", "status": "completed", "id": "fc_1", "name": "read", "namespace": "mcp__notes",
     "arguments": "{}", "call_id": "call_1"},
    {"type": "function_call", "id": "fc_2", "name": "get_weather", "arguments": "", "call_id": "call_2"},
    {"type": "function_call_output", "id": "fco_1", "call_id": "call_1", "output": "notes"},
    {"type": "function_call_output", "id": "fco_2", "call_id": "call_2",
     "output": [{"type": "input_text", "text": "sun"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "q"}},
]


def test_requests_of_codex():
    for request in [CODEX, {"model": MODEL, "input": "", "max_output_tokens": 1}]:
        status, text = http("/v1/responses", request)
        assert status == 200, text
    events = [json.loads(data) for _, data in frames(http("/v1/responses", CODEX)[1])]
    assert all("type" in event for event in events)
    assert events[-1]["response"]["tools"][1] == NAMESPACE
    # The template decides whether it accepts results of tools.
    status, text = http("/v1/responses", {**CODEX, "input": CODEX["input"] + CODEX_TURN})
    assert status in (200, 400), text


# Messages


def test_message_is_strictly_valid():
    status, text = http("/v1/messages", message_request(system="Be brief.", tools=[TOOL]))
    assert status == 200, text
    message = strict(Message, text)
    assert message.content and message.stop_reason in ("end_turn", "max_tokens", "tool_use")
    required = {"stop_sequence", "stop_details", "container"}
    assert required <= set(json.loads(text))
    assert message.usage.output_tokens <= TOKENS


def test_message_events_are_strictly_valid():
    status, text = http("/v1/messages", message_request(stream=True))
    assert status == 200, text
    events = [(name, json.loads(data)) for name, data in frames(text) if name != "ping"]
    for name, event in events:
        strict(RawMessageStreamEvent, json.dumps(event))
        assert name == event["type"]
    names = [name for name, _ in events]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    opened = [event["index"] for name, event in events if name == "content_block_start"]
    closed = [event["index"] for name, event in events if name == "content_block_stop"]
    assert opened == closed == list(range(len(opened)))


def test_message_stream_equals_whole_answer(ant):
    whole = create(ant)
    with ant.messages.stream(**sdk_request()) as stream:
        texts = list(stream.text_stream)
        last = stream.get_final_message()
    assert [block.model_dump() for block in last.content] == [block.model_dump() for block in whole.content]
    assert "".join(texts) == whole.content[-1].text
    assert last.stop_reason == whole.stop_reason
    prompt = [m.usage.input_tokens + m.usage.cache_read_input_tokens for m in (whole, last)]
    assert prompt[0] == prompt[1]
    assert last.usage.output_tokens == whole.usage.output_tokens


def test_message_limit(ant):
    message = create(ant, max_tokens=4, min_tokens=4)
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 4


def test_message_limit_beyond_the_context():
    status, text = http("/v1/messages", message_request(max_tokens=32_000_000, stop_sequences=["e", "o", "a", "i"]))
    assert status == 200, text


def test_message_tokens(ant):
    fields = {"model": MODEL, "system": "Be brief.", "messages": [{"role": "user", "content": "Say hello."}]}
    count = ant.messages.count_tokens(**fields).input_tokens
    usage = ant.messages.create(**fields, max_tokens=1).usage
    assert usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens == count
    status, text = http("/v1/messages/count_tokens?beta=true", fields)
    assert status == 200 and strict(MessageTokensCount, text).input_tokens == count


def test_billing_lines_are_dropped(ant):
    messages = [{"role": "user", "content": "Say hello."}]

    def count(*texts):
        system = [{"type": "text", "text": text} for text in texts]
        return ant.messages.count_tokens(model=MODEL, system=system, messages=messages).input_tokens

    line = "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=a5145;"
    assert count("Be brief.") == count(line, "Be brief.") == count(f"{line}\nBe brief.")
    assert count("Be brief.") < count("Be brief.", "Be kind.")


def test_message_json_schema(ant):
    schema = {"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": False}
    config = {"format": {"type": "json_schema", "schema": schema}}
    message = create(ant, max_tokens=64, output_config=config)
    assert json.loads(message.content[-1].text) == {"a": 1}


def test_message_errors(ant):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}
    for fields in [
        {"messages": []},
        {"messages": [{"role": "user", "content": [image]}]},
        {"messages": [{"role": "x", "content": "a"}]},
        {"temperature": 101},
        {"tools": [{"name": ""}]},
        {"tool_choice": {"type": "tool", "name": "missing"}},
    ]:
        for stream in [False, True]:
            status, text = http("/v1/messages", message_request(**{**fields, "stream": stream}))
            assert status == 400, text
            body = json.loads(text)
            assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
            assert body["request_id"].startswith("req_")
    with pytest.raises(anthropic.NotFoundError):
        create(ant, model="missing")
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: [0-9]+ tokens > [0-9]+ maximum"):
        create(ant, messages=[{"role": "user", "content": "word " * 200_000}])


def test_models(ant):
    page = ant.models.list(limit=1)
    models = list(page)
    assert models and page.first_id == models[0].id
    assert ant.models.retrieve(models[0].id).created_at == models[0].created_at
    with pytest.raises(anthropic.NotFoundError):
        ant.models.retrieve("missing")


# What Claude Code sends

CLAUDE_CODE = {
    "model": MODEL,
    "max_tokens": TOKENS,
    "stream": True,
    "system": [
        {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197; cch=00000;"},
        {"type": "text", "text": "You are a Claude agent.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "<system-reminder>a</system-reminder>"},
                                     {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]},
        {"role": "system", "content": "Available agent types: none"},
    ],
    "tools": [
        {**TOOL, "eager_input_streaming": True},
        {"name": "Fetch", "description": "d", "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
            "properties": {"url": {"type": "string", "format": "uri"},
                           "n": {"type": "integer", "exclusiveMinimum": 0},
                           "m": {"type": "object", "propertyNames": {"type": "string"}},
                           "c": {"const": "x"}}}},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    ],
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "metadata": {"user_id": "{}"},
}


def test_requests_of_claude_code():
    status, _ = http("/", None, "HEAD")
    assert status < 500
    status, text = http("/v1/messages?beta=true", CLAUDE_CODE)
    assert status == 200, text
    assert frames(text)[-1][0] == "message_stop"
    turn = [
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "text", "text": "a"},
            {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "no"},
            {"type": "text", "text": "go on"}]},
    ]
    # The template decides whether it accepts results of tools.
    status, text = http("/v1/messages?beta=true", {**CLAUDE_CODE, "messages": CLAUDE_CODE["messages"] + turn})
    assert status in (200, 400), text
