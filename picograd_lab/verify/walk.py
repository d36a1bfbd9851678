"""Runs a schedule item by item on arrays of the host, each kernel on its own inputs.

In:    a Schedule, an array for each of its inputs, and a function that runs one kernel
Out:   an array for each of its buffers; `Alone`: such a function, for one kernel of a device
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.devices.launches import Temporaries
from picograd.dtype import DType
from picograd.engine.devices import compiler_for
from picograd.evaluator.graph import unspecified
from picograd.ir.backend import ALIGNMENT
from picograd.ir.op import Buffer
from picograd.ir.stages import BufferUse, Executable, LoopItem, Plan, Schedule, ScheduleItem
from picograd.ir.symbolic import dim_value
from picograd.record import Record

Array = np.ndarray[Any, Any]


class Step(Record, eq=False):
    """A kernel that is about to run.

    number:  number of its item among `Schedule.kernel_items()` of the whole schedule
    item:    the kernel, with the numbers of its buffers
    turn:    step of its loop; 0 outside of loops
    """

    number: int
    item: ScheduleItem
    turn: int


Execute = Callable[[Step, list[Array]], None]
NumpyDtype = Callable[[DType], Any]


def _own(dtype: DType) -> Any:
    return dtype.numpy


def walk(
    schedule: Schedule, memory: list[Array], variables: Mapping[str, int], execute: Execute, dtype_of: NumpyDtype = _own,
    first: int = 0, turn: int = 0,
) -> None:  # fmt: skip
    """Runs a schedule's items in order, loops step by step; `execute` writes the outputs of one kernel into its arrays.

    Args:
      memory:    an array for each buffer, by `memory_for`
      dtype_of:  dtypes of the arrays, by dtypes of buffers
      first:     number of the first kernel
      turn:      step of the loop whose body runs
    """
    number = first
    for item in schedule.items:
        if isinstance(item, LoopItem):
            _walk_loop(item, memory, variables, execute, dtype_of, number)
            number += len(item.body.kernel_items())
        else:
            execute(Step(number, item, turn), [memory[i] for i in item.buffers])
            number += 1


def _walk_loop(
    item: LoopItem, memory: list[Array], variables: Mapping[str, int], execute: Execute, dtype_of: NumpyDtype, first: int
) -> None:
    steps = dim_value(item.steps, variables)
    carried: list[Array] = []
    for turn in range(steps):
        given: list[Array] = []
        for feed in item.feeds:
            if feed.carried is not None and turn:
                given.append(carried[feed.carried])
            elif feed.is_row:
                row = steps - 1 - turn if feed.reversed else turn
                given.append(memory[feed.buffer].reshape(steps, -1)[row])
            else:
                given.append(memory[feed.buffer])
        inside = memory_for(item.body, given, variables, dtype_of)
        walk(item.body, inside, variables, execute, dtype_of, first, turn)
        carried = outputs_of(item.body, inside)
        for result, made in zip(item.results, carried):
            if result.buffer is not None and result.is_row:
                memory[result.buffer].reshape(steps, -1)[turn] = made
            elif result.buffer is not None and turn == steps - 1:
                memory[result.buffer][:] = made


def memory_for(
    schedule: Schedule, inputs: Sequence[Array], variables: Mapping[str, int], dtype_of: NumpyDtype = _own
) -> list[Array]:
    """Returns a separate array for each buffer; outputs are filled with garbage."""
    memory = []
    for use in schedule.buffers:
        if use.role == "input":
            memory.append(inputs[use.source].reshape(-1).copy())
        elif use.role == "output" and use.keeps and use.over is not None:
            memory.append(inputs[use.over].reshape(-1).copy())
        else:
            memory.append(unspecified(dim_value(use.numel, variables), np.dtype(dtype_of(use.dtype))))
    return memory


def memory_as_planned(schedule: Schedule, inputs: Sequence[Array], variables: Mapping[str, int]) -> list[Array]:
    """Returns an array for each buffer as planned by the schedule: temporaries share the arena, or an output's memory.

    The own memory of a loop is not a temporary here: what is in it has arrays of its own in each step.
    """
    starts, nbytes = Temporaries(schedule, [], ALIGNMENT).places(variables)
    arena = np.full(nbytes, 0x7F, np.uint8)
    memory = memory_for(schedule, inputs, variables)
    written = {use.source: i for i, use in enumerate(schedule.buffers) if use.role == "output"}
    loops = {item.memory for item in schedule.items if isinstance(item, LoopItem)}
    for i, use in enumerate(schedule.buffers):
        if use.role in ("temporary", "lent") and i not in loops:
            whole = arena[starts[use.source] :] if use.role == "temporary" else memory[written[use.source]].view(np.uint8)
            memory[i] = whole[: memory[i].nbytes].view(use.dtype.numpy)
    return memory


def outputs_of(schedule: Schedule, memory: Sequence[Array]) -> list[Array]:
    """Returns the arrays of the outputs, by their index."""
    found = {use.source: memory[i] for i, use in enumerate(schedule.buffers) if use.role == "output"}
    return [found[source] for source in sorted(found)]


# ---- memory of a device ----
def on_host(buffer: Buffer) -> Array:
    """Returns a copy of a buffer's contents."""
    array = np.empty(buffer.numel, buffer.dtype.numpy)
    if buffer.numel:
        compiler_for(buffer.device).device.copy_out(buffer.memory, array)
    return array


def on_device(array: Array, dtype: DType, device: str) -> Buffer:
    """Returns a buffer with a copy of an array."""
    target = compiler_for(device).device
    memory = target.allocate(max(array.nbytes, dtype.itemsize))
    if array.size:
        target.copy_in(memory, np.ascontiguousarray(array))
    return Buffer(device, dtype, array.size, memory)


class Alone:
    """One kernel of a device as its own plan, which gets all of its memory."""

    def __init__(self, item: ScheduleItem, code: Executable, device: str):
        self.device, self.params = device, code.params[: len(item.buffers)]
        distinct = list(dict.fromkeys(item.buffers))
        self.slots = [distinct.index(i) for i in item.buffers]
        dtypes = dict(zip(self.slots, self.params))
        uses = tuple([BufferUse(dtypes[i].dtype, dtypes[i].numel, "output", i) for i in range(len(distinct))])
        only = ScheduleItem(item.kernel, tuple(self.slots), item.checks)
        schedule = Schedule((only,), uses, (), tuple(range(len(uses))), 0)
        run = compiler_for(device).device.make_runner(schedule, (code,))
        self.plan = Plan(schedule, (code,), uses, run)

    def __call__(self, arrays: Sequence[Array], variables: Mapping[str, int]) -> None:
        """Runs the kernel on copies of the arrays, and writes its results into them.

        Raises:
          Refused: a CHECK rejects an index.
        """
        buffers: list[Buffer] = []
        for place, use in enumerate(self.plan.outputs):
            array = arrays[self.slots.index(place)]
            buffers.append(on_device(array, use.dtype, self.device))
        self.plan.run([], buffers, variables)
        for slot, param in enumerate(self.params):
            if param.role in ("out", "inout"):
                arrays[slot][:] = on_host(buffers[self.slots[slot]])[: arrays[slot].size]
