"""Programs, written as text: loops, lanes, memory, threads and barriers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from picograd.errors import VerifyError
from picograd.evaluator import evaluate_program
from picograd.ir.stages import Program
from picograd_lab.reader import parse_program


def backwards(count: int) -> Iterable[int]:
    return reversed(range(count))


def odd_first(count: int) -> Iterable[int]:
    return [*range(1, count, 2), *range(0, count, 2)]


ORDERS = [range, backwards, odd_first]


def program(body: str, params: str = "in out", numel: int = 8, header: str = "") -> Program:
    """A Program with float32 params p0, p1 ... of `numel` elements."""
    lines = [f"param p{i}: {role} float32[{numel}]" for i, role in enumerate(params.split())]
    lines += [f"memory p{i} = {i} float32 ({numel},)" for i in range(len(params.split()))]
    return parse_program("program test\n" + "\n".join("  " + line for line in [*header.split("\n"), *lines]) + body)


def run(body: str, *arrays: Any, order: Any = range, params: str = "in out", numel: int = 8) -> list[Any]:
    out = np.zeros(numel, np.float32)
    evaluate_program(program(body, params, numel), [*arrays, out], order=order)
    return out.tolist()


X = np.arange(8, dtype=np.float32)


@pytest.mark.parametrize("order", ORDERS)
def test_a_free_program(order: Any) -> None:
    body = """
  phase
    for r0 in grid(4):
      for r1 in unroll(2):
        p1[r0 * 2 + r1] = p0[7 - (r0 * 2 + r1)] * 2.0 + 1.0
"""
    assert run(body, X, order=order) == [15.0, 13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0]


def test_a_linear_program_with_lanes() -> None:
    body = """
  phase
    for r0 in grid(2):
      v1: int64 = r0 * 4
      load v2: float32x4 = p0[v1]
      v3: float32x4 = spread(2.0, 4)
      v4: float32x4 = v2 * v3
      v5: int64x4 = lanes(4)
      v6: int64x4 = spread(v1, 4)
      v7: int64x4 = v5 + v6
      v8: int64x4 = spread(2, 4)
      v9: int64x4 = v5 % v8
      v10: int64x4 = spread(0, 4)
      v11: boolx4 = v9 == v10
      p1[v7] = v4 when v11
"""
    assert run(body, X) == [0.0, 0.0, 4.0, 0.0, 8.0, 0.0, 12.0, 0.0]


def test_lanes_are_joined_by_halves() -> None:
    """(a + c) + (b + d): the large ones meet first, so the small ones survive."""
    body = """
  phase
    load v1: float32x4 = p0[0]
    v2: float32 = REDUCE(float32, v1, arg=(ADD, 4))
    p1[0] = v2
"""
    assert run(body, np.array([1e8, 1.0, -1e8, 1.0] + [0.0] * 4, np.float32))[0] == 2.0


def test_a_vector_loop_goes_through_its_body_together() -> None:
    body = """
  phase
    alloc acc: float32[4] register
    for r0 in vector(4):
      acc[r0] = p0[r0 * 2]
      load x1: float32 = acc[r0]
      p1[r0] = x1 + REDUCE(float32, x1, arg=(MAX, ()))
"""
    assert run(body, X)[:4] == [6.0, 8.0, 10.0, 12.0]


def test_loads_around_a_store_are_two_loads() -> None:
    body = """
  phase
    load x1: float32 = p1[0]
    p1[0] = p0[3]
    load x2: float32 = p1[0]
    p1[1] = x1 + x2 * 10.0
"""
    assert run(body, X)[:2] == [3.0, 30.0]


def test_what_is_not_valid_is_zero_and_not_touched() -> None:
    body = """
  phase
    for r0 in loop(8):
      p1[r0] = load(p0, r0 * 4, r0 * 4 < 8) + 1.0
      load x1: float32 = p0[r0 * 100] when r0 < 1
      p1[r0 * 100] = x1 + 5.0 when r0 < 1
