"""What can be changed in the rules and emitters, and what of it is drawn.

In:    the text of a file
Out:   Mutants: a comparison flipped, a guard dropped, operands swapped, a number off by one
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Target:
    """Files that are changed, and the tests that are near to them."""

    files: tuple[str, ...]
    tests: tuple[str, ...]


def files_of(folder: str) -> tuple[str, ...]:
    """Returns the files of a folder of picograd and of those in it."""
    return tuple(str(path.relative_to(ROOT)) for path in sorted((ROOT / "picograd" / folder).rglob("[a-z]*.py")))


PROOF = {"bounds", "inequalities"}  # of codegen what writes nothing, but reads what emitters wrote
TARGETS = {
    "simplify": Target(("picograd/rewrites/simplify.py", "picograd/ir/arithmetic.py"), ("tests/ir", "tests/rewrites")),
    "chain_rules": Target(files_of("autodiff"), ("tests/autodiff", "tests/tensor/test_autograd.py")),
    "emitters": Target(
        tuple(file for file in files_of("codegen") if Path(file).stem not in PROOF),
        (
            "tests/codegen",
            "tests/render",
            "tests/evaluator/test_program.py",
            "tests/devices/cuda",
            "tests/engine/test_written.py",  # kernels written by hand
        ),  # fmt: skip
    ),
}
# Tests of other parts that run rules and emitters, too: who notices does not matter. More of them would take hours.
FURTHER = (
    "tests/counts",
    "tests/schedule", "tests/control", "tests/tensor/test_sorting.py", "tests/tensor/test_indexing.py",
    "tests/tensor/test_reduce.py", "tests/tensor/test_random.py",
)  # fmt: skip


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
    site: tuple[int, int]  # of the expression that must be computed for the change to be felt

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Mutant:
        """Returns the change that JSON has as a dict."""
        return cls(**{**fields, "site": tuple(fields["site"])})

    def applied(self, source: str) -> str:
        """Returns the source with the change."""
        return source[: self.start] + self.text + source[self.stop :]


# ---- what can be changed ----
FLIPPED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
NOT_COMMUTATIVE = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
COMMUTATIVE = ("ADD", "MUL", "MIN", "MAX", "AND", "OR", "XOR", "CMPEQ", "CMPNE")


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
        whole = source.span(node.test if isinstance(node, ast.If) else node)
        found.append(Mutant(target, file, node.lineno, kind, *span, new, whole))  # type: ignore[attr-defined]

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
    """Returns whether a call is Op(code, dtype, (a, b)) with two different operands whose order matters."""
    named = isinstance(node.func, ast.Name) and node.func.id == "Op" and len(node.args) >= 3
    if not named or not isinstance(node.args[2], ast.Tuple) or len(node.args[2].elts) != 2:
        return False
    if isinstance(node.args[0], ast.Attribute) and node.args[0].attr in COMMUTATIVE:
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
