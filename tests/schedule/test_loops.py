"""CALL and LOOP mean the same on every level: body schedules, carries in turn, rows, invariants, nesting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.engine.realize import from_host, realize, to_host
from picograd.errors import PicogradError
from picograd.evaluator import evaluate
from picograd.ir.build import compare, expand, gather, reduce, swap_last, where
from picograd.ir.op import Op, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.stages import LoopItem
from picograd.ir.text_program import format_schedule
from picograd.look import watch
from picograd.rewrites.simplify import simplify_graph
from picograd.road import create_schedule
from tests.same_meaning import check_same_meaning

F32, I64 = dtypes.float32, dtypes.int64


def param(slot: int, *shape: int, dtype: dtypes.DType = F32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def loop(src: Sequence[Op], roots: Sequence[Op], num_carry: int, steps: int) -> Op:
    return Op(OpCode.LOOP, F32, tuple(src), (Op(OpCode.SINK, F32, tuple(roots)), num_carry, steps))


def call(src: Sequence[Op], roots: Sequence[Op]) -> Op:
    return Op(OpCode.CALL, F32, tuple(src), Op(OpCode.SINK, F32, tuple(roots)))


def output(op: Op, i: int, dtype: dtypes.DType = F32) -> Op:
    return Op(OpCode.OUTPUT, dtype, (op,), i)


def matmul(a: Op, b: Op) -> Op:
    return Op(OpCode.MATMUL, a.dtype, (a, b))


def whole(*shape: int, seed: int = 0) -> np.ndarray:
    """Small whole numbers, whose sums and products are exact."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


def halved(x: Op) -> Op:
    """Keeps numbers small over many steps, exactly: those beyond 8 become 1."""
    big = compare(OpCode.CMPLT, filled(8.0, F32, x.shape), x * x)
    return where(big, filled(1.0, F32, x.shape), x)


H, W, X = param(0, 3, 4), param(1, 4, 4), param(2, 5, 3, 4)
h, w, x = param(0, 3, 4), param(1, 4, 4), param(2, 3, 4)
ARRAYS = {H: whole(3, 4), W: whole(4, 4, seed=1), X: whole(5, 3, 4, seed=2)}
STEP = halved(matmul(h, w) + x)


@pytest.mark.variants(every=5)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("asked", [(0,), (2,), (0, 2), (0, 1, 2, 3), (3,)])
def test_a_recurrent_net_means_the_same(turned: bool, asked: tuple[int, ...]) -> None:
    rows = Op(OpCode.FLIP, F32, (X,), (0,)) if turned else X
    net = loop([H, W, rows], [STEP, w, STEP * STEP, reduce(STEP, OpCode.ADD, (1,))], 2, 5)
    check_same_meaning([output(net, i) for i in asked], ARRAYS)


READS: dict[str, tuple[Op, int]] = {  # how a step reads w, and in how many kernels outside the loop w is turned for it
    "turned": (matmul(h, swap_last(w)) + x, 1),
    "turned, in two products": (matmul(h, swap_last(w)) + matmul(x, swap_last(w)), 1),
    "turned and as it is": (matmul(h, swap_last(w)) + matmul(x, w), 0),
    "as it is": (matmul(h, w) + x, 0),
    "as the left side": (matmul(h, matmul(swap_last(w), swap_last(w))) + x, 0),
    "turned, but not alone": (matmul(h, swap_last(w) * 2.0) + x, 0),
}


@pytest.mark.variants(every=12)
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("given_turned", [False, True])
def test_an_invariant_that_every_step_would_turn_is_turned_once(name: str, given_turned: bool) -> None:
    step, kernels_before = READS[name]
    net = loop([H, swap_last(W) if given_turned else W, X], [halved(step), w], 2, 5)
    schedule = check_same_meaning([output(net, 0)], ARRAYS)
    if not given_turned:  # else it is stored as it was, or for the loop
        assert sum(not isinstance(item, LoopItem) for item in schedule.items) == kernels_before


@pytest.mark.variants(every=2)
@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_the_last_step_stores_the_carry_whatever_the_number_of_steps(steps: int) -> None:
    net = loop([H, W], [halved(matmul(h, w)), w], 2, steps)
    check_same_meaning([output(net, 0), output(net, 1)], ARRAYS)


def test_a_carry_that_is_stacked_too_is_stored_once() -> None:
    net = loop([H, W, X], [STEP, w, STEP], 2, 5)
    schedule = check_same_meaning([output(net, 0) + output(net, 0), output(net, 2)], ARRAYS)
    (item,) = [item for item in schedule.items if isinstance(item, LoopItem)]
    assert len(item.results) == 1 and item.results[0].is_row and item.memory is None


def test_carries_that_change_places_and_rows_of_what_goes_in() -> None:
    a, b = param(0, 3, 4), param(1, 3, 4)
    A, B = param(0, 3, 4), param(1, 3, 4)
    net = loop([A, B], [b, a + a - a, a], 2, 5)
    check_same_meaning([output(net, i) for i in range(3)], {A: whole(3, 4), B: whole(3, 4, seed=1)})


def test_equal_carries_are_one_and_unread_sources_are_not_stored() -> None:
    net = loop([H, W, H, X + X], [halved(h + h), w, halved(h + h)], 3, 4)
    schedule = check_same_meaning([output(net, 0), output(net, 2)], ARRAYS)
    (item,) = schedule.items
    assert isinstance(item, LoopItem) and len(item.results) == 1


