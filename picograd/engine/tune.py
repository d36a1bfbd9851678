"""Times the candidates of a kernel and remembers the winner on disk.

In:    Kernel, candidate Choices, Device
Out:   the one that was fastest
Called by: engine/choose.py

The candidates take turns, so that a machine that slows down slows all of them. One that is not clearly faster than
the best guess does not replace it: the gain would not be there next time.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from picograd.config import num_threads
from picograd.device import Target
from picograd.engine.cache import entry_name
from picograd.engine.entries import read_entry, write_entry
from picograd.engine.library import note_failure
from picograd.engine.watch import note
from picograd.errors import DeviceError, OutOfMemoryError
from picograd.ir.backend import Device
from picograd.ir.checks import OutOfRange
from picograd.ir.dims import dim_value
from picograd.ir.op import Buffer, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Choice, Library
from picograd.ir.stages import BufferUse, Executable, Kernel, Param, Schedule, ScheduleItem
from picograd.ir.text import format_kernel

ROUNDS = 9
LEAST_SECONDS = 0.002  # of one sample
GAIN = 0.97  # of the best guess's time: a candidate must stay under it

Make = Callable[[Kernel, Choice], Executable]  # gives callable code


def fastest(kernel: Kernel, found: Sequence[Choice], device: Device, make: Make) -> Choice:
    """Returns the fastest of some candidates, the first of which is the best guess.

    Cost: of each its compilation and eleven runs or more, 20 ms at least; nothing where the winner is known.
    """
    name = tuning_name(kernel, found, device.target)
    known = {str(choice): choice for choice in found}
    remembered = (read_entry("tuning", name) or b"").decode()
    if remembered in known:
        return known[remembered]
    note("timed", len(found))
    winner = found[winner_of(time_candidates(kernel, found, device, make))]
    write_entry("tuning", name, str(winner).encode())
    return winner


def tuning_name(kernel: Kernel, found: Sequence[Choice], target: Target) -> str:
    """Returns the name under which the winner among the candidates of a kernel is remembered, for as many threads."""
    return entry_name("\n".join([format_kernel(kernel), *map(str, found), f"threads {num_threads()}"]), target)


def winner_of(samples: Sequence[Sequence[float]]) -> int:
    """Returns which candidate won, from the times of each in every round.

    The first stays unless another needs clearly less in the median, and less in all rounds but one.

    >>> winner_of([[1.0, 1.0, 1.0], [0.9, 0.9, 0.9], [0.5, 1.1, 1.1]])
    1
    """
    best, best_ratio = 0, GAIN
    for place, sample in enumerate(samples[1:], 1):
        ratios = sorted(time / guess for time, guess in zip(sample, samples[0]))
        if statistics.median(ratios) < best_ratio and ratios[-2] < 1:
            best, best_ratio = place, statistics.median(ratios)
    return best


def time_candidates(kernel: Kernel, found: Sequence[Choice], device: Device, make: Make) -> list[list[float]]:
    """Returns the times of each candidate, in seconds, round by round; infinite ones of a library that fails."""
    runs = [_started(kernel, choice, device, make) for choice in found]
    repeats = [0 if run is None else 1 + int(LEAST_SECONDS / max(_seconds(run, 1), 1e-7)) for run in runs]
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for sample, run, count in zip(samples, runs, repeats):
            sample.append(math.inf if run is None else _seconds(run, count) / count)
    return samples


def _started(kernel: Kernel, choice: Choice, device: Device, make: Make) -> Callable[[int], None] | None:
    """Returns a function that runs a candidate, which has run once; None where it is a library's and has failed."""
    try:
        run = _runner(kernel, make(kernel, choice), device)
        run(1)
    except (DeviceError, OutOfMemoryError) as error:
        if not isinstance(choice, Library):
            raise
        note_failure(kernel, choice.name, choice.product, error.fact)
        return None
    return run


def _seconds(run: Callable[[int], None], count: int) -> float:
    start = time.perf_counter()
    run(count)
    return time.perf_counter() - start


def _runner(kernel: Kernel, executable: Executable, device: Device) -> Callable[[int], None]:
    """Returns a function that runs a kernel so many times, alone, on memory of its own, and waits for it."""
    groups: dict[str, list[Buffer]] = {"in": [], "out": []}
    uses = []
    for param in kernel.params:
        group = groups[param.role]
        uses.append(BufferUse(param.dtype, param.numel, {"in": "input", "out": "output"}[param.role], len(group)))
        group.append(_filled(param, device))
    item = ScheduleItem(kernel, tuple(range(len(uses))), tuple(range(_num_checks(kernel))))
    schedule = Schedule((item,), tuple(uses), (), (), 0)
    submit = device.make_runner(schedule, (executable,))
    last = np.empty(1, np.uint8)

    def run(count: int) -> None:
        for _ in range(count):
            with suppress(OutOfRange):  # made-up indices can be wrong ones; the kernel runs to its end all the same
                submit(groups["in"], groups["out"], {})
        device.copy_out(groups["out"][0].memory, last)

    return run


def _filled(param: Param, device: Device) -> Buffer:
    """Returns memory for a parameter: normal numbers; zeros where they may be indices."""
    numel = dim_value(param.numel, {})
    memory = device.allocate(max(1, numel * param.dtype.itemsize))
    if param.role == "in":
        normal = np.random.default_rng(0).standard_normal(numel, np.float32)
        data = normal if param.dtype.is_float else np.zeros(numel)
        device.copy_in(memory, data.astype(param.dtype.numpy))
    return Buffer(device.target.device, param.dtype, numel, memory)


def _num_checks(kernel: Kernel) -> int:
    """Returns how many CHECKs a kernel has: their numbers are 0, 1, ..."""
    values = [value for phase in kernel.phases for nest in phase for _, value in nest.outputs]
    return sum(op.code is OpCode.CHECK for op in toposort(values))
