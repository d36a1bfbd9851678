"""A plan that fails for want of memory is told once; then all else can be computed as before."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor, nn

TOO_MUCH = 1 << 22  # rows and columns: no machine has room for the running sums


def too_large(width: int = 3) -> Tensor:
    """Returns a few numbers for which tebibytes have to be stored."""
    long = Tensor(np.ones(TOO_MUCH, np.float32))
    return (long[:, None] * long[None, :]).cumsum(0)[-1, :width]


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def test_what_has_nothing_to_do_with_it_is_computed() -> None:
    x, other, counter = Tensor(np.zeros(3, np.float32)), Tensor(np.ones(2, np.float32)), Tensor(0)
    counter += 1
    x += 1
    x += too_large()
    with pytest.raises(pg.OutOfMemoryError):
        (other + 1).numpy()
    assert (other + 1).tolist() == [2, 2]
    assert counter.item() == 1 and x.tolist() == [1, 1, 1]  # the last write has not happened, what came before has


def test_a_step_that_does_not_fit_has_not_happened() -> None:
    pg.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = pg.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = {name: value.numpy() for name, value in model.state_dict().items()}

    def step(x: Tensor) -> float:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    with pytest.raises(pg.OutOfMemoryError):
        step(too_large()[None])
    assert all(np.array_equal(value.numpy(), before[name]) for name, value in model.state_dict().items())
    losses = [step(Tensor(np.ones((1, 3), np.float32))) for _ in range(3)]
    assert losses == sorted(losses, reverse=True)


def test_what_was_asked_for_fails_each_time_and_only_that() -> None:
    x = too_large()
    for _ in range(2):
        with pytest.raises(pg.OutOfMemoryError):
            x.numpy()
    assert Tensor([1.0, 2.0]).sum().item() == 3
