"""Layers draw their parameters in reset_parameters, which users call and override."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import picograd as pg

NN = Any  # pg.nn or torch.nn
LAYERS: dict[str, Callable[[NN], Any]] = {
    "Linear": lambda nn: nn.Linear(3, 2),
    "Linear without bias": lambda nn: nn.Linear(3, 2, bias=False),
    "LazyLinear": lambda nn: nn.LazyLinear(2),
    "Bilinear": lambda nn: nn.Bilinear(3, 4, 2),
    "Embedding": lambda nn: nn.Embedding(4, 3, padding_idx=1),
    "EmbeddingBag": lambda nn: nn.EmbeddingBag(4, 3),
    "Conv1d": lambda nn: nn.Conv1d(2, 4, 3, groups=2),
    "Conv2d": lambda nn: nn.Conv2d(2, 3, 3),
    "Conv3d": lambda nn: nn.Conv3d(2, 3, 2),
    "ConvTranspose2d": lambda nn: nn.ConvTranspose2d(2, 3, 3),
    "BatchNorm1d": lambda nn: nn.BatchNorm1d(3),
    "BatchNorm2d without affine": lambda nn: nn.BatchNorm2d(3, affine=False),
    "InstanceNorm2d": lambda nn: nn.InstanceNorm2d(3, affine=True),
    "LayerNorm": lambda nn: nn.LayerNorm(3),
    "RMSNorm": lambda nn: nn.RMSNorm(3),
    "GroupNorm": lambda nn: nn.GroupNorm(2, 4),
    "RNN": lambda nn: nn.RNN(3, 4),
    "LSTM": lambda nn: nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2),
    "GRU": lambda nn: nn.GRU(3, 4, bias=False),
    "GRUCell": lambda nn: nn.GRUCell(3, 4),
    "PReLU": lambda nn: nn.PReLU(init=0.5),
    "AdaptiveLogSoftmaxWithLoss": lambda nn: nn.AdaptiveLogSoftmaxWithLoss(4, 10, [2, 6]),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")  # PyTorch's, of lazy layers and clusters
def test_reset_parameters_draws_as_the_constructor_does(name: str) -> None:
    assert hasattr(LAYERS[name](torch.nn), "reset_parameters")
    pg.manual_seed(3)
    layer = LAYERS[name](pg.nn)
    drawn = {key: value.tolist() for key, value in layer.state_dict().items()}
    with pg.no_grad():
        for tensor in layer.state_dict().values():
            tensor.fill_(7)
    pg.manual_seed(3)
    layer.reset_parameters()
    assert {key: value.tolist() for key, value in layer.state_dict().items()} == drawn


@pytest.mark.parametrize("name", [name for name in LAYERS if " " not in name and not name.startswith("Adaptive")])
def test_a_reset_parameters_of_a_subclass_is_what_the_constructor_calls(name: str) -> None:
    made = type(LAYERS[name](pg.nn))

    def reset_parameters(layer: Any) -> None:
        for parameter in layer.parameters():
            pg.nn.init.constant_(parameter, 0.25)

    class Namespace:
        def __getattr__(self, _: str) -> type:
            return type(made.__name__, (made,), {"reset_parameters": reset_parameters})

    assert all((parameter == 0.25).all() for parameter in LAYERS[name](Namespace()).parameters())


def test_modules_without_parameters_of_their_own_have_nothing_to_reset() -> None:
    for made in (pg.nn.ReLU(), pg.nn.Sequential(pg.nn.Linear(1, 1)), pg.nn.Dropout()):
        assert not hasattr(made, "reset_parameters")
