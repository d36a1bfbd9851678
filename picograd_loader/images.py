"""Images as arrays (..., C, H, W), rotated, cropped and recoloured, by torchvision.transforms.functional's names.

Integers are colours in 0 to 255, floats in 0 to 1. The result has the dtype of the image.

Source: Smith 1978, "Color gamut transform pairs" (hue, saturation, value); ITU-R BT.601 (grey).

Letters: C channels, H rows, W columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from picograd.errors import ArgumentError, ShapeError

Image = np.ndarray[Any, Any]
Mode = Literal["constant", "edge", "reflect", "symmetric"]
Interpolation = Literal["nearest", "bilinear"]
GREY = np.array([0.2989, 0.587, 0.114])  # weights of red, green and blue
BYTE_MAX = 255


# ---- places ----
def hflip(img: Image) -> Image:
    """Mirrors the image horizontally.

    >>> hflip(np.array([[[1, 2, 3]]])).tolist()
    [[[3, 2, 1]]]
    """
    return img[..., ::-1]


def vflip(img: Image) -> Image:
    """Mirrors the image vertically."""
    return img[..., ::-1, :]


def pad(img: Image, padding: int | Sequence[int], fill: float = 0, padding_mode: Mode = "constant") -> Image:
    """Pads the image.

    Args:
      padding:       for all sides; or (left and right, top and bottom); or (left, top, right, bottom)
      fill:          value of "constant"
      padding_mode:  "constant"; "edge" repeats the last pixel; "reflect" mirrors without the edge, "symmetric" with it

    >>> pad(np.array([[[1, 2, 3]]]), (2, 0), padding_mode="reflect").tolist()
    [[[3, 2, 1, 2, 3, 2, 1]]]
    """
    sides = [padding] if isinstance(padding, int) else [*padding]
    if len(sides) not in (1, 2, 4) or min(sides) < 0:
        raise ArgumentError(f"pad: padding must be one, two or four numbers, 0 or more, got {padding}.")
    left, top, right, bottom = sides * (4 // len(sides))
    widths = [*[(0, 0)] * (img.ndim - 2), (top, bottom), (left, right)]
    more = {"constant_values": fill} if padding_mode == "constant" else {}
    return np.pad(img, widths, padding_mode, **more)  # type: ignore[call-overload]


def crop(img: Image, top: int, left: int, height: int, width: int) -> Image:
    """Returns a part of the image; pixels outside are 0.

    >>> crop(np.arange(9).reshape(1, 3, 3), 1, 1, 2, 3).tolist()
    [[[4, 5, 0], [7, 8, 0]]]
    """
    rows, columns = img.shape[-2:]
    beyond = max(-left, 0), max(-top, 0), max(left + width - columns, 0), max(top + height - rows, 0)
    whole = pad(img, beyond) if any(beyond) else img
    top, left = max(top, 0), max(left, 0)
    return whole[..., top : top + height, left : left + width]


def center_crop(img: Image, output_size: int | Sequence[int]) -> Image:
    """Returns the center of the image, (height, width); pixels outside are 0."""
    height, width = size_of("center_crop", output_size)
    gaps = [have - want for have, want in zip(img.shape[-2:], (height, width))]
    top, left = (round(gap / 2) if gap >= 0 else -(-gap // 2) for gap in gaps)
    return crop(img, top, left, height, width)


def resize(img: Image, size: int | Sequence[int], interpolation: Interpolation = "bilinear") -> Image:
    """Resizes the image.

    A pixel of a smaller image is a mean of those that it covers, with linearly decreasing weights (antialias).

    Args:
      size:  (height, width); or the length of the shorter side, with the aspect ratio kept
    """
    rows, columns = img.shape[-2:]
    if isinstance(size, int):
        short, long = sorted((rows, columns))
        other = int(size * long / short)
        height, width = (size, other) if rows <= columns else (other, size)
    else:
        height, width = size_of("resize", size)
    if interpolation == "nearest":
        down, right = (np.arange(new) * old // new for old, new in ((rows, height), (columns, width)))
        return img[..., down[:, None], right]
    found = weights(rows, height) @ img.astype(np.float64) @ weights(columns, width).T
    return of_kind(found, img)


def weights(old: int, new: int) -> Image:
    """Returns the weights (new, old) of pixels along a side; each row sums to 1.

    >>> weights(2, 4).tolist()
    [[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]]
    """
    covered = old / new
    middles = (np.arange(new)[:, None] + 0.5) * covered
    distances = np.abs(np.arange(old) + 0.5 - middles) / max(covered, 1.0)
    found: Image = np.maximum(1.0 - distances, 0.0)
    found /= found.sum(1, keepdims=True)
    return found


def rotate(img: Image, angle: float, interpolation: Interpolation = "nearest", fill: float = 0) -> Image:
    """Rotates the image about its center; its size stays.

    Args:
      angle:  degrees, counterclockwise
      fill:   value of pixels from outside the image

    >>> rotate(np.array([[[1, 2], [3, 4]]]), 90).tolist()
    [[[2, 4], [1, 3]]]
    """
    rows, columns = img.shape[-2:]
    y, x = np.meshgrid(np.arange(rows) - (rows - 1) / 2, np.arange(columns) - (columns - 1) / 2, indexing="ij")
    cos, sin = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    from_x, from_y = cos * x - sin * y + (columns - 1) / 2, sin * x + cos * y + (rows - 1) / 2
    if interpolation == "nearest":
        return sampled(img, np.rint(from_y).astype(int), np.rint(from_x).astype(int), fill)
    down, right = np.floor(from_y).astype(int), np.floor(from_x).astype(int)
    part_y, part_x, wide = from_y - down, from_x - right, img.astype(np.float64)
    found = sum(
        sampled(wide, down + i, right + j, fill) * (part_y if i else 1 - part_y) * (part_x if j else 1 - part_x)
        for i in (0, 1) for j in (0, 1)
    )  # fmt: skip
    return of_kind(np.asarray(found), img)


def sampled(img: Image, down: Image, right: Image, fill: float) -> Image:
    """Returns the pixels at positions (H, W), `fill` outside the image."""
    rows, columns = img.shape[-2:]
    is_inside = (down >= 0) & (down < rows) & (right >= 0) & (right < columns)
    found = img[..., down.clip(0, rows - 1), right.clip(0, columns - 1)]
    return np.where(is_inside, found, np.asarray(fill, img.dtype))


def erase(img: Image, top: int, left: int, height: int, width: int, value: Any = 0) -> Image:
    """Replaces a part of the image by one or several values."""
    found = img.copy()
    found[..., top : top + height, left : left + width] = value
    return found


# ---- colours ----
def normalize(img: Image, mean: Sequence[float], std: Sequence[float]) -> Image:
    """Returns (img - mean) / std, with mean and std per channel.

    >>> normalize(np.array([[[0.5]], [[1.0]]]), [0.5, 0.0], [1.0, 0.5]).tolist()
    [[[0.0]], [[2.0]]]
    """
    if img.dtype.kind != "f":
        raise ArgumentError(f"normalize: the image must have floats, got {img.dtype}.", "ToTensor() makes floats of bytes.")
    means, stds = (np.asarray(each, img.dtype).reshape(-1, 1, 1) for each in (mean, std))
    if not stds.all():
        raise ArgumentError(f"normalize: std must not be 0, got {[*np.ravel(std)]}.")
    return (img - means) / stds


def adjust_brightness(img: Image, brightness_factor: float) -> Image:
    """Scales the brightness: f img, darker for a factor below 1.

    >>> adjust_brightness(np.array([[[0.25, 0.75]]]), 2.0).tolist()
    [[[0.5, 1.0]]]
    """
    return blended(img, np.float32(0), brightness_factor)


def adjust_contrast(img: Image, contrast_factor: float) -> Image:
    """Scales the contrast around the mean grey m: m + f (img - m)."""
    kind = None if img.dtype.kind == "f" else np.float32
    return blended(img, grey(img).mean((-3, -2, -1), keepdims=True, dtype=kind), contrast_factor)


def adjust_saturation(img: Image, saturation_factor: float) -> Image:
    """Scales the saturation around the image's own grey; single-channel images are unchanged."""
    return img if img.shape[-3] == 1 else blended(img, grey(img), saturation_factor)


