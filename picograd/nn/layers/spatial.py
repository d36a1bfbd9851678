"""Layers over spatial axes: convolutions, pooling, resizing, padding; families for 1, 2 and 3 axes share a class.

Images are (N, C, *lengths), with or without N.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import picograd.nn.functional as functional
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.pooling import Pooled, check_sizes
from picograd.nn.functions.windows import Bins, Each, each_axis, pad
from picograd.nn.layers.layer import Layer, Spatial, Unary, layer
from picograd.nn.parameter import add_parameter, draw_evenly, new_parameter
from picograd.tensor.arguments import at_least, check_one_of
from picograd.tensor.build import is_integer, static
from picograd.tensor.tensor import Tensor

__all__ = [
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "ChannelShuffle", "CircularPad1d", "CircularPad2d",
    "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d",
    "ConvTranspose2d", "ConvTranspose3d", "Fold", "FractionalMaxPool2d", "FractionalMaxPool3d", "LPPool1d", "LPPool2d",
    "LPPool3d", "MaxPool1d", "MaxPool2d", "MaxPool3d", "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "PixelShuffle",
    "PixelUnshuffle", "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "Unfold", "Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d",
    "ZeroPad3d",
]  # fmt: skip


# ---- convolutions ----
PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Spatial):
    """Base of all six: arguments, and weight and bias drawn uniformly from +-1 / sqrt(C / groups * taps)."""

    bias: Tensor | None

    transposed: ClassVar[bool] = False
    output_padding: tuple[int, ...] = ()

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Each, stride: Each = 1, padding: str | Each = 0,
        dilation: Each = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: str | None = None,
        dtype: DType | None = None,
    ):  # fmt: skip
        name, axes = type(self).__name__, self.axes
        at_least(name, "in_channels", in_channels, 0), at_least(name, "out_channels", out_channels, 0)
        if not is_integer(groups) or groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}."
            )
        check_one_of(name, "padding_mode", padding_mode, PADDING_MODES[:1] if self.transposed else PADDING_MODES)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = each_axis(name, "kernel_size", kernel_size, axes, 1)
        self.stride = each_axis(name, "stride", stride, axes, 1)
        self.dilation = each_axis(name, "dilation", dilation, axes, 1)
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f'{name}: padding must be "same", "valid" or numbers, got {padding!r}.')
        self.padding = padding if isinstance(padding, str) else each_axis(name, "padding", padding, axes, 0)
        self.padding_mode = padding_mode
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        self.weight = new_parameter((*channels, *self.kernel_size), device, dtype)
        add_parameter(self, "bias", (out_channels,) if bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws weight and bias again."""
        draw_evenly(math.prod(self.weight.shape[1:]), self.weight, self.bias)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if isinstance(self.padding, str) or any(self.padding):
            text += f", padding={self.padding}"
        if any(step != 1 for step in self.dilation):
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        text += f", groups={self.groups}" if self.groups != 1 else ""
        text += "" if self.bias is not None else ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"

    def _padded(self, x: Tensor) -> tuple[Tensor, str | tuple[int, ...]]:
        """Returns x with padding that the convolution cannot do, and the padding left for it."""
        if self.padding_mode == "zeros":
            return x, self.padding
        pairs: list[int] = []
        for i in reversed(range(self.axes)):
            reach = (self.kernel_size[i] - 1) * self.dilation[i]
            if isinstance(self.padding, str):
                pairs += [reach // 2, reach - reach // 2] if self.padding == "same" else [0, 0]
            else:
                pairs += [self.padding[i], self.padding[i]]
        return pad(x, pairs, self.padding_mode), (0,) * self.axes


class _Conv(_Convolution):
    def forward(self, input: Tensor) -> Tensor:
        """input (N, in_channels, *lengths) -> (N, out_channels, *other lengths)."""
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Does the same with another weight: subclasses with masked or rounded weights call it, as in PyTorch."""
        input, padding = self._padded(input)
        return getattr(functional, f"conv{self.axes}d")(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Conv, axes=1):
    """A convolution along one axis: weight (out_channels, in_channels / groups, kernel_size).

    Further arguments as in `Conv2d`.

    >>> Conv1d(3, 8, 5, padding=2)(Tensor.ones(4, 3, 10)).shape
    (4, 8, 10)
    """


class Conv2d(_Conv, axes=2):
    """A convolution along two axes: weight (out_channels, in_channels / groups, *kernel_size).

    See `functional.conv2d`.

    Args:
      in_channels, out_channels, kernel_size, stride, padding, dilation, groups: as in `functional.conv2d`
      bias:          add a number to each output channel
      padding_mode:  "zeros", "reflect", "replicate" or "circular"

    Raises:
      ArgumentError: groups does not divide the channels, or an unknown padding or padding_mode.

    >>> Conv2d(1, 8, 3, padding="same")(Tensor.ones(4, 1, 28, 28)).shape
    (4, 8, 28, 28)
    """


class Conv3d(_Conv, axes=3):
    """A convolution along three axes: weight (out_channels, in_channels / groups, *kernel_size).

    Further arguments as in `Conv2d`.

    >>> Conv3d(1, 2, 3, stride=2)(Tensor.ones(1, 1, 5, 5, 5)).shape
    (1, 2, 2, 2, 2)
    """


class _ConvTranspose(_Convolution):
    transposed = True

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Each, stride: Each = 1, padding: Each = 0,
        output_padding: Each = 0, groups: int = 1, bias: bool = True, dilation: Each = 1, padding_mode: str = "zeros",
        device: str | None = None, dtype: DType | None = None,
    ):  # fmt: skip
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.output_padding = each_axis(type(self).__name__, "output_padding", output_padding, self.axes, 0)

    def _extra(self, x: Tensor, output_size: tuple[int, ...] | None) -> tuple[int, ...]:
        """Returns the output_padding that gives the requested lengths."""
        if output_size is None:
            return self.output_padding
        name, axes = type(self).__name__, self.axes
        wanted = each_axis(name, "output_size", tuple(output_size)[-axes:], axes, 1)
        padding = each_axis(name, "padding", self.padding, axes, 0)
        found = []
        for i, length in enumerate(x.shape[-axes:]):
            span = self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least = (static(length) - 1) * self.stride[i] - 2 * padding[i] + span
            if not least <= wanted[i] < least + self.stride[i]:
                most = least + self.stride[i] - 1
                raise ShapeError(f"{name}: output_size {wanted[i]} of axis {i} must be from {least} to {most}.")
            found.append(wanted[i] - least)
        return tuple(found)

    def forward(self, input: Tensor, output_size: tuple[int, ...] | None = None) -> Tensor:
        """input (N, in_channels, *lengths) -> (N, out_channels, *other lengths); output_size selects the lengths."""
        more = self._extra(input, output_size)
        return getattr(functional, f"conv_transpose{self.axes}d")(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )


class ConvTranspose1d(_ConvTranspose, axes=1):
    """The transpose of Conv1d: weight (in_channels, out_channels / groups, kernel_size).

    Further arguments as in `ConvTranspose2d`.

    >>> ConvTranspose1d(3, 8, 4, stride=2, padding=1)(Tensor.ones(4, 3, 10)).shape
    (4, 8, 20)
    """


class ConvTranspose2d(_ConvTranspose, axes=2):
    """The transpose of Conv2d: weight (in_channels, out_channels / groups, *kernel_size).

    See `functional.conv_transpose2d`.

    Args:
      in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, dilation: as in
                     `functional.conv_transpose2d`
      bias:          add a number to each output channel
      padding_mode:  "zeros" only

    >>> ConvTranspose2d(3, 8, 4, stride=2, padding=1)(Tensor.ones(4, 3, 10, 10)).shape
    (4, 8, 20, 20)
    """


class ConvTranspose3d(_ConvTranspose, axes=3):
    """The transpose of Conv3d: weight (in_channels, out_channels / groups, *kernel_size).

    Further arguments as in `ConvTranspose2d`.

    >>> ConvTranspose3d(1, 2, 2, stride=2)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 2, 6, 6, 6)
    """


# ---- pooling ----
WINDOWS = "kernel_size={kernel_size}, stride={stride}, padding={padding}"


class _Pool(Layer):
    def forward(self, input: Tensor) -> Pooled:
        """input (N, C, *lengths) -> (N, C, *counts of windows); with return_indices a pair."""
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
    """The largest element of each window; arguments as in `functional.max_pool1d`.

    >>> MaxPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[3., 5.]])
    """


@layer(functional.max_pool2d)
class MaxPool2d(_MaxPool):
    """The largest element of each window; arguments as in `functional.max_pool2d`.

    >>> MaxPool2d(2)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[4.]]])
    """


@layer(functional.max_pool3d)
class MaxPool3d(_MaxPool):
    """The largest element of each window; arguments as in `functional.max_pool3d`.

    >>> MaxPool3d(2)(Tensor.ones(1, 1, 4, 4, 4)).shape
    (1, 1, 2, 2, 2)
    """


@layer(shown="output_size={output_size}")
class _AdaptiveMaxPool(_Pool):
    output_size: Bins
    return_indices: bool = False


@layer(functional.adaptive_max_pool1d)
class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest element of each of output_size bins; arguments as in `functional.adaptive_max_pool1d`.

    >>> AdaptiveMaxPool1d(2)(Tensor([[1.0, 3.0, 2.0, 5.0]]))
    Tensor([[3., 5.]])
    """


