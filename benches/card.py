#!/usr/bin/env python3
"""Measures Tabla and llama.cpp on the GPU of a machine without a network: packs here, runs there.

    python3 benches/card.py pack --llama LLAMA.CPP --make-models FILE.py --build FOLDER card.tar.xz
    python3 -m tarfile -e card.tar.xz /tmp && python3 /tmp/card/card.py run --out OUT check decode prefill

`pack` builds Tabla and llama.cpp with its Vulkan back end (cmake, ninja, glslc and the headers of Vulkan and SPIR-V have to
be there) and packs them with the loader of Vulkan, the sources of llama.cpp that a build with CUDA needs, and FILE.py, which
writes synthetic models: it has `write(path, shape, type, seed, vocabulary)` and `SHAPES`.
`run` takes steps by name, in that order, each of some minutes; what a step needs (models, builds) and an earlier one left is
used again. OUT gets report.md, results.json and log.txt, written anew after every step.
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

# ------------------------------------------------------------------- what

# Llama 3.1 8B; its output matrix is the embedding here, so that a token reads as many bytes as of the real one.
EIGHT = dict(arch="llama", dim=4096, layers=32, heads=32, kv=8, hd=128, ffn=14336, vocab=128256, ctx=131072, eps=1e-5,
             rope=500000.0, pre="llama-bpe")

# What is measured: shapes of published models, or small ones that try the steps out.
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
# Relative errors of logits beyond these are mistakes: of f32 in another order, and of activations in int8, so many times
# the CPU's.
EXACT_MAX, FAST_MAX = 1e-4, 3
FIRST_RUNS = 5

# ------------------------------------------------------------------- pack

# The loader of Vulkan, and what the drivers of some vendors are linked to.
LOADER = ["libvulkan1", "libegl1", "libglvnd0", "libopengl0", "libgl1", "libglx0", "libgles2", "libx11-6", "libxext6", "libxcb1",
          "libxau6", "libxdmcp6", "libbsd0", "libmd0"]
PROGRAMS = ["llama-bench", "llama-batched-bench"]
# What llama.cpp's build with CUDA reads, and what lies in these folders for others.
SOURCES = ["CMakeLists.txt", "LICENSE", "AUTHORS", "licenses", "cmake", "common", "include", "src", "ggml", "vendor", "tools"]
NOT_READ = ["ggml-vulkan", "ggml-sycl", "ggml-opencl", "ggml-metal", "ggml-hexagon", "ggml-webgpu", "ggml-cann", "ggml-et", "ggml-zdnn",
            "ggml-zendnn", "ggml-openvino", "ggml-virtgpu", "ggml-blas", "ggml-rpc", "ui", "server", "*.gguf", "*.png"]
COMMON = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON", "-DGGML_NATIVE=OFF", "-DGGML_OPENMP=OFF",
          "-DLLAMA_OPENSSL=OFF", "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
          "-DLLAMA_BUILD_SERVER=OFF", "-DLLAMA_BUILD_APP=OFF"]
# Without it matrix units are left out of the shaders, and llama.cpp is slower than it can be.
NEEDED = "GL_KHR_cooperative_matrix supported by glslc"


def pack(args):
    root, build = HERE.parent, args.build.resolve()
    card = build / "card"
    shutil.rmtree(card, ignore_errors=True)
    (card / "bin").mkdir(parents=True)
    said(["cargo", "build", "--release", "-p", "tabla-cli"], root)
    shutil.copy(root / "target/release/tabla", card / "bin")
    llama = described(args.llama, args.llama_commit)
    vulkan(args.llama.resolve(), build / "vulkan", [f"-DLLAMA_BUILD_COMMIT={llama}", *args.cmake])
    taken = [*(build / "vulkan/bin" / name for name in PROGRAMS), *(build / "vulkan/bin").glob("*.so*")]
    copied(taken, card / "vulkan")
    for program in [card / "bin/tabla", *(card / "vulkan").iterdir()]:
        if not program.is_symlink():
            said(["strip", str(program)])
    with_setting(card / "vulkan", card / "vulkan-khr", "GGML_VK_DISABLE_COOPMAT2=1")
    sources(args.llama, card / "llama.cpp")
    (card / "llama.cpp/commit").write_text(llama)
    shutil.copytree(args.llama / "gguf-py/gguf", card / "gguf")
    loader(build / "loader", card / "loader")
    shutil.copy(args.make_models, card / "make_models.py")
    for script in ("card.py", "compare.py"):
        shutil.copy(HERE / script, card)
    commit = described(root, None)
    (card / "commit").write_text(commit)
    said(["tar", "cJf", str(args.archive.resolve()), "-C", str(build), "card"])
    print(f"{args.archive}: {args.archive.stat().st_size / 2**20:.1f} MiB, commit {commit}, llama.cpp {llama}")


def described(tree, known):
    """The commit of a tree, where it is not known."""
    return known or said(["git", "-C", str(tree), "describe", "--always", "--dirty"]).strip()


def vulkan(source, build, options):
    text = said(["cmake", "-G", "Ninja", "-S", str(source), "-B", str(build), *COMMON, "-DGGML_VULKAN=ON", *options])
    if NEEDED not in text:
        sys.exit(f"card.py: llama.cpp's configuration does not say {NEEDED!r}: name a newer glslc by --cmake=-DVulkan_GLSLC_EXECUTABLE=FILE")
    said(["ninja", "-C", str(build), *PROGRAMS])


def sources(llama, folder):
    """What a build with CUDA reads."""
    folder.mkdir()
    for name in SOURCES:
        source = llama / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns(*NOT_READ))
        elif source.exists():
            shutil.copy(source, folder)


def loader(build, folder):
    """Libraries out of Debian's packages."""
    build.mkdir(parents=True, exist_ok=True)
    if not list(build.glob("*.deb")):
        said(["apt-get", "download", *LOADER], build)
    for package in build.glob("*.deb"):
        said(["dpkg", "-x", str(package), str(build / "root")])
    copied(build.glob("root/usr/lib/*/*.so*"), folder)


