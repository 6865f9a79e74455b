"""Plugin of pytest that runs the server tests of llama.cpp against `tabla serve`.

`options.toml` maps the options of llama-server, `tests.toml` has the tests that are not run or fail, with the reason
of each. The run fails if another test fails, or one of these passes.
"""

import os
import subprocess
import sys
import time
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from requests.structures import CaseInsensitiveDict

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[4]
OPTIONS = tomllib.loads((FOLDER / "options.toml").read_text())
TABLE = tomllib.loads((FOLDER / "tests.toml").read_text())

# Attributes of `ServerProcess` that this file or the tests handle.
HANDLED = {"api_key", "chat_template", "external_server", "log_path", "model_alias", "model_file", "process", "reasoning"}
KNOWN = HANDLED.union(OPTIONS["ignored"], *(OPTIONS[table] for table in ("not_offered", "requests", "values")))


def matches(name, test):
    """Whether a test is that of the table, one of its parameters or of its file, or begins with its parameters."""
    return name == test or name.startswith((f"{test}[", f"{test}::")) or "[" in test and name.startswith(test)


def row(name):
    """Returns the kind and the reason of a test, by the longest name of the table that matches."""
    rows = [
        (len(test), kind, group["reason"])
        for kind in ("not_offered", "texts", "differs")
        for group in TABLE.get(kind, [])
        for test in group["tests"]
        if matches(name, test)
    ]
    return max(rows, default=(0, None, None))[1:]


def short_name(nodeid):
    return nodeid.removeprefix("unit/")


def chat_template(server):
    """Returns the chat template: a name, or a file that has the source."""
    template = server.chat_template
    if " " not in template:
        return template
    path = Path("tmp") / "template.jinja"
    path.parent.mkdir(exist_ok=True)
    path.write_text(template)
    return str(path)


def arguments(server):
    """Returns the arguments of `tabla serve`, or skips the test."""
    unknown = [name for name in vars(server) if name not in KNOWN and not name.startswith("_")]
    assert not unknown, f"options.toml lacks {unknown}"
    for name, reason in OPTIONS["not_offered"].items():
        if getattr(server, name):
            pytest.skip(f"option {name}: {reason}")
    repository = "/".join(filter(None, [server.model_hf_repo, server.model_hf_file]))
    model = OPTIONS["models"].get(repository)
    if model is None or server.model_file:
        pytest.skip(f"the model {server.model_file or repository or '(none)'} is downloaded")
    alias = server.model_alias or "model"
    found = ["--device", "cpu", "--metrics-compat", "llamacpp"]
    found += ["--model", f"{alias}={ROOT / model['path']}"]
    # llama-server divides the context among its slots.
    slots = 1 if server.kv_unified else server.n_slots or 1
    found += ["--ctx-size", min((server.n_ctx or 512) // slots, model["context"])]
    if server.chat_template:
        found += ["--chat-template", chat_template(server)]
    for name, option in OPTIONS["values"].items():
        value = getattr(server, name)
        if value is not None:
            found += [option, value]
    return [str(argument) for argument in found]


def with_defaults(server, data):
    """Returns the body of a request with the fields that are options of llama-server."""
    if not isinstance(data, dict):
        return data
    defaults = {field: getattr(server, name) for name, field in OPTIONS["requests"].items()}
    if server.reasoning == "off":
        defaults["chat_template_kwargs"] = {"enable_thinking": False}
    if "max_tokens" in data:
        del defaults["n_predict"]
    return {**{field: value for field, value in defaults.items() if value is not None}, **data}


def start(server, timeout_seconds=60):
    """Starts `tabla serve` in place of llama-server."""
    import utils

    command = [os.environ["TABLA"], "serve", *arguments(server)]
    print("tests: starting", " ".join(command))
    environment = dict(os.environ)
    if server.api_key:
        environment["TABLA_API_KEY"] = server.api_key
    server._log = open(server.log_path, "w") if server.log_path else sys.stdout
    server.process = subprocess.Popen(command, env=environment, stdout=server._log, stderr=server._log)
    utils.server_instances.add(server)
    end = time.time() + timeout_seconds
    while time.time() < end:
        if server.process.poll() is not None:
            raise RuntimeError(f"tabla serve ended with status {server.process.returncode}")
        try:
            if server.make_request("GET", "/health").status_code == 200:
                return
        except OSError:
            pass
        time.sleep(0.02)
    raise TimeoutError("tabla serve did not start")


@pytest.hookimpl(tryfirst=True)
def pytest_configure():
    import utils

    utils.ServerProcess.start = start
    for name in ("make_request", "make_stream_request"):
        request = getattr(utils.ServerProcess, name)

        def send(server, method, path, data=None, *rest, request=request, **named):
            answer = request(server, method, path, with_defaults(server, data), *rest, **named)
            if hasattr(answer, "headers"):
                # The tests look them up in a dictionary, but the case of their names has no meaning.
                answer.headers = CaseInsensitiveDict(answer.headers)
            return answer

        setattr(utils.ServerProcess, name, send)
    utils.download_file = lambda url, path=None: pytest.skip(f"{url} is downloaded")
    utils.ServerPreset.load_all = staticmethod(lambda: None)


def pytest_collection_modifyitems(items):
    for item in items:
        kind, reason = row(short_name(item.nodeid))
        if kind == "not_offered":
            item.add_marker(pytest.mark.skip(reason=reason))


# The first report of each test that failed, was skipped, or ended.
REPORTS = {}

TITLES = {
    "passed": "passed",
    "differs": "failed: Tabla differs",
    "texts": "failed: texts of llama.cpp's models and messages",
    "failed": "failed",
    "not_offered": "not offered",
}


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        REPORTS.setdefault(short_name(report.nodeid), report)


def outcome(name, report):
    """Returns the kind of an outcome, its reason, and what the table lacks."""
    kind, reason = row(name)
    match report.outcome:
        case "skipped":
            return "not_offered", report.longrepr[2].removeprefix("Skipped: "), None
        case "passed":
            return "passed", None, kind and f"passed, but is in tests.toml: {name}"
        case _ if kind is None:
            return "failed", "not in tests.toml", f"failed, but is not in tests.toml: {name}"
        case _:
            return kind, reason, None


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    outcomes = [outcome(name, report) for name, report in REPORTS.items()]
    session.exitstatus = int(any(wrong for _, _, wrong in outcomes))


def pytest_terminal_summary(terminalreporter):
    outcomes = [outcome(name, report) for name, report in REPORTS.items()]
    counts = Counter(kind for kind, _, _ in outcomes)
    reasons = Counter((kind, reason) for kind, reason, _ in outcomes if reason)
    for kind, title in TITLES.items():
        terminalreporter.write_line(f"{title}: {counts[kind]}")
        for (of_kind, reason), count in reasons.most_common():
            if of_kind == kind:
                terminalreporter.write_line(f"{count:7} {reason}")
    for _, _, wrong in outcomes:
        if wrong:
            terminalreporter.write_line(wrong)
