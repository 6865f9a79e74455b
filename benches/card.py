#!/usr/bin/env python3
"""Benchmarks Tabla and llama.cpp on the GPU of a machine without network access.

    python3 benches/card.py pack --llama LLAMA.CPP --make-models FILE.py --build FOLDER card.tar.xz
    python3 -m tarfile -e card.tar.xz /tmp && python3 /tmp/card/card.py run --out OUT check decode prefill

`pack` builds Tabla and llama.cpp with its Vulkan backend (requires cmake, ninja, glslc and the Vulkan and SPIR-V headers). It
packs them with the Vulkan loader, the llama.cpp sources for a CUDA build, and FILE.py, a generator of synthetic models with
`write(path, shape, type, seed, vocabulary)` and `SHAPES`.
`run` runs the named steps in order; each takes some minutes. Models and builds of earlier runs are reused. OUT contains
report.md, results.json and log.txt, which are updated after every step.
"""
import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent

# ------------------------------------------------------------------- models

# Llama 3.1 8B with tied embeddings; a token reads the same number of bytes as with the real model.
EIGHT = dict(arch="llama", dim=4096, layers=32, heads=32, kv=8, hd=128, ffn=14336, vocab=128256, ctx=131072, eps=1e-5,
             rope=500000.0, pre="llama-bpe")

# Models and test sizes: shapes of published models, or tiny ones for testing the steps.
SHAPES = {
    "real": {
        "models": ["llama-3.2-1b-Q4_0", "llama-3.2-1b-Q8_0", "qwen3-0.6b-Q8_0", "bitnet-2b-TQ2_0"], "big": ["llama-3.1-8b-Q8_0"],
        "generate": 128, "depths": "0,4096", "prompts": "512,4096", "sequences": "1,4,16", "checked": 300,
    },
    "tiny": {
        "models": ["llama-tiny-Q4_0", "bitnet-tiny-TQ2_0"], "big": ["qwen3-tiny-Q8_0"],
        "generate": 8, "depths": "0,64", "prompts": "32,64", "sequences": "1,4", "checked": 40,
    },
}
# Maximum relative error of logits: absolute for exact precision, and relative to the CPU's error for fast precision (int8
# activations).
EXACT_MAX, FAST_MAX = 1e-4, 3
FIRST_RUNS = 5

# ------------------------------------------------------------------- pack

# Packages of the Vulkan loader, and libraries that some drivers are linked to.
LOADER = ["libvulkan1", "libegl1", "libglvnd0", "libopengl0", "libgl1", "libglx0", "libgles2", "libx11-6", "libxext6", "libxcb1",
          "libxau6", "libxdmcp6", "libbsd0", "libmd0"]
PROGRAMS = ["llama-bench", "llama-batched-bench"]
# Sources for a CUDA build of llama.cpp, and files in them that it does not need.
SOURCES = ["CMakeLists.txt", "LICENSE", "AUTHORS", "licenses", "cmake", "common", "include", "src", "ggml", "vendor", "tools"]
EXCLUDED = ["ggml-vulkan", "ggml-sycl", "ggml-opencl", "ggml-metal", "ggml-hexagon", "ggml-webgpu", "ggml-cann", "ggml-et", "ggml-zdnn",
            "ggml-zendnn", "ggml-openvino", "ggml-virtgpu", "ggml-blas", "ggml-rpc", "ui", "server", "*.gguf", "*.png"]
COMMON = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON", "-DGGML_NATIVE=OFF", "-DGGML_OPENMP=OFF",
          "-DLLAMA_OPENSSL=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
          "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_APP=OFF"]
# Without this, llama.cpp is built without cooperative matrices and is slower.
REQUIRED = "GL_KHR_cooperative_matrix supported by glslc"