def with_setting(programs, folder, setting):
    """A folder of the same programs, run with a variable set."""
    folder.mkdir()
    for program in PROGRAMS:
        script = folder / program
        script.write_text(f'#!/bin/sh\n{setting} exec "$(dirname "$0")/../{programs.name}/{program}" "$@"\n')
        script.chmod(0o755)


def copied(files, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder, follow_symlinks=False)


def said(command, cwd=None):
    """What a command wrote; it ends this program where it fails."""
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"card.py: {' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


# -------------------------------------------------------------------- run


class Failed(Exception):
    """A step that did not come to its end."""


class Run:
    """The machine with the card: where things lie, and what came out so far."""

    def __init__(self, args):
        self.args, self.shapes, self.until = args, SHAPES[args.shapes], time.monotonic() + args.limit
        self.out, self.folder = args.out.resolve(), args.models.resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.env = environment()
        # The user's own tunings and kernels neither count nor change.
        self.env["XDG_CACHE_HOME"] = str(self.folder / "caches")
        self.tabla = str(HERE / "bin/tabla")
        self.report, self.results = [], {}
        self.log_file = self.out / "log.txt"
        self.log = open(self.log_file, "a")

    def call(self, command):
        """Standard output of a command; standard error goes to the log. It and all that it started end in time."""
        self.log.write(f"\n$ {' '.join(map(str, command))}\n")
        self.log.flush()
        begun, name = self.log_file.stat().st_size, Path(command[0]).name
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=max(0, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"{name}: the time of the run is over, see log.txt") from None
        if process.returncode != 0:
            self.log.write(text)
            self.log.flush()
            said = self.log_file.read_bytes()[begun:].decode(errors="replace")
            raise Failed(f"{name}: exit code {process.returncode}\n\n{said[-2000:]}")
        return text

    def json(self, *command):
        return json.loads(self.call([self.tabla, *command]))

    def made(self, names):
        """The files of these models; those that are not there are written, side by side."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = [self.folder / f"{name}.gguf" for name in names]
        missing = [file for file in files if not file.exists()]
        if missing:
            with multiprocessing.Pool(len(missing)) as pool:
                pool.map(make, missing)
        return files

    def compared(self, step, files, tests, peers):
        """A report of compare.py, and its numbers."""
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
        """The builds of llama.cpp that are there, those with matrix units of KHR alone first."""
        folders = {"llama.cpp Vulkan": HERE / "vulkan-khr", "llama.cpp Vulkan NV": HERE / "vulkan", "llama.cpp CUDA": HERE / "cuda/bin"}
        return [(name, folders[name]) for name in which if (folders[name] / PROGRAMS[0]).exists()]

    def keep(self, step, text, numbers):
        self.report.append(f"# {step}\n\n{text.strip()}\n")
        self.results[step] = numbers
        (self.out / "report.md").write_text("\n".join(self.report))
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")
        self.log.flush()


def environment():
    """This process's, with a loader of Vulkan and a driver where the system does not know them."""
    env = dict(os.environ)
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    if "libvulkan.so.1" not in known:
        env["LD_LIBRARY_PATH"] = ":".join(filter(None, [str(HERE / "loader"), env.get("LD_LIBRARY_PATH")]))
    places = [Path(folder) / "vulkan/icd.d" for folder in ("/etc", "/usr/share", "/usr/local/share", "/usr/local/nvidia/share")]
    drivers = [str(file) for place in places for file in sorted(place.glob("*.json"))]
    nvidia = [file for file in drivers if "nvidia" in file]
    if nvidia and not {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} & env.keys():
        env["VK_DRIVER_FILES"] = nvidia[0]
    return env


