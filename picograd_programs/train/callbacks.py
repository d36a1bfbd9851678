"""Callbacks of a training: a bar, a log, evaluations, checkpoints, TensorBoard.

Each is a class that `Trainer.fit` tells of its steps. Figures go to standard error (results to standard output, so the
two can be told apart), and to files for curves.
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
    """Asks a function every so many steps, and at the end: an evaluation, samples, pictures.

    The function is given the model, in evaluation mode and without gradients; of averaged weights where there are such.

    Args:
      steps:     between two calls
      function:  model -> figures by name, which are shown and logged; or a text, a sample say, which is printed with its
                 step and logged; or None

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
        """Takes the step that a training goes on from as asked about before."""
        self.last = trainer.done or -1

    def after_step(self, trainer: Trainer, parts: Sequence[Batch]) -> None:
        """Asks the function, if it is time."""
        if trainer.done % self.every == 0 or trainer.done == trainer.steps:
            self.ask(trainer)

    def save(self, trainer: Trainer) -> None:
        """Asks the function about the last step."""
        if self.last != trainer.done:
            self.ask(trainer)

    def ask(self, trainer: Trainer) -> None:
        """Asks the function now."""
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
    """Shows a bar with the time left; below it figures, items a second, memory and MFU, and the curve of the loss.

    Where standard error is not a terminal, some ten lines are printed instead, with the time left. The rate counts from the
    end of the first step, which compiles. MFU is the part of the device's peak that model FLOPs take, where its peak is
    known (peaks.py); else FLOP/s are shown, and a line at the end says so.

    Args:
      title:  what is trained, before the bar
      item:   what the first tensor of a batch has along its first axis: "images"; with `per`, along all its axes
      per:    "row" counts rows of a batch; "element" counts elements: tokens
      lines:  about how many lines are printed in all where there is no terminal
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
        """Puts figures beside the bar, or prints a line."""
        self.figures |= {name: f"{name} {value:.4f}" for name, value in figures.items()}
        rate = f"{self.items_per_second(trainer):,.0f} {self.item}/s"
        text = "  ".join([*self.figures.values(), rate, *self.costs(trainer)])
        if "loss" in figures:
            self.losses.append(figures["loss"])
        if self.live is not None:
            self.live.update(Group(self.bar, Text(text), Text(curve(self.losses, CURVE_ROWS, CURVE_COLUMNS))))
        elif "loss" in figures if trainer.done == trainer.steps else trainer.done >= self.next_line:
            self.next_line = trainer.done + self.line_every
            left = self.bar.tasks[0].time_remaining  # None while no two steps were timed
            eta = f"  ETA {timedelta(seconds=int(left))}" if left else ""
            self.console.print(f"{self.title}  {trainer.done}/{trainer.steps}  {text}{eta}", soft_wrap=True)

    def items_per_second(self, trainer: Trainer) -> float:
        """Returns the rate since the end of the first step, in items per second."""
        return self.items / self.seconds(trainer) if self.items else 0.0

    def seconds(self, trainer: Trainer) -> float:
        """Returns the time of steps since the end of the first one, without that of evaluations and checkpoints."""
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
        """Leaves the bar as it is, and says where MFU is not known."""
        if self.live is not None:
            self.live.stop()
            self.live = None
        device = device_of(trainer)
        if self.flops and peak_flops(device, trainer.precision) is None:
            self.console.print(
                f"MFU is unknown, since the peak of {device} is: FLOP/s stand in its place.", soft_wrap=True
            )


def device_of(trainer: Trainer) -> str | None:
    """Returns the name of the device of a trainer's parameters, None where it has none."""
    return str(trainer.parameters[0].device).lower() if trainer.parameters else None


def rate_text(flops_per_second: float) -> str:
    """Returns a rate for a person to read.

    >>> rate_text(2.5e9)
    '2.5 GFLOP/s'
    """
    power = next((power for power in (15, 12, 9, 6) if flops_per_second >= 10**power), 3)
    return f"{flops_per_second / 10**power:.1f} {dict(zip((3, 6, 9, 12, 15), 'KMGTP'))[power]}FLOP/s"


def num_items(batch: Batch, per: str) -> int:
    """Returns how many rows, or elements, the first tensor of a batch has."""
    while not isinstance(batch, Tensor):
        batch = next(iter(batch.values() if isinstance(batch, Mapping) else batch))
    return batch.numel() if per == "element" else (batch.shape[0] if batch.ndim else 1)


# ---- files of figures ----
LINE_START = '{"step": '


