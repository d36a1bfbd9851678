"""Special functions by torch.special's names.

In:    tensors
Out:   entr erfcx expit gammaln i0e i1 log_ndtr ndtri xlog1py zeta ..., and other names of methods of Tensor
Next:  picograd/special/polynomials.py

Those of errors, gammas and Bessel functions are computed in float64 and rounded once.
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.ir.build import compare, either, unary, where
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.build import broadcast_shapes, broadcast_to, cast, common_dtype, computed_in, to_float
from picograd.tensor.elements import arithmetic, bessel, gamma, normal
from picograd.tensor.elements.pointwise import Function
from picograd.tensor.free_functions import tensor_beside
from picograd.tensor.meeting import meeting_device, value_at
from picograd.tensor.tensor import Tensor

__all__ = [
    "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2", "expit", "expm1", "gammainc", "gammaincc",
    "gammaln", "i0", "i0e", "i1", "i1e", "log1p", "log_ndtr", "log_softmax", "logit", "logsumexp",
    "modified_bessel_i0", "modified_bessel_i1", "multigammaln", "ndtr", "ndtri", "psi", "round", "sinc", "softmax",
    "xlog1py", "zeta",
]  # fmt: skip

digamma = psi = Tensor.digamma
gammainc, gammaincc, modified_bessel_i0 = Tensor.igamma, Tensor.igammac, Tensor.i0
erf, erfc, erfinv, exp2, expit, expm1 = Tensor.erf, Tensor.erfc, Tensor.erfinv, Tensor.exp2, Tensor.sigmoid, Tensor.expm1
gammaln, i0, log1p, logit, multigammaln = Tensor.lgamma, Tensor.i0, Tensor.log1p, Tensor.logit, Tensor.mvlgamma
logsumexp, log_softmax, round, sinc, softmax = (
    Tensor.logsumexp, Tensor.log_softmax, Tensor.round, Tensor.sinc, Tensor.softmax,
)  # fmt: skip


def in_double(name: str, function: Function, *operands: Tensor) -> Tensor:
    """Returns a function of tensors computed in float64, in the float dtype they have together."""
    device = meeting_device(name, *operands)
    ops = [to_float(value_at(x, device)) for x in operands]
    dtype, shape = common_dtype(ops), broadcast_shapes(name, *(op.shape for op in ops))
    same = [broadcast_to(cast(op, dtype), shape) for op in ops]
    return Tensor.from_op(computed_in(dtypes.float64, function, same), device)


def pair(name: str, input: Tensor | Scalar, other: Tensor | Scalar) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Returns two operands as tensors, of which one may be a number.

    Raises:
      DTypeError: both are numbers.
    """
    return tensor_beside(name, input, other), tensor_beside(name, other, input)


def entr(input: Tensor) -> Tensor:  # noqa: A002
    """Returns -input log(input); 0 at 0, minus infinity below.

    >>> entr(Tensor([0.0, 1.0]))
    Tensor([ 0., -0.])
    """

    def formula(x: Op) -> Op:
        zero, endless = compare(OpCode.CMPEQ, x, 0.0), compare(OpCode.CMPEQ, x, math.inf)
        outside = either(compare(OpCode.CMPLE, x, 0.0), endless)  # where NaN is not
        held = where(outside, 1.0, x)
        root = unary(OpCode.SQRT, where(zero, x, 1.0) + 0.0)  # as steep at 0
        end = where(zero, root, x * where(endless, x.filled(-math.inf), 1.0))
        return where(compare(OpCode.CMPLT, x, 0.0), -math.inf, where(outside, end, -held * unary(OpCode.LOG, held)))

    return in_double("entr", formula, input)


def erfcx(input: Tensor) -> Tensor:  # noqa: A002
    """Returns e^(input^2) erfc(input), which does not vanish where erfc does.

    >>> erfcx(Tensor([0.0, 30.0]))
    Tensor([1.        , 0.01879589])
    """
    return in_double("erfcx", normal.erfcx, input)


def i0e(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of order 0, times e^-|input|.

    >>> i0e(Tensor([0.0, 1.0]))
    Tensor([1.       , 0.4657596])
    """
    return in_double("i0e", lambda x: bessel.bessel(x, 0, True), input)


def i1(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of order 1 at `input`.

    >>> i1(Tensor([0.0, 1.0]))
    Tensor([0.       , 0.5651591])
    """
    return in_double("i1", lambda x: bessel.bessel(x, 1, False), input)


def i1e(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of order 1, times e^-|input|.

    >>> i1e(Tensor([0.0, 1.0]))
    Tensor([0.        , 0.20791042])
    """
    return in_double("i1e", lambda x: bessel.bessel(x, 1, True), input)


modified_bessel_i1 = i1


def ndtr(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the part of the normal distribution below `input`.

    >>> ndtr(Tensor([0.0, 1.0]))
    Tensor([0.5      , 0.8413448])
    """
    return in_double("ndtr", normal.ndtr, input)


def log_ndtr(input: Tensor) -> Tensor:  # noqa: A002
    """Returns log(ndtr(input)), with its digits where ndtr vanishes.

    >>> log_ndtr(Tensor([0.0, -40.0]))
    Tensor([-6.9314718e-01, -8.0460846e+02])
    """
    return in_double("log_ndtr", normal.log_ndtr, input)


def ndtri(input: Tensor) -> Tensor:  # noqa: A002
    """Returns x with ndtr(x) = input; infinite at 0 and 1, NaN beyond.

    >>> ndtri(Tensor([0.5, 0.975]))
    Tensor([0.       , 1.9599644])
    """
    return in_double("ndtri", normal.ndtri, input)


def xlog1py(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:  # noqa: A002
    """Returns input * log(1 + other), and 0 where input is 0; one of them may be a number.

    Raises:
      DTypeError: both are numbers.

    >>> xlog1py(0, Tensor([-1.0, 1.0]))
    Tensor([0., 0.])
    """
    return in_double("xlog1py", arithmetic.xlog1py, *pair("xlog1py", input, other))


def zeta(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:  # noqa: A002
    """Returns Hurwitz's zeta function, the sum of (other + k)^-input over k = 0, 1, ...; NaN for negative `other`.

    Raises:
      DTypeError: both are numbers.

    >>> zeta(2, Tensor([1.0]))
    Tensor([1.644934])
    """
    return in_double("zeta", gamma.zeta, *pair("zeta", input, other))
