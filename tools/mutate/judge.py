"""Makes one change at a time in a process that has all tests collected, and runs the tests that get to its place.

A plugin of pytest. With MUTATE_TASK=FILE (what `judge` in __main__.py writes) it runs no test itself: for each change it
forks, puts the changed code into the functions of the child, and lets the child run the tests of the change until the first
fails. Nothing is imported or collected again, no file is written over, and what one change did to a process dies with it.
What is computed while a file is loaded cannot be changed in this way: there the change is made by the loader of a new
process (`fresh`). The test that noticed must pass in a child without the change, or it says nothing and is struck off.

In:    MUTATE_TASK
Out:   a line of JSON for each change, as it comes
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import inspect
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from tools.mutate.caches import Caches, all_objects
from tools.mutate.changes import ROOT, Mutant

MEMORY_NBYTES = 12 << 30  # of a child: a change that asks for ever more is noticed, too
NO_END_S = 60  # seconds beyond ten times the usual: a loop that never ends is noticed, too


# ---- changing functions that are loaded ----
def _codes(code: CodeType, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], CodeType]:
    """Returns a code and those inside it, by their place."""
    found = {path: code}
    for i, const in enumerate(const for const in code.co_consts if isinstance(const, CodeType)):
        found |= _codes(const, (*path, i))
    return found


def _own(code: CodeType) -> tuple[Any, ...]:
    """Returns what a code does, without those inside it."""
    consts = [(type(const), repr(const)) for const in code.co_consts if not isinstance(const, CodeType)]
    return code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars


def replacements(old: CodeType, new: CodeType) -> list[tuple[CodeType, CodeType]] | None:
    """Returns pairs of a function's code and what it becomes; None: the change is felt while the file is loaded."""
    before, after = _codes(old), _codes(new)
    if before.keys() != after.keys():
        return None
    changed = [path for path, code in before.items() if _own(code) != _own(after[path])]
    if not changed or any(not before[path].co_flags & inspect.CO_OPTIMIZED for path in changed):
        return None
    inside = {path[:depth] for path in changed for depth in range(len(path) + 1)}
    return [(before[path], after[path]) for path in inside if before[path].co_flags & inspect.CO_OPTIMIZED]


def change_functions(mutant: Mutant) -> bool:
    """Puts a change into the functions of this process; returns whether there was one to change."""
    path = str(ROOT / mutant.file)
    text = Path(path).read_text()
    pairs = replacements(compile(text, path, "exec"), compile(mutant.applied(text), path, "exec"))
    if pairs is None:
        return False
    found = 0
    functions = [one for one in all_objects() if type(one) is FunctionType and one.__code__.co_filename == path]
    for function in functions:
        for old, new in pairs:
            same = function.__code__.co_firstlineno == old.co_firstlineno and function.__code__.co_name == old.co_name
            if same and _own(function.__code__) == _own(old):
                if old.co_freevars != new.co_freevars:
                    return False
                function.__code__ = new
                found += 1
    Caches().forget()
    return found > 0


# ---- changing a file while it is loaded ----
class Changed:
    """Finds one file of picograd, and loads it with a change."""

    def __init__(self, mutant: Mutant):
        self.mutant, self.name = mutant, mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        mutant = self.mutant

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return compile(mutant.applied(Path(self.path).read_text()), self.path, "exec", dont_inherit=True)

        return importlib.util.spec_from_loader(name, Loader(name, str(ROOT / mutant.file)))


