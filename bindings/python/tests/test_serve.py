"""The same tokens through Python, a C program, `tabla serve` and `tabla run`."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, Iterator

import pytest
import tabla

from conftest import ROOT

PROMPT = "Once upon a time"
TOKENS = 24
SEEDS = range(6)

PROGRAM = os.environ.get("TABLA_PROGRAM") or shutil.which("tabla")
COMPILER = shutil.which("cc")
REASON = "the program tabla is not installed" if PROGRAM is None else "there is no C compiler"

if PROGRAM is None or COMPILER is None:
    print(f"{REASON}: the comparison with tabla serve and C is skipped", file=sys.__stderr__)
    pytest.skip(REASON, allow_module_level=True)

SOURCE = """
#include "tabla.h"
#include <stdio.h>
#include <stdlib.h>

static int32_t print(uint32_t token, const char *text, size_t text_bytes, void *user_data) {
    (void)token, (void)user_data;
    return fwrite(text, 1, text_bytes, stdout) != text_bytes;
}

int main(int count, char **arguments) {
    TablaLoadOptions load = {.struct_size = sizeof load, .device = TABLA_DEVICE_CPU};
    TablaGenerateOptions options;
    if (count != 4 || tabla_generate_options_init(&options, sizeof options) != TABLA_OK)
        return 2;
    options.max_tokens = (uint32_t)atoi(arguments[2]);
    options.seed = strtoull(arguments[3], NULL, 10);
    TablaModel *model = tabla_model_load(NULL, &load);
    TablaStatus status = tabla_generate(model, arguments[1], &options, print, NULL, NULL);
    return tabla_free_model(model) != TABLA_OK || status != TABLA_OK;
}
"""


@pytest.fixture(scope="module")
def c_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiles a program that prints an answer."""
    assert COMPILER is not None
    folder = tmp_path_factory.mktemp("c")
    (folder / "answer.c").write_text(SOURCE, encoding="utf-8")
    library = next(Path(tabla.__file__).parent.glob("_native/*native*.so"))
    program = folder / "answer"
    source, include, rpath = folder / "answer.c", ROOT / "include", f"-Wl,-rpath,{library.parent}"
    command = [COMPILER, str(source), "-I", str(include), str(library), rpath, "-o", str(program)]
    subprocess.run(command, check=True)
    return program


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Starts the server. Returns its URL."""
    command = [str(PROGRAM), "serve", "--device", "cpu", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            for line in server.stderr:
                if line.startswith("listening on "):
                    yield line.removeprefix("listening on ").strip()
                    break
        finally:
            server.terminate()
            server.stderr.read()


def post(url: str, request: Any) -> Any:
    body = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=60) as answer:
        return json.load(answer)


def test_same_seed_gives_the_same_text_in_python_in_c_and_over_http(
    model: tabla.Model, c_program: Path, url: str
) -> None:
    texts = set()
    for seed in SEEDS:
        text = model.generate(PROMPT, max_tokens=TOKENS, seed=seed).text
        printed = subprocess.run([c_program, PROMPT, str(TOKENS), str(seed)], capture_output=True, check=True)
        assert printed.stdout.decode() == text
        request = {"prompt": PROMPT, "max_tokens": TOKENS, "seed": seed}
        assert post(f"{url}/v1/completions", request)["choices"][0]["text"] == text
        texts.add(text)
    assert len(texts) > 1


SCHEMAS: list[dict[str, Any]] = [
    # Without `additionalProperties`: closed.
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 12}, "legs": {"type": "integer"}},
        "required": ["name", "legs"],
    },
    {"type": "array", "items": {"$ref": "#pet"}, "maxItems": 3, "$defs": {"pet": {"$anchor": "pet", "enum": ["a", 1]}}},
    {"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": {"type": "integer"}},
]
"""JSON schemas whose meaning depends on defaults."""


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_schema_has_the_same_meaning_in_every_api(model: tabla.Model, url: str, schema: dict[str, Any]) -> None:
    sampling: dict[str, Any] = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    options = ["--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05"]
    grammar = tabla.Grammar.json_schema(model, schema)
    for seed in SEEDS:
        limits: dict[str, Any] = {"max_tokens": 60, "seed": seed, **sampling}
        text = model.generate(PROMPT, grammar=grammar, **limits).text
        # At most a space, or a line break with an indentation, is between two tokens of the JSON text.
        outside = re.sub(r'"(?:\\.|[^"\\])*"?', "0", text)
        assert not re.search(r"\s{2}", re.sub(r"\n(?: {0,20}|\t{0,10})(?!\s)", "", outside)), text
        strict = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        for constraint in {"response_format": strict}, {"json_schema": schema}:
            request = {"prompt": PROMPT, **limits, **constraint}
            assert post(f"{url}/v1/completions", request)["choices"][0]["text"] == text
        command = [str(PROGRAM), "run", "--device", "cpu", "-p", PROMPT, "-n", "60", "-s", str(seed), "--json"]
        ran = subprocess.run([*command, *options, "-j", json.dumps(schema)], capture_output=True, check=True)
        assert json.loads(ran.stdout)["text"] == text
