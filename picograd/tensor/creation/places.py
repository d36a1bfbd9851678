"""Places of values in rows that are in order.

In:    Ops
Out:   `lower_bound`; `below`, `not_above`
Next:  picograd/tensor/creation/probabilities.py

A search halves what is left at each step: log2(n) reads for each value.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.ir.build import both, compare, either, gather, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.tensor.formulas import formula


@formula
def lower_bound(ordered: Op, values: Op, length: int, right: bool) -> Op:
    """Returns how many elements of a row (..., N) in order come before each value (..., M).

    Of the places known to come before, the last is moved on by halves of what is left: 2^k, ... 2, 1.
    """
    batch = len(ordered.shape) - 1
    count = filled(0, dtypes.int64, values.shape)  # so many come before, at least
    for bit in reversed(range(length.bit_length())):
        further = count + (1 << bit)
        place = Op(OpCode.MIN, dtypes.int64, (further, further.filled(length))) - 1
        element = gather(ordered, place, batch, batch)
        comes_before = not_above(element, values) if right else below(element, values)
        inside = compare(OpCode.CMPLE, further, length)
        count = where(both(inside, comes_before), further, count)
    return count


def below(a: Op, b: Op) -> Op:
    """Returns a < b, NaN being greater than every number."""
    less = compare(OpCode.CMPLT, a, b)
    if not a.dtype.is_float:
        return less
    return either(less, both(compare(OpCode.CMPNE, b, b), compare(OpCode.CMPEQ, a, a)))


def not_above(a: Op, b: Op) -> Op:
    """Returns a <= b, NaN being greater than every number and equal to itself."""
    less = compare(OpCode.CMPLE, a, b)
    return either(less, compare(OpCode.CMPNE, b, b)) if a.dtype.is_float else less