@layer(functional.adaptive_max_pool2d)
class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest element of each of output_size bins; arguments as in `functional.adaptive_max_pool2d`.

    >>> AdaptiveMaxPool2d(1)(Tensor([[[1.0, 2.0], [4.0, 3.0]]]))
    Tensor([[[4.]]])
    """


@layer(functional.adaptive_max_pool3d)
class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest element of each of output_size bins; arguments as in `functional.adaptive_max_pool3d`.

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
        """input (N, C, *lengths), indices of the same shape -> (N, C, *lengths before pooling, or output_size)."""
        return self._call(input, indices, output_size=output_size)


@layer(functional.max_unpool1d)
class MaxUnpool1d(_MaxUnpool, axes=1):
    """Zeros with elements at the indices of MaxPool1d; arguments as in `functional.max_unpool1d`.

    >>> MaxUnpool1d(2)(Tensor([[3.0, 5.0]]), Tensor([[1, 3]]))
    Tensor([[0., 3., 0., 5.]])
    """


@layer(functional.max_unpool2d)
class MaxUnpool2d(_MaxUnpool, axes=2):
    """Zeros with elements at the indices of MaxPool2d; arguments as in `functional.max_unpool2d`.

    >>> MaxUnpool2d(2)(Tensor([[[4.0]]]), Tensor([[[2]]]))
    Tensor([[[0., 0.],
             [4., 0.]]])
    """


@layer(functional.max_unpool3d)
class MaxUnpool3d(_MaxUnpool, axes=3):
    """Zeros with elements at the indices of MaxPool3d; arguments as in `functional.max_unpool3d`.

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
    """The largest element of randomly placed windows; arguments as in `functional.fractional_max_pool2d`.

    >>> FractionalMaxPool2d(2, output_size=3)(Tensor.ones(1, 6, 6)).shape
    (1, 3, 3)
    """