def pack(args):
    root, build = HERE.parent, args.build.resolve()
    card = build / "card"
    shutil.rmtree(card, ignore_errors=True)
    (card / "bin").mkdir(parents=True)
    output(["cargo", "build", "--release", "-p", "tabla-cli"], root)
    shutil.copy(root / "target/release/tabla", card / "bin")
    llama = commit_of(args.llama, args.llama_commit)
    vulkan(args.llama.resolve(), build / "vulkan", [f"-DLLAMA_BUILD_COMMIT={llama}", *args.cmake])
    files = [*(build / "vulkan/bin" / name for name in PROGRAMS), *(build / "vulkan/bin").glob("*.so*")]
    copy_all(files, card / "vulkan")
    for program in [card / "bin/tabla", *(card / "vulkan").iterdir()]:
        if not program.is_symlink():
            output(["strip", str(program)])
    with_setting(card / "vulkan", card / "vulkan-khr", "GGML_VK_DISABLE_COOPMAT2=1")
    sources(args.llama, card / "llama.cpp")
    (card / "llama.cpp/commit").write_text(llama)
    shutil.copytree(args.llama / "gguf-py/gguf", card / "gguf")
    loader(build / "loader", card / "loader")
    shutil.copy(args.make_models, card / "make_models.py")
    for script in ("card.py", "compare.py"):
        shutil.copy(HERE / script, card)
    commit = commit_of(root, None)
    (card / "commit").write_text(commit)
    output(["tar", "cJf", str(args.archive.resolve()), "-C", str(build), "card"])
    print(f"{args.archive}: {args.archive.stat().st_size / 2**20:.1f} MiB, commit {commit}, llama.cpp {llama}")


def commit_of(tree, known):
    """Returns `known`, or the commit of a checkout."""
    return known or output(["git", "-C", str(tree), "describe", "--always", "--dirty"]).strip()


def vulkan(source, build, options):
    text = output(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), *COMMON, "-DGGML_VULKAN=ON", *options])
    if REQUIRED not in text:
        sys.exit(f"card.py: llama.cpp's configuration does not report {REQUIRED!r}; set a newer glslc with --cmake=-DVulkan_GLSLC_EXECUTABLE=FILE")
    output(["ninja", "-C", str(build), *PROGRAMS])


def sources(llama, folder):
    """Copies the sources for a CUDA build."""
    folder.mkdir()
    for name in SOURCES:
        source = llama / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns(*EXCLUDED))
        elif source.exists():
            shutil.copy(source, folder)


def loader(build, folder):
    """Extracts libraries from Debian packages."""
    build.mkdir(parents=True, exist_ok=True)
    if not list(build.glob("*.deb")):
        output(["apt-get", "download", *LOADER], build)
    for package in build.glob("*.deb"):
        output(["dpkg", "-x", str(package), str(build / "root")])
    copy_all(build.glob("root/usr/lib/*/*.so*"), folder)


def with_setting(programs, folder, setting):
    """Writes scripts that run the same programs with an environment variable."""
    folder.mkdir()
    for program in PROGRAMS:
        script = folder / program
        script.write_text(f'#!/bin/sh\n{setting} exec "$(dirname "$0")/../{programs.name}/{program}" "$@"\n')
        script.chmod(0o755)


def copy_all(files, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder, follow_symlinks=False)


