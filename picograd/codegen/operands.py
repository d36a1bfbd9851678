"""How an operand of a product lies in memory: along which axis, and whether it is read as it is.

In:    an operand (..., K, N)
Out:   `contiguous_axis`, `contiguous_pieces_axis`; `is_plain`; `last_axes`
Called by: the emitters of products.    Next: picograd/codegen/prefetch.py
"""

from __future__ import annotations

from functools import lru_cache

from picograd.codegen.axes import steps_by_one
from picograd.codegen.index import element_anywhere
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import from_op, subtract, with_values


def last_axes(b: Op) -> tuple[Op, Op]:
    """Returns the placeholders of the last two axes."""
    k, column = (placeholder(len(b.shape) - 2 + i, dim) for i, dim in enumerate(b.shape[-2:]))
    return k, column


@lru_cache(maxsize=256)
def contiguous_axis(operand: Op) -> int:
    """Returns along which of the last two axes, -1 or -2, most of an operand's accesses are contiguous; -1 if none is.

    Equal indices count once, and what is the same for a row or a column not at all, such as a scale or a row's maximum: it
    is less than what is read of the row.
    """
    axes = set(last_axes(operand))
    indices = {load.src[1] for load in _outer_loads(operand)}
    of_elements = [index for index in indices if axes <= {*toposort([index])}] or indices
    second_last, last = [sum(steps_by_one(index, place) for index in of_elements) for place in last_axes(operand)]
    return -1 if last >= second_last else -2


def contiguous_pieces_axis(operand: Op) -> int:
    """Returns the `contiguous_axis`; of an operand that has none, the axis along which its first elements are contiguous.

    The joined heads of an attention are contiguous within each head.
    """
    indices = [load.src[1] for load in _outer_loads(operand)]
    if any(steps_by_one(index, place) for index in indices for place in last_axes(operand)):
        return contiguous_axis(operand)
    second_last, last = [sum(_starts_by_one(index, place) for index in indices) for place in last_axes(operand)]
    return -1 if last >= second_last else -2


def _starts_by_one(index: Op, place: Op) -> bool:
    """True where an index grows by one from the first place of a RANGE to the second, at the start of all others."""
    starts: dict[Op, Dim] = {op: 0 for op in toposort([index]) if op.code is OpCode.RANGE}
    first, second = (with_values(from_op(index), starts | {place: at}) for at in (0, 1))
    return subtract(second, first) == 1


def _outer_loads(operand: Op) -> list[Op]:
    """Returns the loads of an operand's elements; not those of indices, which are the same for many elements.

    But where an element is chosen from a table by a number that is read for it alone, the load of that number.
    """
    axes = set(last_axes(operand))

    def sources(op: Op) -> tuple[Op, ...]:
        if op.code is not OpCode.LOAD:
            return op.src
        at_once = toposort([op.src[1]], sources=_before_loads)
        return op.src[1:2] if axes.isdisjoint(at_once) and not axes.isdisjoint(toposort([op.src[1]])) else ()

    order = toposort([element_anywhere(operand)], sources=sources)
    return [op for op in order if op.code is OpCode.LOAD and not sources(op)]


def _before_loads(op: Op) -> tuple[Op, ...]:
    return () if op.code is OpCode.LOAD else op.src


def is_plain(operand: Op) -> bool:
    """True for an operand that lies in memory, at places that nothing has to be read for."""
    loads = [op for op in toposort([element_anywhere(operand)]) if op.code is OpCode.LOAD]
    return loads == [element_anywhere(operand)]