def adjust_hue(img: Image, hue_factor: float) -> Image:
    """Rotates the hue; single-channel images are unchanged.

    Args:
      hue_factor:  fraction of the hue circle, in [-0.5, 0.5]

    >>> adjust_hue(np.array([[[1.0]], [[0.0]], [[0.0]]]), 1 / 3).round(6).ravel().tolist()
    [0.0, 1.0, 0.0]
    """
    if img.shape[-3] == 1:
        return img
    most = 1 if img.dtype.kind == "f" else BYTE_MAX
    wide = img.astype(np.float64) / most
    value, least = wide.max(-3), wide.min(-3)
    chroma = value - least
    divisor = np.where(chroma > 0, chroma, 1)
    red, green, blue = (wide[..., channel, :, :] for channel in range(3))
    sixths = np.select([value == red, value == green], [(green - blue) / divisor, 2 + (blue - red) / divisor],
                       4 + (red - green) / divisor)  # fmt: skip
    moved = sixths + 6 * hue_factor
    # A channel falls from the value by up to the chroma as the hue moves away from it: Smith's six cases in one.
    steps = [(number + moved) % 6 for number in (5, 3, 1)]
    found = np.stack([value - chroma * np.minimum(step, 4 - step).clip(0, 1) for step in steps], -3)
    return (found * (most if most == 1 else most + 1 - 1e-3)).astype(img.dtype)


def grey(img: Image) -> Image:
    """Returns the image in grey, (..., 1, H, W), in its dtype."""
    if img.shape[-3] == 1:
        return img
    if img.shape[-3] != 3:
        raise ShapeError(f"images have 1 or 3 channels here, got {img.shape[-3]}, of shape {img.shape}.")
    return (img * GREY[:, None, None].astype(np.float32)).sum(-3, keepdims=True).astype(img.dtype)


def blended(img: Image, other: Any, factor: float) -> Image:
    """Returns factor img + (1 - factor) other, clamped to the range of colours."""
    if not (math.isfinite(factor) and factor >= 0):
        raise ArgumentError(f"the factor of a colour must be 0 or more, got {factor}.")
    most = 1 if img.dtype.kind == "f" else BYTE_MAX
    return (np.float32(factor) * img + np.float32(1 - factor) * other).clip(0, most).astype(img.dtype)


# ---- shared ----
def of_kind(found: Image, img: Image) -> Image:
    """Returns numbers in the dtype of an image; for integers they are rounded."""
    return found.astype(img.dtype) if img.dtype.kind == "f" else np.rint(found).clip(0, BYTE_MAX).astype(img.dtype)


def size_of(function: str, size: int | Sequence[int]) -> tuple[int, int]:
    """Returns (height, width); a single number is both.

    Raises:
      ArgumentError: it is something else, or below 1.
    """
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and side >= 1 for side in sides):
        raise ArgumentError(f"{function}: size must be a number of pixels, or (height, width), got {size}.")
    return sides
