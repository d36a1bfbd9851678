"""However products are cut, they have the same bits: random ones, and what is wrong is found and made small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.opts import Opts
from picograd.ir.stages import Kernel, Program
from picograd.ir.statements import For, walk
from picograd.record import replace
from picograd_lab.fuzz import check
from picograd_lab.fuzz.check import Wrong, check_opts
from picograd_lab.fuzz.graphs import product_graph
from picograd_lab.fuzz.run import try_seed
from picograd_lab.fuzz.values import Array, Graph


def test_a_seed_draws_the_same_graph_and_tiles_again() -> None:
    first, second = product_graph(7), product_graph(7)
    assert first.roots == second.roots and [*first.arrays] == [*second.arrays]


@pytest.mark.variants(every=4)
@pytest.mark.parametrize("seed", range(8))
def test_products_cut_in_any_way_have_the_same_bits(seed: int) -> None:
    failure, _ = try_seed("opts", seed, "CPU")
    assert failure is None, failure.source


def test_most_seeds_have_a_product() -> None:
    codes = [{op.code for op in toposort(product_graph(seed).roots)} for seed in range(40)]
    assert sum(OpCode.MATMUL in found for found in codes) > 20


@pytest.mark.variants(first=1)
def test_a_wrong_cut_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs for a GPU whose results are one too large."""
    right = check.run

    def wrong(program: Program, slots: Sequence[Array]) -> list[Array]:
        found = right(program, slots)
        loops = [s for phase in program.phases for s in walk(phase) if isinstance(s, For)]
        if any(loop.range.arg[1] is AxisKind.BLOCK for loop in loops):
            return [x + x.dtype.type(1) if param.role == "out" else x for x, param in zip(found, program.params)]
        return found

    monkeypatch.setattr(check, "run", wrong)
    failures = [try_seed("opts", seed, "CPU")[0] for seed in range(4)]
    failure = next(failure for failure in failures if failure is not None)
    assert "for cuda with block" in failure.error and "elements differ by more" in failure.error
    assert "from picograd_lab.fuzz.check import check_opts" in failure.source
    assert len([line for line in failure.source.splitlines() if line.startswith("%")]) <= 4
    monkeypatch.undo()
    exec(compile(failure.source, "script", "exec"), {})  # it is right, so it passes


def test_other_bits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of zeros that is -0.0 where it is cut in one way: equal, and not the same bits."""
    a, b = (Op(OpCode.PARAM, dtypes.float32, (), (slot, (3, 3))) for slot in range(2))
    zeros = {op: np.zeros((3, 3), np.float32) for op in (a, b)}
    graph = Graph([Op(OpCode.MATMUL, dtypes.float32, (a, b))], zeros, [0.0])
    assert check_opts(graph, 0)
    lower, run = check.lower, check.run

    def named(kernel: Kernel, target: Target, choice: Opts) -> Program:
        return replace(lower(kernel, target, choice), name=str(choice))

    def wrong(program: Program, slots: Sequence[Array]) -> list[Array]:
        return [-x if "transposed" in program.name else x for x in run(program, slots)]

    monkeypatch.setattr(check, "lower", named)
    monkeypatch.setattr(check, "run", wrong)
    with pytest.raises(Wrong, match="other bits than with registers"):
        for seed in range(20):
            check_opts(graph, seed)
