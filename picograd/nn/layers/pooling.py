"""Layers that pool: maxima, means and norms of windows, and the way back from maxima.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/fractional.py
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
from picograd.nn.functions.maxima import Pooled
from picograd.nn.functions.placement import Bins, Each, each_axis
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


# ---- maxima ----
class _MaxPool(Module):
    def __init__(
        self, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ):  # fmt: skip
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, "
            f"ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(_MaxPool):
    """The greatest element of each window; see `functional.max_pool1d`.

    Args:
      kernel_size, stride, padding, dilation, return_indices, ceil_mode: as in `functional.max_pool1d`

    >>> MaxPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[3., 5.]])
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, L) -> (N, C, L'), or with return_indices a pair."""
        numbers = (self.kernel_size, self.stride, self.padding, self.dilation)
        return functional.max_pool1d(input, *numbers, self.ceil_mode, self.return_indices)


class MaxPool2d(_MaxPool):
    """The greatest element of each window; see `functional.max_pool2d`.

    Args:
      kernel_size, stride, padding, dilation, return_indices, ceil_mode: as in `functional.max_pool2d`

    >>> MaxPool2d(2)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[4.]]])
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, H, W) -> (N, C, H', W'), or with return_indices a pair."""
        numbers = (self.kernel_size, self.stride, self.padding, self.dilation)
        return functional.max_pool2d(input, *numbers, self.ceil_mode, self.return_indices)


class MaxPool3d(_MaxPool):
    """The greatest element of each window; see `functional.max_pool3d`.

    Args:
      kernel_size, stride, padding, dilation, return_indices, ceil_mode: as in `functional.max_pool3d`

    >>> MaxPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, D, H, W) -> (N, C, D', H', W'), or with return_indices a pair."""
        numbers = (self.kernel_size, self.stride, self.padding, self.dilation)
        return functional.max_pool3d(input, *numbers, self.ceil_mode, self.return_indices)


class _AdaptiveMaxPool(Module):
    def __init__(self, output_size: Bins, return_indices: bool = False):
        self.output_size, self.return_indices = output_size, return_indices

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest element of each of output_size bins; see `functional.adaptive_max_pool1d`.

    Args:
      output_size, return_indices: as in `functional.adaptive_max_pool1d`

    >>> AdaptiveMaxPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[3., 5.]])
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, L) -> (N, C, L'), or with return_indices a pair."""
        return functional.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest element of each of output_size bins; see `functional.adaptive_max_pool2d`.

    Args:
      output_size, return_indices: as in `functional.adaptive_max_pool2d`

    >>> AdaptiveMaxPool2d(1)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[4.]]])
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, H, W) -> (N, C, H', W'), or with return_indices a pair."""
        return functional.adaptive_max_pool2d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest element of each of output_size bins; see `functional.adaptive_max_pool3d`.

    Args:
      output_size, return_indices: as in `functional.adaptive_max_pool3d`

    >>> AdaptiveMaxPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Pooled:  # noqa: A002
        """input (N, C, D, H, W) -> (N, C, D', H', W'), or with return_indices a pair."""
        return functional.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _MaxUnpool(Module):
    axes = 1

    def __init__(self, kernel_size: Each, stride: Each | None = None, padding: Each = 0):
        each = {"kernel_size": kernel_size, "stride": kernel_size if stride is None else stride, "padding": padding}
        numbers = [each_axis(type(self).__name__, name, value, self.axes, 0) for name, value in each.items()]
        self.kernel_size, self.stride, self.padding = numbers

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpool):
    """Zeros with elements where MaxPool1d found them; see `functional.max_unpool1d`.

    Args:
      kernel_size, stride, padding: those of the MaxPool1d

    >>> MaxUnpool1d(2)(Tensor([[3.0, 5.0]]), Tensor([[1, 3]]))
    Tensor([[0., 3., 0., 5.]])
    """

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:  # noqa: A002
        """input (N, C, L), indices of its shape -> (N, C, L'), of output_size if that is given."""
        return functional.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool2d(_MaxUnpool):
    """Zeros with elements where MaxPool2d found them; see `functional.max_unpool2d`.

    Args:
      kernel_size, stride, padding: those of the MaxPool2d

    >>> MaxUnpool2d(2)(Tensor([[[4.0]]]), Tensor([[[2]]]))
    Tensor([[[0., 0.],
             [4., 0.]]])
    """

    axes = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:  # noqa: A002
        """input (N, C, H, W), indices of its shape -> (N, C, H', W'), of output_size if that is given."""
        return functional.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool3d(_MaxUnpool):
    """Zeros with elements where MaxPool3d found them; see `functional.max_unpool3d`.

    Args:
      kernel_size, stride, padding: those of the MaxPool3d

    >>> MaxUnpool3d(2)(Tensor.ones(1, 1, 1, 1, 1), Tensor([[[[[7]]]]])).sum().item()
    1.0
    """

    axes = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:  # noqa: A002
        """input (N, C, D, H, W), indices of its shape -> (N, C, D', H', W'), of output_size if that is given."""
        return functional.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


