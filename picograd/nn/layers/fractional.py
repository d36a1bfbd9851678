"""Layers that pool windows at drawn places.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/resample.py
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
from picograd.nn.functions.fractional import check_sizes
from picograd.nn.functions.maxima import Pooled
from picograd.nn.functions.placement import Each
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


class _FractionalMaxPool(Module):
    def __init__(
        self, kernel_size: Each, output_size: Each | None = None, output_ratio: float | Sequence[float] | None = None,
        return_indices: bool = False, _random_samples: Tensor | None = None,
    ):  # fmt: skip
        check_sizes(type(self).__name__, output_size, output_ratio)
        self.kernel_size, self.output_size, self.output_ratio = kernel_size, output_size, output_ratio
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def _sizes(self) -> tuple[Each, Each | None, float | Sequence[float] | None, bool, Tensor | None]:
        return self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples


class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest element of windows at drawn places; see `functional.fractional_max_pool2d`.

    Args:
      kernel_size, output_size, output_ratio, return_indices: as in `functional.fractional_max_pool2d`
      _random_samples:  the numbers that are drawn otherwise

    >>> FractionalMaxPool2d(2, output_size=3)(Tensor.ones(1, 6, 6)).shape
    (1, 3, 3)
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, H, W) -> (N, C, H', W'), or with return_indices a pair."""
        return functional.fractional_max_pool2d(input, *self._sizes())


class FractionalMaxPool3d(_FractionalMaxPool):
    """The greatest element of windows at drawn places; see `functional.fractional_max_pool2d`.

    Args:
      kernel_size, output_size, output_ratio, return_indices: as in `functional.fractional_max_pool2d`
      _random_samples:  the numbers that are drawn otherwise

    >>> FractionalMaxPool3d(2, output_ratio=0.5)(Tensor.ones(1, 6, 6, 6)).shape
    (1, 3, 3, 3)
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, D, H, W) -> (N, C, D', H', W'), or with return_indices a pair."""
        return functional.fractional_max_pool3d(input, *self._sizes())
