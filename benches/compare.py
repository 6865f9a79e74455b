#!/usr/bin/env python3
"""Benchmarks Tabla, llama.cpp and ik_llama.cpp on the same files and writes a section of docs/performance.md.

    cargo build --release
    python3 benches/compare.py --llama llama.cpp=PATH/bin --ik ik_llama.cpp=PATH/bin --write docs/performance.md MODEL.gguf ...

PATH/bin contains llama-bench and llama-batched-bench of a peer, and llama-completion (llama.cpp) or llama-cli
(ik_llama.cpp). Peers are optional. Every run is a new process; a round runs all programs on one test after another, and the
order of programs rotates between rounds. A result is the median of the rounds, each the median of its repetitions. `tabla
bench` measures the memory bandwidth before and after every repetition. A failed test is a dash; the reasons are listed after
the tables.

Tests: decode (at several depths), prefill, batch (sequences decoded together), cold (a process from start to first token
with a warm page cache, and its peak memory), commands (roofline of Tabla's tables).
Plots are SVG. Only Python's standard library is required.
"""
import argparse
import datetime
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median

TESTS = ["decode", "prefill", "batch", "cold", "commands"]
# About 16 tokens in most vocabularies.
COLD_PROMPT = "The little fox wished for a red kite and asked the old owl for help."
COLD_CONTEXT = 512
BATCH_PROMPT = 16
# Groups of commands below this share of a test's time are summed up as "other commands".
SHARE_MIN = 0.01
ROOT = Path(__file__).resolve().parent.parent


# ---------------------------------------------------------------- programs


class Failed(Exception):
    """A failed program or test."""


def measured(command, timeout):
    """Runs a process; returns its stdout, its stderr, its wall time in seconds and its peak memory in MiB."""
    # Peers write logs to the working directory.
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=here)
        except OSError as error:
            raise Failed(f"{Path(command[0]).name}: {error.strerror}") from None
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            timer.cancel()
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        text, errors = out.read().decode(errors="replace"), err.read().decode(errors="replace")
    if process.returncode != 0:
        lines = errors.strip().splitlines() or ["no error output"]
        why = next((line for line in lines if "error" in line.lower()), lines[-1])[:160]
        for path in (str(part) for part in command if "/" in str(part)):
            why = why.replace(path, Path(path).name)
        how = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        raise Failed(f"{how}{f' after {timeout} s' if seconds >= timeout else ''}: {why}")
    return text, errors, seconds, usage.ru_maxrss / 1024


class Tabla:
    """The tabla binary."""

    def __init__(self, name, binary, args):
        self.name, self.binary, self.threads, self.repetitions = name, str(Path(binary).resolve()), args.threads, args.repetitions
        # It fails if the device is not available.
        self.device, self.gpus = args.device, None
        self.version = measured([self.binary, "--version"], 60)[0].strip()

    def common(self, model):
        # The default is the built-in model.
        return [*(["-m", str(model)] if model else []), "--device", self.device, "-t", str(self.threads)]

    def bench(self, model, prompt, generate, depth, *more):
        return [self.binary, "bench", *self.common(model), "-p", str(prompt), "-n", str(generate), "-d", str(depth),
                "-r", str(self.repetitions), "--format", "json", *more]

    def batch(self, model, sequences, generate):
        return self.bench(model, 0, generate, BATCH_PROMPT, "--n-parallel", str(sequences))

    def batch_rates(self, text, _):
        return self.samples(text)

    def samples(self, text):
        """Returns tokens per second of every repetition; fails if fewer tokens were computed than reported."""
        result = json.loads(text)[-1]
        reported = (result["n_prompt"] + result["n_gen"]) * result["n_parallel"]
        if "computed_tokens" not in result:
            raise Failed("tabla bench reports no computed_tokens: this build reuses the prefix cache")
        if (computed := min(result["computed_tokens"])) < reported:
            raise Failed(f"computed {computed} tokens, expected at least {reported}")
        return result["samples_ts"]

    def cold(self, model):
        return [self.binary, "run", *self.common(model), "-p", COLD_PROMPT, "-n", "1", "--temp", "0", "-c", str(COLD_CONTEXT), "-q"]

    def context(self, model):
        """Returns the context length of the model."""
        metadata = json.loads(measured([self.binary, "inspect", "--json", str(model)], 600)[0])["metadata"]
        return next((fact["value"] for key, fact in metadata.items() if key.endswith(".context_length")), math.inf)


