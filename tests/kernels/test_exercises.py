"""The exercises of docs/kernels.md: their solutions pass the tests, and none passes before it is done."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.host_compilers import needs_compiler

ROOT = Path(__file__).resolve().parents[2]
EXERCISES = ROOT / "docs" / "kernels" / "exercises"
NAMES = {path.stem for path in EXERCISES.glob("[0-9]*.py")}
pytestmark = needs_compiler


def run_exercises(*options: str) -> subprocess.CompletedProcess[str]:
    """Runs the tests as a reader does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=line", "-rA", str(EXERCISES), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)


def test_each_exercise_has_a_test_a_solution_and_a_row_of_the_page() -> None:
    assert len(NAMES) == 5
    assert {path.stem for path in EXERCISES.glob("test_*.py")} == {f"test_{name}" for name in NAMES}
    assert {path.stem for path in (EXERCISES / "solutions").glob("*.py")} == NAMES
    page = (ROOT / "docs" / "kernels.md").read_text()
    assert set(re.findall(r"\]\(kernels/exercises/(\w+)\.py\)", page)) == NAMES


def test_solutions_pass_the_tests_of_their_exercises() -> None:
    done = run_exercises("--solutions")
    assert done.returncode == 0, done.stdout[-3000:]


def test_no_exercise_passes_before_it_is_done() -> None:
    done = run_exercises()
    failed = set(re.findall(r"^(?:FAILED|ERROR) .*?/test_(\w+)\.py", done.stdout, re.MULTILINE))
    assert failed == NAMES, done.stdout[-3000:]
