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


@in_full
def test_sums_may_wait_before_each_step_but_not_be_made_by_one_thread(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "conftest.py", tmp_path)
    solution = (EXERCISES / "solutions" / "2_sum.py").read_text()
    assert TREE in solution
    for name, instead in (("right", BARRIER_FIRST), ("wrong", ONE_THREAD)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "2_sum.py").write_text(solution.replace(TREE, instead))
        shutil.copy(EXERCISES / "test_2_sum.py", tmp_path / name)
    done = run_exercises("--import-mode=importlib", "-k", "threads_share", str(tmp_path))
    assert re.findall(r"^FAILED .*?/(\w+)/test_2_sum", done.stdout, re.MULTILINE) == ["wrong"], done.stdout[-3000:]
    assert "1 passed" in done.stdout