class Llama:
    """llama.cpp."""

    first_token, flags = "llama-completion", []

    def __init__(self, name, folder, args):
        self.name, self.folder, self.threads, self.repetitions = name, Path(folder).resolve(), args.threads, args.repetitions
        self.version, self.layers, self.gpus = "", [], None
        if args.device == "gpu":
            # A build has one GPU backend; 999 is more than the layers of any model.
            self.layers, self.gpus = ["-ngl", "999"], self.list_gpus()

    def list_gpus(self):
        """Returns a description of each GPU. llama.cpp falls back to the CPU if there is none."""
        text, errors, _, _ = measured([str(self.folder / "llama-bench"), "--list-devices"], 60)
        if not any(":" in line for line in text.splitlines()[1:]):
            return []
        matches = [re.match(r"\s*(?:ggml_\w+: \d+ = |Device \d+: )(.*)", line) for line in errors.splitlines()]
        return [match[1] for match in matches if match] or text.splitlines()[1:]

    def program(self, program, model):
        return [str(self.folder / program), "-m", str(model), "-t", str(self.threads), *self.layers]

    def bench(self, model, prompt, generate, depth):
        return [*self.program("llama-bench", model), "-p", str(prompt), "-n", str(generate), "-d", str(depth),
                "-r", str(self.repetitions), "-o", "json"]

    def batch(self, model, sequences, generate):
        # All sequences have the same context, a multiple of 256.
        context = sequences * -(-(BATCH_PROMPT + generate) // 256) * 256
        # Twice, because it may exit before it writes the last row.
        return [*self.program("llama-batched-bench", model), "-c", str(context), "-npp", str(BATCH_PROMPT),
                "-ntg", str(generate), "-npl", f"{sequences},{sequences}", *self.flags]

    def samples(self, text):
        return json.loads(text)[-1]["samples_ts"]

    def batch_rates(self, text, sequences):
        """Returns column S_TG of the rows with this number of sequences."""
        rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if line.startswith("|")]
        rates = [float(row[7]) for row in rows if len(row) == 10 and row[2] == str(sequences)]
        if not rates:
            raise Failed("no matching row in the output of llama-batched-bench")
        return rates

    def cold(self, model):
        return [*self.program(self.first_token, model), "-p", COLD_PROMPT, "-n", "1", "--temp", "0", "-c", str(COLD_CONTEXT),
                "--no-warmup", *self.flags]


class LlamaCpp(Llama):
    def cold(self, model):
        return [*super().cold(model), "-no-cnv"]


class Ik(Llama):
    """ik_llama.cpp with repacking and huge pages, its fastest configuration."""

    first_token, flags = "llama-cli", ["-rtr", "-thp", "--no-mmap"]

    def bench(self, model, prompt, generate, depth):
        test = ["-p", str(prompt), "-n", str(generate)] if depth == 0 else ["-p", "0", "-n", "0", "-gp", f"{depth},{generate}"]
        return [*self.program("llama-bench", model), *test, "-rtr", "1", "-thp", "1", "-mmp", "0",
                "-r", str(self.repetitions), "-o", "json"]


# ---------------------------------------------------------------- measuring


def tests_of(args, context):
    """Yields (test, name, numbers) for a model with this context length."""
    for depth in args.depths if "decode" in args.tests else []:
        if depth + args.generate <= context:
            yield "decode", f"tg{args.generate}" + (f" @ d{depth}" if depth else ""), (0, args.generate, depth)
    for prompt in args.prompts if "prefill" in args.tests else []:
        if prompt <= context:
            yield "prefill", f"pp{prompt}", (prompt, 0, 0)
    for sequences in args.sequences if "batch" in args.tests else []:
        yield "batch", str(sequences), (sequences,)
    if "cold" in args.tests:
        yield "cold", "first token", ()


def measure(program, model, test, numbers, args):
    """Runs a test once; returns its record."""
    if program.gpus == []:
        raise Failed("no GPU found")
    if test == "cold":
        _, _, seconds, peak = measured(program.cold(model), args.timeout)
        return {"samples": [seconds], "peak_mib": peak}
    if test == "batch":
        text, errors, _, _ = measured(program.batch(model, numbers[0], args.generate), args.timeout)
        # Some builds write their table to standard error.
        return {"samples": program.batch_rates(text if text.strip() else errors, numbers[0])}
    text = measured(program.bench(model, *numbers), args.timeout)[0]
    result = json.loads(text)[-1]
    keys = ["model_size", "token_bytes", "memory_samples", "build_commit", "cpu_info", "device_backend", "tuning", "submit_us_per_token"]
    return {"samples": program.samples(text), **{key: result[key] for key in keys if key in result}}


