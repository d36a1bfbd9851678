"""Changes one thing in the rules and emitters at a time, and counts how many of the changes the tests notice.

    python -m tools.mutate --reach build/reach.json --count 100 --seed 0 --json build/mutants.jsonl
    python -m tools.mutate --show 17 --seed 0          prints the 17th change and runs nothing
    python -m tools.mutate --reach more.json --map tests/ir/test_fold.py        notes what further tests get to

First it runs all tests once and notes what each gets to (`reach.py`), where the files of --reach are not there yet; then it
judges the changes (`judge.py`), each by the tests that get to it: those near to the file first, one of each function of
tests before a second of any, as many as fit in --budget seconds. Verdicts are written as they come, and a change that has
one is not judged again. What survives is printed as a diff: a test that is missing, or a change that changes no meaning.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.mutate.changes import FURTHER, ROOT, TARGETS, Mutant, choose
from tools.mutate.reach import digest


# ---- which tests, in which order ----
class Reach:
    """What each test gets to, from one map or several."""

    def __init__(self, paths: list[Path]):
        self.seconds: dict[str, float] = {}
        self.tests: dict[str, set[str]] = {}
        self.loaded: set[str] = set()
        self.unsound: set[str] = set()  # tests that fail without a change, too: struck off
        for path in paths:
            found = json.loads(path.read_text())
            for file, name in found["files"].items():
                if digest((ROOT / file).read_text()) != name:
                    raise SystemExit(f"{path}: {file} has changed since; make the map anew.")
            self.seconds |= found["seconds"]
            self.loaded |= set(found["import"])
            for test, places in found["sites"].items():
                for place in {place.split(":")[0] for place in places} | set(places):
                    self.tests.setdefault(place, set()).add(test)

    def is_loaded(self, mutant: Mutant) -> bool:
        """Returns whether the place of a change is computed while its file is loaded."""
        return f"{mutant.file}:{mutant.site[0]}:{mutant.site[1]}" in self.loaded

    def order(self, mutant: Mutant, budget_s: float) -> list[str]:
        """Returns the tests that can notice a change, the near and quick first.

        What is computed while a file is loaded may be felt wherever the file is used.
        """
        place = mutant.file if self.is_loaded(mutant) else f"{mutant.file}:{mutant.site[0]}:{mutant.site[1]}"
        tests = self.tests.get(place, set()) - self.unsound
        near = TARGETS[mutant.target].tests
        turn: Counter[str] = Counter()
        keys = {}
        for test in sorted(tests, key=lambda test: (self.seconds[test], test)):
            function = test.split("[")[0]
            keys[test] = (not test.startswith(near), turn[function], self.seconds[test])
            turn[function] += 1
        chosen, spent = [], 0.0
        for test in sorted(keys, key=keys.__getitem__):
            if spent + self.seconds[test] <= budget_s or not chosen:
                chosen.append(test)
                spent += self.seconds[test]
        return chosen


# ---- running pytest ----
# A plugin comes before pytest reads its configuration, whose filter of warnings loads picograd.
START = """
import importlib, sys, pytest
plugin = importlib.import_module(sys.argv[1])
sys.exit(pytest.main(sys.argv[2:], plugins=[plugin]))
"""


def pytest_with(plugin: str, variable: str, file: Path, tests: list[str]) -> str:
    """Runs pytest with one of the plugins, and returns what it printed."""
    command = [sys.executable, "-c", START, plugin, "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    own = {"PYTHONPATH": str(ROOT), "PICOGRAD_CACHE": "off", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **own, variable: str(file)}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run(command, cwd=ROOT, env=environment, **both, text=True, check=False).stdout


def make_map(path: Path, tests: list[str]) -> None:
    """Runs tests and notes what they get to; they have to pass."""
    said = pytest_with("tools.mutate.reach", "MUTATE_REACH", path, tests)
    if not path.exists() or "failed" in said:
        raise SystemExit(f"{said[-2000:]}\nTests fail without any change: nothing can be said of changes.")


def judge(mutants: dict[int, Mutant], reach: Reach, budget_s: float, verdicts: Path, changed_already: bool) -> str:
    """Judges changes in one process of pytest, which appends each verdict to a file; returns what it printed."""
    order = [reach.order(mutant, budget_s) for mutant in mutants.values()]
    files = sorted({test.split("::")[0] for tests in order for test in tests})
    task = {
        "mutants": [asdict(mutant) for mutant in mutants.values()], "numbers": list(mutants), "order": order,
        "seconds": reach.seconds, "verdicts": str(verdicts), "changed_already": changed_already,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "task.json"
        file.write_text(json.dumps(task))
        return pytest_with("tools.mutate.judge", "MUTATE_TASK", file, files)


def judge_together(mutants: dict[int, Mutant], reach: Reach, budget_s: float, verdicts: Path) -> None:
    """Judges changes of functions, each in a fork of one process."""
    said = judge(mutants, reach, budget_s, verdicts, changed_already=False)
    if not all(number in read(verdicts) for number in mutants):
        raise SystemExit(said[-4000:])


def judge_loaded(number: int, mutant: Mutant, reach: Reach, budget_s: float, verdicts: Path) -> None:
    """Judges a change in a process that loads it; a test that fails without the change, too, is struck off."""
    while True:
        with tempfile.TemporaryDirectory() as folder:
            said = judge({number: mutant}, reach, budget_s, Path(folder) / "verdict.jsonl", changed_already=True)
            verdict = read(Path(folder) / "verdict.jsonl").get(number)
        if verdict is None:
            first = reach.order(mutant, budget_s)[0]
            append(verdicts, {"number": number, "noticed_by": first, "how": "does not load", "said": said[-500:]})
            return
        test = verdict["noticed_by"]
        if test is None or passes(test):
            append(verdicts, verdict)
            return
        reach.unsound.add(test)


def passes(test: str) -> bool:
    """Returns whether a test passes without a change."""
    return " passed" in pytest_with("tools.mutate.changes", "MUTATE_NONE", Path(os.devnull), [test, "-v"])


def unjudged(mutants: list[Mutant], done: dict[int, dict[str, Any]], again: bool) -> dict[int, Mutant]:
    """Returns the changes without a verdict, which one that needs a process of its own has not; `again`: survivors, too."""
    over = {n for n, verdict in done.items() if verdict["how"] != "fresh" and not (again and verdict["noticed_by"] is None)}
    return {n: mutant for n, mutant in enumerate(mutants) if n not in over}


def read(verdicts: Path) -> dict[int, dict[str, Any]]:
    """Returns the verdicts that are there, by number; the last of each."""
    lines = verdicts.read_text().splitlines() if verdicts.exists() else []
    return {verdict["number"]: verdict for verdict in map(json.loads, lines)}


def append(verdicts: Path, verdict: dict[str, Any]) -> None:
    """Writes one verdict more."""
    with verdicts.open("a") as file:
        file.write(json.dumps(verdict) + "\n")


# ---- saying so ----
def diff_of(mutant: Mutant) -> str:
    """Returns a change as a diff."""
    before = (ROOT / mutant.file).read_text()
    old, new = before.splitlines(keepends=True), mutant.applied(before).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, mutant.file, mutant.file, n=2))


def report(mutants: list[Mutant], verdicts: dict[int, dict[str, Any]]) -> int:
    """Prints what survived, and how many were noticed; returns 0 where at least 95 of 100 were."""
    seen = [verdicts[number]["noticed_by"] is not None for number in range(len(mutants))]
    for number, mutant in enumerate(mutants):
        if not seen[number]:
            verdict = verdicts[number]
            print(f"{number}: {verdict['ran']} tests got there, none noticed\n{diff_of(mutant)}")
    for name in TARGETS:
        own = [yes for mutant, yes in zip(mutants, seen) if mutant.target == name]
        print(f"{name}: {sum(own)} of {len(own)} noticed")
    print(f"{sum(seen)} of {len(seen)} noticed")
    return int(sum(seen) < 0.95 * len(seen))


def main() -> int:
    """Runs the command line."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=100, help="number of changes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice of changes")
    parser.add_argument("--target", choices=TARGETS, help="change only this part")
    parser.add_argument("--show", type=int, help="print this change, by its number, and stop")
    parser.add_argument("--reach", type=Path, nargs="+", default=[Path("build/reach.json")], help="maps of lines to tests")
    parser.add_argument("--map", nargs="+", help="make the first map of --reach from these tests, and stop")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of tests per change")
    parser.add_argument("--json", type=Path, default=Path("build/mutants.jsonl"), help="file of verdicts, one a line")
    parser.add_argument("--again", action="store_true", help="judge surviving changes again")
    options = parser.parse_args()
    mutants = choose(options.count if options.show is None else options.show + 1, options.seed, options.target)
    if options.show is not None:
        print(diff_of(mutants[options.show]))
        return 0
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if options.map or not options.reach[0].exists():
        near = [tests for target in TARGETS.values() for tests in target.tests]
        make_map(options.reach[0].absolute(), options.map or [*near, *FURTHER])
        if options.map:
            return 0
    reach, verdicts = Reach(options.reach), options.json.absolute()
    left = unjudged(mutants, read(verdicts), options.again)
    together = {number: mutant for number, mutant in left.items() if not reach.is_loaded(mutant)}
    if together:
        judge_together(together, reach, options.budget, verdicts)
    for number, mutant in left.items():
        if number not in together or read(verdicts)[number]["how"] == "fresh":
            judge_loaded(number, mutant, reach, options.budget, verdicts)
    return report(mutants, read(verdicts))


if __name__ == "__main__":
    sys.exit(main())