def make(file):
    """Writes a model, named by its shape and type."""
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
    """The GPU's logits against those of the CPU in f32, of the built-in model and of every other."""
    import numpy
    gpus = run.json("devices", "--json")["gpus"]
    text = "".join(f"{gpu['name']} ({gpu['backend']}, {gpu['driver']}); has {', '.join(gpu['features'])}\n" for gpu in gpus)
    rows, file = [], run.folder / "logits.npy"

    ids = ",".join(str(37 * n * n % 1000) for n in range(run.shapes["checked"]))

    def logits(model, device, precision):
        """Of every token, by the kernels of few, and of the last, by those of prompts."""
        parts = []
        for which in (["--all"], []):
            run.call([run.tabla, "logits", *model, "--device", device, "--precision", precision, "--tokens", ids, *which, "-o", str(file)])
            parts.append(numpy.atleast_2d(numpy.load(file).astype(numpy.float64)))
        return parts

    def agreed(model):
        """How many of 16 tokens are picked alike, one by one, by the kernels of one token."""
        prompt = ["-p", "{" * 15, "-n", "16", "--temp", "0", "-c", "512", "--ignore-eos"]
        tokens = [run.json("run", *model, "--device", device, "--precision", "exact", "--json", "-q", *prompt)["tokens"] for device in ("cpu", "gpu")]
        return next((at for at, (a, b) in enumerate(zip(*tokens)) if a != b), len(tokens[0]))

    files = run.made(run.shapes["models"])
    for name, model in [("built-in", []), *((file.stem, ["-m", str(file)]) for file in files)]:
        wanted = logits(model, "cpu", "exact")
        error = lambda found: max(float(numpy.linalg.norm(f - w) / numpy.linalg.norm(w)) for f, w in zip(found, wanted))
        alike, bitnet = agreed(model), name.startswith("bitnet")
        fast = max(EXACT_MAX, FAST_MAX * error(logits(model, "cpu", "fast")))
        # BitNet's activations are int8 in every precision: the last bit of a sum moves some by a step.
        limits = {"exact": fast if bitnet else EXACT_MAX, "fast": fast}
        for precision, most in limits.items():
            found = logits(model, "gpu", precision)
            same = float((found[0].argmax(1) == wanted[0].argmax(1)).mean())
            # The second token is the first that decoding picked; later ones may be matters of the last bit.
            good = error(found) <= most and (bitnet or alike >= 2)
            rows.append([name, precision, f"{error(found):.1e}", f"{most:.1e}", f"{same * 100:.0f} %", f"{alike} of 16", "good" if good else "wrong"])
    file.unlink()
    text += "\n" + table(["model", "precision", "error of the logits", "at most", "same best token", "picked alike", ""], rows)
    if any(row[-1] == "wrong" for row in rows):
        raise Failed(f"the GPU's logits are wrong\n\n{text}")
    return text, rows


def decode(run):
    """Tokens per second, batch 1."""
    return run.compared("decode", run.made(run.shapes["models"]), "decode", run.peers("llama.cpp Vulkan", "llama.cpp CUDA"))


def prefill(run):
    """Tokens per second of prompts; llama.cpp without and with NVIDIA's own matrix units."""
    return run.compared("prefill", run.made(run.shapes["models"]), "prefill", run.peers("llama.cpp Vulkan", "llama.cpp Vulkan NV", "llama.cpp CUDA"))


def batch(run):
    """Sequences decoded together."""
    return run.compared("batch", run.made(run.shapes["models"][:1]), "batch", run.peers("llama.cpp Vulkan", "llama.cpp CUDA"))


def big(run):
    """Decode and prefill of the 8B shape."""
    return run.compared("big", run.made(run.shapes["big"]), "decode,prefill", run.peers("llama.cpp Vulkan", "llama.cpp CUDA"))


