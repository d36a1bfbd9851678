"""Each network against the same one in PyTorch: loss, gradients, and ten steps of AdamW from the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional as TF

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F
from picograd_programs.models.diffusion import time_features
from picograd_programs.models.pictures import PixelCNN
from picograd_programs.models.wavenet import WaveNet
from tests.models.twins import TWINS, loss_of, with_weights_of

STEPS = 10


@pytest.mark.variants(every=5, first=1)
@pytest.mark.req("D5", "D6")
@pytest.mark.parametrize("name", TWINS)
def test_training_follows_pytorch(name: str, device: str, rng: np.random.Generator) -> None:
    twin = TWINS[name]
    torch.manual_seed(0)
    theirs = twin.theirs(twin.small)
    ours = with_weights_of(twin.ours(twin.small), theirs)
    mine, other = pg.optim.AdamW(ours.parameters(), lr=1e-3), torch.optim.AdamW(theirs.parameters(), lr=1e-3)

    @pg.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        mine.zero_grad()
        loss = loss_of(twin.forward(ours, x), y, F)
        loss.backward()
        mine.step()
        return loss

    for number in range(STEPS):
        x, y = twin.batch(rng, twin.small)
        if number == 0:
            loss_of(twin.forward(ours, Tensor(x)), Tensor(y), F).backward()
            gradients = {name: p.grad.numpy() for name, p in ours.named_parameters() if p.grad is not None}
        other.zero_grad()
        expected = loss_of(twin.forward(theirs, torch.tensor(x)), torch.tensor(y), TF)
        expected.backward()
        if number == 0:
            for name, parameter in theirs.named_parameters():
                if parameter.grad is not None:
                    np.testing.assert_allclose(gradients[name], parameter.grad, rtol=1e-3, atol=2e-6, err_msg=name)
        other.step()
        # Adam divides by the root of tiny squares, so rounding of some 1e-7 grows with the steps.
        assert step(Tensor(x), Tensor(y)).item() == pytest.approx(expected.item(), rel=2e-4), number


def test_times_have_features_of_their_own() -> None:
    features = time_features(Tensor([0.0, 0.5, 1.0]), 8).numpy()
    assert features.shape == (3, 8) and len({tuple(row) for row in features.round(4)}) == 3


def test_pixels_of_another_picture_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"PixelCNN: pixels must be \(B, 784\), got \(2, 100\)."):
        PixelCNN()(Tensor.zeros(2, 100))


def test_a_tree_needs_a_power_of_two() -> None:
    with pytest.raises(ArgumentError, match="context must be a power of two, got 6") as caught:
        WaveNet(context=6)
    assert caught.value.hint == "--context 4"
