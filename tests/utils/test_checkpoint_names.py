"""`picograd.utils.checkpoint`: PyTorch's names for pg.checkpoint."""

from __future__ import annotations

import pytest

import picograd as pg
from picograd import ArgumentError, Tensor, nn
from picograd.utils.checkpoint import checkpoint, checkpoint_sequential


@pytest.mark.parametrize("segments", [1, 2, 3])
def test_values_and_gradients_are_those_without(segments: int, device: str) -> None:
    pg.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    x = pg.randn(5, 3, requires_grad=True)
    expected = pg.autograd.grad(net(x).square().sum(), [x, *net.parameters()])
    found = checkpoint_sequential(net, segments, x, use_reentrant=False)
    for gradient, other in zip(pg.autograd.grad(found.square().sum(), [x, *net.parameters()]), expected):
        assert pg.allclose(gradient, other, atol=1e-6)


def test_what_goes_in_by_name() -> None:
    x = Tensor([2.0], requires_grad=True)
    checkpoint(lambda x, power: x**power, x, power=3, use_reentrant=True, preserve_rng_state=False).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [12.0]


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ArgumentError, match="2 functions cannot be split into 3 segments"):
        checkpoint_sequential([pg.exp, pg.sin], 3, Tensor([1.0]))
