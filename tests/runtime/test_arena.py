"""Temporaries of a plan for many lengths: pieces that are apart for the greatest lengths are apart for those of a run."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import picograd as pg
from picograd import Tensor
from picograd import dtype as dtypes
from picograd.devices import launches
from picograd.devices.launches import SPREAD_NBYTES_MAX, Temporaries
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.stages import BufferUse, Executable, Feed, LoopItem, Param, Result, Schedule, ScheduleItem
from picograd.ir.symbolic import add, dim_value, mul
from picograd_lab.verify.walk import memory_as_planned
from tests.helpers import forgotten

pytestmark = pytest.mark.req("G8")
MOST, LARGE = 40, SPREAD_NBYTES_MAX + 64
N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 0, MOST))
LENGTHS: tuple[Dim, ...] = (3, 50, N, mul(N, 3), add(mul(N, N), 7))


def greatest_nbytes(numel: Dim) -> int:
    return 4 * dim_value(numel, {"n": MOST})


@given(
    drawn=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(LENGTHS)), max_size=12), n=st.integers(0, MOST),
    inside=st.lists(st.sampled_from(LENGTHS), max_size=3), alignment=st.sampled_from([64, 256]),
)  # fmt: skip
def test_what_is_apart_stays_apart_and_a_run_takes_no_more(
    drawn: list[tuple[int, Dim]], n: int, inside: list[Dim], alignment: int
) -> None:
    """Places are drawn at random, so some overlap; a loop has temporaries and a carry in memory of its own."""
    uses = [BufferUse(dtypes.float32, numel, "temporary", 256 * start) for start, numel in drawn]
    body, end = [], 0
    for numel in inside:
        body.append(BufferUse(dtypes.float32, numel, "temporary", end))
        end += -(-greatest_nbytes(numel) // 256) * 256
    carry = BufferUse(dtypes.float32, N, "output", 0)
    own = BufferUse(dtypes.uint8, end + 256, "temporary", 8192)
    loop = LoopItem(
        Schedule((), (*body, carry), (), (), end), 3, (Feed(0),), (Result(None, spare=None, other=end),), len(uses)
    )  # fmt: skip
    schedule = Schedule((loop,), (*uses, own), (), (), LARGE)
    found = Temporaries(schedule, [], alignment)
    inner = [(8192 + use.source, use.numel) for use in body]
    pieces = [*((use.source, use.numel) for use in uses), *inner, (8192 + end, N)]
    places, nbytes = found.places({"n": n})
    lengths = [4 * dim_value(numel, {"n": n}) for _, numel in pieces]
    assert all(places[start] % alignment == 0 and places[start] + own <= nbytes for (start, _), own in zip(pieces, lengths))
    for (a, of_a), (b, of_b) in combinations(zip(pieces, lengths), 2):
        if a[0] + greatest_nbytes(a[1]) <= b[0] or b[0] + greatest_nbytes(b[1]) <= a[0]:
            assert places[a[0]] + of_a <= places[b[0]] or places[b[0]] + of_b <= places[a[0]]
    assert nbytes <= sum(-(-own // alignment) * alignment for own in lengths)


def test_scratch_memory_has_its_length_in_a_run() -> None:
    uses = BufferUse(dtypes.float32, N, "input", 0), BufferUse(dtypes.float32, N, "temporary", 0)
    item = ScheduleItem(None, (0, 1))  # type: ignore[arg-type]
    schedule = Schedule((item,), uses, (), (), LARGE)
    params = (Param(dtypes.float32, N, "in"), Param(dtypes.float32, N, "out"), Param(dtypes.float32, mul(N, 5), "scratch"))
    found = Temporaries(schedule, [Executable("k", params, (), (), ())], 64)
    assert (found.starts, found.scratch) == ([0, 192], [[(192, 992)]])
    assert found.places({"n": 8}) == ({0: 0, 192: 64}, 64 + 192)
    assert found.places({"n": 0}) == ({0: 0, 192: 0}, 0)


def test_a_walk_through_a_plan_takes_the_memory_of_a_run() -> None:
    """Whose temporaries would have 8 TB at the greatest length."""
    n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 0, 1 << 40))
    uses = tuple(BufferUse(dtypes.float32, n, "temporary", start) for start in (0, 1 << 42))
    first, second = memory_as_planned(Schedule((), uses, (), (), 1 << 43), [], {"n": 20})
    assert (first.shape, second.shape) == ((20,), (20,)) and not np.shares_memory(first, second)
    assert second.ctypes.data - first.ctypes.data == 128


@pytest.fixture
def compact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "SPREAD_NBYTES_MAX", -1)
    forgotten()


def states(x: Any, w: Any) -> Any:
    """Products around a loop that carries a state; what it adds up has the length of x."""
    hidden = (x @ w).sort(0)[0]
    state, rows = pg.scan(lambda state, row: ((state + row) * 0.5, state.cumsum(0)), hidden[0], hidden @ w)
    return (rows.sort(1)[0] @ w).cumsum(0) + state


@pytest.mark.usefixtures("compact")
@pytest.mark.parametrize("device", ["CPU", "CUDASIM", "OPENCL"])
def test_plans_of_many_lengths_have_the_values_of_each(device: str) -> None:
    if device == "OPENCL":
        pytest.importorskip("pyopencl", reason="the OpenCL package is not installed")
    n, rng = pg.Variable("n", 1, 30), np.random.default_rng(0)
    x, w = rng.standard_normal((30, 6), np.float32), rng.standard_normal((6, 6), np.float32) * 0.3
    held, weight = Tensor(x, device=device), Tensor(w, device=device)
    for length in (7, 30, 1, 29, 7):
        found = states(held[: n.bind(length)], weight).numpy()
        np.testing.assert_allclose(found, states(Tensor(x[:length]), Tensor(w)).numpy(), rtol=1e-4, atol=1e-5)
