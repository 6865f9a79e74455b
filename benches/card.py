#!/usr/bin/env python3
"""Benchmarks Tabla and llama.cpp on the GPU of a machine without a network and without compilers.

    python3 benches/card.py pack --llama LLAMA.CPP --make-models FILE.py --build FOLDER card.tar.xz
    python3 -m tarfile -e card.tar.xz /tmp && python3 /tmp/card/card.py run --out OUT

`pack` builds Tabla, `benches/gpu.rs`, and llama.cpp with Vulkan and with CUDA, without a GPU. It downloads the compiler of
CUDA from PyPI, and the shader compiler and headers for Vulkan from Debian 13. The archive also has the Vulkan loader and
FILE.py, a generator of synthetic models with `write(path, shape, type, seed, vocabulary)` and `SHAPES`. cuBLAS is not in the
archive: it is found in the packages of Python or in /usr/local/cuda.
`run` runs all steps, or the named ones in order, within the time limit, and prints one table. Each step has a share of the
time that is left; one that takes 1.5 times its share ends with the results so far. OUT contains report.md, results.json and log.txt,
which are updated after every step.
"""
import argparse
import importlib.util
import json
import multiprocessing
import os
import re
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

# Models of the steps and test sizes: shapes of published models, or tiny ones for testing the steps.
SHAPES = {
    "real": {
        "models": {"check": ["llama-3.2-1b-Q4_K_M", "llama-tiny-Q4_0", "bitnet-tiny-TQ2_0"], "small": ["llama-3.2-1b-Q4_K_M"],
                   "big": ["llama-3.1-8b-Q4_K_M"], "others": ["llama-3.2-1b-Q8_0", "qwen3-0.6b-Q8_0"]},
        "generate": 128, "depths": "0,4096", "prompts": "512,4096", "sequences": "1,4,16", "checked": 300, "kernels": [],
    },
    "tiny": {
        "models": {"check": ["llama-tiny-Q4_0", "bitnet-tiny-TQ2_0"], "small": ["llama-tiny-Q4_K_M"], "big": ["qwen3-tiny-Q8_0"],
                   "others": ["bitnet-tiny-TQ2_0"]},
        "generate": 8, "depths": "0,64", "prompts": "32,64", "sequences": "1,4", "checked": 40, "kernels": ["--tiny"],
    },
}
# Maximum relative error of logits: absolute for exact precision, and relative to the CPU's error for fast precision (int8
# activations).
EXACT_MAX, FAST_MAX = 1e-4, 3
FIRST_RUNS = 5
# Seconds that a program may take to store its results after the time of a step is over.
INTERRUPT_SECONDS = 3

# Builds of llama.cpp and their folders. KHR is without NVIDIA's own cooperative matrices, which Tabla does not use.
PEERS = {"llama.cpp Vulkan": "vulkan", "llama.cpp Vulkan KHR": "vulkan-khr", "llama.cpp CUDA": "cuda"}
COMPARED = ["llama.cpp Vulkan", "llama.cpp CUDA"]

# ------------------------------------------------------------------- pack

# Packages of the Vulkan loader, and libraries that some drivers are linked to.
LOADER = ["libvulkan1", "libegl1", "libglvnd0", "libopengl0", "libgl1", "libglx0", "libgles2", "libx11-6", "libxext6", "libxcb1",
          "libxau6", "libxdmcp6", "libbsd0", "libmd0"]