def test_no_steps_leave_the_carry_and_no_rows() -> None:
    net = loop([H, W, param(2, 0, 3, 4)], [STEP, w, STEP], 2, 0)
    out = create_schedule(simplify_graph([output(net, 0)]))
    assert not out.items


def test_a_call_runs_once_and_equal_bodies_are_scheduled_alike() -> None:
    layer = [halved(matmul(h, w))]
    one = output(call([H, W], layer), 0)
    two = output(call([one, W], layer), 0)
    three = output(call([two + one, W], layer), 0)
    schedule = check_same_meaning([three], ARRAYS)
    calls = [item for item in schedule.items if isinstance(item, LoopItem)]
    assert len(calls) == 3 and len({item.body.items for item in calls}) == 1
    assert len({item.kernel for item in calls[0].body.kernel_items()}) == 1


def test_a_call_that_passes_on_and_repeats_what_it_is_given() -> None:
    made = call([H, W], [w, h + h, h, h + h])
    check_same_meaning([output(made, i) for i in (1, 2, 3)] + [output(made, 0) + output(made, 0)], ARRAYS)


def test_loops_in_loops_and_calls_in_loops() -> None:
    inner_h, inner_x = param(0, 4), param(1, 4)
    row = param(2, 3, 4)
    inner = loop([param(0, 4), row], [halved(inner_h + inner_x), inner_h * inner_x], 1, 3)
    squared = output(call([output(inner, 1)], [param(0, 3, 4) * param(0, 3, 4)]), 0)
    outer_w = param(1, 4, 4)
    carry = halved(output(inner, 0) + reduce(outer_w, OpCode.ADD, (0,)))
    start = param(0, 4)
    net = loop([start, W, X], [carry, outer_w, squared, output(inner, 0)], 2, 5)
    arrays = {start: whole(4), W: ARRAYS[W], X: ARRAYS[X]}
    check_same_meaning([output(net, i) for i in (0, 2, 3)], arrays)


def test_what_is_around_a_loop_is_ordered_with_it() -> None:
    net = loop([halved(H + H), W + W, X * X], [STEP, w, STEP], 2, 5)
    total = reduce(output(net, 2), OpCode.ADD, (0,))
    again = loop([total, W, X], [STEP, w, halved(STEP + x)], 2, 5)
    check_same_meaning([output(again, 2), total * total, output(net, 0)], ARRAYS)


def test_a_loop_on_two_threads_equals_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    n, steps = 300, 40
    a, b, rows = param(0, n, n), param(1, n, n), param(2, n)
    step = halved(matmul(a, b) * const_like(0.01, a) + expand(Op(OpCode.RESHAPE, F32, (rows,), (1, n)), (n, n)))
    arrays = [whole(n, n, seed=i) for i in range(2)] + [whole(steps, n, seed=3)]
    results = []
    for threads in ("1", "2", "4"):
        monkeypatch.setenv("PICOGRAD_THREADS", threads)
        leaves = [from_host(array, F32, "CPU") for array in arrays]
        net = loop(leaves, [step, b, reduce(step, OpCode.ADD, (1,))], 2, steps)
        made = [output(net, 0), output(net, 2) + const_like(float(threads) * 0, output(net, 2))]
        results.append([to_host(op) for op in realize([*made, made[1] * const_like(int(threads), made[1])])][:2])
    for other in results[1:]:
        assert all(np.array_equal(p, q) for p, q in zip(results[0], other))
    params = [param(0, n, n), param(1, n, n), param(2, steps, n)]
    net = loop(params, [step, b, reduce(step, OpCode.ADD, (1,))], 2, steps)
    expected = evaluate([output(net, 0)], dict(zip(params, arrays)))
    assert np.allclose(results[0][0], expected[0], atol=1e-2)  # sums of 300 terms, 40 times over


def const_like(value: float, like: Op) -> Op:
    return filled(value, like.dtype, like.shape)


def test_a_wrong_index_in_a_body_is_reported_with_its_value() -> None:
    table, index = from_host(whole(4), F32, "CPU"), from_host(np.array([0, 3, 7, 1]), I64, "CPU")
    t, i = param(0, 4), param(1, dtype=I64)
    checked = Op(OpCode.CHECK, I64, (Op(OpCode.RESHAPE, I64, (i,), (1,)),), ("index", 4))
    net = loop([table, index], [t, gather(t, checked, 0, 0)], 1, 4)
    with pytest.raises(PicogradError, match="7"):
        realize([output(net, 1)])


def test_a_loop_is_one_entry_and_its_kernels_are_compiled_once() -> None:
    leaves = [from_host(ARRAYS[p], F32, "CPU") for p in (H, W, X)]
    with watch() as counts:
        realize([output(loop(leaves, [STEP, w], 2, 5), 0)])
    assert counts.plans == 1 and counts.kernels == 1


def test_the_text_of_a_schedule_shows_the_loop() -> None:
    net = loop([H, W, X], [STEP, w, STEP * STEP], 2, 5)
    text = format_schedule(create_schedule(simplify_graph([output(net, 0), output(net, 2)])))
    assert "repeat 5 times" in text and "input 2 is row by row buffer" in text
    assert "then output 1 of the step before" in text


def test_const_carries_and_integer_results() -> None:
    count = param(0, dtype=I64)
    start = const(0, I64)
    net = Op(OpCode.LOOP, I64, (start,), (Op(OpCode.SINK, I64, (count + 1, count * count)), 1, 6))
    check_same_meaning([output(net, 0, I64), output(net, 1, I64)], {})
