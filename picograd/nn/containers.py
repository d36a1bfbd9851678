"""Modules that hold modules: Sequential, ModuleList.

In:    modules
Out:   a module
Next:  picograd/nn/layers.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class _Numbered(Module):
    """Modules held under the names 0, 1, ..."""

    length: int

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, str(place)) for place in range(self.length))

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, place: int) -> Any:
        return getattr(self, str(range(self.length)[place]))


class Sequential(_Numbered):
    """Modules (or functions) `layers`, one after the other.

    >>> Sequential(nn.Linear(2, 3), nn.Tanh())(Tensor.ones(4, 2)).shape
    (4, 3)
    """

    def __init__(self, *layers: Module | Callable[[Tensor], Tensor]):
        for place, layer in enumerate(layers):
            setattr(self, str(place), layer)
        self.length = len(layers)

    def forward(self, x: Any) -> Any:
        """x goes through all layers."""
        for layer in self:
            x = layer(x)
        return x


class ModuleList(_Numbered):
    """A list of modules, which are part of the module that holds it.

    >>> len(ModuleList([nn.Linear(2, 3), nn.Tanh()]))
    2
    """

    def __init__(self, modules: Iterable[Module] = ()):
        self.length = 0
        self.extend(modules)

    def append(self, module: Module) -> ModuleList:
        """Adds a module at the end; returns self.

        >>> len(ModuleList([nn.Linear(2, 3)]).append(nn.Tanh()))
        2
        """
        setattr(self, str(self.length), module)
        self.length += 1
        return self

    def extend(self, modules: Iterable[Module]) -> ModuleList:
        """Adds modules at the end; returns self.

        >>> len(ModuleList([nn.Linear(2, 3)]).extend([nn.Tanh(), nn.Tanh()]))
        3
        """
        for module in modules:
            self.append(module)
        return self
