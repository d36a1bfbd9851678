"""Elementwise operators: arithmetic, comparisons, logic, bits, activations.

In:    tensors that broadcast
Out:   `OPERATORS`
Next:  picograd/onnx/operators/reductions.py
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F
from picograd.onnx.record import row
from picograd.onnx.values import choose
from picograd.tensor.tensor import Tensor

Binary = Callable[[Any, Any], Any]


def legacy(function: Binary) -> Callable[..., Tensor]:
    """Returns a binary function as it was before version 7.

    With `broadcast` the second operand is put at `axis` of the first, or at its end; without it, both have one shape.
    """

    def apply(a: Tensor, b: Tensor, *, axis: int | None = None, broadcast: int = 0) -> Tensor:
        if broadcast and axis is not None:
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis - b.ndim))
        result: Tensor = function(a, b)
        if result.shape != a.shape or not (broadcast or a.shape == b.shape):
            raise ShapeError(f"shapes {a.shape} and {b.shape} do not fit with broadcast={broadcast}.")
        return result

    return apply


# ---- arithmetic ----
def divide(a: Tensor, b: Tensor) -> Tensor:
    """Returns a / b; of integers the quotient rounded to zero."""
    return a / b if a.dtype.is_float else a.div(b, rounding_mode="trunc")


def modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    """Returns what division leaves: with the sign of b, or of a where fmod is set."""
    return a.fmod(b) if fmod else a % b


def power(base: Tensor, exponent: Tensor) -> Tensor:
    """Returns base ** exponent in the element type of the base."""
    if base.dtype.is_int and exponent.dtype.is_float:
        return (base.to(dtypes.float64) ** exponent.to(dtypes.float64)).to(base.dtype)
    return (base ** exponent.to(base.dtype if base.dtype.is_float else exponent.dtype)).to(base.dtype)


def total(*values: Tensor) -> Tensor:
    """Returns the sum of all operands."""
    return reduce(Tensor.add, values)


def average(*values: Tensor) -> Tensor:
    """Returns the mean of all operands."""
    return total(*values) / len(values)


def largest(*values: Tensor) -> Tensor:
    """Returns the largest of all operands."""
    return reduce(Tensor.maximum, values)


def least(*values: Tensor) -> Tensor:
    """Returns the least of all operands."""
    return reduce(Tensor.minimum, values)


def clip_to(x: Tensor, *, min: float | None = None, max: float | None = None) -> Tensor:  # noqa: A002
    """Returns x, not below `min` nor above `max`."""
    return x.clamp(min, max) if min is not None or max is not None else x


def clip(x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Returns x, not below `low`, then not above `high`."""
    x = x if low is None else x.maximum(low)
    return x if high is None else x.minimum(high)


