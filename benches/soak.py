"""Soak of the server and of the C library: random work for a long time, while memory, threads and descriptors stay flat.

    python3 benches/soak.py server [--minutes 60] [--program target/release/tabla] [--speech MODEL.bin] [--out soak.csv]
    python3 benches/soak.py library [--minutes 60] [--speech MODEL.bin] [--out soak.csv]
    python3 benches/soak.py plot soak.csv [...] --out soak.svg

`server` starts `tabla serve` with a story model, a second model and a speech model, which are unloaded when idle, and
sends completions, streams that clients leave, grammars, embeddings, transcriptions, stored responses and invalid
requests. `library` does the same in this process through the Python package, which calls the C library, with sessions,
forks, saved files, hooks, adapters, and models that are loaded and freed; it needs cffi and numpy, the package on
PYTHONPATH and the library in TABLA_LIBRARY. Both write a row every 10 seconds, and at the end the growth per minute of
each number: the slope of a line through the second half, with its standard error. The work is the same for a seed.
"""

import argparse
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
import wave
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = "time year people way day man thing woman life child world school state family student group".split()
COLUMNS = ["minute", "resident_kib", "threads", "descriptors", "operations"]
INTERVAL = 10


def text(rng, most):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, most)))


def recording(rng):
    """A second or more of noise as a WAV file."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(rng.randbytes(32000 * rng.randrange(1, 4)))
    return out.getvalue()


class Sampler:
    """Writes what a process uses every `INTERVAL` seconds."""

    def __init__(self, pid, path, minutes):
        self.pid, self.path = pid, path
        self.begun = time.monotonic()
        self.end = self.begun + 60 * minutes
        self.operations = 0
        self.failures = []
        self.lock = threading.Lock()

    def running(self):
        return time.monotonic() < self.end

    def count(self):
        with self.lock:
            self.operations += 1

    def sample(self):
        status = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in status)
        descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        minute = (time.monotonic() - self.begun) / 60
        resident, threads = (int(fields[name].split()[0]) for name in ("VmRSS", "Threads"))
        return [round(minute, 3), resident, threads, descriptors, self.operations]

    def run(self):
        rows = []
        with open(self.path, "w", newline="") as file:
            out = csv.writer(file)
            out.writerow(COLUMNS)
            while self.running():
                time.sleep(INTERVAL)
                rows.append(self.sample())
                out.writerow(rows[-1])
                file.flush()
        report(rows)

    def finish(self):
        for failure in self.failures[:20]:
            print(failure, file=sys.stderr)
        if self.failures:
            sys.exit(f"{len(self.failures)} operations failed")


def slope(points):
    """Slope of the line through points, and its standard error."""
    count = len(points)
    mean_x = sum(x for x, _ in points) / count
    mean_y = sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    rest = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, (rest / (count - 2) / spread) ** 0.5


def report(rows):
    print(f"{rows[-1][0]:.1f} minutes, {rows[-1][4]} operations")
    half = rows[len(rows) // 2 :]
    if len(half) < 3:
        return
    for at, name in enumerate(COLUMNS[1:4], 1):
        growth, error = slope([(row[0], row[at]) for row in half])
        values = [row[at] for row in half]
        print(f"{name}: {min(values)} to {max(values)}, {growth:+.2f} ± {error:.2f} per minute in the second half")


def server(options):
    port = options.port
    with tempfile.TemporaryDirectory() as folder:
        command = [options.program, "serve", "--port", str(port), "--device", "cpu", "-c", "512", "--parallel", "4"]
        command += ["--idle-timeout", "5", "--embeddings", "--pooling", "mean", "--log-format", "none", "-m", f"story={ROOT / 'models/story.gguf'}"]
        command += ["-m", f"second={ROOT / 'tests/golden/arch/gemma3/model.gguf'}"]
        if options.speech:
            command += ["-m", f"speech={options.speech}"]
        log = open(Path(folder) / "log", "w")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        sampler = Sampler(process.pid, options.out, options.minutes)
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").read()
                break
            except OSError:
                if process.poll() is not None:
                    sys.exit(f"the server ended: {process.returncode}")
                time.sleep(0.1)
        clients = [threading.Thread(target=client, args=(options, seed, sampler)) for seed in range(options.clients)]
        for thread in clients:
            thread.start()
        sampler.run()
        for thread in clients:
            thread.join()
        process.send_signal(signal.SIGTERM)
        if code := process.wait():
            sampler.failures.append(f"exit code {code}")
        sampler.finish()


def client(options, seed, sampler):
    rng = random.Random(options.seed * 1000 + seed)
    work = [complete, leave, schema, embed, respond, invalid, other] + ([transcribe] if options.speech else [])
    while sampler.running():
        operation = rng.choice(work)
        status = operation(options.port, rng)
        if status not in ((200, 400, 404, 413) if operation is invalid else (200, 503)):
            sampler.failures.append(f"{operation.__name__}: status {status}")
        sampler.count()
        time.sleep(rng.random() * options.pause)


def post(port, path, body, content="application/json"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": content})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read()
            return answer.status
    except urllib.error.HTTPError as error:
        error.read()
        return error.code
    except OSError as error:
        return str(error)


def complete(port, rng):
    body = {"model": "story", "prompt": text(rng, 60), "max_tokens": rng.randrange(1, 60), "seed": rng.randrange(100)}
    return post(port, "/v1/completions", body)


def other(port, rng):
    return post(port, "/v1/completions", {"model": "second", "prompt": [5, 6, 7], "max_tokens": 8})


def leave(port, rng):
    """Reads a part of a stream and closes the connection."""
    body = {"model": "story", "prompt": text(rng, 60), "max_tokens": 200, "stream": True}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.read(rng.randrange(1, 4000))
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return str(error)


def schema(port, rng):
    names = rng.sample(WORDS, 3)
    schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": 8} for name in names}, "required": names}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = {"model": "story", "messages": [{"role": "user", "content": text(rng, 20)}], "max_tokens": 40, "response_format": form}
    return post(port, "/v1/chat/completions", body)


def embed(port, rng):
    return post(port, "/v1/embeddings", {"model": "story", "input": [text(rng, 30) for _ in range(rng.randrange(1, 8))]})


def respond(port, rng):
    return post(port, "/v1/responses", {"model": "story", "input": text(rng, 150), "max_output_tokens": 8})


def invalid(port, rng):
    body = rng.choice([b"{", b"[" * 1000, b'{"prompt": 5, "max_tokens": -1}', b"x" * 300000, b'{"model": "none"}'])
    return post(port, rng.choice(["/v1/completions", "/v1/chat/completions", "/none"]), body)


def transcribe(port, rng):
    edge = "edge"
    head = f'--{edge}\r\nContent-Disposition: form-data; name="model"\r\n\r\nspeech\r\n--{edge}\r\n'
    head += 'Content-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
    body = head.encode() + recording(rng) + f"\r\n--{edge}--\r\n".encode()
    return post(port, "/v1/audio/transcriptions", body, f"multipart/form-data; boundary={edge}")


def library(options):
    import tabla

    story = tabla.Model.load(device="cpu", max_context=512, sequences=4, embeddings=True)
    adapter = story.load_adapter(ROOT / "tests/golden/lora/story")
    sampler = Sampler(os.getpid(), options.out, options.minutes)
    with tempfile.TemporaryDirectory() as folder:
        threads = [
            threading.Thread(target=worker, args=(tabla, story, adapter, Path(folder) / str(seed), options, seed, sampler))
            for seed in range(options.clients)
        ]
        for thread in threads:
            thread.start()
        sampler.run()
        for thread in threads:
            thread.join()
    sampler.finish()


def worker(tabla, story, adapter, path, options, seed, sampler):
    rng = random.Random(options.seed * 1000 + seed)

    def generate():
        with story.session() as session:
            session.prefill(text(rng, 60))
            with session.fork() as fork:
                fork.generate(max_tokens=rng.randrange(1, 40), seed=1)
            session.save(path)
        with tabla.Session.load(story, path) as session:
            session.generate(max_tokens=4)

    def cancel():
        for at, _ in enumerate(story.stream(text(rng, 60), max_tokens=200)):
            if at == rng.randrange(1, 20):
                break

    def grammar():
        story.generate(text(rng, 10), max_tokens=30, grammar=tabla.Grammar.regex(story, f"[a-z ]{{5,{rng.randrange(6, 40)}}}"))

    def embed():
        story.embed([text(rng, 30) for _ in range(rng.randrange(1, 8))], pooling="mean")

    def hooks():
        with story.hooks(rng.choice(["blk.0", "blk.1"])) as hooks, story.session() as session:
            session.set_hooks(hooks)
            session.capture_prompt(text(rng, 20))

    def adapted():
        with story.hooks(adapters=[adapter]) as hooks, story.session() as session:
            session.set_hooks(hooks)
            session.set_adapter_scales([rng.random()])
            session.generate(text(rng, 20), max_tokens=8)

    def load():
        name = rng.choice(["gemma3", "llama", "qwen3moe", "bert"])
        with tabla.Model.load(ROOT / f"tests/golden/arch/{name}/model.gguf", device="cpu", max_context=64) as model:
            if name != "bert":
                with model.session() as session:
                    session.prefill([5, 6, 7])
                    session.generate(max_tokens=8)

    def failing():
        for call in (lambda: tabla.Model.load(__file__), lambda: story.generate("a", grammar="root ::= nowhere")):
            try:
                call()
            except (tabla.TablaError, ValueError, TypeError):
                pass

    def transcribe():
        with tabla.Model.load(options.speech, device="cpu") as model:
            model.transcribe(recording(rng))

    work = [generate, cancel, grammar, embed, hooks, adapted, load, failing] + ([transcribe] if options.speech else [])
    while sampler.running():
        operation = rng.choice(work)
        try:
            operation()
        except Exception as error:
            sampler.failures.append(f"{operation.__name__}: {error}")
        sampler.count()
        time.sleep(rng.random() * options.pause)


def plot(options):
    """Draws the columns of the files as lines, each from 0 to its largest value."""
    width, height, left = 640, 90, 150
    parts, at = [], 0
    for path in options.files:
        with open(path) as file:
            rows = list(csv.DictReader(file))
        for name in COLUMNS[1:4]:
            values = [float(row[name]) for row in rows]
            minutes = [float(row["minute"]) for row in rows]
            top = max(values)
            points = " ".join(
                f"{left + x / minutes[-1] * (width - left):.1f},{at + height - 10 - y / top * (height - 25):.1f}"
                for x, y in zip(minutes, values)
            )
            label = f"{Path(path).stem}: {name.replace('_', ' ')}"
            parts.append(f'<text x="4" y="{at + 30}">{label}</text><text x="4" y="{at + 48}">at most {top:,.0f}</text>')
            parts.append(f'<polyline points="{points}" fill="none" stroke="#2563eb" stroke-width="1.5"/>')
            at += height
    style = "text{font:12px sans-serif;fill:#374151}"
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {at}"><style>{style}</style>'
    svg += '<rect width="100%" height="100%" fill="#fff"/>' + "".join(parts) + "</svg>\n"
    Path(options.out).write_text(svg)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["server", "library", "plot"])
    parser.add_argument("files", nargs="*", help="files to plot")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.2, help="most seconds between two operations of a client")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--port", type=int, default=8191)
    parser.add_argument("--program", default="target/release/tabla")
    parser.add_argument("--speech", help="a speech model")
    parser.add_argument("--out", default="soak.csv")
    options = parser.parse_args()
    {"server": server, "library": library, "plot": plot}[options.what](options)


if __name__ == "__main__":
    main()