"""
    assert run(body, X) == [5.0, 5.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_conditions_and_empty_loops() -> None:
    body = """
  phase
    for r0 in loop(8):
      if (r0 < 3) & (r0 != 1):
        p1[r0] = 1.0
      for r1 in loop(r0 - 6):
        p1[r0] = 7.0
"""
    assert run(body, X) == [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 7.0]


def test_variables_bound_loops() -> None:
    body = """
  phase
    for r0 in grid(n):
      p1[r0] = 1.0
"""
    out = np.zeros(8, np.float32)
    evaluate_program(program(body, header="variable n: int64 1..8"), [X, out], {"n": 3})
    assert out.tolist() == [1.0] * 3 + [0.0] * 5


def test_phases_share_scratch_memory() -> None:
    body = """
  phase
    for r0 in grid(8):
      p1[r0] = p0[r0] * 2.0
  phase
    for r0 in grid(8):
      p2[r0] = p1[7 - r0]
"""
    assert run(body, X, None, params="in scratch out") == [14.0, 12.0, 10.0, 8.0, 6.0, 4.0, 2.0, 0.0]


# ---- threads ----
SHIFT = """
  phase
    for r0 in grid(2):
      alloc s: float32[4] shared
      for r1 in block(4):
        s[r1] = p0[r0 * 4 + r1]
        {barrier}
        p1[r0 * 4 + r1] = s[3 - r1]
"""


@pytest.mark.parametrize("order", ORDERS)
def test_shared_memory_is_seen_after_a_barrier(order: Any) -> None:
    assert run(SHIFT.format(barrier="barrier"), X, order=order) == [3.0, 2.0, 1.0, 0.0, 7.0, 6.0, 5.0, 4.0]


def test_without_the_barrier_the_order_of_threads_shows() -> None:
    for order, index in ((range, 3), (backwards, 0)):
        with pytest.raises(VerifyError, match=f"at index {index}, where nothing has been stored"):
            run(SHIFT.format(barrier=""), X, order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_in_a_loop_and_nested_blocks(order: Any) -> None:
    """A sum over a 2 x 4 block by halves."""
    body = """
  phase
    for r0 in grid(1):
      alloc s: float32[8] shared
      for r1 in block(2):
        for r2 in block(4):
          s[r1 * 4 + r2] = p0[r1 * 4 + r2]
          for r3 in loop(3):
            barrier
            if r1 * 4 + r2 < 4 >> r3:
              s[r1 * 4 + r2] = s[r1 * 4 + r2] + s[r1 * 4 + r2 + (4 >> r3)]
          barrier
          p1[r1 * 4 + r2] = s[0]
"""
    assert run(body, X, order=order) == [28.0] * 8


@pytest.mark.parametrize("order", ORDERS)
def test_registers_are_a_threads_own(order: Any) -> None:
    body = """
  phase
    for r0 in grid(2):
      alloc acc: float32[1] register
      acc[0] = 10.0
      for r1 in block(4):
        load x1: float32 = acc[0]
        acc[0] = x1 + p0[r0 * 4 + r1]
        barrier
        p1[r0 * 4 + r1] = acc[0]
