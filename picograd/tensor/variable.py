"""Symbolic lengths: one compiled kernel for all lengths of an axis."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from numbers import Number
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.annotations import shown
from picograd.errors import ArgumentError, ArgumentTypeError, JitError, ShapeError
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import OpCode
from picograd.ir.shape import of_numbers
from picograd.ir.symbolic import add, bounds, in_normal_form, mul, subtract, to_op
from picograd.record import Record
from picograd.tensor.build import is_integer, whole
from picograd.tensor.cell import trace
from picograd.tensor.core import ShownLengths, TensorCore


class Length(Record, eq=False):
    """A Variable with its present value, or a sum or multiple of such: `x[:n]`, `x[n]`, `x[n : n + 1] = row`.

    Comparisons are decided if all values agree. Next to a tensor it is a 0-d tensor.

    op:       an int64 expression of BIND(VARIABLE, CONST)
    current:  its present value, on which plans do not depend

    >>> n = Variable("n", 1, 8).bind(3)
    >>> 2 * n - 1, n > 0, n == 9
    (2 * n - 1 = 5, True, False)
    """

    op: Op
    current: int
    name: str

    @property
    def value(self) -> int:
        """The present number.

        Raises:
          JitError: in a traced function, whose plan serves all values.
        """
        if trace.get() is not None:
            raise JitError(
                f"jit: the value of {self.name} is asked for while a function is traced; its plan serves every value.",
                "use the symbolic integer itself, as in x[:n] and x[n + 1].",
            )
        return self.current

    @property
    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        return bounds(self.op)

    def __add__(self, other: int | Length) -> Any:
        if isinstance(other, TensorCore):
            return self._with_tensor(operator.add, other)
        return _length(add(self.op, self._operand(other)), self.current + _value(other), f"{self.name} + {_name(other)}")

    __radd__ = __add__

    def __sub__(self, other: int | Length) -> Length:
        op = self._operand(other)
        value = self.current - _value(other)
        return _length(add(self.op, mul(op, -1)), value, f"{self.name} - {_name(other)}")

    def __rsub__(self, other: int) -> Any:
        if isinstance(other, TensorCore):
            return self._with_tensor(operator.sub, other)
        return _length(add(self._operand(other), mul(self.op, -1)), other - self.current, f"{other} - {self.name}")

    def __mul__(self, other: int | Length) -> Any:
        if isinstance(other, TensorCore):
            return self._with_tensor(operator.mul, other)
        return _length(mul(self.op, self._operand(other)), self.current * _value(other), f"{_name(other)} * {_name(self)}")

    __rmul__ = __mul__

    def __rtruediv__(self, other: Any) -> Any:
        if isinstance(other, TensorCore):
            return self._with_tensor(operator.truediv, other)
        return NotImplemented

    # ---- comparisons ----
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Length, Number, TensorCore)):
            return NotImplemented
        least, greatest = self._beyond(other)
        return least == greatest == 0 or (least <= 0 <= greatest and self._no_number())

    def __lt__(self, other: int | Length) -> bool:
        least, greatest = self._beyond(other)
        return greatest < 0 or (least < 0 and self._no_number())

    def __le__(self, other: int | Length) -> bool:
        least, greatest = self._beyond(other)
        return greatest <= 0 or (least <= 0 and self._no_number())

    def __gt__(self, other: int | Length) -> bool:
        return not self <= other

    def __ge__(self, other: int | Length) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    # ---- its text, which has its value: none for a function that is traced for any length ----
    def __format__(self, spec: str) -> str:
        return format(self._text() if not ShownLengths.to(sys._getframe(1)) else self._no_number(), spec)

    def __repr__(self) -> str:
        return self._text() if not ShownLengths.to(sys._getframe(1)) else self._no_number()

    def _text(self) -> str:
        return f"{self.name}{' = ' if ' ' in self.name else '='}{self.current}"

    def _operand(self, other: int | Length) -> Dim:
        """Returns an operand of arithmetic on lengths: an integer, or another length."""
        if isinstance(other, Length):
            return other.op
        return int(other) if isinstance(other, (int, np.integer)) else self._no_number(other)

    def _beyond(self, other: Any) -> tuple[int, int]:
        """Returns the smallest and the largest difference from another integer."""
        return bounds(subtract(self.op, self._operand(other)))

    def _with_tensor(self, function: Callable[[Any, Any], Any], tensor: Any) -> Any:
        """Returns the result of a tensor method for a tensor and this number."""
        return function(tensor, tensor.from_op(self.op, tensor.cell.device))

    def _no_number(self, other: object = None) -> Any:
        raise ShapeError(
            f"{self} is a symbolic integer, any value of {self.name}; here one number is needed.",
            "pg.arange(n + 1)[n] is a tensor that holds it for every value; n.value is its number for now, and a plan "
            "is then made for each value.",
        )

    __index__ = __hash__ = _no_number
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _no_number


def held(dims: Sequence[Any]) -> tuple[Any, ...]:
    """Returns dimensions in the form that shapes hold: numbers or Ops.

    >>> held((2, Variable("n", 1, 8).bind(3)))
    (2, n=3)
    """
    given = [dim.op if isinstance(dim, Length) else dim for dim in dims]
    return tuple([in_normal_form(dim) if isinstance(dim, Op) else dim for dim in given])


def lengths(function: str, dims: Sequence[Any]) -> tuple[Dim, ...]:
    """Returns lengths of axes in the form that shapes hold; -1 may be among them.

    Raises:
      ArgumentTypeError: one is not an integer.
    """
    if of_numbers(dims):
        return tuple(dims)
    found = []
    for dim in held(dims):
        if not isinstance(dim, (int, Op)) and not is_integer(dim):
            raise ArgumentTypeError(f"{function}: lengths of axes must be ints, got {shown(dim)}.")
        found.append(dim if isinstance(dim, Op) else int(dim))
    return tuple(found)


def known(function: str, shape: Shape, axis: int) -> int:
    """Returns the length of an axis, which must be a number.

    Raises:
      ShapeError: it is symbolic, or the tensor is 0-d.
    """
    if not shape:
        raise ShapeError(f"{function}: needs at least one axis, got shape ().")
    dim = shape[axis]
    if isinstance(dim, Op):
        raise ShapeError(
            f"{function}: axis {axis} of shape {shape} has a symbolic length, {dim}; here one number is needed.",
            "cut it to a number of elements first, as in x[:3], or along another axis.",
        )
    return dim


def _length(op: Dim, value: int, name: str) -> Length:
    return Length(to_op(op), value, name)


def _value(value: int | Length) -> int:
    return value.current if isinstance(value, Length) else value


def _name(value: int | Length) -> str:
    if isinstance(value, Length):
        return f"({value.name})" if " " in value.name else value.name
    return str(value)


class Variable:
    """A symbolic integer: kernels are compiled once and run for every value that it is bound to.

    A bound one can be an argument of a `@pg.jit` function: its value is an input of the plan.

    >>> import picograd as pg
    >>> n = pg.Variable("n", 1, 8)
    >>> x = pg.Tensor([1.0, 2.0, 3.0, 4.0])
    >>> [x[: n.bind(k)].sum().item() for k in (2, 3, 4)]
    [3.0, 6.0, 10.0]
    """

    def __init__(self, name: str, least: int, greatest: int):
        """
        Args:
          name:             identifies the integer in graphs: letters, digits and _
          least, greatest:  bounds, both included; 0 <= least

        Raises:
          ArgumentError: the name is not an identifier, or the bounds are not integers in order.
        """
        if not (name.isascii() and name.isidentifier()):
            raise ArgumentError(f"Variable: a name has only letters, digits and _, and no digit first; got {name!r}.")
        least, greatest = whole("Variable", "least", least), whole("Variable", "greatest", greatest)
        if not 0 <= least <= greatest:
            raise ArgumentError(f"Variable: {name} needs 0 <= least <= greatest, got {least} and {greatest}.")
        self.op = Op(OpCode.VARIABLE, dtypes.int64, (), (name, least, greatest))

    def __repr__(self) -> str:
        name, least, greatest = self.op.arg
        return f"Variable({name!r}, {least}, {greatest})"

    def bind(self, value: int) -> Length:
        """Returns the variable bound to a value.

        Raises:
          ArgumentError: the value is outside the bounds.

        >>> Variable("n", 1, 8).bind(3)
        n=3
        """
        name, least, greatest = self.op.arg
        value = whole("bind", "value", value)
        if not least <= value <= greatest:
            raise ArgumentError(f"bind: {name} is between {least} and {greatest}, got {value}.")
        return Length(Op(OpCode.BIND, dtypes.int64, (self.op, const(value, dtypes.int64))), value, name)
