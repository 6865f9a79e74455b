"""Names that differ between Python, which uses those of Hugging Face, vLLM and llama.cpp, and the C ABI."""

from __future__ import annotations

import re

C_NAMES = {
    "repetition_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last",
    "dry_penalty_last_n": "dry_last",
    "dry_sequence_breakers": "dry_breakers",
    "stop_token_ids": "stop_tokens",
    "ignore_eos": "ignore_stops",
    "logprobs": "log_probs",
    "n_keep": "keep",
    "draft_model": "draft",
    "gpu_speculation": "multi_row_steps",
    "prompt_name": "prompt",
    "chat_template_kwargs": "variables",
}
"""Fields of C structs by their Python names. Other fields have the same name in both."""

PYTHON_NAMES = {c: python for python, c in C_NAMES.items()}
"""The reverse of `C_NAMES`."""

_FUNCTIONS = {"tabla_session_end": "Session.end", "tabla_batch_add": "Batch.add"}

# A field without an underscore can also be a word of the message.
_IN_MESSAGES = {c: python for c, python in {**PYTHON_NAMES, **_FUNCTIONS}.items() if "_" in c}


def c_name(name: str) -> str:
    """Returns the name of a field in C."""
    return C_NAMES.get(name, name)


def with_python_names(message: str) -> str:
    """Replaces names of C fields and functions in an error message."""
    return re.sub(r"\w+", lambda word: _IN_MESSAGES.get(word[0], word[0]), message)
