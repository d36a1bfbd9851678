"""Reduces a failing graph (fewer roots, then values in place of parts), and prints it as a script.

In:    a `Graph` and a check that fails on it
Out:   a smaller `Graph` that also fails; a Python script that fails
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from picograd.evaluator import evaluate
from picograd.ir.bodies import substitute
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.ir.text import format_graph
from picograd.record import replace
from picograd_lab.fuzz.values import Array, Graph

# ---- smaller graphs ----
Check = Callable[[Graph], object]
Fails = Callable[[Graph], bool]
NO_VALUE = SEVERAL_RESULTS | {OpCode.SINK}  # their OUTPUTs have values


def shrink(graph: Graph, check: Check, kind: type[Exception] = Exception) -> Graph:
    """Returns the smallest graph found that makes the check raise an error of this kind."""

    def fails(smaller: Graph) -> bool:
        try:
            check(smaller)
        except Exception as error:
            return isinstance(error, kind)
        return False

    return with_fewer_parts(with_fewer_roots(graph, fails), fails)


def with_fewer_roots(graph: Graph, fails: Fails) -> Graph:
    """Returns a graph of the first Op that fails alone, or of only the necessary roots."""
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
    """Replaces every Op that is not necessary for the failure by its value.

    The last Ops come first, as their own sources go with them, so the number of checks is about that of the remaining Ops.
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
    """Returns the graph with one Op replaced by a PARAM with its value."""
    slot = 1 + max((param.arg[0] for param in graph.arrays), default=-1)
    stand = Op(OpCode.PARAM, op.dtype, (), (slot, op.shape))
    roots = substitute(graph.roots, {op: stand})
    values = {**graph.arrays, stand: np.asarray(evaluate([op], graph.arrays)[0])}
    used = {param for param in toposort(roots) if param.code is OpCode.PARAM}
    return replace(graph, roots=roots, arrays={param: array for param, array in values.items() if param in used})


# ---- scripts ----
TEMPLATE = '''# {title}
# {error}

import ml_dtypes
import numpy as np
from numpy import inf, nan

from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.ir.text import parse_graph
from picograd_lab.fuzz.check import {check}
from picograd_lab.fuzz.values import Graph

roots = parse_graph("""
{text}
""")
values = {{
{arrays}
}}
arrays = {{op: values[op.arg[0]] for op in toposort(roots) if op.code is OpCode.PARAM}}
{check}(Graph(roots, arrays, {errors}), {arguments})
'''


def script(graph: Graph, check: str, arguments: str, title: str, error: str) -> str:
    """Returns a script that calls `check`, a function of check.py, with the graph and further `arguments`."""
    used = [op for op in toposort(graph.roots) if op.code is OpCode.PARAM]
    return TEMPLATE.format(
        title=title,
        error=error.replace("\n", "\n# "),
        check=check,
        text=format_graph(graph.roots).strip(),
        arrays="\n".join(f"    {op.arg[0]}: {literal(graph.arrays[op])}," for op in used),
        errors=graph.errors,
        arguments=arguments,
    )


def literal(array: Array) -> str:
    """Formats an array as an expression that keeps all its bits."""
    name = f"np.{array.dtype.name}" if hasattr(np, array.dtype.name) else f"ml_dtypes.{array.dtype.name}"
    if array.dtype.kind in "biu":
        return f"np.array({array.tolist()!r}, {name}).reshape({array.shape})"
    return f"np.array({array.astype(np.float64).tolist()!r}).astype({name}).reshape({array.shape})"


WRITES = """# picograd fuzz: writes, seed {seed}
# {error}

from picograd_lab.fuzz.writes import check_writes

check_writes({seed}, {device!r}, is_jitted={is_jitted})
"""


def writes_script(seed: int, device: str, is_jitted: bool, error: str) -> str:
    """Returns a script that repeats the writes of a seed."""
    return WRITES.format(seed=seed, device=device, is_jitted=is_jitted, error=error.replace("\n", "\n# "))


PROGRAM = '''# picograd fuzz: programs, seed {seed}
# {error}

from picograd_lab.fuzz.programs import check_program

SOURCE = """\\
{source}"""
check_program(SOURCE, {device!r})
'''


def program_script(source: str, seed: int, device: str, error: str) -> str:
    """Returns a script that runs a program with jit and without."""
    return PROGRAM.format(seed=seed, device=device, source=source, error=error.replace("\n", "\n# "))
