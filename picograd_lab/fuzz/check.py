"""Compares a random graph with the evaluator: its values, its gradients with slopes, its products with other tiles.

In:    a `Graph`; a seed for the tiles
Out:   `Wrong`, or nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.autodiff.gradient import gradient
from picograd.codegen.emit import candidates, guess
from picograd.device import Target
from picograd.engine.realize import from_host, realize, to_host
from picograd.evaluator import evaluate, evaluate_kernel, evaluate_program
from picograd.evaluator.graph import unspecified
from picograd.ir.bodies import substitute
from picograd.ir.op import Op, filled, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.opts import BlockTile, Opts, RegisterTile, Tile, WarpTile
from picograd.ir.pattern import graph_rewrite
from picograd.ir.spec import verify_program
from picograd.ir.stages import Kernel, LoopItem, NestKind, Program, Schedule
from picograd.rewrites.simplify import simplify_graph, strip_identity
from picograd.road import create_schedule, lower
from picograd_lab.fuzz.values import Array, Graph

# ---- values and gradients ----
STEP = 1e-6  # of a central difference: error about STEP ** 2 of the third derivative plus 1e-16 / STEP of rounding


class Wrong(AssertionError):
    """Two computations of a graph that differ."""


def run_on(device: str, roots: Sequence[Op], arrays: Mapping[Op, Array]) -> list[Array]:
    """Returns a device's values for graphs over PARAMs."""
    known = {op for op in toposort(roots) if op.code is OpCode.PARAM}
    places = {op: from_host(array, op.dtype, device) for op, array in arrays.items() if op in known}
    return [to_host(op) for op in realize(substitute(roots, places))]


def check_values(graph: Graph, device: str) -> None:
    """Compares a device's results with the evaluator's.

    The tolerance is twice the bound: the evaluator rounds once, a device often, and both may be off.

    Raises:
      Wrong: a root differs by more than the tolerance.
    """
    expected = evaluate(graph.roots, graph.arrays)
    found = run_on(device, graph.roots, graph.arrays)
    for number, (a, b, error) in enumerate(zip(found, expected, graph.errors)):
        compare(f"root {number} on {device}", a, b, 2 * error)


def compare(said: str, found: Array, expected: Array, tolerance: float) -> None:
    """Raises Wrong if arrays differ by more than a tolerance."""
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
    """Compares gradients, on the evaluator and on a device, with central differences along a random direction.

    L = sum of each float root times random weights; sum of dL/dx v over the float PARAMs x is the slope of L along v.
    Returns False if there is nothing to compare: no float root depends on a float PARAM, or a kink is within a step.

    Raises:
      Wrong: they differ by more than roundings and the step explain.
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
            return False  # two steps have different slopes: a kink is near, or the function curves too much
        if not abs(float(sum(along)) - slope) <= tolerance + 2 * doubt:
            raise Wrong(f"gradients on {name}: {float(sum(along)):.12g} along a direction, the slope is {slope:.12g}")
    return True


def weighted_sum(roots: Sequence[Op], rng: np.random.Generator) -> Op:
    """Returns the sum of all elements of all roots, each root times its own number."""
    total = filled(0.0, dtypes.float64, ())
    for root in roots:
        axes = tuple(range(len(root.shape)))
        whole = Op(OpCode.REDUCE, root.dtype, (root,), (OpCode.ADD, axes)) if axes else root
        total = total + whole * float(rng.uniform(0.5, 2.0))
    return total


def central_difference(loss: Op, arrays: Mapping[Op, Array], direction: Mapping[Op, Array]) -> tuple[float, float]:
    """Returns the slope along a direction, and the difference of two steps' slopes."""

    def at(step: float) -> float:
        moved = {op: array + step * direction[op] if op in direction else array for op, array in arrays.items()}
        return float(evaluate([loss], moved)[0])

    near, far = ((at(step) - at(-step)) / (2 * step) for step in (STEP, 4 * STEP))
    return near, abs(near - far)


def gradients_of(loss: Op, params: Sequence[Op], arrays: Mapping[Op, Array], device: str) -> dict[str, dict[Op, Array]]:
    """Returns the evaluator's and a device's gradient with respect to each PARAM that the loss depends on."""
    leaves = {op: Op(OpCode.LEAF, op.dtype, (op,), -1 - number) for number, op in enumerate(params)}
    (root,) = substitute([loss], leaves)
    grads = gradient(root, filled(1.0, dtypes.float64, ()), leaves.values()) if root.needs_grad else {}
    found = {op: grads[leaf] for op, leaf in leaves.items() if leaf in grads}
    graphs = list(found.values())
    values = {"the evaluator": evaluate(graphs, arrays), device: run_on(device, graphs, arrays)}
    return {name: dict(zip(found, grad)) for name, grad in values.items()}


