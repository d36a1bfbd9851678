"""The tests that run by default, in full, in pieces, and by name; what is left out is said."""

from __future__ import annotations

import re
from collections import Counter
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


RUNS = {  # options, and how many tests run and are left out
    (): (2 * (2 + 2 + 9), 2 * (18 + 2 + 1)),
    ("-n", "0"): (2 * (2 + 2 + 9), 2 * (18 + 2 + 1)),
    ("--full",): (2 * 34, 0),
    ("--in-full", "test_a.py"): (34 + 13, 21),
    ("test_a.py",): (13, 21),
    ("test_a.py::test_many",): (20, 0),
    ("test_a.py::test_many[5]",): (1, 0),
}
TENTHS = [("--collect-only", "--tenth", str(tenth)) for tenth in range(10)]
LISTS = [*TENTHS, ("--collect-only",), ("--collect-only", "--full")]
WRONG = ("--in-full", "test_moved.py")
PROGRAM = """
import os, pytest, sys
os.chdir({folder!r})
sys.stderr = sys.stdout
plugins = ["-ptests.selection", "-ptests.processes", "-pno:cacheprovider", "-pno:hypothesispytest", "-pno:xdist"]
for options in {runs!r}:
    assert pytest.main(["-q", *plugins, *options]) == (pytest.ExitCode.USAGE_ERROR if options == {wrong!r} else 0)
    print({end!r}, flush=True)
"""
END = "---- the end of a run ----"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], str]:
    """Output of pytest by its options, in a folder of two files: in one process, which these tests are not in."""
    folder, runs = tmp_path_factory.mktemp("tests"), [*RUNS, *LISTS, WRONG]
    (folder / "test_a.py").write_text(FILE)
    (folder / "test_b.py").write_text(FILE)
    (folder / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    with closing(Forks("pytest", PYTHONPATH=str(ROOT), PATH="/usr/bin:/bin", TEST_PART="0/1")) as processes:
        ran = processes.run(PROGRAM.format(folder=str(folder), runs=runs, wrong=WRONG, end=END), {})
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return dict(zip(runs, ran.stdout.split(END)[:-1], strict=True))


@pytest.mark.parametrize("options", RUNS, ids=str)
def test_variants_are_left_out_unless_they_are_asked_for(said, options) -> None:
    text, (ran, left) = said[options], RUNS[options]
    assert f"{ran} passed" in text
    assert (f"\n{left} variants were left out: python -m pytest --full runs them, too.\n" in text) == (left > 0)
    assert ("variants were left out" in text) == (left > 0)


def test_tenths_are_all_variants_once(said) -> None:
    *rows, default, everything = ({line for line in said[run].splitlines() if "::" in line} for run in LISTS)
    assert set().union(*rows) == everything
    assert sum(len(each - default) for each in rows) == len(everything - default)


def test_files_to_run_in_full_are_there(said) -> None:
    assert "--in-full: " in said[WRONG] and "test_moved.py is not there." in said[WRONG]
    named = re.findall(r"\btests/\S+\.py\b", (ROOT / ".ci" / "run").read_text())
    assert len(named) >= 6 and [path for path in named if not (ROOT / path).is_file()] == []


def test_a_changed_file_touches_its_tests() -> None:
    files = ["picograd/engine/known.py", "tests/test_public.py", "tests/conftest.py", "README.md", "picograd/no/such.py"]
    assert touched_by(files) == ["tests/engine/test_known.py", "tests/test_public.py"]


def test_of_very_many_touched_files_each_commit_has_others() -> None:
    few, many = [f"test_{i}.py" for i in range(FILES_MAX)], [f"test_{i}.py" for i in range(3 * FILES_MAX + 1)]
    assert some_of(few, "5") == few and some_of([], "5") == []
    parts = [some_of(many, f"{commit:x}") for commit in range(4)]
    assert max(map(len, parts)) <= FILES_MAX and sorted(sum(parts, [])) == sorted(many)


def test_files_of_folders_that_are_no_packages_have_names_of_their_own() -> None:
    """Two of one name are one module to Python: pytest would collect neither."""
    folder = Path(__file__).parent
    names = [file.name for file in folder.rglob("test_*.py") if not (file.parent / "__init__.py").exists()]
    assert [name for name, count in Counter(names).items() if count > 1] == []
