"""Special functions: of errors, gammas and Bessel, computed in float64 where the formulas lose digits.

In:    tensors
Out:   `erf`, `erfinv`, `lgamma`, `digamma`, `i0`, `sinc`, `logit` ..., and with a last _ in place: methods of Tensor
Next:  picograd/tensor/elements/choices.py
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.opcode import OpCode
from picograd.tensor.build import computed_in, to_float
from picograd.tensor.core import T, TensorCore
from picograd.tensor.elements import bessel, gamma, normal, pointwise
from picograd.tensor.elements.functions import float_code, float_composed
from picograd.tensor.inplace import in_place

__all__ = ["digamma", "erf", "erfc", "erfinv", "i0", "lgamma", "logit", "mvlgamma", "sinc"]


def _in_double(self: T, function: pointwise.Function, *args: Any) -> T:
    """Returns a function computed in float64, rounded once."""
    op = computed_in(dtypes.float64, function, (to_float(self.read()),), *args)
    return self.from_op(op, self.cell.device)


def erf(self: T) -> T:
    """Returns the error function.

    >>> Tensor([0.0, 1.0]).erf()
    Tensor([0.       , 0.8427008])
    """
    return float_code(self, OpCode.ERF)


erf_ = in_place(erf)


def erfc(self: T) -> T:
    """Returns 1 - erf(x), with all digits where that is small.

    >>> Tensor([0.0, 3.0]).erfc()
    Tensor([1.0000000e+00, 2.2090497e-05])
    """
    return _in_double(self, normal.erfc)


erfc_ = in_place(erfc)


def erfinv(self: T) -> T:
    """Returns y with erf(y) = x; infinite at -1 and 1, NaN beyond.

    >>> Tensor([0.0, 0.5]).erfinv()
    Tensor([0.        , 0.47693628])
    """
    return _in_double(self, normal.erfinv)


erfinv_ = in_place(erfinv)


def lgamma(self: T) -> T:
    """Returns log |gamma(x)|; infinite at 0, -1, -2, ...

    >>> Tensor([1.0, 5.0]).lgamma().round(decimals=4)
    Tensor([0.    , 3.1781])
    """
    return _in_double(self, gamma.lgamma)


lgamma_ = in_place(lgamma)


def digamma(self: T) -> T:
    """Returns the derivative of lgamma; NaN at -1, -2, ...

    >>> Tensor([1.0, 2.0]).digamma()
    Tensor([-0.5772157 ,  0.42278433])
    """
    return _in_double(self, gamma.digamma)


digamma_ = in_place(digamma)


def polygamma(self: T, n: int) -> T:
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
    return _in_double(self, lambda x: gamma.polygamma(n, x))


polygamma_ = in_place(polygamma)


def mvlgamma(self: T, p: int) -> T:
    """Returns the log of the multivariate gamma function: p (p - 1) log(pi) / 4 + sum of lgamma(x - j / 2), j < p.

    Raises:
      ArgumentError: p is below 1.

    >>> Tensor([3.0]).mvlgamma(2).round(decimals=4)
    Tensor([1.5502])
    """
    if p < 1:
        raise ArgumentError(f"mvlgamma: p must be at least 1, got {p}.")
    return _in_double(self, gamma.mvlgamma, p)


mvlgamma_ = in_place(mvlgamma)


def i0(self: T) -> T:
    """Returns the modified Bessel function of order 0.

    >>> Tensor([0.0, 1.0]).i0()
    Tensor([1.       , 1.2660658])
    """
    return _in_double(self, bessel.bessel, 0, False)


i0_ = in_place(i0)


def sinc(self: T) -> T:
    """Returns sin(pi x) / (pi x), and 1 at 0.

    All derivatives at 0 are those of the function; PyTorch's second one there is NaN.

    >>> Tensor([0.0, 0.5]).sinc()
    Tensor([1.        , 0.63661975])
    """
    return float_composed(self, pointwise.sinc)


sinc_ = in_place(sinc)


def logit(self: T, eps: float | None = None) -> T:
    """Returns log(x / (1 - x)), of x held between eps and 1 - eps where eps is given.

    >>> Tensor([0.5, 1.0]).logit(eps=0.25)
    Tensor([0.       , 1.0986123])
    """
    return float_composed(self, pointwise.logit, eps)


logit_ = in_place(logit)
