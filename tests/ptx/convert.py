"""Conversions between types: cvt.

Out:   `CONVERT`, rows of the table
Source: PTX ISA 9.0, 9.7.9.21 (cvt)
"""

from __future__ import annotations

import numpy as np

from tests.ptx.floats import flushed, joined, read_floats, write_floats
from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import NBYTES, Instruction, meaning
from tests.ptx.registers import DTYPES
from tests.ptx.rounding import FORMATS, MODES, as_odd_sum, decoded, encoded, rounded

FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
PAIRS = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")


def cvt(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d = a in another type."""
    to, source = instruction.types
    target, *operands = instruction.operands
    if to in PAIRS:
        pair(machine, instruction, lanes)
    elif to in FLOATS:
        values = floats_of(machine, instruction, source, lanes)
        if instruction.has("sat"):
            values = np.where(np.isnan(values), 0.0, np.clip(values, 0.0, 1.0))
        if instruction.has("relu"):
            values = np.where(values > 0, values, np.where(np.isnan(values), values, 0.0))
        write_floats(machine, target, [values], to, lanes)
    elif source in FLOATS:
        (values,) = read_floats(machine, operands[0], source, lanes)
        if instruction.has("ftz"):
            values = flushed(values, source)
        machine.write(target, to_integer(values, to, source, mode_of(instruction)), lanes)
    else:
        machine.write(target, between_integers(machine.read(operands[0], source, lanes), to, instruction.has("sat")), lanes)


def mode_of(instruction: Instruction) -> str:
    return next((part for part in instruction.modifiers if part in MODES), "rn")


def floats_of(machine: Machine, instruction: Instruction, source: str, lanes: Lanes) -> Array:
    """Returns the values of the operand as numbers of the float that is wanted."""
    to, mode = instruction.types[0], mode_of(instruction)
    operand = instruction.operands[1]
    if source not in FLOATS:
        return from_integer(machine.read(operand, source, lanes), to, mode)
    (values,) = read_floats(machine, operand, source, lanes)
    if instruction.has("ftz") and source == "f32":
        values = flushed(values, source)
    if mode.endswith("i"):  # to a whole number of the same type
        return MODES[mode](values)
    is_narrower = FORMATS[to].bits < FORMATS[source].bits
    result = rounded(values, to, mode, instruction.has("satfinite")) if is_narrower or to == "bf16" else values
    return flushed(result, to) if instruction.has("ftz") and to == "f32" else result


def from_integer(values: Array, to: str, mode: str) -> Array:
    """Returns integers as floats: high and low halves are exact, and so is their sum, rounded to odd."""
    if values.itemsize < 8:
        return rounded(values.astype(np.float64), to, mode)
    shift = values.dtype.type(32)
    high = np.ldexp((values >> shift).astype(np.float64), 32)
    low = (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64)
    if to == "f64" and mode == "rn":
        return high + low
    return rounded(as_odd_sum(high, low), to, mode)


def to_integer(values: Array, to: str, source: str, mode: str) -> Array:
    """Returns floats as integers: what does not fit is the nearest end; a NaN is 0, or the top bit if 64 bits take part."""
    dtype = DTYPES[to]
    info = np.iinfo(dtype)
    whole = MODES[mode](values)
    above, below = whole >= float(2 ** (info.bits - (info.min < 0))), whole < float(info.min)
    inside = np.where(above | below | np.isnan(whole), 0.0, whole)
    result = inside.astype(dtype) if info.min < 0 or info.bits < 64 else large(inside)
    result = np.where(above, dtype.type(info.max), np.where(below, dtype.type(info.min), result))
    is_wide = source == "f64" or info.bits == 64
    of_nan = np.array([(1 << info.bits - 1) if is_wide else 0], f"u{dtype.itemsize}").view(dtype)
    return np.where(np.isnan(whole), of_nan, result).astype(dtype)


def large(values: Array) -> Array:
    """Returns whole numbers below 2^64 as uint64; what is 2^63 or more lies beyond int64."""
    is_large = values >= 2.0**63
    rest = np.where(is_large, values - 2.0**63, values).astype(np.int64).astype(np.uint64)
    return np.where(is_large, rest + np.uint64(1 << 63), rest)


def between_integers(values: Array, to: str, is_saturated: bool) -> Array:
    """Returns integers cut or extended to a type."""
    dtype = DTYPES[to]
    if not is_saturated:
        return values.astype(dtype)
    info, own = np.iinfo(dtype), np.iinfo(values.dtype)
    return np.clip(values, max(info.min, own.min), min(info.max, own.max)).astype(dtype)


def pair(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Two floats as one register: the first operand goes into the upper half."""
    to, source = instruction.types
    target, *operands = instruction.operands
    element = to.removesuffix("x2")
    if source in ("e4m3x2", "e5m2x2"):
        bits = machine.read(operands[0], source, lanes)
        values = [decoded((bits >> np.uint16(8 * i)).astype(np.uint8), source[:-2]) for i in range(2)]
    elif source.endswith("x2"):
        values = read_floats(machine, operands[0], source, lanes)
    else:
        values = [read_floats(machine, operand, source, lanes)[0] for operand in reversed(operands)]
    results = [rounded(value, element, mode_of(instruction), instruction.has("satfinite")) for value in values]
    if instruction.has("relu"):
        results = [np.where(x > 0, x, np.where(np.isnan(x), x, 0.0)) for x in results]
    low, high = (encoded(result, element) for result in results)
    if NBYTES[to] == 4:
        machine.write(target, joined(low, high), lanes)
    else:
        machine.write(target, low.astype(np.uint16) | (high.astype(np.uint16) << np.uint16(8)), lanes)


KINDS = "u8 u16 u32 u64 s8 s16 s32 s64 b16 b32 f16 bf16 f32 f64 tf32 f16x2 bf16x2 e4m3x2 e5m2x2"
CONVERT = {"cvt": meaning(cvt, f"rn rz rm rp rna rni rzi rmi rpi ftz sat satfinite relu {KINDS}")}
