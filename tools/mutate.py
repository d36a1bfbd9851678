"""Changes one thing in the rules and emitters at a time, and counts how many of the changes the tests notice.

    python -m tools.mutate --count 100 --seed 0 --json mutants.json
    python -m tools.mutate --show 17 --seed 0          prints the 17th change and runs nothing

A change is one of four: a comparison flipped, a guard dropped, operands swapped, a number off by one. Each is made in a
copy of the checkout, and the tests of its target run there until the first fails. What survives is printed as a diff: a
test that is missing, or a change that changes no meaning.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 900  # a loop that never ends is noticed, too


@dataclass(frozen=True)
class Target:
    """Files that are changed, and the tests that should notice, those that are quick and near first."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


def files_of(folder: str) -> tuple[str, ...]:
    """Returns the files of a folder of picograd."""
    return tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "picograd" / folder).glob("[a-z]*.py")))


FUZZ = ("tests/fuzz/test_graphs.py",)
TARGETS = {
    "simplify": Target(
        ("picograd/ir/simplify.py", "picograd/ir/fold.py"),
        ("tests/ir/test_simplify.py", "tests/ir", "tests/evaluator", "tests/schedule", *FUZZ),
    ),
    "chain_rules": Target(
        files_of("autodiff"),
        ("tests/autodiff", "tests/tensor/test_autograd.py", "tests/control", "tests/operations", *FUZZ),
    ),
    "emitters": Target(
        files_of("codegen"),
        ("tests/codegen", "tests/render", "tests/runtime/test_cpu.py", *FUZZ, "tests/tensor"),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the text between two offsets of a file becomes another."""

    target: str
    file: str
    line: int
    kind: str
    start: int
    stop: int
    text: str

    def applied(self, source: str) -> str:
        """Returns the source with the change."""
        return source[: self.start] + self.text + source[self.stop :]


# ---- what can be changed ----
FLIPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
NOT_COMMUTATIVE = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)


class Source:
    """The text of a file with the places of its nodes."""

    def __init__(self, text: str):
        self.text = text
        self.tree = ast.parse(text)
        encoded = [line.encode() for line in text.splitlines(keepends=True)]
        self.lines = encoded
        self.begins = [0]
        for line in encoded:
            self.begins.append(self.begins[-1] + len(line.decode()))

    def at(self, line: int, column: int) -> int:
        """Returns the offset of a place that ast names by line and by byte."""
        return self.begins[line - 1] + len(self.lines[line - 1][:column].decode())

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Returns where a node begins and ends."""
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)  # type: ignore

    def of(self, node: ast.AST) -> str:
        """Returns the text of a node."""
        start, stop = self.span(node)
        return self.text[start:stop]

    def nodes(self) -> Iterator[ast.AST]:
        """Yields what runs: no annotations, no texts of errors, no asserts."""
        stack: list[ast.AST] = [self.tree]
        while stack:
            node = stack.pop()
            if isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.JoinedStr)):
                continue
            yield node
            for name, value in ast.iter_fields(node):
                if name not in ("annotation", "returns"):
                    stack += [part for part in (value if isinstance(value, list) else [value]) if isinstance(part, ast.AST)]


def mutants_of(target: str, file: str, text: str) -> list[Mutant]:
    """Returns every change of a file."""
    source = Source(text)
    found: list[Mutant] = []

    def change(node: ast.AST, kind: str, span: tuple[int, int], new: str) -> None:
        found.append(Mutant(target, file, node.lineno, kind, *span, new))  # type: ignore[attr-defined]

    for node in source.nodes():
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            between = source.span(node.left)[1], source.span(node.comparators[0])[0]
            if "(" not in text[slice(*between)] and ")" not in text[slice(*between)]:
                change(node, "comparison flipped", between, f" {FLIPPED[type(node.ops[0])]} ")
        elif isinstance(node, ast.If) and isinstance(node.body[-1], (ast.Return, ast.Continue)) and not node.orelse:
            change(node, "guard dropped", source.span(node.test), "False")
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            change(node, "guard dropped", source.span(node), source.of(node.values[0]))
        elif isinstance(node, ast.BinOp) and isinstance(node.op, NOT_COMMUTATIVE):
            left, right = source.span(node.left), source.span(node.right)
            middle = text[left[1] : right[0]]
            if "(" not in middle and ")" not in middle:
                swapped = f"({source.of(node.right)}){middle}({source.of(node.left)})"
                change(node, "operands swapped", (left[0], right[1]), swapped)
        elif isinstance(node, ast.Call) and _is_op(node):
            operands = node.args[2]
            a, b = operands.elts  # type: ignore[attr-defined]
            change(node, "operands swapped", source.span(operands), f"({source.of(b)}, {source.of(a)})")
        elif isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value < 100:
            change(node, "off by one", source.span(node), str(node.value + 1))
    return found


