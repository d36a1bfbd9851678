"""Symbolic lengths: one compiled kernel for every length an axis can have.

In:    a name and bounds
Out:   `Variable`, `Length`
Next:  picograd/tensor/sorting.py
"""

from __future__ import annotations

from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode


@dataclass(frozen=True)
class Length:
    """A Variable with its value for now; `x[:length]` is a view of that many elements.

    op:     BIND(VARIABLE, CONST)
    value:  the number
    """

    op: Op
    value: int

    def __repr__(self) -> str:
        return f"{self.op.src[0].arg[0]}={self.value}"


class Variable:
    """A symbolic integer: kernels are compiled once and run for every value it is bound to.

    >>> import picograd as pg
    >>> n = pg.Variable("n", 1, 8)
    >>> x = pg.Tensor([1.0, 2.0, 3.0, 4.0])
    >>> [x[: n.bind(k)].sum().item() for k in (2, 3, 4)]
    [3.0, 6.0, 10.0]
    """

    def __init__(self, name: str, least: int, greatest: int):
        """
        Args:
          name:             under which its value is passed; one name, one integer in a graph
          least, greatest:  bounds, both included; 0 <= least

        Raises:
          ArgumentError: the bounds are not in order.
        """
        if not 0 <= least <= greatest:
            raise ArgumentError(f"Variable: {name} needs 0 <= least <= greatest, got {least} and {greatest}.")
        self.op = Op(OpCode.VARIABLE, dtypes.int64, (), (name, least, greatest))

    def bind(self, value: int) -> Length:
        """Returns the variable with a value.

        Raises:
          ArgumentError: the value is outside its bounds.

        >>> Variable("n", 1, 8).bind(3)
        n=3
        """
        name, least, greatest = self.op.arg
        if not least <= value <= greatest:
            raise ArgumentError(f"bind: {name} is between {least} and {greatest}, got {value}.")
        return Length(Op(OpCode.BIND, dtypes.int64, (self.op, const(value, dtypes.int64))), value)
