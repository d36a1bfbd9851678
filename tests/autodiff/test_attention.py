"""What derivatives of ATTENTION are made of; that they are right is tested in test_chain_rules.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.gradient import gradient
from picograd.dtype import DType
from picograd.evaluator import evaluate
from picograd.ir.attention import outputs
from picograd.ir.bodies import bodies_in
from picograd.ir.build import cast, reduce
from picograd.ir.op import Dim, Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.spec import verify_graph

f64 = dtypes.float64
ARG = AttentionArg(0.5, causal=True, soft_cap=3.0)
SYMBOLIC = tuple(Op(OpCode.VARIABLE, dtypes.int64, (), (name, 1, 9)) for name in "bts")


def leaves(dtype: DType = f64, B: Dim = 2, T: Dim = 5, S: Dim = 7) -> list[Op]:
    """q, k and v: four heads, two of which share k and v."""
    shapes: list[tuple[Dim, ...]] = [(B, 4, T, 3), (B, 2, S, 3), (B, 2, S, 6)]
    return [Op(OpCode.LEAF, dtype, (Op(OpCode.PARAM, dtype, (), (i, s)),), i) for i, s in enumerate(shapes)]


def attention(src: Sequence[Op]) -> list[Op]:
    return outputs(Op(OpCode.ATTENTION, src[0].dtype, tuple(src), ARG))


def ones(x: Op) -> Op:
    return filled(1.0, x.dtype, x.shape)


def codes(roots: Sequence[Op]) -> list[OpCode]:
    return [op.code for op in toposort(roots)]


def test_the_gradient_is_one_op_without_products() -> None:
    src = leaves()
    out = attention(src)[0]
    grads = gradient(out, ones(out), src)
    found = codes([grads[leaf] for leaf in src])
    assert found.count(OpCode.ATTENTION_GRAD) == 1 and found.count(OpCode.ATTENTION) == 1
    assert OpCode.MATMUL not in found and OpCode.EXP not in found


def test_v_has_no_gradient_from_the_logsumexp() -> None:
    src = leaves()
    logsumexp = attention(src)[1]
    assert set(gradient(logsumexp, ones(logsumexp), src)) == set(src[:2])


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16, dtypes.float32], ids=repr)
def test_gradients_of_narrow_floats_sum_rows_in_float32(dtype: DType) -> None:
    src = leaves(dtype)
    out, logsumexp = attention(src)
    total = cast(reduce(out, OpCode.ADD, (3,)), dtypes.float32) + logsumexp
    grads = [gradient(total, ones(total), src)[leaf] for leaf in src]
    verify_graph(grads, after="gradient")
    assert [(g.dtype, g.shape) for g in grads] == [(leaf.dtype, leaf.shape) for leaf in src]


def test_a_body_keeps_the_output_and_the_logsumexp_alone() -> None:
    src = leaves()
    inside = [Op(OpCode.PARAM, f64, (), (i, s.shape)) for i, s in enumerate(src)]
    out = attention(inside)[0]
    call = Op(OpCode.CALL, f64, tuple(src), Op(OpCode.SINK, f64, (out * out,)))
    root = Op(OpCode.OUTPUT, f64, (call,), 0)
    grads = list(gradient(root, ones(root), src).values())
    kept = max((body.src for body in bodies_in(toposort(grads))), key=len)
    assert set(kept) == {out * out, *attention(inside)}


@pytest.mark.parametrize("sizes", [(2, 5, 7), (3, 6, 2)])
def test_second_derivatives_at_symbolic_lengths_are_those_at_numbers(sizes: tuple[int, int, int]) -> None:
    """Six queries over two keys: the first four see nothing."""
    variables = dict(zip("bts", sizes))
    rng = np.random.default_rng(0)
    found: list[list[np.ndarray[Any, Any]]] = []
    arrays: list[np.ndarray[Any, Any]] = []
    for lengths in (sizes, SYMBOLIC):
        src = leaves(f64, *lengths)
        out = attention(src)[0]
        first = gradient(out, out, src)
        parts = [reduce(first[leaf] * leaf, OpCode.ADD, (0, 1, 2, 3)) for leaf in src]
        second = gradient(parts[0] + parts[1] + parts[2], filled(1.0, f64, ()), src)
        arrays = arrays or [rng.standard_normal([int(dim) for dim in leaf.shape]) for leaf in src]
        values = {leaf.src[0]: array for leaf, array in zip(src, arrays)}
        found.append(evaluate([second[leaf] for leaf in src], values, variables))
    for a, b in zip(*found, strict=True):
        assert np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
