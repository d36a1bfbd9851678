"""What is known of a value of a random graph: bounds on its magnitude and on the error any order of operations adds.

In:    nothing
Out:   `Value`, `Graph`, `combined`
Next:  picograd/tools/fuzz/generator.py

With small whole numbers as inputs a value stays exact (error 0) until it meets a quotient or a function; only exact
values are compared, floored, converted to integers or used as indices, so no error is ever amplified to a different branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record, Struct, field

Array = np.ndarray[Any, Any]
ULP = {dtype: 2.0 ** (1 - dtype.precision) for dtype in dtypes.ALL if dtype.is_float}
EXACT = {dtypes.float32: 2.0**22, dtypes.float64: 2.0**50, dtypes.float16: 2.0**10, dtypes.bfloat16: 2.0**7}
ADD, MUL, MAX, MIN = OpCode.ADD, OpCode.MUL, OpCode.MAX, OpCode.MIN


class Value(Record):
    """An Op with what is known of it.

    magnitude:   bound on the magnitude
    error:  bound on the absolute error; 0 is exact (whole numbers in a float)
    """

    op: Op
    magnitude: float
    error: float

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.shape  # type: ignore[return-value]

    @property
    def exact(self) -> bool:
        return self.error == 0


class Graph(Struct):
    """A generated graph: its roots, arrays for its PARAMs, and a bound on the error of each root.

    most_error:  bound on the error of any value in it, read or not
    """

    roots: list[Op] = field(default_factory=list)
    arrays: dict[Op, Array] = field(default_factory=dict)
    errors: list[float] = field(default_factory=list)
    most_error: float = 0.0


def rounding(dtype: DType, magnitude: float, exact: bool) -> float:
    """The error of rounding a result of `magnitude`: none while whole numbers fit."""
    if not dtype.is_float or (exact and magnitude <= EXACT[dtype]):
        return 0.0
    return magnitude * ULP[dtype]


def combined(code: OpCode, a: Value, b: Value) -> Value | None:
    """Returns a op b with its bounds."""
    dtype = a.op.dtype
    exact = a.exact and b.exact
    if code is OpCode.MUL:
        magnitude = a.magnitude * b.magnitude
        error = a.error * (b.magnitude + b.error) + b.error * a.magnitude
    elif code in (MAX, MIN):
        magnitude, error = max(a.magnitude, b.magnitude), max(a.error, b.error)
    else:
        magnitude, error = a.magnitude + b.magnitude, a.error + b.error
    if dtype.kind == "b" and code not in (MAX, MIN):
        return None
    return Value(Op(code, dtype, (a.op, b.op)), magnitude, error + rounding(dtype, magnitude, exact))
