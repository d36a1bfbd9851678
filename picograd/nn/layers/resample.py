"""Layers that change lengths: other sizes, windows as columns and channels as pixels.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/padding.py
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
from picograd.nn.functions.placement import Each
from picograd.nn.module import Module
from picograd.tensor.tensor import Tensor


# ---- sizes ----
class Upsample(Module):
    """Pictures of another size; see `functional.interpolate`.

    Args:
      size, scale_factor, mode, align_corners, recompute_scale_factor: as in `functional.interpolate`

    >>> Upsample(scale_factor=2)(Tensor([[[1.0, 3.0]]]))
    Tensor([[[1., 1., 3., 3.]]])
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None,
        mode: str = "nearest", align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
    ):  # fmt: skip
        self.size, self.scale_factor, self.mode = size, scale_factor, mode
        self.align_corners, self.recompute_scale_factor = align_corners, recompute_scale_factor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, *lengths) -> (N, C, *other lengths)."""
        return functional.interpolate(
            input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
        )

    def extra_repr(self) -> str:
        factor = self.scale_factor
        shown = float(factor) if isinstance(factor, (int, float)) else factor and tuple(map(float, factor))
        which = f"scale_factor={shown}" if factor is not None else f"size={self.size}"
        return f"{which}, mode={self.mode!r}"


class UpsamplingNearest2d(Upsample):
    """Pictures of another size, each element the nearest one: Upsample with mode "nearest".

    Args:
      size, scale_factor: as in `functional.interpolate`

    >>> UpsamplingNearest2d(scale_factor=2)(Tensor.ones(1, 1, 2, 3)).shape
    (1, 1, 4, 6)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ):  # fmt: skip
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Pictures of another size, between elements: Upsample with mode "bilinear" and align_corners.

    Args:
      size, scale_factor: as in `functional.interpolate`

    >>> UpsamplingBilinear2d(size=3)(Tensor([[[[1.0, 3.0], [1.0, 3.0]]]]))[0, 0, 0]
    Tensor([1., 2., 3.])
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ):  # fmt: skip
        super().__init__(size, scale_factor, "bilinear", True)


# ---- windows and channels ----
class Unfold(Module):
    """The windows of a picture as columns; see `functional.unfold`.

    Args:
      kernel_size, dilation, padding, stride: as in `functional.unfold`

    >>> Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    def __init__(self, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1):
        self.kernel_size, self.dilation, self.padding, self.stride = kernel_size, dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, H, W) -> (N, C * taps, windows)."""
        return functional.unfold(input, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, dilation={self.dilation}, padding={self.padding}, stride={self.stride}"
        )


class Fold(Module):
    """The sums of windows that overlap; see `functional.fold`.

    Args:
      output_size, kernel_size, dilation, padding, stride: as in `functional.fold`

    >>> Fold(4, 2)(Tensor.ones(1, 12, 9)).shape
    (1, 3, 4, 4)
    """

    def __init__(self, output_size: Each, kernel_size: Each, dilation: Each = 1, padding: Each = 0, stride: Each = 1):
        self.output_size, self.kernel_size = output_size, kernel_size
        self.dilation, self.padding, self.stride = dilation, padding, stride

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C * taps, windows) -> (N, C, H, W)."""
        return functional.fold(input, self.output_size, self.kernel_size, self.dilation, self.padding, self.stride)

    def extra_repr(self) -> str:
        return (
            f"output_size={self.output_size}, kernel_size={self.kernel_size}, dilation={self.dilation}, "
            f"padding={self.padding}, stride={self.stride}"
        )


class PixelShuffle(Module):
    """Channels become pixels; see `functional.pixel_shuffle`.

    Args:
      upscale_factor: as in `functional.pixel_shuffle`

    >>> PixelShuffle(2)(Tensor.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int):
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (..., C r r, H, W) -> (..., C, H r, W r)."""
        return functional.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """Pixels become channels; see `functional.pixel_unshuffle`.

    Args:
      downscale_factor: as in `functional.pixel_unshuffle`

    >>> PixelUnshuffle(2)(Tensor.ones(1, 2, 6, 6)).shape
    (1, 8, 3, 3)
    """

    def __init__(self, downscale_factor: int):
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (..., C, H r, W r) -> (..., C r r, H, W)."""
        return functional.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """The channels of groups dealt out in turn; see `functional.channel_shuffle`.

    Args:
      groups: as in `functional.channel_shuffle`

    >>> ChannelShuffle(2)(Tensor([[[1], [2], [3], [4]]])).flatten()
    Tensor([1, 3, 2, 4])
    """

    def __init__(self, groups: int):
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002
        """input (N, C, ...) -> the same shape."""
        return functional.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
