"""What functions of linear algebra and transforms say of what they do not take: the full text, on the user's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor

WIDE, SQUARE = Tensor.ones(2, 3), Tensor.eye(3)
CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no tensor": (lambda: pg.linalg.inv([[1.0]]), pg.ArgumentError, "linalg.inv: an operand must be a tensor, got list."),
    "not square": (lambda: pg.linalg.inv(WIDE), pg.ShapeError, "linalg.inv: the matrix must be square, got shape (2, 3)."),
    "no matrix": (lambda: pg.linalg.det(Tensor([1.0])), pg.ShapeError, "linalg.det: needs a matrix, got shape (1,)."),
    "integers": (
        lambda: pg.linalg.inv(Tensor([[1]])), pg.DTypeError,
        "linalg.inv: needs float32 or float64, got int64 of shape (1, 1).",
    ),
    "rows": (
        lambda: pg.linalg.solve(SQUARE, Tensor.ones(2, 2)), pg.ShapeError,
        "linalg.solve: A (3, 3) has 3 columns, B (2, 2) has 2 rows.",
    ),
    "mode": (
        lambda: pg.linalg.qr(WIDE, "full"), pg.ArgumentError,
        'linalg.qr: mode must be "reduced", "complete" or "r", got \'full\'.',
    ),
    "eig": (
        lambda: pg.linalg.eig(Tensor([[0.0, 1.0], [-1.0, 0.0]])).eigenvalues.realize(), pg.LinAlgError,
        "linalg.eig: the matrix has complex eigenvalues, or NaN, and there are no complex tensors.",
    ),
    "eigvals": (
        lambda: pg.linalg.eigvals(Tensor([[[1.0, 0.0], [0.0, 2.0]], [[0.0, 1.0], [-1.0, 0.0]]])).realize(),
        pg.LinAlgError,
        "linalg.eigvals: matrix 1 of a stack of 2 has complex eigenvalues, or NaN, and there are no complex tensors.",
    ),
    "order": (
        lambda: pg.linalg.matrix_norm(SQUARE, 3), pg.ArgumentError,
        'linalg.matrix_norm: ord must be "fro", "nuc", inf, -inf, 1, -1, 2 or -2, got 3.',
    ),
    "power": (
        lambda: pg.linalg.matrix_power(SQUARE, 0.5), pg.ArgumentError,
        "linalg.matrix_power: n must be an int, got float 0.5.",
    ),
    "mm": (lambda: SQUARE.mm(Tensor.ones(3)), pg.ShapeError, "mm: needs operands of 2 and 2 axes, got (3, 3) and (3,)."),
    "bmm": (
        lambda: Tensor.ones(2, 1, 1).bmm(Tensor.ones(3, 1, 1)), pg.ShapeError,
        "bmm: the batches of (2, 1, 1) and (3, 1, 1) differ in length.",
    ),
    "addmm": (
        lambda: Tensor.ones(5).addmm(SQUARE, SQUARE), pg.ShapeError,
        "addmm: shapes (5,) and (3, 3) do not broadcast: axis -1 is 5 and 3.",
    ),
    "alpha": (
        lambda: Tensor([[1]]).addr(Tensor([1]), Tensor([1]), alpha=0.5), pg.DTypeError,
        "addr: alpha=0.5 does not fit int64.",
    ),
    "bools": (
        lambda: Tensor([True]).dot(Tensor([True])), pg.DTypeError, "dot: bools have no matrix product.",
    ),
    "terms": (
        lambda: pg.einsum("ij,jk", SQUARE), pg.ArgumentError, "einsum: 'ij,jk' has 2 terms, but there are 1 operands.",
    ),
    "letters": (
        lambda: pg.einsum("i1", SQUARE), pg.ArgumentError,
        "einsum: 'i1' in 'i1' must be letters, with at most one ellipsis '...'.",
    ),
    "rank": (
        lambda: pg.einsum("i", SQUARE), pg.ArgumentError, "einsum: an operand of i has 2 axes, its term names 1.",
    ),
    "result": (
        lambda: pg.einsum("ij->ik", SQUARE), pg.ArgumentError,
        "einsum: each label of the result of ij->ik must occur there once, and in an operand.",
    ),
    "label": (
        lambda: pg.einsum("ij,jk", SQUARE, WIDE), pg.ShapeError, "einsum: axes with label j have lengths 3 and 2.",
    ),
    "tensordot": (
        lambda: pg.tensordot(SQUARE, WIDE, 1), pg.ShapeError,
        "tensordot: axis 1 of (3, 3) has length 3, axis 0 of (2, 3) has 2.",
    ),
    "cross": (
        lambda: Tensor.ones(2).cross(Tensor.ones(2)), pg.ShapeError, "cross: needs an axis of length 3, got (2,) and (2,).",
    ),
    "pairs": (
        lambda: pg.fft.fft(Tensor.ones(5)), pg.ShapeError,
        "fft.fft: the last axis must be pairs of real and imaginary parts, got shape (5,).",
    ),
    "norm": (
        lambda: pg.fft.rfft(Tensor.ones(5), norm="both"), pg.ArgumentError,
        "fft.rfft: norm must be one of backward, ortho, forward, got 'both'.",
    ),
    "length": (lambda: pg.fft.rfft(Tensor.ones(5), 0), pg.ArgumentError, "fft.rfft: a length must be 1 or more, got 0."),
    "nothing": (lambda: pg.fft.rfft(Tensor.ones(0)), pg.ShapeError, "fft.rfft: axis 0 of (0,) has no elements."),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_refused_when_it_is_asked_for(name: str) -> None:
    function, kind, fact = CASES[name]
    with pytest.raises(kind) as caught:
        function()
    assert caught.value.fact == fact
    assert caught.value.line is not None and caught.value.line.file == __file__


VALUES: dict[str, tuple[Callable[[], Any], str]] = {
    "inverse": (lambda: Tensor([[0.0]]).inverse(), "inverse: the matrix is singular."),
    "solve": (lambda: pg.linalg.solve(Tensor.zeros(2, 2), Tensor.ones(2, 1)), "linalg.solve: the matrix is singular."),
    "cholesky": (lambda: pg.linalg.cholesky(Tensor([[-1.0]])), "linalg.cholesky: the matrix is not positive definite."),
    "nan": (
        lambda: pg.linalg.svdvals(Tensor([[float("nan"), 1.0]])),
        "linalg.svdvals: the matrix has no factors: the iteration did not converge.",
    ),
    "power": (lambda: pg.linalg.matrix_power(Tensor.zeros(2, 2), -1), "linalg.matrix_power: the matrix is singular."),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_values_decide(name: str, device: str) -> None:
    function, fact = VALUES[name]
    result = function()
    with pytest.raises(pg.LinAlgError) as caught:
        result.numpy()
    assert caught.value.fact == fact
    assert caught.value.line is not None and caught.value.line.file == __file__


def test_the_gradient_of_a_singular_matrix_names_the_function(device: str) -> None:
    x = Tensor([[1.0, 0.0], [0.0, 0.0]], requires_grad=True)
    pg.linalg.slogdet(x).logabsdet.backward()
    with pytest.raises(pg.LinAlgError, match="linalg.slogdet: the matrix is singular"):
        assert x.grad is not None
        x.grad.numpy()


def test_info_says_which_matrix_has_no_result(device: str) -> None:
    stack = Tensor(np.stack([np.eye(2), [[1.0, 2.0], [2.0, 1.0]], np.zeros((2, 2))]))
    assert pg.linalg.inv_ex(stack).info.tolist() == [0, 0, 1]
    assert pg.linalg.cholesky_ex(stack).info.tolist() == [0, 2, 1]
    assert pg.linalg.lu_factor_ex(stack).info.tolist() == [0, 0, 1]
    with pytest.raises(pg.LinAlgError):
        pg.linalg.inv_ex(stack, check_errors=True).inverse.numpy()