# A compiler of shaders with cooperative matrices, its libraries, and headers. Debian 12's are too old.
SHADERS = ["glslc", "libshaderc1", "libvulkan-dev", "spirv-headers", "libc6", "libstdc++6", "libgcc-s1"]
DEBIAN = "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main\n"
# A driver of version 580 or newer runs programs of CUDA 13.0.
CUDA = [f"nvidia-{name}==13.0.*" for name in ("cuda-nvcc", "nvvm", "cuda-crt", "cuda-cccl", "cuda-runtime", "cublas")]
PROGRAMS = ["llama-bench", "llama-batched-bench"]
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
    text = output(["cargo", "build", "--release", "--message-format=json", "--bin", "tabla", "--bench", "gpu"], root)
    for name in ("tabla", "gpu"):
        shutil.copy(executable(text, name), card / "bin" / name)
    llama = commit_of(args.llama, args.llama_commit)
    tools = build / "tools"
    output([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(tools), "ninja"])
    backends = {"vulkan": vulkan_options, "cuda": cuda_options}
    for name in args.backends.split(","):
        options = [f"-DLLAMA_BUILD_COMMIT={llama}", *backends[name](build, args), *args.cmake]
        compile_llama(args.llama.resolve(), build / name, options, tools / "bin/ninja", args.jobs)
        files = [*(build / name / "bin" / program for program in PROGRAMS), *(build / name / "bin").glob("*.so*")]
        copy_all(files, card / name)
    if (card / "cuda").exists():
        shutil.copy(toolkit(build) / "lib/libcudart.so.13", card / "cuda")
    for program in [*(card / "bin").iterdir(), *card.glob("vulkan/*"), *card.glob("cuda/*")]:
        if not program.is_symlink():
            output(["strip", str(program)])
    with_setting(card / "vulkan", card / "vulkan-khr", "GGML_VK_DISABLE_COOPMAT2=1")
    shutil.copytree(args.llama / "gguf-py/gguf", card / "gguf")
    loader(build / "loader", card / "loader")
    shutil.copy(args.make_models, card / "make_models.py")
    for script in ("card.py", "compare.py"):
        shutil.copy(HERE / script, card)
    commit = commit_of(root, None)
    (card / "commit").write_text(commit)
    # The builds of llama.cpp have libraries in common, which are found in a larger window.
    output(["tar", "-I", "xz -9", "-cf", str(args.archive.resolve()), "-C", str(build), "card"])
    print(f"{args.archive}: {args.archive.stat().st_size / 2**20:.1f} MiB, commit {commit}, llama.cpp {llama}")


def executable(messages, name):
    """Returns the file of a program in Cargo's messages."""
    messages = [json.loads(line) for line in messages.splitlines() if line.startswith('{"reason":"compiler-artifact"')]
    return next(message["executable"] for message in messages if message["target"]["name"] == name and message["executable"])


def commit_of(tree, known):
    """Returns `known`, or the commit of a checkout."""
    return known or output(["git", "-C", str(tree), "describe", "--always", "--dirty"]).strip()


def compile_llama(source, build, options, ninja, jobs):
    # The build of the shader generator searches ninja in PATH.
    env = {**os.environ, "PATH": f"{ninja.parent}:{os.environ['PATH']}"}
    text = output(["cmake", "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}", "-S", str(source), "-B", str(build), *COMMON, *options], env=env)
    if "-DGGML_VULKAN=ON" in options and REQUIRED not in text:
        sys.exit(f"card.py: llama.cpp's configuration does not report {REQUIRED!r}; set a newer glslc with --cmake=-DVulkan_GLSLC_EXECUTABLE=FILE")
    output([str(ninja), "-C", str(build), *([f"-j{jobs}"] if jobs else []), *PROGRAMS], env=env)


def vulkan_options(build, _):
    """Returns options for a build with Vulkan, with the shader compiler of Debian 13 and its own C library."""
    tools = build / "trixie"
    root, compiler = tools / "root/usr", tools / "glslc"
    if not compiler.exists():
        (tools / "lists/partial").mkdir(parents=True, exist_ok=True)
        (tools / "sources.list").write_text(DEBIAN)
        apt = ["apt-get", "-o", f"Dir::Etc::SourceList={tools}/sources.list", "-o", "Dir::Etc::SourceParts=-", "-o", f"Dir::State::Lists={tools}/lists"]
        output([*apt, "update"])
        output([*apt, "download", *SHADERS], tools)
        for package in tools.glob("*.deb"):
            output(["dpkg", "-x", str(package), str(tools / "root")])
        libraries = next(root.glob("lib/*/libshaderc.so.1")).parent
        compiler.write_text(f'#!/bin/sh\nexec "{root}/lib64/ld-linux-x86-64.so.2" --library-path "{libraries}" "{root}/bin/glslc" "$@"\n')
        compiler.chmod(0o755)
    library = next(Path("/usr/lib").glob("*/libvulkan.so.1"), None)
    if not library:
        sys.exit("card.py: libvulkan.so.1 is not installed (Debian package libvulkan1)")
    return ["-DGGML_VULKAN=ON", f"-DVulkan_GLSLC_EXECUTABLE={compiler}", f"-DVulkan_INCLUDE_DIR={root}/include", f"-DVulkan_LIBRARY={library}",
            f"-DCMAKE_PREFIX_PATH={root}"]


