"""Figures of the source: its size, the way through it, the places that one idea is in.

    python -m tools.figures

In:    the repository
Out:   one line per figure, with the aim of the redesign (docs/history/house.md) in brackets

The sum is `((a * 2 + b).sum()).tolist()`, the first of a process. `python -m bench.startup` measures importing.
"""

from __future__ import annotations

import ast
import re
import statistics
import tempfile
from collections import Counter
from pathlib import Path

import tyro

from picograd import Tensor
from picograd.errors import PACKAGES
from picograd.ir.opcode import FUNCTIONS
from tests.test_architecture import PACKAGE, ROOT, files_naming_statements, lengths
from tests.test_road import first_sum, road

COMPILER = ("ir", "evaluator", "autodiff", "rewrites", "schedule", "codegen", "devices")


def lines_of(package: str) -> tuple[int, int]:
    """Returns the numbers of files and of lines of a package."""
    texts = [path.read_text() for path in (ROOT / package).rglob("*.py")]
    return len(texts), sum(len(text.splitlines()) for text in texts)


def files_naming_functions() -> dict[str, int]:
    """Returns how many files of the compiler declare or name each opcode that is a function of a number, such as EXP."""
    texts = [path.read_text() for stage in COMPILER for path in (PACKAGE / stage).rglob("*.py")]
    named = Counter(name for text in texts for name in {*re.findall(r"OpCode\.(\w+)", text)})
    return {code.name: 1 + named[code.name] for code in FUNCTIONS}


def main() -> None:
    """Prints the figures of the source."""
    files, lines = lines_of("picograd")
    print(f"core: {lines} lines in {files} files [58,000 in 260]")
    beside = [lines_of(package) for package in PACKAGES if package != "picograd"]
    print(f"packages beside the core: {sum(n for _, n in beside)} lines in {sum(n for n, _ in beside)} files")
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    functions = [node for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    whole = statistics.median(node.end_lineno - node.lineno + 1 for node in functions if node.end_lineno)
    code = statistics.median(length for text in texts for _, length in lengths(text))
    width = statistics.median(len(line) for text in texts for line in text.splitlines() if line.strip())
    print(f"median: {whole:g} lines of a function, {code:g} without docstring; {width:g} characters of a line [7, -, 47]")
    print(f"road: {len(road())} files, {sum(stop.num_lines() for stop in road())} lines [25, 7,000]")
    with tempfile.TemporaryDirectory() as folder:
        entered = first_sum(Path(folder))
    print(f"first sum: {entered.num_files} files [45], {entered.num_functions} functions [450]", end=", ")
    print(f"{entered.num_defined} without comprehensions; {len(entered.calls)} calls; {entered.num_switches} switches [10]")
    print("files that name a kind of statement [5]:", *(f"{k} {n}" for k, n in files_naming_statements().most_common()))
    print("files of the compiler that name a function [5]:", *(f"{k} {n}" for k, n in files_naming_functions().items()))
    classes = [owner.__name__ for owner in Tensor.__mro__ if owner.__module__.startswith("picograd")]
    print(f"classes of Tensor: {', '.join(classes)} [3]")


if __name__ == "__main__":
    tyro.cli(main, prog="python -m tools.figures")
