"""Prints the tests that a change touches, as options for pytest: what CI runs in full.

    python -m pytest $(python -m tools.touched)

A changed file of tests is touched, and the tests of a changed file of picograd: those of picograd/a/b.py, and those of
picograd_a/b.py, are in tests/a/test_b.py. A change is the commits of the four hours before the last one; of a clone without
an earlier commit nothing is printed. A change that touches most of picograd, as a move of files does, would run all
variants, for hours: of more than FILES_MAX files so many are printed, others for each commit.

In:    the history of git
Out:   "--in-full PATH" for each file
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGE_SECONDS = 4 * 60 * 60  # a change is landed in a few hours
FILES_MAX = 80  # in full they take about as long as the default selection


def git(*words: str) -> list[str]:
    """Returns the lines that a command of git prints."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[:-1]


def changed_files() -> list[str]:
    """Returns the files that differ between the last commit and the last one that is four hours older."""
    [last] = git("log", "-1", "--format=%ct")
    before = git("rev-list", "-1", f"--before={int(last) - CHANGE_SECONDS}", "HEAD")
    return git("diff", "--name-only", before[0], "HEAD") if before else []


def tests_of(files: Iterable[str]) -> list[str]:
    """Returns the files of tests that are changed, or whose subject is, in order of name."""
    found = set()
    for file in map(Path, files):
        if file.parts[0] == "picograd":
            file = Path("tests", *file.parts[1:-1], f"test_{file.name}")
        elif file.parts[0].startswith("picograd_"):
            file = Path("tests", file.parts[0].removeprefix("picograd_"), *file.parts[1:-1], f"test_{file.name}")
        if file.parts[0] == "tests" and file.name.startswith("test_") and (ROOT / file).is_file():
            found.add(str(file))
    return sorted(found)


def some_of(files: list[str], commit: str) -> list[str]:
    """Returns FILES_MAX of the files at most, spread over all of them; which ones follows from the commit."""
    every = -(-len(files) // FILES_MAX) if files else 1
    return files[int(commit, 16) % every :: every]


if __name__ == "__main__":
    [head] = git("rev-parse", "HEAD")
    print(*(f"--in-full {path}" for path in some_of(tests_of(changed_files()), head)))
