"""Modules under other names: PyTorch's files of layers, its gradients of convolutions, former homes of classes."""

from __future__ import annotations

import importlib
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd_torch.moved import HOMES
from picograd_torch.nn_modules import FILES
from tests.helpers import same_value


def test_each_name_gives_the_module_itself() -> None:
    for name, home in HOMES.items():
        module = importlib.import_module(name)
        assert module is importlib.import_module(home) and module.__spec__.name == home
    with pytest.raises(ModuleNotFoundError, match="No module named 'picograd.nn.layers.nothing'"):
        importlib.import_module("picograd.nn.layers.nothing")


VALUES = [nn.ReLU(), pg.GradScaler(), pg.distributions.Normal(0.0, 1.0), pg.utils.data.SequentialSampler([1])]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_pickle_from_before_a_class_moved_is_read(value: object) -> None:
    before = {"ReLU": "picograd.nn.layers.activations", "GradScaler": "picograd.optim.scaler",
              "Normal": "picograd.distributions.continuous", "SequentialSampler": "picograd.utils.data.loader"}  # fmt: skip
    kind = type(value)
    old = pickle.dumps(value, 0).replace(f"c{kind.__module__}\n".encode(), f"c{before[kind.__name__]}\n".encode())
    assert before[kind.__name__].encode() in old
    assert type(pickle.loads(old)) is kind


BASES = {
    "batchnorm._BatchNorm": "BatchNorm1d(2)", "batchnorm._NormBase": "InstanceNorm2d(2)", "conv._ConvNd": "Conv2d(2, 2, 1)",
    "conv._ConvTransposeNd": "ConvTranspose1d(2, 2, 1)", "dropout._DropoutNd": "Dropout()",
    "instancenorm._InstanceNorm": "InstanceNorm1d(2)", "loss._Loss": "MSELoss()",
    "loss._WeightedLoss": "CrossEntropyLoss()",
    "pooling._MaxPoolNd": "MaxPool2d(2)", "pooling._AvgPoolNd": "AvgPool1d(2)",
    "pooling._AdaptiveAvgPoolNd": "AdaptiveAvgPool2d(1)", "pooling._AdaptiveMaxPoolNd": "AdaptiveMaxPool1d(1)",
}  # fmt: skip
MORE = ["Linear(1, 1)", "GroupNorm(1, 2)", "L1Loss()", "BCELoss()", "BCEWithLogitsLoss()", "CTCLoss()", "AlphaDropout()",
        "LPPool1d(1, 2)", "TripletMarginLoss()", "AdaptiveLogSoftmaxWithLoss(8, 4, [2])", "CosineSimilarity()",
        "BatchNorm3d(2)", "Conv1d(1, 1, 1)", "MultiMarginLoss()", "NLLLoss()", "FeatureAlphaDropout()"]  # fmt: skip


@pytest.mark.parametrize("base", BASES)
def test_a_layer_is_of_the_base_of_which_pytorchs_is(base: str) -> None:
    file, name = base.split(".")
    mine, theirs = (getattr(getattr(lib.nn.modules, file), name) for lib in (pg, torch))
    for text in (*BASES.values(), *MORE):
        layers = [eval(f"nn.{text}", {"nn": lib.nn}) for lib in (pg, torch)]
        assert isinstance(layers[0], mine) == isinstance(layers[1], theirs), text
    assert isinstance(eval(f"nn.{BASES[base]}", {"nn": nn}), mine)


def test_a_file_of_layers_has_the_layers_and_says_what_to_write_for_what_it_lacks() -> None:
    assert all(hasattr(torch.nn.modules, file) for file in FILES)
    assert nn.modules.conv.Conv2d is nn.modules.Conv2d is nn.Conv2d and nn.modules.utils._pair(3) == (3, 3)
    state = {"module.a": 1, "b": 2, "module.c.module.d": 3}
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert [*state.items()] == [("b", 2), ("a", 1), ("c.module.d", 3)]
    with pytest.raises(AttributeError, match=r"hint: for module in model.modules\(\): module.register_forward_hook"):
        nn.modules.module.register_module_forward_hook(print)

    class Half(nn.modules.loss._Loss):
        def forward(self, input, target):
            return nn.functional.mse_loss(input, target, reduction=self.reduction) / 2

    assert Half(reduction="sum")(pg.ones(2), pg.zeros(2)).item() == 1.0
    with pytest.warns(UserWarning, match="old names"):
        assert Half(size_average=False)(pg.ones(2), pg.zeros(2)).item() == 1.0


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_gradients_of_convolutions_are_pytorchs(axes: int, rng: np.random.Generator) -> None:
    x, w, = rng.standard_normal((2, 4, *(5,) * axes)), rng.standard_normal((6, 2, *(2,) * axes))  # fmt: skip
    settings = {"stride": 2, "padding": 1, "groups": 2}
    shape = getattr(torch.nn.functional, f"conv{axes}d")(torch.tensor(x), torch.tensor(w), **settings).shape
    grad = rng.standard_normal(tuple(shape))
    for name, first, second in (("input", x.shape, w), ("weight", x, w.shape)):
        parts = (first, second, grad)
        given = [[make(v) if isinstance(v, np.ndarray) else v for v in parts] for make in (Tensor, torch.tensor)]
        mine, theirs = (getattr(lib.nn.grad, f"conv{axes}d_{name}") for lib in (pg, torch))
        same_value(mine(*given[0], **settings), theirs(*given[1], **settings))


# ---- TensorBoard ----
def test_a_summary_writer_hands_arrays_to_tensorboardx(monkeypatch: pytest.MonkeyPatch) -> None:
    from picograd.utils.tensorboard import SummaryWriter

    calls: list[object] = []

    class Writer:
        def __init__(self, logdir: str):
            self.logdir = logdir

        def add_scalars(self, *args: object, **kwargs: object) -> None:
            calls.append((args, kwargs))

        def close(self) -> None:
            calls.append("closed")

    monkeypatch.setitem(sys.modules, "tensorboardX", SimpleNamespace(SummaryWriter=Writer))
    with SummaryWriter("runs") as writer:
        writer.add_scalars("loss", {"train": pg.ones(2).sum()}, global_step=3, others=[Tensor([1.0], requires_grad=True)])
    (args, kwargs), last = calls
    assert args == ("loss", {"train": 2.0}) and kwargs["global_step"] == 3 and last == "closed" and writer.logdir == "runs"
    assert isinstance(kwargs["others"][0], np.ndarray) and not hasattr(writer, "add_nothing")


def test_a_summary_writer_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from picograd.utils.tensorboard import SummaryWriter

    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(pg.ArgumentError, match="tensorboardX is not installed.*\n.*\n.*hint: pip install tensorboardX"):
        SummaryWriter()
