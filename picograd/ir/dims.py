"""What a length comes to once the symbolic integers in it have values.

In:    a Dim, and numbers by the names of symbolic integers
Out:   `dim_value`; `with_variables`, where some have none
"""

from __future__ import annotations

from collections.abc import Mapping

from picograd.errors import UnsupportedOp, VerifyError
from picograd.ir.arithmetic import ARITHMETIC
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import with_values

FEW_LEVELS = 6  # of a length that is worked out from the top, what it mentions twice, twice


def dim_value(dim: Dim, variables: Mapping[str, int]) -> int:
    """Returns the number a dimension has; a bound symbolic integer that is not in `variables` has its own value.

    Raises:
      UnsupportedOp: a symbolic integer has no value.
      VerifyError:   something else than integer arithmetic stands in it.

    >>> n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))
    >>> dim_value(Op(OpCode.MUL, dtypes.int64, (n, const(4, dtypes.int64))), {"n": 3})
    12
    """
    if isinstance(dim, int):
        return dim
    values: dict[Op, int] = {}
    if dim.depth > FEW_LEVELS:
        for op in toposort([dim], stop=_Bound()):
            values[op] = _value_of(op, variables, values)
    return _value_of(dim, variables, values)


def _value_of(op: Op, variables: Mapping[str, int], values: Mapping[Op, int]) -> int:
    """Returns the number of a length; `values` of parts that are known."""
    if op in values:
        return values[op]
    if op.code is OpCode.CONST:
        return int(op.arg)
    if op.code is OpCode.VARIABLE or op.code is OpCode.BIND:
        return _symbolic_value(op, variables)
    if op.code in ARITHMETIC:
        return ARITHMETIC[op.code](*[_value_of(s, variables, values) for s in op.src])
    raise VerifyError(f"{op} stands in a length, which numbers and symbolic integers make up.")


def with_variables(dim: Dim, variables: Mapping[str, int]) -> Dim:
    """Returns a dimension in which symbolic integers of these names have their values, and all others stay symbolic.

    >>> n, m = (Op(OpCode.VARIABLE, dtypes.int64, (), (name, 1, 8)) for name in "nm")
    >>> with_variables(Op(OpCode.MUL, dtypes.int64, (n, n)), {"n": 3, "m": 5})
    9
    >>> with_variables(m, {"n": 3}) is m
    True
    """
    if isinstance(dim, int):
        return dim
    atoms = [op for op in toposort([dim]) if op.code is OpCode.VARIABLE and op.arg[0] in variables]
    return with_values(dim, {op: variables[op.arg[0]] for op in atoms})


class _Bound:
    """The Ops below which there is no arithmetic."""

    def __contains__(self, op: Op) -> bool:
        return op.code is OpCode.BIND


def _symbolic_value(op: Op, variables: Mapping[str, int]) -> int:
    name = (op.src[0] if op.code is OpCode.BIND else op).arg[0]
    if name in variables:
        return variables[name]
    if op.code is OpCode.BIND:
        return int(op.src[1].arg)
    raise UnsupportedOp(f"the symbolic integer {name} has no value here.")
