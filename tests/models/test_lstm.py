"""The character LSTM against the same model in PyTorch, and drawn names."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd_programs.models.names import CharacterLSTM
from tests.helpers import same_value
from tests.models.twins import TorchCharacterLSTM, with_weights_of


def batch(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    text = rng.integers(0, 7, (4, 10))
    targets = text[:, 1:].copy()
    targets[0, 5:] = -1  # after the end
    return text[:, :-1].copy(), targets


@pytest.mark.variants(every=2)
@pytest.mark.req("D5")
def test_training_under_jit_follows_pytorch(device, rng):
    theirs = TorchCharacterLSTM(7, 8, 2)
    ours = with_weights_of(CharacterLSTM(7, 8, 2), theirs)
    optimizer, reference = pg.optim.AdamW(ours.parameters(), lr=3e-3), torch.optim.AdamW(theirs.parameters(), lr=3e-3)

    @pg.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ours(x, y)[1]
        loss.backward()
        optimizer.step()
        return loss

    for number in range(20):
        x, y = batch(rng)
        loss = step(Tensor(x), Tensor(y))
        reference.zero_grad()
        expected = theirs(torch.tensor(x), torch.tensor(y))[1]
        expected.backward()
        reference.step()
        # Adam divides by the root of tiny squares, so rounding of some 1e-7 grows with the steps.
        assert loss.item() == pytest.approx(expected.item(), rel=2e-5), number


@pytest.mark.req("D5")
def test_logits_are_pytorchs(device, rng):
    theirs = TorchCharacterLSTM(7, 8, 1)
    ours = with_weights_of(CharacterLSTM(7, 8, 1), theirs)
    x, y = batch(rng)
    same_value(ours(Tensor(x))[0], theirs(torch.tensor(x), torch.tensor(y))[0], 1e-5, 1e-6)


def test_greedy_names_are_the_likeliest_after_what_was_drawn(device):
    theirs = TorchCharacterLSTM(7, 8, 2)
    ours = with_weights_of(CharacterLSTM(7, 8, 2), theirs)
    text = torch.zeros((2, 1), dtype=torch.int64)
    for _ in range(6):
        text = torch.cat([text, theirs(text, text)[0][:, -1].argmax(-1, keepdim=True)], 1)
    assert ours.draw(2, 6, temperature=0.0).tolist() == text[:, 1:].tolist()


def test_a_seed_decides_the_names(device):
    model = CharacterLSTM(7, 8)
    drawn = [model.draw(3, 12, generator=pg.Generator(seed)).tolist() for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({tuple(row) for row in drawn[0]}) == 3
