"""Layers that pool: maxima, means and norms of windows, and the way back from maxima.

In:    tensors (N, C, *lengths), with or without N
Out:   tensors (N, C, *lengths of the windows)
Next:  picograd/nn/layers/resample.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import picograd.nn.functional as functional
from picograd.nn.functions.fractional import check_sizes
from picograd.nn.functions.maxima import Pooled
from picograd.nn.functions.placement import Bins, Each, each_axis
from picograd.nn.layers.layer import Layer, Spatial, Unary, layer
from picograd.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "FractionalMaxPool2d", "FractionalMaxPool3d",
    "LPPool1d", "LPPool2d", "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d",
    "MaxUnpool3d",
]  # fmt: skip

WINDOWS = "kernel_size={kernel_size}, stride={stride}, padding={padding}"


class _Pool(Layer):
    def forward(self, input: Tensor) -> Pooled:
        """input (N, C, *lengths) -> (N, C, *lengths of the windows), or with return_indices a pair."""
        return self._call(input)


# ---- maxima ----
@layer(shown=WINDOWS + ", dilation={dilation}, ceil_mode={ceil_mode}")
class _MaxPool(_Pool):
    def __init__(
        self, kernel_size: Each, stride: Each | None = None, padding: Each = 0, dilation: Each = 1,
        return_indices: bool = False, ceil_mode: bool = False,
    ):  # fmt: skip
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode


@layer(functional.max_pool1d)
class MaxPool1d(_MaxPool):
    """The greatest element of each window; arguments as in `functional.max_pool1d`.

    >>> MaxPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[3., 5.]])
    """


@layer(functional.max_pool2d)
class MaxPool2d(_MaxPool):
    """The greatest element of each window; arguments as in `functional.max_pool2d`.

    >>> MaxPool2d(2)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[4.]]])
    """


@layer(functional.max_pool3d)
class MaxPool3d(_MaxPool):
    """The greatest element of each window; arguments as in `functional.max_pool3d`.

    >>> MaxPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """


@layer(shown="output_size={output_size}")
class _AdaptiveMaxPool(_Pool):
    output_size: Bins
    return_indices: bool = False


@layer(functional.adaptive_max_pool1d)
class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The greatest element of each of output_size bins; arguments as in `functional.adaptive_max_pool1d`.

    >>> AdaptiveMaxPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[3., 5.]])
    """


@layer(functional.adaptive_max_pool2d)
class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The greatest element of each of output_size bins; arguments as in `functional.adaptive_max_pool2d`.

    >>> AdaptiveMaxPool2d(1)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[4.]]])
    """


@layer(functional.adaptive_max_pool3d)
class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The greatest element of each of output_size bins; arguments as in `functional.adaptive_max_pool3d`.

    >>> AdaptiveMaxPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """


@layer(shown=WINDOWS)
class _MaxUnpool(Spatial):
    def __init__(self, kernel_size: Each, stride: Each | None = None, padding: Each = 0):
        each = {"kernel_size": kernel_size, "stride": kernel_size if stride is None else stride, "padding": padding}
        numbers = [each_axis(type(self).__name__, name, value, self.axes, 0) for name, value in each.items()]
        self.kernel_size, self.stride, self.padding = numbers

    def forward(self, input: Tensor, indices: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """input (N, C, *lengths), indices of its shape -> (N, C, *lengths before), of output_size if that is given."""
        return self._call(input, indices, output_size=output_size)


@layer(functional.max_unpool1d)
class MaxUnpool1d(_MaxUnpool, axes=1):
    """Zeros with elements where MaxPool1d found them; arguments as in `functional.max_unpool1d`.

    >>> MaxUnpool1d(2)(Tensor([[3.0, 5.0]]), Tensor([[1, 3]]))
    Tensor([[0., 3., 0., 5.]])
    """


@layer(functional.max_unpool2d)
class MaxUnpool2d(_MaxUnpool, axes=2):
    """Zeros with elements where MaxPool2d found them; arguments as in `functional.max_unpool2d`.

    >>> MaxUnpool2d(2)(Tensor([[[4.0]]]), Tensor([[[2]]]))
    Tensor([[[0., 0.],
             [4., 0.]]])
    """


@layer(functional.max_unpool3d)
class MaxUnpool3d(_MaxUnpool, axes=3):
    """Zeros with elements where MaxPool3d found them; arguments as in `functional.max_unpool3d`.

    >>> MaxUnpool3d(2)(Tensor.ones(1, 1, 1, 1, 1), Tensor([[[[[7]]]]])).sum().item()
    1.0
    """


# ---- means ----
@layer(shown=WINDOWS)
class _AvgPool(Unary):
    def __init__(
        self, kernel_size: Each, stride: Each | None = None, padding: Each = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ):  # fmt: skip
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override


@layer(functional.avg_pool1d)
class AvgPool1d(_AvgPool):
    """The mean of each window; arguments as in `functional.avg_pool1d`.

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


@layer(functional.avg_pool2d)
class AvgPool2d(_AvgPool):
    """The mean of each window; arguments as in `functional.avg_pool2d`.

    >>> AvgPool2d(2)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[2.5]]])
    """


@layer(functional.avg_pool3d)
class AvgPool3d(_AvgPool):
    """The mean of each window; arguments as in `functional.avg_pool3d`.

    >>> AvgPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """


@layer()
class _AdaptiveAvgPool(Unary):
    output_size: Bins


@layer(functional.adaptive_avg_pool1d)
class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each of output_size bins; arguments as in `functional.adaptive_avg_pool1d`.

    >>> AdaptiveAvgPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[2. , 3.5]])
    """


@layer(functional.adaptive_avg_pool2d)
class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of each of output_size bins; arguments as in `functional.adaptive_avg_pool2d`.

    >>> AdaptiveAvgPool2d(1)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[2.5]]])
    """


@layer(functional.adaptive_avg_pool3d)
class AdaptiveAvgPool3d(_AdaptiveAvgPool):
    """The mean of each of output_size bins; arguments as in `functional.adaptive_avg_pool3d`.

    >>> AdaptiveAvgPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """


# ---- norms ----
@layer()
class _LPPool(Unary):
    norm_type: float
    kernel_size: Each
    stride: Each | None = None
    ceil_mode: bool = False


@layer(functional.lp_pool1d)
class LPPool1d(_LPPool):
    """The p-norm of each window; arguments as in `functional.lp_pool1d`.

    >>> LPPool1d(2, 2)(Tensor([[3.0, 4.0]]))
    Tensor([[5.]])
    """


@layer(functional.lp_pool2d)
class LPPool2d(_LPPool):
    """The p-norm of each window; arguments as in `functional.lp_pool2d`.

    >>> LPPool2d(2, 2)(Tensor([[[3.0, 0.0], [0.0, 4.0]]]))
    Tensor([[[5.]]])
    """


@layer(functional.lp_pool3d)
class LPPool3d(_LPPool):
    """The p-norm of each window; arguments as in `functional.lp_pool3d`.

    >>> LPPool3d(3, 2)(Tensor.ones(1, 1, 2, 2, 2))
    Tensor([[[[[2.]]]]])
    """


# ---- maxima of windows at drawn places ----
@layer(shown="")
class _FractionalMaxPool(_Pool):
    kernel_size: Each
    output_size: Each | None = None
    output_ratio: float | Sequence[float] | None = None
    return_indices: bool = False
    _random_samples: Tensor | None = None

    def _keep(self, given: dict[str, Any]) -> None:
        check_sizes(type(self).__name__, given["output_size"], given["output_ratio"])
        super()._keep(given)


@layer(functional.fractional_max_pool2d)
class FractionalMaxPool2d(_FractionalMaxPool):
    """The greatest element of windows at drawn places; arguments as in `functional.fractional_max_pool2d`.

    >>> FractionalMaxPool2d(2, output_size=3)(Tensor.ones(1, 6, 6)).shape
    (1, 3, 3)
    """


@layer(functional.fractional_max_pool3d)
class FractionalMaxPool3d(_FractionalMaxPool):
    """The greatest element of windows at drawn places; arguments as in `functional.fractional_max_pool2d`.

    >>> FractionalMaxPool3d(2, output_ratio=0.5)(Tensor.ones(1, 6, 6, 6)).shape
    (1, 3, 3, 3)
    """