def output(command, cwd=None):
    """Returns the output of a command; exits if it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"card.py: {' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


# -------------------------------------------------------------------- run


class Failed(Exception):
    """A failed step."""


class Run:
    """A benchmark run: paths, environment and results so far."""

    def __init__(self, args):
        self.args, self.shapes, self.deadline = args, SHAPES[args.shapes], time.monotonic() + args.limit
        self.out, self.folder = args.out.resolve(), args.models.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.env = environment()
        # Isolates the run from the user's tunings and pipeline caches.
        self.env["XDG_CACHE_HOME"] = str(self.folder / "caches")
        self.tabla = str(HERE / "bin/tabla")
        self.report, self.results = [], {}
        self.log_file = self.out / "log.txt"
        self.log = open(self.log_file, "a")

    def call(self, command):
        """Returns the standard output of a command; logs standard error. Kills its process group at the deadline."""
        self.log.write(f"\n$ {' '.join(map(str, command))}\n")
        self.log.flush()
        log_start, name = self.log_file.stat().st_size, Path(command[0]).name
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=max(0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"{name}: the time limit of the run is exceeded, see log.txt") from None
        if process.returncode != 0:
            self.log.write(text)
            self.log.flush()
            errors = self.log_file.read_bytes()[log_start:].decode(errors="replace")
            raise Failed(f"{name}: exit code {process.returncode}\n\n{errors[-2000:]}")
        return text

    def json(self, *command):
        return json.loads(self.call([self.tabla, *command]))

    def model_files(self, names):
        """Returns the files of these models; writes missing ones in parallel."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"{name}.gguf" for name in names]
        missing = [file for file in files if not file.exists()]
        if missing:
            with multiprocessing.Pool(len(missing)) as pool:
                pool.map(write_model, missing)
        return files

    def compare(self, step, files, tests, peers):
        """Runs compare.py; returns its report and its numbers."""
        raw = self.folder / f"{step}.json"
        command = [sys.executable, str(HERE / "compare.py"), "--device", "gpu", "--tabla", self.tabla, "--tests", tests,
                   "--rounds", str(self.args.rounds), "-n", str(self.shapes["generate"]), "--depths", self.shapes["depths"],
                   "-p", self.shapes["prompts"], "--sequences", self.shapes["sequences"], "--timeout", "240",
                   "--commit", (HERE / "commit").read_text(), "--json", str(raw)]
        command += [f"--llama={name}={folder}" for name, folder in peers]
        text = self.call([*command, *map(str, files)])
        numbers = json.loads(raw.read_text())
        raw.unlink()
        return text, numbers

    def peers(self, *which):
        """Returns the available builds of llama.cpp with these names."""
        folders = {"llama.cpp Vulkan": HERE / "vulkan-khr", "llama.cpp Vulkan NV": HERE / "vulkan", "llama.cpp CUDA": HERE / "cuda/bin"}
        return [(name, folders[name]) for name in which if (folders[name] / PROGRAMS[0]).exists()]

    def add_result(self, step, text, numbers):
        self.report.append(f"# {step}\n\n{text.strip()}\n")
        self.results[step] = numbers
        (self.out / "report.md").write_text("\n".join(self.report))
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")
        self.log.flush()


def environment():
    """Returns the environment of this process, with a Vulkan loader and driver if the system has none configured."""
    env = dict(os.environ)
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    if "libvulkan.so.1" not in known:
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(HERE / "loader"), env.get("LD_LIBRARY_PATH")]))
    folders = [Path(folder) / "vulkan/icd.d" for folder in ("/etc", "/usr/share", "/usr/local/share", "/usr/local/nvidia/share")]
    drivers = [str(file) for folder in folders for file in sorted(folder.glob("*.json"))]
    nvidia = [file for file in drivers if "nvidia" in file]
    if nvidia and not {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} & env.keys():
        env["VK_DRIVER_FILES"] = nvidia[0]
    return env


def write_model(file):
    """Writes a model; the file name has its shape and type."""
    sys.path.insert(0, str(HERE))
    import make_models
    make_models.SHAPES["llama-3.1-8b"] = EIGHT
    shape = next(shape for shape in make_models.SHAPES if file.stem.startswith(shape + "-"))
    make_models.write(str(file), shape, file.stem[len(shape) + 1:], 1, None)


def table(heads, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [heads, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]]) + "\n"


# ------------------------------------------------------------------ steps


