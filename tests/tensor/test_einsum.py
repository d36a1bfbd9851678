"""einsum: one product of matrices for each operand but one, in a cheap order."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode


def products(tensor: Tensor) -> list[tuple[int, ...]]:
    """The shapes of the products of matrices in a graph."""
    return [op.shape for op in toposort(written_out([tensor.op])) if op.code is OpCode.MATMUL]


@pytest.mark.req("C6")
def test_every_pair_is_one_product():
    a, b, c = Tensor.ones(2, 50), Tensor.ones(50, 60), Tensor.ones(60, 3)
    assert len(products(pg.einsum("ij,jk->ik", a, b))) == 1
    assert len(products(pg.einsum("ij,jk,kl->il", a, b, c))) == 2
    assert products(pg.einsum("bhqd,bhkd->bhqk", Tensor.ones(2, 3, 4, 5), Tensor.ones(2, 3, 6, 5))) == [(6, 4, 6)]


def test_the_smallest_product_comes_first():
    row, wide, column = Tensor.ones(1, 100), Tensor.ones(100, 100), Tensor.ones(100, 1)
    assert all(np.prod(shape) <= 100 for shape in products(pg.einsum("ij,jk,kl->il", row, wide, column)))


def test_an_axis_nobody_else_has_is_summed_before():
    a, b = Tensor.ones(4, 5, 6), Tensor.ones(5, 7)
    assert products(pg.einsum("ijk,jl->l", a, b)) == [(1, 1, 7)]


def test_a_product_without_a_sum_is_no_product_of_matrices():
    assert not products(pg.einsum("i,j->ij", Tensor.ones(2), Tensor.ones(3)))


def test_operands_may_come_as_a_list():
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    assert pg.einsum("ij,jk->ik", [x, x]).tolist() == pg.einsum("ij,jk->ik", x, x).tolist()


def test_dtypes_are_promoted():
    assert pg.einsum("i,i", Tensor([1, 2]), Tensor([0.5, 0.5])).dtype is pg.float32