"""
    assert run(body, X, order=order) == [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0, 17.0]


def test_a_barrier_without_threads_waits_for_nobody() -> None:
    assert run("\n  phase\n    p1[0] = 1.0\n    barrier\n    p1[1] = 2.0\n", X)[:2] == [1.0, 2.0]


@pytest.mark.parametrize(
    "inside, where",
    [
        ("if r0 < 2:\n          barrier", "barrier 0 and the end"),
        ("if r0 < 2:\n          barrier\n        if 1 < r0:\n          barrier", "barrier 0 and barrier 1"),
        ("for r1 in loop(r0):\n          barrier", "barrier 0 and the end"),
    ],
)
def test_divergent_barriers_are_found(inside: str, where: str) -> None:
    with pytest.raises(VerifyError, match=f"program test: threads of a block wait at {where}"):
        run(f"\n  phase\n      for r0 in block(4):\n        {inside}\n", X)


# ---- memory ----
@pytest.mark.parametrize("space", ["register", "shared"])
def test_a_read_of_what_nothing_has_stored_is_found(space: str) -> None:
    loop = f"\n  phase\n    for r0 in grid(2):\n      alloc a: float32[2] {space}\n"
    stored = loop + "      a[r0] = 1.0\n      p1[r0] = a[r0]\n"
    assert run(stored, X)[:2] == [1.0, 1.0]
    with pytest.raises(VerifyError, match=r"load from <ALLOC .*> at index 1, where nothing has been stored"):
        run(stored.replace("a[r0]\n", "a[1]\n"), X)


def test_a_read_of_scratch_of_which_nothing_is_stored_is_found() -> None:
    body = "\n  phase\n    p1[0] = 2.0\n    p2[0] = p1[{}]\n"
    assert run(body.format(0), X, None, params="in scratch out")[0] == 2.0
    with pytest.raises(VerifyError, match=r"load from <PARAM .*> at index 3, where nothing has been stored"):
        run(body.format(3), X, None, params="in scratch out")


@pytest.mark.parametrize(
    "statement, message",
    [
        ("p1[0] = p0[8]", r"load from <PARAM \(0, \(8,\)\) float32 \(8,\)> at index 8, outside its 8 elements"),
        ("p1[-1] = 1.0", r"store to <PARAM \(1, \(8,\)\) float32 \(8,\)> at index -1, outside its 8 elements"),
        ("load v: float32x4 = p0[6]", "at index 8, outside its 8 elements"),
        ("p1[5] = spread(1.0, 4)", "at index 8, outside its 8 elements"),
    ],
)
def test_accesses_outside_memory_are_found(statement: str, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        run(f"\n  phase\n    {statement}\n", X)


def test_values_that_do_not_exist_are_found() -> None:
    body = "\n  phase\n    if p0[0] == 1.0:\n      load v: float32 = p0[0]\n    p1[0] = v\n"
    with pytest.raises(VerifyError, match="VAR .* is read before it has a value"):
        run(body, X)


def test_lanes_cannot_take_two_branches() -> None:
    body = "\n  phase\n    for r0 in vector(4):\n      if r0 < 2:\n        p1[r0] = 1.0\n"
    with pytest.raises(VerifyError, match="an If with one condition is executed by the lanes"):
        run(body, X)


def test_a_prefetch_changes_nothing_wherever_it_points() -> None:
    body = """
  phase
    for r0 in grid(8):
      prefetch p0[r0 * 1000 - 500]
      prefetch p1[-1]
      p1[r0] = p0[r0] + 1.0
"""
    assert run(body, X) == (X + 1.0).tolist()


def test_a_square_is_transposed() -> None:
    body = """
  phase
    p1[7] = 9.0
    transpose 2 to p1[1] by 3 of p0[0] by 4
"""
    out = run(body, X)
    assert [out[i] for i in (1, 2, 4, 5)] == [0.0, 4.0, 1.0, 5.0] and out[7] == 9.0


@pytest.mark.parametrize(
    ("place", "index", "message"), [(4, 0, "store to .* at index 8"), (0, 3, "load from .* at index 8")]
)
def test_a_square_outside_of_its_memory_is_an_error(place: int, index: int, message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        run(f"""
  phase
    transpose 2 to p1[{place}] by 3 of p0[{index}] by 4
""", X)


def test_a_square_of_what_nothing_was_stored_in_is_not_stored() -> None:
    body = """
  phase
    alloc m1: float32[4] shared
    alloc m2: float32[4] shared
    m1[0] = p0[3]
    transpose 2 to m2[0] by 2 of m1[0] by 2
    p1[0] = {m2}
"""
    with pytest.raises(VerifyError, match="where nothing has been stored"):
        run(body.replace("{m2}", "m2[1]"), X)
    assert run(body.replace("{m2}", "m2[0]"), X)[0] == 3.0
