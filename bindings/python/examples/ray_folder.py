"""Runs a folder of prompts on two engines, and prints the results.

A second run computes nothing: it keeps the existing results.
"""

import json
from pathlib import Path

import pyarrow.parquet as pq
from tabla.ray import run

prompts = Path("stories")
prompts.mkdir(exist_ok=True)
with open(prompts / "animals.jsonl", "w", encoding="utf-8") as file:
    for animal in ["fox", "bear", "mouse", "owl"]:
        file.write(json.dumps({"prompt": f"Once upon a time there was a {animal}"}) + "\n")

summary = run("stories", "stories-told", actors=2, max_tokens=24)
print(f"{summary.rows} rows, {summary.failed} of them failed; {summary.kept} were there already")

for row in pq.read_table("stories-told").to_pylist():
    print(row["error"] or row["prompt"] + row["completion"])
