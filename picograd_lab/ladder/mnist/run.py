"""`picograd ladder mnist`: one perceptron in many programs, checked kernel by kernel, trained and timed.

In:    `LadderConfig`
Out:   tables; optionally JSON, a page of the docs and its picture; with `--inject`, the fault that was found
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from picograd.errors import ArgumentError
from picograd_lab.doctor import processor_name
from picograd_lab.ladder.mnist import table
from picograd_lab.ladder.mnist.climb import Climb, Figure, chosen_rungs, climbed, injected, prepared
from picograd_lab.ladder.mnist.rungs import Rung, why_not
from picograd_lab.ladder.run import load_average, replace_parts, write

if TYPE_CHECKING:
    from picograd_lab.ladder.run import LadderConfig

SIZES = ("small", "large")
WIDTH = 200  # letters of a table in a file
WRONG = 1


def climb_mnist(config: LadderConfig) -> int:
    """Runs `picograd ladder mnist`; returns 0, or 1 if a rung deviates or a planted fault was not found.

    Raises:
      ArgumentError: a size, rung or fault is unknown, or a number is below 0.
      DataError:     MNIST cannot be found.
    """
    size = config.size or "small"
    if size not in SIZES:
        raise ArgumentError(f"ladder: mnist comes in sizes {', '.join(SIZES)}, got {size}.")
    if config.epochs < 0:
        raise ArgumentError(f"ladder: epochs must be at least 0, got {config.epochs}.")
    if config.inject and (config.json or config.docs):
        raise ArgumentError("ladder: --inject prints the mistake it finds; leave out --json and --docs.")
    rungs = chosen_rungs(config.rungs)
    with TemporaryDirectory(prefix="picograd_") as name:
        folder = Path(name)
        if config.inject:
            return _inject(prepared(size, folder, 0), rungs, config.inject, folder)
        load = load_average()
        climb = prepared(size, folder, config.epochs)
        figures = list(climbed(climb, rungs, folder))
    source = f"{processor_name()}; {climb.threads} thread; load when started {load:.2f}; {datetime.now(UTC):%Y-%m-%d}"
    _show(climb, figures, source)
    if config.json is not None:
        record = {**table.describe(climb, figures), "date": f"{datetime.now(UTC):%Y-%m-%d}", "load_average": load,
                  "processor": processor_name()}  # fmt: skip
        write(config.json, json.dumps(record, indent=1) + "\n")
    if config.docs is not None:
        _write_docs(config.docs, size, climb, figures, source)
    return 0 if all(figure.is_right for figure in figures) else WRONG


def _show(climb: Climb, figures: list[Figure], source: str) -> None:
    _print(f"{table.title_of(climb)}: the first {climb.steps} steps", table.STEP_HEADS, table.step_rows(figures), "")
    rows = table.time_rows(figures)
    if rows:
        trained = f"{climb.epochs} epoch{'s' * (climb.epochs != 1)}"
        _print(f"{table.title_of(climb)}, {trained}: seconds", table.TIME_HEADS, rows, source)
    for figure in figures:
        if figure.wrong is not None:
            print(table.sentence(figure.rung, figure.wrong))


def _inject(climb: Climb, rungs: list[Rung], fault: str, folder: Path) -> int:
    found = []
    for rung, reason in [(rung, reason) for rung in rungs if rung.is_by_hand and (reason := why_not(rung))]:
        print(f"{rung.name} is left out: {reason}")
    for planted, figure in injected(climb, rungs, fault, folder):
        wrong = figure.wrong
        number = wrong.step if wrong else 1
        step = [finding for finding in figure.findings if finding.step == number]
        _print(f"{figure.rung.name}, step {number}", table.FINDING_HEADS, table.finding_rows(step), "")
        print(table.sentence(figure.rung, wrong, planted), end="\n\n")
        found.append(wrong)
    if not found:
        raise ArgumentError(f"ladder: {fault} has no place in the rungs that this machine can run.")
    return 0 if all(found) else WRONG


def _print(title: str, heads: tuple[str, ...], rows: list[tuple[str, ...]], source: str) -> None:
    shown = Table(title=title, caption=source, title_justify="left", caption_justify="left")
    for place, head in enumerate(heads):
        shown.add_column(head, justify="left" if place < 2 else "right", overflow="fold")
    for row in rows:
        shown.add_row(*row)
    console = Console()
    Console(highlight=False, width=console.width if console.is_terminal else WIDTH).print(shown, markup=False)


def _write_docs(page: Path, size: str, climb: Climb, figures: list[Figure], source: str) -> None:
    """Replaces the tables of a size between the page's marks, and draws its picture into the page's folder."""
    plot = table.picture(climb, figures)
    if plot is not None:
        plot.save(page.with_name(f"{page.stem}_{size}.svg"))
    texts = {
        f"ladder:mnist {size}": f"{table.markdown(table.TIME_HEADS, table.time_rows(figures))}\n\n*{source}*",
        f"ladder:mnist {size} steps": table.markdown(table.STEP_HEADS, table.step_rows(figures)),
    }
    print(f"{page}: replaced {', '.join(replace_parts(page, texts)) or 'nothing'}")
