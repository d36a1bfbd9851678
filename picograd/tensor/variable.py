"""Symbolic integers: lengths that change from call to call, for which one kernel is compiled.

In:    a name and the values it may take
Out:   `Variable`; `bind` gives what x[:n] and shapes take
"""

from __future__ import annotations

import operator
from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.errors import ArgumentError
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode


@dataclass(frozen=True)
class Variable:
    """A symbolic integer.

    name:      equal names are the same integer
    least:     of its values
    greatest:  of its values

    >>> n = Variable("n", 1, 8)
    >>> x = Tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
    >>> [x[: n.bind(length)].sum().item() for length in (2, 5)]  # one kernel
    [3.0, 15.0]
    """

    name: str
    least: int
    greatest: int

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.greatest:
            raise ArgumentError(f"Variable: {self.name} needs 0 <= least <= greatest, got {self.least}, {self.greatest}.")

    def bind(self, value: int) -> Op:
        """Returns the variable with its value for the tensors built from it.

        Raises:
          ArgumentError: the value is outside least .. greatest.
        """
        number = operator.index(value)
        if not self.least <= number <= self.greatest:
            raise ArgumentError(f"bind: {self.name} is {self.least} to {self.greatest}, got {number}.")
        symbol = Op(OpCode.VARIABLE, dtypes.int64, (), (self.name, self.least, self.greatest))
        return Op(OpCode.BIND, dtypes.int64, (symbol, const(number, dtypes.int64)))
