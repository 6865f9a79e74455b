"""`tabla.ray.serve`: requests through a Ray Serve application.

Skipped if Ray Serve or the program `tabla` is not installed; with TABLA_REQUIRE_RAY=1 that is a failure.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
import warnings
from types import SimpleNamespace
from typing import Any, Iterator

import pytest

# On a busy machine, Ray Serve otherwise kills its proxy before it has started.
os.environ["RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S"] = "120"

try:
    # Ray uses deprecated functions of its dependencies, and warnings are errors here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray import serve
        from ray.serve.schema import ProxyStatus
        from starlette.requests import Request
        from tabla.ray._prefix import PrefixRouter, prefixes
        from tabla.ray.serve import DEFAULT_MODEL, Call, build
    if not (os.environ.get("TABLA_PROGRAM") or shutil.which("tabla")):
        raise ImportError("the program tabla is not installed")
except ImportError as missing:
    if os.environ.get("TABLA_REQUIRE_RAY"):
        raise
    reason = f"{missing}: the tests of tabla.ray.serve are skipped, pip install 'tabla-runtime[ray]' runs them"
    print(reason, file=sys.__stderr__)
    pytest.skip(reason, allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("default", "ignore::DeprecationWarning", "ignore::ResourceWarning")

PORT = 8731

ALIASES = ("other", "fox", "bear", "owl", "mouse")
"""Names of the built-in model."""


def start_serve() -> None:
    """Starts Ray Serve. It waits 60 s for its HTTP process, which starts more slowly while other programs run."""
    try:
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    except TimeoutError:
        # Connects to the processes that were started.
        serve.start(http_options={"host": "127.0.0.1", "port": PORT})
    end = time.monotonic() + 300
    while not all(proxy == ProxyStatus.HEALTHY for proxy in serve.status().proxies.values()):
        assert time.monotonic() < end, serve.status()
        time.sleep(0.5)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Starts the application with two replicas of the built-in model. Returns its URL."""
    here = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("serve"))
    ray.init(num_cpus=4, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False)
    os.chdir(here)
    start_serve()
    arguments = {
        "num_cpus": "1",
        "min_replicas": "2",
        "max_replicas": "2",
        "options": f"--device cpu --chat-template zephyr {' '.join(f'--alias {name}' for name in ALIASES)}",
    }
    serve.run(build(arguments))
    yield f"http://127.0.0.1:{PORT}"
    for module in (serve, ray):
        untyped: Any = module
        untyped.shutdown()


def post(url: str, request: Any) -> tuple[int, str]:
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_answers_and_streams_are_the_same_on_every_replica(url: str) -> None:
    request = {"prompt": "Once upon a time", "max_tokens": 16, "seed": 3}
    texts = set()
    for model in ("story", "other") * 4:
        status, text = post(f"{url}/v1/completions", {**request, "model": model})
        assert status == 200, text
        texts.add(json.loads(text)["choices"][0]["text"])
    status, stream = post(f"{url}/v1/completions", {**request, "stream": True})
    assert stream.endswith("data: [DONE]\n\n"), stream
    events = [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]
    texts.add("".join(event["choices"][0]["text"] for event in events))
    assert len(texts) == 1


def test_requests_go_to_the_replica_that_has_the_prefix(url: str) -> None:
    for name in ALIASES[1:]:
        messages = [{"role": "user", "content": f"Tell a story about a {name} that lived in a forest. " * 3}]
        request = {"model": name, "messages": messages, "max_tokens": 1}
        cached = [json.loads(post(f"{url}/v1/chat/completions", request)[1])["usage"] for _ in range(4)]
        counts = [usage["prompt_tokens_details"]["cached_tokens"] for usage in cached]
        assert counts[0] < min(counts[1:]), counts


def test_errors_are_those_of_the_server(url: str) -> None:
    status, text = post(f"{url}/v1/chat/completions", {"messages": []})
    assert (status, json.loads(text)["error"]["param"]) == (400, "messages")
    status, text = post(f"{url}/v1/messages", {"messages": 1})
    assert (status, json.loads(text)["type"]) == (400, "error")
    with urllib.request.urlopen(f"{url}/v1/models", timeout=60) as answer:
        assert json.load(answer)["data"][0]["id"] == "story"


def test_calls_have_the_model_and_the_prompt() -> None:
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"a=1", "headers": []}
    name, call = Call.of(Request(scope), b'{"model": "m", "prompt": "p"}')
    assert (name, call.path, call.prompt, call.messages) == ("m", "/v1/completions?a=1", "p", None)
    for body in (b"", b"{", b"[]", b'{"model": 1}'):
        assert Call.of(Request(scope), body)[0] == DEFAULT_MODEL


def test_conversations_share_prefixes() -> None:
    messages = [{"role": "user", "content": text} for text in "abc"]
    longer = prefixes("m", messages, None)
    assert prefixes("m", messages[:2], None) == longer[:2]
    assert prefixes("m", [messages[1]], None)[0] != longer[0]
    assert not set(prefixes("n", messages, None)) & set(longer)
    assert prefixes("m", None, "x" * 1200)[:2] == prefixes("m", None, "x" * 1100)[:2]
    assert prefixes("m", None, None) == prefixes("m", [], "") == []


def test_a_prefix_counts_more_than_what_ray_knows_of_models(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (SimpleNamespace(replica_id=name) for name in "ab")
    router: Any = PrefixRouter.__new__(PrefixRouter)
    router.initialize_state()
    monkeypatch.setattr(router, "apply_multiplex_routing", lambda _: {"b"})
    call = Call("POST", "/v1/completions", {}, b"", prompt="Once upon a time")
    request = SimpleNamespace(args=[call], metadata=SimpleNamespace(multiplexed_model_id="story"))
    assert asyncio.run(router.choose_replicas([first, second], request)) == [[second]]
    # Ray learns later that the first replica has the model too.
    router.on_request_routed(request, "a", None)
    assert asyncio.run(router.choose_replicas([first, second], request)) == [[first], [second]]
    # The replica of the prefix is gone.
    assert asyncio.run(router.choose_replicas([second], request)) == [[second]]


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="unknown argument 'model'"):
        build({"model": "x"})
