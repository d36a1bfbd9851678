"""Layers that change lengths: other sizes, windows as columns and channels as pixels.

In:    tensors
Out:   tensors
Next:  picograd/nn/layers/padding.py
"""

from __future__ import annotations

from collections.abc import Sequence

import picograd.nn.functional as functional
from picograd.nn.functions.placement import Each
from picograd.nn.layers.layer import Unary, layer

__all__ = [
    "ChannelShuffle", "Fold", "PixelShuffle", "PixelUnshuffle", "Unfold", "Upsample", "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
]  # fmt: skip


# ---- sizes ----
@layer(functional.interpolate)
class Upsample(Unary):
    """Pictures (N, C, *lengths) of another size; arguments as in `functional.interpolate`.

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
    """Pictures of another size, each element the nearest one: Upsample with mode "nearest".

    `size`, `scale_factor`: as there.

    >>> UpsamplingNearest2d(scale_factor=2)(Tensor.ones(1, 1, 2, 3)).shape
    (1, 1, 4, 6)
    """

    def __init__(
        self, size: int | Sequence[int] | None = None, scale_factor: float | Sequence[float] | None = None
    ):  # fmt: skip
        super().__init__(size, scale_factor)


class UpsamplingBilinear2d(Upsample):
    """Pictures of another size, between elements: Upsample with mode "bilinear" and align_corners.

    `size`, `scale_factor`: as there.

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
    """The windows of a picture (N, C, H, W) as columns (N, C * taps, windows); arguments as in `functional.unfold`.

    >>> Unfold(2)(Tensor.ones(1, 3, 4, 4)).shape
    (1, 12, 9)
    """

    kernel_size: Each
    dilation: Each = 1
    padding: Each = 0
    stride: Each = 1


@layer(functional.fold)
class Fold(Unary):
    """The sums (N, C, H, W) of windows (N, C * taps, windows) that overlap; arguments as in `functional.fold`.

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
    """Channels become pixels, (..., C r r, H, W) -> (..., C, H r, W r); arguments as in `functional.pixel_shuffle`.

    >>> PixelShuffle(2)(Tensor.ones(1, 8, 3, 3)).shape
    (1, 2, 6, 6)
    """

    upscale_factor: int


@layer(functional.pixel_unshuffle)
class PixelUnshuffle(Unary):
    """Pixels become channels, (..., C, H r, W r) -> (..., C r r, H, W); arguments as in `functional.pixel_unshuffle`.

    >>> PixelUnshuffle(2)(Tensor.ones(1, 2, 6, 6)).shape
    (1, 8, 3, 3)
    """

    downscale_factor: int


@layer(functional.channel_shuffle)
class ChannelShuffle(Unary):
    """The channels of groups of (N, C, ...) dealt out in turn; arguments as in `functional.channel_shuffle`.

    >>> ChannelShuffle(2)(Tensor([[[1], [2], [3], [4]]])).flatten()
    Tensor([1, 3, 2, 4])
    """

    groups: int
