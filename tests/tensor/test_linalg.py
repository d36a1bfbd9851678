"""Products of matrices against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from tests.helpers import same_as_torch

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 6, 3, 4), (4, 5)),
    ((2, 3, 4), (2, 4, 5)), ((2, 3, 4), (1, 4, 5)), ((6, 1, 3, 4), (2, 4, 5)), ((3, 4), (2, 4, 5)), ((4,), (2, 4, 5)),
    ((2, 3, 4), (4,)), ((1, 1), (1, 1)), ((0, 4), (4, 5)), ((3, 0), (0, 5)),
]  # fmt: skip


@pytest.mark.req("C6")
@pytest.mark.parametrize("shapes", SHAPES)
def test_matmul(shapes, device, rng):
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    same_as_torch(lambda x, y: x @ y, a, b)


@pytest.mark.req("C6")
def test_matmul_of_views(device, rng):
    a, b = rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal((5, 4)).astype(np.float32)
    same_as_torch(lambda x, y: x.T @ y.T, a, b)
    same_as_torch(lambda x: x @ x.T, a)


@pytest.mark.req("G2")
def test_a_dot_product_is_11(device):
    assert Tensor([1.0, 2.0]).dot(Tensor([3.0, 4.0])).item() == 11.0


@pytest.mark.req("C6")
def test_named_products(device, rng):
    a, b = rng.standard_normal((2, 4)).astype(np.float32)
    matrix = rng.standard_normal((3, 4)).astype(np.float32)
    same_as_torch(lambda x, y: x.dot(y), a, b)
    same_as_torch(lambda m, x: m.mv(x), matrix, a)
    same_as_torch(lambda x, y: x.outer(y), a, b)
    same_as_torch(lambda x, y: x.mm(y), matrix, matrix.T.copy())


def test_matmul_of_integers(device):
    same_as_torch(lambda x, y: x @ y, np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4))


@pytest.mark.req("C1")
@pytest.mark.parametrize("diagonal", [-2, 0, 1])
def test_triangles(diagonal, device, rng):
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    same_as_torch(lambda t: t.tril(diagonal), x)
    same_as_torch(lambda t: t.triu(diagonal), x)


@pytest.mark.req("C6")
@pytest.mark.parametrize("n", [3, 20])
@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
@pytest.mark.parametrize("place", [(0, 0), (2, 2), (2, 1)])
def test_cholesky_refuses_what_is_not_finite_as_pytorch_does(n: int, number: float, place: tuple[int, int]) -> None:
    a = np.eye(n, dtype=np.float32) * 3
    a[place] = a[place[::-1]] = number
    stack = np.stack([np.eye(n, dtype=np.float32), a])
    for lib in (pg, torch):
        with pytest.raises(lib.linalg.LinAlgError, match="not positive.definite"):
            lib.linalg.cholesky(lib.tensor(stack)).tolist()
    mine, other = pg.linalg.cholesky_ex(pg.tensor(stack)), torch.linalg.cholesky_ex(torch.tensor(stack))
    assert mine.info.tolist() == other.info.tolist()


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["svd", "svdvals", "pinv", "lstsq", "matrix_rank", "cond", "matrix_norm"])
def test_singular_values_of_what_is_not_finite_are_refused(name: str, number: float) -> None:
    a = pg.tensor([[[1.0, 0.0], [0.0, 1.0]], [[number, 1.0], [1.0, 3.0]]])  # LAPACK never ends where a number is inf
    more = {"lstsq": (a,), "matrix_norm": (2,)}.get(name, ())
    with pytest.raises(pg.LinAlgError, match="matrix 1 of a stack of 2 has no factors: the iteration did not converge"):
        result = getattr(pg.linalg, name)(a, *more)
        (result if isinstance(result, pg.Tensor) else result[0]).tolist()


def test_the_sign_of_a_determinant_that_is_nan_is_zero() -> None:
    a = [[float("nan"), 1.0], [1.0, 3.0]]
    for lib in (pg, torch):
        sign, logarithm = lib.linalg.slogdet(lib.tensor(a))
        assert sign.item() == 0 and math.isnan(logarithm.item()) and math.isnan(lib.linalg.det(lib.tensor(a)).item())