def compare(programs, args):
    """Runs all rounds; returns the records. An interrupt (SIGINT) ends the run and keeps the records so far."""
    records = []
    try:
        add_records(programs, args, records)
    except KeyboardInterrupt:
        print("compare.py: interrupted", file=sys.stderr, flush=True)
    return records


def add_records(programs, args, records):
    tabla, failures = programs[0], {}
    for at in range(args.rounds):
        for model in args.models:
            # Reads the file into the page cache.
            with open(model, "rb") as file:
                while file.read(1 << 24):
                    pass
            context = tabla.context(model)
            for test, name, numbers in tests_of(args, context):
                first = at % len(programs)
                for program in programs[first:] + programs[:first]:
                    key = (program.name, str(model), name)
                    if key in failures:
                        continue
                    record = {"round": at, "program": program.name, "model": model.stem, "test": test, "name": name,
                              "load": os.getloadavg()[0]}
                    try:
                        record |= measure(program, model, test, numbers, args)
                    except (Failed, ValueError, LookupError) as error:
                        failures[key] = record["failed"] = str(error) or type(error).__name__
                    print(f"round {at + 1}, {model.stem}, {name}, {program.name}: {shown(record)}", file=sys.stderr, flush=True)
                    records.append(record)
            if "commands" in args.tests and at == args.rounds - 1:
                records.append(commands(tabla, model, args))


def commands(tabla, model, args):
    """Measures Tabla's commands in one decode and one prefill."""
    record = {"program": tabla.name, "model": model.stem, "test": "commands", "load": os.getloadavg()[0]}
    try:
        text = measured(tabla.bench(model, args.prompts[0], args.generate, 0, "--commands"), args.timeout)[0]
        keys = ["test", "commands", *LIMITS, "samples_ns", "n_prompt", "n_gen"]
        return record | {"tests": [{key: test[key] for key in keys if key in test} for test in json.loads(text)]}
    except (Failed, ValueError, LookupError) as error:
        return record | {"failed": str(error) or type(error).__name__}


def shown(record):
    if "failed" in record:
        return record["failed"]
    unit = "s" if record["test"] == "cold" else "tok/s"
    return f"{median(record['samples']):.4g} {unit}"


# ------------------------------------------------------------------ report


class Report:
    """Records, with queries for the tables."""

    def __init__(self, raw):
        self.raw, self.records, self.device = raw, raw["records"], raw.get("device", "cpu")
        self.programs, self.tabla, self.peers = raw["programs"], raw["programs"][0], raw["programs"][1:]
        self.models = list(dict.fromkeys(record["model"] for record in self.records))

    def of(self, test, model, name=None, program=None):
        filters = {"test": test, "model": model, "name": name, "program": program}
        return [r for r in self.records if all(v is None or r.get(k) == v for k, v in filters.items()) and "failed" not in r]

    def names(self, test):
        return list(dict.fromkeys(r["name"] for r in self.records if r["test"] == test))

    def value(self, test, model, name, program, key="samples"):
        """Returns the median of the rounds; None without results."""
        values = [r[key] for r in self.of(test, model, name, program) if r.get(key) is not None]
        return median(median(x) if isinstance(x, list) else x for x in values) if values else None

    def probe(self, model, name):
        """Returns bytes per second: the median of the maximum of each round."""
        best = [max(r["memory_samples"]) for r in self.of("decode", model, name, self.tabla) if r.get("memory_samples")]
        return median(best) if best else None

    def ratio(self, test, model, name, better=max):
        """Returns Tabla's result divided by the best peer's."""
        own = self.value(test, model, name, self.tabla)
        peers = [value for peer in self.peers if (value := self.value(test, model, name, peer)) is not None]
        return own / better(peers) if own is not None and peers else None


def number(x, digits=3):
    """Formats a number with this many significant digits."""
    if x is None:
        return "–"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x)))) if x else 0
    return f"{x:.{places}f}"