class Log(Callback):
    """Adds figures to a file, a JSON object a line, for curves: {"step": 20, "seconds": 1.2, "loss": 2.3}.

    A sample is a line, too: {"step": 500, "seconds": 9.1, "text": "emma"}. A run that begins at step 0 begins the file; one
    that is resumed adds to it, after the lines of steps that are made again are taken away.

    Args:
      path:  of the file
    """

    def __init__(self, path: str | PathLike[str]):
        self.path, self.since, self.is_full = Path(path), 0.0, False

    def begin(self, trainer: Trainer) -> None:
        """Opens the file.

        Raises:
          DataError: it cannot be written.
        """
        kept = [line for line in self._lines() if line["step"] <= trainer.done] if trainer.done else []
        self.since = time.perf_counter() - (kept[-1].get("seconds", 0.0) if kept else 0.0)
        text = "".join(json.dumps(line) + "\n" for line in kept)
        write_whole("Log", self.path, lambda file: file.write(text.encode()), makes_folder=True)

    def _lines(self) -> list[dict[str, Any]]:
        """Returns the lines that are whole; where others are among them, such as a last one that is cut, a warning says so.

        Raises:
          DataError: it is another file.
        """
        try:
            text = self.path.read_text(errors="replace")
        except OSError:
            return []
        found = [line_of(line) for line in text.splitlines(keepends=True)]
        whole = [line for line in found if line is not None]
        if found and not whole and not text.startswith(LINE_START[: len(text)]):
            raise DataError(f"Log: {self.path} is not a log of a training.", hint="name another file.")
        if len(whole) < len(found):  # the machine stopped within a write
            num = len(found) - len(whole)
            print(f"warning: Log: {self.path}: {num:,} of its lines cannot be read, and are dropped.", file=sys.stderr)
        return whole

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Adds a line of figures."""
        self.add(trainer, figures)

    def told(self, trainer: Trainer, text: str) -> None:
        """Adds a line with a text."""
        self.add(trainer, {"text": text})

    def add(self, trainer: Trainer, figures: Mapping[str, float | str]) -> None:
        """Adds a line, or leaves the file as it is where it cannot be written; the first time standard error says so."""
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
                print(f"warning: {fact} The training goes on, figures are left out.", file=sys.stderr, flush=True)
            self.is_full = True


def line_of(text: str) -> dict[str, Any] | None:
    """Returns a line of a log; None for one that is damaged.

    >>> line_of('{"step": 20, "loss": 2.5}\\n'), line_of('{"step": 40, "lo')
    ({'step': 20, 'loss': 2.5}, None)
    """
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if text.endswith("\n") and isinstance(line, dict) and isinstance(line.get("step"), int) else None


class TensorBoard(Callback):
    """Writes figures where TensorBoard reads them. Needs `pip install tensorboard`.

    Args:
      folder:  of the run

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
        """Opens the file; not before, since that of an earlier training is moved first."""
        self.writer = self.make_writer(self.folder)

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Adds figures."""
        values = [self.summary.Value(tag=name, simple_value=value) for name, value in figures.items()]
        self.writer.add_event(self.event(wall_time=time.time(), step=trainer.done, summary=self.summary(value=values)))

    def end(self, trainer: Trainer) -> None:
        """Flushes the file."""
        self.writer.flush()


# ---- checkpoints ----
NAME = re.compile(r"step-(\d{8})\.safetensors")
BEST = "best.safetensors"
FULL = (errno.ENOSPC, errno.EDQUOT)
MOVING = ".earlier"  # folder of files on their way into one of an earlier training
NOT_MOVED = "the earlier training there cannot be moved"


class Checkpoints(Callback):
    """Keeps the state of a training in a folder, every so many steps and at the end; the last ones stay.

    A file is written under a temporary name, flushed to the disk and renamed, so that it is whole or not there; it has a
    checksum. A state with a weight that is not finite, or after a loss that is not, is not kept. Where the disk is full
    during a training, a warning is printed, the oldest checkpoints make space, down to one that is whole, and the training
    goes on.

    A training from the start removes nothing: what an earlier one left in the folder is moved to its subfolder earlier-1,
    or the next number that is free, and standard error says so. One training at a time writes to a folder.

    Args:
      folder:  made where it is missing
      every:   steps between two checkpoints
      keep:    files that stay
      facts:   plain values by name, kept with the state: the run's settings
      lowest:  figure, such as "validation loss", whose lowest value so far has its state kept as best.safetensors, too
      others:  patterns of names of what else a training has in the folder: "log.jsonl", "*.png"; moved with its checkpoints

    State: least, that value, and least_at, its step; infinite and 0 before the first.

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
        self.restored: Trainer | None = None  # that goes on from a checkpoint here, also from that of step 0

    def paths(self) -> list[Path]:
        """Returns the checkpoints that are there, the oldest first."""
        return sorted(path for path in self.folder.glob("step-*.safetensors") if NAME.fullmatch(path.name))

    def begin(self, trainer: Trainer) -> None:
        """Keeps the start of a training, from which a loss that is not finite can be explained.

        Raises:
          DataError: the folder cannot be written, or another training writes there.
        """
        self.held.enter_context(only_writer(self.folder))
        if not trainer.done and self.restored is not trainer:
            self.least, self.least_at = math.inf, 0
            self.set_aside()
            self.write(trainer)

    def end(self, trainer: Trainer) -> None:
        """Lets other trainings write to the folder."""
        self.held.close()

    def set_aside(self) -> None:
        """Moves all that an earlier training left to a subfolder, and says so.

        Files go into a hidden folder first, which then gets its name: of a process that is killed in between, `bring_back`
        undoes it, so that no training is ever in two parts.

        Raises:
          FileError: something cannot be moved.
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
        """Moves the files back that a killed process was about to set aside.

        Raises:
          FileError: something cannot be moved.
        """
        moving = self.folder / MOVING
        with named_errors(self.folder, NOT_MOVED):
            if moving.is_dir():
                for path in sorted(moving.iterdir()):
                    path.rename(self.folder / path.name)
                moving.rmdir()

    def after_step(self, trainer: Trainer, parts: Sequence[Batch]) -> None:
        """Keeps the state, if it is time.

        Raises:
          NotFinite: a loss or a weight is NaN or infinite.
        """
        if trainer.done % self.every == 0 and trainer.done < trainer.steps:
            with full_disk_tolerated():
                self.write(trainer)

    def shown(self, trainer: Trainer, figures: Mapping[str, float]) -> None:
        """Keeps the state apart, if its figure is the lowest so far.

        Raises:
          NotFinite: a loss or a weight is NaN or infinite.
        """
        if self.lowest is not None and figures.get(self.lowest, math.inf) < self.least:
            kept = self.least, self.least_at
            self.least, self.least_at = figures[self.lowest], trainer.done  # the file says so, too
            with full_disk_tolerated():
                self.keep_as(BEST, trainer)
                kept = self.least, self.least_at
            self.least, self.least_at = kept

    def save(self, trainer: Trainer) -> None:
        """Keeps the state at the end.

        Raises:
          NotFinite: a loss or a weight is NaN or infinite.
          DataError: it cannot be written.
        """
        if self.saved != trainer.done:
            self.write(trainer)

    def write(self, trainer: Trainer) -> None:
        """Writes a checkpoint now, and removes those before the last `keep`, and later steps: corrupt, or made again."""
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
                print(f"warning: {error.fact} {oldest.name} is removed, to make space.", file=sys.stderr, flush=True)

    def older(self, name: str) -> Iterator[Path]:
        """Yields checkpoints that need not stay where this file is written, the oldest first; the newest whole one does."""
        others = [path for path in self.paths() if path.name != name]
        if len(others) > 1 and (found := self.newest()) is not None:
            yield from (path for path in others if path != found[0])

    def restore(self, trainer: Trainer) -> bool:
        """Gives back the newest state that is whole, and returns whether there was one."""
        found = self.newest()
        if found is not None:
            self.take(trainer, found[1])
        return found is not None

    def newest(self) -> tuple[Path, dict[str, Any]] | None:
        """Returns the newest checkpoint that is whole, and its state; None where none is.

        A truncated or corrupt file is named on standard error.
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
        """Gives a trainer the state of a checkpoint.

        Raises:
          PicogradError: it is that of another model.
        """
        trainer.load_state_dict(state)
        self.least, self.least_at = state.get("least", math.inf), state.get("least_at", 0)
        self.saved, self.restored = trainer.done, trainer


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Keeps other trainings out of a folder. A lock of the system does, so a killed process holds none.

    Raises:
      DataError: another training writes there, or the folder cannot be made.
    """
    if fcntl is None:
        yield
        return
    with named_errors(folder, "cannot be written"):
        folder.mkdir(parents=True, exist_ok=True)
        opened = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system of another machine may have no locks
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                hint = "name another folder, or wait until that training has ended."
                raise DataError(f"Checkpoints: {folder}: another training writes there now.", hint) from None
        yield
    finally:
        os.close(opened)


@contextmanager
def named_errors(folder: Path, fact: str) -> Iterator[None]:
    """Makes a FileError of what the machine refuses in a folder."""
    try:
        yield
    except OSError as error:
        raise FileError.of(error, f"Checkpoints: {folder}: {fact}") from None


@contextmanager
def full_disk_tolerated() -> Iterator[None]:
    """Prints a warning where a file cannot be written during a training, which goes on."""
    try:
        yield
    except FileError as error:
        print(f"warning: {error.fact} The training goes on.", file=sys.stderr, flush=True)
