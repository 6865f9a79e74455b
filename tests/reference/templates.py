"""Writes the output of `transformers` for chat templates: tests/golden/templates/*.json.

    python templates.py TESTDATA LLAMA_CPP
    python templates.py TESTDATA FOLDER OUT

TESTDATA is the folder of real models (TABLA_TESTDATA), LLAMA_CPP the folder `models` of llama.cpp's
source (TABLA_LLAMA_CPP); the fallback templates are in crates/text/src/chat/templates. With FOLDER, its
*.jinja files are rendered instead, to the file OUT.

conversations.json has the conversations. The other files have for each template its path, its BOS
and EOS tokens, and two texts per conversation: without and with the generation prompt. A text is
null if the template raises an error; a second text that starts with "+" extends the first.
Generated with transformers 5.23 and jinja2 3.1.6.
"""

import datetime as real
import json
import pathlib
import sys

import gguf
import transformers.utils.chat_template_utils as utils

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GOLDEN = ROOT / "tests/golden/templates"
NOW = real.datetime(2026, 11, 5, 9, 7, 3)


class Fixed(real.datetime):
    """A fixed clock."""

    @classmethod
    def now(cls, tz=None):
        return NOW


utils.datetime = Fixed

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather's forecast, \"now\" & here <°C>",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name of a city, e.g. Zürich"},
                "days": {"type": "integer", "enum": [1, 2, 3]},
                "exact": {"type": "boolean", "default": False},
                "scale": {"type": "number", "default": 1.5},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "clock",
        "description": "Says the time",
        "parameters": {"type": "object", "properties": {}},
    },
}


def call(name, arguments, id="abcdef123"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def user(content):
    return {"role": "user", "content": content}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


SYSTEM = {"role": "system", "content": "You are terse.\nAnswer in one line. "}
CALLED = [
    user("How warm is it in Zürich?"),
    assistant("", tool_calls=[call("get_weather", {"city": "Zürich", "days": 2})]),
    {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef123", "content": '{"t": 21.5}'},
]


def thought(text):
    """Returns the reasoning of a message in the two fields that templates read."""
    return {"reasoning_content": text, "thinking": text}


REASONED = [
    user("What time is it?"),
    assistant("", **thought("I do not know.\nA tool does."), tool_calls=[call("clock", {}, "bbbbbbbb1")]),
    {"role": "tool", "name": "clock", "tool_call_id": "bbbbbbbb1", "content": "11:59"},
    assistant("", **thought("Again."), tool_calls=[call("clock", {"zone": "UTC"}, "bbbbbbbb2")]),
    {"role": "tool", "name": "clock", "tool_call_id": "bbbbbbbb2", "content": "12:00"},
]
CONVERSATIONS = {
    "one": {"messages": [user("Hello!")]},
    "system": {"messages": [SYSTEM, user("  Hello, wörld 世界 🎉!\n")]},
    "turns": {
        "messages": [
            SYSTEM,
            user("What is 1 < 2 & \"3\" > 2?"),
            assistant("True.\n\n```py\nprint(1 < 2)\n```"),
            user("And {{ 7 * 7 }} {% raw %}?"),
            assistant(" It's a template: '{}' \\ \t."),
            user("Thanks"),
        ]
    },
    "no_system": {"messages": [user("a"), assistant("b"), user("c"), assistant("d"), user("e")]},
    "thought": {
        "messages": [
            user("Think."),
            assistant("<think>\nHm, 1 < 2.\n</think>\n\nDone."),
            user("Again."),
            assistant("Done again.", reasoning_content="Once more."),
            user("Stop."),
        ]
    },
    "no_thinking": {"messages": [SYSTEM, user("Quick.")], "variables": {"enable_thinking": False}},
    "thinking": {"messages": [user("Slow.")], "variables": {"enable_thinking": True}},
    "tools": {"messages": [SYSTEM, user("How warm is it?")], "tools": [WEATHER, CLOCK]},
    "tool_call": {"messages": CALLED, "tools": [WEATHER, CLOCK]},
    "tool_answered": {
        "messages": [SYSTEM, *CALLED, assistant("It is 21.5 °C."), user("And the time?")],
        "tools": [WEATHER, CLOCK],
    },
    "tool_calls": {
        "messages": [
            user("Both!"),
            assistant(
                "Let me see.",
                tool_calls=[
                    call("get_weather", {"city": "O'Hare \"x\" <b>", "exact": True, "scale": None}, "aaaaaaaa1"),
                    call("clock", {}, "aaaaaaaa2"),
                ],
            ),
            {"role": "tool", "name": "get_weather", "tool_call_id": "aaaaaaaa1", "content": "cold"},
            {"role": "tool", "name": "clock", "tool_call_id": "aaaaaaaa2", "content": "12:00"},
        ],
        "tools": [WEATHER, CLOCK],
    },
    "reasoned_calls": {"messages": REASONED, "tools": [CLOCK]},
    "reasoned_answer": {
        "messages": [SYSTEM, *REASONED, assistant("It is noon.", **thought("Noon.")), user("Sure?")],
        "tools": [CLOCK],
    },
    "effort": {"messages": [SYSTEM, user("Slow.")], "variables": {"reasoning_effort": "high"}},
    "documents": {
        "messages": [user("What does it say?")],
        "documents": [
            {"title": "A", "text": "It says <yes>.", "doc_id": 1},
            {"title": "B", "text": "It says 'no'.", "doc_id": 2},
        ],
    },
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "In parts."}]}]},
    "odd_order": {"messages": [user("a"), user("b"), SYSTEM, assistant("c")]},
}


