"""Instructions that look for bits in a word and take words apart.

Out:   `BITS`, rows of the table
Source: PTX ISA 9.0, 9.7.1.12 to 9.7.1.23, 9.7.9.7 (prmt)
"""

from __future__ import annotations

import numpy as np

from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Meaning, meaning
from tests.ptx.registers import DTYPES


def popcount(values: Array) -> Array:
    """Returns how many bits of each number are ones, as uint32."""
    parts = np.ascontiguousarray(values)[:, None].view(np.uint8)
    return np.unpackbits(parts, axis=1).sum(1).astype(np.uint32)


def highest(values: Array) -> Array:
    """Returns the place of the highest one of each unsigned number, -1 of 0."""
    found = np.full(len(values), -1)
    left = values.copy()
    for step in (32, 16, 8, 4, 2, 1):
        if step < 8 * values.itemsize:
            is_above = left >> values.dtype.type(step) != 0
            found += np.where(is_above, step, 0)
            left = np.where(is_above, left >> values.dtype.type(step), left)
    return found + (left != 0)


def popc(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    target, source = instruction.operands
    machine.write(target, popcount(machine.read(source, instruction.type, lanes)), lanes)


def clz(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """How many zeros stand before the highest one; the width of 0."""
    target, source = instruction.operands
    value = machine.read(source, instruction.type, lanes)
    machine.write(target, (8 * value.itemsize - 1 - highest(value)).astype(np.uint32), lanes)


def bfind(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """The place of the highest bit that is no sign; all ones if there is none. .shiftamt: how far it is from the top."""
    target, source = instruction.operands
    value = machine.read(source, instruction.type, lanes)
    bits = np.where(value < 0, ~value, value).view(f"u{value.itemsize}")
    place = highest(bits)
    result = np.where(place < 0, -1, 8 * value.itemsize - 1 - place if instruction.has("shiftamt") else place)
    machine.write(target, result.astype(np.int32).view(np.uint32), lanes)


def brev(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """The bits in the opposite order."""
    target, source = instruction.operands
    value = np.ascontiguousarray(machine.read(source, instruction.type, lanes))
    parts = np.unpackbits(value[:, None].view(np.uint8), axis=1, bitorder="little")[:, ::-1]
    machine.write(target, np.packbits(parts, axis=1, bitorder="little").view(value.dtype)[:, 0], lanes)


def bfe(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Some bits from a place on, the lower 8 bits of both numbers; what lies past the top is the sign of the field."""
    target, source, place, length = instruction.operands
    value = machine.read(source, instruction.type, lanes)
    width = 8 * value.itemsize
    start, count = (machine.read(operand, "u32", lanes).astype(np.int64) & 255 for operand in (place, length))
    last = np.minimum(start + count - 1, width - 1)
    bits = value.view(f"u{value.itemsize}")
    one = bits.dtype.type(1)
    has_sign = (instruction.type[0] == "s") & (count > 0)
    sign = np.where(has_sign, bits >> np.maximum(last, 0).astype(bits.dtype) & one, 0).astype(bits.dtype)
    taken = np.where(start < width, bits >> np.minimum(start, width - 1).astype(bits.dtype), bits.dtype.type(0))
    kept = np.minimum(count, np.maximum(width - start, 0))
    mask = np.where(kept >= width, ~bits.dtype.type(0), (one << np.minimum(kept, width - 1).astype(bits.dtype)) - one)
    machine.write(target, (taken & mask) | np.where(sign == 1, ~mask, bits.dtype.type(0)), lanes)


def bfi(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """b, with the lowest bits of a in it from a place on."""
    target, field, base, place, length = instruction.operands
    a, b = (machine.read(operand, instruction.type, lanes) for operand in (field, base))
    width = 8 * a.itemsize
    start, count = (machine.read(operand, "u32", lanes).astype(np.int64) & 255 for operand in (place, length))
    kept = np.minimum(count, np.maximum(width - start, 0))
    one = a.dtype.type(1)
    ones = np.where(kept >= width, ~a.dtype.type(0), (one << np.minimum(kept, width - 1).astype(a.dtype)) - one)
    by = np.minimum(start, width - 1).astype(a.dtype)
    mask = np.where(start < width, ones << by, a.dtype.type(0))
    machine.write(target, (a << by & mask) | (b & ~mask), lanes)


def prmt(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Four of the eight bytes of b:a; bit 3 of a choice takes the sign of the byte in all its bits."""
    target, *sources = instruction.operands
    a, b, choices = (machine.read(source, "b32", lanes) for source in sources)
    both = b.astype(np.uint64) << np.uint64(32) | a
    result = np.zeros(len(lanes), np.uint32)
    for i in range(4):
        choice = choices >> np.uint32(4 * i) & np.uint32(15)
        byte = (both >> (choice & np.uint32(7)).astype(np.uint64) * np.uint64(8) & np.uint64(255)).astype(np.uint32)
        signs = np.where(byte & 128, np.uint32(255), np.uint32(0))
        result |= np.where(choice & 8, signs, byte) << np.uint32(8 * i)
    machine.write(target, result, lanes)


def dp4a(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = c + the sum of four products of bytes."""
    target, *sources = instruction.operands
    a, b, c = (machine.read(source, "b32", lanes) for source in sources)
    kinds = [DTYPES[f"{part[0]}8"] for part in instruction.types]
    result = c.copy()
    for i in range(4):
        x, y = (((v >> np.uint32(8 * i)) & np.uint32(255)).astype(np.uint8).view(k) for v, k in zip((a, b), kinds))
        result += (x.astype(np.int64) * y.astype(np.int64)).astype(np.uint32)
    machine.write(target, result, lanes)


BITS: dict[str, Meaning] = {
    "popc": meaning(popc, "b32 b64"),
    "clz": meaning(clz, "b32 b64"),
    "bfind": meaning(bfind, "shiftamt u32 u64 s32 s64"),
    "brev": meaning(brev, "b32 b64"),
    "bfe": meaning(bfe, "u32 u64 s32 s64"),
    "bfi": meaning(bfi, "b32 b64"),
    "prmt": meaning(prmt, "b32"),
    "dp4a": meaning(dp4a, "u32 s32"),
}
