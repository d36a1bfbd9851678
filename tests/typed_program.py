"""A user's program with types: mypy checks it with the package, and tests/nn/test_module.py runs it."""

from __future__ import annotations

from typing import Any, assert_type

import picograd as pg
from picograd import Tensor, nn, trapezoid
from picograd.linalg import *  # noqa: F403
from picograd.nn.functional import gelu
from picograd.special import erfcx


class Net(nn.Module):
    """A call has the argument and result types of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.pool = nn.MaxPool1d(2)
        self.scale = nn.Parameter(pg.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.first(x).relu())
        return x * self.scale


class Pair(nn.Module):
    """A forward with several results."""

    def forward(self, x: Tensor, by: float = 2.0) -> tuple[Tensor, float]:
        """Returns x, and what it is multiplied by later."""
        return x, by


class Untyped(nn.Module):
    """A forward without types, as most programs have it."""

    def forward(self, x):  # type: ignore[no-untyped-def]
        return x


class Softer(nn.CrossEntropyLoss):
    """A declared layer with another attribute: what a class of picograd declares asks nothing of the user's."""

    temperature: Tensor

    def __init__(self) -> None:
        super().__init__(label_smoothing=0.1)
        self.temperature = pg.ones(1)


def refused() -> None:
    """Calls that a checker of types refuses; nobody runs them."""
    nn.GaussianNLLLoss(True)  # type: ignore[call-arg]  # by keyword alone
    nn.GELU(approximate=3)  # type: ignore[arg-type]
    nn.Softmax(dim="last")  # type: ignore[arg-type]


def run() -> float:
    """Trains one step, and returns the sum of all gradients."""
    net, optimizer = Net(), pg.optim.SGD([pg.ones(1, requires_grad=True)])
    y = assert_type(net(pg.ones(5, 3)), Tensor)
    assert_type(Pair()(y), tuple[Tensor, float])
    assert_type(Untyped()(y), Any)
    assert_type(nn.Dropout(0.25, inplace=True).p, float)
    assert_type(nn.GaussianNLLLoss(full=True)(y, y, y), Tensor)
    assert_type(Softer().reduction, str)
    layer: nn.Module = net
    assert_type(layer(pg.ones(5, 3)), Any)
    with pg.no_grad():
        assert_type(net.scale.mul_(0.5).add_(net.scale, alpha=0.1), Tensor)
        assert_type(pg.ones(1, 2).exp_().squeeze_().clamp_(min=0.0), Tensor)
    for page in (gelu(net.scale), pg.nn.functional.relu(net.scale), erfcx(net.scale), pg.special.xlogy(net.scale, 2.0)):
        assert_type(page, Tensor)
    assert_type(trapezoid(pg.add(net.scale, 1.0)), Tensor)
    assert_type(inv(pg.eye(2)), Tensor)  # noqa: F405
    assert_type((-y[0] + 1.0) * 2 @ Tensor.eye(2, dtype=pg.float32).mT, Tensor)  # methods are functions of other files
    assert_type(y.sum(0) == 1, Tensor)
    assert_type(Tensor.meshgrid(y[0], y[1]), tuple[Tensor, ...])
    optimizer.zero_grad()
    y.sum().backward()
    total = 0.0
    for parameter in net.parameters():
        gradient = assert_type(parameter.grad, Tensor | None)
        if gradient is not None:
            total += float(gradient.sum())
    net.scale.grad = None
    return total
