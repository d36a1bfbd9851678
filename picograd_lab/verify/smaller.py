"""Finds the smallest input that still shows a wrong kernel, pass or chain rule, and a script that shows only this.

In:    a kernel, the slot of its wrong output, and its inputs; or graphs that a pass changes
Out:   `Reproduction`: few Ops on short inputs, in words and as a script

The output's graph is compiled alone. If it is still wrong, it is reduced while it stays wrong: parts of it become inputs
with their values (picograd_lab/fuzz/failures.py), a block replaces the whole output, sums lose half of their terms, inputs
become 0 or 1. If it is right, the script has the original kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from picograd.engine.devices import compiler_for
from picograd.ir.bodies import substitute
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Kernel, ScheduleItem
from picograd.ir.text import format_graph, format_kernel, parse_kernel
from picograd.record import Record, replace
from picograd_lab.fuzz.check import Wrong, run_on
from picograd_lab.fuzz.failures import literal, with_fewer_parts, with_fewer_roots
from picograd_lab.fuzz.values import Graph
from picograd_lab.verify.blocks import block, every
from picograd_lab.verify.bounds import bounded, difference
from picograd_lab.verify.graphs import in_params, reads_back, values_of
from picograd_lab.verify.passes import deviating_pass
from picograd_lab.verify.verdict import Mismatch
from picograd_lab.verify.walk import Alone, Array

CHECKS_MAX = 200
SCRIPT_ELEMENTS_MAX = 20_000


class Reproduction(Record):
    """A reduced wrong kernel.

    ops:     its graph as text; "" if it was not reduced
    said:    a sentence on the reduction
    script:  a program that raises `Wrong`; "" if there is none
    """

    ops: str
    said: str
    script: str


def check_graph(graph: Graph, device: str) -> None:
    """Compares a device's result for a graph with the evaluator's value.

    Raises:
      Wrong: an element of a root differs by more than rounding explains.
    """
    meanings = bounded(graph.roots, graph.arrays)
    for number, (root, found, meaning) in enumerate(zip(graph.roots, run_on(device, graph.roots, graph.arrays), meanings)):
        seen = difference(found, meaning.value, meaning.error, root.dtype)
        if seen.wrong:
            at, ours = found.reshape(-1)[seen.at], meaning.value.reshape(-1)[seen.at]
            raise Wrong(
                f"result {number} on {device}: {seen.wrong} of {found.size} elements are wrong, "
                f"element {seen.at} is {at} instead of {ours}, {seen.ulp:.3g} ulp away"
            )


def check_kernel(text: str, arrays: Mapping[int, Array], device: str) -> None:
    """Compares a device's results for a kernel with the evaluator's values.

    Args:
      text:    the kernel, by format_kernel
      arrays:  arrays by slot, for inputs and outputs

    Raises:
      Wrong: an element of an output differs by more than rounding explains.
    """
    kernel = parse_kernel(text)
    (code,) = compiler_for(device).executables([kernel])
    slots = [np.array(arrays.get(i, np.zeros(int(str(p.numel)), p.dtype.numpy))) for i, p in enumerate(kernel.params)]
    given = [slot.copy() for slot in slots]
    Alone(ScheduleItem(kernel, tuple(range(len(slots)))), code, device)(slots, {})
    values = values_of(kernel)
    meanings = bounded([value for _, value in values], in_params([(s, v, None) for s, v in values], given, {}))
    for (slot, value), meaning in zip(values, meanings):
        found = slots[slot][: meaning.value.size]
        seen = difference(found, meaning.value, meaning.error, value.dtype)
        if seen.wrong:
            at, ours = found[seen.at], meaning.value.reshape(-1)[seen.at]
            raise Wrong(f"slot {slot} on {device}: {seen.wrong} of {found.size} elements are wrong, {at} instead of {ours}")


def check_passes(graph: Graph, device: str) -> None:
    """Compares the meaning of a graph before all passes with that after each, and with a device's kernels.

    Raises:
      Wrong: a pass changes it by more than folded constants explain.
    """
    found = _of_passes(graph, device)
    if found is not None:
        raise Wrong(f"{found.what} {found.fact}")


def _of_passes(graph: Graph, device: str) -> Mismatch | None:
    compiler = compiler_for(device)
    schedule, by_slot = compiler.schedule(graph.roots), {op.arg[0]: array for op, array in graph.arrays.items()}
    inputs = [by_slot[op.arg[0]].reshape(-1) for op in schedule.inputs]
    values = {op: graph.arrays[op] for op in toposort(graph.roots) if op.code is OpCode.PARAM}
    return deviating_pass(graph.roots, schedule, compiler.device.target, values, inputs, {}, math.inf)[0]


def reproduction_of_pass(roots: Sequence[Op], values: Mapping[Op, Array], device: str, found: Mismatch) -> Reproduction:
    """Reduces the inputs of a graph that a pass changes as far as possible."""

    def check(graph: Graph, device: str) -> None:
        smaller = _of_passes(graph, device)
        if smaller is not None and smaller.what == found.what:
            raise Wrong(f"{smaller.what} {smaller.fact}")

    arrays = {op: array.reshape([int(dim) for dim in op.shape]) for op, array in values.items()}
    return _made_small(Graph(list(roots), arrays, [0.0] * len(roots)), _Fails(check, device), "check_passes")


def reproduction(kernel: Kernel, slot: int, given: Sequence[Array], device: str) -> Reproduction:
    """Reduces the inputs of a kernel with a wrong output as far as possible."""
    text = format_kernel(kernel)
    used = {i: given[i] for i, param in enumerate(kernel.params) if param.role in ("in", "inout")}
    try:
        check_kernel(text, used, device)
        return Reproduction("", " Compiled again it is right: the code that ran is not what its Ops give now.", "")
    except Wrong as error:
        as_a_whole = str(error)
    (value,) = [graph for number, graph in values_of(kernel) if number == slot]
    graph = Graph([value], in_params([(slot, value, None)], given, {}), [0.0])
    if (small := _made_small(graph, _Fails(check_graph, device), "check_graph")).said:
        return small
    if sum(array.size for array in used.values()) > SCRIPT_ELEMENTS_MAX:
        return Reproduction("", " It is wrong only as a whole, on inputs too large for a script.", "")
    return Reproduction("", " It is wrong only as a whole.", _kernel_script(text, used, device, as_a_whole))


def _made_small(graph: Graph, fails: _Fails, name: str) -> Reproduction:
    """Reduces the inputs of a graph that fails; empty for a graph that does not.

    Args:
      name:  function of this file for the script's check
    """
    if not fails(graph):
        return Reproduction("", "", "")
    ops, elements = _size(graph)
    graph = _smaller(graph, fails)
    fewer, less = _size(graph)
    said = f" The smallest input that shows it has {less} elements and {fewer} Ops (of {elements} and {ops})."
    return Reproduction(format_graph(graph.roots), said, _graph_script(graph, fails.device, fails.said, name))


class _Fails:
    """A predicate that is true for graphs that are wrong on a device; after many questions always false.

    check:  (graph, device): raises Wrong
    said:   message about the last wrong graph
    """

    def __init__(self, check: Callable[[Graph, str], None], device: str):
        self.check, self.device, self.said, self.checks = check, device, "", 0

    def __call__(self, graph: Graph) -> bool:
        self.checks += 1
        if self.checks > CHECKS_MAX:
            return False
        try:
            self.check(graph, self.device)
        except Wrong as error:
            self.said = str(error)
            return True
        except Exception:  # a wrong pass may raise anything for other shapes
            return False
        return False


def _size(graph: Graph) -> tuple[int, int]:
    """Returns the number of Ops of a graph, and of the elements of its inputs."""
    return len(toposort(graph.roots)), sum(array.size for array in graph.arrays.values())


def _smaller(graph: Graph, fails: _Fails) -> Graph:
    graph = with_fewer_parts(with_fewer_roots(graph, fails), fails)
    while (smaller := next((each for each in _halves(graph) if fails(each)), None)) is not None:
        graph = smaller
    for op in list(graph.arrays):
        for plain in (np.zeros_like(graph.arrays[op]), np.ones_like(graph.arrays[op])):
            simple = replace(graph, arrays={**graph.arrays, op: plain})
            if fails(simple):
                graph = simple
                break
    fails.checks = 0
    fails(graph)  # for its description
    return graph


def _halves(graph: Graph) -> Iterator[Graph]:
    """Yields graphs with half of the output along an axis, or half of the terms of a sum."""
    (root,) = graph.roots
    for axis, (_, stop) in reversed(list(enumerate(every(root.shape)))):
        for part in _parts(stop):
            yield _on_blocks(graph, block(root, (*every(root.shape)[:axis], part, *every(root.shape)[axis + 1 :])))
    for op in reversed(toposort(graph.roots)):
        if op.code is OpCode.REDUCE:
            for axis in op.arg[1]:
                yield from _with_terms(graph, op, (axis,))
        elif op.code is OpCode.MATMUL:
            yield from _with_terms(graph, op, (len(op.shape) - 1, len(op.shape) - 2))


def _with_terms(graph: Graph, op: Op, axes: Sequence[int]) -> Iterator[Graph]:
    """Yields graphs whose sum covers half of an axis of each operand."""
    for part in _parts(every(op.src[0].shape)[axes[0]][1]):
        src = []
        for s, axis in zip(op.src, axes):
            ranges = every(s.shape)
            src.append(block(s, (*ranges[:axis], part, *ranges[axis + 1 :])))
        yield _on_blocks(graph, substitute(graph.roots, {op: op.replace(src=tuple(src))})[0])


def _parts(length: int) -> list[tuple[int, int]]:
    """Returns the halves of an axis, and the ranges without the last and without the first element."""
    if length < 2:
        return []
    return list(dict.fromkeys([(0, length // 2), (length // 2, length), (0, length - 1), (1, length)]))


def _on_blocks(graph: Graph, root: Op) -> Graph:
    """Returns a graph with a smaller input in place of each block of an input."""
    arrays = dict(graph.arrays)
    slot = 1 + max([op.arg[0] for op in arrays], default=-1)
    places: dict[Op, Op] = {}
    for op in toposort([root]):
        if op.code is OpCode.SHRINK and op.src[0].code is OpCode.PARAM:
            places[op] = Op(OpCode.PARAM, op.dtype, (), (slot + len(places), op.shape))
            arrays[places[op]] = np.array(arrays[op.src[0]][tuple(slice(*one) for one in op.arg)])
    (root,) = substitute([root], places)
    used = {op for op in toposort([root]) if op.code is OpCode.PARAM}
    return replace(graph, roots=[root], arrays={op: array for op, array in arrays.items() if op in used})


# ---- scripts ----
HEAD = '''"""{said}"""

import ml_dtypes
import numpy as np
from numpy import inf, nan

'''
GRAPH = '''from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.ir.text import parse_graph
from picograd_lab.fuzz.values import Graph
from picograd_lab.verify.smaller import {check}

roots = parse_graph("""
{text}
""")
values = {{
{arrays}
}}
arrays = {{op: values[op.arg[0]] for op in toposort(roots) if op.code is OpCode.PARAM}}
{check}(Graph(roots, arrays, [0.0]), {device!r})
'''
KERNEL = '''from picograd_lab.verify.smaller import check_kernel

KERNEL = """
{text}
"""
values = {{
{arrays}
}}
check_kernel(KERNEL, values, {device!r})
'''


def _graph_script(graph: Graph, device: str, said: str, check: str) -> str:
    if _size(graph)[1] > SCRIPT_ELEMENTS_MAX:
        return ""
    values = {op.arg[0]: array for op, array in graph.arrays.items()}
    text = format_graph(graph.roots)
    return _script(GRAPH.replace("{check}", check), text, values, device, said) if reads_back(text) else ""


def _kernel_script(text: str, values: Mapping[int, Array], device: str, said: str) -> str:
    return _script(KERNEL, text, values, device, said)


def _script(template: str, text: str, values: Mapping[int, Array], device: str, said: str) -> str:
    arrays = "\n".join(f"    {slot}: {literal(array)}," for slot, array in values.items())
    return HEAD.format(said=said) + template.format(text=text.strip(), arrays=arrays, device=device)
