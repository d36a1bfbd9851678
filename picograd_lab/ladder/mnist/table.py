"""Tables of the MNIST ladder: times of each phase, losses beside the gold standard's, and the tensors of a step.

In:    `Figure`s of climb.py
Out:   rows of text, Markdown, JSON
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from picograd.record import asdict
from picograd_lab.ladder.mnist.blame import Finding
from picograd_lab.ladder.mnist.climb import Climb, Figure
from picograd_lab.ladder.mnist.faults import Planted
from picograd_lab.ladder.mnist.rungs import Rung, is_simulated
from picograd_lab.plots import Plot

PHASES = ("load", "copy", "forward", "loss", "backward", "update", "step")
TIME_HEADS = ("rung", "its idea", *PHASES, "without load", "gain", "final loss", "accuracy", "off by", "same bits as")
STEP_HEADS = ("rung", "its idea", "tensors compared", "largest error", "loss of the last step", "same digits as")


def title_of(climb: Climb) -> str:
    """Returns a description of the problem, in one line."""
    p = climb.problem
    return f"MNIST by {p.inputs}-{p.hidden}-{p.outputs}, batches of {p.batch}, {len(p.images):,} images"


# ---- bits ----
def bits_of(figures: Sequence[Figure]) -> dict[str, str]:
    """Returns for each rung the first one with bit-equal final weights, if it is another."""
    first: dict[tuple[int, str], str] = {}
    same = {}
    for figure in figures:
        if figure.outcome is not None:
            key = (figure.epochs, figure.outcome.weights)
            owner = first.setdefault(key, figure.rung.name)
            same[figure.rung.name] = "" if owner == figure.rung.name else owner
    return same


# ---- tables ----
def time_rows(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Returns the cells of the trained rungs: seconds, and the gain over the rung before."""
    same = bits_of(figures)
    reports = {figure.rung.name: figure.outcome for figure in figures if figure.outcome and figure.epochs}
    rows = []
    for figure in figures:
        rung, trained = figure.rung, reports.get(figure.rung.name)
        if trained is None:
            continue
        spent = [f"{seconds:.3g}" if (seconds := trained.seconds.get(phase)) else "" for phase in PHASES]
        gain = f"{reports[rung.after].total / trained.total:.3g}x {rung.after}" if rung.after in reports else ""
        result = f"{trained.epochs[-1]:.6f}", f"{trained.accuracy:.2f} %", f"{figure.off:.1e}", same[rung.name]
        rows.append((rung.name, rung.adds, *spent, f"{trained.total:.4g}", gain, *result))
    return rows


def step_rows(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """Returns the cells of the first steps of every rung, with the errors of each tensor."""
    rows: list[tuple[str, ...]] = []
    for figure in figures:
        rung = figure.rung
        if figure.outcome is None:
            why = f"left out: {figure.left_out}" if figure.left_out else f"failed: {figure.failed}"
            rows.append((rung.name, why, *[""] * (len(STEP_HEADS) - 2)))
            continue
        share = max((finding.share for finding in figure.findings), default=0.0)
        error = f"{share:.2g} of the bound" if figure.wrong is None else f"WRONG: {figure.wrong.name}"
        name = f"{rung.name} (simulated)" if is_simulated(rung) else rung.name
        rows.append(
            (name, rung.adds, str(len(figure.findings)), error, f"{figure.outcome.steps[-1]:.7g}", _bits(figure, figures))
        )
    return rows


def _bits(figure: Figure, figures: Sequence[Figure]) -> str:
    """Returns the first rung whose losses of the first steps have the same digits, if it is another."""
    assert figure.outcome
    same = (other for other in figures if other.outcome and other.outcome.steps == figure.outcome.steps)
    return "" if (owner := next(same)) is figure else owner.rung.name


def picture(climb: Climb, figures: Sequence[Figure]) -> Plot | None:
    """Draws the seconds of each trained rung: a bar for the total, a point for each phase; None without trained rungs."""
    reports = {figure.rung.name: figure.outcome for figure in figures if figure.outcome and figure.epochs}
    if not reports:
        return None
    plot = Plot(f"{title_of(climb)}, {climb.epochs} epochs", y="seconds", log="y")
    plot.bars(list(reports), [report.total for report in reports.values()], "all but load")
    for phase in PHASES[1:]:
        spent = [(place, report.seconds.get(phase, 0.0)) for place, report in enumerate(reports.values())]
        points = [point for point in spent if point[1] > 0]
        if points:
            plot.points([place for place, _ in points], [seconds for _, seconds in points], phase)
    return plot


def markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
    return "\n".join([*lines, *("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)])


def describe(climb: Climb, figures: Sequence[Figure]) -> dict[str, Any]:
    """Returns the measurements as plain values."""
    p = climb.problem
    return {
        "ladder": "mnist", "inputs": p.inputs, "hidden": p.hidden, "outputs": p.outputs, "batch": p.batch,
        "images": len(p.images), "epochs": climb.epochs, "steps": climb.steps, "threads": climb.threads,
        "figures": [_plain(figure) for figure in figures],
    }  # fmt: skip


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        "rung": figure.rung.name, "left_out": figure.left_out, "failed": figure.failed, "off": figure.off,
        "is_simulated": is_simulated(figure.rung),
        "epochs": figure.epochs, "outcome": figure.outcome and asdict(figure.outcome),
        "findings": [asdict(finding) for finding in figure.findings],
    }  # fmt: skip


# ---- a fault, and what was found ----
FINDING_HEADS = ("tensor", "kernel", "on its own inputs", "beside the gold standard")


def finding_rows(findings: Sequence[Finding]) -> list[tuple[str, ...]]:
    """Returns the cells of the tensors of one step, in its order."""
    rows: list[tuple[str, ...]] = []
    for finding in findings:
        share = f"{finding.share:.2g} of the bound" if finding.is_right else "WRONG"
        beside = "" if finding.beside_gold is None else f"{finding.beside_gold:.1e}"
        rows.append((finding.name, finding.kernel.removeprefix("line:"), share, beside))
    return rows


def place_of(rung: Rung, kernel: str) -> str:
    """Returns the file and line of a kernel's definition in a rung's program, or the file alone."""
    name = re.escape(kernel.removeprefix("line:"))
    pattern = rf"^\s*{name} = " if kernel.startswith("line:") else rf"^\w[\w\s*]*\b{name}\("
    for number, line in enumerate(rung.source.read_text().splitlines(), 1):
        if re.match(pattern, line):
            return f"{rung.file}:{number}"
    return rung.file


def sentence(rung: Rung, finding: Finding | None, planted: Planted | None = None) -> str:
    """Returns the verdict on a rung: the first tensor and kernel that deviate, and the guess."""
    words = [f"planted in {rung.file}:{planted.line}: {planted.before}", f"  as: {planted.after}"] if planted else []
    if finding is None:
        return "\n".join([*words, f"{rung.name}: nothing deviates"])
    kernel = finding.kernel.removeprefix("line:")
    return "\n".join([
        *words,
        f"found in {rung.name}: step {finding.step}, {finding.phase}: tensor {finding.name}, written by {kernel} "
        f"({place_of(rung, finding.kernel)})",
        f"  {finding.fact}",
        f"  guess: {finding.guess or 'no known mistake gives these numbers'}",
    ])  # fmt: skip
