"""Comparisons, and choices by them: setp, set, selp, slct.

Out:   `COMPARE`, rows of the table
Source: PTX ISA 9.0, 9.7.6 to 9.7.7
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.floats import flushed, read_floats
from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Pair, PtxError, meaning

COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
COMBINATIONS = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}
FLOATS = ("f16", "bf16", "f32", "f64")


def compared(name: str, a: Array, b: Array) -> Array:
    """Returns a comparison; of floats an ordered one is false of NaN, and those that end in u are true of it."""
    if name in COMPARISONS:
        is_ordered = COMPARISONS[name](a, b)
        return is_ordered & (a == a) & (b == b) if a.dtype.kind == "f" else is_ordered
    has_nan = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return has_nan if name == "nan" else ~has_nan
    return COMPARISONS[name[:-1]](a, b) | has_nan


def outcome(machine: Machine, instruction: Instruction, kind: str, lanes: Lanes) -> tuple[Array, Array]:
    """Returns the comparison, and the opposite; each combined with a third operand where there is one."""
    _, a, b, *rest = instruction.operands
    if kind in FLOATS:
        (x,), (y,) = read_floats(machine, a, kind, lanes), read_floats(machine, b, kind, lanes)
        if instruction.has("ftz"):
            x, y = flushed(x, kind), flushed(y, kind)
    else:
        x, y = machine.read(a, kind, lanes), machine.read(b, kind, lanes)
    result = compared(instruction.modifiers[1], x, y)
    if not rest:
        return result, ~result
    combine = next(COMBINATIONS[part] for part in instruction.modifiers if part in COMBINATIONS)
    other = machine.read(rest[0], "pred", lanes)
    return combine(result, other), combine(~result, other)


def setp(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """p = a < b; of p|q, q is the opposite."""
    target = instruction.operands[0]
    result, opposite = outcome(machine, instruction, instruction.type, lanes)
    if isinstance(target, Pair):
        machine.write(target.first, result, lanes)
        machine.write(target.second, opposite, lanes)
    else:
        machine.write(target, result, lanes)


def set_(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = all ones, or 1.0 of a float, where a < b, else 0."""
    to, kind = instruction.types
    result, _ = outcome(machine, instruction, kind, lanes)
    if to == "f32":
        machine.write(instruction.operands[0], result.astype(np.float32), lanes)
    elif to in ("u32", "s32"):
        machine.write(instruction.operands[0], np.where(result, np.uint32(0xFFFFFFFF), np.uint32(0)), lanes)
    else:
        raise PtxError(f"set gives no {to}.")


def selp(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = c ? a : b."""
    target, a, b, c = instruction.operands
    kind = instruction.type
    values = (machine.read(operand, kind, lanes) for operand in (a, b))
    machine.write(target, np.where(machine.read(c, "pred", lanes), *values), lanes)


def slct(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = c >= 0 ? a : b."""
    target, a, b, c = instruction.operands
    kind, by = instruction.types
    (chosen,) = read_floats(machine, c, by, lanes) if by == "f32" else (machine.read(c, by, lanes),)
    if instruction.has("ftz"):
        chosen = flushed(chosen, by)
    machine.write(target, np.where(chosen >= 0, *(machine.read(operand, kind, lanes) for operand in (a, b))), lanes)


NAMES = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan and or xor ftz"
TYPES = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f16 bf16 f32 f64"
COMPARE = {
    "setp": meaning(setp, f"{NAMES} {TYPES}"),
    "set": meaning(set_, f"{NAMES} {TYPES}"),
    "selp": meaning(selp, TYPES),
    "slct": meaning(slct, f"ftz {TYPES}"),
}
