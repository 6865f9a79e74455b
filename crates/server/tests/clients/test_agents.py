"""Tests of the server with the agents Codex and Claude Code, through whole loops with a tool call.

    npm install @openai/codex @anthropic-ai/claude-code
    TABLA_URL=http://127.0.0.1:8080 TABLA_MODEL=gemma TABLA_NODE_MODULES=node_modules pytest test_agents.py

The agent sends its system prompt and its tools, the model calls a shell, the agent runs the command and sends the
output, and the model ends with a text. `proxy.py` makes small models call the shell. The prompts have up to 20,000
tokens, with the built-in model up to 45,000.
"""

import json
import os
import pathlib
import subprocess

import pytest
from proxy import ANSWER, Proxy

URL = os.environ.get("TABLA_URL", "http://127.0.0.1:8080").rstrip("/")
MODEL = os.environ.get("TABLA_MODEL", "gemma")
KEY = os.environ.get("TABLA_KEY", "none")
PROGRAMS = pathlib.Path(os.environ.get("TABLA_NODE_MODULES", "node_modules")).resolve() / ".bin"

# The output is not part of the command, so that it shows that the command ran.
COMMAND, OUTPUT = "echo 4$((1+1))", "42"


@pytest.fixture
def run(tmp_path):
    """Runs an agent in an empty folder, without the settings of the user, and returns its events."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()

    def run(command, config="", **environment):
        (home / "config.toml").write_text(config)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "CLAUDE"))}
        folders = {"HOME": str(home), "CODEX_HOME": str(home), "CLAUDE_CONFIG_DIR": str(home)}
        done = subprocess.run(
            [PROGRAMS / command[0], *command[1:]],
            env={**inherited, **folders, **environment},
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    return run


def check_requests(proxy, path):
    """Checks that the server accepted everything, and that the agent sent its tools exactly twice."""
    assert not proxy.refused()
    bodies = [body for _, sent, body, _, _ in proxy.requests if sent.partition("?")[0] == path]
    first, second = [body for body in bodies if body.get("tools")]
    assert first["stream"] and second["stream"]
    return first, second


@pytest.mark.parametrize("provider", ["custom", "lmstudio"])
def test_codex(run, provider):
    with Proxy(URL, "exec_command", {"cmd": COMMAND}) as proxy:
        options = ["--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        environment = {"TABLA_KEY": KEY}
        config = f"""
model = "{MODEL}"
model_provider = "tabla"
[model_providers.tabla]
name = "tabla"
base_url = "{proxy.url}/v1"
wire_api = "responses"
env_key = "TABLA_KEY"
"""
        if provider == "lmstudio":
            # Codex lists the models and sends an empty request first.
            options += ["--oss", "--local-provider", "lmstudio", "--model", MODEL]
            environment["CODEX_OSS_BASE_URL"] = f"{proxy.url}/v1"
            config = ""
        events = run(["codex", "exec", *options, "Print the answer."], config, **environment)

    items = [event["item"] for event in events if event["type"] == "item.completed"]
    (execution,) = [item for item in items if item["type"] == "command_execution"]
    assert COMMAND in execution["command"] and execution["aggregated_output"].strip() == OUTPUT
    (message,) = [item for item in items if item["type"] == "agent_message"]
    assert json.loads(message["text"]) == ANSWER
    (end,) = [event for event in events if event["type"] == "turn.completed"]
    assert end["usage"]["input_tokens"] > 0 and end["usage"]["output_tokens"] > 0

    _, second = check_requests(proxy, "/v1/responses")
    (call,) = [item for item in second["input"] if item["type"] == "function_call"]
    (result,) = [item for item in second["input"] if item["type"] == "function_call_output"]
    assert call["call_id"] == result["call_id"] and OUTPUT in result["output"]


def test_claude_code(run):
    with Proxy(URL, "Bash", {"command": COMMAND, "description": "Prints the answer"}) as proxy:
        options = ["--dangerously-skip-permissions", "--output-format", "stream-json", "--verbose"]
        events = run(
            ["claude", "-p", "Print the answer.", *options],
            ANTHROPIC_BASE_URL=proxy.url,
            ANTHROPIC_AUTH_TOKEN=KEY,
            ANTHROPIC_MODEL=MODEL,
            ANTHROPIC_DEFAULT_HAIKU_MODEL=MODEL,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            DISABLE_TELEMETRY="1",
            DISABLE_ERROR_REPORTING="1",
            DISABLE_AUTOUPDATER="1",
            IS_SANDBOX="1",
        )

    contents = [event["message"]["content"] for event in events if event["type"] in ("assistant", "user")]
    blocks = [block for content in contents for block in content]
    (call,) = [block for block in blocks if block["type"] == "tool_use"]
    (result,) = [block for block in blocks if block["type"] == "tool_result"]
    assert call["name"] == "Bash" and call["input"]["command"] == COMMAND
    assert result["tool_use_id"] == call["id"] and result["content"] == OUTPUT
    (end,) = [event for event in events if event["type"] == "result"]
    assert end["subtype"] == "success" and not end["is_error"] and end["num_turns"] == 2
    assert json.loads(end["result"]) == ANSWER

    _, second = check_requests(proxy, "/v1/messages")
    assert OUTPUT in json.dumps(second["messages"][-2:])