def check(run):
    """Compares the GPU's logits with the CPU's in f32, for the built-in model and all others."""
    import numpy
    gpus = run.json("devices", "--json")["gpus"]
    text = "".join(f"{gpu['name']} ({gpu['backend']}, {gpu['driver']}); has {', '.join(gpu['features'])}\n" for gpu in gpus)
    rows, file = [], run.folder / "logits.npy"

    ids = ",".join(str(37 * n * n % 1000) for n in range(run.shapes["checked"]))

    def logits(model, device, precision):
        """Returns the logits of all tokens (gemv kernels) and of the last token (prefill kernels)."""
        parts = []
        for which in (["--all"], []):
            run.call([run.tabla, "logits", *model, "--device", device, "--precision", precision, "--tokens", ids, *which, "-o", str(file)])
            parts.append(numpy.atleast_2d(numpy.load(file).astype(numpy.float64)))
        return parts

    def equal_tokens(model):
        """Returns the number of equal greedy tokens of CPU and GPU before the first difference, out of 16."""
        prompt = ["-p", "{" * 15, "-n", "16", "--temp", "0", "-c", "512", "--ignore-eos"]
        tokens = [run.json("run", *model, "--device", device, "--precision", "exact", "--json", "-q", *prompt)["tokens"] for device in ("cpu", "gpu")]
        return next((at for at, (a, b) in enumerate(zip(*tokens)) if a != b), len(tokens[0]))

    files = run.model_files(run.shapes["models"])
    for name, model in [("built-in", []), *((file.stem, ["-m", str(file)]) for file in files)]:
        expected = logits(model, "cpu", "exact")
        error = lambda actual: max(float(numpy.linalg.norm(a - e) / numpy.linalg.norm(e)) for a, e in zip(actual, expected))
        equal, bitnet = equal_tokens(model), name.startswith("bitnet")
        fast = max(EXACT_MAX, FAST_MAX * error(logits(model, "cpu", "fast")))
        # BitNet's activations are int8 in every precision: the last bit of a sum can change a code.
        limits = {"exact": fast if bitnet else EXACT_MAX, "fast": fast}
        for precision, limit in limits.items():
            actual = logits(model, "gpu", precision)
            same = float((actual[0].argmax(1) == expected[0].argmax(1)).mean())
            # The second token is the first one from decode; later ones may differ by rounding.
            good = error(actual) <= limit and (bitnet or equal >= 2)
            rows.append([name, precision, f"{error(actual):.1e}", f"{limit:.1e}", f"{same * 100:.0f} %", f"{equal} of 16", "good" if good else "wrong"])
    file.unlink()
    text += "\n" + table(["model", "precision", "error of the logits", "limit", "same best token", "equal tokens", ""], rows)
    if any(row[-1] == "wrong" for row in rows):
        raise Failed(f"the GPU's logits are wrong\n\n{text}")
    return text, rows


def decode(run):
    """Measures decode, tokens per second, batch 1."""
    return run.compare("decode", run.model_files(run.shapes["models"]), "decode", run.peers("llama.cpp Vulkan", "llama.cpp CUDA"))


def prefill(run):
    """Measures prefill, tokens per second; llama.cpp without and with NVIDIA's cooperative matrices."""
    return run.compare("prefill", run.model_files(run.shapes["models"]), "prefill", run.peers("llama.cpp Vulkan", "llama.cpp Vulkan NV", "llama.cpp CUDA"))


def batch(run):
    """Measures batched decode."""
    return run.compare("batch", run.model_files(run.shapes["models"][:1]), "batch", run.peers("llama.cpp Vulkan", "llama.cpp CUDA"))


def big(run):
    """Measures decode and prefill of the 8B shape."""
    return run.compare("big", run.model_files(run.shapes["big"]), "decode,prefill", run.peers("llama.cpp Vulkan", "llama.cpp CUDA"))


def first(run):
    """Measures loading and time to first token in new processes, with a prompt of 15 or 16 tokens (with BOS)."""
    rows, numbers = [], {}
    for file in run.model_files(run.shapes["models"]):
        # No vocabulary here merges braces.
        prompt = ["-p", "{" * 15, "-n", "1", "--temp", "0", "-c", "512"]
        runs = [run.json("run", "-m", str(file), "--device", "gpu", "--json", "-q", *prompt)["timings"] for _ in range(FIRST_RUNS)]
        numbers[file.stem] = runs
        token = [timing["prompt_ms"] + timing["predicted_ms"] for timing in runs]
        upload = median(timing["upload"]["bytes"] / timing["upload"]["ms"] / 1e6 for timing in runs)
        rows.append([file.stem, runs[0]["prompt_n"], f"{median(token):.1f}", f"{min(token):.1f} to {max(token):.1f}",
                     f"{runs[0]['load_ms']:.0f}", f"{median(timing['load_ms'] for timing in runs[1:]):.0f}", f"{upload:.2f}"])
    heads = ["model", "tokens", "first token, ms", "range of all runs", "first load, ms", "later loads, ms", "upload, GB/s"]
    return table(heads, rows), numbers


def commands(run):
    """Measures the time of every command, and the time of a token outside of commands: host and gaps."""
    text, numbers = run.compare("commands", run.model_files(run.shapes["models"]), "decode,commands", [])
    rows = []
    for record in numbers["records"]:
        if record["test"] == "commands" and "tests" in record:
            test = next(test for test in record["tests"] if test["n_gen"])
            tokens = test["n_gen"] * len(test["samples_ns"])
            inside = sum(group["seconds"] for group in test["commands"]) / tokens * 1e6
            runs = [r for r in numbers["records"] if r["model"] == record["model"] and r["test"] == "decode" and "@" not in r["name"]]
            whole = 1e6 / median(median(r["samples"]) for r in runs)
            submitting = median(r["submit_us_per_token"] for r in runs)
            rows.append([record["model"], f"{whole:.1f}", f"{inside:.1f}", f"{whole - inside:.1f}", f"{submitting:.1f}"])
    heads = ["model", "token, µs", "its commands, timed individually, µs", "remainder, µs", "submission, concurrent with the GPU, µs"]
    return table(heads, rows) + "\n" + text, numbers


