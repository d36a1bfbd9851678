"""bench.gpu: what it runs, and that it runs where only picograd, NumPy and PyTorch are. Times nothing that is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import gpu, gpu_sweep, machine
from bench.gpu_cases import all_cases, drawn
from tests.host_compilers import needs_compiler

ROOT = Path(__file__).resolve().parent.parent


def test_every_case_comes_once_and_what_torch_compiles_again() -> None:
    found = list(gpu.selected(gpu.parse([])))
    names = [name for name, _, _ in found]
    assert len(set(names)) == len(names)
    assert names[: len(all_cases(False))] == list(all_cases(False))
    assert all(variants == ["picograd", "torch"] for _, _, variants in found[: len(all_cases(False))])
    assert all(variants == ["picograd", "compiled"] for _, _, variants in found[len(all_cases(False)) :])
    assert not any("matmul" in name for name in names if name.endswith(", compiled"))


@pytest.mark.req("G13")
def test_products_come_in_four_precisions_and_sizes_up_to_8192() -> None:
    cases = all_cases(False)
    for n in (512, 1024, 2048, 4096, 8192):
        kinds = [(cases[f"matmul {label} {n}"].dtype, cases[f"matmul {label} {n}"].takes_tf32) for label in
                 ("float32", "tf32", "float16", "bfloat16")]  # fmt: skip
        assert kinds == [("float32", False), ("float32", True), ("float16", False), ("bfloat16", False)]


def test_only_some_of_a_large_result_is_compared() -> None:
    few, many = np.ones((3, 5), np.float32), np.arange(1 << 22, dtype=np.float32).reshape(1 << 11, 1 << 11)
    assert gpu.some_of(few).shape == (15,) and gpu.some_of(few).dtype == np.float64
    some = gpu.some_of(many)
    assert gpu.MOST_COMPARED // 2 < some.size <= 2 * gpu.MOST_COMPARED
    assert len(set((some % (1 << 11)).tolist())) == 1 << 11  # every column


def test_arrays_are_drawn_once_for_all_frameworks() -> None:
    assert drawn(((2, 3),)) is drawn(((2, 3),))


def test_a_copy_without_git_is_told_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_git", lambda *words: "")
    assert machine.describe_commit()["commit"] == "unknown"
    monkeypatch.setenv("BENCH_COMMIT", "0123abc")
    assert machine.describe_commit()["commit"] == "0123abc"


def test_it_runs_without_a_gpu_and_without_command_line_packages(tmp_path: Path) -> None:
    """As on a machine with a GPU where picograd is a folder: no tyro."""
    code = "import sys; sys.modules['tyro'] = None; from bench import gpu; gpu.main(gpu.parse(sys.argv[1:]))"
    words = ["--device", "CPU", "--small", "--variants", "picograd", "--only", "launch,matmul tf32 64,softmax"]
    command = [sys.executable, "-c", code, *words, "--json", str(tmp_path / "found.json")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "found.json").read_text())
    assert len(report["copy_bytes_per_s"]) == gpu.SAMPLES and report["commit"]
    names = ["launch: one element", "launch: 100 small products", "softmax", "softmax, gradients", "matmul tf32 64"]
    assert list(report["cases"]) == names
    assert all(len(case["picograd"]["samples"]) == gpu.SAMPLES for case in report["cases"].values())


@needs_compiler
def test_the_sweep_checks_candidates_of_products_and_attention_and_does_none_twice(tmp_path: Path) -> None:
    """On the simulator, where nothing is timed: the programs that a GPU is lent for a few minutes for run to their end."""
    file = tmp_path / "sweep.json"
    words = ["--simulate", "--json", str(file), "--only", "check,gradient", "--threads", "2", "--minutes"]
    command = [sys.executable, "-m", "bench.gpu_sweep", *words]
    done = subprocess.run([*command, "5"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(file.read_text())
    for part, least in (("products", 3), ("attention", 6)):
        results = found[part]["results"]
        assert len(results) >= least and not any("error" in told for told in results.values()), results
        assert all(told["distance"] < 1e-2 for told in results.values()), results
    assert found["others"]["status"] == 0 and "step" in done.stdout
    again = subprocess.run([*command, "0.5"], cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert json.loads(file.read_text())["products"]["results"] == found["products"]["results"]
    assert "0 variants in" in again.stdout


def test_the_sweep_ranks_candidates_that_are_right() -> None:
    results = {
        "a|torch": {"samples": [0.5]}, "a|first": {"samples": [3.0, 2.0, 2.5]},
        "a|second": {"samples": [2.0], "distance": 1e-3}, "a|wrong": {"samples": [1.0], "distance": 0.5},
        "a|hangs": {"error": "hangs"}, "b|only": {"samples": [1.0]},
    }  # fmt: skip
    found = gpu_sweep.ranks(results)
    assert found["a"] == {"best": "second", "seconds": 2.0, "model": "first", "slower": 1.25}
    assert gpu_sweep.lines(found)[0].split()[:2] == ["1.250", "a"] and "second, not first" in gpu_sweep.lines(found)[0]
    assert gpu_sweep.lines(found)[1].endswith("only")
