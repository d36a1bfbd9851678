"""Orthogonal polynomials, of a degree for each number.

In:    tensors, of which one may be a number
Out:   `chebyshev_polynomial_t` and its kin
Next:  picograd/special/cylinder.py

Degrees are data, so the recurrences run on the host, in float64. They have no gradients, as in PyTorch.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import Scalar
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.special.functions import in_double, pair
from picograd.tensor.tensor import Tensor

__all__ = [
    "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]  # fmt: skip

Operand = Tensor | Scalar


def _polynomial(name: str, kind: str, x: Operand, degree: Operand, shifted: bool = False) -> Tensor:
    """Returns a polynomial of the host at x, or at 2 x - 1."""

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
