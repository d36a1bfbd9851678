"""What a schedule launches, as data that a GPU's runner walks: which function, on which memory.

In:    Schedule, Executables
Out:   `LaunchList`: calls in order, and how many bytes of temporaries they need
Called by: runtime/cuda.py, runtime/cudasim.py.    Next: picograd/compile/hostcxx.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from picograd.dtype import DType
from picograd.errors import VerifyError
from picograd.ir.op import Dim, Op, greatest
from picograd.ir.stages import REPORT_WORDS, Executable, Launch, Schedule, ScheduleItem
from picograd.ir.symbolic import substitute

REPORT_NBYTES = 8 * REPORT_WORDS
ALIGNMENT = 256  # bytes, of scratch memory: whole cache lines


@dataclass(frozen=True)
class Place:
    """Where one argument lives.

    group:         "input", "output", "temporary" or "report"
    at:            the index of the input or output; for a temporary or a report its byte offset
    dtype, numel:  what the kernel may touch there
    """

    group: str
    at: int
    dtype: DType
    numel: Dim


@dataclass(frozen=True)
class Call:
    """One launch of a device function."""

    function: Any
    launch: Launch
    places: tuple[Place, ...]
    variables: tuple[Op, ...]


@dataclass(frozen=True)
class LaunchList:
    """All launches of a schedule, in order.

    temporary_nbytes:  the arena, and after it the scratch memory of the kernel that needs most
    checks:            by report, what its kernel's numbers are in the plan
    """

    calls: tuple[Call, ...]
    temporary_nbytes: int
    checks: tuple[tuple[Any, ...], ...]


def list_launches(schedule: Schedule, executables: Sequence[Executable]) -> LaunchList:
    """Lists what a schedule launches. Kernels run one after the other, so they share scratch memory."""
    calls: list[Call] = []
    checks: list[tuple[Any, ...]] = []
    most = schedule.arena_nbytes
    for item, executable in zip(schedule.items, executables, strict=True):
        places, end = _places(schedule, item, executable, len(checks))
        if any(param.role == "report" for param in executable.params):
            checks.append(item.checks)
        most = max(most, end)
        for function, launch in zip(executable.functions, executable.launches, strict=True):
            calls.append(Call(function, launch, places, executable.variables))
    return LaunchList(tuple(calls), most, tuple(checks))


def _places(
    schedule: Schedule, item: ScheduleItem, executable: Executable, num_reports: int
) -> tuple[tuple[Place, ...], int]:
    """Returns where each argument of a kernel lives, and where its scratch memory ends."""
    uses = [schedule.buffers[i] for i in item.buffers]
    places = [Place(use.role, use.source, param.dtype, param.numel) for use, param in zip(uses, executable.params)]
    end = schedule.arena_nbytes
    for param in executable.params[len(places) :]:
        if param.role == "report":
            places.append(Place("report", num_reports * REPORT_NBYTES, param.dtype, param.numel))
            continue
        start = -(-end // ALIGNMENT) * ALIGNMENT
        places.append(Place("temporary", start, param.dtype, param.numel))
        end = start + greatest(param.numel) * param.dtype.itemsize
    return tuple(places), end


def value_of(dim: Dim, values: Mapping[Op, Dim]) -> int:
    """Returns the value of an expression of variables."""
    value = substitute(dim, values)
    if not isinstance(value, int):
        raise VerifyError(f"launch: {value} is no number once the variables {list(values)} have values.")
    return value


def bound(variables: Sequence[Op], values: Mapping[str, int]) -> dict[Op, Dim]:
    """Returns the values of variables by their Ops."""
    return {variable: values[variable.arg[0]] for variable in variables}
