"""Extracts facts from texts: each answer is JSON that matches a schema.

python extract.py [model]
"""

from __future__ import annotations

import json
import sys

import tabla

SCHEMA = {
    "type": "object",
    "properties": {
        "animal": {"enum": ["fox", "owl", "other"]},
        "awake": {"type": "boolean"},
    },
    "required": ["animal", "awake"],
    "additionalProperties": False,
}
TEXTS = ["The fox ran over the hill.", "All day the owl slept."]

path = sys.argv[1] if len(sys.argv) > 1 else None
with tabla.Model.load(path, sequences=len(TEXTS)) as model:
    with tabla.Grammar.json_schema(model, SCHEMA) as grammar:
        prompts = [f"{text} As JSON: " for text in TEXTS]
        answers = model.generate_many(prompts, grammar=grammar, max_tokens=64, temperature=0)
for text, answer in zip(TEXTS, answers):
    facts = json.loads(answer.text)
    print(f"{text}  {facts['animal']}, {'awake' if facts['awake'] else 'asleep'}")
