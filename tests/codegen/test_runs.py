"""Sums in runs: every position once and in order, and no total to which more is added than a run has."""

from __future__ import annotations

from itertools import product

import pytest

from picograd import dtype as dtypes
from picograd.codegen.loops import RUN_STEPS, _loops
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

Position = tuple[int, ...]


def walked(extents: tuple[int, ...], run: int = RUN_STEPS) -> tuple[list[Position], int]:
    """Returns the positions in the order they are added up, and the longest chain of additions to one total."""
    loops, longest = _loops(extents, run), 0
    positions: list[Position] = []

    def walk(number: int, at: Position) -> int:
        """Returns how many additions are made to the total around loop `number`."""
        nonlocal longest
        if number == len(loops):
            positions.append(at)
            return 1
        loop, additions = loops[number], 0
        left = -(-(extents[loop.axis] - at[loop.axis]) // loop.step)
        for index in range(min(left, loop.count) if loop.count else left):
            place = (*at[: loop.axis], at[loop.axis] + index * loop.step, *at[loop.axis + 1 :])
            additions += walk(number + 1, place)
        longest = max(longest, additions)
        return 1 if loop.is_run else additions

    walk(0, (0,) * len(extents))
    return positions, longest


EXTENTS = [(1,), (8,), (9,), (64,), (65,), (625,), (4096,), (5, 7), (3, 9), (100, 4, 3), (40, 1, 30), (2, 0)]


@pytest.mark.parametrize("extents", EXTENTS)
def test_each_position_is_added_once_in_order_in_short_chains(extents: tuple[int, ...]) -> None:
    positions, longest = walked(extents)
    assert positions == list(product(*map(range, extents)))
    assert longest <= RUN_STEPS


def test_a_first_run_may_be_shorter_or_longer() -> None:
    assert walked((1000,), 1)[1] <= RUN_STEPS
    assert walked((1000, 3), 2)[1] <= RUN_STEPS
    assert walked((160,), 16)[1] == 16


def test_a_sum_no_longer_than_a_run_is_one_loop() -> None:
    assert [loop.count for loop in _loops((RUN_STEPS,), RUN_STEPS)] == [0]


@pytest.mark.parametrize(("most", "levels"), [(8, 0), (64, 1), (1000, 3), (10**9, 9)])
def test_a_length_that_is_not_known_is_cut_by_the_greatest_it_may_have(most: int, levels: int) -> None:
    length = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, most))
    assert sum(loop.is_run for loop in _loops((length,), RUN_STEPS)) == levels
