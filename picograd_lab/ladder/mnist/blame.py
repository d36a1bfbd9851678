"""Finds the first kernel of a hand-written training step that deviates, and guesses its mistake.

In:    the dump of a program: each step's tensors, with the kernels that wrote them; the problem's file
Out:   `compared`: a `Finding` for each tensor; `Finding.guess` names a mistake that fits the numbers

Each tensor is compared with its meaning (meaning.py) on the program's own inputs of that kernel, so that one error does
not spread to the next kernel, and a deviating tensor names its culprit. The guess is a search for a known mistake that
gives these numbers. No rule here knows which mistake was planted, or where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from picograd.errors import DataError
from picograd.record import Record, replace
from picograd_lab.ladder.mnist.meaning import RULES, WEIGHTS, Array, Near, Rule, exactly

TINY = 1e-30
SAME_RATIO = 1e-3


# ---- files ----
class Problem(Record):
    """The contents of prepare.py's file.

    inputs, hidden, outputs, batch:  lengths
    start:   initial weights by name, as matrices; a bias is one row
    images:  (number, inputs), training images
    labels:  (number,)
    """

    inputs: int
    hidden: int
    outputs: int
    batch: int
    start: dict[str, Array]
    images: Array
    labels: Array


def read_problem(path: Path) -> Problem:
    """Reads prepare.py's file."""
    with path.open("rb") as file:
        inputs, hidden, outputs, batch, num_train, num_test = np.fromfile(file, np.int32, 6).tolist()
        shapes = {"w1": (inputs, hidden), "b1": (1, hidden), "w2": (hidden, outputs), "b2": (1, outputs)}
        start = {name: np.fromfile(file, np.float32, rows * columns).reshape(rows, columns)
                 for name, (rows, columns) in shapes.items()}  # fmt: skip
        images = np.fromfile(file, np.float32, (num_train + num_test) * inputs).reshape(-1, inputs)
        labels = np.fromfile(file, np.int32, num_train + num_test)
    return Problem(inputs, hidden, outputs, batch, start, images[:num_train], labels[:num_train])


class Dumped(Record):
    """A dumped tensor, and the kernel that wrote it."""

    kernel: str
    value: Array


Step = dict[str, Dumped]


def read_dump(path: Path) -> list[Step]:
    """Returns the tensors of each step by name, in the program's order; weights are those after the update.

    Raises:
      DataError: the file ends early, or has another format.
    """
    steps: list[Step] = []
    with path.open("rb") as file:
        while line := file.readline():
            number, name, dumped = _tensor(path, line, file)
            if number == len(steps):
                steps.append({})
            if number != len(steps) - 1:
                raise DataError(f"ladder: {path}: step {number} follows step {len(steps) - 1}.")
            steps[-1][f"new {name}" if name in WEIGHTS else name] = dumped
    return steps


def _tensor(path: Path, line: bytes, file: BinaryIO) -> tuple[int, str, Dumped]:
    words = line.decode(errors="replace").split()
    if len(words) != 5 or not all(words[place].isdecimal() for place in (0, 3, 4)):
        raise DataError(f"ladder: {path}: expected 'step name kernel rows columns', found {line[:60]!r}.")
    rows, columns = int(words[3]), int(words[4])
    value = np.frombuffer(file.read(4 * rows * columns), np.float32)
    if value.size != rows * columns:
        raise DataError(f"ladder: {path}: {words[1]} of step {words[0]} has {value.size} of {rows * columns} elements.")
    return int(words[0]), words[1], Dumped(words[2], value.reshape(rows, columns))


# ---- the comparison ----
Past = Sequence[Mapping[str, Array]]  # all tensors of earlier steps, the last step first
AGES = ("the step before's", "the step before last's")  # of a second buffer
Inner = dict[str, tuple[Rule, list[Near]]]  # intermediate tensors of fused kernels, with rules and sources


