"""Bessel functions of further kinds, and Airy's.

In:    tensors
Out:   `bessel_j0`, `bessel_y0`, `modified_bessel_k0`, `airy_ai` and their kin
Next:  picograd/tensor/tensor.py

Recurrences, integrals and series run on the host, in float64. They have no gradients, as in PyTorch.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.ir.build import compare, unary, where
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.special.functions import in_double
from picograd.tensor.elements.pointwise import is_infinite
from picograd.tensor.tensor import Tensor

__all__ = [
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
    "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "spherical_bessel_j0",
]  # fmt: skip


def _of_the_host(name: str, x: Tensor) -> Tensor:
    return in_double(name, lambda x: host_call(name, dtypes.float64, (x,)), x)


def airy_ai(input: Tensor) -> Tensor:  # noqa: A002
    """Returns Airy's function Ai at `input`, which solves y'' = x y and vanishes for large x.

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
        held = where(compare(OpCode.CMPEQ, x, 0.0), 1.0, where(is_infinite(x), 1.0, x))
        value = where(is_infinite(x), 0.0, unary(OpCode.SIN, held) / held)
        return where(compare(OpCode.CMPEQ, x, 0.0), 1.0, value)

    return in_double("spherical_bessel_j0", formula, input)
