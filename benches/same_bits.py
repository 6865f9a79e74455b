"""Whether the answers of a server depend on threads, on sizes of batches and on other requests.

    python3 benches/same_bits.py MODEL.gguf [--tabla target/release/tabla] [--peer LLAMA_SERVER] [--prompts 20]

Starts each server once for each setting, sends the same prompts, greedily, and compares tokens and log-probabilities
with those of one thread, alone. For each server and setting it prints how many answers have other tokens, how many have
other log-probabilities (of the chosen tokens, all digits of the JSON), and the largest difference of a log-probability
before the first token that differs. Prompts have different lengths, so that requests at the same time do not run in
lockstep. Uses only the standard library.
"""

import argparse
import concurrent.futures
import json
import random
import signal
import urllib.request

from serve import WORDS, start

TOKENS = 48
CONTEXT = 1024


def prompts(count):
    rng = random.Random(7)
    return [f"Story {at}: " + " ".join(rng.choice(WORDS) for _ in range(rng.randrange(20, 200))) for at in range(count)]


def answer(port, prompt, cached=False):
    """Tokens and log-probabilities of an answer."""
    body = {
        "prompt": prompt, "n_predict": TOKENS, "temperature": 0, "n_probs": 1, "ignore_eos": True,
        "return_tokens": True, "cache_prompt": cached,
    }
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as reply:
        result = json.load(reply)
    steps = result["completion_probabilities"]
    return [step["id"] for step in steps], [step["logprob"] for step in steps]


def alone(port, texts):
    return [answer(port, text) for text in texts]


def together(port, texts):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda text: answer(port, text), texts))


def again(port, texts):
    """Each prompt a second time, when its pages or slots are cached."""
    for text in texts:
        answer(port, text, cached=True)
    return [answer(port, text, cached=True) for text in texts]


# Name, threads, slots, tokens of a chunk of a prompt, requests.
SETTINGS = [
    ("one thread, alone", 1, 1, 512, alone),
    ("again", 1, 1, 512, alone),
    ("two threads", 2, 1, 512, alone),
    ("chunks of 64 tokens", 1, 1, 64, alone),
    ("8 requests at a time", 1, 8, 512, together),
    ("two threads, 8 at a time", 2, 8, 512, together),
    ("cached prompts", 1, 1, 512, again),
]


def command(name, options, setting):
    _, threads, slots, chunk, _ = setting
    shared = ["-m", options.model, "--port", str(options.port), "-t", str(threads)]
    if name == "llama.cpp":
        return [options.peer, *shared, "-np", str(slots), "-c", str(CONTEXT * slots), "-b", str(chunk), "-ub", str(chunk)]
    return [options.tabla, "serve", *shared, "--device", "cpu", "--parallel", str(slots), "-c", str(CONTEXT), "--log-format", "none"]


def compare(expected, answers):
    """Numbers of answers with other tokens and other log-probabilities, and the largest difference of one."""
    tokens = sum(a[0] != b[0] for a, b in zip(expected, answers))
    numbers = sum(a != b for a, b in zip(expected, answers))
    largest = 0.0
    for (ids, wanted), (others, found) in zip(expected, answers):
        for id, other, x, y in zip(ids, others, wanted, found):
            largest = max(largest, abs(x - y)) if id == other else largest
            if id != other:
                break
    return tokens, numbers, largest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tabla", default="target/release/tabla")
    parser.add_argument("--peer", help="llama-server of llama.cpp")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--port", type=int, default=8192)
    options = parser.parse_args()
    texts = prompts(options.prompts)
    for name in ["tabla", "llama.cpp"] if options.peer else ["tabla"]:
        expected = None
        for setting in SETTINGS:
            # `tabla serve` selects the chunk itself: 64 tokens while other requests decode.
            if name == "tabla" and setting[3] != 512:
                continue
            process = start(command(name, options, setting), options.port)
            try:
                answers = setting[4](options.port, texts)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
            expected = expected or answers
            tokens, numbers, largest = compare(expected, answers)
            print(f"{name:<10} {setting[0]:<26} of {len(texts)}: {tokens:>3} other tokens, {numbers:>3} other numbers, "
                  f"largest difference {largest:.2g}", flush=True)


if __name__ == "__main__":
    main()
