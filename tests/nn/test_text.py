"""Modules print as PyTorch's do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from picograd import nn

LAYERS: dict[str, tuple[Any, ...]] = {
    "Linear": (3, 2), "Bilinear": (2, 3, 4), "Flatten": (), "Unflatten": (1, (2, 3)), "Identity": (),
    "Embedding": (3, 2, 0), "EmbeddingBag": (3, 2), "LayerNorm": (4,), "RMSNorm": (4,), "GroupNorm": (2, 4),
    "LocalResponseNorm": (2,), "BatchNorm2d": (4,), "InstanceNorm2d": (4,), "Dropout": (0.2,), "Dropout2d": (),
    "AlphaDropout": (), "FeatureAlphaDropout": (), "Conv1d": (2, 4, 3), "Conv2d": (2, 4, 3, 2, 1, 2, 2, False),
    "ConvTranspose2d": (2, 4, 3, 2, 1, 1), "MaxPool2d": (2,), "AvgPool1d": (2,), "AvgPool2d": (2,), "LPPool2d": (2.0, 2),
    "AdaptiveAvgPool2d": ((2, 3),), "AdaptiveMaxPool1d": (2,), "MaxUnpool2d": (2,), "Upsample": (None, 2),
    "UpsamplingNearest2d": (None, 2), "UpsamplingBilinear2d": (3,), "PixelShuffle": (2,), "PixelUnshuffle": (2,),
    "ChannelShuffle": (2,), "Fold": ((4, 5), 2), "Unfold": (2,), "ZeroPad2d": (1,), "ConstantPad1d": (1, 2.0),
    "ReflectionPad2d": (1,), "CircularPad3d": (1,), "ReplicationPad1d": (1,), "ReLU": (True,), "ReLU6": (),
    "Hardtanh": (), "Hardsigmoid": (), "Hardswish": (), "ELU": (), "CELU": (), "SELU": (), "GELU": (), "SiLU": (),
    "Mish": (), "GLU": (), "Hardshrink": (), "LeakyReLU": (), "Softplus": (), "Softshrink": (), "PReLU": (3,),
    "Threshold": (0.1, 2.0), "Softmin": (1,), "Softmax": (1,), "LogSoftmax": (-1,), "RReLU": (), "RNN": (3, 4),
    "LSTM": (3, 4, 2, True, True), "GRU": (3, 4), "LSTMCell": (3, 4), "GRUCell": (3, 4, False), "CrossEntropyLoss": (),
    "MultiheadAttention": (8, 2), "TransformerEncoderLayer": (8, 2, 16), "TransformerDecoderLayer": (8, 2, 16),
    "Transformer": (8, 2, 2, 2, 16),
}  # fmt: skip


def text_of(module: Any) -> str:
    return repr(module).replace("NonDynamicallyQuantizableLinear", "Linear")


@pytest.mark.req("C7")
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_prints_as_pytorchs(name: str) -> None:
    assert text_of(getattr(nn, name)(*LAYERS[name])) == text_of(getattr(torch.nn, name)(*LAYERS[name]))


def nets(library: Any) -> list[Any]:
    class Net(library.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = library.Sequential(library.Linear(2, 2), library.Sequential(library.Tanh(), library.ReLU()))
            self.blocks = library.ModuleList([library.Linear(2, 2), library.Linear(2, 2), library.Tanh()])
            self.named = library.ModuleDict({"a": library.Identity(), "b": library.ModuleList()})

        def extra_repr(self) -> str:
            return "one\ntwo"

    normed = library.utils.parametrizations.weight_norm(library.Linear(2, 2))
    return [Net(), library.Sequential(), library.ModuleList(), library.ModuleDict(), normed]


@pytest.mark.req("C7")
@pytest.mark.parametrize("place", range(5))
def test_a_net_prints_as_pytorchs(place: int) -> None:
    assert repr(nets(nn)[place]) == repr(nets(torch.nn)[place])
