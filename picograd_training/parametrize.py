"""Parametrizations: a parameter of a module becomes a function of others, computed at each access.

The trained tensors are then module.parametrizations.NAME.original, or original0, original1, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, ShapeError
from picograd.interrupts import whole_context
from picograd.nn.containers import ModuleDict, ModuleList
from picograd.nn.module import Module
from picograd.nn.parameter import Parameter
from picograd.tensor.modes import Mode, no_grad
from picograd.tensor.tensor import Tensor

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations"]

_cache: ContextVar[dict[tuple[int, str], Tensor] | None] = ContextVar("parametrizations", default=None)


@whole_context
def cached() -> Iterator[None]:
    """Computes each parametrized tensor once within the block, however often it is read.

    >>> net = register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh(), unsafe=True)
    >>> with cached():
    ...     net.weight is net.weight
    True
    """
    held = _cache.get()
    with Mode(_cache, {} if held is None else held):
        yield


class Parametrized:
    """Computes `module.name` by module.parametrizations[name]; assignments go the other way."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, module: Module) -> Tensor:
        """Returns the tensor, computed now or cached by cached()."""
        kept, key = _cache.get(), (id(module), self.name)
        if kept is None:
            return module.parametrizations[self.name]()
        if key not in kept:
            kept[key] = module.parametrizations[self.name]()
        return kept[key]

    def store(self, module: Module, value: Tensor) -> None:
        """Sets the tensors from which the tensor is computed."""
        module.parametrizations[self.name].right_inverse(value)


