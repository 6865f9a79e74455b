"""Tests of the server with LangChain: chat completions, responses and embeddings.

    pip install langchain-openai pytest
    TABLA_URL=http://127.0.0.1:8080 TABLA_MODEL=gemma pytest test_langchain.py

The server needs a model with a chat template. `TABLA_EMBEDDING_MODEL` is a model with embeddings, if there is one.
The tests do not depend on the text that the model writes: schemas are strict and have enumerations only, which bound
the length of the answer.
"""

import asyncio
import os
from typing import Literal

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

URL = os.environ.get("TABLA_URL", "http://127.0.0.1:8080").rstrip("/")
MODEL = os.environ.get("TABLA_MODEL", "gemma")
EMBEDDING_MODEL = os.environ.get("TABLA_EMBEDDING_MODEL")
CONNECTION = {"base_url": f"{URL}/v1", "api_key": os.environ.get("TABLA_KEY", "none"), "max_retries": 0}
CITIES = ("Paris", "Rome")

# Chat completions and responses.
APIS = pytest.mark.parametrize("responses", [False, True], ids=["chat", "responses"])


class Weather(BaseModel):
    """Weather of a city."""

    city: Literal["Paris", "Rome"]
    sunny: bool


@tool
def get_weather(city: Literal["Paris", "Rome"]) -> str:
    """Get the weather of a city."""
    return f"It is sunny in {city}."


@tool
def get_time(city: Literal["Paris", "Rome"]) -> str:
    """Get the time of a city."""
    return f"It is noon in {city}."


def chat(responses=False, tokens=256, **fields):
    return ChatOpenAI(
        model=MODEL, temperature=0, max_tokens=tokens, use_responses_api=responses, timeout=120, **fields, **CONNECTION
    )


def check_usage(message, tokens):
    usage = message.usage_metadata
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 < usage["output_tokens"] <= tokens


@APIS
def test_invoke(responses):
    answer = chat(responses, 16).invoke([SystemMessage("Be short."), HumanMessage("Say hello.")])
    assert isinstance(answer, AIMessage) and answer.text
    check_usage(answer, 16)
    assert answer.response_metadata["model_name"] == MODEL


@APIS
def test_stream_has_the_text_of_the_whole_answer(responses):
    model = chat(responses, 16, stream_usage=True)
    whole = model.invoke("Say hello.")
    total = None
    chunks = 0
    for chunk in model.stream("Say hello."):
        total = chunk if total is None else total + chunk
        chunks += bool(chunk.text)
    assert chunks > 1
    assert total.text == whole.text
    check_usage(total, 16)


def test_requests_at_once():
    async def texts():
        model = chat(tokens=8)
        answers = await asyncio.gather(*(model.ainvoke(f"Count to {n}.") for n in range(6)))
        return [answer.text for answer in answers]

    model = chat(tokens=8)
    assert asyncio.run(texts()) == [model.invoke(f"Count to {n}.").text for n in range(6)]


@APIS
def test_named_tool_is_called_once(responses):
    model = chat(responses).bind_tools([get_time, get_weather], tool_choice="get_weather", strict=True)
    assert len(model.invoke("What is the weather in Rome?").tool_calls) == 1


@APIS
def test_named_tool_and_its_result(responses):
    tools = [get_time, get_weather]
    model = chat(responses).bind_tools(tools, tool_choice="get_weather", strict=True, parallel_tool_calls=False)
    messages = [HumanMessage("What is the weather in Rome?")]
    answer = model.invoke(messages)
    (call,) = answer.tool_calls
    assert call["name"] == "get_weather" and call["args"]["city"] in CITIES and call["id"]

    result = get_weather.invoke(call)
    assert isinstance(result, ToolMessage)
    final = chat(responses, 16).bind_tools([get_weather], tool_choice="none").invoke([*messages, answer, result])
    assert final.text and not final.tool_calls


@APIS
def test_required_tool_in_a_stream(responses):
    tools = [get_time, get_weather]
    model = chat(responses).bind_tools(tools, tool_choice="required", strict=True, parallel_tool_calls=False)
    total = None
    for chunk in model.stream("What is the weather in Rome?"):
        total = chunk if total is None else total + chunk
    (call,) = total.tool_calls
    assert call["name"] in ("get_time", "get_weather") and call["args"]["city"] in CITIES
    assert not total.invalid_tool_calls


@APIS
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_structured_output(responses, method):
    answer = chat(responses).with_structured_output(Weather, method=method, strict=True).invoke("Rome is sunny.")
    assert isinstance(answer, Weather) and answer.city in CITIES


def test_structured_output_in_a_stream():
    *_, last = chat().with_structured_output(Weather, method="json_schema", strict=True).stream("Rome is sunny.")
    assert isinstance(last, Weather)


def test_log_probabilities():
    answer = chat(tokens=8, logprobs=True, top_logprobs=2).invoke("Say hello.")
    entries = answer.response_metadata["logprobs"]["content"]
    assert "".join(entry["token"] for entry in entries) == answer.text
    assert all(len(entry["top_logprobs"]) == 2 and entry["logprob"] <= 0 for entry in entries)


def test_previous_response():
    model = chat(True, 8)
    first = model.invoke("Say hello.")
    second = model.invoke("Again.", previous_response_id=first.response_metadata["id"])
    assert second.usage_metadata["input_tokens"] > first.usage_metadata["total_tokens"]


def test_count_of_choices():
    answers = chat(tokens=8, n=2).generate([[HumanMessage("Say hello.")]]).generations[0]
    assert len(answers) == 2 and all(answer.text for answer in answers)


@pytest.mark.skipif(not EMBEDDING_MODEL, reason="TABLA_EMBEDDING_MODEL is not set")
def test_embeddings():
    # Token ids of tiktoken belong to another vocabulary, so texts are sent.
    model = OpenAIEmbeddings(model=EMBEDDING_MODEL, check_embedding_ctx_length=False, **CONNECTION)
    first, second = model.embed_documents(["The cat sleeps.", "A train arrives."])
    assert len(first) == len(second) > 0 and first != second
    assert abs(sum(value * value for value in first) - 1) < 1e-3
    assert model.embed_query("The cat sleeps.") == pytest.approx(first, abs=1e-3)
