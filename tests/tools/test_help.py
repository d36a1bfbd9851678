"""Programs of tools/ and bench/ answer --help, and refuse options they do not have, before they write anything."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = [path for folder in ("tools", "bench") for path in sorted((ROOT / folder).glob("*.py"))]
STARTED_BY_OTHERS = {"bench/cliffs_worker.py", "bench/first_step.py", "bench/worker.py", "tools/gpu_check.py"}


def test_every_program_that_a_person_starts_reads_its_options_by_a_parser() -> None:
    programs = [path for path in PROGRAMS if "__main__" in path.read_text()]
    without = [path for path in programs if not re.search(r"tyro\.cli|parse\(\)|parse_args", path.read_text())]
    assert {str(path.relative_to(ROOT)) for path in without} - {"tools/touched.py"} == STARTED_BY_OTHERS


@pytest.mark.parametrize("name", ["tools.api", "tools.pages", "bench.kernels"])
def test_an_option_that_is_not_there_is_refused(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", name, "--bogus"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "--bogus" in done.stdout + done.stderr
    assert not (ROOT / "--bogus").exists()
