"""Random graphs have one meaning at every level: graph, simplified graph, Kernels, Programs, CPU.

A failing graph is cut down to the first of its parts that fails by itself, and printed. To look for more than a test
run has time for:  python -m tests.fuzz.test_graphs 1000 2000
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest

from picograd import dtype as dtypes
from picograd.ir.bodies import bodies_in
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.text import format_graph
from tests.fuzz.bodies import WITH_BODIES
from tests.fuzz.generator import ACTIONS, Generator, Graph
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

DTYPES = [
    (dtypes.float32,),
    (dtypes.float32,),
    (dtypes.float32, dtypes.int32, dtypes.bool_),
    (dtypes.float32,),
    (dtypes.int64, dtypes.int32, dtypes.float32),
    (dtypes.float16, dtypes.bfloat16, dtypes.float32),
    (dtypes.float64, dtypes.float32, dtypes.uint8, dtypes.int16),
    (dtypes.bool_, dtypes.uint32, dtypes.uint64, dtypes.int8),
]
FEW = 600  # elements of one value; what runs in Python is slow
SEEDS = range(200)
SEEDS_WITH_BODIES = range(100_000, 100_060)  # from here on graphs have loops and calls


def graph_of(seed: int) -> Graph:
    """A graph of 3 to 30 operations; one in ten has long axes and is not run as a Program."""
    most = FEW if seed % 10 else 10 * FEW
    actions = WITH_BODIES if seed >= SEEDS_WITH_BODIES.start else ACTIONS
    return Generator(seed, most, DTYPES[seed % len(DTYPES)], actions).make(steps=3 + seed % 28)


def check(graph: Graph, roots: Sequence[Op], errors: Sequence[float], seed: int) -> None:
    order = toposort(roots)
    codes = {op.code for part in (order, *(toposort(body.src) for body in bodies_in(order))) for op in part}
    targets = [CPU_TARGETS[seed % len(CPU_TARGETS)]] if seed % 10 else []
    if seed % 4 == 1 and OpCode.MATMUL not in codes and targets:
        targets.append(GPU_TARGET)
    # Twice the bound: the evaluator rounds once where a device rounds often, and both may be off.
    check_same_meaning(
        roots, graph.arrays, [2 * error for error in errors], targets, kernel_tolerance=2 * graph.most_error
    )


def first_failing_part(graph: Graph, seed: int) -> Op | None:
    """Returns the first Op, sources first, that fails as the only root."""
    for op in toposort(graph.roots):
        if op.code is not OpCode.PARAM:
            try:
                check(graph, [op], [max(graph.errors)], seed)
            except Exception:
                return op
    return None


@pytest.mark.parametrize("seed", [*SEEDS, *SEEDS_WITH_BODIES])
def test_a_random_graph_has_one_meaning(seed: int) -> None:
    graph = graph_of(seed)
    try:
        check(graph, graph.roots, graph.errors, seed)
    except Exception as error:
        part = first_failing_part(graph, seed)
        shown = "only together:\n" + format_graph(graph.roots) if part is None else format_graph([part])
        raise AssertionError(f"seed {seed}: {shown}\n{type(error).__name__}: {error}") from error


def main() -> None:
    """Runs the seeds from the first argument up to the second."""
    failures = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        try:
            test_a_random_graph_has_one_meaning(seed)
        except AssertionError as error:
            failures += 1
            print(str(error)[:4000], flush=True)
    print(f"{failures} failures")


if __name__ == "__main__":
    main()
