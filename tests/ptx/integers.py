"""Arithmetic of integers, and their bits.

Out:   `INTEGERS`, rows of the table; `BY_NAME`, of those that floats have too
Source: PTX ISA 9.0, 9.7.1, 9.7.2 (carries) and 9.7.8 (logic and shifts)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Meaning, meaning
from tests.ptx.registers import DTYPES

Execute = Callable[[Machine, Instruction, Lanes], None]


def elementwise(compute: Callable[..., Array]) -> Execute:
    """Returns the function of an instruction all of whose operands have its type."""

    def execute(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
        target, *sources = instruction.operands
        values = [machine.read(source, instruction.type, lanes) for source in sources]
        machine.write(target, compute(*values).astype(DTYPES[instruction.type]), lanes)

    return execute


def add(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = a + b, wrapping; with .sat (of s32) the nearest end of the range."""
    target, *sources = instruction.operands
    a, b = (machine.read(source, instruction.type, lanes) for source in sources)
    is_sub = instruction.modifiers[0] == "sub"
    if instruction.has("sat"):
        wide = a.astype(np.int64) - b if is_sub else a.astype(np.int64) + b
        machine.write(target, np.clip(wide, -(2**31), 2**31 - 1).astype(np.int32), lanes)
    else:
        machine.write(target, a - b if is_sub else a + b, lanes)


def high_half(a: Array, b: Array) -> Array:
    """Returns the upper half of the product."""
    bits = 8 * a.itemsize
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    x, y = a.view(np.uint64), b.view(np.uint64)
    x0, x1, y0, y1 = x & mask, x >> shift, y & mask, y >> shift
    middle = x1 * y0 + (x0 * y0 >> shift)
    other = x0 * y1 + (middle & mask)
    high = x1 * y1 + (middle >> shift) + (other >> shift)
    if a.dtype.kind == "i":  # a negative number is its bits less 2^64
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.view(a.dtype)


def product(instruction: Instruction, a: Array, b: Array) -> Array:
    """Returns the lower half, the upper half or all of a product."""
    if instruction.has("wide"):
        wide = f"{a.dtype.kind}{2 * a.itemsize}"
        return a.astype(wide) * b.astype(wide)
    return high_half(a, b) if instruction.has("hi") else a * b