def toolkit(build):
    """Returns the folder of CUDA, as the packages of PyPI create it."""
    return build / "toolkit/nvidia/cu13"


def cuda_options(build, args):
    """Returns options for a build with CUDA, with a compiler from PyPI."""
    root = toolkit(build)
    if not (root / "lib/stubs/libcuda.so").exists():
        output([sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target", str(build / "toolkit"), *CUDA])
        # The names that CMake and the linker search.
        (root / "lib64").symlink_to("lib")
        for name in ("cudart", "cublas", "cublasLt"):
            (root / f"lib/lib{name}.so").symlink_to(f"lib{name}.so.13")
        driver_stub(args.llama, root / "lib/stubs")
    return ["-DGGML_CUDA=ON", "-DGGML_CUDA_NCCL=OFF", f"-DCMAKE_CUDA_ARCHITECTURES={args.cuda_arch}", f"-DCUDAToolkit_ROOT={root}",
            f"-DCMAKE_CUDA_COMPILER={root}/bin/nvcc", f"-DCMAKE_EXE_LINKER_FLAGS=-Wl,-rpath-link,{root}/lib:{root}/lib/stubs"]


def driver_stub(llama, folder):
    """Links a library with the functions of CUDA's driver that llama.cpp calls, which only machines with a GPU have."""
    sources = [*(llama / "ggml/src/ggml-cuda").glob("*.cu*")]
    names = {name for source in sources for name in re.findall(r"\bcu[A-Z]\w+(?=\()", source.read_text())}
    folder.mkdir()
    (folder / "cuda.c").write_text("".join(f"void {name}(void) {{}}\n" for name in sorted(names)))
    output(["cc", "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")])
    (folder / "libcuda.so").symlink_to("libcuda.so.1")


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
    if not programs.exists():
        return
    folder.mkdir()
    for program in PROGRAMS:
        script = folder / program
        script.write_text(f'#!/bin/sh\n{setting} exec "$(dirname "$0")/../{programs.name}/{program}" "$@"\n')
        script.chmod(0o755)


def copy_all(files, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copy(file, folder, follow_symlinks=False)


def output(command, cwd=None, env=None):
    """Returns the output of a command; exits if it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"card.py: {' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


# -------------------------------------------------------------------- run


class Failed(Exception):
    """A failed step; `text` is the output of the program until then."""

    def __init__(self, message, text=""):
        super().__init__(message)
        self.text = text


class Run:
    """A benchmark run: paths, environment and results so far."""

    def __init__(self, args):
        self.args, self.shapes, self.end = args, SHAPES[args.shapes], time.monotonic() + args.limit
        self.deadline = self.end
        self.out, self.folder = args.out.resolve(), args.models.resolve()
        for folder in (self.out, self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.env = environment()
        # Isolates the run from the user's tunings and pipeline caches.
        self.env["XDG_CACHE_HOME"] = str(self.folder / "caches")
        self.tabla = str(HERE / "bin/tabla")
        self.details, self.results = [], {"commit": (HERE / "commit").read_text(), "shapes": args.shapes, "steps": {}, "compare": []}
        self.log_file = self.out / "log.txt"
        self.log = open(self.log_file, "a")
        self.writers = {}

    def call(self, command):
        """Returns the standard output of a command; logs standard error. Kills its process group at the deadline of the step."""
        self.log.write(f"\n$ {' '.join(map(str, command))}\n")
        self.log.flush()
        log_start = self.log_file.stat().st_size
        name = next(Path(part).name for part in command if part != sys.executable)
        process = subprocess.Popen(command, env=self.env, stdout=subprocess.PIPE, stderr=self.log, text=True, start_new_session=True)
        try:
            text, _ = process.communicate(timeout=max(0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            text = stopped(process)
            raise Failed(f"{name}: the time of the step is over", text) from None
        if process.returncode != 0:
            self.log.write(text)
            self.log.flush()
            errors = self.log_file.read_bytes()[log_start:].decode(errors="replace")
            raise Failed(f"{name}: exit code {process.returncode}\n\n{errors[-2000:]}", text)
        return text

    def json(self, *command):
        return json.loads(self.call([self.tabla, *command]))

    def write_models(self, steps):
        """Starts to write the missing models of these steps."""
        names = [name for step in steps for name in self.shapes["models"].get(MODELS_OF.get(step, step), [])]
        for file in (self.folder / f"{name}.gguf" for name in dict.fromkeys(names)):
            if not file.exists():
                self.writers[file] = multiprocessing.Process(target=write_model, args=(file,), daemon=True)
                self.writers[file].start()

    def models(self, step):
        """Returns the files of the models of a step, when they are written."""
        files = [self.folder / f"{name}.gguf" for name in self.shapes["models"][MODELS_OF.get(step, step)]]
        for file in files:
            if writer := self.writers.get(file):
                writer.join(max(0, self.deadline - time.monotonic()))
            if not file.exists():
                raise Failed(f"{file.name} is not written")
        return files

    def compare(self, files, tests, peers):
        """Runs compare.py for every file and test."""
        for file in files:
            for test in tests.split(","):
                raw = self.folder / "compare.json"
                command = [sys.executable, str(HERE / "compare.py"), "--device", "gpu", "--tabla", self.tabla, "--tests", test,
                           "--rounds", str(self.args.rounds), "-n", str(self.shapes["generate"]), "--depths", self.shapes["depths"],
                           "-p", self.shapes["prompts"], "--sequences", self.shapes["sequences"], "--timeout", "90",
                           "--commit", self.results["commit"], "--json", str(raw)]
                command += [f"--llama={name}={HERE / PEERS[name]}" for name in self.peers(peers)]
                raw.unlink(missing_ok=True)
                failed = None
                try:
                    text = self.call([*command, str(file)])
                except Failed as error:
                    failed, text = error, error.text
                if raw.exists():
                    self.results["compare"].append(json.loads(raw.read_text()))
                    raw.unlink()
                    self.add_details(f"{file.stem}: {test}", text)
                if failed:
                    raise failed

    def peers(self, names):
        """Returns those of these builds of llama.cpp that find a GPU. Stores why others do not."""
        if "peers" not in self.results:
            self.results["peers"] = {name: state_of(HERE / folder / PROGRAMS[0], self.env) for name, folder in PEERS.items()}
        return [name for name in names if self.results["peers"][name] == "found"]

    def add_details(self, title, text):
        self.details.append(f"## {title}\n\n{text.strip()}\n")
        self.save()

    def save(self):
        (self.out / "report.md").write_text("\n".join([report(self.results), *self.details]))
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")
        self.log.flush()


def stopped(process):
    """Interrupts a process and its children, and kills them if they continue; returns the output."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        return process.communicate(timeout=INTERRUPT_SECONDS)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return process.communicate()[0]


def state_of(program, env):
    """Returns "found" if a build of llama.cpp finds a GPU, otherwise why it does not."""
    if not program.exists():
        return "not in the archive"
    try:
        done = subprocess.run([str(program), "--list-devices"], env=env, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    # It falls back to the CPU without a GPU.
    return "found" if any(":" in line for line in done.stdout.splitlines()[1:]) else "no GPU found"


def environment():
    """Returns the environment of this process, with cuBLAS, and a Vulkan loader and driver if the system has none configured."""
    env = dict(os.environ)
    folders = cublas_folders()
    known = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    if "libvulkan.so.1" not in known:
        folders.append(str(HERE / "loader"))
    if paths := [*folders, *filter(None, [env.get("LD_LIBRARY_PATH")])]:
        env["LD_LIBRARY_PATH"] = ":".join(paths)
    folders = [Path(folder) / "vulkan/icd.d" for folder in ("/etc", "/usr/share", "/usr/local/share", "/usr/local/nvidia/share")]
    drivers = [str(file) for folder in folders for file in sorted(folder.glob("*.json"))]
    nvidia = [file for file in drivers if "nvidia" in file]
    if nvidia and not {"VK_DRIVER_FILES", "VK_ICD_FILENAMES"} & env.keys():
        env["VK_DRIVER_FILES"] = nvidia[0]
    return env


def cublas_folders():
    """Returns the folder with cuBLAS for CUDA 13, of the packages of this Python or of the system, if there is one."""
    package = importlib.util.find_spec("nvidia")
    roots = [*(package.submodule_search_locations if package else []), "/usr/local/cuda"]
    patterns = ["cu13/lib", "cublas/lib", "lib64", "targets/*/lib"]
    found = [file.parent for root in roots for pattern in patterns for file in Path(root).glob(f"{pattern}/libcublas.so.13")]
    return [str(folder) for folder in found[:1]]


def write_model(file):
    """Writes a model; the file name has its shape and type."""
    sys.path.insert(0, str(HERE))
    import make_models
    make_models.SHAPES["llama-3.1-8b"] = EIGHT
    shape = next(shape for shape in make_models.SHAPES if file.stem.startswith(shape + "-"))
    make_models.chunks = repeated(make_models.chunks)
    make_models.write(str(file), shape, file.stem[len(shape) + 1:], 1, None)


def repeated(chunks):
    """Returns a generator of the parts of a tensor that takes rows of large matrices from one part per shape and type, in
    another order in every part. Random numbers and rounding take most of the time otherwise."""
    import numpy
    parts, generator = {}, numpy.random.default_rng(1)

    def part_of(s, tname, seed, name, rows, cols, kind, qt):
        whole = chunks(s, tname, seed, name, rows, cols, kind, qt)
        if cols is None or kind not in ("mat", "embd"):
            yield from whole
            return
        key = (rows, cols, kind, qt)
        if key not in parts:
            parts[key] = next(whole)
        part = parts[key]
        for row in range(0, rows, len(part)):
            yield numpy.roll(part, generator.integers(len(part)), axis=0)[:rows - row]

    return part_of


# ------------------------------------------------------------------ report


def table(heads, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in [heads, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]]) + "\n"


def number(x):
    """Formats a number with three significant digits."""
    return "–" if x is None else f"{x:.0f}" if x >= 100 else f"{x:.3g}"


def report(results):
    """Returns the table of all results."""
    rows = [*check_rows(results), *kernel_rows(results.get("kernels", [])), *compare_rows(results["compare"])]
    for name, state in results.get("peers", {}).items():
        if state != "found":
            rows.append([f"{name}: not measured: {state}"])
    for name, step in results["steps"].items():
        if step["failed"]:
            reason = step["failed"].splitlines()[0]
            rows.append([f"{name}: incomplete: {reason}"])
    heads = ["measurement", "unit", "Tabla", "% of the bandwidth", *PEERS, *(f"ratio to {name}" for name in COMPARED)]
    rows = [[str(cell).replace("|", "/") for cell in row] + ["–"] * (len(heads) - len(row)) for row in rows]
    steps = ", ".join(f"{name} {step['seconds']:.0f} s" for name, step in results["steps"].items())
    lines = [f"Tabla {results['commit']}, {results['shapes']} shapes. {results.get('gpus', '')}", table(heads, rows), f"Steps: {steps}."]
    return "\n\n".join(lines) + "\n"


def check_rows(results):
    """Returns a row for every model and precision: the error of the logits."""
    for row in results.get("check", []):
        yield [f"correctness, {row['model']}, {row['precision']}: {row['verdict']}, limit {row['limit']:.1e}", "error of the logits", f"{row['error']:.1e}"]


def kernel_rows(records):
    """Returns a row for every test and kernel, with the results for all sizes."""
    rates = [r["value"] for r in records if r["what"] == "bandwidth" and "value" in r]
    bandwidth = max(rates, default=None)
    groups = {}
    for record in records:
        groups.setdefault((record["what"], record["test"], record.get("kernel"), record.get("unit")), []).append(record)
    for (what, test, kernel, unit), group in groups.items():
        if unit is None:
            yield from ([f"{what} {test} {record['at']}: failed: {record['failed']}"] for record in group)
            continue
        sizes, values = ", ".join(record["at"] for record in group), [record["value"] for record in group]
        has_share = unit == "GB/s" and bandwidth and what != "bandwidth"
        share = ", ".join(f"{100 * value / bandwidth:.0f}" for value in values) if has_share else "–"
        name = f"{what} {test}: {sizes}" + (f" (`{kernel}`)" if kernel else "")
        yield [name, unit, ", ".join(map(number, values)), share]


def compare_rows(comparisons):
    """Returns a row for every model and test of compare.py's results."""
    for numbers in comparisons:
        records = [record for record in numbers["records"] if "samples" in record]
        for model, name in dict.fromkeys((record["model"], record["name"]) for record in records):
            same = [record for record in records if (record["model"], record["name"]) == (model, name)]
            rates = {program: median(median(r["samples"]) for r in same if r["program"] == program) for program in {r["program"] for r in same}}
            own = rates.get("Tabla")
            ratios = [number(own / rates[peer]) if own and rates.get(peer) else "–" for peer in COMPARED]
            shares = [own * r["token_bytes"] / max(r["memory_samples"]) for r in same if own and r.get("memory_samples") and r.get("token_bytes")]
            share = f"{100 * median(shares):.0f}" if shares and same[0]["test"] == "decode" else "–"
            label = f"{name} sequences" if same[0]["test"] == "batch" else name
            yield [f"{model}, {label}", "tok/s", number(own), share, *(number(rates.get(peer)) for peer in PEERS), *ratios]


# ------------------------------------------------------------------ steps


def check(run):
    """Compares the GPU's logits with the CPU's in f32."""
    import numpy
    gpus = run.json("devices", "--json")["gpus"]
    run.results["gpus"] = "; ".join(f"{gpu['name']} ({gpu['backend']}, {gpu['driver']}), {', '.join(gpu['features'])}" for gpu in gpus)
    rows, file = run.results.setdefault("check", []), run.folder / "logits.npy"
    ids = ",".join(str(37 * n * n % 1000) for n in range(run.shapes["checked"]))

    def logits(model, device, precision):
        """Returns the logits of all tokens (gemv kernels) and of the last token (prefill kernels), which are equal on a CPU."""
        parts = []
        for which in [["--all"], []] if device == "gpu" else [["--all"]]:
            run.call([run.tabla, "logits", *model, "--device", device, "--precision", precision, "--tokens", ids, *which, "-o", str(file)])
            parts.append(numpy.atleast_2d(numpy.load(file).astype(numpy.float64)))
        return [parts[0], parts[-1][-1:]]

    def equal_tokens(model):
        """Returns the number of equal greedy tokens of CPU and GPU before the first difference, out of 16."""
        prompt = ["-p", "{" * 15, "-n", "16", "--temp", "0", "-c", "512", "--ignore-eos"]
        tokens = [run.json("run", *model, "--device", device, "--precision", "exact", "--json", "-q", *prompt)["tokens"] for device in ("cpu", "gpu")]
        return next((at for at, (a, b) in enumerate(zip(*tokens)) if a != b), len(tokens[0]))

    def check_model(name, model):
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
            rows.append({"model": name, "precision": precision, "error": error(actual), "limit": limit, "same_best": same,
                         "equal_tokens": equal, "verdict": "good" if good else "wrong"})

    check_model("built-in", [])
    for model in run.models("check"):
        check_model(model.stem, ["-m", str(model)])
    file.unlink()
    if wrong := [row["model"] for row in rows if row["verdict"] == "wrong"]:
        raise Failed(f"the GPU's logits are wrong: {', '.join(dict.fromkeys(wrong))}")


def kernels(run):
    """Measures products, attention and the overhead of commands with benches/gpu.rs."""
    failed, text = None, ""
    try:
        text = run.call([str(HERE / "bin/gpu"), "--json", *run.shapes["kernels"]])
    except Failed as error:
        failed, text = error, error.text
    # The last line may be cut.
    lines = [line for line in text.splitlines() if line.startswith("{") and line.endswith("}")]
    run.results["kernels"] = [json.loads(line) for line in lines]
    if failed:
        raise failed


def end_to_end(run, step):
    files = run.models(step)
    run.compare(files, "decode", COMPARED)
    run.compare(files, "prefill", PEERS)


def small(run):
    """Measures decode and prefill of the 1B shape."""
    end_to_end(run, "small")


def big(run):
    """Measures decode and prefill of the 8B shape."""
    end_to_end(run, "big")


def others(run):
    """Measures decode and prefill of other models."""
    end_to_end(run, "others")


def batch(run):
    """Measures batched decode."""
    run.compare(run.models("batch"), "batch", COMPARED)


def first(run):
    """Measures loading and time to first token in new processes, with a prompt of 15 or 16 tokens (with BOS)."""
    rows = []
    for file in run.models("first"):
        # No vocabulary here merges braces.
        prompt = ["-p", "{" * 15, "-n", "1", "--temp", "0", "-c", "512"]
        runs = [run.json("run", "-m", str(file), "--device", "gpu", "--json", "-q", *prompt)["timings"] for _ in range(FIRST_RUNS)]
        run.results.setdefault("first", {})[file.stem] = runs
        token = [timing["prompt_ms"] + timing["predicted_ms"] for timing in runs]
        upload = median(timing["upload"]["bytes"] / timing["upload"]["ms"] / 1e6 for timing in runs)
        rows.append([file.stem, runs[0]["prompt_n"], f"{median(token):.1f}", f"{min(token):.1f} to {max(token):.1f}",
                     f"{runs[0]['load_ms']:.0f}", f"{median(timing['load_ms'] for timing in runs[1:]):.0f}", f"{upload:.2f}"])
    heads = ["model", "tokens", "first token, ms", "range of all runs", "first load, ms", "later loads, ms", "upload, GB/s"]
    run.add_details("first token", table(heads, rows))


def commands(run):
    """Measures the time of every command, and the time of a token outside of commands: host and gaps."""
    run.compare(run.models("commands"), "commands", [])
    rows = []
    records = [record for numbers in run.results["compare"] for record in numbers["records"]]
    for record in records:
        if record["test"] == "commands" and "tests" in record:
            test = next(test for test in record["tests"] if test["n_gen"])
            tokens = test["n_gen"] * len(test["samples_ns"])
            inside = sum(group["seconds"] for group in test["commands"]) / tokens * 1e6
            runs = [r for r in records if r["model"] == record["model"] and r.get("submit_us_per_token") is not None and "@" not in r["name"]]
            if not runs:
                continue
            # The model's decode, by the step `small`.
            whole = 1e6 / median(median(r["samples"]) for r in runs)
            submitting = median(r["submit_us_per_token"] for r in runs)
            rows.append([record["model"], f"{whole:.1f}", f"{inside:.1f}", f"{whole - inside:.1f}", f"{submitting:.1f}"])
    heads = ["model", "token, µs", "its commands, timed individually, µs", "remainder, µs", "submission, concurrent with the GPU, µs"]
    run.add_details("time outside of commands", table(heads, rows))


def tune(run):
    """Tunes the kernels of the 1B and 8B shapes, for the steps after it."""
    for step in ("small", "big"):
        for file in run.models(step):
            run.results.setdefault("tune", {})[file.stem] = run.json("tune", "--json", "--device", "gpu", str(file))


# The steps, and their shares of the time. A run without names runs all but `tune`, which changes the results of others.
STEPS = {check: 80, kernels: 110, small: 60, big: 130, others: 60, first: 15, commands: 20, batch: 25, tune: 60}
NAMES = {step.__name__: step for step in STEPS}
# A step may take this many times its share of the time that is left, because the most important steps are first.
EXCESS = 1.5
# Steps that use the models of another one.
MODELS_OF = {"batch": "small", "first": "small", "commands": "small", "tune": "big"}


def measure(args):
    run = Run(args)
    steps = args.steps or [name for name in NAMES if name != "tune"]
    run.write_models(["small", *steps] if "tune" in steps else steps)
    failed = False
    for at, name in enumerate(steps):
        start, left = time.monotonic(), sum(STEPS[NAMES[other]] for other in steps[at:])
        run.deadline = start + max(0, run.end - start) * min(1, EXCESS * STEPS[NAMES[name]] / left)
        reason = None
        try:
            NAMES[name](run)
        # The other steps run also after a fault of this program.
        except Exception as error:
            reason = str(error) if isinstance(error, Failed) else f"{type(error).__name__}: {error}"
            run.log.write(f"\n{name}: {reason}\n")
            failed = True
        seconds = time.monotonic() - start
        run.results["steps"][name] = {"seconds": seconds, "failed": reason}
        run.save()
        print(f"{name}: {'incomplete' if reason else 'done'}, {seconds:.0f} s", file=sys.stderr, flush=True)
    print(report(run.results))
    sys.exit(1 if failed else 0)


# ------------------------------------------------------------------- main


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    packs = commands.add_parser("pack", help="build everything and write an archive")
    packs.add_argument("archive", type=Path, metavar="FILE.tar.xz")
    packs.add_argument("--llama", type=Path, required=True, metavar="FOLDER", help="llama.cpp sources")
    packs.add_argument("--make-models", type=Path, required=True, metavar="FILE.py", help="generator of the models")
    packs.add_argument("--build", type=Path, required=True, metavar="FOLDER", help="build folder; an interrupted build is continued")
    packs.add_argument("--llama-commit", metavar="NAME", help="commit of the llama.cpp sources, if they are not a checkout")
    packs.add_argument("--backends", default="vulkan,cuda", metavar="LIST", help="builds of llama.cpp [%(default)s]")
    packs.add_argument("--cuda-arch", default="90-real", metavar="NAME", help="architectures of the CUDA build, as in CMake [%(default)s]")
    packs.add_argument("--jobs", type=int, metavar="N", help="parallel compilations of llama.cpp [all cores]")
    packs.add_argument("--cmake", action="append", default=[], metavar="=-DNAME=VALUE", help="CMake option for llama.cpp; may be repeated")
    packs.set_defaults(do=pack)
    runs = commands.add_parser("run", help="run benchmarks from an extracted archive")
    runs.add_argument("steps", nargs="*", metavar="STEP", help="; ".join(f"{name}: {step.__doc__}" for name, step in NAMES.items()))
    runs.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    runs.add_argument("--models", type=Path, default=HERE / "models", metavar="FOLDER", help="model folder; missing models are generated [models next to this file]")
    runs.add_argument("--shapes", choices=SHAPES, default="real", help="set of models and sizes [%(default)s]")
    runs.add_argument("--rounds", type=int, default=1, help="rounds of every comparison [%(default)s]")
    runs.add_argument("--limit", type=int, default=480, metavar="SECONDS", help="time limit of all steps [%(default)s]")
    runs.set_defaults(do=measure)
    args = parser.parse_args()
    if unknown := set(vars(args).get("steps", [])) - set(NAMES):
        parser.error(f"unknown steps: {', '.join(sorted(unknown))}")
    return args


if __name__ == "__main__":
    parsed = arguments()
    parsed.do(parsed)
