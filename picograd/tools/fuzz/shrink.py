"""Makes a failing graph small: fewer roots, then parts of it replaced by their values.

In:    a `Graph` and a check that fails on it
Out:   a smaller `Graph` that fails, too
Next:  picograd/tools/fuzz/script.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from picograd.evaluator import evaluate
from picograd.ir.bodies import substitute
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.record import replace
from picograd.tools.fuzz.values import Graph

Check = Callable[[Graph], object]
Fails = Callable[[Graph], bool]
NO_VALUE = SEVERAL_RESULTS | {OpCode.SINK}  # what is seen of them is their OUTPUTs


def shrink(graph: Graph, check: Check, kind: type[Exception] = Exception) -> Graph:
    """Returns the smallest graph found for which the check raises an error of this kind."""

    def fails(smaller: Graph) -> bool:
        try:
            check(smaller)
        except Exception as error:
            return isinstance(error, kind)
        return False

    return with_fewer_parts(with_fewer_roots(graph, fails), fails)


def with_fewer_roots(graph: Graph, fails: Fails) -> Graph:
    """Returns a graph whose one root is the first Op that fails alone; or with only the roots it needs."""
    for op in toposort(graph.roots):
        if op.code is not OpCode.PARAM and op.code not in NO_VALUE:
            alone = replace(graph, roots=[op], errors=[graph.most_error])
            if fails(alone):
                return alone
    kept = list(zip(graph.roots, graph.errors))
    for pair in list(kept):
        rest = [other for other in kept if other is not pair]
        if rest and fails(replace(graph, roots=[op for op, _ in rest], errors=[error for _, error in rest])):
            kept = rest
    return replace(graph, roots=[op for op, _ in kept], errors=[error for _, error in kept])


def with_fewer_parts(graph: Graph, fails: Fails) -> Graph:
    """Returns the graph with every Op that need not be computed for it to fail replaced by its value.

    The last Ops are tried first: what they alone need goes with them, so there are about as many checks as Ops stay.
    """
    needed: set[Op] = set()
    while True:
        for op in reversed(toposort(graph.roots)):
            if op in needed or op in graph.roots or op.code in (OpCode.PARAM, OpCode.CONST, *NO_VALUE):
                continue
            smaller = without(graph, op)
            if fails(smaller):
                graph = smaller
                break
            needed.add(op)
        else:
            return graph


def without(graph: Graph, op: Op) -> Graph:
    """Returns the graph with one Op replaced by a PARAM that holds its value."""
    slot = 1 + max((param.arg[0] for param in graph.arrays), default=-1)
    stand = Op(OpCode.PARAM, op.dtype, (), (slot, op.shape))
    roots = substitute(graph.roots, {op: stand})
    values = {**graph.arrays, stand: np.asarray(evaluate([op], graph.arrays)[0])}
    used = {param for param in toposort(roots) if param.code is OpCode.PARAM}
    return replace(graph, roots=roots, arrays={param: array for param, array in values.items() if param in used})
