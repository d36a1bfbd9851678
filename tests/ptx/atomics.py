"""Changes of memory in one step: atom, red.

Out:   `ATOMICS`, rows of the table
Source: PTX ISA 9.0, 9.7.13.15 and .16

Threads that change the same place follow each other, and no order is promised: here the last lane comes first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.floats import halves, joined
from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import NBYTES, Instruction, Meaning, PtxError, meaning
from tests.ptx.moves import space_of
from tests.ptx.registers import DTYPES
from tests.ptx.rounding import as_odd_sum, decoded, encoded, rounded


def sum_of(before: Array, value: Array, kind: str) -> Array:
    """Returns a sum; of 16-bit floats each half is rounded."""
    if kind not in ("f16", "bf16", "f16x2", "bf16x2"):
        return before + value
    element = kind.removesuffix("x2")
    pairs = zip(halves(before), halves(value)) if kind.endswith("x2") else [(before.view(np.uint16), value.view(np.uint16))]
    sums = [encoded(rounded(as_odd_sum(decoded(a, element), decoded(b, element)), element), element) for a, b in pairs]
    return joined(*sums) if kind.endswith("x2") else sums[0]


CHANGES: dict[str, Callable[..., Array]] = {
    "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "exch": lambda before, value: value,
    "inc": lambda before, value: np.where(before >= value, before.dtype.type(0), before + before.dtype.type(1)),
    "dec": lambda before, value: np.where((before == 0) | (before > value), value, before - before.dtype.type(1)),
    "cas": lambda before, expected, value: np.where(before == expected, value, before),
}  # fmt: skip


def turns(addresses: Array, owners: Array) -> list[Array]:
    """Returns positions of lanes in groups that follow each other: in none a place is met twice."""
    order = np.lexsort((-np.arange(len(addresses)), addresses, owners))
    same = (np.diff(addresses[order]) == 0) & (np.diff(owners[order]) == 0)
    starts = np.concatenate([[True], ~same])
    first = np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    turn = np.arange(len(order)) - first
    by_turn = np.argsort(turn, kind="stable")
    ends = np.cumsum(np.bincount(turn))[:-1]
    return [np.sort(part) for part in np.split(order[by_turn], ends)]


def change(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = [a]; [a] = a function of that and of b, c."""
    operands = list(instruction.operands)
    target = operands.pop(0) if instruction.modifiers[0] == "atom" else None
    place, *given = operands
    kind, space = instruction.type, space_of(instruction)
    name = next((part for part in instruction.modifiers[1:] if part in CHANGES or part == "add"), None)
    if name is None:
        raise PtxError(f"{instruction.opcode} does not say what it does.")
    addresses = machine.addresses(place, lanes)
    values = [machine.read(operand, kind, lanes) for operand in given]
    owners = lanes.pick(machine.layout.block) if space != "global" else np.zeros(len(lanes), int)
    before = np.empty(len(lanes), f"u{NBYTES[kind]}")
    for turn in turns(addresses, owners):
        own = Lanes(lanes.at[turn], False)
        old = machine.memory.load(space, addresses[turn], NBYTES[kind], own)
        typed = old.view(DTYPES[kind])
        operands_now = [value[turn] for value in values]
        new = sum_of(typed, *operands_now, kind) if name == "add" else CHANGES[name](typed, *operands_now)
        machine.memory.store(space, addresses[turn], new.astype(typed.dtype).view(old.dtype), own)
        before[turn] = old
    if target is not None:
        machine.write(target, before, lanes)


ORDERS = "relaxed acquire release acq_rel cta cluster gpu sys noftz"
NAMES = "add min max and or xor exch inc dec cas"
TYPES = "b16 b32 b64 u32 u64 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64"
ATOMICS: dict[str, Meaning] = {
    "atom": meaning(change, f"global shared shared::cta {ORDERS} {NAMES} {TYPES}"),
    "red": meaning(change, f"global shared shared::cta {ORDERS} {NAMES} {TYPES}"),
}
