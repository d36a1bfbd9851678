"""Limits on gradients against PyTorch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.errors import ArgumentError
from picograd.nn import utils
from picograd.nn.utils import clip_grad_norm_, clip_grad_value_, get_total_norm
from tests.helpers import same_value


def parameters(rng: np.random.Generator) -> tuple[list[Tensor], list[torch.Tensor]]:
    """Returns the same parameters twice, with gradients; the last has none."""
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (4,), (2,))]
    ours, theirs = [Tensor(a, requires_grad=True) for a in arrays], [torch.tensor(a, requires_grad=True) for a in arrays]
    for group in (ours, theirs):
        for parameter in group[:2]:
            (parameter * parameter).sum().backward()
    return ours, theirs


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
def test_norm_and_clipped_gradients(norm_type, max_norm, device, rng):
    ours, theirs = parameters(rng)
    same_value(
        clip_grad_norm_(ours, max_norm, norm_type), torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type)
    )
    for mine, other in zip(ours[:2], theirs):
        same_value(mine.grad, other.grad)
    assert ours[2].grad is None


def test_clipped_values(device, rng):
    ours, theirs = parameters(rng)
    clip_grad_value_(iter(ours), 0.7)
    torch.nn.utils.clip_grad_value_(theirs, 0.7)
    for mine, other in zip(ours[:2], theirs):
        same_value(mine.grad, other.grad)


def test_one_tensor_and_none(device):
    w = Tensor([3.0, 4.0], requires_grad=True)
    assert clip_grad_norm_(w, 1.0).item() == 0.0
    w.sum().backward()
    assert clip_grad_norm_(w, 1.0).item() == pytest.approx(math.sqrt(2))
    assert get_total_norm([]).item() == 0.0


def test_norm_that_is_not_finite_is_an_error_when_asked(device):
    w = Tensor([0.0], requires_grad=True)
    w.log().sum().backward()
    with pytest.raises(ArgumentError, match="the norm of the gradients is inf"):
        clip_grad_norm_([w], 1.0, error_if_nonfinite=True)
    assert w.grad.item() == math.inf


@pytest.mark.parametrize("limit", [-1.0, math.nan])
def test_negative_limits_are_refused(limit):
    with pytest.raises(ArgumentError, match="max_norm must not be negative"):
        clip_grad_norm_([], limit)
    with pytest.raises(ArgumentError, match="clip_value must not be negative"):
        clip_grad_value_([], limit)


def test_clipping_stays_in_the_plan_of_the_step(rng):
    w = Tensor(rng.standard_normal(4).astype(np.float32), requires_grad=True)
    optimizer = pg.optim.SGD([w], lr=0.5)

    @pg.jit
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        (w * x).sum().backward()
        norm = clip_grad_norm_([w], 1.0)
        optimizer.step()
        return norm

    for _ in range(3):
        before, x = w.detach().numpy(), rng.standard_normal(4).astype(np.float32) * 3
        norm = np.sqrt((x.astype(np.float64) ** 2).sum())
        assert step(Tensor(x)).item() == pytest.approx(norm, rel=1e-6)
        after = before - 0.5 * x * min(1.0, 1.0 / (norm + 1e-6))
        np.testing.assert_allclose(w.detach().numpy(), after, rtol=1e-5, atol=1e-6)


def test_all_parameters_as_one_vector(device):
    net = nn.MLP(2, [3, 1])
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (13,) and vector.requires_grad
    utils.vector_to_parameters(Tensor.arange(13).float(), net.parameters())
    assert net.layers[0].weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]
    assert net.layers[1].bias.tolist() == [12.0] and net.layers[1].bias.requires_grad


def test_clipping_by_a_norm_that_is_known(device):
    w = Tensor([3.0, 4.0], requires_grad=True)
    (w * w).sum().backward()
    utils.clip_grads_with_norm_([w], 1.0, utils.get_total_norm([w.grad]))
    np.testing.assert_allclose(w.grad.numpy(), [0.6, 0.8], rtol=1e-5)


def test_the_greatest_by_its_name() -> None:
    assert get_total_norm([Tensor([3.0]), Tensor([-4.0])], "inf").item() == 4.0
