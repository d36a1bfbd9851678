"""Instructions that say where threads go, and where they wait for each other.

Out:   `CONTROL`, rows of the table
Source: PTX ISA 9.0, 9.7.12 (control flow) and 9.7.13 (barriers)
"""

from __future__ import annotations

import numpy as np

from tests.ptx.lanes import WARP, Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Label, PtxError, Symbol, meaning


def bra(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    (target,) = instruction.operands
    assert isinstance(target, Label)
    return machine.jump(lanes.at, machine.function.labels[target.name])


def brx(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    """Goes to the label of a list that an index says."""
    index, names = instruction.operands
    assert isinstance(names, Symbol | Label)
    labels = machine.function.targets[names.name]
    chosen = machine.read(index, "u32", lanes)
    if (chosen >= len(labels)).any():
        raise PtxError(f"the index {chosen.max()} is past the last of {len(labels)} targets.")
    for number in np.unique(chosen):
        machine.jump(lanes.at[chosen == number], machine.function.labels[labels[number]])
    return lanes.at


def ret(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    return machine.stop(lanes.at)


def trap(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    raise PtxError(f"{machine.layout.names(int(lanes.at[0]))} gives up.")


def nothing(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """An order of accesses: here each access has ended before the next begins."""


# ---- barriers ----
class Barriers:
    """Who waits at which of the 16 barriers of each block.

    arrived:  (16, lanes) bool
    places:   (lanes,) the instruction at which a lane arrived
    """

    def __init__(self, machine: Machine):
        self.arrived = np.zeros((16, machine.registers.count), bool)
        self.places = np.zeros(machine.registers.count, int)


def bar_sync(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    """Waits until all threads of the block, or as many as are asked for, are at this barrier."""
    barriers = machine.state.setdefault("barriers", Barriers(machine))
    layout = machine.layout
    numbers = machine.read(instruction.operands[0], "u32", lanes)
    if (numbers != numbers[0]).any():  # such as one of each warpgroup
        for each in np.unique(numbers):
            bar_sync(machine, instruction, lanes.where(numbers == each))
        return lanes.at
    number = int(numbers[0])
    if number >= 16:
        raise PtxError(f"there is no barrier {number}, there are 16.")
    needed = layout.threads
    if len(instruction.operands) > 1:
        counts = machine.read(instruction.operands[1], "u32", lanes)
        needed = int(counts[0])
        if (counts != needed).any() or needed % WARP or needed > layout.threads:
            raise PtxError(f"a barrier of {needed} threads: it has to be whole warps, the same for all.")
    arrived = barriers.arrived[number]
    arrived[lanes.at] = True
    barriers.places[lanes.at] = machine.here
    count = np.bincount(layout.block, arrived, layout.blocks).astype(int)
    if (count > needed).any():
        raise PtxError(f"{count.max()} threads come to a barrier of {needed}.")
    machine.park(lanes.at)
    released = np.flatnonzero(arrived & (count == needed)[layout.block])
    if len(released):
        if not instruction.has("barrier") or instruction.has("aligned"):
            check_warps(machine, barriers, released)
        arrived[released] = False
        machine.unpark(released)
    return lanes.at


def check_warps(machine: Machine, barriers: Barriers, released: Array) -> None:
    """Checks that the threads of each warp wait at the same instruction, and that none is missing.

    Raises:
      PtxError: bar.sync and .aligned ask for it (PTX ISA 9.0, 9.7.13.1).
    """
    warp, place = machine.layout.warp[released], barriers.places[released]
    first = np.full(int(machine.layout.warp[-1]) + 1, -1)
    first[warp] = place
    if (first[warp] != place).any():
        bad = int(released[np.flatnonzero(first[warp] != place)[0]])
        raise PtxError(f"{machine.layout.names(bad)} waits at another barrier instruction than others of its warp.")
    size = np.bincount(machine.layout.warp, minlength=len(first))
    here = np.bincount(warp, minlength=len(first))
    if (here[warp] != size[warp]).any():
        bad = int(released[np.flatnonzero(here[warp] != size[warp])[0]])
        raise PtxError(f"{machine.layout.names(bad)} waits at a barrier without all others of its warp.")


def warp_sync(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
    """Waits for the threads of the warp that a mask names."""
    members = machine.read(instruction.operands[0], "u32", lanes)
    _, missing = machine.whole_warps(lanes, members)
    return machine.retry(missing)


SCOPES = "sc acq_rel cta cluster gpu sys gl"
CONTROL = {
    "bra": meaning(bra, "uni"),
    "brx.idx": meaning(brx, "uni"),
    "ret": meaning(ret, "uni"),
    "exit": meaning(ret, ""),
    "trap": meaning(trap, ""),
    "bar.sync": meaning(bar_sync, ""),
    "bar.cta.sync": meaning(bar_sync, ""),
    "barrier.sync": meaning(bar_sync, "aligned"),
    "barrier.cta.sync": meaning(bar_sync, "aligned"),
    "bar.warp.sync": meaning(warp_sync, ""),
    "membar": meaning(nothing, SCOPES),
    "fence": meaning(nothing, SCOPES),
    "nanosleep": meaning(nothing, "u32"),
}
