"""Graphs of a kernel: each of its outputs over what the kernel reads, its phases put together.

In:    a Kernel, and the arrays of its slots
Out:   for each output its slot and a graph over PARAMs; values of PARAMs; the user's lines
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from picograd.errors import Line
from picograd.evaluator.elementwise import Array
from picograd.evaluator.graph import shape_value
from picograd.ir.bodies import substitute
from picograd.ir.build import reshape
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import lines_of
from picograd.ir.stages import Kernel


def values_of(kernel: Kernel) -> list[tuple[int, Op]]:
    """Returns the slot of each output and its graph: what a later phase reads of an earlier one is part of it."""
    made: dict[int, Op] = {}
    for phase in kernel.phases:
        outputs = [output for nest in phase for output in nest.outputs]
        params = [op for op in toposort([value for _, value in outputs]) if op.code is OpCode.PARAM]
        places = {op: reshape(made[op.arg[0]], op.shape) for op in params if op.arg[0] in made}
        values = substitute([value for _, value in outputs], places)
        made.update(zip([slot for slot, _ in outputs], values))
    return [(slot, value) for slot, value in made.items() if kernel.params[slot].role in ("out", "inout")]


def in_params(
    roots: Iterable[tuple[int, Op, object]], given: Sequence[Array], variables: Mapping[str, int]
) -> dict[Op, Array]:
    """Returns the values of the PARAMs of graphs, from the arrays of a kernel's slots."""
    values = {}
    for op in toposort([value for _, value, _ in roots]):
        if op.code is OpCode.PARAM:
            shape = shape_value(op.shape, variables)
            count = 1
            for dim in shape:
                count *= dim
            values[op] = given[op.arg[0]][:count].reshape(shape)
    return values


def lines_in(roots: Sequence[Op]) -> tuple[Line, ...]:
    """Returns the user's lines that made graphs, those of the results first."""
    found: dict[Line, None] = {}
    for op in reversed(toposort(roots)):
        found.update(dict.fromkeys(lines_of(op)))
    return tuple(found)