def first(run):
    """Loading, and the first token behind a prompt of 16 or, without a first token of its own, 15, in processes of their own."""
    rows, numbers = [], {}
    for file in run.made(run.shapes["models"]):
        # No vocabulary here joins braces.
        prompt = ["-p", "{" * 15, "-n", "1", "--temp", "0", "-c", "512"]
        runs = [run.json("run", "-m", str(file), "--device", "gpu", "--json", "-q", *prompt)["timings"] for _ in range(FIRST_RUNS)]
        numbers[file.stem] = runs
        token = [timing["prompt_ms"] + timing["predicted_ms"] for timing in runs]
        upload = median(timing["upload"]["bytes"] / timing["upload"]["ms"] / 1e6 for timing in runs)
        rows.append([file.stem, runs[0]["prompt_n"], f"{median(token):.1f}", f"{min(token):.1f} to {max(token):.1f}",
                     f"{runs[0]['load_ms']:.0f}", f"{median(timing['load_ms'] for timing in runs[1:]):.0f}", f"{upload:.2f}"])
    heads = ["model", "tokens", "first token, ms", "of all runs", "loading, ms", "and again", "upload, GB/s"]
    return table(heads, rows), numbers


def commands(run):
    """Every command's time, and what a token takes beside them: the host, and gaps that nothing hides."""
    text, numbers = run.compared("commands", run.made(run.shapes["models"]), "decode,commands", [])
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
    heads = ["model", "a token, µs", "its commands, timed one by one, µs", "the rest, µs", "submitting, beside the GPU, µs"]
    return table(heads, rows) + "\n" + text, numbers


def cuda(run):
    """Builds llama.cpp with CUDA; a build that ran out of time goes on with the next call."""
    build, begun = HERE / "cuda", time.monotonic()
    run.env["PATH"] += ":/usr/local/cuda/bin"
    commit = (HERE / "llama.cpp/commit").read_text()
    options = [f"-DLLAMA_BUILD_COMMIT={commit}", "-DGGML_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={run.args.cuda_arch}", "-DGGML_CUDA_NCCL=OFF"]
    run.call(["cmake", "-G", "Ninja", "-S", str(HERE / "llama.cpp"), "-B", str(build), *COMMON, *options])
    run.call(["ninja", "-C", str(build), *PROGRAMS])
    return f"llama.cpp built with CUDA in {time.monotonic() - begun:.0f} s", {}


def tune(run):
    """Times the kernels of every model; the steps behind it follow what was best."""
    numbers = {file.stem: run.json("tune", "--json", "--device", "gpu", str(file)) for file in run.made(run.shapes["models"])}
    return "tuned: " + ", ".join(numbers), numbers


STEPS = {step.__name__: step for step in (check, tune, decode, prefill, batch, first, commands, cuda, big)}


def measure(args):
    run = Run(args)
    failed = []
    for name in args.steps:
        begun = time.monotonic()
        try:
            text, numbers = STEPS[name](run)
            took = f"{time.monotonic() - begun:.0f} s"
            run.keep(name, f"{text}\nThe step took {took}.", numbers)
        except (Failed, LookupError, ValueError, OSError) as error:
            took = f"{time.monotonic() - begun:.0f} s"
            failed.append(name)
            run.keep(f"{name}: failed after {took}", f"{type(error).__name__}: {error}", str(error))
            # Times of wrong results are of no use.
            if name == "check":
                break
        print(f"{name}: {'failed' if name in failed else 'done'}, {took}", file=sys.stderr, flush=True)
    print("\n".join(run.report))
    sys.exit(1 if failed else 0)


# ------------------------------------------------------------------- main


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packs = commands.add_parser("pack", help="builds everything and writes an archive")
    packs.add_argument("archive", type=Path, metavar="FILE.tar.xz")
    packs.add_argument("--llama", type=Path, required=True, metavar="FOLDER", help="sources of llama.cpp")
    packs.add_argument("--make-models", type=Path, required=True, metavar="FILE.py", help="what writes the models")
    packs.add_argument("--build", type=Path, required=True, metavar="FOLDER", help="where to build; what is there is used again")
    packs.add_argument("--llama-commit", metavar="NAME", help="of the sources, where they are no checkout")
    packs.add_argument("--cmake", action="append", default=[], metavar="=-DNAME=VALUE", help="for llama.cpp's configuration; may be repeated")
    packs.set_defaults(do=pack)
    runs = commands.add_parser("run", help="measures, from where an archive was unpacked")
    runs.add_argument("steps", nargs="+", choices=STEPS, metavar="STEP", help="; ".join(f"{name}: {step.__doc__}" for name, step in STEPS.items()))
    runs.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    runs.add_argument("--models", type=Path, default=HERE / "models", metavar="FOLDER", help="where models are, or go [beside this file]")
    runs.add_argument("--shapes", choices=SHAPES, default="real", help="[%(default)s]")
    runs.add_argument("--rounds", type=int, default=2, help="of every comparison [%(default)s]")
    runs.add_argument("--limit", type=int, default=570, metavar="SECONDS", help="of all steps; what goes over is stopped [%(default)s]")
    runs.add_argument("--cuda-arch", default="90", metavar="N", help="[%(default)s]")
    runs.set_defaults(do=measure)
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    given.do(given)
