"""Graphs of a kernel: each of its outputs as a function of the kernel's inputs, across its phases.

In:    a Kernel, and the arrays of its slots
Out:   for each output its slot and a graph over PARAMs; values of PARAMs; the user's lines
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from picograd.errors import Line, PicogradError
from picograd.evaluator.elementwise import Array
from picograd.evaluator.graph import shape_value
from picograd.ir.bodies import substitute
from picograd.ir.build import reshape
from picograd.ir.op import Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.origin import lines_of
from picograd.ir.shape import flops_of
from picograd.ir.stages import Kernel
from picograd.ir.symbolic import with_variables
from picograd.ir.text import parse_graph


def values_of(kernel: Kernel) -> list[tuple[int, Op]]:
    """Returns the slot of each output and its graph, which includes the earlier phases that it reads."""
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
            values[op] = given[op.arg[0]][: math.prod(shape)].reshape(shape)
    return values


def of_numbers(roots: Sequence[Op], variables: Mapping[str, int]) -> list[Op]:
    """Returns graphs without bodies, with numbers in place of symbolic integers."""
    became: dict[Op, Op] = {}
    for op in toposort(roots):
        if op.code is OpCode.VARIABLE:
            became[op] = const(variables[op.arg[0]], op.dtype)
        else:
            became[op] = op.replace(src=tuple([became[s] for s in op.src]), arg=_of_numbers(op.arg, variables))
    return [became[root] for root in roots]


def _of_numbers(arg: Any, variables: Mapping[str, int]) -> Any:
    if isinstance(arg, Op):
        return with_variables(arg, variables)
    return tuple([_of_numbers(part, variables) for part in arg]) if type(arg) is tuple else arg


def cost(roots: Sequence[Op], variables: Mapping[str, int]) -> float:
    """Returns the approximate number of elements that NumPy computes for graphs."""
    total = 0.0
    for op in toposort(roots):
        if op.code not in (OpCode.PARAM, OpCode.EXPAND, OpCode.CONST):
            total += math.prod(shape_value(op.shape, variables))
        if op.code in (OpCode.MATMUL, OpCode.CONV, OpCode.ATTENTION, OpCode.ATTENTION_GRAD):
            total += flops_of(op, variables) / 32
        if op.code is OpCode.CUSTOM:  # of matrices, whose functions take n products of n elements and more
            total += math.prod(shape_value(op.shape, variables)) * max(shape_value(op.shape, variables), default=1)
        if op.code is OpCode.SCATTER:
            total += 500 * math.prod(shape_value(op.src[1].shape[op.arg[2] :], variables))
    return total


def reads_back(text: str) -> bool:
    """True for the text of a graph without functions of Python, which no text names."""
    try:
        parse_graph(text)
    except PicogradError:
        return False
    return True


def lines_in(roots: Sequence[Op]) -> tuple[Line, ...]:
    """Returns the lines of the user's code that made the graphs, those of the results first."""
    found: dict[Line, None] = {}
    for op in reversed(toposort(roots)):
        found.update(dict.fromkeys(lines_of(op)))
    return tuple(found)
