"""Chat: each line of standard input is a message, and Ctrl-C ends an answer.

    python chat.py [model [template]]

The default is the built-in story model, which has no chat template.
"""

from __future__ import annotations

import sys

import tabla

path = sys.argv[1] if len(sys.argv) > 1 else None
template = sys.argv[2] if len(sys.argv) > 2 else None if path else "chatml"

messages: list[dict[str, str]] = []
with tabla.Model.load(path) as model:
    for line in sys.stdin:
        messages.append({"role": "user", "content": line.strip()})
        chunks = model.chat(messages, chat_template=template, max_tokens=32, stream=True)
        answer = ""
        try:
            for chunk in chunks:
                text = chunk["choices"][0]["delta"].get("content", "")
                print(text, end="", flush=True)
                answer += text
        except KeyboardInterrupt:
            chunks.close()
        print()
        messages.append({"role": "assistant", "content": answer})
