"""More functions of each element: inverse and special ones, parts and signs of floats.

In:    tensors
Out:   `Mathematics`
Next:  picograd/tensor/elements/inverses.py
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError
from picograd.ir.build import compare, where
from picograd.ir.op import filled
from picograd.ir.opcode import OpCode
from picograd.tensor.build import computed_in, need_float, to_float
from picograd.tensor.core import TensorCore
from picograd.tensor.elements import arithmetic, bessel, gamma, inverses, normal, pointwise
from picograd.tensor.elements.choices import Choices
from picograd.tensor.elements.operators import Operand


class FrexpResult(NamedTuple):
    """What frexp returns.

    mantissa:  of 1/2 <= |m| < 1, or 0
    exponent:  int32
    """

    mantissa: Any
    exponent: Any


class Mathematics(Choices):
    """acos ... atanh, erfc, erfinv, lgamma, digamma, i0, sinc, frac, frexp, nan_to_num and their like."""

    __slots__ = ()

    def _in_double(self, function: pointwise.Function, *args: Any) -> Self:
        """Returns a function computed in float64, rounded once."""
        op = computed_in(dtypes.float64, function, (to_float(self.read()),), *args)
        return self.from_op(op, self.cell.device)

    # ---- inverses ----
    def acos(self) -> Self:
        """Returns the angle with the cosine x, in 0..pi; NaN beyond 1.

        >>> Tensor([1.0, 0.0, -1.0]).acos()
        Tensor([0.       , 1.5707964, 3.1415927])
        """
        return self._float_composed(inverses.acos)

    def asin(self) -> Self:
        """Returns the angle with the sine x, in -pi/2..pi/2; NaN beyond 1.

        >>> Tensor([0.0, 1.0]).asin()
        Tensor([0.       , 1.5707964])
        """
        return self._float_composed(inverses.asin)

    def atan(self) -> Self:
        """Returns the angle with the tangent x, in -pi/2..pi/2.

        >>> Tensor([0.0, 1.0]).atan()
        Tensor([0.       , 0.7853981])
        """
        return self._float_composed(inverses.atan)

    def acosh(self) -> Self:
        """Returns the number >= 0 with the hyperbolic cosine x; NaN below 1.

        >>> Tensor([1.0, 2.0]).acosh()
        Tensor([0.      , 1.316958])
        """
        return self._float_composed(inverses.acosh)

    def asinh(self) -> Self:
        """Returns the number with the hyperbolic sine x.

        >>> Tensor([0.0, 1.0]).asinh()
        Tensor([0.       , 0.8813736])
        """
        return self._float_composed(inverses.asinh)

    def atanh(self) -> Self:
        """Returns the number with the hyperbolic tangent x; infinite at -1 and 1, NaN beyond.

        >>> Tensor([0.0, 0.5]).atanh()
        Tensor([0.        , 0.54930615])
        """
        return self._float_composed(inverses.atanh)

    arccos, arcsin, arctan = acos, asin, atan
    arccosh, arcsinh, arctanh = acosh, asinh, atanh

    # ---- special functions ----
    def erfc(self) -> Self:
        """Returns 1 - erf(x), with all digits where that is small.

        >>> Tensor([0.0, 3.0]).erfc()
        Tensor([1.0000000e+00, 2.2090497e-05])
        """
        return self._in_double(normal.erfc)

    def erfinv(self) -> Self:
        """Returns y with erf(y) = x; infinite at -1 and 1, NaN beyond.

        >>> Tensor([0.0, 0.5]).erfinv()
        Tensor([0.        , 0.47693628])
        """
        return self._in_double(normal.erfinv)

    def lgamma(self) -> Self:
        """Returns log |gamma(x)|; infinite at 0, -1, -2, ...

        >>> Tensor([1.0, 5.0]).lgamma().round(decimals=4)
        Tensor([0.    , 3.1781])
        """
        return self._in_double(gamma.lgamma)

    def digamma(self) -> Self:
        """Returns the derivative of lgamma; NaN at -1, -2, ...

        >>> Tensor([1.0, 2.0]).digamma()
        Tensor([-0.5772157 ,  0.42278433])
        """
        return self._in_double(gamma.digamma)

    def polygamma(self, n: int) -> Self:
        """Returns the n-th derivative of digamma; for n > 1 NaN below 0.

        Raises:
          ArgumentError: n is negative.

        >>> Tensor([1.0, 2.0]).polygamma(1)
        Tensor([1.644934  , 0.64493406])
        """
        if isinstance(n, TensorCore):
            raise ArgumentError("polygamma: n is the argument of the method: x.polygamma(n).")
        if n < 0:
            raise ArgumentError(f"polygamma: n must not be negative, got {n}.")
        return self._in_double(lambda x: gamma.polygamma(n, x))

    def mvlgamma(self, p: int) -> Self:
        """Returns the log of the multivariate gamma function: p (p - 1) log(pi) / 4 + sum of lgamma(x - j / 2), j < p.

        Raises:
          ArgumentError: p is below 1.

        >>> Tensor([3.0]).mvlgamma(2).round(decimals=4)
        Tensor([1.5502])
        """
        if p < 1:
            raise ArgumentError(f"mvlgamma: p must be at least 1, got {p}.")
        return self._in_double(gamma.mvlgamma, p)

    def i0(self) -> Self:
        """Returns the modified Bessel function of order 0.

        >>> Tensor([0.0, 1.0]).i0()
        Tensor([1.       , 1.2660658])
        """
        return self._in_double(bessel.bessel, 0, False)

    def sinc(self) -> Self:
        """Returns sin(pi x) / (pi x), and 1 at 0.

        >>> Tensor([0.0, 0.5]).sinc()
        Tensor([1.        , 0.63661975])
        """
        return self._float_composed(pointwise.sinc)

    def logit(self, eps: float | None = None) -> Self:
        """Returns log(x / (1 - x)), of x held between eps and 1 - eps where eps is given.

        >>> Tensor([0.5, 1.0]).logit(eps=0.25)
        Tensor([0.       , 1.0986123])
        """
        return self._float_composed(pointwise.logit, eps)

    # ---- angles ----
    def deg2rad(self) -> Self:
        """Returns x degrees in radians.

        >>> Tensor([180.0]).deg2rad()
        Tensor([3.1415927])
        """
        return self._float_composed(lambda x: x * (math.pi / 180))

    def rad2deg(self) -> Self:
        """Returns x radians in degrees.

        >>> Tensor([math.pi]).rad2deg()
        Tensor([180.])
        """
        return self._float_composed(lambda x: x * (180 / math.pi))

    def angle(self) -> Self:
        """Returns pi where x < 0, else 0; NaN stays.

        >>> Tensor([-1.0, 1.0]).angle()
        Tensor([3.1415927, 0.       ])
        """
        op = to_float(self.read())
        value = where(compare(OpCode.CMPLT, op, 0.0), math.pi, op.filled(0.0))
        return self.from_op(where(pointwise.is_nan(op), op, value), self.cell.device)

    # ---- parts and signs ----
    def frac(self) -> Self:
        """Returns x - trunc(x).

        Raises:
          DTypeError: of integers.

        >>> Tensor([1.5, -1.5]).frac()
        Tensor([ 0.5, -0.5])
        """
        op = need_float("frac", self.read())
        return self.from_op(op - pointwise.trunc(op), self.cell.device)

    def frexp(self) -> FrexpResult:
        """Returns (mantissa, exponent) with x = mantissa * 2 ** exponent and 1/2 <= |mantissa| < 1.

        Raises:
          DTypeError: of integers.

        >>> mantissa, exponent = Tensor([8.0, -0.75]).frexp()
        >>> mantissa.tolist(), exponent.tolist()
        ([0.5, -0.75], [4, 0])
        """
        mantissa, exponent = arithmetic.frexp(need_float("frexp", self.read()))
        return FrexpResult(self.from_op(mantissa, self.cell.device), self.from_op(exponent, self.cell.device))

    def sgn(self) -> Self:
        """Returns -1, 0 or 1, as sign does.

        >>> Tensor([-1.5, 0.0, 2.5]).sgn()
        Tensor([-1.,  0.,  1.])
        """
        return self.sign()

    def signbit(self) -> Self:
        """Returns True where the sign bit is set: below 0, and of -0.0.

        >>> Tensor([-1.0, -0.0, 0.0]).signbit()
        Tensor([ True,  True, False])
        """
        if self.dtype.kind in "bu":
            return self.from_op(filled(False, dtypes.bool_, self.op.shape), self.cell.device)
        return self._composed(inverses.is_negative)

    def isposinf(self) -> Self:
        """Returns True for plus infinity.

        >>> Tensor([float("inf"), float("-inf")]).isposinf()
        Tensor([ True, False])
        """
        return self._float_composed(lambda x: compare(OpCode.CMPEQ, x, math.inf))

    def isneginf(self) -> Self:
        """Returns True for minus infinity.

        >>> Tensor([float("inf"), float("-inf")]).isneginf()
        Tensor([False,  True])
        """
        return self._float_composed(lambda x: compare(OpCode.CMPEQ, x, -math.inf))

    def isreal(self) -> Self:
        """Returns True everywhere: there are no complex numbers.

        >>> Tensor([1.0]).isreal()
        Tensor([ True])
        """
        return self.from_op(filled(True, dtypes.bool_, self.op.shape), self.cell.device)

    def nan_to_num(self, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Self:
        """Returns x with `nan` for NaN, `posinf` and `neginf` for infinities: the dtype's ends unless given.

        >>> Tensor([float("nan"), float("inf")]).nan_to_num(posinf=9.0)
        Tensor([0., 9.])
        """
        if not self.dtype.is_float:
            return self.clone()
        end = dtypes.finfo(self.dtype).max
        high, low = end if posinf is None else posinf, -end if neginf is None else neginf
        return self._composed(pointwise.nan_to_num, nan, high, low)

    def hardshrink(self, lambd: float = 0.5) -> Self:
        """Returns 0 where -lambd <= x <= lambd, else x.

        Raises:
          DTypeError: of integers.

        >>> Tensor([-1.0, 0.25, 1.0]).hardshrink()
        Tensor([-1.,  0.,  1.])
        """
        need_float("hardshrink", self.op)
        return self._float_composed(lambda x: where(compare(OpCode.CMPLE, pointwise.absolute(x), lambd), 0.0, x))

    # ---- other names ----
    def positive(self) -> Self:
        """Returns x itself.

        Raises:
          DTypeError: of bools.

        >>> Tensor([-1.5]).positive()
        Tensor([-1.5])
        """
        if self.dtype.kind == "b":
            raise DTypeError(f"positive: bools have no sign, got shape {self.shape}.")
        return self

    def clamp_min(self, min: Operand) -> Self:  # noqa: A002
        """Returns x, or `min` where that is greater.

        >>> Tensor([-1.0, 2.0]).clamp_min(0.0)
        Tensor([0., 2.])
        """
        return self.clamp(min=min)

    def clamp_max(self, max: Operand) -> Self:  # noqa: A002
        """Returns x, or `max` where that is smaller.

        >>> Tensor([-1.0, 2.0]).clamp_max(0.0)
        Tensor([-1.,  0.])
        """
        return self.clamp(max=max)

    absolute, negative, fix = Choices.abs, Choices.neg, Choices.trunc
    clip = Choices.clamp

    def conj(self) -> Self:
        """Returns x itself: there are no complex numbers.

        >>> Tensor([1.0]).conj()
        Tensor([1.])
        """
        return self

    conj_physical = resolve_conj = resolve_neg = conj

    @property
    def real(self) -> Self:
        """The tensor itself: there are no complex numbers."""
        return self
