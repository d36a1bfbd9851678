"""What the rules of vmap work with: operands that have an axis of examples in front, or are the same for all examples.

In:    Ops, and how many examples there are
Out:   `Operand`, `Examples`; `spread`, which repeats what is the same;  `move_axis`
Called by: rewrites/vmap.py, rewrites/vmap_rules.py, transforms/vmap.py, transforms/jacobians.py
Next:      picograd/rewrites/vmap.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.ir.build import expand, permute, reshape
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.record import Record


class Examples(Record):
    """What all rules know.

    count:      how many examples there are
    different:  a random draw has other bits for each of them
    """

    count: Dim
    different: bool = False


class Operand(Record):
    """A source of an Op after the rewrite.

    op:       its value: for each example, along axis 0, or the same for all
    batched:  which of both
    """

    op: Op
    batched: bool

    def each(self, examples: Examples) -> Op:
        """Returns the value with an axis of examples, repeated where it is the same."""
        return self.op if self.batched else spread(self.op, examples.count)


Rule = Callable[[Op, Sequence[Operand], Examples], Op]


def spread(x: Op, count: Dim) -> Op:
    """Returns x repeated along a new axis 0; what is repeated already is only repeated more often.

    >>> spread(filled(0.5, dtypes.float32, (3,)), 4) is filled(0.5, dtypes.float32, (4, 3))
    True
    """
    shape = (count, *x.shape)
    if x.code is OpCode.EXPAND:
        inner = x.src[0]
        return expand(reshape(inner, (1, *inner.shape)) if inner.shape else inner, shape)
    return expand(reshape(x, (1, *x.shape)) if x.shape else x, shape)


def move_axis(x: Op, start: int, stop: int) -> Op:
    """Returns x with axis `start` at place `stop`, the others in their order.

    >>> move_axis(filled(0.0, dtypes.float32, (2, 3, 4)), 2, 0).shape
    (4, 2, 3)
    """
    order = [axis for axis in range(len(x.shape)) if axis != start]
    order.insert(stop, start)
    return permute(x, tuple(order))
