"""Sums over the steps of a LOOP as one product: the same values as adding what each step gives."""

from __future__ import annotations

import numpy as np
import pytest

from picograd import dtype as dtypes
from picograd.autodiff.loops import as_sums, contracted, step_of
from picograd.evaluator import evaluate
from picograd.ir.build import cast, expand, pad, permute, reduce, reshape, shrink, unary
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

STEPS = 3
f64, f32 = dtypes.float64, dtypes.float32
A = Op(OpCode.PARAM, f64, (), (0, (2, 4)))
B = Op(OpCode.PARAM, f64, (), (1, (4, 5)))
V = Op(OpCode.PARAM, f64, (), (2, (2, 3, 4)))
NARROW = Op(OpCode.PARAM, f32, (), (3, (4, 5)))


def product(lhs: Op, rhs: Op) -> Op:
    return Op(OpCode.MATMUL, f64, (lhs, rhs))


GRADIENTS = {
    "a product": product(A, B),
    "a product of views": permute(product(permute(B, (1, 0)), permute(A, (1, 0))), (1, 0)),
    "a batch": product(V, permute(V, (0, 2, 1))),
    "a product of what was expanded": product(expand(reshape(A, (1, 2, 4)), (3, 2, 4)), permute(V, (1, 2, 0))),
    "a product of padded and turned rows": product(
        Op(OpCode.FLIP, f64, (pad(A, ((1, 0), (0, 1))),), (0,)), pad(B, ((0, 1), (0, 0)))
    ),
    "a product of what was cut off": product(A, shrink(B, ((0, 4), (1, 3)))),
    "a product of what was made wider": product(A, cast(NARROW, f64)),
    "what comes after a product": -reshape(product(A, B), (10,)),
    "a sum": reduce(V, OpCode.ADD, (0, 2)),
    "a sum of both kinds": product(A, B) + product(A, cast(NARROW, f64)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_one_product_is_the_sum_of_all_steps(name: str, rng: np.random.Generator) -> None:
    grad = GRADIENTS[name]
    sums, rest = as_sums(grad)
    assert sums and not rest
    stacks = {op: rng.standard_normal((STEPS, *op.shape)).astype(op.dtype.numpy) for op in (A, B, V, NARROW)}
    stand = {op: Op(OpCode.PARAM, op.dtype, (), (10 + op.arg[0], (STEPS, *op.shape))) for op in stacks}
    at_once = evaluate(
        [contracted(part, stand.__getitem__, STEPS) for part in sums], {stand[op]: x for op, x in stacks.items()}
    )
    one_by_one = [evaluate([grad], {op: x[t] for op, x in stacks.items()})[0] for t in range(STEPS)]
    np.testing.assert_allclose(sum(at_once), sum(one_by_one), rtol=1e-12)


@pytest.mark.parametrize(
    "other",
    [
        unary(OpCode.SIN, product(A, B)),
        reshape(reduce(Op(OpCode.PARAM, f64, (), (4, (2, 5, 3))), OpCode.MAX, (2,)), (2, 5)),
        -cast(Op(OpCode.PARAM, dtypes.int32, (), (5, (2, 5))), f64),
        product(A, B) * product(A, B),
    ],
    ids=["sine", "greatest", "whole numbers", "product of two"],
)
def test_what_is_no_product_is_left_as_it_was(other: Op) -> None:
    sums, rest = as_sums(product(A, B) + other)
    assert ([step_of(part) for part in sums], rest) == ([product(A, B)], [other])


def test_a_sum_of_integers_is_none_before_it_is_rounded_to_floats() -> None:
    """Added up over many steps it might not fit any more."""
    grad = cast(reduce(Op(OpCode.PARAM, dtypes.int32, (), (0, (4,))), OpCode.ADD, (0,)), f32)
    assert as_sums(grad) == ([], [grad])
