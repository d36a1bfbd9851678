"""Runs one program of examples/ in a process of its own, and times and counts its epochs.

In:    python -m bench.cliffs_worker PROGRAM LIBRARY EPOCHS [--jit] [--quick]; the caches are where the environment says
Out:   one line of JSON, a `Run`; what the program prints goes to standard error
"""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy  # noqa: F401  both libraries need it: its import is nobody's cost

from bench.first_step import forget_peak, peak_resident_nbytes
from bench.programs import TINY, equal_work, load
from bench.worker import one_line

COUNTED = ("scheduled", "compiled", "disk_hits")


@dataclass
class Run:
    """One process; a list has an entry for each epoch.

    epoch_s:    seconds, the first from before the model is made
    step_s:     median of the seconds between two losses: of a batch; of REINFORCE an episode and the update after it
    scheduled, compiled, disk_hits:  as `picograd.look` counts; nothing for PyTorch
    nbytes:     peak resident memory, less that of the process before it imported the library
    losses:     of the first three steps
    problem:    the reason why there are no more epochs, in one line
    """

    epoch_s: list[float] = field(default_factory=list)
    step_s: list[float] = field(default_factory=list)
    scheduled: list[int] = field(default_factory=list)
    compiled: list[int] = field(default_factory=list)
    disk_hits: list[int] = field(default_factory=list)
    nbytes: int = 0
    losses: list[float] = field(default_factory=list)
    problem: str = ""


def run(name: str, library: str, num_epochs: int, jit: bool, sizes: dict[str, Any]) -> Run:
    """Runs a program for some epochs; an error of its ends it and is noted."""
    forget_peak()
    before, found = peak_resident_nbytes(), Run()
    program = equal_work(name, load(name, library))
    if library == "torch":
        program.torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
        watching = nullcontext()
    else:
        watching = _watch()
    with watching as counts:
        try:
            _run(program, num_epochs, jit, sizes, counts, found)
        except Exception as error:
            found.problem = one_line(error)
    found.nbytes = peak_resident_nbytes() - before
    return found


def _run(program: Any, num_epochs: int, jit: bool, sizes: dict[str, Any], counts: Any, found: Run) -> None:
    epoch_start = start = time.perf_counter()
    seen, current, times = dict.fromkeys(COUNTED, 0), 0, []

    def close_epoch() -> None:
        found.epoch_s.append(start - epoch_start)
        found.step_s.append(float(numpy.median(times)))
        for event in COUNTED if counts is not None else ():
            getattr(found, event).append(seen[event] - sum(getattr(found, event)))

    for epoch, loss in program.train(program.make(), jit, num_epochs=num_epochs, **sizes):
        if epoch != current:
            close_epoch()
            current, epoch_start, times = epoch, start, []
        start, before = time.perf_counter(), start
        times.append(start - before)
        found.losses += [loss] if len(found.losses) < 3 else []
        seen = {event: getattr(counts, event, 0) for event in COUNTED}
    close_epoch()


def _watch() -> Any:
    from picograd.look import watch  # not where PyTorch is measured

    return watch()


def main() -> None:
    """Prints the figures; what the program prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, library, num_epochs = sys.argv[1:4]
    sizes = TINY[name] if "--quick" in sys.argv else {}
    with suppress(BrokenPipeError):
        found = run(name, library, int(num_epochs), "--jit" in sys.argv, sizes)
        print(json.dumps(asdict(found)), file=answers, flush=True)


if __name__ == "__main__":
    main()