# ---- means ----
class _AvgPool(Module):
    def __init__(
        self, kernel_size: Each, stride: Each | None = None, padding: Each = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ):  # fmt: skip
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPool):
    """The mean of each window; see `functional.avg_pool1d`.

    Args:
      kernel_size, stride, padding, ceil_mode, count_include_pad: as in `functional.avg_pool1d`

    >>> AvgPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[2. , 3.5]])
    """

    def __init__(
        self, kernel_size: Each, stride: Each | None = None, padding: Each = 0, ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):  # fmt: skip
        each = {"kernel_size": kernel_size, "stride": kernel_size if stride is None else stride, "padding": padding}
        size, step, margin = (each_axis("AvgPool1d", name, value, 1, 0) for name, value in each.items())
        super().__init__(size, step, margin, ceil_mode, count_include_pad)

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, L) -> (N, C, L')."""
        numbers = (self.kernel_size, self.stride, self.padding)
        return functional.avg_pool1d(input, *numbers, self.ceil_mode, self.count_include_pad)


class AvgPool2d(_AvgPool):
    """The mean of each window; see `functional.avg_pool2d`.

    Args:
      kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: as in `functional.avg_pool2d`

    >>> AvgPool2d(2)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[2.5]]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, H, W) -> (N, C, H', W')."""
        numbers = (self.kernel_size, self.stride, self.padding)
        return functional.avg_pool2d(input, *numbers, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool3d(_AvgPool):
    """The mean of each window; see `functional.avg_pool3d`.

    Args:
      kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: as in `functional.avg_pool3d`

    >>> AvgPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, D, H, W) -> (N, C, D', H', W')."""
        numbers = (self.kernel_size, self.stride, self.padding)
        return functional.avg_pool3d(input, *numbers, self.ceil_mode, self.count_include_pad, self.divisor_override)


class _AdaptiveAvgPool(Module):
    def __init__(self, output_size: Bins):
        self.output_size = output_size

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each of output_size bins; see `functional.adaptive_avg_pool1d`.

    Args:
      output_size: as in `functional.adaptive_avg_pool1d`

    >>> AdaptiveAvgPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[2. , 3.5]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, L) -> (N, C, L')."""
        return functional.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of each of output_size bins; see `functional.adaptive_avg_pool2d`.

    Args:
      output_size: as in `functional.adaptive_avg_pool2d`

    >>> AdaptiveAvgPool2d(1)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[2.5]]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, H, W) -> (N, C, H', W')."""
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of each of output_size bins; see `functional.adaptive_avg_pool3d`.

    Args:
      output_size: as in `functional.adaptive_avg_pool3d`

    >>> AdaptiveAvgPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, D, H, W) -> (N, C, D', H', W')."""
        return functional.adaptive_avg_pool3d(input, self.output_size)


# ---- norms ----
class _LPPool(Module):
    def __init__(self, norm_type: float, kernel_size: Each, stride: Each | None = None, ceil_mode: bool = False):
        self.norm_type, self.kernel_size, self.stride, self.ceil_mode = norm_type, kernel_size, stride, ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPool):
    """The p-norm of each window; see `functional.lp_pool1d`.

    Args:
      norm_type, kernel_size, stride, ceil_mode: as in `functional.lp_pool1d`

    >>> LPPool1d(2, 2)(Tensor([[3.0, 4.0]]))
    Tensor([[5.]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, L) -> (N, C, L')."""
        return functional.lp_pool1d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPool):
    """The p-norm of each window; see `functional.lp_pool2d`.

    Args:
      norm_type, kernel_size, stride, ceil_mode: as in `functional.lp_pool2d`

    >>> LPPool2d(2, 2)(Tensor([[[3.0, 0.0], [0.0, 4.0]]]))
    Tensor([[[5.]]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, H, W) -> (N, C, H', W')."""
        return functional.lp_pool2d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPool):
    """The p-norm of each window; see `functional.lp_pool3d`.

    Args:
      norm_type, kernel_size, stride, ceil_mode: as in `functional.lp_pool3d`

    >>> LPPool3d(3, 2)(Tensor.ones(1, 1, 2, 2, 2))
    Tensor([[[[[2.]]]]])
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, D, H, W) -> (N, C, D', H', W')."""
        return functional.lp_pool3d(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode)
