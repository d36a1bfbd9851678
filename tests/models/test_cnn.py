"""The convolutional network against PyTorch's layers with the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.errors import ShapeError
from picograd.nn import functional as F
from picograd.optim import AdamW
from picograd_programs.models.pictures import PixelCNN


class Reference(torch.nn.Module):
    def __init__(self, side: int, channels: int) -> None:
        super().__init__()
        pairs = ((1, channels), (channels, channels), (channels, 2 * channels), (2 * channels, 2 * channels))
        self.conv1, self.conv2, self.conv3, self.conv4 = (torch.nn.Conv2d(*pair, 3, padding=1) for pair in pairs)
        self.pool = torch.nn.MaxPool2d(2)
        self.out = torch.nn.Linear(2 * channels * (side // 4) ** 2, 10)
        self.side = side

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.reshape(-1, 1, self.side, self.side)
        x = self.pool(self.conv2(self.conv1(x).relu()).relu())
        x = self.pool(self.conv4(self.conv3(x).relu()).relu())
        return self.out(x.flatten(1))


@pytest.mark.req("B8")
def test_training_has_the_losses_of_pytorch(rng: np.random.Generator) -> None:
    theirs, ours = Reference(12, 6), PixelCNN(side=12, channels=6)
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    mine, other = AdamW(ours.parameters(), lr=1e-2), torch.optim.AdamW(theirs.parameters(), lr=1e-2)

    @pg.jit
    def step(x_BP: Tensor, y_B: Tensor) -> Tensor:
        mine.zero_grad()
        loss = F.cross_entropy(ours(x_BP), y_B)
        loss.backward()
        mine.step()
        return loss

    for _ in range(5):
        x_BP, y_B = rng.standard_normal((16, 144)).astype(np.float32), rng.integers(0, 10, 16)
        other.zero_grad()
        expected = torch.nn.functional.cross_entropy(theirs(torch.tensor(x_BP)), torch.tensor(y_B))
        expected.backward()
        other.step()
        # Sums in another order move a loss by some 1e-6; Adam's first steps are as large whatever the gradient.
        assert step(Tensor(x_BP), Tensor(y_B)).item() == pytest.approx(expected.item(), rel=2e-4)


def test_pixels_of_another_picture_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"PixelCNN: pixels must be \(B, 784\), got \(2, 100\)."):
        PixelCNN()(Tensor.zeros(2, 100))