def mul(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    target, *sources = instruction.operands
    a, b = (machine.read(source, instruction.type, lanes) for source in sources)
    machine.write(target, product(instruction, a, b), lanes)


def mad(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = a * b + c; c has the width of the product."""
    target, *sources, last = instruction.operands
    kind = instruction.type
    a, b = (machine.read(source, kind, lanes) for source in sources)
    result = product(instruction, a, b)
    wide = f"{kind[0]}{8 * result.itemsize}"
    machine.write(target, result + machine.read(last, wide, lanes), lanes)


def mul24(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """The lower 32 bits of a product of the lower 24 bits, or bits 16 to 47."""
    target, *sources = instruction.operands
    kind = instruction.type
    wide = np.int64 if kind[0] == "s" else np.uint64
    a, b = (machine.read(source, kind, lanes).astype(wide) << wide(40) >> wide(40) for source in sources)
    whole = a * b >> wide(16 if instruction.has("hi") else 0)
    machine.write(target, whole.astype(DTYPES[kind]), lanes)


def quotient(a: Array, b: Array) -> Array:
    """Returns a / b cut towards zero; of a divisor of 0 all ones, for nothing is promised of it."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    result = (a - np.fmod(a, divisor)) // divisor
    return np.where(b == 0, ~(a & b.dtype.type(0)), result)


def remainder(a: Array, b: Array) -> Array:
    """Returns a - quotient * b, which has the sign of a; nothing is promised of a divisor of 0."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, ~(a & b.dtype.type(0)), np.fmod(a, divisor))


def sad(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = |a - b| + c."""
    target, *sources = instruction.operands
    a, b, c = (machine.read(source, instruction.type, lanes) for source in sources)
    machine.write(target, np.where(a < b, b - a, a - b) + c, lanes)


# ---- shifts ----
def shift(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Shifts by an unsigned count of 32 bits, which stops at the width."""
    target, source, count = instruction.operands
    value = machine.read(source, instruction.type, lanes)
    bits = 8 * value.itemsize
    by = np.minimum(machine.read(count, "u32", lanes), bits)
    is_out = by == bits
    safe = np.where(is_out, 0, by).astype(value.dtype)
    if instruction.modifiers[0] == "shl":
        result = np.where(is_out, value.dtype.type(0), value << safe)
    else:
        all_signs = value >> value.dtype.type(bits - 1) if value.dtype.kind == "i" else value & value.dtype.type(0)
        result = np.where(is_out, all_signs, value >> safe)
    machine.write(target, result.astype(value.dtype), lanes)


def funnel(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """shf: 32 bits of b:a shifted; the upper ones of a left shift, the lower ones of a right one."""
    target, *sources = instruction.operands
    low, high, count = (machine.read(source, "u32", lanes).astype(np.uint64) for source in sources)
    by = np.minimum(count, 32) if instruction.has("clamp") else count & np.uint64(31)
    whole = high.astype(np.uint64) << np.uint64(32) | low
    moved = whole << by >> np.uint64(32) if instruction.has("l") else whole >> by
    machine.write(target, moved.astype(np.uint32), lanes)


# ---- logic ----
def logic(combine: Callable[..., Array]) -> Execute:
    """Returns the function of an instruction on bits, or on predicates."""

    def execute(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
        target, *sources = instruction.operands
        machine.write(target, combine(*(machine.read(source, instruction.type, lanes) for source in sources)), lanes)

    return execute


def cnot(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = a == 0."""
    target, source = instruction.operands
    value = machine.read(source, instruction.type, lanes)
    machine.write(target, (value == 0).astype(value.dtype), lanes)


def lop3(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Any function of three bits: the table's bit a * 4 + b * 2 + c."""
    target, *sources, table = instruction.operands
    a, b, c = (machine.read(source, "b32", lanes) for source in sources)
    code = int(machine.read(table, "u32", lanes)[0])
    result = np.zeros_like(a)
    for number in range(8):
        if code >> number & 1:
            result |= (a if number & 4 else ~a) & (b if number & 2 else ~b) & (c if number & 1 else ~c)
    machine.write(target, result, lanes)


# ---- sums with a carry ----
def with_carry(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """add.cc, addc, sub.cc, subc: CC.CF is the carry of a sum, the borrow of a difference."""
    target, *sources = instruction.operands
    kind = "u" + instruction.type[1:]
    a, b = (machine.read(source, kind, lanes) for source in sources)
    flags = machine.state.setdefault("carry", np.zeros(machine.registers.count, bool))
    is_sub, takes = instruction.modifiers[0].startswith("sub"), instruction.modifiers[0].endswith("c")
    carry = lanes.pick(flags).astype(a.dtype) if takes else np.zeros_like(a)
    if is_sub:
        result = a - b - carry
        out = (a < b) | ((a == b) & (carry == 1))
    else:
        result = a + b + carry
        out = (result < a) | ((result == a) & (carry == 1))
    if instruction.has("cc"):
        lanes.put(flags, out)
    machine.write(target, result, lanes)


def mad_with_carry(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """mad.cc, madc: half of a product, c and for madc the carry."""
    target, *sources = instruction.operands
    kind = instruction.type
    a, b, c = (machine.read(source, kind, lanes) for source in sources)
    half = (high_half(a, b) if instruction.has("hi") else a * b).view(f"u{a.itemsize}")
    flags = machine.state.setdefault("carry", np.zeros(machine.registers.count, bool))
    carry = lanes.pick(flags).astype(half.dtype) if instruction.modifiers[0] == "madc" else np.zeros_like(half)
    result = half + c.view(half.dtype) + carry
    if instruction.has("cc"):
        lanes.put(flags, (result < half) | ((result == half) & (carry == 1)))
    machine.write(target, result, lanes)


WORDS = "u16 u32 u64 s16 s32 s64"
BITS = "b16 b32 b64 pred"
INTEGERS: dict[str, Meaning] = {
    "mul24": meaning(mul24, "lo hi u32 s32"),
    "rem": meaning(elementwise(remainder), WORDS),
    "sad": meaning(sad, WORDS),
    "shl": meaning(shift, "b16 b32 b64"),
    "shr": meaning(shift, f"b16 b32 b64 {WORDS}"),
    "shf": meaning(funnel, "l r wrap clamp b32"),
    "and": meaning(logic(np.bitwise_and), BITS),
    "or": meaning(logic(np.bitwise_or), BITS),
    "xor": meaning(logic(np.bitwise_xor), BITS),
    "not": meaning(logic(np.bitwise_not), BITS),
    "cnot": meaning(cnot, "b16 b32 b64"),
    "lop3": meaning(lop3, "b32"),
    "add.cc": meaning(with_carry, "u32 s32 u64 s64"),
    "sub.cc": meaning(with_carry, "u32 s32 u64 s64"),
    "addc": meaning(with_carry, "cc u32 s32 u64 s64"),
    "subc": meaning(with_carry, "cc u32 s32 u64 s64"),
    "mad.lo.cc": meaning(mad_with_carry, "u32 s32 u64 s64"),
    "mad.hi.cc": meaning(mad_with_carry, "u32 s32 u64 s64"),
    "madc": meaning(mad_with_carry, "lo hi cc u32 s32 u64 s64"),
}
BY_NAME = {
    "add": meaning(add, f"sat {WORDS}"),
    "sub": meaning(add, f"sat {WORDS}"),
    "mul": meaning(mul, f"lo hi wide {WORDS}"),
    "mad": meaning(mad, f"lo hi wide {WORDS}"),
    "div": meaning(elementwise(quotient), WORDS),
    "max": meaning(elementwise(np.maximum), WORDS),
    "min": meaning(elementwise(np.minimum), WORDS),
    "abs": meaning(elementwise(np.abs), "s16 s32 s64"),
    "neg": meaning(elementwise(np.negative), "s16 s32 s64"),
}