def _is_op(node: ast.Call) -> bool:
    """Returns whether a call is Op(code, dtype, (a, b)) with two different operands."""
    named = isinstance(node.func, ast.Name) and node.func.id == "Op" and len(node.args) >= 3
    if not named or not isinstance(node.args[2], ast.Tuple) or len(node.args[2].elts) != 2:
        return False
    a, b = node.args[2].elts
    return not isinstance(a, ast.Starred) and not isinstance(b, ast.Starred) and ast.dump(a) != ast.dump(b)


def choose(count: int, seed: int, only: str | None = None) -> list[Mutant]:
    """Returns changes drawn evenly: by target, or of one alone, and by kind in turn."""
    rng = random.Random(seed)
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for name, target in TARGETS.items():
        if only not in (None, name):
            continue
        for file in target.files:
            for mutant in mutants_of(name, file, (ROOT / file).read_text()):
                groups.setdefault((name, mutant.kind), []).append(mutant)
    for group in groups.values():
        rng.shuffle(group)
    chosen: list[Mutant] = []
    while len(chosen) < count and any(groups.values()):
        chosen += [group.pop() for group in groups.values() if group]
    return chosen[:count]


# ---- running the tests ----
@dataclass(frozen=True)
class Verdict:
    """What the tests said of a change: the first that failed, or None."""

    mutant: Mutant
    noticed_by: str | None
    seconds: float


def judge(mutant: Mutant, checkout: Path) -> Verdict:
    """Makes a change in a checkout, runs the tests of its target until one fails, and takes it back."""
    path = checkout / mutant.file
    before = path.read_text()
    path.write_text(mutant.applied(before))
    begun = time.monotonic()
    try:
        noticed = None
        for tests in TARGETS[mutant.target].tests:
            noticed = first_failure(checkout, tests, LIMIT_S)
            if noticed is not None:
                break
        return Verdict(mutant, noticed, round(time.monotonic() - begun, 1))
    finally:
        path.write_text(before)


def first_failure(checkout: Path, tests: str, limit_s: float) -> str | None:
    """Returns the first test that fails, "it does not end" or "it does not load"; None: all pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", tests]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PICOGRAD_CACHE": "off", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else "it does not load"


def run(mutants: list[Mutant], processes: int) -> list[Verdict]:
    """Judges all mutants, several at a time, each process with a checkout of its own."""
    with tempfile.TemporaryDirectory() as folder:
        checkouts = [Path(folder) / str(i) for i in range(processes)]
        for checkout in checkouts:
            shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".git", "__pycache__", "build", "*.egg-info"))
        for tests in sorted({tests for mutant in mutants for tests in TARGETS[mutant.target].tests}):
            failed = first_failure(checkouts[0], tests, 4 * LIMIT_S)
            if failed is not None:
                raise SystemExit(f"{failed} fails without any change: nothing can be said of changes.")
        shares = [mutants[i::processes] for i in range(processes)]

        def work(share: list[Mutant], checkout: Path) -> list[Verdict]:
            verdicts = []
            for mutant in share:
                verdicts.append(judge(mutant, checkout))
                print(line_of(verdicts[-1]), flush=True)
            return verdicts

        with ThreadPoolExecutor(processes) as pool:
            return [verdict for verdicts in pool.map(work, shares, checkouts) for verdict in verdicts]


# ---- saying so ----
def line_of(verdict: Verdict) -> str:
    """Returns a verdict as one line."""
    mutant = verdict.mutant
    return f"{verdict.noticed_by or 'SURVIVED':60.60}  {mutant.kind:18}  {mutant.file}:{mutant.line}  {verdict.seconds} s"


def diff_of(mutant: Mutant) -> str:
    """Returns a change as a diff."""
    before = (ROOT / mutant.file).read_text()
    old, new = before.splitlines(keepends=True), mutant.applied(before).splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, mutant.file, mutant.file, n=2))


def main() -> int:
    """Runs the command line; returns 0 where at least 95 of 100 changes were noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    parser.add_argument("--show", type=int, help="print one change")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    mutants = choose(options.count if options.show is None else options.show + 1, options.seed, options.target)
    if options.show is not None:
        print(diff_of(mutants[options.show]))
        return 0
    verdicts = run(mutants, options.processes)
    for verdict in verdicts:
        if verdict.noticed_by is None:
            print(diff_of(verdict.mutant))
    noticed = Counter((v.mutant.target, v.noticed_by is not None) for v in verdicts)
    for target in TARGETS:
        print(f"{target}: {noticed[target, True]} of {noticed[target, True] + noticed[target, False]} noticed")
    total = sum(count for (_, seen), count in noticed.items() if seen)
    print(f"{total} of {len(verdicts)} noticed")
    if options.json:
        options.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1))
    return int(total < 0.95 * len(verdicts))


if __name__ == "__main__":
    sys.exit(main())
