"""Random graphs have one meaning: at every level of the road, on the CPU, and their gradients are slopes.

A failing graph is made small and printed as a script. To look for more than a test run has time for: `picograd fuzz`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from picograd.ir.bodies import bodies_in
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd_lab.fuzz.failures import script, shrink
from picograd_lab.fuzz.graphs import any_graph
from picograd_lab.fuzz.run import try_seed
from picograd_lab.fuzz.values import Graph
from tests.same_meaning import CPU_TARGETS, GPU_TARGET, check_same_meaning

FEW = 600  # elements of one value; what runs in Python is slow
SEEDS = range(200)
SEEDS_WITH_BODIES = range(100_000, 100_060)  # graphs with loops and calls
ON_THE_CPU = range(100)  # of five seeds each
PER_TEST = 5


def graph_of(seed: int) -> Graph:
    """A graph of 3 to 55 operations; one in ten has long axes and is not run as a Program."""
    return any_graph(seed, FEW if seed % 10 else 10 * FEW, has_bodies=seed in SEEDS_WITH_BODIES)


def check_all_levels(graph: Graph, seed: int) -> None:
    """Holds every level of the road against the evaluator."""
    order = toposort(graph.roots)
    codes = {op.code for part in (order, *(toposort(body.src) for body in bodies_in(order))) for op in part}
    targets = [CPU_TARGETS[seed % len(CPU_TARGETS)]] if seed % 10 else []
    if seed % 4 == 1 and OpCode.MATMUL not in codes and targets:
        targets.append(GPU_TARGET)
    # Twice the bound: the evaluator rounds once where a device rounds often, and both may be off.
    errors = [2 * error for error in graph.errors]
    check_same_meaning(graph.roots, graph.arrays, errors, targets, kernel_tolerance=2 * graph.most_error)


@pytest.mark.variants(every=23)
@pytest.mark.req("I1")
@pytest.mark.parametrize("seed", [*SEEDS, *SEEDS_WITH_BODIES])
def test_a_random_graph_has_one_meaning(seed: int) -> None:
    graph = graph_of(seed)
    try:
        check_all_levels(graph, seed)
    except Exception as error:
        small = shrink(graph, lambda smaller: check_all_levels(smaller, seed), type(error))
        said = f"{type(error).__name__}: {error}"
        raise AssertionError(script(small, "check_values", "'CPU'", f"seed {seed}", said)) from error


@pytest.mark.variants(every=67)
@pytest.mark.req("I1")
@pytest.mark.parametrize("kind", ["values", "gradients"])
@pytest.mark.parametrize("block", ON_THE_CPU)
def test_a_random_graph_is_computed_and_differentiated_on_the_cpu(block: int, kind: str) -> None:
    for seed in range(block * PER_TEST, (block + 1) * PER_TEST):
        failure, _ = try_seed(kind, seed + 1_000, "CPU")
        assert failure is None, failure.source if failure else ""


def depth_of(roots: Sequence[Op]) -> int:
    return max(root.depth for root in roots)


def test_graphs_are_deep_and_know_every_opcode() -> None:
    """A thousand seeds: depths up to 50 and more, several roots, each opcode that users' graphs are made of."""
    codes: set[OpCode] = set()
    deepest = several = 0
    for seed in range(1_000):
        graph = any_graph(seed)
        several += len(graph.roots) > 1
        order = toposort(graph.roots)
        codes |= {op.code for part in (order, *(toposort(body.src) for body in bodies_in(order))) for op in part}
        deepest = max(deepest, depth_of(graph.roots))
    absent = {code.name for code in OpCode if code not in codes}
    assert absent == NOT_DRAWN
    assert deepest >= 50
    assert several > 500


# Made by users' state and devices (tests/devices, tests/transforms), by functions of the host (tests/engine/test_host.py),
# by kernels of users (tests/kernels), by eager code (tests/autodiff/test_later.py), by schedule and codegen, or, attention,
# by nothing yet.
NOT_DRAWN = {
    "BUFFER", "VARIABLE", "BIND", "LEAF", "COPY", "UPDATE", "CHECK", "COLLECTIVE", "CUSTOM", "KERNEL",
    "ATTENTION", "ATTENTION_GRAD", "GRADIENT", "FORMULA", "SINK", "RANGE", "LOAD", "ALLOC", "VAR", "LANES",
}  # fmt: skip
