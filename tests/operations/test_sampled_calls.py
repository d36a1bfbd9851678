"""Calls that stand in PyTorch's own table of samples and in no row here: each gives what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from tests.operations.test_operations import same

ROWS = np.array([[1.0, -2.0, 3.5], [0.25, 5.0, -1.0]])
LEFT = np.array([-0.3, -1.7, -5.25, 0.3, 7.0])


def _running(lib: Any, t: Callable[..., Any]) -> list[Any]:
    mean, var = t(np.zeros(3)), t(np.ones(3))
    return [lib.nn.functional.batch_norm(t(np.zeros((0, 3))), mean, var, training=True), mean, var]


# each takes a library and what makes its tensors
CALLS: dict[str, Callable[[Any, Callable[..., Any]], Any]] = {
    "flip, dims": lambda lib, t: t(ROWS).flip(dims=[0, 1]),
    "permute, dims": lambda lib, t: t(ROWS).permute(dims=(1, 0)),
    "repeat, repeats": lambda lib, t: t(ROWS).repeat(repeats=(2, 1)),
    "tile, dims": lambda lib, t: t(ROWS).tile(dims=(2,)),
    "diff, n=0": lambda lib, t: t(ROWS).diff(0, 0, t(ROWS), None),
    "var_mean, correction=None": lambda lib, t: lib.var_mean(t(ROWS), dim=None, correction=None),
    "std, correction=None": lambda lib, t: t(ROWS).std(dim=1, correction=None),
    "cov of one row": lambda lib, t: t(ROWS[:1]).cov(),
    "corrcoef of one row": lambda lib, t: t(ROWS[:1]).corrcoef(),
    "masked_scatter, broadcast": lambda lib, t: t(ROWS[0]).masked_scatter(t(ROWS > 0), t(ROWS)),
    "polygamma 1": lambda lib, t: lib.special.polygamma(1, t(LEFT)),
    "polygamma 2": lambda lib, t: lib.special.polygamma(2, t(LEFT)),
    "polygamma 5": lambda lib, t: lib.special.polygamma(5, t(LEFT)),
    "gather, no index": lambda lib, t: t(ROWS[0]).gather(0, t(np.zeros((2, 0), np.int64))),
    "gather of no axes": lambda lib, t: t(np.array(2.0)).gather(0, t(np.array([0]))),
    "index_select of no axes": lambda lib, t: t(np.array(2.0)).index_select(0, t(np.array([0]))),
    "histogram of equal elements": lambda lib, t: t(np.ones(3)).histogram(4),
    "histogram, range of no length": lambda lib, t: t(ROWS).histogram(2, range=(1.0, 1.0)),
    "tensordot, an axis of length 1": lambda lib, t: lib.tensordot(t(ROWS[:, :1]), t(ROWS), dims=([1, 0], [1, 0])),
    "norm, nuc": lambda lib, t: t(ROWS).norm("nuc"),
    "norm, nuc of two axes": lambda lib, t: t(np.stack([ROWS, 2 * ROWS])).norm("nuc", (2, 0), keepdim=True),
    "embedding_bag, max": lambda lib, t: lib.nn.functional.embedding_bag(
        t(np.array([1, 0, 1, 0])), t(ROWS), t(np.array([0, 2, 2])), mode="max", padding_idx=1
    ),
    "multi_margin_loss of one example": lambda lib, t: lib.nn.functional.multi_margin_loss(t(ROWS[0]), t(np.array([1]))),
    "multilabel_margin_loss of a number": lambda lib, t: lib.nn.functional.multilabel_margin_loss(
        t(np.array(2.0)), t(np.array(0))
    ),
    "feature_alpha_dropout of a vector": lambda lib, t: lib.nn.functional.feature_alpha_dropout(t(ROWS[0]), training=False),
    "dist of 16 bits": lambda lib, t: t(600 * ROWS[0]).half().dist(t(-ROWS[0]).half()),
    "addbmm of 16 bits": lambda lib, t: (
        t(np.zeros((2, 2)))
        .half()
        .addbmm(t(np.linspace(-9, 9, 60).reshape(5, 2, 6)).half(), t(np.linspace(-7, 8, 60).reshape(5, 6, 2)).half())
    ),
    "vector_norm of 16 bits": lambda lib, t: lib.linalg.vector_norm(t(np.array([8.5, -9.0])).half(), 6),
    "bilinear of integers": lambda lib, t: lib.nn.functional.bilinear(
        *(t(np.ones(shape, np.uint8)) for shape in ((2, 3), (2, 4), (5, 3, 4)))
    ),
    "zeta below 0": lambda lib, t: lib.special.zeta(t(np.array([2.0, 3.0, 0.5, 1.0])), t(np.array([-2.0, 0.0, 0.0, -0.5]))),
    "kl_div, negative target": lambda lib, t: lib.nn.functional.kl_div(t(ROWS), t(ROWS[::-1].copy()), reduction="none"),
    "batch_norm of no example": lambda lib, t: _running(lib, t),
    "vander of a number": lambda lib, t: lib.linalg.vander(t(np.array(3.0)), N=3),
    "lstsq, residuals of matrices": lambda lib, t: lib.linalg.lstsq(
        t(np.stack([ROWS.T, ROWS.T[::-1]])), t(np.stack([ROWS.T[::-1], ROWS.T])), driver="gelsd"
    ),
    "scalar_tensor": lambda lib, t: lib.scalar_tensor(2, dtype=lib.float64, requires_grad=True).detach(),
}


@pytest.mark.req("C2")
@pytest.mark.parametrize("name", CALLS)
def test_sampled_call(name: str, device: str) -> None:
    theirs = CALLS[name](torch, lambda array: torch.tensor(array.copy()))
    loose = 2e-3 if "16 bits" in name else 1e-7
    same(CALLS[name](pg, lambda array: pg.Tensor(np.array(array))), theirs, loose, 1e-9)


def test_drawn_like_another_takes_device_and_requires_grad() -> None:
    for function in (pg.rand_like, pg.randn_like):
        drawn = function(pg.Tensor(ROWS), dtype=pg.float32, device="NUMPY", requires_grad=True)
        assert (drawn.shape, drawn.dtype, drawn.device, drawn.requires_grad) == ((2, 3), pg.float32, "NUMPY", True)


def test_a_tensor_of_another_kind_left_of_a_product() -> None:
    assert pg.Tensor(ROWS).__rmatmul__(pg.Tensor(ROWS.T)).shape == (3, 3)
    with pytest.raises(TypeError, match="unsupported operand"):
        [1.0, 2.0] @ pg.Tensor(ROWS)