class Finding(Record):
    """The comparison of one tensor of one step with its meaning.

    step:    counted from 1
    name:    the tensor's name
    phase:   "copy", "forward", "loss", "backward" or "update"
    kernel:  the kernel that wrote it
    share:   the largest error as a share of what roundings explain; above 1 is a mismatch
    fact:    number of deviating elements, and the largest deviation; "" if none deviates
    guess:   a known mistake that gives these numbers; "" without one
    beside_gold:  largest difference from the gold standard, as a share of its largest element; None without one
    """

    step: int
    name: str
    phase: str
    kernel: str
    share: float
    fact: str = ""
    guess: str = ""
    beside_gold: float | None = None

    @property
    def is_right(self) -> bool:
        """True if roundings explain the difference."""
        return self.share <= 1


def compared(problem: Problem, steps: list[Step], unit: float, gold: list[Step]) -> Iterator[Finding]:
    """Yields a finding for each dumped tensor, step by step, in the order of their computation.

    `unit` is the relative roundoff of operands; `gold` are the steps of the gold standard, or none.
    """
    before: Past = ()
    for number, step in enumerate(steps):
        last = _values(steps[number - 1]) if number else {f"new {name}": value for name, value in problem.start.items()}
        rows = slice(number * problem.batch, (number + 1) * problem.batch)
        labels = problem.labels[rows]
        known = {name: exactly(last[f"new {name}"], unit) for name in WEIGHTS}
        batch = Rule("x", "copy", ("x",), lambda x, labels: x)
        known["x"] = exactly(problem.images[rows], unit)
        inner: Inner = {}
        for rule in (batch, *RULES):
            given = [known[source] for source in rule.sources]
            meant = rule.formula(*given, labels)
            dumped = step.get(rule.name)
            if dumped is None:
                known[rule.name], inner[rule.name] = meant, (rule, given)
                continue
            finding = _finding(rule, given, meant, dumped, labels, before, inner)
            beside = gold[number].get(rule.name) if number < len(gold) else None
            yield replace(finding, step=number + 1, beside_gold=_beside(dumped, beside))
            known[rule.name] = exactly(dumped.value, unit)
        before = [{**{name: near.value for name, near in known.items()}, **_values(step)}, *before][: len(AGES)]


def _values(step: Step) -> dict[str, Array]:
    return {name: dumped.value for name, dumped in step.items()}


def _beside(dumped: Dumped, gold: Dumped | None) -> float | None:
    if gold is None or gold.value.shape != dumped.value.shape:
        return None
    return float(np.abs(dumped.value - gold.value).max() / max(np.abs(gold.value).max(), TINY))


def _finding(
    rule: Rule, given: list[Near], meant: Near, dumped: Dumped, labels: Array, before: Past, inner: Inner
) -> Finding:
    if dumped.value.shape != meant.value.shape:
        fact = f"has shape {dumped.value.shape}, and should have {meant.value.shape}"
        return Finding(0, rule.name, rule.phase, dumped.kernel, np.inf, fact)
    got, allowed = dumped.value.astype(np.float64), _allowed(meant)
    share = np.abs(got - meant.value) / allowed
    share[~np.isfinite(got)] = np.inf
    worst = np.unravel_index(int(share.argmax()), share.shape)
    found = Finding(0, rule.name, rule.phase, dumped.kernel, float(share[worst]))
    if found.is_right:
        return found
    fact = (
        f"{int((share > 1).sum())} of {share.size} elements deviate; the farthest at {tuple(map(int, worst))}: "
        f"{got[worst]:.6g} instead of {meant.value[worst]:.6g}, where roundings may change {allowed[worst]:.2g}"
    )
    return replace(found, fact=fact, guess=next(_guesses(rule, given, meant, got, labels, before, inner), ""))


def _allowed(meant: Near) -> Array:
    stored = meant.unit * np.abs(meant.value)  # a half-precision tensor is rounded when stored
    return meant.error + stored + TINY


