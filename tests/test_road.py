"""The road of ARCHITECTURE.md: few files, and those that a first sum enters, in that order."""

from __future__ import annotations

import ast
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import picograd
from tests.test_architecture import STAGES, part_at

PACKAGE = Path(picograd.__file__).parent
FILES_MAX, LINES_MAX = 25, 7_000  # of the road
ENTERED_MAX, FUNCTIONS_MAX, SWITCHES_MAX = 54, 660, 6  # files, functions and changes of stage of the example, cold
TRACE = """
import json, os, sys
import picograd as pg

root, functions, calls = os.path.dirname(pg.__file__) + "/", {}, []


def look(frame, event, arg):
    name = frame.f_code.co_filename
    if event == "call" and name.startswith(root):
        calls.append(name[len(root) :])
        functions.setdefault((calls[-1], frame.f_code.co_firstlineno, frame.f_code.co_qualname))


a, b = pg.tensor([1.0, 2.0, 3.0]), pg.tensor([4.0, 5.0, 6.0])
(a * 3.0 - b).max().item()  # what is loaded late is loaded now
sys.setprofile(look)
((a * 2 + b).sum()).tolist()
sys.setprofile(None)
print(json.dumps([list(functions), calls]))
"""


DEFINITIONS = 3  # files at the beginning that define words: read first, entered at any time


class Stop(NamedTuple):
    """A row of the page: a file, and the parts of it that are to be read, or none for all of it."""

    file: str
    parts: list[str]

    def lines(self) -> list[range]:
        """Returns the numbers of the lines to read, by part; a header is read in any case, and no part."""
        text = (PACKAGE / self.file).read_text().splitlines()
        if not self.parts:
            return [range(1, len(text) + 1)]
        found_marks = [(i, re.match(r"( *)# ---- (.*) ----$", line)) for i, line in enumerate(text, 1)]
        marks = [(i, *mark.groups()) for i, mark in found_marks if mark]
        found = dict[str, range]()
        for number, (start, indent, name) in enumerate(marks):
            after = (line for line, other, _ in marks[number + 1 :] if len(other) <= len(indent))
            found.setdefault(name, range(start, next(after, len(text) + 1)))
        return [found[part] for part in self.parts]

    def num_lines(self) -> int:
        header = ast.get_docstring(ast.parse((PACKAGE / self.file).read_text())) or ""
        return sum(map(len, self.lines())) + (len(header.splitlines()) if self.parts else 0)


def road() -> list[Stop]:
    """Returns the files of the road, in the order of the page."""
    text = (PACKAGE.parent / "ARCHITECTURE.md").read_text()
    (page,) = re.findall(r"^## The road\n.*?(?=^## )", text, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| \d+ \| `([\w/]+\.py)` \| (.*?) ?\|", page, re.MULTILINE)
    return [Stop(file, parts.split("; ") if parts else []) for file, parts in rows]


def test_the_road_is_short() -> None:
    assert 15 <= len(road()) <= FILES_MAX and sum(stop.num_lines() for stop in road()) <= LINES_MAX


class Entered(NamedTuple):
    """Code of picograd's that the first sum of a process enters.

    functions:  (file, first line, name), in the order of the first calls
    calls:      the file of each call
    """

    functions: list[tuple[str, int, str]]
    calls: list[str]

    @property
    def num_files(self) -> int:
        return len({file for file, _, _ in self.functions})

    @property
    def num_functions(self) -> int:
        return len({(file, name) for file, _, name in self.functions})

    @property
    def num_defined(self) -> int:
        """Functions except comprehensions, which newer Pythons do not call."""
        return len({(file, name) for file, _, name in self.functions if not re.search(r"<\w+(comp|expr)>$", name)})

    @property
    def num_switches(self) -> int:
        """Changes from one stage of the compiler to another."""
        stages = [stage for stage in map(part_at, map(Path, self.calls)) if stage in STAGES]
        return len(list(itertools.groupby(stages))) - 1


def first_sum(cache: Path) -> Entered:
    """Traces the example in a process of its own, with an empty cache on disk."""
    own = {"PYTHONPATH": str(PACKAGE.parent), "XDG_CACHE_HOME": str(cache), "PICOGRAD_THREADS": "1"}
    command, own = [sys.executable, "-c", TRACE], {"PATH": "/usr/bin:/bin", **own}
    return Entered(*json.loads(subprocess.run(command, env=own, capture_output=True, text=True, check=True).stdout))


def test_a_first_sum_goes_along_the_road(tmp_path: Path) -> None:
    entered = first_sum(tmp_path)
    begun = dict[str, list[int]]()  # file -> lines where functions begin that are entered
    for file, line, _ in entered.functions:
        begun.setdefault(file, []).append(line)
    in_order = [stop.file for stop in road()[DEFINITIONS:]]
    assert [file for file in begun if file in in_order] == in_order
    assert all(stop.file in begun for stop in road())
    for stop in road()[DEFINITIONS:]:
        is_entered = [any(line in part for line in begun[stop.file]) for part in stop.lines()]
        assert all(is_entered) or stop.file == "rewrites/simplify.py", f"{stop}: {is_entered}"  # whose tables are data
    assert entered.num_switches <= SWITCHES_MAX
    assert entered.num_files <= ENTERED_MAX and entered.num_functions <= FUNCTIONS_MAX
