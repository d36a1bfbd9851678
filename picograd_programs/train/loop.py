"""The part that all trainings share: steps, figures, Ctrl-C, checkpoints now and then.

In:    a function that makes one step, a function that saves
Out:   the number of steps done; a run that was stopped says how it goes on

Figures go to standard error (results to standard output, so the two can be told apart), and to a file for curves. Ctrl-C
lets the step in progress end, so that no half-made update is ever saved. What changes from step to step, such as the
learning rate, follows from the step's number alone.
"""

from __future__ import annotations

import json
import math
import shlex
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from picograd.errors import ArgumentError, DataError
from picograd.tensor.tensor import Tensor

# ---- learning rates and seeds of steps ----
LEAST = 0.1  # of the highest learning rate: where the cosine ends


def cosine_with_warmup(step: int, lr: float, warmup: int, last: int) -> float:
    """Returns the learning rate of a step: a straight line up to lr, then half a cosine down to a tenth of it.

    lr * (step + 1) / (warmup + 1) before `warmup`; then lr * (0.1 + 0.9 * (1 + cos(pi * done)) / 2), done from 0 to 1

    Args:
      step:    counted from 0
      lr:      the highest learning rate
      warmup:  steps of the straight line
      last:    steps of the whole training

    Source:    Loshchilov, Hutter 2016, arXiv:1608.03983, eq. 5, one period; the line up and the tenth as in nanoGPT.

    >>> [round(cosine_with_warmup(step, 1.0, 2, 10), 3) for step in (0, 1, 2, 6, 10)]
    [0.333, 0.667, 1.0, 0.55, 0.1]
    """
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    done = min(1.0, (step - warmup) / max(1, last - warmup))
    return lr * (LEAST + (1 - LEAST) * 0.5 * (1 + math.cos(math.pi * done)))


def seed_of_step(seed: int, step: int) -> int:
    """Returns the seed of a step's draws, dropout say, so that a resumed run draws what an unbroken one would have.

    >>> seed_of_step(0, 1) == seed_of_step(0, 1) != seed_of_step(1, 0)
    True
    """
    return int(np.random.SeedSequence((seed, step)).generate_state(1, np.uint64)[0])


# ---- Ctrl-C ----
class Interrupt:
    """While it is entered, the first Ctrl-C only sets `asked`; a second one raises KeyboardInterrupt as usual.

    asked:  True once Ctrl-C was pressed

    >>> with Interrupt() as interrupt:
    ...     interrupt.asked
    False
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: Any = None

    def __enter__(self) -> Interrupt:
        # Python lets only the main thread set handlers; elsewhere Ctrl-C keeps its usual meaning.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


# ---- figures ----
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


# ---- steps ----
SHOW_EVERY = 20  # steps; reading a figure waits for the device


def run_steps(
    log: TrainingLog,
    num_items: int,
    make_step: Callable[[int], Mapping[str, Tensor]],
    save: Callable[[int], None],
    save_every: int,
) -> int:
    """Makes the steps log.first .. log.last - 1, saving every `save_every` steps and at the end.

    After Ctrl-C the step in progress ends, the state is saved, and the function returns.

    Args:
      num_items:   items in a batch
      make_step:   trains on batch number `step`, returns figures of shape ()
      save:        writes the state after so many steps

    Returns:       steps done: less than log.last if the user stopped it
    """
    done = log.first
    with Interrupt() as interrupt, log:
        while done < log.last and not interrupt.asked:
            figures = make_step(done)
            done += 1
            log.step_done(done, num_items)
            if done % SHOW_EVERY == 0 or done == log.last:
                log.show(done, {name: float(value.item()) for name, value in figures.items()})
            if done % save_every == 0 and done < log.last:
                save(done)
        save(done)
    return done


def check_counts(config: Any, **limits: int) -> None:
    """Checks that every whole number of the settings is at least 1, the seed at least 0, every rate finite and at least 0.

    Args:
      limits:  the largest value of some settings, by name

    Raises:
      ArgumentError: a setting is below 1 or above its limit; or it is a rate below 0, infinite or NaN.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(value, float) and not (math.isfinite(value) and value >= 0):
            raise ArgumentError(f"{flag}: got {value}, it must be a finite number, 0 or more.")
        if not isinstance(value, int):
            continue
        least, most = int(field.name != "seed"), limits.get(field.name)
        if value < least or (most is not None and value > most):
            allowed = f"at least {least}" if most is None else f"1 to {most:,}"
            raise ArgumentError(f"{flag}: got {value:,}, it must be {allowed}.")


def check_writable(path: Path) -> None:
    """Checks, before any time is spent on training, that a file can be written where it shall be.

    Raises:
      DataError: its folder cannot be made or written, or it is a folder itself.
    """
    if path.is_dir():
        raise DataError(f"{path}: is a folder.", hint=f"name a file in it: {path / 'run.safetensors'}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise DataError(f"{path}: cannot be written: {error.strerror or error}.", hint="name another place.") from None


def check_files(out: Path, log: Path | None, resume: Path | None) -> None:
    """Checks that the files of a training can be written; a checkpoint that it replaces is mentioned on standard error.

    Raises:
      DataError: as check_writable.
    """
    for path in (out, log):
        if path is not None:
            check_writable(path)
    if resume is None and out.is_file():
        print(f"{out} is of an earlier training and will be replaced; --resume {out} goes on with it.", file=sys.stderr)


def report_end(kind: str, config: Any, done: int, last: int, seconds: float) -> bool:
    """Prints how far a training came, and how one that was stopped goes on; returns True when it is at its end."""
    print(f"trained {done} of {last} steps in {seconds:.1f} s; checkpoint: {config.out}")
    if done < last:
        print(f"go on with: {command_line(kind, config, resume=config.out)}")
    return done >= last


def command_line(kind: str, config: Any, **changes: object) -> str:
    """Returns the shell command that runs a training with some settings; defaults are left out.

    Args:
      kind:     "mnist"
      config:   a dataclass instance
      changes:  settings to say differently

    >>> @dataclass
    ... class Settings:
    ...     epochs: int = 6
    ...     seed: int = 0
    >>> command_line("mnist", Settings(seed=3), epochs=8)
    'picograd train mnist --epochs 8 --seed 3'
    """
    words = ["picograd", "train", kind]
    for field in fields(config):
        value = changes.get(field.name, getattr(config, field.name))
        if value != field.default:
            words += [f"--{field.name.replace('_', '-')}", str(value)]
    return shlex.join(words)
