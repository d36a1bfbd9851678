"""Strides, sizes and questions about storage, against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picograd as pg
from tests.helpers import same_value

STRIDED = [((3, 2), (1, 1), 0), ((2, 2, 2), (4, 0, 1), 1), ((), (), 5), ((0, 3), (1, 1), 0), ((4,), (3,), 0)]


@pytest.mark.req("C3")
@pytest.mark.parametrize(("size", "stride", "offset"), STRIDED)
def test_as_strided_reads_storage_and_its_gradients_add(size: tuple[int, ...], stride: tuple[int, ...], offset: int):
    values = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2
    x, y = pg.tensor(values).requires_grad_(), torch.tensor(values).requires_grad_()
    for mine, other in ((x, y), (x.T, y.T), (x[:, 1:], y[:, 1:]), (x * 2, y * 2)):
        ours, theirs = pg.as_strided(mine, size, stride, offset), torch.as_strided(other, size, stride, offset)
        same_value(ours, theirs)
        if mine.shape != (3, 3):  # PyTorch drops gradients of what that view does not show
            (ours * ours).sum().backward()
            (theirs * theirs).sum().backward()
    same_value(x.grad, y.grad)


def test_as_strided_stays_inside_storage() -> None:
    with pytest.raises(pg.ShapeError) as told:
        pg.arange(6).as_strided((3, 2), (2, 2))
    assert told.value.fact == "as_strided: element 6 is outside storage of shape (6,), 6 elements."
    with pytest.raises(pg.ShapeError) as told:
        pg.arange(6).as_strided((3,), (-1,))
    assert told.value.fact == (
        "as_strided: size (3,) and stride (-1,) must be as many numbers, and these and the offset 0 not negative."
    )


def test_sum_to_size_is_the_gradient_of_broadcasting() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for size in ((3, 1), (1, 3, 4), (4,), (2, 3, 4), (1,)):
        same_value(pg.tensor(values).sum_to_size(*size), torch.tensor(values).sum_to_size(*size))
    with pytest.raises(pg.ShapeError, match=r"sum_to_size: \(2, 4\) does not broadcast to \(2, 3, 4\)."):
        pg.tensor(values).sum_to_size(2, 4)


def test_resize_keeps_the_first_elements_and_what_others_see() -> None:
    for size in ((2, 2), (3, 2), (4,)):
        same_value(pg.arange(6).resize_(*size), torch.arange(6).resize_(*size))
    x = pg.arange(4)
    assert x.resize_(2, 3).tolist() == [[0, 1, 2], [3, 0, 0]]
    assert pg.arange(4).resize_as_(pg.zeros(2, 1)).tolist() == [[0], [1]]
    with pytest.raises(pg.GradientError, match="resize_: the shape"):
        pg.ones(2, requires_grad=True).resize_(3)


def test_a_function_of_python_is_applied_to_each_number() -> None:
    values = [[0.5, 1.0], [2.0, 4.0]]
    same_value(pg.tensor(values).apply_(math.sqrt), torch.tensor(values).apply_(math.sqrt))
    with pytest.raises(pg.ArgumentError, match="apply_: needs a function of one number, got 3."):
        pg.ones(1).apply_(3)  # type: ignore[arg-type]


def test_questions_with_one_answer() -> None:
    x = pg.ones(2)
    assert not (x.is_nested or x.is_mps or x.is_xpu)
    assert not (x.is_sparse or x.is_quantized or x.is_meta or x.is_inference()) and x.to_dense() is x


def test_a_shape_is_a_tuple_that_knows_its_number_of_elements() -> None:
    x = pg.ones(2, 3)
    assert isinstance(x.shape, pg.Size) and x.shape == (2, 3) == pg.Size([2, 3]) and repr(x.shape) == "(2, 3)"
    assert x.shape.numel() == x.size().numel() == torch.ones(2, 3).shape.numel() == 6 and pg.ones(()).shape.numel() == 1
    assert {x.shape: 1}[2, 3] == 1 and pg.zeros(x.shape).shape == (2, 3)
