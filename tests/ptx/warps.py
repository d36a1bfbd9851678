"""What the threads of a warp do together: shfl, vote, match, redux, activemask.

Out:   `WARPS`, rows of the table
Source: PTX ISA 9.0, 9.7.9.6 (shfl.sync), 9.7.13.7 to .14

Threads that a mask names have to come; who comes early waits for the others.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.lanes import WARP, Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Meaning, Pair, PtxError, meaning

Together = Callable[[Machine, Instruction, Lanes, Array], None]


def together(execute: Together) -> Callable[[Machine, Instruction, Lanes], Array]:
    """Returns the function of an instruction whose last operand is the mask of its members."""

    def when_all_are_here(machine: Machine, instruction: Instruction, lanes: Lanes) -> Array:
        members = machine.read(instruction.operands[-1], "u32", lanes)
        ready, missing = machine.whole_warps(lanes, members)
        if len(ready):
            execute(machine, instruction, ready, machine.read(instruction.operands[-1], "u32", ready))
        return machine.retry(missing)

    return when_all_are_here


class WarpTable:
    """Values by warp and place, (warps, 32); what is not here is 0."""

    def __init__(self, machine: Machine, lanes: Lanes, values: Array):
        self.warp, self.place = lanes.pick(machine.layout.warp), lanes.pick(machine.layout.place)
        shape = (int(machine.layout.warp[-1]) + 1, WARP)
        self.values, self.is_here = np.zeros(shape, values.dtype), np.zeros(shape, bool)
        self.values[self.warp, self.place] = values
        self.is_here[self.warp, self.place] = True

    def members(self, masks: Array) -> Array:
        """Returns for each lane which places of its warp its mask names, (lanes, 32) bool."""
        return (masks[:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(bool)


def shfl(machine: Machine, instruction: Instruction, lanes: Lanes, members: Array) -> None:
    """d|p = what another thread has; past the edge of a segment its own, and p is false."""
    target, source, by, clamp, _ = instruction.operands
    values = machine.read(source, "b32", lanes)
    table = WarpTable(machine, lanes, values)
    b, c = (machine.read(operand, "u32", lanes).astype(np.int64) for operand in (by, clamp))
    b, end, segment = b & 31, c & 31, c >> 8 & 31
    place = table.place
    last, first = (place & segment) | (end & ~segment), place & segment
    mode = instruction.modifiers[2]
    chosen = {"up": place - b, "down": place + b, "bfly": place ^ b, "idx": first | (b & ~segment)}[mode]
    is_inside = chosen >= last if mode == "up" else chosen <= last
    chosen = np.where(is_inside, chosen, place)
    is_read_elsewhere = ~table.is_here[table.warp, chosen] | ~((members >> chosen.astype(np.uint32)) & 1).astype(bool)
    if is_read_elsewhere.any():
        bad = int(lanes.at[np.flatnonzero(is_read_elsewhere)[0]])
        raise PtxError(f"{machine.layout.names(bad)} asks a thread that takes no part.")
    first_target = target.first if isinstance(target, Pair) else target
    machine.write(first_target, table.values[table.warp, chosen], lanes)
    if isinstance(target, Pair):
        machine.write(target.second, is_inside, lanes)


def vote(machine: Machine, instruction: Instruction, lanes: Lanes, members: Array) -> None:
    """Whether all, any or the same number of members have a predicate; .ballot: the mask of those that have it."""
    target, source, _ = instruction.operands
    table = WarpTable(machine, lanes, machine.read(source, "pred", lanes))
    own, asked = table.values[table.warp], table.members(members)
    count, total = (own & asked).sum(1), asked.sum(1)
    mode = instruction.modifiers[2]
    if mode == "ballot":
        bits = (own & asked).astype(np.uint32) << np.arange(WARP, dtype=np.uint32)
        machine.write(target, np.bitwise_or.reduce(bits, axis=1), lanes)
    else:
        found = {"all": count == total, "any": count > 0, "uni": (count == total) | (count == 0)}
        machine.write(target, found[mode], lanes)


def match(machine: Machine, instruction: Instruction, lanes: Lanes, members: Array) -> None:
    """The mask of members that have the same value; .all: of all members, if they all have it, else 0."""
    target, source, _ = instruction.operands
    values = machine.read(source, instruction.type, lanes)
    table = WarpTable(machine, lanes, values)
    is_same = (table.values[table.warp] == values[:, None]) & table.members(members)
    masks = np.bitwise_or.reduce(is_same.astype(np.uint32) << np.arange(WARP, dtype=np.uint32), axis=1)
    if not instruction.has("all"):
        machine.write(target, masks, lanes)
        return
    is_all = masks == members
    machine.write(target.first if isinstance(target, Pair) else target, np.where(is_all, masks, np.uint32(0)), lanes)
    if isinstance(target, Pair):
        machine.write(target.second, is_all, lanes)


REDUCTIONS: dict[str, tuple[np.ufunc, int]] = {  # with what changes nothing, as bits
    "add": (np.add, 0), "min": (np.minimum, -1), "max": (np.maximum, -2), "and": (np.bitwise_and, 0xFFFFFFFF),
    "or": (np.bitwise_or, 0), "xor": (np.bitwise_xor, 0),
}  # fmt: skip


def redux(machine: Machine, instruction: Instruction, lanes: Lanes, members: Array) -> None:
    """One number from those of all members."""
    target, source, _ = instruction.operands
    values = machine.read(source, instruction.type, lanes)
    table = WarpTable(machine, lanes, values)
    combine, start = REDUCTIONS[instruction.modifiers[2]]
    info = np.iinfo(values.dtype)
    neutral = {-1: info.max, -2: info.min}.get(start, start)
    chosen = np.where(table.members(members), table.values[table.warp], values.dtype.type(neutral))
    machine.write(target, combine.reduce(chosen, axis=1, dtype=values.dtype), lanes)


def activemask(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """The mask of the threads that execute this together."""
    table = WarpTable(machine, lanes, np.zeros(len(lanes), np.uint32))
    bits = table.is_here[table.warp].astype(np.uint32) << np.arange(WARP, dtype=np.uint32)
    machine.write(instruction.operands[0], np.bitwise_or.reduce(bits, axis=1), lanes)


WARPS: dict[str, Meaning] = {
    "shfl.sync": meaning(together(shfl), "up down bfly idx b32"),
    "vote.sync": meaning(together(vote), "all any uni ballot pred b32"),
    "match.any.sync": meaning(together(match), "b32 b64"),
    "match.all.sync": meaning(together(match), "b32 b64"),
    "redux.sync": meaning(together(redux), "add min max and or xor u32 s32 b32"),
    "activemask": meaning(activemask, "b32"),
}