def table(heads, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [heads, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]]) + "\n"


def rates_table(report, test):
    """Returns a table of tokens per second by model and test; for decode also the bandwidth and its share of the measured
    memory bandwidth, and on a GPU the submission time of the host."""
    decode = test == "decode"
    gpu = decode and report.device == "gpu"
    rows = []
    for model in report.models:
        for name in report.names(test):
            if not any(r["model"] == model and r["name"] == name for r in report.records if r["test"] == test):
                continue
            own = report.value(test, model, name, report.tabla)
            row = [model, name, number(own)]
            if decode:
                bytes_, probe = report.value(test, model, name, report.tabla, "token_bytes"), report.probe(model, name)
                rate = own * bytes_ if own is not None else None
                row += [number(rate and rate / 1e9), number(probe and probe / 1e9),
                        f"{rate / probe * 100:.0f} %" if rate and probe else "–"]
            if gpu:
                row.append(number(report.value(test, model, name, report.tabla, "submit_us_per_token")))
            row += [over(own, report.value(test, model, name, peer)) for peer in report.peers]
            rows.append(row + [number(report.ratio(test, model, name))] * bool(report.peers))
    heads = ["model", "test", report.tabla] + ["weights, GB/s", "probe, GB/s", "share"] * decode + ["submission per token, µs"] * gpu
    return table(heads + report.peers + ["ratio to the best"] * bool(report.peers), rows) if rows else ""


def over(own, peer):
    """Formats a peer's result and the ratio of Tabla's to it."""
    return f"{number(peer)} ({number(own / peer)} ×)" if own and peer else number(peer)


def batch_table(report):
    """Returns a table of tokens per second of all sequences together."""
    rows = []
    names = report.names("batch")
    for model in report.models:
        for program in report.programs:
            values = [report.value("batch", model, name, program) for name in names]
            if any(v is not None for v in values):
                gain = [f"{number(v)} ({number(v / values[0], 2)} ×)" if v and values[0] else number(v) for v in values]
                rows.append([model, program, *gain])
    return table(["model", "program", *names], rows) if rows else ""


def cold_table(report):
    rows = []
    for model in report.models:
        cells = []
        for program in report.programs:
            seconds = report.value("cold", model, "first token", program)
            peak = report.value("cold", model, "first token", program, "peak_mib")
            cells.append(f"{seconds * 1e3:.0f} ms, {peak:.0f} MiB" if seconds is not None else "–")
        if set(cells) != {"–"}:
            sizes = [r["model_size"] / 2**20 for r in report.records if r["model"] == model and r["program"] == report.tabla and "model_size" in r]
            rows.append([model, f"{sizes[0]:.0f} MiB" if sizes else "–", *cells])
    return table(["model", "file", *report.programs], rows) if rows else ""


def roofline_tables(report, plots):
    """Returns a table per model and test, with the plot."""
    text = ""
    for model in report.models:
        for record in report.of("commands", model):
            plot = plots and f"plots/{plot_name(report, f'roofline-{model}')}"
            best = best_of(record["tests"])
            limits = ", ".join(f"{LIMITS[key][0]} {number(limit / 1e9)} {LIMITS[key][1]}" for key, limit in best.items())
            text += f"\n**{model}**" + (f" ([plot]({plot}))" if plot else "") + f", limits of this run: {limits}\n"
            for test in record["tests"]:
                text += "\n" + roofline_table(test)
    return text


LIMITS = {
    "memory_bytes_per_second": ("memory", "GB/s"),
    "peak_int8_per_second": ("int8", "GOP/s"),
    "peak_bf16_per_second": ("bf16", "GFLOP/s"),
    "peak_f32_per_second": ("f32", "GFLOP/s"),
}


def best_of(tests):
    """Returns the measured limits; the arithmetic peak of a GPU is not measured."""
    return {key: max(test[key] for test in tests) for key in LIMITS if all(key in test for test in tests)}


