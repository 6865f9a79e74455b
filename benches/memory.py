#!/usr/bin/env python3
"""Compares the memory that `tabla inspect` estimates with the measured peak, and measures the start.

    cargo build --release
    python3 benches/memory.py [--context 256] [--weights auto,mapped] [--cold] MODEL.gguf ...

Each run is a process that fills the whole context: seven eighths are at most the prompt, the rest is generated. The peak is
the largest resident set of the process, which includes the program (about 15 MB) and the rows of embeddings that were read;
the estimate has neither. With --cold, the page cache is dropped before a run, which needs root, and each
model runs cold and then warm. The results are a table in Markdown.
"""
import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLA = ROOT / "target/release/tabla"
TEXT = (ROOT / "docs/performance.md").read_text()


def estimate(model, options):
    inspected = subprocess.run([TABLA, "inspect", model, "--json", *options], capture_output=True, text=True, check=True)
    memory = json.loads(inspected.stdout)["memory"]
    return memory["device_bytes"] + memory["tokenizer_bytes"]


def prompt(model, tokens):
    """Returns a text of at most this many tokens."""
    text = TEXT[: 4 * tokens]
    while True:
        tokenize = [TABLA, "tokenize", "-m", model, "--json", text]
        count = len(json.loads(subprocess.run(tokenize, capture_output=True, text=True, check=True).stdout)["ids"])
        if count <= tokens:
            return text
        text = text[: min(len(text) - 1, len(text) * tokens // count)]


def run(model, text, options):
    """Returns the peak memory in bytes and the report of the program."""
    command = [TABLA, "run", "-m", model, "-p", text, "-n", "-1", "--ignore-eos", "-s", "1", *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    report = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit(f"{model}: {report}")
    return 1024 * usage.ru_maxrss, report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    print("| model | weights | page cache | estimate, MB | peak, MB | estimate / peak | load, s | prompt, tok/s | decode, tok/s |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in args.models:
        text = prompt(model, args.context * 7 // 8 - 8)
        for weights in args.weights.split(","):
            options = ["--device", "cpu", "-c", str(args.context), "--weights", weights]
            for cache in ["cold", "warm"] if args.cold else ["warm"]:
                if cache == "cold":
                    os.sync()
                    Path("/proc/sys/vm/drop_caches").write_text("3")
                expected = estimate(model, options)
                peak, report = run(model, text, options)
                load = float(re.search(r"^load +([\d.]+) ms", report, re.M)[1]) / 1000
                rates = re.findall(r"([\d.]+) tok/s", report)
                name = Path(model).stem
                figures = [f"{expected / 1e6:.0f}", f"{peak / 1e6:.0f}", f"{expected / peak:.3f}", f"{load:.2f}", *rates]
                print("|", " | ".join([name, weights, cache, *figures]), "|", flush=True)


if __name__ == "__main__":
    main()
