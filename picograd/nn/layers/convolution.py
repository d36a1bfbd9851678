"""Layers that convolve.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/pooling.py
"""

from __future__ import annotations

import math
from typing import ClassVar

import picograd.nn.functional as functional
import picograd.nn.init as init
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.placement import Each, each_axis
from picograd.nn.functions.slide import pad
from picograd.nn.layers.layer import Spatial
from picograd.nn.parameter import new_parameter
from picograd.tensor.arguments import at_least
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _Convolution(Spatial):
    """What all six share: arguments, weight and bias, drawn evenly from +-1 / sqrt(C / groups * taps)."""

    transposed: ClassVar[bool] = False
    output_padding: tuple[int, ...] = ()

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Each, stride: Each = 1, padding: str | Each = 0,
        dilation: Each = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: str | None = None,
        dtype: DType | None = None,
    ):  # fmt: skip
        name, axes = type(self).__name__, self.axes
        at_least(name, "in_channels", in_channels, 0), at_least(name, "out_channels", out_channels, 0)
        if not isinstance(groups, int) or groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                f"{name}: groups={groups} must divide in_channels={in_channels} and out_channels={out_channels}."
            )
        if padding_mode not in (PADDING_MODES[:1] if self.transposed else PADDING_MODES):
            raise ArgumentError(f"{name}: padding_mode must be one of {', '.join(PADDING_MODES)}, got {padding_mode!r}.")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = each_axis(name, "kernel_size", kernel_size, axes, 1)
        self.stride = each_axis(name, "stride", stride, axes, 1)
        self.dilation = each_axis(name, "dilation", dilation, axes, 1)
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ArgumentError(f'{name}: padding must be "same", "valid" or numbers, got {padding!r}.')
        self.padding = padding if isinstance(padding, str) else each_axis(name, "padding", padding, axes, 0)
        self.padding_mode = padding_mode
        channels = (in_channels, out_channels // groups) if self.transposed else (out_channels, in_channels // groups)
        shape = (*channels, *self.kernel_size)
        fan_in = channels[1] * math.prod(self.kernel_size)
        bound = 1.0 / math.sqrt(fan_in) if fan_in else 0.0
        self.weight = init.uniform_(new_parameter(shape, device, dtype), -bound, bound)
        start = new_parameter((out_channels,), device, dtype) if bias else None
        self.bias = None if start is None else init.uniform_(start, -bound, bound)

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
        """Returns x with its margin, and the padding that is left to do."""
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
        input, padding = self._padded(input)
        convolved: Tensor = getattr(functional, f"conv{self.axes}d")(
            input, self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )
        return convolved


class Conv1d(_Conv, axes=1):
    """A convolution along one axis: weight (out_channels, in_channels / groups, kernel_size).

    See `functional.conv1d`.

    Args:
      in_channels, out_channels, kernel_size, stride, padding, dilation, groups: as in `functional.conv1d`
      bias:          add a number to each output channel
      padding_mode:  "zeros", "reflect", "replicate" or "circular"

    Raises:
      ArgumentError: groups that do not divide the channels, another padding or another padding_mode.

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
      ArgumentError: groups that do not divide the channels, another padding or another padding_mode.

    >>> Conv2d(1, 8, 3, padding="same")(Tensor.ones(4, 1, 28, 28)).shape
    (4, 8, 28, 28)
    """


class Conv3d(_Conv, axes=3):
    """A convolution along three axes: weight (out_channels, in_channels / groups, *kernel_size).

    See `functional.conv3d`.

    Args:
      in_channels, out_channels, kernel_size, stride, padding, dilation, groups: as in `functional.conv3d`
      bias:          add a number to each output channel
      padding_mode:  "zeros", "reflect", "replicate" or "circular"

    Raises:
      ArgumentError: groups that do not divide the channels, another padding or another padding_mode.

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
        """Returns the output_padding that makes the result as long as asked for."""
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
        """input (N, in_channels, *lengths) -> (N, out_channels, *other lengths), of output_size if that is given."""
        more = self._extra(input, output_size)
        spread: Tensor = getattr(functional, f"conv_transpose{self.axes}d")(
            input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation
        )
        return spread


class ConvTranspose1d(_ConvTranspose, axes=1):
    """The transpose of Conv1d: weight (in_channels, out_channels / groups, kernel_size).

    See `functional.conv_transpose1d`.

    Args:
      in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, dilation: as in
                     `functional.conv_transpose1d`
      bias:          add a number to each output channel
      padding_mode:  "zeros"

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
      padding_mode:  "zeros"

    >>> ConvTranspose2d(3, 8, 4, stride=2, padding=1)(Tensor.ones(4, 3, 10, 10)).shape
    (4, 8, 20, 20)
    """


class ConvTranspose3d(_ConvTranspose, axes=3):
    """The transpose of Conv3d: weight (in_channels, out_channels / groups, *kernel_size).

    See `functional.conv_transpose3d`.

    Args:
      in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, dilation: as in
                     `functional.conv_transpose3d`
      bias:          add a number to each output channel
      padding_mode:  "zeros"

    >>> ConvTranspose3d(1, 2, 2, stride=2)(Tensor.ones(1, 1, 3, 3, 3)).shape
    (1, 2, 6, 6, 6)
    """
