"""size_average and reduce, which old programs give to losses by name and by place, mean what they mean in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg

ARRAYS = {
    "x": np.linspace(-2, 2, 20).reshape(4, 5), "y": np.array([0, 1, 4, 2]), "w": np.linspace(0.5, 1.5, 5),
    "z": np.linspace(0.1, 0.9, 20).reshape(4, 5), "signs": np.array([1, -1, 1, 1]),
}  # fmt: skip
CALLS = (
    "F.cross_entropy(x, y, w, False)",  # at the place of ignore_index, which 0 would be
    "F.cross_entropy(x, y, None, True, 2)",
    "F.cross_entropy(x, y, None, None, 2, None, 'sum')",
    "F.nll_loss(x, y, size_average=False, ignore_index=2)",
    "F.nll_loss(x, y, reduce=False)",
    "F.mse_loss(x, z, size_average=True, reduce=False)",
    "F.smooth_l1_loss(x, z, False)",
    "F.multi_margin_loss(x, y, 1, 1.0, None, False)",
    "F.poisson_nll_loss(x, z, True, True, False)",
    "nn.MSELoss(False)(x, z)",
    "nn.MSELoss(size_average=False)(x, z)",
    "nn.L1Loss(reduce=False)(x, z)",
    "nn.CrossEntropyLoss(w, False, 1)(x, y)",
    "nn.BCELoss(z, False)(z, z)",
    "nn.BCEWithLogitsLoss(None, None, None, 'none', w)(x, z)",
    "nn.PoissonNLLLoss(False, True, None, 1e-3)(z, z)",
    "nn.KLDivLoss(False)(x, z)",
    "nn.TripletMarginLoss(1.0, 2.0, 1e-6, False, False)(x, z, 2 * x)",
    "nn.CosineEmbeddingLoss(0.1, False)(x, z, signs)",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", CALLS)
def test_old_arguments_are_pytorchs(call: str) -> None:
    def result(lib: Any) -> np.ndarray:
        tensors = {name: lib.tensor(array) for name, array in ARRAYS.items()}
        found: np.ndarray = eval(call, {"nn": lib.nn, "F": lib.nn.functional, **tensors}).numpy()
        return found

    ours, theirs = result(pg), result(torch)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_an_old_argument_is_warned_of_and_a_newer_loss_has_none() -> None:
    x = pg.ones(2)
    with pytest.warns(UserWarning, match='write reduction="sum"'):
        pg.nn.functional.mse_loss(x, x, size_average=False)
    with pytest.raises(pg.ArgumentError, match="reduction must be one of"):
        pg.nn.functional.huber_loss(x, x, False)
    with pytest.raises(pg.ArgumentTypeError, match="size_average"):
        pg.nn.HuberLoss(size_average=False)
