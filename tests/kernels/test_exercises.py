"""The exercises of docs/kernels.md: their solutions pass the tests, and none passes before it is done."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import in_full
from tests.host_compilers import needs_compiler

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = ROOT / "docs" / "kernels" / "exercises"
NAMES = {path.stem for path in EXERCISES.glob("[0-9]*.py")}
SOME = sorted(NAMES)[::3]
pytestmark = needs_compiler
parts = pytest.mark.parametrize(
    "names", [SOME, pytest.param(sorted(NAMES - {*SOME}), marks=pytest.mark.variants(first=1))], ids=["some", "others"]
)


def run_exercises(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests as a reader does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", "-rA", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def test_each_exercise_has_a_test_a_solution_and_a_row_of_the_page() -> None:
    assert len(NAMES) == 5
    assert {path.stem for path in EXERCISES.glob("test_*.py")} == {f"test_{name}" for name in NAMES}
    assert {path.stem for path in (EXERCISES / "solutions").glob("*.py")} == NAMES
    page = (ROOT / "docs" / "kernels.md").read_text()
    assert set(re.findall(r"\]\(kernels/exercises/(\w+)\.py\)", page)) == NAMES


def files(names: list[str]) -> list[str]:
    return [str(EXERCISES / f"test_{name}.py") for name in names]


@parts
def test_solutions_pass_the_tests_of_their_exercises(names: list[str]) -> None:
    done = run_exercises(*files(names), "--solutions")
    assert done.returncode == 0, done.stdout[-3000:]


@parts
def test_no_exercise_passes_before_it_is_done(names: list[str]) -> None:
    done = run_exercises(*files(names))
    failed = set(re.findall(r"^(?:FAILED|ERROR) .*?/test_(\w+)\.py", done.stdout, re.MULTILINE))
    assert failed == {*names}, done.stdout[-3000:]


# ---- answers of readers ----
TREE = """  __syncthreads();
  for (int step = 64; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
"""
BARRIER_FIRST = """  for (int step = 64; step > 0; step /= 2) {
    __syncthreads();
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
  }
"""
ONE_THREAD = """  __syncthreads();
  for (int i = 1; i < 128; i++)
    if (threadIdx.x == 0) sums[0] += sums[i];
"""


PAIRS_APART = """  __syncthreads();
  for (int step = 1; step < 128; step *= 2) {
    if (threadIdx.x % (2 * step) == 0) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
"""
ONE_ELEMENT = """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  float value = fmaxf(x[i], 0.0f);
  out[i] = value * value;
"""
EACH_ALL = """  for (int i = 0; i < count; i++) {
    float value = fmaxf(x[i], 0.0f);
    out[i] = value * value;
  }
"""
ANSWERS = {  # exercise, a part of its solution, the reader's instead
    "right barrier before a step": ("2_sum", TREE, BARRIER_FIRST),
    "right pairs from the next to the farthest": ("2_sum", TREE, PAIRS_APART),
    "wrong one thread adds": ("2_sum", TREE, ONE_THREAD),
    "wrong each thread has all elements": ("1_relu", ONE_ELEMENT, EACH_ALL),
    "wrong maximum begins with zero": ("4_softmax", "-3.4e38f", "0.0f"),
}


@in_full
def test_answers_of_readers_are_told_apart(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "conftest.py", tmp_path)
    for name, (exercise, part, instead) in ANSWERS.items():
        folder, solution = tmp_path / name.replace(" ", "_"), (EXERCISES / "solutions" / f"{exercise}.py").read_text()
        assert part in solution
        folder.mkdir()
        (folder / f"{exercise}.py").write_text(solution.replace(part, instead))
        shutil.copy(EXERCISES / f"test_{exercise}.py", folder)
    chosen = "threads_share or thread_has or exponentials"
    done = run_exercises("--import-mode=importlib", "-k", chosen, str(tmp_path))
    failed, passed = (
        set(re.findall(rf"^{verdict} .*?/(\w+)/test_", done.stdout, re.MULTILINE)) for verdict in ("FAILED", "PASSED")
    )
    names = {name.replace(" ", "_") for name in ANSWERS}
    assert failed == {name for name in names if name.startswith("wrong")}, done.stdout[-3000:]
    assert passed >= names - failed
