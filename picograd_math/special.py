"""Special functions by torch.special's names: error functions, gamma functions, Bessel functions, polynomials.

Error functions, gamma functions, and Bessel functions with gradients are computed in float64 and rounded once. Polynomials,
whose degrees are data, and further Bessel functions run on the host in float64, by recurrences, integrals and series; as
in PyTorch they have no gradients.
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.ir.build import cast, either, equal, less, less_equal, unary, where
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor import pointwise, special_formulas
from picograd.tensor.arguments import meeting_device, value_at
from picograd.tensor.build import broadcast_shapes, broadcast_to, common_dtype, computed_in, to_float
from picograd.tensor.free_functions import polygamma as polygamma
from picograd.tensor.free_functions import tensor_beside
from picograd.tensor.free_functions import xlogy as xlogy
from picograd.tensor.pointwise import Function, is_infinite
from picograd.tensor.tensor import Tensor

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u",
    "chebyshev_polynomial_v", "chebyshev_polynomial_w", "digamma", "entr", "erf", "erfc", "erfcx", "erfinv", "exp2",
    "expit", "expm1", "gammainc", "gammaincc", "gammaln", "hermite_polynomial_h", "hermite_polynomial_he", "i0", "i0e",
    "i1", "i1e", "laguerre_polynomial_l", "legendre_polynomial_p", "log1p", "log_ndtr", "log_softmax", "logit",
    "logsumexp", "modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "multigammaln",
    "ndtr", "ndtri", "polygamma", "psi", "round", "scaled_modified_bessel_k0", "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "sinc", "softmax", "spherical_bessel_j0", "xlog1py", "xlogy",
    "zeta",
]  # fmt: skip


digamma = psi = Tensor.digamma
gammainc, gammaincc, modified_bessel_i0 = Tensor.igamma, Tensor.igammac, Tensor.i0
erf, erfc, erfinv, exp2, expit, expm1 = Tensor.erf, Tensor.erfc, Tensor.erfinv, Tensor.exp2, Tensor.sigmoid, Tensor.expm1
gammaln, i0, log1p, logit, multigammaln = Tensor.lgamma, Tensor.i0, Tensor.log1p, Tensor.logit, Tensor.mvlgamma
logsumexp, log_softmax, round, sinc, softmax = (
    Tensor.logsumexp, Tensor.log_softmax, Tensor.round, Tensor.sinc, Tensor.softmax,
)  # fmt: skip


def in_double(name: str, function: Function, *operands: Tensor) -> Tensor:
    """Returns a function of tensors, computed in float64, with a result in their common float dtype."""
    device = meeting_device(name, *operands)
    ops = [to_float(value_at(x, device)) for x in operands]
    dtype, shape = common_dtype(ops), broadcast_shapes(name, *(op.shape for op in ops))
    same = [broadcast_to(cast(op, dtype), shape) for op in ops]
    return Tensor.from_op(computed_in(dtypes.float64, function, same), device)


def pair(name: str, input: Tensor | Scalar, other: Tensor | Scalar) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Returns two operands, one of which may be a number, as tensors.

    Raises:
      DTypeError: both are numbers.
    """
    return _beside(name, input, other), _beside(name, other, input)


