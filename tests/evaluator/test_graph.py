"""Whole graphs: sources, identities, bodies, symbolic shapes, memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.errors import ShapeError, UnsupportedOp, VerifyError
from picograd.evaluator import evaluate
from picograd.ir.op import Op, const, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, mul

N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))


def param(slot: int, *shape: Any, dtype: dtypes.DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def made(code: OpCode, *src: Op, arg: Any = None, dtype: dtypes.DType = dtypes.float32) -> Op:
    return Op(code, dtype, src, arg)


X = param(0, 3)
VALUE = np.array([1.0, 2.0, 3.0], np.float32)


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=repr)
def test_constants_have_their_dtype(dtype: dtypes.DType) -> None:
    (result,) = evaluate([const(1, dtype)], {})
    assert result.dtype == dtype.numpy and result.shape == () and result.astype(np.float64) == 1.0


def test_iota_counts() -> None:
    assert evaluate([made(OpCode.IOTA, arg=4, dtype=dtypes.int32)], {})[0].tolist() == [0, 1, 2, 3]


def test_identities_do_nothing() -> None:
    x = X
    for code, arg in [(OpCode.LEAF, 1), (OpCode.DETACH, None), (OpCode.CONTIGUOUS, None), (OpCode.COPY, "CUDA")]:
        x = made(code, x, arg=arg)
    assert evaluate([x], {X: VALUE})[0].tolist() == [1.0, 2.0, 3.0]


def test_the_graph_below_a_known_op_is_not_looked_at() -> None:
    inside = X + X
    assert evaluate([inside * 2.0], {inside: VALUE})[0].tolist() == [2.0, 4.0, 6.0]


def test_flat_memory_takes_the_shape_of_its_op() -> None:
    assert evaluate([param(0, 3, 1)], {param(0, 3, 1): VALUE})[0].shape == (3, 1)


def test_a_value_of_another_dtype_or_length_is_refused() -> None:
    with pytest.raises(ShapeError, match="was given a float64 array of shape"):
        evaluate([X + X], {X: VALUE.astype(np.float64)})
    with pytest.raises(ShapeError, match=r"was given a float32 array of shape \(2,\)"):
        evaluate([X + X], {X: VALUE[:2]})


def test_a_source_without_a_value_is_named() -> None:
    with pytest.raises(VerifyError, match="PARAM .* has no value"):
        evaluate([X + X], {})


def test_what_needs_other_processes_is_unsupported() -> None:
    with pytest.raises(UnsupportedOp, match="COLLECTIVE has no meaning in a tensor graph of one process"):
        evaluate([made(OpCode.COLLECTIVE, X, arg=("all-reduce", 0))], {X: VALUE})


# ---- symbolic shapes ----
def test_a_bound_variable_has_its_value() -> None:
    bound = made(OpCode.BIND, N, const(5, dtypes.int64), dtype=dtypes.int64)
    ones = filled(1.0, dtypes.float32, (bound, add(mul(bound, 2), 1)))
    (result,) = evaluate([ones], {})
    assert result.shape == (5, 11)
    assert evaluate([bound], {})[0] == 5


def test_variables_are_given_by_name() -> None:
    x = param(0, N, 2)
    total = made(OpCode.REDUCE, x, arg=(OpCode.ADD, (0,)))
    assert evaluate([total], {x: np.ones((3, 2), np.float32)}, {"n": 3})[0].tolist() == [3.0, 3.0]
    shrunk = made(OpCode.SHRINK, param(1, 8), arg=((1, N),))
    assert evaluate([shrunk], {param(1, 8): np.arange(8, dtype=np.float32)}, {"n": 4})[0].tolist() == [1.0, 2.0, 3.0]


def test_a_variable_without_a_value_is_named() -> None:
    with pytest.raises(UnsupportedOp, match="the symbolic integer n has no value here"):
        evaluate([filled(1.0, dtypes.float32, (N,))], {})


# ---- bodies ----
def test_call_runs_its_body_on_the_arguments() -> None:
    body = made(OpCode.SINK, param(0, 3) * param(1, 3), param(0, 3))
    call = made(OpCode.CALL, X + X, X, arg=body)
    results = evaluate([made(OpCode.OUTPUT, call, arg=i) for i in range(2)], {X: VALUE})
    assert [r.tolist() for r in results] == [[2.0, 8.0, 18.0], [2.0, 4.0, 6.0]]


def test_loop_carries_and_stacks() -> None:
    """carry' = carry * 2 + row; each step also gives the old carry."""
    carry, row = param(0), param(1)
    body = made(OpCode.SINK, carry * 2.0 + row, carry)
    start = const(1.0, dtypes.float32)
    loop = made(OpCode.LOOP, start, X, arg=(body, 1, 3))
    last, history = evaluate([made(OpCode.OUTPUT, loop, arg=i) for i in range(2)], {X: VALUE})
    assert last == 19.0  # 1 -> 3 -> 8 -> 19
    assert history.tolist() == [1.0, 3.0, 8.0]


def test_a_loop_of_no_steps_returns_its_carry() -> None:
    body = made(OpCode.SINK, param(0, 3), param(0, 3))
    loop = made(OpCode.LOOP, X, arg=(body, 1, 0))
    last, rows = evaluate([made(OpCode.OUTPUT, loop, arg=i) for i in range(2)], {X: VALUE})
    assert last.tolist() == VALUE.tolist() and rows.shape == (0, 3)


# ---- size ----
def test_a_graph_may_be_deeper_than_the_stack() -> None:
    x = X
    for _ in range(5000):
        x = x + X
    assert evaluate([x], {X: VALUE})[0].tolist() == [5001.0, 10002.0, 15003.0]


def test_intermediates_are_dropped_after_their_last_use() -> None:
    x = param(0, 250_000)
    y = x
    for _ in range(20):
        y = y + x
    value = np.ones(250_000, np.float32)
    tracemalloc.start()
    evaluate([y], {x: value})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * value.nbytes  # the chain holds 20 times as much


def test_warnings_of_numpy_are_silent() -> None:
    zero = const(0.0, dtypes.float32)
    assert np.isnan(evaluate([zero / zero], {})[0])
    assert evaluate([made(OpCode.CAST, zero / zero, dtype=dtypes.int32)], {})[0] == 0