def roofline_table(test):
    tokens = (test["n_prompt"] + test["n_gen"]) * len(test["samples_ns"])
    whole = sum(g["seconds"] for g in test["commands"])
    named = sorted((g for g in test["commands"] if g["seconds"] >= SHARE_MIN * whole), key=lambda g: -g["seconds"])
    rows = []
    for g in named:
        peak = test.get(f"peak_{g['arithmetic']}_per_second")
        bytes_, operations = g["bytes"] / g["seconds"], g["operations"] / g["seconds"]
        what = "" if g["what"] == g["kernel"] else f" {g['what']}"
        rows.append([f"`{g['kernel']}`{what}", number(g["seconds"] / tokens * 1e6), f"{g['seconds'] / whole * 100:.0f} %",
                     number(g["bytes"] / tokens / 1e6), number(bytes_ / 1e9), f"{bytes_ / test['memory_bytes_per_second'] * 100:.0f} %",
                     number(operations / 1e9), f"{operations / peak * 100:.0f} % of {g['arithmetic']}" if peak else "–"])
    rest = whole - sum(g["seconds"] for g in named)
    rows.append(["other commands", number(rest / tokens * 1e6), f"{rest / whole * 100:.0f} %", "", "", "", "", ""])
    heads = [f"{test['test']}, per token", "µs", "time", "MB", "GB/s", "of the probe", "GFLOP/s", "of the peak"]
    return table(heads, rows)


def section(report, plots):
    """Returns the Markdown of the whole section."""
    raw = report.raw
    text = f"## Text models on {raw['name']}\n\n"
    text += f"{raw['machine']}; {raw['threads']} threads; {raw['date']}, commit {raw['commit']}; load average at the start of runs {number(min(raw['loads']), 2)} to {number(max(raw['loads']), 2)}.\n"
    text += f"Measured by `benches/compare.py`: medians of {raw['rounds']} rounds of {raw['repetitions']} repetitions; the programs alternate.\n"
    text += f"{raw['note']}\n" if raw["note"] else ""
    for name in report.programs:
        text += f"{name}: {raw['versions'][name]}.\n"
    parts = [
        ("Decode, tok/s, batch size 1, at depth `d`; × is Tabla divided by the peer", rates_table(report, "decode")),
        ("Prefill, tok/s; × is Tabla divided by the peer", rates_table(report, "prefill")),
        ("Batched decode by number of sequences, total tok/s, and the ratio to the first column", batch_table(report)),
        (f"New process to its first token, prompt of one sentence, context of {COLD_CONTEXT}, warm page cache; peak resident memory, including mapped files", cold_table(report)),
    ]
    for title, part in parts:
        if part:
            text += f"\n{title}:\n\n{part}"
    if plots and any(report.names(test) for test in ("decode", "prefill")):
        text += "\n" + " ".join(f"![{test}](plots/{plot_name(report, test)})" for test in ("decode", "prefill") if report.names(test)) + "\n"
    roofline = roofline_tables(report, plots)
    if roofline:
        text += f"\nCommands: time, bytes of weights and cache read, share of the limits. Commands below {SHARE_MIN * 100:.0f} % of the time are summed up.\n{roofline}"
    failed = dict.fromkeys(f"{r['program']}, {r['model']}, {r.get('name', r['test'])}: {r['failed']}" for r in report.records if "failed" in r)
    if failed:
        text += "\nReasons for dashes:\n\n" + "".join(f"- {why}\n" for why in failed)
    return text


def insert(path, text):
    """Replaces the section of the machine, or inserts it before the others, and updates the table of contents."""
    page = path.read_text() if path.exists() else "# Performance\n\nMeasurements:\n\n"
    head, *sections = page.split("\n## ")
    heading = text.split("\n", 1)[0].removeprefix("## ")
    headings = [s.split("\n", 1)[0] for s in sections]
    if heading not in headings:
        headings.insert(0, heading)
        sections.insert(0, "")
    sections[headings.index(heading)] = text.removeprefix("## ").rstrip() + "\n"
    contents = "".join(f"- [{heading}](#{anchor(heading)})\n" for heading in headings)
    head = re.sub(r"(?<=\nMeasurements:\n\n)(- .*\n)*", lambda _: contents, head.rstrip() + "\n", count=1)
    path.write_text("\n## ".join([head, *sections]))