# ---- one child ----
class Child:
    """A process that runs tests in an order, and says when one begins and when one fails."""

    def __init__(self, mutant: Mutant | None, items: list[pytest.Item]):
        self.lines = b""
        self.reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self.reader)
                code = run_tests(mutant, items, writer)
            except BaseException:
                os.write(writer, f"broken {traceback.format_exc()!r}\n".encode())
            finally:
                os._exit(code)
        os.close(writer)

    def line(self, limit_s: float) -> str | None:
        """Returns what the child says next; "": it is gone; None: nothing, for too long."""
        end = time.monotonic() + limit_s
        while b"\n" not in self.lines:
            if not select.select([self.reader], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            got = os.read(self.reader, 65536)
            if not got:
                return ""
            self.lines += got
        line, self.lines = self.lines.split(b"\n", 1)
        return line.decode()

    def over(self) -> int:
        """Ends the child and returns its status."""
        os.close(self.reader)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


failures: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures.append(report.nodeid)


def run_tests(mutant: Mutant | None, items: list[pytest.Item], writer: int) -> int:
    """Runs tests in the child until the first fails."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_NBYTES, MEMORY_NBYTES))
    if mutant is not None and not change_functions(mutant):
        os.write(writer, b"fresh\n")
        return 0
    for item, following in zip(items, [*items[1:], None]):
        os.write(writer, f"begins {item.nodeid}\n".encode())
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if failures:
            os.write(writer, f"fails {item.nodeid}\n".encode())
            return 0
    os.write(writer, b"passed\n")
    return 0


Outcome = tuple[str | None, str, int]


def first_failure(mutant: Mutant | None, items: list[pytest.Item], seconds: dict[str, float]) -> Outcome:
    """Returns the test that fails (None: all pass), how ("fails", "does not end", "crashes", "fresh"), and how many ran."""
    child = Child(mutant, items)
    test, ran = "", 0
    try:
        while True:
            line = child.line(NO_END_S + 10 * seconds.get(test, 1.0))
            if line is None or line == "":
                return test, "crashes" if line == "" else "does not end", ran
            how, _, named = line.partition(" ")
            if how == "broken":
                raise RuntimeError(f"the child failed outside the tests: {named}")
            if how == "begins":
                test, ran = named, ran + 1
            else:
                return (named or None), how, ran
    finally:
        child.over()


# ---- all changes ----
class Judge:
    """Judges the changes of a task, and writes each verdict down as it comes."""

    def __init__(self, task: dict[str, Any], items: list[pytest.Item]):
        self.items = {item.nodeid: item for item in items}
        self.mutants = [Mutant.of(one) for one in task["mutants"]]
        self.order: list[list[str]] = task["order"]
        self.seconds: dict[str, float] = task["seconds"]
        self.verdicts = Path(task["verdicts"])
        self.changed_already: bool = task["changed_already"]
        self.sound: dict[str, bool] = {}

    def is_sound(self, test: str) -> bool:
        """Returns whether a test passes without a change."""
        if test not in self.sound:
            self.sound[test] = self.changed_already or first_failure(None, [self.items[test]], self.seconds)[1] == "passed"
        return self.sound[test]

    def judge(self, number: int) -> dict[str, Any]:
        """Returns the verdict on a change."""
        mutant, tests = self.mutants[number], [test for test in self.order[number] if test in self.items]
        begun = time.monotonic()
        while True:
            asked = [self.items[test] for test in tests if self.sound.get(test, True)]
            noticed, how, ran = first_failure(None if self.changed_already else mutant, asked, self.seconds)
            if noticed is None or self.is_sound(noticed):
                break
        found = {"file": mutant.file, "line": mutant.line, "kind": mutant.kind, "target": mutant.target}
        took = round(time.monotonic() - begun, 1)
        return {**found, "noticed_by": noticed, "how": how, "ran": ran, "of": len(asked), "seconds": took}


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if TASK is None:
        return None
    judge = Judge(TASK, session.items)
    for number in range(len(judge.mutants)):
        line = json.dumps({"number": TASK["numbers"][number], **judge.judge(number)})
        with judge.verdicts.open("a") as file:
            file.write(line + "\n")
    return True


TASK = json.loads(Path(os.environ["MUTATE_TASK"]).read_text()) if "MUTATE_TASK" in os.environ else None
if TASK is not None and TASK["changed_already"]:
    (only,) = TASK["mutants"]
    if any(name.replace(".", "/") + ".py" == only["file"] for name in sys.modules):
        raise ImportError(f"{only['file']} was loaded before its change could be made.")
    sys.meta_path.insert(0, Changed(Mutant.of(only)))  # type: ignore[arg-type]
