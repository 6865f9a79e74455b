"""Tests of card.py: `python3 -m unittest benches/test_card.py`. Scripts replace the programs of an archive."""
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import card

RECORDS = [
    {"what": "bandwidth", "test": "read", "at": "before", "kernel": "", "value": 2000.0, "unit": "GB/s", "us": 1.0},
    {"what": "gemv", "test": "q4_k", "at": "4096x4096", "kernel": "gemv_add_q4_k", "value": 1500.0, "unit": "GB/s", "us": 6.0},
    {"what": "gemv", "test": "q4_k", "at": "14336x4096", "kernel": "gemv_add_q4_k", "value": 1000.0, "unit": "GB/s", "us": 9.0},
    {"what": "gemm", "test": "f16 4096x4096", "at": "512", "kernel": "gemm_f16", "value": 41.26, "unit": "TFLOP/s", "us": 9.0},
    {"what": "attention", "test": "decode", "at": "16384", "failed": "out of memory"},
]

GPU = f"""#!{sys.executable}
import json, sys, time
assert sys.argv[1:] == ["--json", "--tiny"]
for record in {RECORDS!r}:
    print(json.dumps(record))
print('{{"what": "ge', end="", flush=True)
time.sleep(PAUSE)
"""

# Tokens per second by program.
COMPARE = f"""#!{sys.executable}
import json, sys
value = lambda name: sys.argv[sys.argv.index(name) + 1]
rates = {{"Tabla": [300.0, 310.0, 290.0], "llama.cpp Vulkan": [150.0], "llama.cpp CUDA": [400.0]}}
programs = ["Tabla", *(a.removeprefix("--llama=").partition("=")[0] for a in sys.argv if a.startswith("--llama="))]
facts = {{"Tabla": {{"token_bytes": 1e9, "memory_samples": [1e12, 2e12]}}}}
records = [{{"program": p, "model": "m", "test": value("--tests"), "name": value("--tests"), "samples": rates[p], **facts.get(p, {{}})}} for p in programs if p in rates]
records += [{{"program": p, "model": "m", "test": "decode", "name": "decode", "failed": "no memory"}} for p in programs if p not in rates]
json.dump({{"programs": programs, "records": records}}, open(value("--json"), "w"))
print("details of " + value("--tests"))
"""

LLAMA = """#!/bin/sh
echo "Available devices:"
echo "  Vulkan0: a card"
"""


def archive(folder, pause):
    """Creates an extracted archive with scripts for programs, without a CUDA build."""
    programs = {"bin/gpu": GPU.replace("PAUSE", str(pause)), "compare.py": COMPARE, "vulkan/llama-bench": LLAMA}
    for name, text in {**programs, "card.py": (HERE / "card.py").read_text(), "commit": "abc1234"}.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    (folder / "models").mkdir()
    for step in ("small", "big"):
        for model in card.SHAPES["tiny"]["models"][step]:
            (folder / f"models/{model}.gguf").touch()


def run(folder, *args):
    command = [sys.executable, str(folder / "card.py"), "run", "--shapes", "tiny", "--out", str(folder / "out"), *args]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done, json.loads((folder / "out/results.json").read_text())


class Card(unittest.TestCase):
    def test_help_names_every_step(self):
        text = subprocess.run([sys.executable, str(HERE / "card.py"), "run", "--help"], capture_output=True, text=True, check=True).stdout
        for step in card.NAMES:
            self.assertIn(f"{step}:", text)

    def test_a_run_prints_one_table(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            archive(folder, 0)
            done, results = run(folder, "kernels", "small")
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
            for row in (
                "| bandwidth read: before | GB/s | 2000 | – | – | – | – | – | – |",
                "| gemv q4_k: 4096x4096, 14336x4096 (`gemv_add_q4_k`) | GB/s | 1500, 1000 | 75, 50 | – | – | – | – | – |",
                "| gemm f16 4096x4096: 512 (`gemm_f16`) | TFLOP/s | 41.3 | – | – | – | – | – | – |",
                "| attention decode 16384: failed: out of memory | – | – | – | – | – | – | – | – |",
                "| m, decode | tok/s | 300 | 15 | 150 | – | – | 2 | – |",
                "| m, prefill | tok/s | 300 | – | 150 | – | – | 2 | – |",
                "| llama.cpp CUDA: not measured: not in the archive | – | – | – | – | – | – | – | – |",
            ):
                self.assertIn(row, rows)
            self.assertEqual(len({row.count("|") for row in rows}), 1)
            self.assertEqual(set(results["steps"]), {"kernels", "small"})
            report = (folder / "out/report.md").read_text()
            self.assertIn("details of prefill", report)
            self.assertTrue(report.startswith(done.stdout.strip()), "the table is the start of the report")

    def test_a_step_that_is_cut_keeps_its_results_and_leaves_time_to_others(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = Path(folder)
            archive(folder, 60)
            done, results = run(folder, "--limit", "20", "kernels", "big")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(results["kernels"], RECORDS)
            self.assertIn("| kernels: incomplete: gpu: the time of the step is over |", done.stdout)
            self.assertIn("| m, decode | tok/s | 300 |", done.stdout)
            self.assertIsNone(results["steps"]["big"]["failed"])

    def test_models_have_equal_rows_in_another_order(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        whole = numpy.arange(24).reshape(6, 4)
        parts = card.repeated(lambda *_: iter([whole[:2], whole[2:4], whole[4:]]))
        result = list(parts({}, "F32", 1, "w", 5, 4, "mat", "F32"))
        self.assertEqual([len(part) for part in result], [2, 2, 1])
        rows = {tuple(row) for part in result for row in part.tolist()}
        self.assertLessEqual(rows, {tuple(row) for row in whole[:2].tolist()})
        vectors = list(parts({}, "F32", 1, "w", 6, None, "vec1", "F32"))
        self.assertEqual(len(vectors), 3)


if __name__ == "__main__":
    unittest.main()