# ---- products cut in any way ----
TILES = 3  # tiles drawn for each seed
THREADS = 64


def check_opts(graph: Graph, seed: int) -> bool:
    """Compares every kernel with a product, with random tiles, with the evaluator and with the best guess's bits.

    All kernels get the same tiles, so that a reduced graph gets them, too. Returns whether the graph has a product.

    Raises:
      Wrong: a result differs by more than roundings explain, or in a bit from the best guess's.
    """
    roots = graph_rewrite(graph.roots, strip_identity)
    schedule = create_schedule(simplify_graph([roots[root] for root in graph.roots]))
    memory, held = memory_of(schedule, graph), False
    for item in schedule.items:
        assert not isinstance(item, LoopItem), "a graph of products has no loops"
        slots = [memory[i] for i in item.buffers]
        if products_in(item.kernel):
            check_kernel(item.kernel, slots, 2 * graph.most_error, seed)
            held = True
        evaluate_kernel(item.kernel, slots)
    return held


def memory_of(schedule: Schedule, graph: Graph) -> list[Array]:
    """Returns memory for each buffer; a result written over an input shares its memory, all others have their own."""
    inputs = [np.array(graph.arrays[op], order="C").reshape(-1) for op in schedule.inputs]
    return [
        inputs[use.source] if use.role == "input" else inputs[use.over] if use.over is not None
        else unspecified(greatest(use.numel), use.dtype.numpy)
        for use in schedule.buffers
    ]  # fmt: skip


def products_in(kernel: Kernel) -> int:
    return sum(nest.kind is NestKind.MATMUL for phase in kernel.phases for nest in phase)


def choices(kernel: Kernel, seed: int) -> Iterator[tuple[Target, Opts]]:
    """Yields targets and options of the lowering: one of the candidates, then tiles outside of them."""
    rng = np.random.default_rng(seed)

    def draw(least: int, most: int) -> int:
        return int(rng.integers(least, most + 1))

    cpu = Target("CPU", "llvm", "any", vector_bytes=16 << draw(0, 2), num_registers=16 << draw(0, 1))
    newer = bool(draw(0, 1))  # matrix instructions, and copies in the background
    gpu = Target(
        "CUDASIM", "cuda", "any", vector_bytes=16, block_threads=THREADS, shared_bytes=96 * 1024,
        has_mma=newer, has_async_copies=newer,
    )  # fmt: skip

    def tile(usual: Tile) -> Tile:
        if isinstance(usual, RegisterTile):
            return RegisterTile(draw(1, 13), draw(1, 4), draw(1, 9), bool(draw(0, 1)))
        if isinstance(usual, BlockTile):
            return BlockTile(2 ** draw(0, 2), 2 ** draw(0, 3), draw(1, 8), draw(1, 8), draw(1, 20))
        return WarpTile(1, draw(1, 2), draw(1, 3), 2 * draw(1, 3), 16 * draw(1, 3))

    for target in (cpu, gpu):
        worth_trying = candidates(kernel, target)
        yield target, worth_trying[draw(0, 99) % len(worth_trying)]
    for target in (*[cpu] * TILES, gpu):
        yield target, Opts(tuple(map(tile, guess(kernel, target).products)))


def check_kernel(kernel: Kernel, slots: Sequence[Array], tolerance: float, seed: int) -> None:
    """Compares the Programs of a kernel with the evaluator's values, and bit by bit with each other."""
    expected = copies(slots)
    evaluate_kernel(kernel, expected)
    usual: dict[Target, list[Array]] = {}
    for target, opts in choices(kernel, seed):
        if target not in usual:
            usual[target] = run(lower(kernel, target, guess(kernel, target)), slots)
        found = run(lower(kernel, target, opts), slots)
        for param, a, same, b in zip(kernel.params, found, usual[target], expected):
            if param.role in ("out", "inout"):
                said = f"{kernel.name} for {target.language} with {opts}"
                compare(said, a, b, tolerance)
                if a.tobytes() != same.tobytes():
                    raise Wrong(f"{said}: other bits than with {guess(kernel, target)}")


def run(program: Program, slots: Sequence[Array]) -> list[Array]:
    """Runs a program and returns its memory."""
    verify_program(program, after="lower")
    memory = copies(slots)
    evaluate_program(program, memory)
    return memory


def copies(slots: Sequence[Array]) -> list[Array]:
    """Returns copies of arrays; shared memory stays shared."""
    made = {id(slot): slot.copy() for slot in slots}
    return [made[id(slot)] for slot in slots]
