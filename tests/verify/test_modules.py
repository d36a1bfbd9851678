"""Modules beside PyTorch's: mistakes in a model are found, and the layer that makes them is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import picograd as pg
from picograd import Tensor, nn


class Attention(nn.Module):
    """Attention of one head with a switch for each usual mistake."""

    def __init__(self, scale: float = 4.0, transposed: bool = False):
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.scale, self.transposed = scale, transposed

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2)) / self.scale
        weights = scores.softmax(-2 if self.transposed else -1)
        return self.out(weights @ v)


class Theirs(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.out(((q @ k.transpose(-1, -2)) / 4.0).softmax(-1) @ v)


class Stopped(nn.Module):
    """A relu through which no gradient flows."""

    def forward(self, x: Tensor) -> Tensor:
        return x.relu().detach() + 0.0 * x


def pair(change: Callable[[Any], None] = lambda layers: None) -> tuple[Any, Any]:
    """Returns a net of each library with the same weights; `change` has made ours another."""

    def net(lib: Any, attention: Any) -> Any:
        return lib.Sequential(
            lib.Linear(12, 16), lib.ReLU(), attention, lib.LayerNorm(16), lib.GELU(), lib.Flatten(), lib.Linear(80, 3)
        )  # fmt: skip

    torch.manual_seed(0)
    theirs, ours = net(torch.nn, Theirs()), net(nn, Attention())
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    change(ours)
    return ours, theirs


def exchanged(number: int, layer: Callable[[], nn.Module]) -> Callable[[Any], None]:
    def change(layers: Any) -> None:
        new = layer()
        new.load_state_dict(layers[number].state_dict())
        layers[number] = new

    return change


def zeroed(layers: Any) -> None:
    layers[0].weight.data = layers[0].weight.data * 0.0


MISTAKES: dict[str, tuple[Callable[[Any], None], str, str]] = {
    "another activation": (exchanged(4, nn.ReLU), "layer 4 ReLU", "output"),
    "another eps": (exchanged(3, lambda: nn.LayerNorm(16, eps=0.1)), "layer 3 LayerNorm", "output"),
    "scores without their scale": (exchanged(2, lambda: Attention(1.0)), "layer 2.out Linear", "output"),
    "a softmax along the other axis": (exchanged(2, lambda: Attention(transposed=True)), "layer 2.out Linear", "output"),
    "no gradient": (exchanged(1, Stopped), "layer 1 Stopped", "gradient of its input"),
    "a weight of its own": (zeroed, "the weight 0.weight", "other values"),
    "a bias left out": (lambda layers: setattr(layers[6], "bias", None), "the names of the weights", "6.bias"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_model_is_named(name: str) -> None:
    change, what, fact = MISTAKES[name]
    ours, theirs = pair(change)
    found = pg.verify(ours, pg.randn(2, 5, 12), against=theirs).first
    assert found is not None and found.what == what and fact in found.fact, found


def test_modules_of_the_same_weights_agree() -> None:
    ours, theirs = pair()
    verdict = pg.verify(ours, pg.randn(2, 5, 12), against=theirs)
    assert verdict, verdict
    assert str(verdict).endswith("held against PyTorch; nothing deviates")
    assert sum("gradient" in held.name for held in verdict.kernels) >= 8


def test_gradients_of_inputs_that_layers_read_in_other_shapes_are_compared() -> None:
    """As that of a normalization by groups, or a linear layer behind a flattened axis."""

    def net(lib: Any) -> Any:
        return lib.Sequential(lib.Conv2d(3, 4, 3), lib.Flatten(2), lib.GroupNorm(2, 4), lib.Linear(9, 3), lib.Flatten())

    ours, theirs = net(nn), net(torch.nn)
    ours.load_state_dict({name: Tensor(value.detach().numpy()) for name, value in theirs.state_dict().items()})
    verdict = pg.verify(ours, pg.randn(2, 3, 5, 5), against=theirs)
    assert verdict and sum("gradient of its input" in held.name for held in verdict.kernels) >= 4, verdict


def test_what_a_layer_keeps_of_a_run_is_compared() -> None:
    ours, theirs = nn.Sequential(nn.BatchNorm1d(5)), torch.nn.Sequential(torch.nn.BatchNorm1d(5))
    assert pg.verify(ours, pg.randn(8, 5), against=theirs)
    ours[0].momentum = 0.9
    found = pg.verify(ours, pg.randn(8, 5), against=theirs).first
    assert found is not None and found.what == "layer 0 BatchNorm1d" and found.fact.startswith("running_mean: "), found


def test_modules_that_drop_elements_are_refused() -> None:
    ours, theirs = nn.Sequential(nn.Dropout(0.5)), torch.nn.Sequential(torch.nn.Dropout(0.5))
    with pytest.raises(pg.ArgumentError, match="drop random elements"):
        pg.verify(ours, pg.randn(3), against=theirs)
    assert pg.verify(ours.eval(), pg.randn(3), against=theirs.eval())


def test_only_a_module_is_compared_with_one() -> None:
    with pytest.raises(pg.ArgumentError, match="a module is compared with PyTorch's, got function"):
        pg.verify(lambda x: x, pg.randn(3), against=torch.nn.ReLU())
