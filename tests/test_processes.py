"""Tests on several processes: each runs once, what fails is said, and a process that ends has failed one test alone."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.forks import Forks

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def pytest_alone() -> Iterator[Forks]:
    """A process that has imported pytest, and not these tests."""
    with closing(Forks("pytest", PYTHONPATH=str(ROOT), PATH="/usr/bin:/bin")) as forks:
        yield forks


@pytest.fixture
def run(tmp_path: Path, pytest_alone: Forks) -> Run:
    """Runs pytest on some files, on two processes."""

    def run_files(*options: str, **files: str) -> subprocess.CompletedProcess[str]:
        for name, text in files.items():
            (tmp_path / f"test_{name}.py").write_text(text)
        plugins = ["-ptests.processes", "-pno:xdist", "-pno:cacheprovider", "-pno:hypothesispytest"]
        arguments = ["-q", "-n2", *plugins, *options]
        program = f"import os, pytest\nos.chdir({str(tmp_path)!r})\nraise SystemExit(pytest.main({arguments}))"
        return pytest_alone.run(program, {"RAN": str(tmp_path / "ran")})

    return run_files


SAYS = """
import os, pathlib, time, pytest
@pytest.mark.parametrize("n", range({count}))
def test_says(n):
    with open(os.environ["RAN"], "a") as ran: ran.write("{name}\\n")
    time.sleep({seconds})
@pytest.fixture(scope="session", autouse=True)
def last():
    yield
    with open(os.environ["RAN"], "a") as ran: ran.write("end %d\\n" % os.getpid())
"""


def test_each_test_runs_once_and_those_of_most_tests_first(run: Run, tmp_path: Path) -> None:
    files = {name: SAYS.format(count=count, name=name, seconds=0.02) for name, count in zip("abcd", (2, 3, 4, 5))}
    done = run(**files)
    assert done.returncode == 0 and "14 passed" in done.stdout and "[100%]" in done.stdout
    lines = (tmp_path / "ran").read_text().splitlines()
    assert [lines.count(name) for name in "abcd"] == [2, 3, 4, 5] and {*lines[:2]} == {"c", "d"}
    assert len({line for line in lines if line.startswith("end")}) == 2, "two processes have ended their fixtures"


def test_what_fails_is_said_with_what_it_printed(run: Run) -> None:
    wrong = "def test_wrong():\n    print('seen')\n    left = [1, 2]\n    assert left == [1, 3]\n"
    late = "import pytest\n@pytest.fixture\ndef late():\n    yield\n    raise OSError('late')\ndef test_late(late): pass\n"
    done = run("-rs", a=wrong + late, b="import pytest\ndef test_skipped(): pytest.skip('a reason')\n")
    assert done.returncode == 1
    for said in ("1 failed, 1 passed, 1 skipped, 1 error", "assert [1, 2] == [1, 3]", "seen", "OSError: late", "a reason"):
        assert said in done.stdout, done.stdout


def test_what_a_test_prints_is_its_own_beside_another_that_prints(run: Run) -> None:
    says = """
import os, time
def test_{name}():
    for i in range(40):
        os.write(1, b"{name}%d," % i)
        time.sleep(0.005)
    assert 0
def test_last(): pass  # while the first runs, another process takes the other file
"""
    done = run(a=says.format(name="a"), b=says.format(name="b"))
    assert all("".join(f"{name}{i}," for i in range(40)) in done.stdout for name in "ab"), done.stdout


@pytest.mark.parametrize("end, status", [("os._exit(3)", "3"), ("os.kill(os.getpid(), 9)", "-9"), ("os._exit(0)", "0")])
def test_a_process_that_ends_has_failed_one_test_alone(end: str, status: str, run: Run) -> None:
    ends = f"import os\ndef test_first(): pass\ndef test_ends(): {end}\ndef test_last(): pass\n"
    done = run(a=ends, b=ends.replace(end, "pass"), c=ends.replace(end, "pass"))
    assert done.returncode == 1 and "1 failed, 8 passed" in done.stdout, done.stdout
    assert f"FAILED test_a.py::test_ends - The process of this test ended with status {status}." in done.stdout


def test_the_first_failure_stops_all(run: Run, tmp_path: Path) -> None:
    done = run("-x", a="def test_wrong(): assert 0\n", b=SAYS.format(count=400, name="b", seconds=0.05))
    assert done.returncode == 1 and "stopping after 1 failures" in done.stdout
    assert (tmp_path / "ran").read_text().count("b\n") < 399


def test_one_file_runs_in_the_first_process(run: Run) -> None:
    done = run(a="import os\nparent = os.getpid()\ndef test_here(): assert os.getpid() == parent\n")
    assert done.returncode == 0


def test_files_that_cannot_be_collected_run_nothing(run: Run, tmp_path: Path) -> None:
    done = run(a="import nowhere\n", **{name: SAYS.format(count=1, name=name, seconds=0) for name in "bc"})
    assert done.returncode == 2 and not (tmp_path / "ran").exists()
