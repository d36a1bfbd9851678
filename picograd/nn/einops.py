"""einops for picograd's tensors (importing this file registers them), and einops' layers: patterns as modules.

einops looks for a backend among the subclasses of AbstractBackend, so one must exist before the first tensor comes. The
layers are those that einops.layers.torch has for PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import einops
import numpy as np
from einops._backends import AbstractBackend
from einops.layers import RearrangeMixin, ReduceMixin

from picograd.nn.module import Module
from picograd.tensor.products import einsum
from picograd.tensor.tensor import Tensor

__all__ = ["Rearrange", "Reduce"]


class Backend(AbstractBackend):
    """The interface that einops requires of a framework."""

    framework_name = "picograd"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: np.ndarray[Any, Any]) -> Tensor:
        return Tensor(x)

    def to_numpy(self, x: Tensor) -> np.ndarray[Any, Any]:
        return x.detach().numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        return Tensor.arange(start, stop)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        return getattr(x, {"max": "amax", "min": "amin"}.get(operation, operation))(tuple(axes))

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        return Tensor.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return x.repeat(tuple(repeats))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return Tensor.cat(tensors, axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.is_float

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)


class Rearrange(RearrangeMixin, Module):
    """einops.rearrange with a pattern, as a module.

    Args:
      pattern:       axes before and after
      axes_lengths:  lengths of axes, by name

    >>> from picograd.nn.einops import Rearrange
    >>> nn.Sequential(Rearrange("n (h w) -> n h w", h=2), nn.Flatten())(pg.ones(3, 4)).shape
    (3, 4)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Rearranges the axes of input."""
        return einops.rearrange(input, self.pattern, **self.axes_lengths)


class Reduce(ReduceMixin, Module):
    """einops.reduce with a pattern, as a module.

    Args:
      pattern:       axes before and after
      reduction:     "min", "max", "sum", "mean" or "prod"
      axes_lengths:  lengths of axes, by name

    >>> from picograd.nn.einops import Reduce
    >>> Reduce("n c h w -> n c", "mean")(pg.ones(3, 2, 4, 4)).shape
    (3, 2)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """Reduces the axes of input that the pattern leaves out."""
        return einops.reduce(input, self.pattern, self.reduction, **self.axes_lengths)
