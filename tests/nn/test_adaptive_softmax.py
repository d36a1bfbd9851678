"""AdaptiveLogSoftmaxWithLoss and FractionalMaxPool against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.errors import ArgumentError, ArgumentTypeError, IndexingError, ShapeError


@pytest.mark.req("C7")
@pytest.mark.parametrize(("cutoffs", "more"), [([3], {}), ([2, 5, 9], {"div_value": 2.0, "head_bias": True})])
def test_it_is_pytorchs(cutoffs: list[int], more: dict[str, Any], rng: np.random.Generator) -> None:
    theirs, ours = (library.nn.AdaptiveLogSoftmaxWithLoss(16, 12, cutoffs, **more) for library in (torch, pg))
    ours.load_state_dict(theirs.state_dict())
    x, target = rng.standard_normal((7, 16)).astype(np.float32), rng.integers(0, 12, 7)
    for rows in (slice(None), 0):
        mine = ours(pg.Tensor(x[rows]), pg.Tensor(target[rows]))
        known = theirs(torch.tensor(x[rows]), torch.tensor(target[rows]))
        np.testing.assert_allclose(mine.output.detach().numpy(), known.output.detach().numpy(), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(mine.loss.item(), known.loss.item(), rtol=1e-5)
    ours(pg.Tensor(x), pg.Tensor(target)).loss.backward()
    theirs(torch.tensor(x), torch.tensor(target)).loss.backward()
    for name, parameter in theirs.named_parameters():
        np.testing.assert_allclose(ours.get_parameter(name).grad.numpy(), parameter.grad.numpy(), rtol=1e-4, atol=1e-6)
    with pg.no_grad(), torch.no_grad():
        found, expected = ours.log_prob(pg.Tensor(x)).numpy(), theirs.log_prob(torch.tensor(x)).numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        assert ours.predict(pg.Tensor(x)).tolist() == theirs.predict(torch.tensor(x)).tolist()


def test_refusals() -> None:
    for cutoffs in ([], [0, 3], [4, 2], [3, 3], [12]):
        with pytest.raises(ArgumentError, match=r"cutoffs must rise within 1\.\.11"):
            pg.nn.AdaptiveLogSoftmaxWithLoss(4, 12, cutoffs)
    with pytest.raises(ArgumentTypeError, match=r"cutoffs must be a sequence of ints, got list \[2\.5\]"):
        pg.nn.AdaptiveLogSoftmaxWithLoss(4, 12, [2.5])
    with pytest.raises(ArgumentError, match="div_value must be above 0, got 0"):
        pg.nn.AdaptiveLogSoftmaxWithLoss(4, 12, [3], 0.0)
    layer = pg.nn.AdaptiveLogSoftmaxWithLoss(4, 12, [3])
    with pytest.raises(ShapeError, match=r"needs input \(N, C\) and target \(N,\)"):
        layer(pg.Tensor.ones(2, 4), pg.Tensor([1]))
    with pytest.raises(IndexingError):
        layer(pg.Tensor.ones(1, 4), pg.Tensor([12])).loss.item()


def test_windows_at_drawn_places() -> None:
    for axes in (2, 3):
        x, layer = pg.Tensor.rand(2, 3, *(10,) * axes), getattr(pg.nn, f"FractionalMaxPool{axes}d")(3, output_size=4)
        values = layer(x)
        assert values.shape == (2, 3, *(4,) * axes) and bool((values == layer(x)).all()) is False
        assert bool(pg.isin(values, x).all())
        with pytest.raises(ArgumentError, match="just one of output_size and output_ratio"):
            getattr(pg.nn, f"FractionalMaxPool{axes}d")(3)
    with pytest.raises(ArgumentError, match="output_ratio must be between 0 and 1, got 1.5"):
        pg.nn.functional.fractional_max_pool2d(x[..., 0], 2, output_ratio=1.5)
    with pytest.raises(ShapeError, match="4 windows of 3 elements do not fit in 5"):
        pg.nn.functional.fractional_max_pool2d(pg.Tensor.ones(1, 5, 9), 3, 4)
