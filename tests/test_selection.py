"""The tests that run by default, in full, in pieces, and by name; what is left out is said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.forks import Forks
from tools.touched import FILES_MAX, some_of
from tools.touched import tests_of as touched_by

ROOT = Path(__file__).resolve().parents[1]
FILE = """
import pytest

@pytest.mark.variants
@pytest.mark.parametrize("n", range(20))
def test_many(n): pass

@pytest.mark.variants(every=2)
@pytest.mark.parametrize("n", range(4))
def test_few(n): pass

@pytest.mark.parametrize("n", range(9))
def test_all(n): pass

@pytest.mark.variants(first=1)
def test_long(): pass
"""


@pytest.fixture(scope="module")
def processes() -> Iterator[Forks]:
    """A process that has imported pytest, and not these tests."""
    with closing(Forks("pytest", PYTHONPATH=str(ROOT), PATH="/usr/bin:/bin", TEST_PART="0/1")) as forks:
        yield forks


@pytest.fixture
def said(tmp_path: Path, processes: Forks):
    """What pytest prints, with some options, in a folder of two files."""
    (tmp_path / "test_a.py").write_text(FILE)
    (tmp_path / "test_b.py").write_text(FILE)
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")

    def run(*options: str) -> str:
        plugins = ["-ptests.selection", "-ptests.processes", "-pno:cacheprovider", "-pno:hypothesispytest", "-pno:xdist"]
        arguments = ["-q", *plugins, *options]
        program = f"import os, pytest\nos.chdir({str(tmp_path)!r})\nraise SystemExit(pytest.main({arguments}))"
        ran = processes.run(program, {})
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    return run


@pytest.mark.parametrize(
    "options, ran, left",
    [
        ((), 2 * (2 + 2 + 9), 2 * (18 + 2 + 1)),
        (("-n", "0"), 2 * (2 + 2 + 9), 2 * (18 + 2 + 1)),
        (("--full",), 2 * 34, 0),
        (("--in-full", "test_a.py"), 34 + 13, 21),
        (("test_a.py",), 13, 21),
        (("test_a.py::test_many",), 20, 0),
        (("test_a.py::test_many[5]",), 1, 0),
    ],
    ids=str,
)
def test_variants_are_left_out_unless_they_are_asked_for(said, options, ran, left) -> None:
    text = said(*options)
    assert f"{ran} passed" in text
    assert (f"\n{left} variants were left out: python -m pytest --full runs them, too.\n" in text) == (left > 0)
    assert ("variants were left out" in text) == (left > 0)


def test_tenths_are_all_variants_once(said) -> None:
    rows = [
        {line for line in said("--collect-only", "--tenth", str(tenth)).splitlines() if "::" in line} for tenth in range(10)
    ]
    default = {line for line in said("--collect-only").splitlines() if "::" in line}
    everything = {line for line in said("--collect-only", "--full").splitlines() if "::" in line}
    assert set().union(*rows) == everything
    assert sum(len(each - default) for each in rows) == len(everything - default)


def test_a_changed_file_touches_its_tests() -> None:
    files = ["picograd/engine/known.py", "tests/test_public.py", "tests/conftest.py", "README.md", "picograd/no/such.py"]
    assert touched_by(files) == ["tests/engine/test_known.py", "tests/test_public.py"]


def test_of_very_many_touched_files_each_commit_has_others() -> None:
    few, many = [f"test_{i}.py" for i in range(FILES_MAX)], [f"test_{i}.py" for i in range(3 * FILES_MAX + 1)]
    assert some_of(few, "5") == few and some_of([], "5") == []
    parts = [some_of(many, f"{commit:x}") for commit in range(4)]
    assert max(map(len, parts)) <= FILES_MAX and sorted(sum(parts, [])) == sorted(many)
