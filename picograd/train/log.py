"""Says how training goes: a progress bar on a terminal, one line now and then elsewhere.

In:    the number of steps done, and the latest figures
Out:   text on standard error (results go to standard output, so the two can be told apart), and a file for curves
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn


class TrainingLog:
    """Shows steps done, figures such as loss and accuracy, and items per second.

    The rate counts from the end of the first step, which compiles.

    title:  what is trained, before the bar
    item:   what a batch consists of: "images"
    first:  steps done before; of a run that is resumed
    last:   steps when training is complete
    lines:  about how many lines are printed in all where there is no terminal
    file:   receives all figures that are shown, a JSON object a line; a run that is resumed adds to it
    """

    def __init__(
        self, title: str, item: str, first: int, last: int, lines: int = 10, console: Console | None = None,
        file: Path | None = None,
    ):  # fmt: skip
        self.title, self.item, self.first, self.last, self.file = title, item, first, last, file
        if file is not None and not first:
            file.write_text("")
        self.console = console or Console(stderr=True, highlight=False)
        self.line_every = max(1, (last - first) // lines)
        self._items, self._since, self._next_line = 0, 0.0, first + self.line_every
        self._task: TaskID | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[figures]}"),
            TimeRemainingColumn(),
            console=self.console,
        )

    def __enter__(self) -> TrainingLog:
        if self.console.is_terminal:
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.last, completed=self.first, figures="compiling")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._task is not None:
            self._bar.stop()

    def step_done(self, step: int, num_items: int) -> None:
        """Counts a step.

        Args:
          step:       steps done, this one included
          num_items:  items in its batch
        """
        if self._since == 0.0:
            self._since = time.perf_counter()
        else:
            self._items += num_items
        if self._task is not None:
            self._bar.update(self._task, completed=step)

    def show(self, step: int, figures: Mapping[str, float]) -> None:
        """Shows the latest figures.

        Args:
          step:     steps done
          figures:  value by name: {"loss": 0.31, "accuracy": 0.91}; "validation at 250" is of step 250
        """
        if self.file is not None:
            self._note(step, figures)
        text = "  ".join(f"{name} {value:.4f}" for name, value in figures.items())
        text += f"  {self.items_per_second():,.0f} {self.item}/s"
        if self._task is not None:
            self._bar.update(self._task, figures=text)
        elif step == self.last or step >= self._next_line:
            self._next_line = step + self.line_every
            self.console.print(f"{self.title}  {step}/{self.last}  {text}", soft_wrap=True)

    def _note(self, step: int, figures: Mapping[str, float]) -> None:
        """Adds the figures to the file."""
        row: dict[str, float] = {"step": step, f"{self.item}_per_second": round(self.items_per_second(), 1)}
        for name, value in figures.items():
            name, _, at = name.partition(" at ")
            row |= {name: value, f"{name}_step": int(at)} if at else {name: value}
        assert self.file is not None
        with self.file.open("a") as lines:
            lines.write(json.dumps(row) + "\n")

    def items_per_second(self) -> float:
        """Returns the rate since the end of the first step, in items per second."""
        elapsed = time.perf_counter() - self._since
        return self._items / elapsed if self._items else 0.0