def _beside(name: str, operand: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:
    """Returns an operand; a number next to integers becomes a float, since -1 is not a uint8."""
    if isinstance(operand, Tensor) or not isinstance(other, Tensor) or other.dtype.is_float:
        return tensor_beside(name, operand, other)
    return Tensor(float(operand), dtypes.default_float, other.device)


def entr(input: Tensor) -> Tensor:  # noqa: A002
    """Returns -input log(input); 0 at 0; for negative input -inf, with gradient NaN.

    >>> entr(Tensor([0.0, 1.0]))
    Tensor([ 0., -0.])
    """

    def formula(x: Op) -> Op:
        zero, endless = equal(x, 0.0), equal(x, math.inf)
        outside = either(less_equal(x, 0.0), endless)  # false for NaN
        held = where(outside, 1.0, x)
        root = unary(OpCode.SQRT, where(zero, x, 1.0) + 0.0)  # infinitely steep at 0, too
        end = where(zero, root, x * where(endless, x.filled(-math.inf), 1.0))
        below = less(x, 0.0)
        nothing = unary(OpCode.EXP, where(below, x, -1.0) * math.inf)  # 0, with derivative NaN
        return where(below, nothing - math.inf, where(outside, end, -held * unary(OpCode.LOG, held)))

    return in_double("entr", formula, input)


def erfcx(input: Tensor) -> Tensor:  # noqa: A002
    """Returns e^(input^2) erfc(input), which does not underflow where erfc does.

    >>> erfcx(Tensor([0.0, 30.0]))
    Tensor([1.        , 0.01879589])
    """
    return in_double("erfcx", special_formulas.erfcx, input)


def i0e(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of order 0, times e^-|input|.

    >>> i0e(Tensor([0.0, 1.0]))
    Tensor([1.       , 0.4657596])
    """
    return in_double("i0e", lambda x: special_formulas.bessel(x, 0, True), input)


def i1(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of order 1 at `input`.

    >>> i1(Tensor([0.0, 1.0]))
    Tensor([0.       , 0.5651591])
    """
    return in_double("i1", lambda x: special_formulas.bessel(x, 1, False), input)


def i1e(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of order 1, times e^-|input|.

    >>> i1e(Tensor([0.0, 1.0]))
    Tensor([0.        , 0.20791042])
    """
    return in_double("i1e", lambda x: special_formulas.bessel(x, 1, True), input)


modified_bessel_i1 = i1


def ndtr(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the normal distribution function: the probability below `input`.

    >>> ndtr(Tensor([0.0, 1.0]))
    Tensor([0.5      , 0.8413448])
    """
    return in_double("ndtr", special_formulas.ndtr, input)


def log_ndtr(input: Tensor) -> Tensor:  # noqa: A002
    """Returns log(ndtr(input)), accurate where ndtr underflows.

    >>> log_ndtr(Tensor([0.0, -40.0]))
    Tensor([-6.9314718e-01, -8.0460846e+02])
    """
    return in_double("log_ndtr", special_formulas.log_ndtr, input)


def ndtri(input: Tensor) -> Tensor:  # noqa: A002
    """Returns x with ndtr(x) = input; infinite at 0 and 1, NaN beyond.

    >>> ndtri(Tensor([0.5, 0.975]))
    Tensor([0.       , 1.9599644])
    """
    return in_double("ndtri", special_formulas.ndtri, input)


def xlog1py(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:  # noqa: A002
    """Returns input * log(1 + other), and 0 if input is 0; one of them may be a number.

    Raises:
      DTypeError: both are numbers.

    >>> xlog1py(0, Tensor([-1.0, 1.0]))
    Tensor([0., 0.])
    """
    return in_double("xlog1py", pointwise.xlog1py, *pair("xlog1py", input, other))


def zeta(input: Tensor | Scalar, other: Tensor | Scalar) -> Tensor:  # noqa: A002
    """Returns the Hurwitz zeta function, the sum of (other + k)^-input over k = 0, 1, ...; NaN for negative `other`.

    Raises:
      DTypeError: both are numbers.

    >>> zeta(2, Tensor([1.0]))
    Tensor([1.644934])
    """
    return in_double("zeta", special_formulas.zeta, *pair("zeta", input, other))


# ---- orthogonal polynomials, of a degree for each number ----
Operand = Tensor | Scalar


def _polynomial(name: str, kind: str, x: Operand, degree: Operand, shifted: bool = False) -> Tensor:
    """Returns a polynomial, computed on the host, at x or at 2 x - 1."""

    def formula(x: Op, n: Op) -> Op:
        return host_call(kind, dtypes.float64, (x * 2.0 - 1.0 if shifted else x, n))

    return in_double(name, formula, *pair(name, x, degree))


def chebyshev_polynomial_t(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the first kind of degree n at x = input; 0 for a negative one.

    cos(n acos x)

    Raises:
      DTypeError: both are numbers.

    >>> chebyshev_polynomial_t(Tensor([0.5, 2.0]), 2)
    Tensor([-0.5,  7. ])
    """
    return _polynomial("chebyshev_polynomial_t", "chebyshev_t", input, n)


def chebyshev_polynomial_u(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the second kind of degree n at x = input; 0 for a negative one.

    sin((n + 1) acos x) / sin(acos x)

    Raises:
      DTypeError: both are numbers.

    >>> chebyshev_polynomial_u(Tensor([0.5, 2.0]), 2)
    Tensor([ 0., 15.])
    """
    return _polynomial("chebyshev_polynomial_u", "chebyshev_u", input, n)


def chebyshev_polynomial_v(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the third kind of degree n at x = input; 0 for a negative one.

    cos((n + 1/2) acos x) / cos(acos(x) / 2)

    Raises:
      DTypeError: both are numbers.

    >>> chebyshev_polynomial_v(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 11.])
    """
    return _polynomial("chebyshev_polynomial_v", "chebyshev_v", input, n)


def chebyshev_polynomial_w(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the fourth kind of degree n at x = input; 0 for a negative one.

    sin((n + 1/2) acos x) / sin(acos(x) / 2)

    Raises:
      DTypeError: both are numbers.

    >>> chebyshev_polynomial_w(Tensor([0.5, 2.0]), 2)
    Tensor([ 1., 19.])
    """
    return _polynomial("chebyshev_polynomial_w", "chebyshev_w", input, n)


def hermite_polynomial_h(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the physicists' Hermite polynomial of degree n at x = input; 0 for a negative one.

    H(n + 1) = 2 x H(n) - 2 n H(n - 1)

    Raises:
      DTypeError: both are numbers.

    >>> hermite_polynomial_h(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 14.])
    """
    return _polynomial("hermite_polynomial_h", "hermite_h", input, n)


def hermite_polynomial_he(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the probabilists' Hermite polynomial of degree n at x = input; 0 for a negative one.

    He(n + 1) = x He(n) - n He(n - 1)

    Raises:
      DTypeError: both are numbers.

    >>> hermite_polynomial_he(Tensor([0.5, 2.0]), 2)
    Tensor([-0.75,  3.  ])
    """
    return _polynomial("hermite_polynomial_he", "hermite_he", input, n)


def laguerre_polynomial_l(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Laguerre polynomial of degree n at x = input; 0 for a negative one.

    (n + 1) L(n + 1) = (2 n + 1 - x) L(n) - n L(n - 1)

    Raises:
      DTypeError: both are numbers.

    >>> laguerre_polynomial_l(Tensor([0.5, 2.0]), 2)
    Tensor([ 0.125, -1.   ])
    """
    return _polynomial("laguerre_polynomial_l", "laguerre_l", input, n)


def legendre_polynomial_p(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Legendre polynomial of degree n at x = input; 0 for a negative one.

    (n + 1) P(n + 1) = (2 n + 1) x P(n) - n P(n - 1)

    Raises:
      DTypeError: both are numbers.

    >>> legendre_polynomial_p(Tensor([0.5, 2.0]), 2)
    Tensor([-0.125,  5.5  ])
    """
    return _polynomial("legendre_polynomial_p", "legendre_p", input, n)


def shifted_chebyshev_polynomial_t(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the first kind of degree n at 2 input - 1; 0 for a negative degree.

    Raises:
      DTypeError: both are numbers.

    >>> shifted_chebyshev_polynomial_t(Tensor([0.5, 1.0]), 2)
    Tensor([-1.,  1.])
    """
    return _polynomial("shifted_chebyshev_polynomial_t", "chebyshev_t", input, n, shifted=True)


def shifted_chebyshev_polynomial_u(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the second kind of degree n at 2 input - 1; 0 for a negative degree.

    Raises:
      DTypeError: both are numbers.

    >>> shifted_chebyshev_polynomial_u(Tensor([0.5, 1.0]), 2)
    Tensor([-1.,  3.])
    """
    return _polynomial("shifted_chebyshev_polynomial_u", "chebyshev_u", input, n, shifted=True)


def shifted_chebyshev_polynomial_v(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the third kind of degree n at 2 input - 1; 0 for a negative degree.

    Raises:
      DTypeError: both are numbers.

    >>> shifted_chebyshev_polynomial_v(Tensor([0.5, 1.0]), 2)
    Tensor([-1.,  1.])
    """
    return _polynomial("shifted_chebyshev_polynomial_v", "chebyshev_v", input, n, shifted=True)


def shifted_chebyshev_polynomial_w(input: Operand, n: Operand) -> Tensor:  # noqa: A002
    """Returns the Chebyshev polynomial of the fourth kind of degree n at 2 input - 1; 0 for a negative degree.

    Raises:
      DTypeError: both are numbers.

    >>> shifted_chebyshev_polynomial_w(Tensor([0.5, 1.0]), 2)
    Tensor([-1.,  5.])
    """
    return _polynomial("shifted_chebyshev_polynomial_w", "chebyshev_w", input, n, shifted=True)


# ---- Bessel functions of further kinds, and Airy's ----
def _of_the_host(name: str, x: Tensor) -> Tensor:
    return in_double(name, lambda x: host_call(name, dtypes.float64, (x,)), x)


def airy_ai(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the Airy function Ai at `input`, which solves y'' = x y and vanishes for large x.

    >>> airy_ai(Tensor([0.0, 1.0]))
    Tensor([0.35502806, 0.13529241])
    """
    return _of_the_host("airy_ai", input)


def bessel_j0(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the Bessel function of the first kind of order 0 at `input`.

    >>> bessel_j0(Tensor([0.0, 1.0]))
    Tensor([1.       , 0.7651977])
    """
    return _of_the_host("bessel_j0", input)


def bessel_j1(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the Bessel function of the first kind of order 1 at `input`.

    >>> bessel_j1(Tensor([0.0, 1.0]))
    Tensor([0.        , 0.44005057])
    """
    return _of_the_host("bessel_j1", input)


def bessel_y0(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the Bessel function of the second kind of order 0 at `input`; minus infinity at 0, NaN below.

    >>> bessel_y0(Tensor([1.0, 2.0]))
    Tensor([0.08825696, 0.5103757 ])
    """
    return _of_the_host("bessel_y0", input)


def bessel_y1(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the Bessel function of the second kind of order 1 at `input`; minus infinity at 0, NaN below.

    >>> bessel_y1(Tensor([1.0, 2.0]))
    Tensor([-0.7812128 , -0.10703243])
    """
    return _of_the_host("bessel_y1", input)


def modified_bessel_k0(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of the second kind of order 0 at `input`; infinite at 0, NaN below.

    >>> modified_bessel_k0(Tensor([1.0, 2.0]))
    Tensor([0.42102444, 0.11389387])
    """
    return _of_the_host("modified_bessel_k0", input)


def modified_bessel_k1(input: Tensor) -> Tensor:  # noqa: A002
    """Returns the modified Bessel function of the second kind of order 1 at `input`; infinite at 0, NaN below.

    >>> modified_bessel_k1(Tensor([1.0, 2.0]))
    Tensor([0.60190725, 0.13986588])
    """
    return _of_the_host("modified_bessel_k1", input)


def scaled_modified_bessel_k0(input: Tensor) -> Tensor:  # noqa: A002
    """Returns modified_bessel_k0 times e^input, which does not vanish for large input.

    >>> scaled_modified_bessel_k0(Tensor([1.0, 100.0]))
    Tensor([1.1444631 , 0.12517563])
    """
    return _of_the_host("scaled_modified_bessel_k0", input)


def scaled_modified_bessel_k1(input: Tensor) -> Tensor:  # noqa: A002
    """Returns modified_bessel_k1 times e^input, which does not vanish for large input.

    >>> scaled_modified_bessel_k1(Tensor([1.0, 100.0]))
    Tensor([1.6361535 , 0.12579995])
    """
    return _of_the_host("scaled_modified_bessel_k1", input)


def spherical_bessel_j0(input: Tensor) -> Tensor:  # noqa: A002
    """Returns sin(input) / input, the spherical Bessel function of order 0; 1 at 0.

    >>> spherical_bessel_j0(Tensor([0.0, 1.0]))
    Tensor([1.        , 0.84147096])
    """

    def formula(x: Op) -> Op:
        held = where(equal(x, 0.0), 1.0, where(is_infinite(x), 1.0, x))
        value = where(is_infinite(x), 0.0, unary(OpCode.SIN, held) / held)
        return where(equal(x, 0.0), 1.0, value)

    return in_double("spherical_bessel_j0", formula, input)
