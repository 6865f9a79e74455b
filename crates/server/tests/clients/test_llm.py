"""Tests of the server with the command `llm` of Simon Willison.

    pip install llm pytest
    TABLA_URL=http://127.0.0.1:8080 TABLA_MODEL=gemma pytest test_llm.py

The server needs a model with a chat template. The tests do not depend on the text that the model writes.
"""

import json
import os
import subprocess
import sys
from importlib.metadata import version

import pytest
from proxy import Proxy

URL = os.environ.get("TABLA_URL", "http://127.0.0.1:8080").rstrip("/")
MODEL = os.environ.get("TABLA_MODEL", "gemma")

# Models of `llm`, by the API.
MODELS = {"chat": {}, "responses": {"responses": True}, "completion": {"completion": True}}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}, "sunny": {"type": "boolean"}},
    "required": ["city", "sunny"],
    "additionalProperties": False,
}
APIS = pytest.mark.parametrize("api", ["chat", "responses"])


@pytest.fixture
def llm(tmp_path):
    """Runs `llm` in a user folder of its own and returns its output."""
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": os.environ.get("TABLA_KEY", "none")}

    def run(*arguments, url=URL):
        common = {"model_name": MODEL, "api_base": f"{url}/v1", "supports_schema": True, "supports_tools": True}
        models = [{"model_id": name, **common, **api} for name, api in MODELS.items()]
        # YAML is a superset of JSON.
        (tmp_path / "extra-openai-models.yaml").write_text(json.dumps(models))
        command = [sys.executable, "-m", "llm", *arguments]
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 120}
        done = subprocess.run(command, env=environment, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def limit(api, tokens):
    return ["-m", api, "-o", "temperature", "0", "-o", "max_tokens", str(tokens)]


@APIS
def test_stream_has_the_text_of_the_whole_answer(llm, api):
    streamed = llm("Say hello.", *limit(api, 16))
    whole = llm("Say hello.", *limit(api, 16), "--no-stream")
    assert streamed.strip() and streamed == whole


def test_completion(llm):
    assert llm("Once upon a time", *limit("completion", 16), "--no-stream").strip()


@APIS
def test_conversation(llm, api):
    llm("Say hello.", "--system", "Be short.", *limit(api, 8))
    llm("Again.", "--continue", *limit(api, 8))
    first, second = json.loads(llm("logs", "list", "--json", "-n", "2"))
    assert first["conversation_id"] == second["conversation_id"]
    assert first["response"].strip() and second["response"].strip()
    # `llm` has no usage of responses that end at the token limit.
    if api == "chat":
        assert second["input_tokens"] > first["input_tokens"] > 0
        assert 0 < second["output_tokens"] <= 8


@APIS
@pytest.mark.parametrize("stream", [[], ["--no-stream"]], ids=["stream", "whole"])
def test_schema(llm, api, stream):
    answer = json.loads(llm("Rome is sunny.", "--schema", json.dumps(SCHEMA), *limit(api, 256), *stream))
    assert answer["city"] in ("Paris", "Rome") and isinstance(answer["sunny"], bool)


@APIS
def test_tool_and_its_result(llm, api):
    """The model of the tests cannot choose tools, so that the first request gets `tool_choice` from the proxy."""
    with Proxy(URL, "llm_version", {}) as proxy:
        text = llm("Which version is it?", "--tool", "llm_version", "--td", *limit(api, 128), url=proxy.url)
        assert text.strip()
        assert not proxy.refused()
        sent = [json.dumps(body) for _, _, body, _, _ in proxy.requests]
        assert len(sent) == 2 and version("llm") in sent[1]