def anchor(heading):
    """Returns the anchor that GitHub gives to a heading."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


# ------------------------------------------------------------------- plots

COLORS = ["#1f6feb", "#999999", "#d29922", "#8250df", "#2da44e"]


# Height of the title of a plot and of the line with the machine.
HEADING = 44


class Svg:
    """An SVG image with a title, below which the origin of its coordinates is."""

    def __init__(self, width, height, title, machine):
        self.size, self.shapes = (width, height + HEADING), []
        self.title, self.machine = title, machine

    def add(self, tag, text=None, **attributes):
        pairs = "".join(f' {key.replace("_", "-")}="{value:g}"' if isinstance(value, float) else f' {key.replace("_", "-")}="{value}"'
                        for key, value in attributes.items())
        self.shapes.append(f"<{tag}{pairs}>{escape(text)}</{tag}>" if text else f"<{tag}{pairs}/>")

    def text(self, x, y, text, anchor="start", **attributes):
        self.add("text", text, x=round(float(x), 1), y=round(float(y), 1), text_anchor=anchor, **attributes)

    def line(self, x1, y1, x2, y2, stroke="#888", **attributes):
        self.add("line", x1=round(float(x1), 1), y1=round(float(y1), 1), x2=round(float(x2), 1), y2=round(float(y2), 1), stroke=stroke, **attributes)

    def write(self, path):
        width, height = self.size
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            head,
            f"<title>{escape(self.title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            f'<text x="10" y="19" font-size="13" font-weight="bold">{escape(self.title)}</text>',
            f'<text x="10" y="36" fill="#555">{escape(self.machine)}</text>',
            f'<g transform="translate(0 {HEADING})">',
            *self.shapes,
            "</g>",
            "</svg>",
        ]
        path.write_text("\n".join(lines) + "\n")


def escape(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def machine_line(report):
    """Returns machine, threads, date and commit of a report."""
    raw = report.raw
    return f"{raw['machine']}; {raw['threads']} threads; {raw['date']}, commit {raw['commit']}"


def bars(report, test, path):
    """Plots tokens per second as bars, in a group per model and test."""
    groups = []
    for model in report.models:
        for name in report.names(test):
            values = [report.value(test, model, name, program) for program in report.programs]
            if values[0]:
                groups.append((f"{model} {name}", values))
    row, left, width = 14, 230, 420
    step = row * len(report.programs) + 10
    title = f"{test.capitalize()}, tokens per second; longer is better, each group has its own scale"
    svg = Svg(left + width + 70, step * len(groups) + 40, title, machine_line(report))
    for at, program in enumerate(report.programs):
        svg.add("rect", x=left + 130 * at, y=8, width=10, height=10, fill=COLORS[at % len(COLORS)])
        svg.text(left + 130 * at + 14, 17, program)
    for at, (label, values) in enumerate(groups):
        top = 30 + at * step
        svg.text(left - 8, top + step / 2 - 2, label, "end")
        largest = max(v for v in values if v)
        for i, value in enumerate(values):
            if value:
                length = round(value / largest * width, 1)
                svg.add("rect", x=left, y=top + i * row, width=length, height=row - 2, fill=COLORS[i % len(COLORS)])
                svg.text(left + length + 4, top + i * row + row - 4, number(value))
    svg.write(path)


def roofline(report, record, path):
    """Plots operations per second over operations per byte, logarithmic, with lines for the memory and arithmetic limits."""
    tests = record["tests"]
    points = []
    for at, test in enumerate(tests):
        whole = sum(g["seconds"] for g in test["commands"])
        points += [(g["operations"] / g["bytes"], g["operations"] / g["seconds"], g["seconds"] / whole, at, g) for g in test["commands"]
                   if g["seconds"] >= SHARE_MIN * whole and g["bytes"] > 0 and g["operations"] > 0]
    if not points:
        return
    limits = best_of(tests)
    memory = limits.pop("memory_bytes_per_second")
    low = [math.floor(math.log10(min(p[i] for p in points))) for i in (0, 1)]
    # The x axis extends into the compute-bound region and includes all points.
    peak_max = max([*limits.values(), *(p[1] for p in points)])
    high = [math.ceil(math.log10(max(*(p[0] for p in points), 2 * peak_max / memory))), math.ceil(math.log10(peak_max * 1.1))]
    left, top, width, height = 60, 20, 560, 360
    title = f"Roofline of {record['model']}: operations per second over operations per byte"
    svg = Svg(left + width + 20, top + height + 50, title, machine_line(report))
    x = lambda v: left + (math.log10(v) - low[0]) / (high[0] - low[0]) * width
    y = lambda v: top + height - (math.log10(v) - low[1]) / (high[1] - low[1]) * height
    for power in range(low[0], high[0] + 1):
        svg.line(x(10.0**power), top, x(10.0**power), top + height, "#ddd")
        svg.text(x(10.0**power), top + height + 14, f"{10.0**power:g}", "middle")
    for power in range(low[1], high[1] + 1):
        svg.line(left, y(10.0**power), left + width, y(10.0**power), "#ddd")
        svg.text(left - 6, y(10.0**power) + 4, f"{10.0**power / 1e9:g}", "end")
    for key, peak in limits.items():
        name, knee = LIMITS[key][0], peak / memory
        svg.line(x(max(knee, 10.0 ** low[0])), y(peak), left + width, y(peak), "#444")
        svg.text(left + width - 4, y(peak) - 4, f"{name} {number(peak / 1e9)} GOP/s", "end")
    # The memory line ends at the arithmetic peak, and starts at the border of the plot.
    start = max(10.0 ** low[0], 10.0 ** low[1] / memory)
    end = peak_max / memory
    svg.line(x(start), y(start * memory), x(end), y(end * memory), "#444")
    svg.text(x(start) + 24, y(start * memory) + 6, f"memory {number(memory / 1e9)} GB/s")
    labels = []
    for intensity, rate, share, at, group in sorted(points, key=lambda p: -p[2]):
        svg.add("circle", cx=round(x(intensity), 1), cy=round(y(rate), 1), r=round(3 + 14 * math.sqrt(share), 1),
                fill=COLORS[at % len(COLORS)], fill_opacity=".6")
        at = (x(intensity) + 8, y(rate) + 4)
        # Skips labels that would overlap.
        if all(abs(at[0] - other[0]) > 60 or abs(at[1] - other[1]) > 10 for other in labels):
            # At the right border, the label is on the other side of the point.
            is_last = at[0] > left + width - 100
            svg.text(at[0] - 16 * is_last, at[1], group["what"], "end" if is_last else "start", font_size=9)
            labels.append(at)
    for at, test in enumerate(tests):
        svg.add("circle", cx=left + 90 * at + 6, cy=10, r=5, fill=COLORS[at % len(COLORS)], fill_opacity=".6")
        svg.text(left + 90 * at + 16, 14, test["test"])
    svg.text(left + width / 2, top + height + 34, "operations per byte of weights and cache; area: share of time", "middle")
    svg.text(left - 50, 14, "GOP/s")
    svg.write(path)


def plot_name(report, name):
    """Returns the file name of a plot; it has the machine."""
    machine = re.sub("[^a-z0-9]+", "-", report.raw["name"].lower()).strip("-")
    return f"{name}-{machine}.svg"


def plot(report, folder):
    for test in ("decode", "prefill"):
        if report.names(test):
            bars(report, test, folder / plot_name(report, test))
    for model in report.models:
        for record in report.of("commands", model):
            roofline(report, record, folder / plot_name(report, f"roofline-{model}"))


# -------------------------------------------------------------------- main


def machine(args):
    """Describes the CPU and memory (Linux only), and the GPUs if the device is a GPU."""
    if args.device == "gpu":
        gpus = json.loads(measured([str(args.tabla.resolve()), "devices", "--json"], 60)[0])["gpus"]
        return "; ".join([processor(), *(f"{gpu['name']} ({gpu['backend']}, {gpu['driver']})" for gpu in gpus)])
    return processor()


def cpu_fact(key):
    """Returns a fact about the first processor, "" if it is unknown (Linux only)."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(key)), "")