@layer(functional.fractional_max_pool3d)
class FractionalMaxPool3d(_FractionalMaxPool):
    """The largest element of randomly placed windows; arguments as in `functional.fractional_max_pool3d`.

    >>> FractionalMaxPool3d(2, output_ratio=0.5)(Tensor.ones(1, 6, 6, 6)).shape
    (1, 3, 3, 3)
    """


# ---- sizes ----
@layer(functional.interpolate)
class Upsample(Unary):
    """Resized images (N, C, *lengths); arguments as in `functional.interpolate`.

    >>> Upsample(scale_factor=2)(Tensor([[[1.0, 3.0]]]))
    Tensor([[[1., 1., 3., 3.]]])
    """

    size: int | Sequence[int] | None = None
    scale_factor: float | Sequence[float] | None = None
    mode: str = "nearest"
    align_corners: bool | None = None
    recompute_scale_factor: bool | None = None

    def extra_repr(self) -> str:
        factor = self.scale_factor
        shown = float(factor) if isinstance(factor, (int, float)) else factor and tuple(map(float, factor))
        which = f"scale_factor={shown}" if factor is not None else f"size={self.size}"
        return f"{which}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Images resized by nearest elements: Upsample with mode "nearest".

    `size`, `scale_factor`: as in Upsample.

    >>> UpsamplingNearest2d(scale_factor=2)(Tensor.ones(1, 1, 2, 3)).shape
    (1, 1, 4, 6)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ):  # fmt: skip
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Images resized by linear interpolation: Upsample with mode "bilinear" and align_corners=True.

    `size`, `scale_factor`: as in Upsample.

    >>> UpsamplingBilinear2d(size=3)(Tensor([[[[1.0, 3.0], [1.0, 3.0]]]]))[0, 0, 0]
    Tensor([1., 2., 3.])
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ):  # fmt: skip
        super().__init__(size, scale_factor, "bilinear", True)


