"""Climbs the ladder of MNIST: trains each rung, and compares tensors and losses with the gold standard's.

In:    a problem, `Rung`s
Out:   `climbed`: a `Figure` for each rung; `injected`: a figure for each program with a planted fault

Each rung first dumps the tensors of a few steps, which blame.py compares kernel by kernel; then it trains. A rung on a
simulator does only these steps.
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

STEPS = {"small": 10, "large": 2}  # steps that are compared kernel by kernel
FEW_IMAGES = (640, 100)  # training and test images for runs without training
LOSS_TOLERANCE = 1e-3


class Figure(Record):
    """The measurements of one rung.

    left_out:  why it did not run; "" if it ran
    failed:    error that ended its program, if any
    findings:  comparisons of each tensor of the first steps
    outcome:   the program's report
    epochs:    number of trained epochs; 0 for the first steps only
    off:       largest difference of a loss from the gold standard's, over steps and epochs
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
        """True if no tensor deviates, and the losses are the gold standard's."""
        return not self.failed and self.wrong is None and self.off <= LOSS_TOLERANCE

    @property
    def wrong(self) -> Finding | None:
        """The first tensor that deviates."""
        return next((finding for finding in self.findings if not finding.is_right), None)


class Climb(Record):
    """A problem and the work of each rung.

    path:     prepare.py's file
    epochs:   number of training epochs; 0: only the first steps
    steps:    number of first steps that are compared kernel by kernel
    threads:  threads of each program
    """

    path: Path
    problem: Problem
    epochs: int
    steps: int
    threads: int = 1


def chosen_rungs(names: str) -> list[Rung]:
    """Returns the rungs of a comma-separated list, in the ladder's order; all for an empty one.

    Raises:
      ArgumentError: a rung is unknown.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in BY_NAME:
            raise ArgumentError(f"ladder: mnist has no rung {name!r}; the rungs are {', '.join(BY_NAME)}.")
    return [rung for rung in RUNGS if not wanted or rung.name in wanted]


def prepared(
    size: str, folder: Path, epochs: int, steps: int = 0, threads: int = 1, lengths: Sequence[int] = ()
) -> Climb:  # fmt: skip
    """Writes the file that all rungs read; `lengths` are the numbers of training and test images.

    Raises:
      DataError: MNIST cannot be found.
    """
    path = folder / f"mnist_{size}.bin"
    lengths = lengths or (() if epochs else FEW_IMAGES)
    start([sys.executable, str(PROGRAMS / "prepare.py"), size, str(path), *map(str, lengths)], "prepare.py")
    return Climb(path, read_problem(path), epochs, steps or STEPS[size], threads)


# ---- climbing ----
def climbed(climb: Climb, rungs: Sequence[Rung], folder: Path) -> Iterator[Figure]:
    """Yields a figure for each rung; the first that can run is the gold standard."""
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
    """Trains for some epochs, or only runs the first steps, and compares each tensor of these with its meaning."""
    dump = folder / "dump.bin"
    try:
        outcome = run(rung, command, climb.path, epochs, climb.steps, dump, climb.threads)
        steps = read_dump(dump)
    finally:
        dump.unlink(missing_ok=True)
    findings = tuple(compared(climb.problem, steps, rung.unit, gold))
    return Figure(rung, findings=findings, outcome=outcome, epochs=epochs), steps


def _largest_difference(figure: Figure, gold: Figure) -> float:
    """Returns the largest difference of losses: of steps, and of epochs if both have trained."""
    assert figure.outcome and gold.outcome
    pairs = list(zip(figure.outcome.steps, gold.outcome.steps))
    if figure.epochs and gold.epochs:
        pairs += zip(figure.outcome.epochs, gold.outcome.epochs)
    return max((abs(own - golden) for own, golden in pairs), default=0.0)


# ---- faults ----
def injected(climb: Climb, rungs: Sequence[Rung], fault: str, folder: Path) -> Iterator[tuple[Planted, Figure]]:
    """Plants a fault in each hand-written rung, and yields it with the comparison's findings.

    Raises:
      ArgumentError: the fault is unknown.
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
