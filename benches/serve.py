"""Load of `tabla serve` against the server of llama.cpp, on the same model and machine.

    python3 benches/serve.py MODEL.gguf [--peer LLAMA_SERVER] [--streams 1,8,32,128] [--rounds 3]

    python3 benches/serve.py MODEL.gguf --soak 10

Each round starts both servers in turn, so that the machine's other load affects both, and prints for each
number of concurrent streams: tokens per second, time to the first token (p50 and p99), and the time between
two tokens of a stream (p99); then the medians over the rounds and the ratios. Both servers get the same
requests. A soak test runs 32 clients that disconnect at random, for some minutes, and prints the resident
memory after each minute. Uses only the standard library.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
import urllib.request

WORDS = "time year people way day man thing woman life child world school state family student group".split()


def prompt(number, tokens):
    """A prompt of about this many tokens, which no other request has."""
    words = random.Random(number)
    return f"{number} " + " ".join(words.choice(WORDS) for _ in range(tokens))


def length(number, mean, options):
    """A length of this mean. Requests of equal length would run in lockstep, which real ones do not."""
    spread = int(mean * options.spread)
    return mean + random.Random(f"{number} {mean}").randint(-spread, spread)


async def stream(port, number, options):
    """Runs one request. Returns its number of tokens, its time, and the times of its tokens."""
    tokens = length(number, options.tokens, options)
    body = json.dumps({
        "prompt": prompt(number, length(number, options.prompt, options)),
        "max_tokens": tokens,
        "stream": True,
        "temperature": 0.8,
        "seed": number,
        "ignore_eos": True,
        "cache_prompt": False,
    }).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    begun = time.perf_counter()
    writer.write(head.encode() + body)
    times = []
    lines = []
    while line := await reader.readline():
        lines.append(line)
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:]).get("choices")
            if choices and choices[0].get("text"):
                times.append(time.perf_counter())
        elif line.startswith(b"data: [DONE]"):
            break
    writer.close()
    if not times:
        raise RuntimeError(f"a request without tokens: {lines[-3:]}")
    return tokens, begun, times


async def load(port, streams, options):
    """Keeps this many streams running until all requests are done."""
    numbers = iter(range(max(streams * options.repeat, 4)))
    results = []

    async def worker():
        for number in numbers:
            results.append(await stream(port, number, options))

    begun = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(streams)))
    took = time.perf_counter() - begun
    first = sorted(times[0] - start for _, start, times in results)
    gaps = sorted(b - a for *_, times in results for a, b in zip(times, times[1:]))
    # A chunk may have several tokens, so tokens are counted by the request.
    tokens = sum(tokens for tokens, *_ in results)
    at = lambda values, p: values[min(int(len(values) * p), len(values) - 1)]
    return {
        "tokens/s": tokens / took,
        "first p50 ms": at(first, 0.5) * 1e3,
        "first p99 ms": at(first, 0.99) * 1e3,
        "gap p99 ms": at(gaps, 0.99) * 1e3,
    }


async def disconnecting(port, ends, chance):
    """Runs random requests until the end; some clients disconnect while they read."""
    count = 0
    while time.perf_counter() < ends:
        body = json.dumps({
            "prompt": prompt(chance.randrange(200), chance.randrange(1, 64)),
            "max_tokens": chance.randrange(1, 64),
            "stream": chance.random() < 0.7,
            "n": chance.randrange(1, 3),
            "logprobs": chance.choice([None, 2]),
        }).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + body)
        if chance.random() < 0.3:
            await asyncio.sleep(chance.random() * 0.3)
        else:
            await reader.read()
        writer.close()
        count += 1
    return count


async def soak(process, port, minutes):
    """Runs clients and prints the resident memory after each minute."""
    ends = time.perf_counter() + minutes * 60
    clients = [asyncio.create_task(disconnecting(port, ends, random.Random(seed))) for seed in range(32)]
    for minute in range(1, minutes + 1):
        await asyncio.sleep(60)
        print(f"minute {minute}: {resident(process) / 2**20:.1f} MiB", flush=True)
    print(f"{sum(await asyncio.gather(*clients))} requests")


def start(command, port):
    """Starts a server and waits until it is healthy."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(1200):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
                if answer.status == 200:
                    return process
        except OSError:
            pass
        if process.poll() is not None:
            sys.exit(f"{command[0]} ended with code {process.returncode}")
        time.sleep(0.05)
    sys.exit(f"{command[0]} did not start")


def resident(process):
    with open(f"/proc/{process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tabla", default="target/release/tabla")
    parser.add_argument("--peer", help="llama-server of llama.cpp")
    parser.add_argument("--streams", default="1,8,32,128")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=2, help="requests per stream")
    parser.add_argument("--prompt", type=int, default=64, help="mean number of words of a prompt")
    parser.add_argument("--tokens", type=int, default=32, help="mean number of tokens of an answer")
    parser.add_argument("--spread", type=float, default=0.5, help="largest relative difference from these means")
    parser.add_argument("--port", type=int, default=8190)
    parser.add_argument("--soak", type=int, help="minutes of the soak test")
    options = parser.parse_args()
    if options.soak:
        command = [options.tabla, "serve", "-m", options.model, "--port", str(options.port), "--log-format", "none"]
        process = start([*command, "--parallel", "8", "--queue", "1024"], options.port)
        asyncio.run(soak(process, options.port, options.soak))
        process.send_signal(signal.SIGTERM)
        process.wait()
        return
    context = 512
    results = {}
    for _ in range(options.rounds):
        for streams in map(int, options.streams.split(",")):
            commands = {"tabla": [
                options.tabla, "serve", "-m", options.model, "--port", str(options.port), "--log-format", "none",
                "--parallel", str(streams), "-c", str(context), "--queue", "1024",
            ]}
            if options.peer:
                commands["llama.cpp"] = [
                    options.peer, "-m", options.model, "--port", str(options.port), "-np", str(streams),
                    "-c", str(context * streams), "-t", str(os.cpu_count()),
                ]
            for name, command in commands.items():
                process = start(command, options.port)
                try:
                    asyncio.run(stream(options.port, 1 << 30, options))
                    result = asyncio.run(load(options.port, streams, options))
                    result["MiB"] = resident(process) / 2**20
                finally:
                    process.send_signal(signal.SIGTERM)
                    process.wait()
                results.setdefault((streams, name), []).append(result)
                shown = "  ".join(f"{key} {value:.1f}" for key, value in result.items())
                print(f"{streams:>4} {name:<10} {shown}", flush=True)
    print("\nmedians")
    for (streams, name), rows in sorted(results.items()):
        median = {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        shown = "  ".join(f"{key} {value:.1f}" for key, value in median.items())
        print(f"{streams:>4} {name:<10} {shown}")
        results[streams, name] = median
    for streams in sorted({streams for streams, _ in results}):
        if (streams, "llama.cpp") in results:
            ours, peer = results[streams, "tabla"], results[streams, "llama.cpp"]
            ratios = "  ".join(f"{key} {ours[key] / peer[key]:.2f}" for key in ours)
            print(f"{streams:>4} ratio      {ratios}")


if __name__ == "__main__":
    main()
