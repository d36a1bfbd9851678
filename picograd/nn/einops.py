"""einops' layers, as einops.layers.torch has them for PyTorch: patterns as modules, for nn.Sequential."""

from __future__ import annotations

import einops
from einops.layers import RearrangeMixin, ReduceMixin

from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor

__all__ = ["Rearrange", "Reduce"]


class Rearrange(RearrangeMixin, Module):
    """einops.rearrange with a pattern, as a module.

    Args:
      pattern:       of axes before and after
      axes_lengths:  of axes, by name

    >>> from picograd.nn.einops import Rearrange
    >>> nn.Sequential(Rearrange("n (h w) -> n h w", h=2), nn.Flatten())(pg.ones(3, 4)).shape
    (3, 4)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input, its axes as the pattern says."""
        return einops.rearrange(input, self.pattern, **self.axes_lengths)


class Reduce(ReduceMixin, Module):
    """einops.reduce with a pattern, as a module.

    Args:
      pattern:       of axes before and after
      reduction:     "min", "max", "sum", "mean" or "prod"
      axes_lengths:  of axes, by name

    >>> from picograd.nn.einops import Reduce
    >>> Reduce("n c h w -> n c", "mean")(pg.ones(3, 2, 4, 4)).shape
    (3, 2)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input, without the axes that the pattern leaves out."""
        return einops.reduce(input, self.pattern, self.reduction, **self.axes_lengths)
