"""Instructions that are near a function, and how near the ISA says they are.

Out:   `APPROXIMATIONS`, rows of the table
Source: PTX ISA 9.0, 9.7.3.8 (div), .14 (rcp), .16 (sqrt), .18 (rsqrt), .20 to .24 (sin, cos, lg2, ex2, tanh)

They are made worse than need be, as far as is allowed: the result is one ulp to a side that the bits of the operand choose.
Code that needs more than the ISA promises gives wrong results here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.ptx.floats import applied, flushed
from tests.ptx.lanes import Array, Lanes
from tests.ptx.machine import Machine
from tests.ptx.module import Instruction, Meaning, meaning
from tests.ptx.rounding import rounded


def off_by_one(values: Array, operand: Array, kind: str) -> Array:
    """Returns the neighbours of values in a type, above or below; zeros, infinities and NaN stay."""
    near = rounded(values, kind).astype(np.float32)
    side = (operand.view(np.uint64) >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(63)
    moved = np.nextafter(near, np.where(side == 0, np.float32(0), np.float32(np.inf) * np.sign(near)))
    is_kept = (near == 0) | ~np.isfinite(near) | ~np.isfinite(moved) | (np.abs(near) < 2.0**-126)
    return np.where(is_kept, near, moved).astype(np.float64)


def near(function: Callable[[Array], Array]) -> Callable[..., Array]:
    """Returns what an instruction of one operand computes, an ulp off where the exact result is no power of two."""

    def compute(instruction: Instruction, kind: str, a: Array) -> Array:
        exact = function(a)
        is_exact = np.abs(np.frexp(exact)[0]) == 0.5
        return np.where(is_exact, exact, off_by_one(exact, a, kind))

    return compute


def div_approx(instruction: Instruction, kind: str, a: Array, b: Array) -> Array:
    """2 ulp; for a divisor past 2^126 a quotient of 0, or NaN of an infinity, unless .full."""
    result = off_by_one(a / b, a + b, kind)
    is_far = (np.abs(b) > 2.0**126) & np.isfinite(b) & ~np.array(instruction.has("full"))
    far = np.where(np.isinf(a), np.nan, np.copysign(0.0, a) * np.sign(b))
    return np.where(is_far, far, result)


def rcp_of_double(machine: Machine, instruction: Instruction, lanes: Lanes) -> None:
    """1 / a of the upper 32 bits, and of that the upper 32 bits."""
    target, source = instruction.operands
    upper = np.uint64(0xFFFFFFFF00000000)
    cut = flushed((machine.read(source, "b64", lanes) & upper).view(np.float64), "f64")
    result = flushed(1.0 / cut, "f64")
    machine.write(target, result.view(np.uint64) & upper, lanes)


APPROXIMATIONS: dict[str, Meaning] = {
    "ex2.approx": meaning(applied(near(np.exp2)), "ftz f32"),
    "lg2.approx": meaning(applied(near(np.log2)), "ftz f32"),
    "sin.approx": meaning(applied(near(np.sin)), "ftz f32"),
    "cos.approx": meaning(applied(near(np.cos)), "ftz f32"),
    "tanh.approx": meaning(applied(near(np.tanh)), "f32"),
    "rcp.approx": meaning(applied(near(lambda a: 1.0 / a)), "ftz f32"),
    "rcp.approx.ftz.f64": meaning(rcp_of_double, ""),
    "sqrt.approx": meaning(applied(near(np.sqrt)), "ftz f32"),
    "rsqrt.approx": meaning(applied(near(lambda a: 1.0 / np.sqrt(a))), "ftz f32"),
    "div.approx": meaning(applied(div_approx), "ftz f32"),
    "div.full": meaning(applied(div_approx), "ftz f32"),
}