def processor_name():
    return cpu_fact("model name") or f"{os.cpu_count()} processors"


def processor():
    try:
        memory = Path("/proc/meminfo").read_text()
    except OSError:
        return f"{os.cpu_count()} processors"
    kinds = [flag for flag in cpu_fact("flags").split() if flag.startswith(("avx", "amx", "fma", "f16c"))]
    gib = int(memory.split()[1]) / 2**20
    return f"{os.cpu_count()} processors of {cpu_fact('model name')} ({', '.join(kinds)}), {gib:.0f} GiB"


def versions(programs, records):
    """Describes each program: version, device, and non-default flags."""
    result = {}
    for program in programs:
        first = lambda key: next((r[key] for r in records if r["program"] == program.name and key in r), "unknown")
        if isinstance(program, Tabla):
            level = f", level {first('device_backend')}" if program.device == "cpu" else ""
            tuned = ", tuned" if any(r.get("tuning") for r in records if r["program"] == program.name) else ""
            result[program.name] = f"{program.version}, `tabla bench`{level}{tuned}"
        else:
            flags = f" with {' '.join(program.flags)}" if program.flags else ""
            gpus = f" on {'; '.join(program.gpus)}" if program.gpus else ""
            result[program.name] = f"commit {first('build_commit')}, `llama-bench`{flags}{gpus}"
    return result


