"""Symbolic lengths as arguments of the functions that give a kernel's grid, inputs and shapes of results.

In:    the arguments of a call, some with symbolic lengths
Out:   `shaped`: the arguments for these functions;  `dim_of`: a length of their results, as shapes hold it

One compiled kernel serves all lengths within the bounds of a Variable, so its functions are called once, with lengths that
are not numbers: `-(-x.numel() // 256)` is an expression, which each launch computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from picograd.errors import ShapeError
from picograd.ir.op import Dim, Op, length_name
from picograd.ir.symbolic import add, bounds, floordiv, mod, mul, to_op
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length

HINT = "write it with + - * // and %, keep `block` and `shared_bytes` fixed, or cut to a number of elements, as in x[:3]."


class Extent:
    """A symbolic length, or whole-number arithmetic on some: + - * // and %.

    >>> from picograd.tensor.variable import Variable
    >>> -(-Extent(Variable("n", 1, 8).op) // 4)
    (n + 3) // 4
    """

    __slots__ = ("op",)

    def __init__(self, op: Op):
        self.op = op

    def _with(self, function: Callable[[Dim, Dim], Dim], other: Any, swapped: bool = False) -> Any:
        if not isinstance(other, (Extent, Length, int, np.integer)):
            return NotImplemented
        a, b = (dim_of(other), self.op) if swapped else (self.op, dim_of(other))
        return extent(function(a, b))

    def __add__(self, other: Any) -> Any:
        return self._with(add, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(mul, other)

    def __sub__(self, other: Any) -> Any:
        return self + other * -1

    def __rsub__(self, other: Any) -> Any:
        return other + self * -1

    def __neg__(self) -> Any:
        return self * -1

    def __floordiv__(self, other: Any) -> Any:
        """Rounds down; of a negative quotient -(a // b) is rounded up, so that GPUs divide no negative operands."""
        if isinstance(other, (int, np.integer)) and other > 0 and bounds(self.op)[0] < 0:
            return -extent(floordiv(add(mul(self.op, -1), int(other) - 1), int(other)))
        return self._with(floordiv, other)

    def __mod__(self, other: Any) -> Any:
        return self._with(mod, other)

    __radd__, __rmul__ = __add__, __mul__

    def __repr__(self) -> str:
        return length_name(self.op)

    def _no_number(self, *_: Any) -> Any:
        raise ShapeError(f"kernel: {self!r} is a symbolic length; a number is needed here.", HINT)

    __index__ = __int__ = __float__ = __bool__ = __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _no_number
    __lt__ = __le__ = __gt__ = __ge__ = _no_number

    def __eq__(self, other: object) -> bool:
        return other.op is self.op if isinstance(other, Extent) else bool(self._no_number())

    __hash__ = None  # type: ignore[assignment]


class Shaped:
    """A Tensor with symbolic lengths, for the functions of a kernel, which may not read values."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.dtype, self.device = tensor, tensor.dtype, tensor.device
        self.shape = tuple(map(extent, tensor.op.shape))
        self.ndim = len(self.shape)

    def numel(self) -> Any:
        """Returns the number of elements."""
        return math.prod(self.shape)

    def size(self, dim: int | None = None) -> Any:
        """Returns the shape, or the length of one axis."""
        return self.shape if dim is None else self.shape[dim]

    def __getattr__(self, name: str) -> Any:
        raise ShapeError(
            f"kernel: x.{name} is not available: the Tensor of shape {self.shape} has a symbolic length.",
            "grid, inputs and output may use shape, size(), numel(), ndim, dtype and device.",
        )


def extent(dim: Dim) -> Any:
    """Returns a length in the form that a kernel's functions get."""
    return Extent(dim) if isinstance(dim, Op) else dim


def dim_of(value: Any) -> Dim:
    """Returns a length in the form that shapes hold."""
    return value.op if isinstance(value, (Extent, Length)) else int(value)


def shaped(args: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the arguments of a call in the form that a kernel's functions get."""
    return tuple([_shaped(arg) for arg in args])


def _shaped(arg: Any) -> Any:
    if isinstance(arg, Length):
        return Extent(to_op(arg.op))
    has_symbols = isinstance(arg, Tensor) and any(isinstance(dim, Op) for dim in arg.op.shape)
    return Shaped(arg) if has_symbols else arg
