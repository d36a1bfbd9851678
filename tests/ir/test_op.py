"""The node type: equal Ops are one object, graphs may be deep, constants keep their bits."""

from __future__ import annotations

import copy
import gc
import sys
from itertools import product

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.ir import op as op_module
from picograd.ir.op import Buffer, Op, const, const_value, filled, greatest, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import add, floordiv, minimum, mod, mul, subtract

N = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 4))
M = Op(OpCode.VARIABLE, dtypes.int64, (), ("m", 2, 5))


def param(slot: int, *shape: int, dtype: dtypes.DType = dtypes.float32) -> Op:
    return Op(OpCode.PARAM, dtype, (), (slot, shape))


def test_equal_ops_are_one_object() -> None:
    assert param(0, 3) + param(1, 3) is param(0, 3) + param(1, 3)
    assert param(0, 3) + param(1, 3) is not param(1, 3) + param(0, 3)


def test_ops_differ_by_dtype_and_argument() -> None:
    assert const(1, dtypes.int32) is not const(1, dtypes.int64)
    assert const(1, dtypes.int64) is not const(True, dtypes.bool_)
    assert param(0, 3) is not param(0, 4)


@pytest.mark.parametrize("a, b", [(0.0, -0.0), (float("nan"), -float("nan")), (float("inf"), -float("inf"))])
def test_float_constants_are_one_only_if_their_bits_are(a: float, b: float) -> None:
    assert const(a, dtypes.float32) is not const(b, dtypes.float32)
    assert const(a, dtypes.float32) is const(a, dtypes.float32)


def test_a_constant_is_what_its_dtype_holds() -> None:
    assert const(300, dtypes.uint8).arg == 44
    assert const(-1, dtypes.uint64).arg == 2**64 - 1
    assert const(200, dtypes.int8).arg == -56
    assert const(0.1, dtypes.float32).arg == float(np.float32(0.1))
    assert const(1e40, dtypes.float32).arg == float("inf")
    assert const(3.14159, dtypes.bfloat16).arg == 3.140625
    assert const(2, dtypes.float64).arg == 2.0
    assert const(5, dtypes.bool_).arg is True


def test_copies_of_an_op_are_the_op() -> None:
    x = param(0, 3)
    assert copy.copy(x) is x and copy.deepcopy([x])[0] is x


def test_an_op_nobody_holds_is_forgotten() -> None:
    before = len(Op.interned)
    op = Op(OpCode.IOTA, dtypes.int64, (), 987654)
    assert len(Op.interned) == before + 1
    del op
    gc.collect()
    assert len(Op.interned) <= before


def test_toposort_gives_sources_first_and_each_once() -> None:
    x = param(0, 3)
    square = x * x
    out = square + x
    assert toposort([out]) == [x, square, out]
    assert toposort([square, out, x]) == [x, square, out]


def test_toposort_does_not_look_below_what_is_known() -> None:
    x = param(0, 3)
    square = x * x
    assert toposort([square + square], stop={square: 1}) == [square, square + square]


def test_toposort_survives_graphs_deeper_than_the_stack() -> None:
    x = start = param(0, 3)
    for _ in range(20_000):
        x = x + start
    assert len(toposort([x])) == 20_001


def test_arithmetic_with_a_scalar_fills_the_shape() -> None:
    x = param(0, 2, 3)
    assert (x * 2.0).src[1] is filled(2.0, dtypes.float32, (2, 3))
    assert (x - 1).src[1] is filled(1.0, dtypes.float32, (2, 3))
    assert (-x).code is OpCode.NEG and (x / 2.0).code is OpCode.DIV


def test_const_value_looks_through_repetition_only() -> None:
    two = filled(2.0, dtypes.float32, (2, 3))
    assert const_value(Op(OpCode.PERMUTE, dtypes.float32, (two,), (1, 0))) == 2.0
    assert const_value(Op(OpCode.PAD, dtypes.float32, (two,), ((0, 1), (0, 0)))) is None
    assert const_value(param(0, 3)) is None


