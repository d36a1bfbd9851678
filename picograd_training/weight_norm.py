"""The older forms of weight and spectral norm: the trained tensors are weight_g, weight_orig, ... of the module itself.

Saved state of networks with these norms has these names.
"""

from __future__ import annotations

from typing import Any

from picograd.errors import ArgumentError
from picograd.nn.module import Module
from picograd.nn.parameter import Parameter
from picograd.tensor.hooks import RemovableHandle
from picograd.tensor.tensor import Tensor
from picograd_training.parametrizations import TURNED, SpectralPart, norm_except, scaled_by_norm


class WeightNorm:
    """Computes a weight from NAME_g and NAME_v."""

    def __init__(self, name: str, dim: int | None):
        self.name, self.dim = name, dim

    def __call__(self, module: Module) -> Tensor:
        """Returns g v / |v|."""
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return scaled_by_norm(g, v, self.dim)


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Parametrizes a weight as w = g v / |v|, and trains NAME_g and NAME_v; returns the module.

    Args:
      module:  owner of the weight
      name:    name of the weight
      dim:     g has a length for each index of this axis; None: a single length

    Raises:
      ArgumentError: the module has no such parameter.

    Source: Salimans, Kingma 2016, arXiv:1602.07868, eq. 2.

    >>> sorted(weight_norm(nn.Linear(3, 2)).state_dict())
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _taken("weight_norm", module, name)
    setattr(module, f"{name}_g", Parameter(norm_except(weight, dim).detach().clone()))
    setattr(module, f"{name}_v", Parameter(weight))
    module.compute_attribute(name, WeightNorm(name, dim))
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Makes a weight of weight_norm a parameter again; returns the module.

    `name`: name of the weight.

    Raises:
      ArgumentError: the weight is not computed by weight_norm.

    >>> sorted(remove_weight_norm(weight_norm(nn.Linear(3, 2))).state_dict())
    ['bias', 'weight']
    """
    return _given_back("remove_weight_norm", WeightNorm, module, name, (f"{name}_g", f"{name}_v"))


class SpectralNorm:
    """Computes a weight from NAME_orig, NAME_u and NAME_v; as a hook it updates u and v before each forward in training."""

    handle: RemovableHandle

    def __init__(self, name: str, part: SpectralPart):
        self.name, self.part = name, part

    def __call__(self, module: Module) -> Tensor:
        """Returns the weight divided by its largest singular value."""
        return self.part.divided(*self._parts(module))

    def move_on(self, module: Module, args: Any) -> None:
        """Continues the power iteration, in training."""
        if module.training:
            self.part.iterate(*self._parts(module), self.part.steps)

    def _parts(self, module: Module) -> tuple[Tensor, Tensor, Tensor]:
        weight, u, v = (getattr(module, f"{self.name}_{label}") for label in ("orig", "u", "v"))
        return weight, u, v


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """Divides a weight by its largest singular value, and trains NAME_orig; returns the module.

    Args:
      module:              owner of the weight
      name:                name of the weight
      n_power_iterations:  number of iterations before each forward in training
      eps:                 lower bound of norms in normalization
      dim:                 axis of outputs: 0, or 1 for transposed convolutions

    Raises:
      ArgumentError: the module has no such parameter, or n_power_iterations is below 1.

    Source: Miyato et al. 2018, arXiv:1802.05957, algorithm 1.

    >>> sorted(spectral_norm(nn.Linear(3, 2)).state_dict())
    ['bias', 'weight_orig', 'weight_u', 'weight_v']
    """
    axis = (1 if isinstance(module, TURNED) else 0) if dim is None else dim
    part = SpectralPart(n_power_iterations, axis, eps, v_first=True)
    weight = _taken("spectral_norm", module, name)
    module.register_parameter(f"{name}_orig", weight)  # the same Parameter: optimizers that hold it continue
    u, v = part.start(weight, 0)
    module.register_buffer(f"{name}_u", u)
    module.register_buffer(f"{name}_v", v)
    rule = SpectralNorm(name, part)
    module.compute_attribute(name, rule)
    rule.handle = module.register_forward_pre_hook(rule.move_on)
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Makes a weight of spectral_norm a parameter again; returns the module.

    `name`: name of the weight.

    Raises:
      ArgumentError: the weight is not computed by spectral_norm.

    >>> sorted(remove_spectral_norm(spectral_norm(nn.Linear(3, 2))).state_dict())
    ['bias', 'weight']
    """
    rule = module.computed(name)
    _given_back("remove_spectral_norm", SpectralNorm, module, name, (f"{name}_orig", f"{name}_u", f"{name}_v"))
    rule.handle.remove()
    return module


def _taken(function: str, module: Module, name: str) -> Tensor:
    """Removes a parameter from a module, and returns it."""
    weight = vars(module).get(name)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"{function}: {type(module).__name__} has no parameter {name!r}.")
    delattr(module, name)
    return weight


def _given_back(function: str, kind: type, module: Module, name: str, parts: tuple[str, ...]) -> Module:
    if not isinstance(module.computed(name), kind):
        raise ArgumentError(f"{function}: {type(module).__name__}.{name} is a parameter of its own.")
    value = getattr(module, name).detach().clone()
    module.stop_computing(name)
    for part in parts:
        delattr(module, part)
    setattr(module, name, Parameter(value))
    return module
