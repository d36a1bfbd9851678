"""Compares the meaning of a graph before and after each pass, in float64, and names a rule that changes it.

In:    the graphs of a plan before all passes, its Schedule, and its inputs
Out:   a `Mismatch` that names the first pass, and the rule if the pass is a table of rules

Every float becomes a float64, so that only the roundings of folded constants remain. A second evaluation estimates
their effect, on inputs that differ by a few roundings of the narrowest dtype: a larger difference is not a rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from picograd import road
from picograd.device import Target
from picograd.dtype import DType, float64
from picograd.evaluator import evaluate
from picograd.evaluator.elementwise import Array
from picograd.ir.attention import has_kernel
from picograd.ir.bodies import map_bodies
from picograd.ir.build import cast
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.stages import Kernel, Schedule
from picograd.ir.text import format_graph
from picograd_lab.verify.bounds import unit
from picograd_lab.verify.graphs import cost, in_params, lines_in, values_of
from picograd_lab.verify.rules import limited, which
from picograd_lab.verify.verdict import Mismatch
from picograd_lab.verify.walk import Step, memory_for, walk

ROAD: Any = road  # the passes, in its order
ROUNDINGS = 8  # by which inputs differ
SHOWN_OPS_MAX = 60


# ---- graphs in float64 ----
def in_double(roots: Sequence[Op]) -> list[Op]:
    """Returns graphs with every float as a float64; bits of a float remain those of its own dtype."""
    return _in_double(map_bodies(roots, _in_double))


def _in_double(roots: Sequence[Op]) -> list[Op]:
    became: dict[Op, Op] = {}
    for op in toposort(roots):
        src = [became[s] for s in op.src]
        if op.code is OpCode.BITCAST:
            src = [cast(new, old.dtype) if old.dtype.is_float else new for new, old in zip(src, op.src)]
            new = Op(op.code, op.dtype, tuple(src), op.arg)
            became[op] = cast(new, float64) if op.dtype.is_float else new
        else:
            became[op] = Op(op.code, float64 if op.dtype.is_float else op.dtype, tuple(src), op.arg)
    return [became[root] for root in roots]


def wide(array: Array) -> Array:
    """Converts an array of floats to float64; returns any other unchanged."""
    return array if array.dtype.kind in "biu" else array.astype(np.float64)


# ---- passes ----
Pass = tuple[str, Callable[[Sequence[Op]], Sequence[Op]]]


def passes_of(target: Target) -> list[Pass]:
    """Returns the graph passes of picograd/road.py, in order."""
    return [
        ("written_out, which puts graphs in the place of gradients and formulas", ROAD.written_out),
        ("compose_attention", partial(ROAD.compose_attention, has_kernel=partial(has_kernel, target=target))),
        ("merge_bodies", ROAD.merge_bodies),
        ("simplify, in bodies", lambda roots: map_bodies(roots, road.simplify)),
        ("simplify", road.simplify),
    ]


def deviating_pass(
    graphs: Sequence[Op], schedule: Schedule, target: Target, values: Mapping[Op, Array], inputs: Sequence[Array],
    variables: Mapping[str, int], most: float,
) -> tuple[Mismatch | None, str]:  # fmt: skip
    """Returns the first pass that changes the meaning of graphs, and why it could not be searched.

    Args:
      values: values of the graphs' PARAMs
      inputs: inputs of the schedule
      most:  a cost above which NumPy would take too long
    """
    order = toposort(graphs)
    if cost(graphs, variables) > most:
        return None, "the passes over graphs that would take the evaluator long are not compared"
    step = ROUNDINGS * max([unit(op.dtype) for op in order if op.dtype.is_float], default=0.0)
    rng = np.random.default_rng(0)
    moved = {op: _moved(array, step, rng) for op, array in values.items()}
    expected = _evaluate(graphs, values, variables)
    noise = [_noise(a, b, step) for a, b in zip(expected, _evaluate(graphs, moved, variables))]
    before: Sequence[Op] = graphs
    for name, apply in passes_of(target):
        after = apply(before)
        wrong = _first_wrong(_evaluate(after, values, variables), expected, noise)
        if wrong is not None:
            return _of_pass(name, apply, before, wrong, values, variables, expected, noise), ""
        before = after
    wrong = _first_wrong(_evaluate_kernels(schedule, inputs, variables), expected, noise)
    if wrong is None:
        return None, ""
    number, fact = wrong
    what = "create_schedule (contract, fuse, group), which makes kernels of the simplified graph,"
    return Mismatch(what, f"changes what result {number} is: {fact}", _shown(before), lines_in([graphs[number]])), ""


def values_by_slot(
    order: Sequence[Op], schedule: Schedule, inputs: Sequence[Array], unread: Mapping[int, Array]
) -> dict[Op, Array]:
    """Returns the value of each PARAM.

    Args:
      unread:  by slot, PARAMs that no kernel reads, perhaps lost by a wrong rule; for others, any numbers suffice
    """
    read = {**unread, **{op.arg[0]: array for op, array in zip(schedule.inputs, inputs)}}
    rng = np.random.default_rng(0)
    values = {}
    for op in order:
        if op.code is OpCode.PARAM:
            if op.arg[0] not in read:
                any_numbers = rng.standard_normal(op.numel) if op.dtype.is_float else np.zeros(op.numel)
                read[op.arg[0]] = any_numbers.astype(op.dtype.numpy)
            values[op] = read[op.arg[0]]
    return values


def _moved(array: Array, step: float, rng: np.random.Generator) -> Array:
    double = wide(array)
    if double.dtype.kind in "biu":
        return double
    return double * (1 - step * rng.uniform(0, 2, double.shape))  # towards 0, in case a number in 0 .. 1 is needed


def _evaluate(roots: Sequence[Op], values: Mapping[Op, Array], variables: Mapping[str, int]) -> list[Array]:
    doubles = in_double(roots)
    by_slot = {op.arg: array for op, array in values.items()}
    params = [op for op in toposort(doubles) if op.code is OpCode.PARAM]
    return evaluate(doubles, {op: wide(by_slot[op.arg]) for op in params}, variables)


def _evaluate_kernels(schedule: Schedule, inputs: Sequence[Array], variables: Mapping[str, int]) -> list[Array]:
    """Returns the values of a schedule's roots, kernel by kernel in float64."""
    doubles: dict[Kernel, list[tuple[int, Op]]] = {}

    def execute(step: Step, slots: list[Array]) -> None:
        kernel = step.item.kernel
        if kernel not in doubles:
            values = values_of(kernel)
            doubles[kernel] = list(zip([slot for slot, _ in values], in_double([value for _, value in values])))
        parts = [(slot, value, None) for slot, value in doubles[kernel]]
        results = evaluate([value for _, value, _ in parts], in_params(parts, slots, variables), variables)
        for (slot, _, _), result in zip(parts, results):
            slots[slot][: result.size] = result.reshape(-1)

    memory = memory_for(schedule, list(map(wide, inputs)), variables, _wide_dtype)
    walk(schedule, memory, variables, execute, _wide_dtype)
    return [memory[i] for i in schedule.outputs]


