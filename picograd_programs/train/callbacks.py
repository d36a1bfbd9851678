"""Callbacks of a training: progress bar, log, evaluations, checkpoints, TensorBoard.

`Trainer.fit` calls them between its steps. Figures go to standard error, separate from results on standard output, and
to files for curves.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from itertools import count
from os import PathLike
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from picograd.errors import ArgumentError, DataError, FileError
from picograd.files import write_whole
from picograd.ir.origin import format_nbytes
from picograd.tensor.costs import max_memory_allocated
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd_formats.state_file import load, save
from picograd_programs.train.curve import curve
from picograd_programs.train.peaks import peak_flops
from picograd_programs.train.trainer import Batch, Callback, NotFinite, Trainer

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class Every(Callback):
    """Calls a function at regular intervals and at the end, for evaluations, samples or pictures.

    The function gets the model in evaluation mode, without gradients; with averaged weights if there are any.

    Args:
      steps:     number of steps between two calls
      function:  model -> figures by name, which are shown and logged; or a text, such as a sample, which is printed with
      its step and logged; or None

    Raises:
      ArgumentError: steps is below 1.

    >>> model = nn.Linear(1, 1)
    >>> trainer = train.Trainer(model, optim.SGD(model.parameters(), lr=0.1), lambda model, x: model(x).square().mean())
    >>> weights = []
    >>> every = train.Every(2, lambda model: weights.append(model.weight.item()))
    >>> trainer.fit([Tensor([[1.0]])], steps=5, callbacks=[every])
    5
    >>> len(weights)
    3
    """

    def __init__(self, steps: int, function: Callable[[Any], Any]):
        if steps < 1:
            raise ArgumentError(f"Every: steps must be at least 1, got {steps}.")
        self.every, self.function, self.last = steps, function, -1

    def begin(self, trainer: Trainer) -> None:
        """Records the first step as already evaluated."""
        self.last = trainer.done or -1

    def after_step(self, trainer: Trainer, parts: Sequence[Batch]) -> None:
        """Calls the function, if it is due."""
        if trainer.done % self.every == 0 or trainer.done == trainer.steps:
            self.ask(trainer)

    def save(self, trainer: Trainer) -> None:
        """Calls the function after the last step."""
        if self.last != trainer.done:
            self.ask(trainer)

    def ask(self, trainer: Trainer) -> None:
        """Calls the function."""
        self.last = trainer.done
        model = trainer.model_in_use()
        model.eval()
        try:
            with no_grad():
                found = self.function(model)
        finally:
            model.train()
        if isinstance(found, str):
            trainer.tell(found)
        elif found:
            trainer.show({name: float(value) for name, value in found.items()})


# ---- on a terminal ----
CURVE_ROWS, CURVE_COLUMNS = 5, 60


class Progress(Callback):
    """Shows a bar with the time left; below it figures, items per second, memory, MFU, and the curve of the loss.

    If standard error is not a terminal, about ten lines are printed instead, with the time left. The rate counts from the
    end of the first step, which compiles. MFU is the share of the device's peak that the model's FLOPs use, if the peak is
    known (peaks.py); otherwise FLOP/s are shown, and a line at the end says so.

    Args:
      title:  text before the bar
      item:   what a batch's first tensor has along its first axis, such as "images"; with `per`, along all axes
      per:    "row" counts rows of a batch; "element" counts elements, such as tokens
      lines:  approximate number of printed lines without a terminal
    """

    def __init__(
        self,
        title: str = "training",
        item: str = "examples",
        per: str = "row",
        lines: int = 10,
        console: Console | None = None,
    ):
        if per not in ("row", "element"):
            raise ArgumentError(f'Progress: per must be "row" or "element", got {per!r}.')
        self.title, self.item, self.per, self.lines = title, item, per, lines
        self.console = console or Console(stderr=True, highlight=False)
        self.items, self.since, self.first, self.flops = 0, 0.0, 0, 0
        self.losses: list[float] = []
        self.figures: dict[str, str] = {}
        self.live: Live | None = None

    def begin(self, trainer: Trainer) -> None:
        """Draws the empty bar."""
        self.items, self.since, self.first = 0, 0.0, trainer.done
        self.line_every = max(1, (trainer.steps - trainer.done) // self.lines)
        self.next_line = trainer.done + self.line_every
        self.bar = Bar(
            TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("ETA"),
            TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self.task: TaskID = self.bar.add_task(self.title, total=trainer.steps, completed=trainer.done)
        if self.console.is_terminal:
            self.live = Live(Group(self.bar, Text("compiling")), console=self.console, refresh_per_second=4)
            self.live.start()

    def after_step(self, trainer: Trainer, parts: Sequence[Batch]) -> None:
        """Counts the items of a step."""
        if not self.since:  # the first step has compiled
            self.flops = trainer.flops_of_step(parts)
            self.since = time.perf_counter() - trainer.beside
        else:
            self.items += sum(num_items(part, self.per) for part in parts)
        self.bar.update(self.task, completed=trainer.done)

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Shows figures beside the bar, or prints a line."""
        self.figures |= {name: f"{name} {value:.4f}" for name, value in figures.items()}
        rate = f"{self.items_per_second(trainer):,.0f} {self.item}/s"
        text = "  ".join([*self.figures.values(), rate, *self.costs(trainer)])
        if "loss" in figures:
            self.losses.append(figures["loss"])
        if self.live is not None:
            self.live.update(Group(self.bar, Text(text), Text(curve(self.losses, CURVE_ROWS, CURVE_COLUMNS))))
        elif "loss" in figures if trainer.done == trainer.steps else trainer.done >= self.next_line:
            self.next_line = trainer.done + self.line_every
            left = self.bar.tasks[0].time_remaining  # None until two steps were timed
            eta = f"  ETA {timedelta(seconds=int(left))}" if left else ""
            self.console.print(f"{self.title}  {trainer.done}/{trainer.steps}  {text}{eta}", soft_wrap=True)

    def items_per_second(self, trainer: Trainer) -> float:
        """Returns the rate since the end of the first step, in items per second."""
        return self.items / self.seconds(trainer) if self.items else 0.0

    def seconds(self, trainer: Trainer) -> float:
        """Returns the time of the steps after the first one, without evaluations and checkpoints."""
        return time.perf_counter() - self.since - trainer.beside

    def costs(self, trainer: Trainer) -> list[str]:
        """Returns the peak of memory, and MFU or FLOP/s."""
        device = device_of(trainer)
        memory = f"{format_nbytes(max_memory_allocated(device))} peak"
        steps = trainer.done - self.first - 1
        if not steps or not self.flops:
            return [memory]
        rate = steps * self.flops / self.seconds(trainer)
        peak = peak_flops(device, trainer.precision)
        return [memory, rate_text(rate) if peak is None else f"MFU {rate / peak:.1%}"]

    def end(self, trainer: Trainer) -> None:
        """Ends the bar, and reports if MFU is unknown."""
        if self.live is not None:
            self.live.stop()
            self.live = None
        device = device_of(trainer)
        if self.flops and peak_flops(device, trainer.precision) is None:
            self.console.print(
                f"the peak of {device} is unknown, so FLOP/s are shown instead of MFU.", soft_wrap=True
            )


