#!/usr/bin/env python3
"""Measures the start: from the start of a process to the first token after a prompt of 16 tokens.

    cargo build --release
    python3 benches/start.py [--runs 9] [--llama LLAMA_SIMPLE] [--cold] MODEL.gguf ...

For each model: tabla with the GGUF file, with the model compiled to a temporary folder, and llama-simple of
llama.cpp with the GGUF file. The runs are interleaved; the table has medians. A run ends when the
first byte of the generated text arrives. With --cold, the page cache is dropped before each run, which needs root.
Afterwards, four processes that have each computed a token with the compiled model wait while their proportional set size
(PSS) is read, next to that of one.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLA = ROOT / "target/release/tabla"
TEXT = " ".join(["river"] * 64)


def prompt(model):
    """Returns a text of 16 tokens."""
    words = TEXT.split()
    for count in range(1, len(words)):
        text = " ".join(words[:count])
        out = subprocess.run([TABLA, "tokenize", "-m", model, "--json", text], capture_output=True, text=True, check=True)
        if len(json.loads(out.stdout)["ids"]) >= 16:
            return text
    sys.exit(f"{model}: no text of 16 tokens")


def first_token(command):
    """Returns the seconds until the first byte of the output."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    process.stdout.read(1)
    took = time.perf_counter() - start
    process.stdout.read()
    if process.wait() != 0:
        sys.exit(f"{command}: failed")
    return took


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


def read_once(path):
    """Returns the seconds to read the file once from the disk."""
    drop_caches()
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(1 << 20)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def pss(process):
    for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    sys.exit("no PSS")


def shared(model, count):
    """Returns the total PSS in MB of processes that have computed a token and wait for more input."""
    command = [TABLA, "chat", "-m", model, "--device", "cpu", "-n", "1", "--chat-template", "chatml"]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) for _ in range(count)]
    for process in started:
        process.stdin.write(b"river\n")
        process.stdin.flush()
        process.stdout.read(1)
    time.sleep(1)
    total = sum(pss(process) for process in started)
    for process in started:
        process.kill()
        process.wait()
    return total


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--llama")
    parser.add_argument("--cold", action="store_true")
    args = parser.parse_args()
    names = ["GGUF", "compiled"] + (["llama.cpp"] if args.llama else [])
    print("| model | " + " | ".join(f"{name}, ms" for name in names) + " | size | PSS of 1, MB | PSS of 4, MB |")
    print("|---" * (len(names) + 4) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for model in args.models:
            compiled = str(Path(folder) / "model.tabla")
            subprocess.run([TABLA, "compile", model, "-o", compiled, "--target", "cpu", "--force"], check=True, stdout=subprocess.DEVNULL)
            text = prompt(model)
            tabla = ["run", "--device", "cpu", "-p", text, "-n", "1", "--ignore-eos", "-q", "-m"]
            commands = [[TABLA, *tabla, model], [TABLA, *tabla, compiled]]
            if args.llama:
                commands.append([args.llama, "-m", model, "-n", "1", text])
            times = [[] for _ in commands]
            for _ in range(args.runs):
                for command, all_times in zip(commands, times):
                    if args.cold:
                        drop_caches()
                    all_times.append(first_token(command))
            medians = " | ".join(f"{1000 * statistics.median(t):.0f}" for t in times)
            ratio = os.path.getsize(compiled) / os.path.getsize(model)
            one, four = shared(compiled, 1), shared(compiled, 4)
            print(f"| {Path(model).stem} | {medians} | {ratio:.3f} x | {one:.0f} | {four:.0f} ({four / one:.2f} x) |", flush=True)
            if args.cold:
                print(f"\nreading {Path(model).name} once: {1000 * read_once(model):.0f} ms\n", flush=True)


if __name__ == "__main__":
    main()
