"""Climbs the ladder of MNIST: trains by every rung, and compares tensors and losses with the gold standard's.

In:    a problem, `Rung`s
Out:   `climbed`: a `Figure` for each rung; `injected`: a figure for each program with a planted fault

Each rung first takes a few steps with its tensors dumped, which blame.py compares kernel by kernel; then it trains. A
rung on a simulator only takes the steps.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from picograd.errors import ArgumentError, CompileError, DataError
from picograd.record import Record, replace
from picograd_lab.ladder.mnist.blame import Finding, Problem, Step, compared, read_dump, read_problem
from picograd_lab.ladder.mnist.faults import Planted, planted
from picograd_lab.ladder.mnist.rungs import (
    BY_NAME,
    PROGRAMS,
    RUNGS,
    Outcome,
    Rung,
    built,
    is_simulated,
    run,
    start,
    why_not,
)

STEPS = {"small": 10, "large": 2}  # compared kernel by kernel
FEW_IMAGES = (640, 100)  # to learn from and to test with, where nothing is trained
LOSS_TOLERANCE = 1e-3


class Figure(Record):
    """The findings of one rung.

    left_out:  why it was not climbed; "" if it was
    failed:    how its program ended, if with an error
    findings:  each tensor of the first steps beside its meaning
    outcome:   the program's report
    epochs:    trained; 0 where it took the first steps alone
    off:       largest difference of a loss from the gold standard's, of steps and of epochs
    """

    rung: Rung
    left_out: str = ""
    failed: str = ""
    findings: tuple[Finding, ...] = ()
    outcome: Outcome | None = None
    epochs: int = 0
    off: float = 0.0

    @property
    def is_right(self) -> bool:
        """True where no tensor deviates, and losses are the gold standard's."""
        return not self.failed and self.wrong is None and self.off <= LOSS_TOLERANCE

    @property
    def wrong(self) -> Finding | None:
        """The first tensor that deviates."""
        return next((finding for finding in self.findings if not finding.is_right), None)


class Climb(Record):
    """A problem, and how far each rung goes with it.

    path:     the file of prepare.py
    epochs:   of training; 0 takes the first steps only
    steps:    the first ones, compared kernel by kernel
    threads:  of each program
    """

    path: Path
    problem: Problem
    epochs: int
    steps: int
    threads: int = 1


def chosen_rungs(names: str) -> list[Rung]:
    """Returns the rungs of a comma list, in the ladder's order; all where it is empty.

    Raises:
      ArgumentError: there is no such rung.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in BY_NAME:
            raise ArgumentError(f"ladder: mnist has no rung {name!r}; the rungs are {', '.join(BY_NAME)}.")
    return [rung for rung in RUNGS if not wanted or rung.name in wanted]


def prepared(
    size: str, folder: Path, epochs: int, steps: int = 0, threads: int = 1, lengths: Sequence[int] = ()
) -> Climb:  # fmt: skip
    """Writes the file that all rungs read; `lengths` are the numbers of images to learn from and to test with.

    Raises:
      DataError: MNIST cannot be found.
    """
    path = folder / f"mnist_{size}.bin"
    lengths = lengths or (() if epochs else FEW_IMAGES)
    start([sys.executable, str(PROGRAMS / "prepare.py"), size, str(path), *map(str, lengths)], "prepare.py")
    return Climb(path, read_problem(path), epochs, steps or STEPS[size], threads)


# ---- climbing ----
def climbed(climb: Climb, rungs: Sequence[Rung], folder: Path) -> Iterator[Figure]:
    """Yields a figure for each rung; the first that can be climbed is the gold standard."""
    gold: Figure | None = None
    tensors: list[Step] = []
    for rung in rungs:
        reason = why_not(rung)
        if reason:
            yield Figure(rung, reason)
            continue
        try:
            epochs = 0 if is_simulated(rung) else climb.epochs
            figure, dumped = trained(climb, rung, built(rung, folder), folder, tensors, epochs)
        except (CompileError, DataError) as error:
            yield Figure(rung, failed=error.fact)
            continue
        if gold is None:
            gold, tensors = figure, dumped
        yield replace(figure, off=_largest_difference(figure, gold))


def trained(
    climb: Climb, rung: Rung, command: Sequence[str], folder: Path, gold: list[Step], epochs: int = 0
) -> tuple[Figure, list[Step]]:
    """Trains for some epochs, or takes the first steps alone, and compares each tensor of these with its meaning."""
    dump = folder / "dump.bin"
    try:
        outcome = run(rung, command, climb.path, epochs, climb.steps, dump, climb.threads)
        steps = read_dump(dump)
    finally:
        dump.unlink(missing_ok=True)
    findings = tuple(compared(climb.problem, steps, rung.unit, gold))
    return Figure(rung, findings=findings, outcome=outcome, epochs=epochs), steps


def _largest_difference(figure: Figure, gold: Figure) -> float:
    """Returns the largest difference of losses: of steps, and of epochs where both have trained."""
    assert figure.outcome and gold.outcome
    pairs = list(zip(figure.outcome.steps, gold.outcome.steps))
    if figure.epochs and gold.epochs:
        pairs += zip(figure.outcome.epochs, gold.outcome.epochs)
    return max((abs(own - golden) for own, golden in pairs), default=0.0)


# ---- faults ----
def injected(climb: Climb, rungs: Sequence[Rung], fault: str, folder: Path) -> Iterator[tuple[Planted, Figure]]:
    """Plants a fault in each hand-written rung, and yields it with what the comparison found.

    Raises:
      ArgumentError: there is no such fault.
      CompileError:  a program cannot be compiled.
      DataError:     a program ended with an error.
    """
    gold: list[Step] = []
    for rung in rungs:
        if why_not(rung):
            continue
        if not gold:
            gold = trained(climb, rung, built(rung, folder), folder, [])[1]
        at = planted(fault, rung, folder)
        if at is not None:
            yield at, trained(climb, rung, built(rung, folder, at.source), folder, gold)[0]
