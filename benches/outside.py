#!/usr/bin/env python3
"""Checks the prompt speed of `tabla bench` against the wall time of whole processes.

    cargo build --release
    python3 benches/outside.py MODEL.gguf ...

`tabla logits` runs on 1 and on 513 pseudo-random tokens, each in its own process. Loading and the last token cancel out,
so that the difference is the time of 512 tokens. It is compared with pp512 of `tabla bench`. Rounds alternate between the
three runs; results are medians. The exit code is 1 if they differ by more than 25 %. The default model is the built-in
one; it is so small that starting a process may take longer than its prompt.
"""
import argparse
import json
import os
import random
import sys
import tempfile
from pathlib import Path
from statistics import median

from compare import Failed, ROOT, Tabla, absolute, measured, number

TOKENS = 512
TOLERANCE = 0.25


def seconds(tabla, model, ids, timeout):
    """Returns the wall time in seconds of a process that computes the logits after these tokens."""
    with tempfile.TemporaryDirectory() as folder:
        command = [tabla.binary, "logits", *tabla.common(model), "-c", str(TOKENS + 1), "--tokens", ",".join(map(str, ids)),
                   "-o", str(Path(folder) / "logits.npy")]
        return measured(command, timeout)[2]


def check(tabla, model, args):
    """Measures a model; returns tokens per second from wall time and from `tabla bench`."""
    facts = json.loads(measured([tabla.binary, "inspect", "--json", *(["-m", str(model)] if model else [])], args.timeout)[0])
    if model:
        with open(model, "rb") as file:
            while file.read(1 << 24):
                pass
    generator = random.Random(1)
    outside, bench = [], []
    for _ in range(args.rounds):
        ids = [generator.randrange(facts["tokenizer"]["tokens"]) for _ in range(TOKENS + 1)]
        short, long = (seconds(tabla, model, part, args.timeout) for part in (ids[:1], ids))
        if long <= short:
            raise Failed(f"{TOKENS + 1} tokens took {long:.3f} s, 1 token took {short:.3f} s: the model is too small to measure on this machine")
        outside.append(TOKENS / (long - short))
        bench += tabla.samples(measured(tabla.bench(model, TOKENS, 0, 0), args.timeout)[0])
    return median(outside), median(bench)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=absolute, metavar="MODEL", help="GGUF files [the built-in model]")
    parser.add_argument("--tabla", type=Path, default=ROOT / "target/release/tabla", metavar="FILE", help="tabla binary [target/release/tabla]")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="device [%(default)s]")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count(), help="number of threads [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds [%(default)s]")
    parser.add_argument("-r", "--repetitions", type=int, default=1, help="repetitions of `tabla bench` per round [%(default)s]")
    parser.add_argument("--timeout", type=int, default=1800, help="maximum duration of a process in seconds [%(default)s]")
    return parser.parse_args()


def main():
    args = arguments()
    tabla = Tabla("Tabla", args.tabla, args)
    failed = False
    for model in args.models or [None]:
        name = model.stem if model else "built-in"
        try:
            outside, bench = check(tabla, model, args)
        except (Failed, LookupError, ValueError, OSError) as error:
            print(f"{name}: {error}")
            failed = True
            continue
        ratio = bench / outside
        within = abs(ratio - 1) <= TOLERANCE
        failed |= not within
        verdict = "within" if within else "NOT within"
        print(f"{name}: {TOKENS} tokens by wall time {number(outside)} tok/s, tabla bench pp{TOKENS} {number(bench)} tok/s, "
              f"ratio {number(ratio)}: {verdict} {TOLERANCE * 100:.0f} %")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