def test_a_gradient_is_needed_where_a_leaf_is_reachable() -> None:
    leaf = Op(OpCode.LEAF, dtypes.float32, (param(0, 3),), 1)
    assert (leaf + param(1, 3)).needs_grad
    assert not param(0, 3).needs_grad
    assert not Op(OpCode.DETACH, dtypes.float32, (leaf,)).needs_grad
    assert not Op(OpCode.CMPLT, dtypes.bool_, (leaf, leaf)).needs_grad
    assert not Op(OpCode.CAST, dtypes.int32, (leaf,)).needs_grad


def test_replace_keeps_the_rest() -> None:
    x, y = param(0, 3), param(1, 3)
    total = Op(OpCode.REDUCE, dtypes.float32, (x,), (OpCode.ADD, (0,)))
    assert total.replace(src=(y,)) is Op(OpCode.REDUCE, dtypes.float32, (y,), (OpCode.ADD, (0,)))
    assert total.replace(arg=(OpCode.MAX, (0,))) is Op(OpCode.REDUCE, dtypes.float32, (x,), (OpCode.MAX, (0,)))


def test_buffers_are_known_by_identity() -> None:
    a, b = Buffer("CPU", dtypes.float32, 3), Buffer("CPU", dtypes.float32, 3)
    assert Op(OpCode.BUFFER, dtypes.float32, (), (a, (3,))) is Op(OpCode.BUFFER, dtypes.float32, (), (a, (3,)))
    assert Op(OpCode.BUFFER, dtypes.float32, (), (a, (3,))) is not Op(OpCode.BUFFER, dtypes.float32, (), (b, (3,)))
    assert a.nbytes == 12


@pytest.mark.parametrize(
    "dim, meaning",
    [
        (N, lambda n, m: n),
        (add(N, 3), lambda n, m: n + 3),
        (mul(N, 3), lambda n, m: n * 3),
        (mul(N, M), lambda n, m: n * m),
        (subtract(5, N), lambda n, m: 5 - n),
        (subtract(M, N), lambda n, m: m - n),
        (floordiv(add(N, 1), 2), lambda n, m: (n + 1) // 2),
        (mod(M, 3), lambda n, m: m % 3),
        (minimum(N, M), lambda n, m: min(n, m)),
    ],
)
def test_greatest_is_the_largest_value_of_a_dimension(dim: Op, meaning) -> None:
    assert greatest(dim) == max(meaning(n, m) for n, m in product(range(1, 5), range(2, 6)))


def test_numel_of_a_symbolic_shape_counts_the_greatest() -> None:
    assert Op(OpCode.PARAM, dtypes.float32, (), (0, (3, subtract(6, N)))).numel == 15


def test_filled_keeps_numbers_apart_that_are_equal_and_differ_in_bits_or_type() -> None:
    for first, second in ((0.0, -0.0), (np.float64(0.0), np.float64(-0.0))):
        for value in (first, second):
            kept = filled(value, dtypes.float32, (2,)).src[0].arg
            assert np.signbit(kept) == np.signbit(value)
    assert filled(True, dtypes.bool_, (2,)) is not filled(1, dtypes.int64, (2,))
    assert filled(1, dtypes.float32, (2,)) is filled(1.0, dtypes.float32, (2,))


def test_an_op_that_dies_at_exit_when_its_module_has_lost_its_names_dies_in_silence(monkeypatch) -> None:
    op = Op(OpCode.IOTA, dtypes.int64, (), 987_654)
    num_ops, raised = len(Op.interned), []
    with monkeypatch.context() as at_exit:
        at_exit.setattr(sys, "unraisablehook", raised.append)
        for name in ("_interned", "_replacing", "_leave"):
            at_exit.setattr(op_module, name, None)
        del op
    assert raised == []
    assert len(Op.interned) == num_ops - 1
