"""The part that all trainings share: steps, figures, Ctrl-C, checkpoints now and then.

In:    a function that makes one step, a function that saves
Out:   the number of steps done; a run that was stopped says how it goes on
"""

from __future__ import annotations

import math
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from picograd.errors import ArgumentError, DataError
from picograd.tensor.tensor import Tensor
from picograd.train.interrupt import Interrupt
from picograd.train.log import TrainingLog

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