class ParametrizationList(ModuleList):
    """The modules that compute a tensor, in order, and their original tensors.

    Args:
      modules:   compute the tensor; right_inverse(tensor) returns the original, if it differs
      original:  the parameter before its parametrization
      unsafe:    allow another shape and dtype

    Raises:
      ShapeError: the result has a different shape than the parameter.
      DTypeError: the result has a different dtype than the parameter.

    >>> weights = ParametrizationList([nn.Tanh()], nn.Parameter(Tensor([0.0])))
    >>> weights()
    Tensor([0.], requires_grad=True)
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False):
        super().__init__(modules)
        self.unsafe = unsafe
        self._begin(original)
        if not unsafe:
            with no_grad():
                _check_same(self(), original)

    def _inverted(self, value: Tensor) -> Tensor | Sequence[Tensor]:
        with no_grad():
            start: Tensor | Sequence[Tensor] = value.detach()
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    start = module.right_inverse(start)
        return start

    def _begin(self, original: Tensor) -> None:
        """Makes the trained tensors."""
        start = self._inverted(original)
        self.is_tensor = isinstance(start, Tensor)
        if isinstance(start, Tensor):
            if start.shape == original.shape and start.dtype is original.dtype:  # an optimizer may already hold it
                with no_grad():
                    original.copy_(start)
                start = original
            _hold(self, "original", start, original)
            return
        if not isinstance(start, Sequence):
            fact = f"register_parametrization: right_inverse must return tensors, got {type(start).__name__}."
            raise ArgumentTypeError(fact)
        for place, tensor in enumerate(start):
            _hold(self, f"original{place}", tensor.clone(), original)

    def originals(self) -> list[Tensor]:
        """Returns the trained tensors.

        >>> ParametrizationList([nn.Tanh()], nn.Parameter(Tensor([0.0]))).originals()
        [Tensor([0.], requires_grad=True)]
        """
        if self.is_tensor:
            return [self.original]
        own = self._named_tensors("parameter", "buffer", recurse=False)
        return [tensor for name, tensor in own if name.startswith("original")]

    def right_inverse(self, value: Tensor) -> None:
        """Sets the trained tensors so that the result is `value`.

        Raises:
          ArgumentError: a module has no right_inverse.

        >>> class Halved(nn.Module):
        ...     def forward(self, x):
        ...         return x / 2
        ...     def right_inverse(self, x):
        ...         return x * 2
        >>> weights = ParametrizationList([Halved()], nn.Parameter(Tensor([0.0])))
        >>> weights.right_inverse(Tensor([2.0]))
        >>> weights.original
        Tensor([4.], requires_grad=True)
        """
        for module in self:
            if not hasattr(module, "right_inverse"):
                raise ArgumentError(f"right_inverse: {type(module).__name__} is not defined, so the tensor cannot be set.")
        start = self._inverted(value)
        with no_grad():
            for own, given in zip(self.originals(), [start] if isinstance(start, Tensor) else start, strict=True):
                own.copy_(given)

    def forward(self) -> Tensor:
        """Computes the tensor."""
        first, *others = list(self)
        result: Tensor = first(*self.originals())
        for module in others:
            result = module(result)
        return result

    def __len__(self) -> int:
        return len(self._names)


def _hold(module: Module, name: str, tensor: Tensor, like: Tensor) -> None:
    """Makes a tensor a parameter of a module if `like` is one, else a buffer."""
    if isinstance(like, Parameter):
        setattr(module, name, tensor if isinstance(tensor, Parameter) else Parameter(tensor, like.requires_grad))
    else:
        module.register_buffer(name, tensor)


def _check_same(result: Any, before: Tensor) -> None:
    if not isinstance(result, Tensor):
        raise ArgumentTypeError(f"register_parametrization: must return a tensor, got {type(result).__name__}.")
    if result.shape != before.shape:
        raise ShapeError(f"register_parametrization: gives {result.shape} for a parameter of shape {before.shape}.")
    if result.dtype is not before.dtype:
        raise DTypeError(f"register_parametrization: gives {result.dtype} for a parameter of {before.dtype}.")


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Makes `parametrization` compute a parameter of a module; returns the module.

    Args:
      module:           owner of the parameter
      tensor_name:      name of a parameter; if it is parametrized already, the new module is applied last
      parametrization:  tensor -> tensor; its right_inverse(tensor), if any, gives the start values
      unsafe:           allow another shape and dtype

    Raises:
      ArgumentError: the module has no such parameter.
      ShapeError:    the result has a different shape than the parameter.
      DTypeError:    the result has a different dtype than the parameter.

    >>> class Symmetric(nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> net = register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    >>> bool((net.weight == net.weight.mT).all()), [name for name, _ in net.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            with no_grad():
                before = getattr(module, tensor_name)
                _check_same(parametrization(before), before)
        module.parametrizations[tensor_name].append(parametrization)
        return module
    original = vars(module).get(tensor_name)
    if not isinstance(original, Tensor):
        raise ArgumentError(f"register_parametrization: {type(module).__name__} has no parameter {tensor_name!r}.")
    held = ParametrizationList([parametrization], original, unsafe)
    delattr(module, tensor_name)
    if "parametrizations" not in vars(module):
        module.parametrizations = ModuleDict()
    module.parametrizations[tensor_name] = held
    module.compute_attribute(tensor_name, Parametrized(tensor_name))
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Returns whether `module` has a parametrized tensor, or has one named `tensor_name`.

    >>> is_parametrized(nn.Linear(2, 2))
    False
    """
    held = vars(module).get("parametrizations")
    if not isinstance(held, ModuleDict):
        return False
    return len(held) > 0 if tensor_name is None else tensor_name in held


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes a parametrized tensor a parameter again; returns the module.

    Args:
      module:              owner of the tensor
      tensor_name:         name of the tensor
      leave_parametrized:  keep the computed value; False: restore the original one

    Raises:
      ArgumentError: the tensor is not parametrized; or it has several originals, and leave_parametrized is False.

    >>> net = register_parametrization(nn.Linear(2, 2), "weight", nn.Tanh(), unsafe=True)
    >>> [name for name, _ in remove_parametrizations(net, "weight").named_parameters()]
    ['bias', 'weight']
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentError(f"remove_parametrizations: {type(module).__name__}.{tensor_name} is not parametrized.")
    held = module.parametrizations[tensor_name]
    if not held.is_tensor and not leave_parametrized:
        raise ArgumentError(f"remove_parametrizations: {tensor_name} has several originals: pass leave_parametrized=True.")
    value = getattr(module, tensor_name).detach().clone()
    module.stop_computing(tensor_name)
    module.parametrizations.pop(tensor_name)
    if len(module.parametrizations) == 0:
        del module.parametrizations
    original = held.originals()[0]
    if not held.is_tensor or (leave_parametrized and value.shape != original.shape):
        _hold(module, tensor_name, value, original)
        return module
    if leave_parametrized:
        with no_grad():
            original.copy_(value)
    _hold(module, tensor_name, original, original)
    return module