def numbers(text):
    return [int(part) for part in text.split(",")]


def absolute(path):
    """Returns an absolute path."""
    return Path(path).absolute()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=absolute, metavar="MODEL", help="GGUF files")
    parser.add_argument("--tabla", type=Path, default=ROOT / "target/release/tabla", metavar="FILE", help="tabla binary [target/release/tabla]")
    parser.add_argument("--llama", action="append", default=[], metavar="NAME=FOLDER", help="llama.cpp build; may be repeated")
    parser.add_argument("--ik", action="append", default=[], metavar="NAME=FOLDER", help="ik_llama.cpp build; may be repeated")
    parser.add_argument("--tests", default=",".join(TESTS), help=f"tests to run, from {','.join(TESTS)} [all]")
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu", help="device of all programs; peers must be built for it [%(default)s]")
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count(), help="threads of every program [%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds [%(default)s]")
    parser.add_argument("-r", "--repetitions", type=int, default=3, help="repetitions of a test in a process [%(default)s]")
    parser.add_argument("-n", "--generate", type=int, default=64, help="tokens to decode [%(default)s]")
    parser.add_argument("-p", "--prompts", type=numbers, default=[512], help="prompt lengths; the first is also used for commands [512]")
    parser.add_argument("-d", "--depths", type=numbers, default=[0, 4096, 16384], help="tokens before decode [0,4096,16384]")
    parser.add_argument("--sequences", type=numbers, default=[1, 2, 4, 8, 16], help="numbers of sequences decoded together [1,2,4,8,16]")
    parser.add_argument("--timeout", type=int, default=1800, help="maximum duration of a process in seconds [%(default)s]")
    parser.add_argument("--note", default="", metavar="TEXT", help="note on the models or the peers, for the report")
    parser.add_argument("--machine", metavar="NAME", help="name of the machine in the heading, for example \"Zen 5 (AVX-512)\" [name of the processor]")
    parser.add_argument("--commit", metavar="NAME", help="commit of the tabla binary [HEAD of this repository]")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--from", dest="raw", type=Path, metavar="FILE", help="report the results of a --json file without measuring")
    parser.add_argument("--write", type=Path, metavar="FILE", help="insert the section into FILE and write plots next to it [standard output]")
    args = parser.parse_args()
    args.tests = args.tests.split(",")
    if unknown := set(args.tests) - set(TESTS):
        parser.error(f"unknown tests: {', '.join(sorted(unknown))}")
    if bool(args.models) == bool(args.raw):
        parser.error("expected either models or --from")
    if missing := [str(model) for model in args.models if not model.is_file()]:
        parser.error(f"no such files: {', '.join(missing)}")
    return args


def current_commit():
    """Returns the commit of this repository."""
    result = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def measure_all(args):
    peers = [(kind, *peer.partition("=")[::2]) for kind, given in ((LlamaCpp, args.llama), (Ik, args.ik)) for peer in given]
    programs = [Tabla("Tabla", args.tabla, args), *(kind(name, folder, args) for kind, name, folder in peers)]
    records = compare(programs, args)
    return {
        "note": args.note, "date": datetime.date.today().isoformat(), "commit": args.commit or current_commit(), "name": args.machine or (machine(args) if args.device == "gpu" else processor_name()), "machine": machine(args),
        "device": args.device, "threads": args.threads, "rounds": args.rounds, "repetitions": args.repetitions, "loads": [r["load"] for r in records],
        "programs": [program.name for program in programs], "versions": versions(programs, records), "records": records,
    }


def main():
    args = arguments()
    try:
        raw = json.loads(args.raw.read_text()) if args.raw else measure_all(args)
    except Failed as error:
        sys.exit(f"compare.py: {error}")
    if args.json:
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    report = Report(raw)
    if args.write:
        plot(report, args.write.parent / "plots")
        insert(args.write, section(report, True))
    else:
        print(section(report, False), end="")


if __name__ == "__main__":
    main()