# ---- the guess: a known mistake that gives these numbers ----
def _guesses(
    rule: Rule, given: list[Near], meant: Near, got: Array, labels: Array, before: Past, inner: Inner
) -> Iterator[str]:
    def fits(candidate: Near) -> bool:
        return candidate.value.shape == got.shape and bool(np.all(np.abs(got - candidate.value) <= _allowed(candidate)))

    if not np.isfinite(got).all():
        yield "not a number: uninitialized memory, or a division by zero"
        return
    if not got.any():
        yield "all zeros: the kernel did not run, or did not write here"
        return
    for age, past in zip(AGES, before):
        if np.array_equal(got, past[rule.name]):
            yield f"a stale buffer: it still holds {age} values"
    yield from _ratio(meant, got, len(labels), fits)
    previous = before[0][rule.name] if before else None
    started = 0 if previous is None else len(labels) * meant.unit * np.abs(previous)  # of a sum that started there
    if previous is not None and fits(Near(meant.value + previous, 2 * meant.error + started, meant.unit)):
        yield "a stale buffer: it was not cleared, and the step before's values are in the sum"
    rows, columns = got.shape
    if min(rows, columns) > 1 and fits_transposed(meant, got):
        yield f"a transposed layout: it is written as ({columns}, {rows}), not ({rows}, {columns})"
    for words, candidate in _others(rule, given, labels, before, inner):
        if fits(candidate):
            yield words


def fits_transposed(meant: Near, got: Array) -> bool:
    """Returns whether an array has the meaning's elements with rows and columns transposed in memory."""
    turned = got.reshape(got.shape[::-1]).T
    return bool(np.all(np.abs(turned - meant.value) <= _allowed(meant)))


def _ratio(meant: Near, got: Array, batch: int, fits: Callable[[Near], bool]) -> Iterator[str]:
    """Yields a guess from a constant ratio of result and meaning."""
    squares = float(np.sum(meant.value**2))
    ratio = float(np.sum(got * meant.value)) / squares if squares else 0.0
    if not ratio or not fits(Near(ratio * meant.value, (1 + abs(ratio)) * meant.error, meant.unit)):
        return
    known = {
        float(batch): f"the division by the batch ({batch}) is missing", 1 / batch: f"divided by the batch ({batch}) twice",
        -1.0: "the sign is wrong",
    }  # fmt: skip
    for factor, words in known.items():
        if abs(ratio / factor - 1) < SAME_RATIO:
            yield f"{words}: every element is {ratio:.6g} times what is meant"
            return
    if got.size > 1:
        yield f"a constant factor: every element is {ratio:.6g} times what is meant"


def _others(
    rule: Rule, given: list[Near], labels: Array, before: Past, inner: Inner
) -> Iterator[tuple[str, Near]]:
    """Yields results of a rule with another array in place of a source, with the guess; sources may be intermediate."""
    for place, source in enumerate(rule.sources):
        for words, other in _instead(source, given[place], labels, before, inner):
            yield words, rule.formula(*given[:place], other, *given[place + 1 :], labels)


def _instead(
    source: str, given: Near, labels: Array, before: Past, inner: Inner
) -> Iterator[tuple[str, Near]]:
    """Yields arrays that a kernel may have read instead of a source, with the guess."""
    rows, columns = given.value.shape
    if min(rows, columns) > 1:
        turned = Near(given.value.reshape(columns, rows).T, given.error.reshape(columns, rows).T, given.unit)
        yield f"a transposed layout: it reads {source} as ({columns}, {rows}), not ({rows}, {columns})", turned
    for age, past in zip(AGES, before):
        if source in past:
            yield f"a stale buffer: it reads {age} {source}", exactly(past[source], given.unit)
    if source in inner:
        yield from _others(*inner[source], labels, before, inner)
    yield f"it leaves out {source}", exactly(np.zeros_like(given.value), given.unit)
