"""Instructions that move bits: mov, ld, st, cvta, pack and unpack.

Out:   `MOVES`, rows of the table
Source: PTX ISA 9.0, 9.7.9
"""

from __future__ import annotations

import numpy as np

from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.memory import WINDOWS
from tests.ptx.module import NBYTES, Instruction, Operand, PtxError, Vector, meaning

SPACES = ("global", "shared", "local", "param", "const")


def space_of(instruction: Instruction) -> str:
    """Returns the state space that an opcode names; "" for a generic address. Constants lie among the global buffers."""
    named = {part.split("::")[0] for part in instruction.modifiers} & set(SPACES)
    return "global" if named == {"const"} else named.pop() if named else ""


def parts_of(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vector) else (operand,)


def mov(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = a; or bits of a vector beside each other, the first one lowest; or such bits taken apart."""
    target, source = instruction.operands
    if isinstance(source, Vector):
        width = 8 * NBYTES[instruction.type] // len(source.parts)
        result = np.zeros(len(lanes), f"u{NBYTES[instruction.type]}")
        for i, part in enumerate(source.parts):
            bits = machine.read(part, f"b{width}", lanes).astype(result.dtype)
            result |= bits << result.dtype.type(width * i)
        machine.write(target, result, lanes)
    elif isinstance(target, Vector):
        width = 8 * NBYTES[instruction.type] // len(target.parts)
        whole = machine.read(source, instruction.type, lanes)
        for i, part in enumerate(target.parts):
            machine.write(part, (whole >> whole.dtype.type(width * i)).astype(f"u{width // 8}"), lanes)
    else:
        machine.write(target, machine.read(source, instruction.type, lanes), lanes)


def ld(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = [a]; a vector has to lie at a multiple of its length."""
    target, source = instruction.operands
    space, nbytes, parts = space_of(instruction), NBYTES[instruction.type], parts_of(target)
    addresses = machine.addresses(source, lanes)
    machine.memory.check_aligned(addresses, nbytes * len(parts), lanes, space)
    is_signed = instruction.type[0] == "s"
    values: list[Array] = []  # all are read before one is written: a register may be the address
    for i in range(len(parts)):
        found = machine.memory.load(space, addresses + np.uint64(nbytes * i), nbytes, lanes)
        values.append(found.view(f"i{nbytes}") if is_signed else found)
    for part, value in zip(parts, values):
        machine.write(part, value, lanes)


def st(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """[a] = b."""
    target, source = instruction.operands
    space, nbytes, parts = space_of(instruction), NBYTES[instruction.type], parts_of(source)
    addresses = machine.addresses(target, lanes)
    machine.memory.check_aligned(addresses, nbytes * len(parts), lanes, space)
    for i, part in enumerate(parts):
        values = machine.read(part, f"b{8 * nbytes}", lanes)
        machine.memory.store(space, addresses + np.uint64(nbytes * i), values, lanes)


def cvta(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """A generic address of one in a space, or with .to the other way."""
    target, source = instruction.operands
    space = space_of(instruction)
    address = machine.read(source, "u64", lanes)
    start = np.uint64(WINDOWS.get(space, 0))
    if not instruction.has("to"):
        machine.write(target, address + start, lanes)
        return
    if start and ((address >> np.uint64(48)) != start >> np.uint64(48)).any():
        raise PtxError(f"an address that is not one of {space} memory becomes one.")
    machine.write(target, address - start, lanes)


def prefetch(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Nothing that can be seen."""


HINTS = """ca cg cs lu cv wb wt nc volatile relaxed acquire release weak cta cluster gpu sys L1::evict_normal
    L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate L2::64B L2::128B L2::256B"""
PLACES = "global shared shared::cta local param const"
TYPES = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"

MOVES = {
    "mov": meaning(mov, "pred b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"),
    "ld": meaning(ld, f"{TYPES} {PLACES} {HINTS} v2 v4"),
    "ldu": meaning(ld, f"{TYPES} global v2 v4"),
    "st": meaning(st, f"{TYPES} {PLACES} {HINTS} v2 v4"),
    "cvta": meaning(cvta, f"to u64 {PLACES}"),
    "prefetch": meaning(prefetch, "global L1 L2"),
}