def device_of(trainer: Trainer) -> str | None:
    """Returns the device of a trainer's parameters; None without parameters."""
    return str(trainer.parameters[0].device).lower() if trainer.parameters else None


def rate_text(flops_per_second: float) -> str:
    """Formats a rate for readers.

    >>> rate_text(2.5e9)
    '2.5 GFLOP/s'
    """
    power = next((power for power in (15, 12, 9, 6) if flops_per_second >= 10**power), 3)
    return f"{flops_per_second / 10**power:.1f} {dict(zip((3, 6, 9, 12, 15), 'KMGTP'))[power]}FLOP/s"


def num_items(batch: Batch, per: str) -> int:
    """Returns the number of rows, or elements, of a batch's first tensor."""
    while not isinstance(batch, Tensor):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return batch.numel() if per == "element" else (batch.shape[0] if batch.ndim else 1)


# ---- files of figures ----
LINE_START = '{"step": '


class Log(Callback):
    """Appends figures to a file, one JSON object per line, for curves: {"step": 20, "seconds": 1.2, "loss": 2.3}.

    A sample is also a line: {"step": 500, "seconds": 9.1, "text": "emma"}. A run from step 0 starts a new file; a resumed
    run appends, after the lines of repeated steps are removed.

    Args:
      path:  path of the file
    """

    def __init__(self, path: str | PathLike[str]):
        self.path, self.since, self.is_full = Path(path), 0.0, False

    def begin(self, trainer: Trainer) -> None:
        """Opens the file.

        Raises:
          DataError: the file cannot be written.
        """
        kept = [line for line in self._lines() if line["step"] <= trainer.done] if trainer.done else []
        self.since = time.perf_counter() - (kept[-1].get("seconds", 0.0) if kept else 0.0)
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_whole("Log", self.path, lambda file: file.write(text.encode()), makes_folder=True)

    def _lines(self) -> list[dict[str, Any]]:
        """Returns the complete lines; warns about others, such as a truncated last one.

        Raises:
          DataError: the file is not a log.
        """
        try:
            text = self.path.read_text(errors="replace")
        except OSError:
            return []
        found = [line_of(line) for line in text.splitlines(keepends=True)]
        whole = [line for line in found if line is not None]
        if found and not whole and not text.startswith(LINE_START[: len(text)]):
            raise DataError(f"Log: {self.path} is not a log of a training.", hint="name another file.")
        if len(whole) < len(found):  # the machine stopped during a write
            num = len(found) - len(whole)
            print(f"warning: Log: {self.path}: {num:,} of its lines cannot be read and are dropped.", file=sys.stderr)
        return whole

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Appends a line of figures."""
        self.add(trainer, figures)

    def told(self, trainer: Trainer, text: str) -> None:
        """Appends a line with a text."""
        self.add(trainer, {"text": text})

    def add(self, trainer: Trainer, figures: Mapping[str, float | str]) -> None:
        """Appends a line; if the file cannot be written, leaves it unchanged and warns the first time."""
        line = {"step": trainer.done, "seconds": round(time.perf_counter() - self.since, 3), **figures}
        text = (json.dumps(line) + "\n").encode()
        try:
            with self.path.open("ab", buffering=0) as file:
                whole = file.tell()
                try:
                    if file.write(text) < len(text):
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                except OSError:
                    file.truncate(whole)
                    raise
        except OSError as error:
            if not self.is_full:
                fact = f"Log: {self.path}: cannot be written: {error.strerror}."
                print(f"warning: {fact} The training continues without these figures.", file=sys.stderr, flush=True)
            self.is_full = True


def line_of(text: str) -> dict[str, Any] | None:
    """Parses a line of a log; None for a damaged one.

    >>> line_of('{"step": 20, "loss": 2.5}\\n'), line_of('{"step": 40, "lo')
    ({'step': 20, 'loss': 2.5}, None)
    """
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if text.endswith("\n") and isinstance(line, dict) and isinstance(line.get("step"), int) else None


class TensorBoard(Callback):
    """Writes figures for TensorBoard. Needs `pip install tensorboard`.

    Args:
      folder:  folder of the run

    Raises:
      ArgumentError: TensorBoard is not installed.
    """

    def __init__(self, folder: str | PathLike[str]):
        try:
            from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-not-found]
            from tensorboard.compat.proto.summary_pb2 import Summary  # type: ignore[import-not-found]
            from tensorboard.summary.writer.event_file_writer import EventFileWriter  # type: ignore[import-not-found]
        except ImportError:
            raise ArgumentError("TensorBoard: it is not installed.", hint="pip install tensorboard") from None
        self.event, self.summary, self.make_writer, self.folder = Event, Summary, EventFileWriter, str(folder)

    def begin(self, trainer: Trainer) -> None:
        """Opens the file; only now, as that of an earlier training is moved first."""
        self.writer = self.make_writer(self.folder)

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Writes figures."""
        values = [self.summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self.writer.add_event(self.event(wall_time=time.time(), step=trainer.done, summary=self.summary(value=values)))

    def end(self, trainer: Trainer) -> None:
        """Flushes the file."""
        self.writer.flush()


# ---- checkpoints ----
NAME = re.compile(r"step-(\d{8})\.safetensors")
BEST = "best.safetensors"
FULL = (errno.ENOSPC, errno.EDQUOT)
MOVING = ".earlier"  # temporary folder of an earlier training's files
NOT_MOVED = "the earlier training there cannot be moved"


class Checkpoints(Callback):
    """Saves the state of a training in a folder, at regular intervals and at the end; keeps the latest files.

    A file is written under a temporary name, flushed to the disk and renamed, so that it is either complete or missing; it
    has a checksum. A state with a nonfinite weight or loss is not saved. If the disk is full during a training, a warning
    is printed, the oldest checkpoints except the newest complete one are deleted for space, and the training continues.

    A training from the start deletes nothing: files of an earlier one are moved to the subfolder earlier-1, or the next
    free number, with a message on standard error. Only one training at a time writes to a folder.

    Args:
      folder:  folder, created if it is missing
      every:   number of steps between two checkpoints
      keep:    number of files to keep
      facts:   plain values by name, saved with the state: the run's settings
      lowest:  figure, such as "validation loss", whose best (lowest) state is also saved, as best.safetensors
      others:  patterns of the training's other files, such as "log.jsonl", "*.png", which move with its checkpoints

    State: least, that lowest value, and least_at, its step; infinite and 0 before the first.

    Raises:
      ArgumentError: every or keep is below 1.

    >>> import tempfile
    >>> model = nn.Linear(1, 1)
    >>> trainer = train.Trainer(model, optim.SGD(model.parameters(), lr=0.1), lambda model, x: model(x).square().mean())
    >>> checkpoints = train.Checkpoints(tempfile.mkdtemp(), every=2)
    >>> trainer.fit([Tensor([[1.0]])], steps=5, callbacks=[checkpoints])
    5
    >>> [path.name for path in checkpoints.paths()]
    ['step-00000002.safetensors', 'step-00000004.safetensors', 'step-00000005.safetensors']
    >>> checkpoints.restore(trainer), trainer.done
    (True, 5)
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        every: int = 500,
        keep: int = 3,
        facts: Mapping[str, Any] | None = None,
        lowest: str | None = None,
        others: Sequence[str] = (),
    ):
        if every < 1 or keep < 1:
            raise ArgumentError(f"Checkpoints: every and keep must be at least 1, got {every} and {keep}.")
        self.folder, self.every, self.keep, self.facts = Path(folder), every, keep, dict(facts or {})
        self.lowest, self.least, self.least_at = lowest, math.inf, 0
        self.others = ("step-*.safetensors", BEST, *others)
        self.saved, self.held = -1, ExitStack()
        self.restored: Trainer | None = None  # which resumed from a checkpoint here, perhaps of step 0

    def paths(self) -> list[Path]:
        """Returns the existing checkpoints, the oldest first."""
        return sorted(path for path in self.folder.glob("step-*.safetensors") if NAME.fullmatch(path.name))

    def begin(self, trainer: Trainer) -> None:
        """Saves the start of a training, from which a nonfinite loss can be explained.

        Raises:
          DataError: the folder cannot be written, or another training writes to it.
        """
        self.held.enter_context(only_writer(self.folder))
        if not trainer.done and self.restored is not trainer:
            self.least, self.least_at = math.inf, 0
            self.set_aside()
            self.write(trainer)

    def end(self, trainer: Trainer) -> None:
        """Allows other trainings to write to the folder."""
        self.held.close()

    def set_aside(self) -> None:
        """Moves all files of an earlier training to a subfolder, with a message.

        Files go into a hidden folder first, which is renamed at the end; if the process is killed in between, `bring_back`
        undoes the move, so that no training is ever split.

        Raises:
          FileError: a file cannot be moved.
        """
        self.bring_back()
        found = sorted({path for pattern in self.others for path in self.folder.glob(pattern)})
        if not found:
            return
        place = next(place for n in count(1) if not (place := self.folder / f"earlier-{n}").exists())
        with named_errors(self.folder, NOT_MOVED):
            moving = self.folder / MOVING
            moving.mkdir()
            for path in found:
                path.rename(moving / path.name)
            moving.rename(place)
        print(f"{self.folder}: the earlier training there is now in {place}.", file=sys.stderr, flush=True)

    def bring_back(self) -> None:
        """Undoes the move of a killed process.

        Raises:
          FileError: a file cannot be moved.
        """
        moving = self.folder / MOVING
        with named_errors(self.folder, NOT_MOVED):
            if moving.is_dir():
                for path in sorted(moving.iterdir()):
                    path.rename(self.folder / path.name)
                moving.rmdir()

    def after_step(self, trainer: Trainer, parts: Sequence[Batch]) -> None:
        """Saves the state, if it is due.

        Raises:
          NotFinite: a loss or a weight is NaN or infinite.
        """
        if trainer.done % self.every == 0 and trainer.done < trainer.steps:
            with full_disk_tolerated():
                self.write(trainer)

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Saves the state separately, if its figure is the lowest so far.

        Raises:
          NotFinite: a loss or a weight is NaN or infinite.
        """
        if self.lowest is not None and figures.get(self.lowest, math.inf) < self.least:
            kept = self.least, self.least_at
            self.least, self.least_at = figures[self.lowest], trainer.done  # the file includes them
            with full_disk_tolerated():
                self.keep_as(BEST, trainer)
                kept = self.least, self.least_at
            self.least, self.least_at = kept

    def save(self, trainer: Trainer) -> None:
        """Saves the state at the end.

        Raises:
          NotFinite: a loss or a weight is NaN or infinite.
          DataError: the file cannot be written.
        """
        if self.saved != trainer.done:
            self.write(trainer)

    def write(self, trainer: Trainer) -> None:
        """Writes a checkpoint, and removes those before the last `keep`, and later ones, which are corrupt or obsolete."""
        name = f"step-{trainer.done:08}.safetensors"
        self.keep_as(name, trainer)
        self.saved = trainer.done
        paths = self.paths()
        stay = [path for path in paths if path.name <= name][-self.keep :]
        with full_disk_tolerated(), named_errors(self.folder, "old checkpoints there cannot be removed"):
            for path in paths:
                if path not in stay:
                    path.unlink(missing_ok=True)

    def keep_as(self, name: str, trainer: Trainer) -> None:
        """Writes the state to a file of the folder."""
        trainer.look_at_losses()
        if not trainer.is_finite():
            raise NotFinite(f"a weight after step {trainer.done} is not finite")
        self.folder.mkdir(parents=True, exist_ok=True)
        least = {} if self.lowest is None else {"least": self.least, "least_at": self.least_at}
        state = {**trainer.state_dict(), "facts": self.facts, **least}
        removable = self.older(name)
        while True:
            try:
                return save(state, self.folder / name)
            except FileError as error:
                oldest = next(removable, None) if error.errno in FULL else None
                if oldest is None:
                    raise
                with named_errors(self.folder, "old checkpoints there cannot be removed"):
                    oldest.unlink()
                print(f"warning: {error.fact} {oldest.name} is removed to free space.", file=sys.stderr, flush=True)

    def older(self, name: str) -> Iterator[Path]:
        """Yields the checkpoints that may be deleted for space, the oldest first; the newest complete one is kept."""
        others = [path for path in self.paths() if path.name != name]
        if len(others) > 1 and (found := self.newest()) is not None:
            yield from (path for path in others if path != found[0])

    def restore(self, trainer: Trainer) -> bool:
        """Restores the newest complete state, and returns whether there was one."""
        found = self.newest()
        if found is not None:
            self.take(trainer, found[1])
        return found is not None

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Returns the newest complete checkpoint, and its state; None without one.

        Truncated or corrupt files are named on standard error.
        """
        self.bring_back()
        paths = self.paths()
        for path in reversed(paths):
            try:
                return path, load(path)
            except DataError as error:
                before = "" if path is paths[0] else " The checkpoint before it is used."
                print(f"warning: {error.fact}{before}", file=sys.stderr, flush=True)
        return None

    def take(self, trainer: Trainer, state: Mapping[str, Any]) -> None:
        """Loads the state of a checkpoint into a trainer.

        Raises:
          PicogradError: the state is of another model.
        """
        trainer.load_state_dict(state)
        self.least, self.least_at = state.get("least", math.inf), state.get("least_at", 0)
        self.saved, self.restored = trainer.done, trainer


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Excludes other trainings from a folder, by a lock of the system, which ends with the process.

    Raises:
      DataError: another training writes to it, or the folder cannot be created.
    """
    if fcntl is None:
        yield
        return
    with named_errors(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # network file systems may have no locks
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "name another folder, or wait until that training has ended."
                raise DataError(f"Checkpoints: {folder}: another training is writing there.", hint) from None
        yield
    finally:
        os.close(opened)


@contextmanager
def named_errors(folder: Path, fact: str) -> Iterator[None]:
    """Converts the system's errors about a folder to FileErrors."""
    try:
        yield
    except OSError as error:
        raise FileError.of(error, f"Checkpoints: {folder}: {fact}") from None


@contextmanager
def full_disk_tolerated() -> Iterator[None]:
    """Converts errors about a file's writing to a warning during a training, which continues."""
    try:
        yield
    except FileError as error:
        print(f"warning: {error.fact} The training goes on.", file=sys.stderr, flush=True)
