"""A Ray Serve application with the endpoints of `tabla serve`: replicas on many machines.

Every replica runs the program `tabla serve` with all models, which it loads on demand. Requests go to replicas
that have loaded their model and a prefix of the prompt in their cache. docs/ray.md shows how to start it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Dict, List, Mapping, Optional, Tuple, TypeVar, Union, cast

try:
    import aiohttp
    from ray import serve
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
except ImportError as missing:
    message = f"tabla.ray.serve needs Ray Serve: pip install 'tabla-runtime[ray]' ({missing})"
    raise ImportError(message, name=missing.name) from missing

untyped: Any = serve
"""For functions of Ray Serve without precise types."""

START_SECONDS = 60
"""Maximum time in which the program opens its port."""

DEFAULT_MODEL = "default"
"""Multiplexed model id of requests that name no model."""

HOP_HEADERS = frozenset(
    ("connection", "content-length", "date", "host", "keep-alive", "server", "transfer-encoding")
)
"""Headers of one connection, which a proxy does not forward."""

Method = TypeVar("Method")

Part = Union[Tuple[int, Dict[str, str]], bytes]
"""Status and headers of an answer, or a part of its body."""


@dataclass
class Call:
    """A request that the router sends to a replica."""

    method: str
    path: str
    headers: Dict[str, str]
    body: bytes = field(repr=False)
    messages: Optional[List[Any]] = None
    """Messages of a chat, for a router that compares prefixes."""
    prompt: Optional[str] = None
    """Prompt of a completion, for a router that compares prefixes."""

    @staticmethod
    def of(request: Request, body: bytes) -> Tuple[str, Call]:
        """Returns the name of the model and the call."""
        query = request.url.query
        path = f"{request.url.path}?{query}" if query else request.url.path
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP_HEADERS}
        call = Call(request.method, path, headers, body)
        try:
            fields = json.loads(body)
        except ValueError:
            fields = None
        if not isinstance(fields, dict):
            # Forms of audio and requests without a body; the server reports invalid JSON.
            return DEFAULT_MODEL, call
        messages, prompt, model = fields.get("messages"), fields.get("prompt"), fields.get("model")
        call.messages = messages if isinstance(messages, list) else None
        call.prompt = prompt if isinstance(prompt, str) else None
        return model if isinstance(model, str) and model else DEFAULT_MODEL, call


class Program:
    """A running `tabla serve` on a free port of this machine."""

    def __init__(self, arguments: List[str]) -> None:
        program = os.environ.get("TABLA_PROGRAM") or shutil.which("tabla")
        if program is None:
            raise FileNotFoundError(
                "the program tabla was not found: install it on every machine, or set TABLA_PROGRAM"
            )
        command = [program, "serve", "--port", "0", *arguments]
        self._process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._lines: List[str] = []
        self._listening = threading.Event()
        self.address = ""
        threading.Thread(target=self._read, daemon=True).start()
        if not self._listening.wait(START_SECONDS) or not self.address:
            self.stop()
            raise RuntimeError(f"tabla serve did not start: {' '.join(self._lines)}")

    def _read(self) -> None:
        """Reads the log, so that the program never waits for it."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines = [*self._lines[-20:], line.rstrip()]
            if line.startswith("listening on "):
                self.address = line.removeprefix("listening on ").strip()
                self._listening.set()
        self._listening.set()

    def check(self) -> None:
        """Raises an exception if the program has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"tabla serve has ended: {' '.join(self._lines)}")

    def stop(self) -> None:
        """Ends the program."""
        self._process.terminate()


def multiplexed(method: Method) -> Method:
    """Decorator of the method that loads a model."""
    return cast(Method, untyped.multiplexed(max_num_models_per_replica=64)(method))


class Engine:
    """A replica: a program with all models."""

    def __init__(self, arguments: List[str]) -> None:
        self._program = Program(arguments)
        self._client: Optional[aiohttp.ClientSession] = None

    def __del__(self) -> None:
        self._program.stop()

    def check_health(self) -> None:
        """Ray replaces the replica if this raises an exception."""
        self._program.check()

    @multiplexed
    async def _register(self, name: str) -> str:
        """Registers that this replica has a model, so that Ray sends it the requests of this model. The program
        loads and unloads models."""
        return name

    async def answer(self, call: Call) -> AsyncIterator[Part]:
        """Forwards a call to the program. Yields status and headers, then the parts of the body."""
        await self._register(serve.get_multiplexed_model_id() or DEFAULT_MODEL)
        if self._client is None:
            timeout = aiohttp.ClientTimeout(total=None)
            self._client = aiohttp.ClientSession(self._program.address, timeout=timeout, auto_decompress=False)
        # If the client of the application disconnects, Ray cancels this, which closes the connection.
        async with self._client.request(call.method, call.path, headers=call.headers, data=call.body) as answer:
            headers = {k: v for k, v in answer.headers.items() if k.lower() not in HOP_HEADERS}
            yield answer.status, headers
            async for part in answer.content.iter_any():
                yield part


class Router:
    """Receives HTTP requests and selects a replica by the name of the model."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    async def __call__(self, request: Request) -> Response:
        name, call = Call.of(request, await request.body())
        handle = self._engine.options(stream=True, multiplexed_model_id=name)
        parts = handle.answer.remote(call)
        status, headers = await parts.__anext__()
        return StreamingResponse(parts, status_code=status, headers=headers)


