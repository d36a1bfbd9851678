"""Random graphs of one example, rewritten for several, mean the same as one after the other; on a device, too.

To look for more than a test run has time for:  python -m tests.fuzz.test_vmap 1000 2000
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from picograd.evaluator import evaluate
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.text import format_graph
from picograd.rewrites.vmap import Examples, for_all
from picograd_lab.fuzz.graphs import any_graph
from picograd_lab.fuzz.values import Graph
from tests.fuzz.seeds import run_seeds
from tests.same_meaning import CPU_TARGETS, check_same_meaning

COUNT = 3
FEW = 600  # elements of one value of one example
SEEDS = range(200)
SEEDS_WITH_BODIES = range(100_000, 100_120)  # graphs with loops and calls

Arrays = dict[Op, np.ndarray[Any, Any]]


def graph_of(seed: int) -> Graph:
    return any_graph(seed, FEW, has_bodies=seed >= SEEDS_WITH_BODIES.start)


def examples_of(graph: Graph, seed: int) -> tuple[dict[Op, Op], list[Arrays]]:
    """Returns PARAMs for all examples of some of the graph's PARAMs, and the arrays of each example.

    Example i of an array has its elements i places further, so that bounds and indices hold as before.
    """
    rng = np.random.default_rng(seed)
    names = list(graph.arrays)
    chosen = [op for op in names if rng.random() < 0.6] or names[:1]
    values = {op: Op(OpCode.PARAM, op.dtype, (), (op.arg[0], (COUNT, *op.shape))) for op in chosen}
    each = [
        {op: np.roll(array, i).reshape(array.shape) if op in values else array for op, array in graph.arrays.items()}
        for i in range(COUNT)
    ]
    return values, each


def check(graph: Graph, seed: int, roots: list[Op], errors: list[float]) -> None:
    values, each = examples_of(graph, seed)
    examples = Examples(COUNT)
    found = [operand.each(examples) for operand in for_all(roots, examples, values)]
    together = {values.get(op, op): np.stack([arrays[op] for arrays in each]) for op in values}
    together.update({op: array for op, array in graph.arrays.items() if op not in values})
    result = evaluate(found, together)
    one_by_one = [evaluate(roots, arrays) for arrays in each]
    for i, (root, error) in enumerate(zip(roots, errors)):
        expected = np.stack([arrays[i] for arrays in one_by_one])
        assert result[i].shape == (COUNT, *root.shape)
        # Sums may be added in another order, in float64: twice the bound of a device is plenty.
        np.testing.assert_allclose(result[i].astype("f8"), expected.astype("f8"), rtol=0, atol=2 * error)


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("seed", [*range(1, 20, 2), *range(SEEDS_WITH_BODIES.start, SEEDS_WITH_BODIES.start + 6)])
def test_a_graph_of_all_examples_has_one_meaning_at_every_level(seed: int) -> None:
    graph = graph_of(seed)
    values, each = examples_of(graph, seed)
    examples = Examples(COUNT)
    roots = [operand.each(examples) for operand in for_all(graph.roots, examples, values)]
    arrays = {op: array for op, array in graph.arrays.items() if op not in values}
    arrays.update({values[op]: np.stack([one[op] for one in each]) for op in values})
    errors = [2 * error for error in graph.errors]
    check_same_meaning(roots, arrays, errors, [CPU_TARGETS[seed % len(CPU_TARGETS)]], kernel_tolerance=2 * graph.most_error)


def first_failing_part(graph: Graph, seed: int) -> Op | None:
    for op in toposort(graph.roots):
        if op.code not in (OpCode.PARAM, OpCode.CALL, OpCode.LOOP):  # whose results are the parts
            try:
                check(graph, seed, [op], [max(graph.errors)])
            except Exception:
                return op
    return None


@pytest.mark.variants(every=2)
@pytest.mark.req("A9")
@pytest.mark.parametrize("seed", [*SEEDS, *SEEDS_WITH_BODIES])
def test_a_random_graph_of_all_examples_is_that_of_each(seed: int) -> None:
    graph = graph_of(seed)
    try:
        check(graph, seed, graph.roots, graph.errors)
    except Exception as error:
        part = first_failing_part(graph, seed)
        shown = format_graph(graph.roots if part is None else [part])
        raise AssertionError(f"seed {seed}: {shown}\n{type(error).__name__}: {error}") from error


def test_the_graphs_have_every_opcode_that_the_generator_knows() -> None:
    """And the number of Ops is the same for 2 examples and for 200."""
    met: set[OpCode] = set()
    for seed in [*SEEDS, *SEEDS_WITH_BODIES]:
        graph = graph_of(seed)
        counts = []
        for count in (2, 200):
            values = {op: Op(OpCode.PARAM, op.dtype, (), (op.arg[0], (count, *op.shape))) for op in graph.arrays}
            found = for_all(graph.roots, Examples(count), values)
            counts.append(len(toposort([operand.op for operand in found])))
        assert counts[0] == counts[1], seed
        met.update(op.code for op in toposort(graph.roots))
    for code in ("REDUCE", "SCAN", "SORT", "GATHER", "SCATTER", "MATMUL", "LOOP", "CALL", "WHERE", "CONTIGUOUS", "PAD"):
        assert OpCode[code] in met


if __name__ == "__main__":
    run_seeds(test_a_random_graph_of_all_examples_is_that_of_each)
