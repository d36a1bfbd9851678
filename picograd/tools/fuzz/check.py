"""What is held of a random graph: a device computes what the evaluator does, and gradients are slopes.

In:    a `Graph`
Out:   `Wrong`, or nothing
Next:  picograd/tools/fuzz/opts.py
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.autodiff.gradient import gradient
from picograd.engine.realize import from_host, realize, to_host
from picograd.evaluator import evaluate
from picograd.ir.bodies import substitute
from picograd.ir.op import Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.tools.fuzz.values import Array, Graph

STEP = 1e-6  # of a central difference: its error is about STEP ** 2 of the third derivative, 1e-16 / STEP of rounding


class Wrong(AssertionError):
    """Two ways of computing a graph that differ."""


def run_on(device: str, roots: Sequence[Op], arrays: Mapping[Op, Array]) -> list[Array]:
    """Returns the values a device computes for graphs over PARAMs."""
    known = {op for op in toposort(roots) if op.code is OpCode.PARAM}
    places = {op: from_host(array, op.dtype, device) for op, array in arrays.items() if op in known}
    return [to_host(op) for op in realize(substitute(roots, places))]


def check_values(graph: Graph, device: str) -> None:
    """Holds what a device computes against the evaluator's value of it.

    Twice the bound is allowed: the evaluator rounds once where a device rounds often, and both may be off.

    Raises:
      Wrong: a root differs by more.
    """
    expected = evaluate(graph.roots, graph.arrays)
    found = run_on(device, graph.roots, graph.arrays)
    for number, (a, b, error) in enumerate(zip(found, expected, graph.errors)):
        compare(f"root {number} on {device}", a, b, 2 * error)


def compare(said: str, found: Array, expected: Array, tolerance: float) -> None:
    """Raises Wrong where arrays differ by more than a tolerance."""
    if found.shape != expected.shape or found.dtype != expected.dtype:
        raise Wrong(f"{said}: {found.dtype} {found.shape}, the evaluator has {expected.dtype} {expected.shape}")
    if found.dtype.kind in "biu":
        wrong = found != expected
    else:
        a, b = found.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            wrong = ~((np.abs(a - b) <= tolerance) | (a == b) | (np.isnan(a) & np.isnan(b)))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Wrong(
            f"{said}: {int(wrong.sum())} of {wrong.size} elements differ by more than {tolerance:.2g}; "
            f"at {at} {found[at]}, the evaluator has {expected[at]}"
        )


# ---- gradients ----
def check_gradients(graph: Graph, device: str, seed: int) -> bool:
    """Holds gradients, on the evaluator and on a device, against central differences along a random direction.

    L = sum of each float root times random weights; sum of dL/dx v over the float PARAMs x is the slope of L along v.
    Returns whether there was anything to hold: a float root that depends on a float PARAM, and no kink within a step.

    Raises:
      Wrong: they differ by more than rounding and the step explain.
    """
    rng = np.random.default_rng(seed)
    roots = [root for root in graph.roots if root.dtype is dtypes.float64]
    params = [op for op in toposort(roots) if op.code is OpCode.PARAM and op.dtype is dtypes.float64]
    if not roots or not params:
        return False
    loss = weighted_sum(roots, rng)
    direction = {op: np.asarray(rng.standard_normal(graph.arrays[op].shape)) for op in params}
    slope, doubt = central_difference(loss, graph.arrays, direction)
    for name, grads in gradients_of(loss, params, graph.arrays, device).items():
        along = [(grad * direction[op]).sum() for op, grad in grads.items()]
        tolerance = 1e-6 * (1.0 + sum(float(np.abs(grad * direction[op]).sum()) for op, grad in grads.items()))
        if doubt > tolerance:
            return False  # two steps see two slopes: a kink is near, or the function bends too much to tell
        if not abs(float(sum(along)) - slope) <= tolerance + 2 * doubt:
            raise Wrong(f"gradients on {name}: {float(sum(along)):.12g} along a direction, the slope is {slope:.12g}")
    return True


def weighted_sum(roots: Sequence[Op], rng: np.random.Generator) -> Op:
    """Returns the sum of all elements of all roots, each root times a number of its own."""
    total = filled(0.0, dtypes.float64, ())
    for root in roots:
        axes = tuple(range(len(root.shape)))
        whole = Op(OpCode.REDUCE, root.dtype, (root,), (OpCode.ADD, axes)) if axes else root
        total = total + whole * float(rng.uniform(0.5, 2.0))
    return total


def central_difference(loss: Op, arrays: Mapping[Op, Array], direction: Mapping[Op, Array]) -> tuple[float, float]:
    """Returns the slope along a direction, and by how much two steps disagree on it."""

    def at(step: float) -> float:
        moved = {op: array + step * direction[op] if op in direction else array for op, array in arrays.items()}
        return float(evaluate([loss], moved)[0])

    near, far = ((at(step) - at(-step)) / (2 * step) for step in (STEP, 4 * STEP))
    return near, abs(near - far)


def gradients_of(loss: Op, params: Sequence[Op], arrays: Mapping[Op, Array], device: str) -> dict[str, dict[Op, Array]]:
    """Returns for the evaluator and for a device the gradient by each PARAM that the loss depends on."""
    leaves = {op: Op(OpCode.LEAF, op.dtype, (op,), -1 - number) for number, op in enumerate(params)}
    (root,) = substitute([loss], leaves)
    grads = gradient(root, filled(1.0, dtypes.float64, ()), leaves.values()) if root.needs_grad else {}
    found = {op: grads[leaf] for op, leaf in leaves.items() if leaf in grads}
    graphs = list(found.values())
    values = {"the evaluator": evaluate(graphs, arrays), device: run_on(device, graphs, arrays)}
    return {name: dict(zip(found, grad)) for name, grad in values.items()}