def build(arguments: Mapping[str, str]) -> Any:
    """Returns the application, also for `serve run tabla.ray.serve:build NAME=VALUE…`.

    Arguments, all optional:

    - `models`: models, separated by commas: paths that exist on all machines, or `name=path`. Default: the built-in
      story model.
    - `hub`: models of the Hugging Face Hub, `org/repo:quant`, separated by commas; each machine downloads them once.
    - `options`: further options of `tabla serve`, separated by spaces, such as `-c 8192 --memory-budget 16`.
    - `num_cpus` (default 2), `num_gpus` (default 0): resources of a replica; `num_cpus` is its number of threads.
    - `min_replicas` (default 1), `max_replicas` (default 4): range of the autoscaling.
    - `parallel` (default 4): number of sequences that a replica decodes at once, and of requests per replica above
      which replicas are added.
    """
    known = ("models", "hub", "options", "num_cpus", "num_gpus", "min_replicas", "max_replicas", "parallel")
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        raise ValueError(f"unknown argument {unknown[0]!r}, expected one of {', '.join(known)}")
    cpus, parallel = int(arguments.get("num_cpus", 2)), int(arguments.get("parallel", 4))
    command = ["--threads", str(cpus), "--parallel", str(parallel)]
    for option, name in (("-m", "models"), ("-hf", "hub")):
        for model in filter(None, arguments.get(name, "").split(",")):
            command += [option, model]
    command += arguments.get("options", "").split()
    engine = untyped.deployment(Engine).options(
        ray_actor_options={"num_cpus": cpus, "num_gpus": float(arguments.get("num_gpus", 0))},
        autoscaling_config={
            "min_replicas": int(arguments.get("min_replicas", 1)),
            "max_replicas": int(arguments.get("max_replicas", 4)),
            "target_ongoing_requests": parallel,
        },
        # The program has a queue of its own, which answers with status 429.
        max_ongoing_requests=parallel * 16,
        **prefix_routing(),
    )
    return untyped.deployment(Router).options(max_ongoing_requests=1024).bind(engine.bind(command))


def prefix_routing() -> Dict[str, Any]:
    """Returns the option of a deployment that routes by prefixes of prompts, where Ray has custom routers."""
    try:
        from ray.serve.config import RequestRouterConfig

        from ._prefix import PrefixRouter
    except ImportError:
        return {}
    config: Any = RequestRouterConfig
    return {"request_router_config": config(request_router_class=PrefixRouter)}


app = build({})
"""The application with the built-in story model."""
