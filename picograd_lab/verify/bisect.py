"""`picograd bisect SCRIPT`: the option, or the application of a rewrite rule, that makes a program's result wrong.

In:    a program that ends with an error (such as an assert, or a script of `picograd verify --save`) or with a mismatch
Out:   the option; or the rule, with its Op and the user's lines

The program runs again and again, each time in its own process and with one feature turned off, until it is right: the
cache on disk, the compiler as a whole, options, jit, all rules of algebra. Then a binary search finds the first rule that
matters (rules.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from picograd.config import setting
from picograd.errors import DataError
from picograd.ir.bodies import at_once
from picograd.ir.origin import lines_of
from picograd.ir.text import neighbourhood
from picograd.record import Record, replace
from picograd_lab.verify.rules import limited
from picograd_lab.verify.run import run_program
from picograd_lab.verify.watch import Watcher, watching

NO_CACHE = {"PICOGRAD_CACHE": "off"}
OPTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("plain sums of products, no library (PICOGRAD_PLAIN_SUMS=1)", {"PICOGRAD_PLAIN_SUMS": "1"}),
    ("one thread (PICOGRAD_THREADS=1)", {"PICOGRAD_THREADS": "1"}),
    ("short vectors (PICOGRAD_CPU=sse)", {"PICOGRAD_CPU": "sse"}),
    ("no tuning (PICOGRAD_TUNE=0)", {"PICOGRAD_TUNE": "0"}),
)


class BisectConfig(Record):
    """Finds the option or the rewrite rule that makes a program's result wrong; words after SCRIPT are the program's."""

    # The program; it is wrong if it ends with an error, or if verify finds a mismatch.
    script: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SCRIPT")]


class Trial(Record):
    """One run of the program.

    status:  exit status
    first:   verify's first mismatch, or ""
    count:   number of applications of rules
    rule:    the last allowed rule, with its Op and lines
    error:   the last sentence that it wrote to standard error, if it ended with an error
    """

    status: int
    first: str
    count: int
    rule: str
    error: str = ""

    @property
    def is_wrong(self) -> bool:
        """True if the program ended with an error, or deviates."""
        return bool(self.status or self.first)

    def __str__(self) -> str:
        ended = f"exit status {self.status}" + (f", {self.error}" if self.error else "")
        return f"wrong: {self.first or ended}" if self.is_wrong else "right"


def bisect_script(config: BisectConfig, arguments: Sequence[str] = ()) -> int:
    """Runs `picograd bisect`; returns 0 if the program is right, else 1.

    Raises:
      DataError: the program does not exist.
    """
    if not config.script.is_file():
        raise DataError(f"bisect: {config.script}: this program does not exist.")

    search = Search([str(config.script), *arguments])
    first = search.tried("as it is", {})
    if not first.is_wrong:
        print("nothing to look for: the program ends without an error, and verify finds no mismatch.")
        return 0
    found, is_in_a_kernel = search.outside_the_compiler(), False
    if found is None:
        found, is_in_a_kernel = search.option() or search.rule(), True
    print(f"found: {found}", end=_kernel_of(first) + "\n" if is_in_a_kernel else "\n")
    return 1


class Search(NamedTuple):
    """The runs of a wrong program, each without one feature; a step returns a sentence if it finds the cause.

    words:  the program and its arguments
    """

    words: Sequence[str]

    def tried(self, said: str, changes: Mapping[str, str] = NO_CACHE, limit: int | None = None, jit: bool = True) -> Trial:
        """Runs the program and prints what became of it."""
        trial = run_trial(self.words, changes, limit, jit)
        print(f"{said}: {trial}", flush=True)
        return trial

    def outside_the_compiler(self) -> str | None:
        """Looks at the cache on disk and at the program's own operations."""
        if not self.tried("without the cache on disk").is_wrong:
            return "an entry of the cache is wrong.\n  hint: picograd cache clear"
        said = "by the evaluator, without any rule, pass or kernel (PICOGRAD_DEVICE=NUMPY)"
        if self.tried(said, {**NO_CACHE, "PICOGRAD_DEVICE": "NUMPY"}).is_wrong:
            return "the program's own operations or a chain rule are wrong, not a rewrite rule or a pass."
        return None

    def option(self) -> str | None:
        """Looks for an option with which the program is right."""
        for said, changes in OPTIONS:
            is_set = all(setting(name) == value for name, value in changes.items())
            if not is_set and not self.tried(f"with {said}", {**NO_CACHE, **changes}).is_wrong:
                return f"it is right with {said}."
        return None if self.tried("without jit", jit=False).is_wrong else "it is right without jit."

    def rule(self) -> str:
        """Looks for the first application of a rule that matters, by a binary search."""
        if self.tried("without rules of algebra", limit=0).is_wrong:
            return "not an option or a rule, but an emitter, a pass of the schedule or the memory."
        right, wrong = 0, run_trial(self.words, NO_CACHE, None, True).count
        while wrong - right > 1:
            middle = (right + wrong) // 2
            is_wrong = self.tried(f"with the first {middle} applications of rules", limit=middle).is_wrong
            right, wrong = (right, middle) if is_wrong else (middle, wrong)
        last = run_trial(self.words, NO_CACHE, wrong, True)
        return f"application {wrong} of a rule: {last.rule}"


def _kernel_of(trial: Trial) -> str:
    return f"\n  verify names {trial.first}" if trial.first else ""


# ---- one run in a process of its own ----
def run_trial(words: Sequence[str], changes: Mapping[str, str], limit: int | None, jit: bool) -> Trial:
    """Runs a program with its arguments and changed environment variables.

    Its output is discarded, but for an error's sentence. It has no standard input, which only one run could read.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "trial.json"
        given = [str(result), "" if limit is None else str(limit), "jit" if jit else "", *words]
        command = [sys.executable, "-m", "picograd_lab.verify.bisect", *given]
        env = {**os.environ, **changes}
        done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        lines = done.stderr.decode(errors="replace").splitlines()
        said = [line for line in lines if line and not line[0].isspace()]  # without hints and lines of code
        error = said[-1] if said else ""
        if not result.is_file():  # the process crashed
            return Trial(done.returncode or 1, "", 0, "", error)
        found = Trial(**json.loads(result.read_text()))
        return replace(found, error=error) if found.status else found


def _in_this_process(result: str, limit: str, jit: str, script: str, *arguments: str) -> None:
    """Runs the program, and writes its result to a file."""
    watcher = Watcher(of_program=True)
    if not jit:
        at_once.set(True)
    with limited(int(limit) if limit else None) as seen, watching(watcher):
        status = run_program(Path(script), arguments)
    first = watcher.verdict.first
    rule = ""
    if seen.applied:
        name, op = seen.applied[-1]
        rule = "\n".join(
            [
                f'"{name}", on',
                *(f"  {line}" for line in neighbourhood(op).splitlines()),
                *(f"  made at {line}" for line in lines_of(op)),
            ]
        )
    made: dict[str, Any] = {"status": status, "first": first.what if first else "", "count": seen.count, "rule": rule}
    Path(result).write_text(json.dumps(made))


if __name__ == "__main__":
    _in_this_process(*sys.argv[1:])
