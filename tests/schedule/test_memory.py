"""The arena: temporaries that live at the same time never overlap, others share memory (G8)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picograd import Tensor
from picograd.ir.backend import ALIGNMENT
from picograd.look import watch
from picograd.schedule import memory
from picograd.schedule.memory import Lender, Lifetime, place_temporaries, plan_memory

pytestmark = pytest.mark.req("G8")
Planner = Callable[[list[Lifetime]], tuple[list[int], int]]
LIFETIMES = st.lists(
    st.builds(
        lambda nbytes, first, length, in_arena: Lifetime(nbytes, first, first + length, in_arena),
        st.integers(0, 5000), st.integers(0, 30), st.integers(0, 10), st.booleans(),
    ),
    max_size=40,
)  # fmt: skip
HOSTS = st.lists(st.builds(Lender, st.integers(0, 5000), st.integers(0, 20), st.integers(0, 40)), max_size=4)


@pytest.mark.parametrize("plan", [memory._by_length, memory._by_time])
@given(LIFETIMES)
def test_what_lives_at_the_same_time_never_overlaps(plan: Planner, lifetimes: list[Lifetime]) -> None:
    offsets, total = plan(lifetimes)
    for i, a in enumerate(lifetimes):
        assert offsets[i] % ALIGNMENT == 0
        assert offsets[i] >= 0 and offsets[i] + a.nbytes <= total
        for j, b in enumerate(lifetimes[:i]):
            together = a.first <= b.last and b.first <= a.last
            apart = offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
            assert apart or not together or not a.nbytes or not b.nbytes


@pytest.mark.parametrize("plan", [memory._by_length, memory._by_time])
@given(LIFETIMES)
def test_the_arena_is_no_longer_than_all_temporaries_and_no_shorter_than_the_busiest_moment(
    plan: Planner, lifetimes: list[Lifetime]
) -> None:
    _, total = plan(lifetimes)
    assert total <= sum(-(-a.nbytes // ALIGNMENT) * ALIGNMENT for a in lifetimes)
    for moment in range(41):
        assert total >= sum(a.nbytes for a in lifetimes if a.first <= moment <= a.last)


@given(LIFETIMES, HOSTS)
def test_an_output_takes_in_what_fits_one_after_the_other_before_it_is_written(
    lifetimes: list[Lifetime], lenders: list[Lender]
) -> None:
    chosen, offsets, total = place_temporaries(lifetimes, lenders)
    assert total <= plan_memory(lifetimes)[1]
    for i, a in enumerate(lifetimes):
        number = chosen[i]
        if number is not None:
            lender = lenders[number]
            assert a.nbytes <= lender.nbytes and lender.first <= a.first and a.last < lender.end and not a.in_arena
        for j, b in enumerate(lifetimes[:i]):
            together = a.first <= b.last and b.first <= a.last and a.nbytes and b.nbytes and chosen[i] == chosen[j]
            if together:
                assert number is None
                assert offsets[i] + a.nbytes <= offsets[j] or offsets[j] + b.nbytes <= offsets[i]
        assert number is not None or offsets[i] + a.nbytes <= total


def test_outputs_take_in_nothing_where_that_makes_the_arena_no_shorter() -> None:
    lifetimes = [Lifetime(64, 0, 1), Lifetime(640, 2, 3)]
    assert place_temporaries(lifetimes, [Lender(64, 0, 3)]) == ([None, None], [0, 0], 640)


@pytest.mark.parametrize("length", [512, 2048])  # of either way to plan
def test_activations_that_are_freed_in_reverse_leave_no_holes(length: int) -> None:
    forward = [Lifetime(640, i, 2 * length - i) for i in range(length)]
    backward = [Lifetime(640, length + i, length + i + 1) for i in range(length)]
    _, total = plan_memory(forward + backward)
    assert total <= 640 * (length + 2)


def test_a_chain_of_kernels_needs_two_temporaries_at_a_time_one_in_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    x = y = Tensor(np.ones((16, 16), np.float32))
    for step in range(4):  # two steps differ, and four are no loop
        y = (y @ x) / 2 ** (2 * step)
        y = (y @ x - 1).abs() / 2**step
    with watch() as counts:
        assert (y.numpy() == 16318.75).all()
    assert counts.kernels == 8
    assert counts.temporary_nbytes == 7 * 1024
    assert counts.arena_nbytes == 1024


@pytest.mark.parametrize("device", ["CPU", "CUDASIM"])
def test_what_a_phase_reads_last_lies_where_the_next_one_writes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", device)
    rng = np.random.default_rng(0)
    # Whole numbers below 2**24: float32 products and sums are exact in any order.
    matrices = [rng.integers(-1, 2, (64, 64)).astype(np.float32) for _ in range(5)]
    y = x = Tensor(np.ones(64, np.float32))
    for matrix in matrices:
        y = Tensor(matrix) @ y
    with watch() as counts:
        found = y.numpy()
    assert counts.kernels == 1 and counts.launches == 5
    # Of four temporaries two live at a time, one of them in the output: but for the last, which the output is made of.
    assert counts.temporary_nbytes == 4 * x.nbytes and counts.arena_nbytes == x.nbytes
    assert (found == np.linalg.multi_dot([*reversed(matrices), x.numpy()])).all()


def test_a_temporary_is_not_reused_while_a_later_kernel_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    data = np.random.default_rng(0).integers(-2, 3, (6, 6)).astype(np.float32)
    x = Tensor(data)
    first = x @ x
    second = first @ x
    third = second @ x
    # Whole numbers below 2**24: float32 products and sums are exact in any order.
    expected = (np.linalg.matrix_power(data.astype(np.int64), 4) + data @ data).astype(np.float32)
    assert ((third + first).numpy() == expected).all()