def is_infinite(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    """Returns True where x is infinite, of the signs asked for."""
    found = x.isinf()
    if not detect_negative:
        found = found & (x > 0)
    return found if detect_positive else found & (x < 0)


# ---- comparisons, logic, bits ----
def equal(a: Any, b: Any) -> Any:
    """Returns True where a == b; of strings too."""
    if isinstance(a, np.ndarray):
        return np.asarray(a == b, dtype=bool)
    return a.eq(b)


def shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    """Returns a * 2 ** b or a / 2 ** b of integers; all bits leave where b is at least their number."""
    if direction not in ("LEFT", "RIGHT"):
        raise ArgumentError(f'BitShift: direction must be "LEFT" or "RIGHT", got {direction!r}.')
    most = a.dtype.bits - 1
    if direction == "LEFT":
        return (a << b.minimum(most)).masked_fill(b > most, 0)
    shifted = a >> b.minimum(most)
    return shifted if a.dtype.kind == "i" else shifted.masked_fill(b > most, 0)


# ---- activations ----
def hard_sigmoid(x: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """Returns alpha * x + beta, not below 0 nor above 1."""
    return (x * alpha + beta).clamp(0, 1)


def leaky_relu(x: Tensor, *, alpha: float = 0.01) -> Tensor:
    """Returns x where it is positive, else alpha * x."""
    return F.leaky_relu(x, alpha)


def parametric_relu(x: Tensor, slope: Tensor) -> Tensor:
    """Returns x where it is positive, else slope * x; slope broadcasts to x.

    Raises:
      ShapeError: it does not.
    """
    result = choose(x < 0, x * slope, x)
    if result.shape != x.shape:
        raise ShapeError(f"PRelu: slopes of shape {slope.shape} do not broadcast to {x.shape}.")
    return result


def legacy_parametric_relu(x: Tensor, slope: Tensor) -> Tensor:
    """Returns parametric_relu with one slope a channel, axis 1."""
    return parametric_relu(x, slope.reshape(-1, *(1,) * (x.ndim - 2)) if slope.numel() > 1 and x.ndim > 1 else slope)


def elu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x where it is positive, else alpha * (exp(x) - 1)."""
    return F.elu(x, alpha)


def selu(x: Tensor, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875) -> Tensor:
    """Returns gamma * x where x is positive, else gamma * alpha * (exp(x) - 1)."""
    return elu(x, alpha=alpha) * gamma


def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x where it is above alpha, else 0."""
    return F.threshold(x, alpha, 0.0)


def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    """Returns x brought closer to 0 by `bias` where its magnitude is above lambd, else 0."""
    return choose(x < -lambd, x + bias, choose(x > lambd, x - bias, x * 0))


def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x where it is positive, else alpha * (exp(x / alpha) - 1)."""
    return F.celu(x, alpha)


def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    """Returns x * sigmoid(alpha * x)."""
    return x * (x * alpha).sigmoid()


def where(condition: Tensor, a: Any, b: Any) -> Any:
    """Returns a where the condition holds, else b; of strings too."""
    if isinstance(a, np.ndarray):
        return np.where(condition.numpy(), a, b)
    return choose(condition, a, b)


def identity(x: Any) -> Any:
    """Returns what it is given."""
    return x


OPERATORS = [
    # ---- one operand ----
    row("Abs", 1, Tensor.abs), row("Neg", 1, Tensor.neg), row("Sign", 9, Tensor.sign),
    row("Reciprocal", 1, Tensor.reciprocal),
    row("Floor", 1, Tensor.floor), row("Ceil", 1, Tensor.ceil), row("Round", 11, lambda x: x.round()),
    row("Sqrt", 1, Tensor.sqrt), row("Exp", 1, Tensor.exp), row("Log", 1, Tensor.log), row("Erf", 9, Tensor.erf),
    row("Sin", 7, Tensor.sin), row("Cos", 7, Tensor.cos), row("Tan", 7, Tensor.tan),
    row("Acos", 7, Tensor.acos), row("Asin", 7, Tensor.asin), row("Atan", 7, Tensor.atan),
    row("Acosh", 9, Tensor.acosh), row("Asinh", 9, Tensor.asinh), row("Atanh", 9, Tensor.atanh),
    row("Sinh", 9, Tensor.sinh), row("Cosh", 9, Tensor.cosh), row("Tanh", 1, Tensor.tanh),
    row("Sigmoid", 1, Tensor.sigmoid), row("Relu", 1, Tensor.relu), row("Softplus", 1, lambda x: x.softplus()),
    row("IsNaN", 9, Tensor.isnan), row("IsInf", 10, is_infinite), row("Not", 1, operator.invert),
    row("BitwiseNot", 18, operator.invert),
    row("Identity", 1, identity, hosts=True),
    # ---- several operands ----
    row("Add", 1, legacy(Tensor.add)), row("Sub", 1, legacy(Tensor.sub)), row("Mul", 1, legacy(Tensor.mul)),
    row("Div", 1, legacy(divide)), row("Pow", 1, legacy(power)), row("Equal", 1, legacy(operator.eq)),
    row("Greater", 1, legacy(operator.gt)), row("Less", 1, legacy(operator.lt)),
    row("And", 1, legacy(operator.and_)), row("Or", 1, legacy(operator.or_)), row("Xor", 1, legacy(operator.xor)),
    row("Add", 7, Tensor.add), row("Sub", 7, Tensor.sub), row("Mul", 7, Tensor.mul), row("Div", 7, divide),
    row("Pow", 7, power), row("Equal", 7, equal, hosts=True), row("Greater", 7, operator.gt), row("Less", 7, operator.lt),
    row("GreaterOrEqual", 12, operator.ge), row("LessOrEqual", 12, operator.le),
    row("And", 7, operator.and_), row("Or", 7, operator.or_), row("Xor", 7, operator.xor),
    row("BitwiseAnd", 18, operator.and_), row("BitwiseOr", 18, operator.or_), row("BitwiseXor", 18, operator.xor),
    row("BitShift", 11, shift),
    row("Mod", 10, modulo),
    row("Sum", 1, total), row("Mean", 1, average), row("Max", 1, largest), row("Min", 1, least),
    row("Clip", 1, clip_to), row("Clip", 11, clip, "x single single"), row("Where", 9, where, hosts=True),
    # ---- activations ----
    row("HardSigmoid", 1, hard_sigmoid), row("LeakyRelu", 1, leaky_relu), row("PRelu", 1, legacy_parametric_relu),
    row("PRelu", 7, parametric_relu), row("Elu", 1, elu), row("Selu", 1, selu),
    row("ThresholdedRelu", 10, thresholded_relu),
    row("Shrink", 9, shrink), row("Softsign", 1, lambda x: F.softsign(x)), row("Swish", 24, swish),
    row("Gelu", 20, Tensor.gelu),
    row("Celu", 12, celu), row("Mish", 18, lambda x: F.mish(x)), row("HardSwish", 14, lambda x: F.hardswish(x)),
]  # fmt: skip
