"""Arithmetic of floats: f32, f64, f16, bf16, and pairs of the last two.

Out:   `FLOATS`, rows of the table
Source: PTX ISA 9.0, 9.7.3 to 9.7.5

A NaN that an instruction makes has the bits of FORMATS: what it was given of payload and sign is lost. .ftz takes and gives
zeros in the place of subnormal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Meaning, Operand, PtxError, meaning
from tests.ptx.rounding import FORMATS, as_odd_sum, decoded, encoded, fma64, rounded, to_odd, two_product, two_sum

MODES = ("rn", "rz", "rm", "rp")
LEAST = {"f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126, "f64": 2.0**-1022}


def mode_of(instruction: Instruction) -> str:
    return next((mode for mode in MODES if instruction.has(mode)), "rn")


def flushed(values: Array, kind: str) -> Array:
    """Returns zeros of the same sign in the place of subnormal numbers."""
    return np.where(np.abs(values) < LEAST[kind], np.copysign(0.0, values), values)


def halves(bits: Array) -> list[Array]:
    """Returns the lower and the upper 16 bits of each number."""
    return [(bits >> np.uint32(16 * i)).astype(np.uint16) for i in range(2)]


def joined(low: Array, high: Array) -> Array:
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


def read_floats(machine: Machine, operand: Operand, kind: str, lanes: Lanes) -> list[Array]:
    """Returns float64 values of an operand: one array, or two where its type is a pair."""
    if kind.endswith("x2"):
        return [decoded(half, kind[:-2]) for half in halves(machine.read(operand, kind, lanes))]
    bits = machine.read(operand, f"b{kind.lstrip('bf')}", lanes)
    return [decoded(bits, kind)]


def write_floats(machine: Machine, operand: Operand, values: list[Array], kind: str, lanes: Lanes) -> None:
    """Stores float64 values that are numbers of a type."""
    if kind.endswith("x2"):
        machine.write(operand, joined(*(encoded(value, kind[:-2]) for value in values)), lanes)
    else:
        machine.write(operand, encoded(values[0], kind), lanes)


def applied(
    compute: Callable[..., Array], native: Callable[..., Array] | None = None
) -> Callable[[Machine, Instruction, Lanes], None]:
    """Returns the function of an instruction that computes each element from those of its operands.

    Args:
      compute: (instruction, type, operands as float64) -> results, rounded to the type
      native:  the same to nearest, of float32 or float64 as they are: NumPy rounds as IEEE 754 says
    """

    def execute(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
        target, *sources = instruction.operands
        kind = instruction.type
        if native is not None and kind in ("f32", "f64") and set(instruction.modifiers[1:]) <= {"rn", kind}:
            result = native(*(machine.read(source, kind, lanes) for source in sources))
            bits = result.view(f"u{result.itemsize}")
            machine.write(target, np.where(np.isnan(result), bits.dtype.type(FORMATS[kind].nan), bits), lanes)
            return
        columns = [read_floats(machine, source, kind, lanes) for source in sources]
        results = [modified(compute, instruction, operands) for operands in zip(*columns)]
        write_floats(machine, target, results, kind, lanes)

    return execute


def modified(compute: Callable[..., Array], instruction: Instruction, operands: Sequence[Array]) -> Array:
    """Returns the results for one element, as .ftz, .sat and .relu want them."""
    element = instruction.type.removesuffix("x2")
    if instruction.has("ftz"):
        operands = [flushed(each, element) for each in operands]
    result = compute(instruction, element, *operands)
    if instruction.has("ftz"):
        result = flushed(result, element)
    if instruction.has("sat"):
        result = np.where(np.isnan(result), 0.0, np.clip(result, 0.0, 1.0))
    if instruction.has("relu"):
        result = np.where(np.isnan(result), result, np.where(result > 0, result, 0.0))
    return result


def round_exact(value: Array, missing: Array, kind: str, mode: str) -> Array:
    """Returns a sum of two float64, the second far below the first, as a number of a type."""
    if kind != "f64":
        return rounded(to_odd(value, missing), kind, mode)
    if mode == "rn":
        return value
    towards = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    is_past = (missing < 0) == (value > 0) if mode == "rz" else (missing < 0 if mode == "rm" else missing > 0)
    return np.where((missing != 0) & is_past, np.nextafter(value, towards), value)


def add(instruction: Instruction, kind: str, a: Array, b: Array) -> Array:
    return round_exact(*two_sum(a, b), kind, mode_of(instruction))


def sub(instruction: Instruction, kind: str, a: Array, b: Array) -> Array:
    return add(instruction, kind, a, -b)


def mul(instruction: Instruction, kind: str, a: Array, b: Array) -> Array:
    if kind != "f64":  # a product of two numbers of 24 bits is exact
        return rounded(a * b, kind, mode_of(instruction))
    if mode_of(instruction) == "rn":
        return a * b
    return round_exact(*two_product(a, b), kind, mode_of(instruction))


def fma(instruction: Instruction, kind: str, a: Array, b: Array, c: Array) -> Array:
    if kind != "f64":
        return rounded(as_odd_sum(a * b, c), kind, mode_of(instruction))
    if mode_of(instruction) != "rn":
        raise PtxError("fma of float64 is known to nearest only.")
    return fma64(a, b, c)


def native_fma(a: Array, b: Array, c: Array) -> Array:
    if a.itemsize == 8:
        return fma64(a, b, c)
    return as_odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(np.float32)


def div(instruction: Instruction, kind: str, a: Array, b: Array) -> Array:
    """A quotient of two numbers of 24 bits, rounded to 53 and then to 24, is rounded as if once (Figueroa 1995)."""
    if mode_of(instruction) != "rn":
        raise PtxError("a quotient is known to nearest only.")
    return a / b if kind == "f64" else rounded_twice(a / b, a, b, kind)


def rounded_twice(quotient: Array, a: Array, b: Array, kind: str) -> Array:
    """Returns a quotient in a narrower type; a subnormal one from the quotient rounded to odd by its remainder."""
    product, missing = two_product(quotient, b)
    rest = (a - product) - missing  # exact: the remainder of a rounded quotient is a float64
    sign = np.where(rest == 0, 0.0, np.where((rest < 0) == (b < 0), 1.0, -1.0))
    is_usable = np.isfinite(quotient) & np.isfinite(rest) & (quotient != 0)
    return rounded(np.where(is_usable, to_odd(quotient, np.where(is_usable, sign, 0.0)), quotient), kind)


def sqrt(instruction: Instruction, kind: str, a: Array) -> Array:
    if mode_of(instruction) != "rn":
        raise PtxError("a root is known to nearest only.")
    return np.sqrt(a) if kind == "f64" else rounded(np.sqrt(a), kind)  # as in `div`; no root is subnormal


def rcp(instruction: Instruction, kind: str, a: Array) -> Array:
    return div(instruction, kind, np.ones_like(a), a)


def minmax(is_max: bool) -> Callable[..., Array]:
    """Returns max or min: -0 < +0, a NaN loses unless .NaN says that it wins."""

    def compute(instruction: Instruction, kind: str, *operands: Array) -> Array:
        result = operands[0]
        for b in operands[1:]:
            first = (result > b) if is_max else (result < b)
            is_first = np.where(result == b, np.signbit(b) if is_max else np.signbit(result), first)
            chosen = np.where(is_first, result, b)
            if instruction.has("NaN"):
                chosen = np.where(np.isnan(result) | np.isnan(b), np.nan, chosen)
            else:
                chosen = np.where(np.isnan(result), b, np.where(np.isnan(b), result, chosen))
            result = chosen
        return result

    return compute


# ---- signs: bits alone, a NaN stays what it is ----
def on_bits(compute: Callable[[Array, Array], Array]) -> Callable[[Machine, Instruction, Lanes], None]:
    """Returns the function of an instruction on bits; it is given the bits and those that hold a sign."""

    def execute(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
        target, source = instruction.operands
        kind = instruction.type
        bits = machine.read(source, f"b{kind.removesuffix('x2').lstrip('bf')}" if kind[-2:] != "x2" else kind, lanes)
        sign = 0x80008000 if kind.endswith("x2") else 1 << 8 * bits.itemsize - 1
        result = compute(bits, np.array(sign, bits.dtype))
        if instruction.has("ftz"):
            (values,) = read_floats(machine, source, kind, lanes)
            result = np.where(
                np.abs(values) < LEAST[kind], result & compute(bits & sign, np.array(sign, bits.dtype)), result
            )
        machine.write(target, result.astype(bits.dtype), lanes)

    return execute


def copysign(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """d has the sign of a and the magnitude of b."""
    target, a, b = instruction.operands
    kind = "b" + instruction.type[1:]
    sign, value = machine.read(a, kind, lanes), machine.read(b, kind, lanes)
    mask = value.dtype.type(1 << 8 * value.itemsize - 1)
    machine.write(target, (sign & mask) | (value & ~mask), lanes)


def testp(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """Whether a float is of a kind."""
    target, source = instruction.operands
    (values,) = read_floats(machine, source, instruction.type, lanes)
    least = LEAST[instruction.type]
    kinds = {
        "finite": np.isfinite(values), "infinite": np.isinf(values), "number": ~np.isnan(values),
        "notanumber": np.isnan(values), "normal": np.isfinite(values) & (np.abs(values) >= least),
        "subnormal": (values != 0) & (np.abs(values) < least),
    }  # fmt: skip
    machine.write(target, kinds[instruction.modifiers[1]], lanes)


HALF = "f16 f16x2 bf16 bf16x2"
ALL = f"f32 f64 {HALF}"
FLOAT_KINDS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
BY_NAME = {
    "add": meaning(applied(add, np.add), f"rn rz rm rp ftz sat {ALL}"),
    "sub": meaning(applied(sub, np.subtract), f"rn rz rm rp ftz sat {ALL}"),
    "mul": meaning(applied(mul, np.multiply), f"rn rz rm rp ftz sat {ALL}"),
    "max": meaning(applied(minmax(True)), f"ftz NaN {ALL}"),
    "min": meaning(applied(minmax(False)), f"ftz NaN {ALL}"),
    "div": meaning(applied(div, np.divide), "rn ftz f32 f64"),
    "abs": meaning(on_bits(lambda bits, sign: bits & ~sign), f"ftz {ALL}"),
    "neg": meaning(on_bits(lambda bits, sign: bits ^ sign), f"ftz {ALL}"),
}
FLOATS: dict[str, Meaning] = {
    "fma": meaning(applied(fma, native_fma), f"rn rz rm rp ftz sat relu {ALL}"),
    "mad.rn": meaning(applied(fma, native_fma), "ftz sat f32 f64"),
    "sqrt": meaning(applied(sqrt, np.sqrt), "rn ftz f32 f64"),
    "rcp": meaning(applied(rcp), "rn ftz f32 f64"),
    "copysign": meaning(copysign, "f32 f64"),
    "testp": meaning(testp, "finite infinite number notanumber normal subnormal f32 f64"),
}
