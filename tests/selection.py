"""Chooses among variants: `python -m pytest` runs every test, and of long tables of variants some rows; `--full` runs all.

A test whose rows are variants of one thing (shapes, dtypes, seeds, devices) has the mark `variants`: by default every
sixteenth row runs, from the first on (`every=4`: every fourth). `first=1` begins with the second row, so that a test of one
row is left out: a long one whose subject others test, too. `--tenth K` adds a tenth of the others, for a run in pieces;
`--in-full PATH`, any number of times, leaves nothing out of a file or a folder. Tests named by "::" always run.
TEST_PART="2/8" runs every eighth of all tests, from the third on. The last line has the number of tests that were left out.

In:    marks, options, TEST_PART
Out:   the tests to run
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

EVERY = 16
LEFT_OUT = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of this file."""
    group = parser.getgroup("picograd")
    group.addoption("--full", action="store_true", help="run all variants")
    group.addoption("--tenth", type=int, metavar="K", help="run a tenth of the variants that are left out, too: 0 to 9")
    group.addoption("--in-full", action="append", default=[], metavar="PATH", help="run all variants of a file or folder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Variants are left out, then the parts of TEST_PART that are not asked for."""
    left_out = _left_out(config, items)
    config.stash[LEFT_OUT] = len(left_out)
    gone = set(left_out)
    kept = [item for item in items if item not in gone]
    part, _, count = os.environ.get("TEST_PART", "0/1").partition("/")
    others = [item for i, item in enumerate(kept) if i % int(count) != int(part)]
    items[:] = kept[int(part) :: int(count)]
    config.hook.pytest_deselected(items=left_out + others)


def _left_out(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Returns the variants that do not run by default, without the tenth that is asked for."""
    named = {arg.split("::", 1)[1].split("[")[0] for arg in config.args if "::" in arg}
    whole = [Path(path).resolve() for path in config.option.in_full]
    if missing := [str(path) for path in whole if not path.exists()]:
        raise pytest.UsageError(f"--in-full: {', '.join(missing)} is not there.")
    rows, variants = Counter[str](), 0
    left_out: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("variants")
        file, function = item.nodeid.split("[")[0].split("::", 1)
        if mark is None or config.option.full or function in named or any(item.path.is_relative_to(w) for w in whole):
            continue
        row = rows[file + function]
        rows[file + function] += 1
        every = mark.kwargs.get("every", EVERY)
        if row % every != mark.kwargs.get("first", 0) % every:
            variants += 1
            if variants % 10 != config.option.tenth:
                left_out.append(item)
    return left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The last line says what was left out, and how to run it."""
    count = config.stash.get(LEFT_OUT, 0)
    if count:
        terminalreporter.line(f"{count:,} variants were left out: python -m pytest --full runs them, too.")