def bos_and_eos(source):
    """Returns the BOS and EOS tokens of a template, detected by its text."""
    for ends in (
        ("<|startoftext|>", "<|return|>"),
        ("<|begin_of_text|>", "<|eot_id|>"),
        ("<|im_start|>", "<|im_end|>"),
        ("<bos>", "<eos>"),
        ("<|endoftext|>", "<|end|>"),
    ):
        if any(mark in source for mark in ends):
            return ends
    return ("<s>", "</s>")


def render(source, bos, eos, chat, prompt):
    try:
        texts, _ = utils.render_jinja_template(
            conversations=[chat["messages"]],
            tools=chat.get("tools"),
            documents=chat.get("documents"),
            chat_template=source,
            add_generation_prompt=prompt,
            bos_token=bos,
            eos_token=eos,
            **chat.get("variables", {}),
        )
        return texts[0]
    except Exception as error:  # A template may raise an error, or fail on unexpected input.
        print(f"    {type(error).__name__}: {error}", file=sys.stderr)
        return None


def texts(source, chats):
    bos, eos = bos_and_eos(source)
    cases = {}
    for name, chat in chats.items():
        print(f"  {name}", file=sys.stderr)
        plain, prompted = (render(source, bos, eos, chat, prompt) for prompt in (False, True))
        cases[name] = [plain, prompted]
        if plain is not None and prompted is not None and prompted.startswith(plain):
            cases[name][1] = "+" + prompted[len(plain) :]
    return {"bos": bos, "eos": eos, "texts": cases}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def sources(testdata):
    """Yields the templates of real models: path relative to TESTDATA, and text."""
    for path in sorted((testdata / "templates").glob("*.jinja")):
        yield f"templates/{path.name}", path.read_text()
    for path in sorted((testdata / "hf-tokenizers").glob("*/tokenizer_config.json")):
        source = json.loads(path.read_text()).get("chat_template")
        if isinstance(source, str):
            yield str(path.relative_to(testdata)), source
    for path in sorted((testdata / "gguf").glob("*.gguf")):
        field = gguf.GGUFReader(path).fields.get("tokenizer.chat_template")
        if field is not None:
            yield f"gguf/{path.name}", field.contents()


# Templates in the folder of llama.cpp that TESTDATA lacks.
LLAMA_CPP = (
    "openai-gpt-oss-120b",
    "mistralai-Ministral-3-14B-Reasoning-2512",
    "Qwen3-Coder",
    "ibm-granite-granite-4.0",
    "NVIDIA-Nemotron-Nano-v2",
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "LFM2-8B-A1B",
    "LFM2.5-8B-A1B",
    "GLM-4.6",
    "GLM-4.7-Flash",
    "deepseek-ai-DeepSeek-V3.1",
)


def main():
    testdata = pathlib.Path(sys.argv[1])
    if len(sys.argv) > 3:
        folder, out = map(pathlib.Path, sys.argv[2:])
        templates = {path.name: path.read_text() for path in sorted(folder.glob("*.jinja"))}
        write(out, {name: texts(source, CONVERSATIONS) for name, source in templates.items()})
        return
    write(GOLDEN / "conversations.json", CONVERSATIONS)
    few = {name: CONVERSATIONS[name] for name in ("one", "system", "turns", "no_system")}
    fallbacks = sorted((ROOT / "crates/text/src/chat/templates").glob("*.jinja"))
    write(
        GOLDEN / "fallbacks.json",
        {
            path.stem: texts(source := path.read_text(), CONVERSATIONS if "tools" in source else few)
            for path in fallbacks
        },
    )
    folder = pathlib.Path(sys.argv[2]) / "templates"
    write(
        GOLDEN / "llama_cpp.json",
        {name: texts((folder / f"{name}.jinja").read_text(), CONVERSATIONS) for name in LLAMA_CPP},
    )
    write(
        GOLDEN / "models.json",
        {path: texts(source, CONVERSATIONS) for path, source in sources(testdata)},
    )


main()
