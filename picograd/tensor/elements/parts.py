"""What a number is made of: sign, integer part and fraction, mantissa and exponent; and what kind of number it is.

In:    tensors
Out:   `Parts`
Next:  picograd/tensor/elements/special_functions.py
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from picograd import dtype as dtypes
from picograd.errors import DTypeError
from picograd.ir.build import compare, where
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import need_float, to_float, whole
from picograd.tensor.core import T
from picograd.tensor.elements import arithmetic, inverses, pointwise
from picograd.tensor.elements.functions import composed, float_composed, in_one_rounding
from picograd.tensor.inplace import in_place


class FrexpResult(NamedTuple):
    """What frexp returns.

    mantissa:  of 1/2 <= |m| < 1, or 0
    exponent:  int32
    """

    mantissa: Any
    exponent: Any


# ---- sign, rounding, parts ----
def abs(self: T) -> T:
    """Returns |x|.

    >>> Tensor([-1.5, 2.5]).abs()
    Tensor([1.5, 2.5])
    """
    return composed(self, pointwise.absolute)


abs_ = in_place(abs)


def neg(self: T) -> T:
    """Returns -x.

    >>> Tensor([-1.5, 2.5]).neg()
    Tensor([ 1.5, -2.5])
    """
    return -self


neg_ = in_place(neg)


def sign(self: T) -> T:
    """Returns -1, 0 or 1.

    >>> Tensor([-1.5, 0.0, 2.5]).sign()
    Tensor([-1.,  0.,  1.])
    """
    return composed(self, pointwise.sign)


sign_ = in_place(sign)


def floor(self: T) -> T:
    """Returns the greatest integer <= x, in the dtype of x.

    >>> Tensor([-1.5, 0.0, 2.5]).floor()
    Tensor([-2.,  0.,  2.])
    """
    return composed(self, pointwise.floor)


floor_ = in_place(floor)


def ceil(self: T) -> T:
    """Returns the least integer >= x, in the dtype of x.

    >>> Tensor([-1.5, 0.0, 2.5]).ceil()
    Tensor([-1.,  0.,  3.])
    """
    return composed(self, pointwise.ceil)


ceil_ = in_place(ceil)


def trunc(self: T) -> T:
    """Returns x without its fraction, in the dtype of x.

    >>> Tensor([-1.5, 0.0, 2.5]).trunc()
    Tensor([-1.,  0.,  2.])
    """
    return composed(self, pointwise.trunc)


trunc_ = in_place(trunc)


def round(self: T, decimals: int = 0) -> T:
    """Returns x rounded to `decimals` places, halves to the even digit.

    >>> Tensor([0.5, 1.5, 2.347]).round()
    Tensor([0., 2., 2.])
    """
    decimals = whole("round", "decimals", decimals)
    if decimals == 0 or not self.dtype.is_float:
        return composed(self, pointwise.round_even)
    scale = 10.0**decimals
    return in_one_rounding(lambda x: (x * scale).round() / scale, self)


round_ = in_place(round)


def frac(self: T) -> T:
    """Returns x - trunc(x).

    Raises:
      DTypeError: of integers.

    >>> Tensor([1.5, -1.5]).frac()
    Tensor([ 0.5, -0.5])
    """
    op = need_float("frac", self.read())
    return self.from_op(op - pointwise.trunc(op), self.cell.device)


frac_ = in_place(frac)


def frexp(self: T) -> FrexpResult:
    """Returns (mantissa, exponent) with x = mantissa * 2 ** exponent and 1/2 <= |mantissa| < 1.

    Raises:
      DTypeError: of integers.

    >>> mantissa, exponent = Tensor([8.0, -0.75]).frexp()
    >>> mantissa.tolist(), exponent.tolist()
    ([0.5, -0.75], [4, 0])
    """
    mantissa, exponent = arithmetic.frexp(need_float("frexp", self.read()))
    return FrexpResult(self.from_op(mantissa, self.cell.device), self.from_op(exponent, self.cell.device))


def sgn(self: T) -> T:
    """Returns -1, 0 or 1, as sign does.

    >>> Tensor([-1.5, 0.0, 2.5]).sgn()
    Tensor([-1.,  0.,  1.])
    """
    return self.sign()


sgn_ = in_place(sgn)


def signbit(self: T) -> T:
    """Returns True where the sign bit is set: below 0, and of -0.0.

    >>> Tensor([-1.0, -0.0, 0.0]).signbit()
    Tensor([ True,  True, False])
    """
    if self.dtype.kind in "bu":
        return self.from_op(filled(False, dtypes.bool_, self.op.shape), self.cell.device)
    return composed(self, inverses.is_negative)


__abs__ = abs
absolute, negative, fix = abs, neg, trunc
absolute_, negative_, fix_ = abs_, neg_, trunc_


# ---- what kind of number it is ----
def isnan(self: T) -> T:
    """Returns True for NaN.

    >>> Tensor([float("nan"), 1.0]).isnan()
    Tensor([ True, False])
    """
    return composed(self, pointwise.is_nan)


def isinf(self: T) -> T:
    """Returns True for plus and minus infinity.

    >>> Tensor([float("inf"), 1.0]).isinf()
    Tensor([ True, False])
    """
    return float_composed(self, pointwise.is_infinite)


def isfinite(self: T) -> T:
    """Returns True for neither NaN nor infinity.

    >>> Tensor([float("inf"), 1.0]).isfinite()
    Tensor([False,  True])
    """
    return float_composed(self, pointwise.is_finite)


def isposinf(self: T) -> T:
    """Returns True for plus infinity.

    >>> Tensor([float("inf"), float("-inf")]).isposinf()
    Tensor([ True, False])
    """
    return float_composed(self, lambda x: compare(OpCode.CMPEQ, x, math.inf))


def isneginf(self: T) -> T:
    """Returns True for minus infinity.

    >>> Tensor([float("inf"), float("-inf")]).isneginf()
    Tensor([False,  True])
    """
    return float_composed(self, lambda x: compare(OpCode.CMPEQ, x, -math.inf))


def isreal(self: T) -> T:
    """Returns True everywhere: there are no complex numbers.

    >>> Tensor([1.0]).isreal()
    Tensor([ True])
    """
    return self.from_op(filled(True, dtypes.bool_, self.op.shape), self.cell.device)


def nan_to_num(self: T, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> T:
    """Returns x with `nan` for NaN, `posinf` and `neginf` for infinities: the dtype's ends unless given.

    >>> Tensor([float("nan"), float("inf")]).nan_to_num(posinf=9.0)
    Tensor([0., 9.])
    """
    if not self.dtype.is_float:
        return self.clone()
    end = dtypes.finfo(self.dtype).max
    high, low = end if posinf is None else posinf, -end if neginf is None else neginf
    return composed(self, pointwise.nan_to_num, nan, high, low)


nan_to_num_ = in_place(nan_to_num)


# ---- as a complex number with no imaginary part ----
def angle(self: T) -> T:
    """Returns pi where x < 0, else 0; NaN stays.

    >>> Tensor([-1.0, 1.0]).angle()
    Tensor([3.1415927, 0.       ])
    """
    op = to_float(self.read())
    value = where(compare(OpCode.CMPLT, op, 0.0), math.pi, op.filled(0.0))
    return self.from_op(where(pointwise.is_nan(op), op * 0.0, value), self.cell.device)


def conj(self: T) -> T:
    """Returns x itself: there are no complex numbers.

    >>> Tensor([1.0]).conj()
    Tensor([1.])
    """
    return self


conj_physical = resolve_conj = resolve_neg = conj


def positive(self: T) -> T:
    """Returns x itself.

    Raises:
      DTypeError: of bools.

    >>> Tensor([-1.5]).positive()
    Tensor([-1.5])
    """
    if self.dtype.kind == "b":
        raise DTypeError(f"positive: bools have no sign, got shape {self.shape}.")
    return self