def cuda(run):
    """Builds llama.cpp with CUDA; a build that exceeds the time limit continues in the next run."""
    build, start = HERE / "cuda", time.monotonic()
    run.env["PATH"] += ":/usr/local/cuda/bin"
    commit = (HERE / "llama.cpp/commit").read_text()
    options = [f"-DLLAMA_BUILD_COMMIT={commit}", "-DGGML_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={run.args.cuda_arch}", "-DGGML_CUDA_NCCL=OFF"]
    run.call(["cmake", "-G", "Ninja", "-S", str(HERE / "llama.cpp"), "-B", str(build), *COMMON, *options])
    run.call(["ninja", "-C", str(build), *PROGRAMS])
    return f"llama.cpp built with CUDA in {time.monotonic() - start:.0f} s", {}


def tune(run):
    """Tunes the kernels of every model, for the steps after it."""
    numbers = {file.stem: run.json("tune", "--json", "--device", "gpu", str(file)) for file in run.model_files(run.shapes["models"])}
    return "tuned: " + ", ".join(numbers), numbers


STEPS = {step.__name__: step for step in (check, tune, decode, prefill, batch, first, commands, cuda, big)}


def measure(args):
    run = Run(args)
    failed = []
    for name in args.steps:
        start = time.monotonic()
        try:
            text, numbers = STEPS[name](run)
            took = f"{time.monotonic() - start:.0f} s"
            run.add_result(name, f"{text}\nThe step took {took}.", numbers)
        except (Failed, LookupError, ValueError, OSError) as error:
            took = f"{time.monotonic() - start:.0f} s"
            failed.append(name)
            run.add_result(f"{name}: failed after {took}", f"{type(error).__name__}: {error}", str(error))
            # Performance of wrong results is meaningless.
            if name == "check":
                break
        print(f"{name}: {'failed' if name in failed else 'done'}, {took}", file=sys.stderr, flush=True)
    print("\n".join(run.report))
    sys.exit(1 if failed else 0)


# ------------------------------------------------------------------- main


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packs = commands.add_parser("pack", help="build everything and write an archive")
    packs.add_argument("archive", type=Path, metavar="FILE.tar.xz")
    packs.add_argument("--llama", type=Path, required=True, metavar="FOLDER", help="llama.cpp sources")
    packs.add_argument("--make-models", type=Path, required=True, metavar="FILE.py", help="generator of the models")
    packs.add_argument("--build", type=Path, required=True, metavar="FOLDER", help="build folder; existing builds are reused")
    packs.add_argument("--llama-commit", metavar="NAME", help="commit of the llama.cpp sources, if they are not a checkout")
    packs.add_argument("--cmake", action="append", default=[], metavar="=-DNAME=VALUE", help="CMake option for llama.cpp; may be repeated")
    packs.set_defaults(do=pack)
    runs = commands.add_parser("run", help="run benchmarks from an extracted archive")
    runs.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help="; ".join(f"{name}: {step.__doc__}" for name, step in STEPS.items()))
    runs.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    runs.add_argument("--models", type=Path, default=HERE / "models", metavar="FOLDER", help="model folder; missing models are generated [models next to this file]")
    runs.add_argument("--shapes", choices=SHAPES, default="real", help="set of models [%(default)s]")
    runs.add_argument("--rounds", type=int, default=2, help="rounds of every comparison [%(default)s]")
    runs.add_argument("--limit", type=int, default=570, metavar="SECONDS", help="time limit of all steps [%(default)s]")
    runs.add_argument("--cuda-arch", default="90", metavar="N", help="CUDA architecture [%(default)s]")
    runs.set_defaults(do=measure)
    return parser.parse_args()


if __name__ == "__main__":
    parsed = arguments()
    parsed.do(parsed)
