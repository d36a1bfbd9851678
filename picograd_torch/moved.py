"""Modules under names other than their files': PyTorch's modules that the core lacks, and former modules of classes.

A pickle contains the module of each class. If a class has moved, its old module is the public page that has it, so old
pickles can be read.
"""

from __future__ import annotations

from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

from picograd.loading import load_late

FORMER = {  # by a public page the former modules of its classes
    "picograd.nn": """
        nn.layers.activations nn.layers.adaptive_softmax nn.layers.batch_norm nn.layers.class_losses nn.layers.convolution
        nn.layers.dropout nn.layers.fractional nn.layers.losses nn.layers.multihead nn.layers.padding nn.layers.pooling
        nn.layers.rectifiers nn.layers.recurrent_cells nn.layers.resample
    """,
    "picograd.nn.utils.rnn": "nn.utils.packed_sequence",
    "picograd.optim": "optim.adam_variants optim.adaptive optim.basic optim.directions",
    "picograd.utils.data": "utils.data.datasets utils.data.loader utils.data.samplers",
    "picograd.distributions": """
        distributions.base distributions.continuous distributions.discrete distributions.gammas distributions.multivariate
    """,
    "picograd_training.scaler": "optim.scaler",
}
HOMES = {
    "picograd.autograd.function": "picograd_torch.autograd_function",
    "picograd.distributions.constraints": "picograd_distributions.constraints",
    "picograd.distributions.transforms": "picograd_distributions.transforms",
    "picograd.distributions.utils": "picograd_distributions.utils",
    "picograd.nn.grad": "picograd_torch.nn_grad",
    "picograd.nn.modules": "picograd_torch.nn_modules",
    "picograd.utils.tensorboard": "picograd_torch.tensorboard",
    **{f"picograd.{name}": home for home, names in FORMER.items() for name in names.split()},
}


class Elsewhere(Loader):
    """Loads a module under another name, as the same object."""

    def __init__(self, home: str):
        self.home = home

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module with its real name."""
        module: ModuleType = load_late(self.home)
        self.own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restores the module's own spec, which Python has replaced."""
        module.__spec__ = self.own


def spec_of(name: str) -> ModuleSpec | None:
    """Returns the spec of a module with one of these names, None for others."""
    return spec_from_loader(name, Elsewhere(HOMES[name])) if name in HOMES else None
