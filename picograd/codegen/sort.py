"""What sorts on a CPU and on a GPU are made of: two tables that take turns, and which key comes first.

In:    keys, positions
Out:   `Tables`; `comes_before`; operations on positions
Called by: codegen/cpu/sort_network.py, codegen/cpu/sort.py, codegen/gpu/sort.py, codegen/gpu/scatter.py.
Next: picograd/codegen/cpu/sort_network.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.build import both, compare
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, mul
from picograd.record import Record


class Tables(Record):
    """Two tables of keys and of positions; a pass reads one of them and writes the other.

    keys, positions:  memory of rows x 2 x length elements; no positions where a key tells its own
    first:            index of the first element of this row
    length:           of a table
    """

    keys: Op
    positions: Op | None
    first: Dim
    length: Dim

    def at(self, table: Dim, index: Dim) -> Dim:
        """Returns where an element of one of the two tables stands in memory."""
        return add(self.first, add(mul(table, self.length), index))


def comes_before(key: Op, other: Op, descending: bool) -> Op:
    """True where `key` has to stand before an equal-or-earlier `other`: it is smaller, or greater when descending."""
    small, great = (other, key) if descending else (key, other)
    is_less = less(small, great)
    if not key.dtype.is_float:
        return is_less
    return one_of(is_less, both(compare(OpCode.CMPNE, great, great), compare(OpCode.CMPEQ, small, small)))


def key_dtype(dtype: DType) -> DType:
    """Keys of 8 and 16 bits of float are compared as float32, which holds them exactly."""
    return dtype.compute_dtype


def integer(code: OpCode, a: Op, b: Op) -> Op:
    """Returns an operation on two positions."""
    return Op(code, dtypes.int64, (a, b))


def at_most(side: Op, last: Op) -> Op:
    """Returns the smaller of two positions, compared as what they are: without a sign, so that it is never below 0."""
    smaller = Op(OpCode.MIN, dtypes.uint64, (_unsigned(side), _unsigned(last)))
    return Op(OpCode.BITCAST, dtypes.int64, (smaller,))


def _unsigned(x: Op) -> Op:
    return const(x.arg, dtypes.uint64) if x.code is OpCode.CONST else Op(OpCode.BITCAST, dtypes.uint64, (x,))


def less(a: Op, b: Op) -> Op:
    """Returns whether one is below the other."""
    return compare(OpCode.CMPLT, a, b)


def one_of(a: Op, b: Op) -> Op:
    """Returns whether one of two conditions holds."""
    return Op(OpCode.OR, dtypes.bool_, (a, b))


def negated(x: Op) -> Op:
    """Returns whether a condition does not hold."""
    return compare(OpCode.CMPNE, x, const(True, dtypes.bool_))