def _wide_dtype(dtype: DType) -> Any:
    return np.float64 if dtype.is_float else dtype.numpy


def _noise(a: Array, b: Array, step: float) -> Array:
    """Returns the tolerances: the change for inputs that differ slightly, plus a rounding of the largest element."""
    if a.dtype.kind in "biu":
        return np.where(a != b, np.inf, 0.0)
    with np.errstate(all="ignore"):
        change, size = np.abs(a - b), np.abs(a)
    finite = np.isfinite(change) & np.isfinite(size)
    return np.full(a.shape, float(change[finite].max(initial=0) + step * size[finite].max(initial=0)) + 1e-290)


def _first_wrong(found: Sequence[Array], expected: Sequence[Array], noise: Sequence[Array]) -> tuple[int, str] | None:
    for number, (a, b, allowed) in enumerate(zip(found, expected, noise)):
        a, b, allowed = a.reshape(-1)[: b.size], b.reshape(-1), allowed.reshape(-1)
        with np.errstate(all="ignore"):
            is_near = np.isinf(allowed) if b.dtype.kind in "biu" else np.abs(a - b) <= allowed
            wrong = ~((a == b) | ((a != a) & (b != b)) | is_near)
        if wrong.any():
            at = int(wrong.argmax())
            return number, f"{int(wrong.sum())} of {wrong.size} elements, the first {a[at]} instead of {b[at]}."
    return None


def _of_pass(
    name: str, apply: Callable[[Sequence[Op]], Sequence[Op]], before: Sequence[Op], wrong: tuple[int, str],
    values: Mapping[Op, Array], variables: Mapping[str, int], expected: Sequence[Array], noise: Sequence[Array],
) -> Mismatch:  # fmt: skip
    """Returns the mismatch of a pass; in a table of rules, that of the first rule application that matters."""
    number, fact = wrong

    def is_wrong(limit: int) -> bool:
        with limited(limit):
            after = apply(before)
        return _first_wrong(_evaluate(after, values, variables), expected, noise) is not None

    applied = which(lambda: apply(before), is_wrong)
    if applied is None:
        return Mismatch(
            f"the pass {name}", f"changes what result {number} is: {fact}", _shown(before), lines_in([before[number]])
        )
    rule, op = applied
    return Mismatch(
        f'the rule "{rule}" of {name}', f"changes what result {number} is: {fact}", _shown([op]), lines_in([op])
    )


def _shown(roots: Sequence[Op]) -> str:
    """Formats graphs; of long ones the last Ops."""
    lines = format_graph(roots).strip().splitlines()
    return "\n".join(lines if len(lines) <= SHOWN_OPS_MAX else ["...", *lines[-SHOWN_OPS_MAX:]])