# ---- windows and channels ----
@layer(functional.unfold)
class Unfold(Unary):
    """Windows of an image (N, C, H, W) as columns (N, C * taps, windows); arguments as in `functional.unfold`.

    >>> Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    kernel_size: Each
    dilation: Each = 1
    padding: Each = 0
    stride: Each = 1


@layer(functional.fold)
class Fold(Unary):
    """Sums of overlapping windows (N, C * taps, windows), (N, C, H, W); arguments as in `functional.fold`.

    >>> Fold(4, 2)(Tensor.ones(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    output_size: Each
    kernel_size: Each
    dilation: Each = 1
    padding: Each = 0
    stride: Each = 1


@layer(functional.pixel_shuffle)
class PixelShuffle(Unary):
    """Channels moved to pixels, (..., C r r, H, W) -> (..., C, H r, W r); arguments as in `functional.pixel_shuffle`.

    >>> PixelShuffle(2)(Tensor.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    upscale_factor: int


@layer(functional.pixel_unshuffle)
class PixelUnshuffle(Unary):
    """Pixels moved to channels, (..., C, H r, W r) -> (..., C r r, H, W); arguments as in `functional.pixel_unshuffle`.

    >>> PixelUnshuffle(2)(Tensor.ones(1, 2, 6, 6)).shape
    (1, 8, 3, 3)
    """

    downscale_factor: int


@layer(functional.channel_shuffle)
class ChannelShuffle(Unary):
    """Interleaved channels of groups of (N, C, ...); arguments as in `functional.channel_shuffle`.

    >>> ChannelShuffle(2)(Tensor([[[1], [2], [3], [4]]])).flatten()
    Tensor([1, 3, 2, 4])
    """

    groups: int


# ---- margins ----
@layer(shown="{padding}")
class _Margin(Spatial):
    """padding: one number for all sides, or numbers before and after the last axis, then the one before it, ..."""

    mode: ClassVar[str] = "constant"

    def __init_subclass__(cls, mode: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.mode = cls.mode if mode is None else mode

    def __init__(self, padding: Each):
        self.padding = each_axis(type(self).__name__, "padding", padding, 2 * self.axes, -(1 << 31))

    def forward(self, input: Tensor) -> Tensor:
        """input (N, C, *lengths) -> (N, C, *padded lengths)."""
        return pad(input, self.padding, self.mode)


class _ZeroMargin(_Margin):
    value: ClassVar[float] = 0.0


@layer(shown="padding={padding}, value={value}")
class _ConstantMargin(_Margin):
    def __init__(self, padding: Each, value: float):
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """input (..., *lengths) -> (..., *padded lengths)."""
        return pad(input, self.padding, self.mode, self.value)


class ZeroPad1d(_ZeroMargin, axes=1):
    """Zeros around the last axis; `padding`: one number, or 2: before and after.

    >>> ZeroPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ZeroPad2d(_ZeroMargin, axes=2):
    """Zeros around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ZeroPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ZeroPad3d(_ZeroMargin, axes=3):
    """Zeros around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ZeroPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class ConstantPad1d(_ConstantMargin, axes=1):
    """The number `value` around the last axis; `padding`: one number, or 2: before and after.

    >>> ConstantPad1d(1, 5.0)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ConstantPad2d(_ConstantMargin, axes=2):
    """The number `value` around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ConstantPad2d(1, 5.0)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ConstantPad3d(_ConstantMargin, axes=3):
    """The number `value` around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ConstantPad3d(1, 5.0)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class ReflectionPad1d(_Margin, axes=1, mode="reflect"):
    """The inside, mirrored, around the last axis; `padding`: one number, or 2: before and after.

    >>> ReflectionPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ReflectionPad2d(_Margin, axes=2, mode="reflect"):
    """The inside, mirrored, around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ReflectionPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ReflectionPad3d(_Margin, axes=3, mode="reflect"):
    """The inside, mirrored, around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ReflectionPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class ReplicationPad1d(_Margin, axes=1, mode="replicate"):
    """The edge, repeated, around the last axis; `padding`: one number, or 2: before and after.

    >>> ReplicationPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class ReplicationPad2d(_Margin, axes=2, mode="replicate"):
    """The edge, repeated, around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> ReplicationPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class ReplicationPad3d(_Margin, axes=3, mode="replicate"):
    """The edge, repeated, around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> ReplicationPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """


class CircularPad1d(_Margin, axes=1, mode="circular"):
    """Elements of the other end around the last axis; `padding`: one number, or 2: before and after.

    >>> CircularPad1d(1)(Tensor.ones(1, 1, 3)).shape
    (1, 1, 5)
    """


class CircularPad2d(_Margin, axes=2, mode="circular"):
    """Elements of the other end around the last two axes; `padding`: one number, or 4: before and after, last axis first.

    >>> CircularPad2d(1)(Tensor.ones(1, 1, 3, 3)).shape
    (1, 1, 5, 5)
    """


class CircularPad3d(_Margin, axes=3, mode="circular"):
    """Elements of the other end around the last three axes; `padding`: one number, or 6: before and after, last axis first.

    >>> CircularPad3d(1)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 1, 5, 5, 5)
    """
