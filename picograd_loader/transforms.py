"""Transforms of images, mostly random: classes by torchvision.transforms' names.

    augment = Compose([ToTensor(), RandomCrop(32, padding=4), RandomHorizontalFlip()])

An image is an array or a Tensor (..., C, H, W), as is the result; ToTensor converts other libraries' images, (H, W, C). All
images of a batch get the same random numbers, as in torchvision. They follow from picograd's seed (`pg.manual_seed`), also
in the workers of a DataLoader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from picograd.errors import ArgumentError, ArgumentTypeError, ShapeError
from picograd.tensor.tensor import Tensor
from picograd_loader import images
from picograd_loader.images import Image, Interpolation, Mode, size_of

__all__ = [
    "CenterCrop", "ColorJitter", "Compose", "Normalize", "Pad", "RandomCrop", "RandomErasing", "RandomHorizontalFlip",
    "RandomResizedCrop", "RandomRotation", "RandomVerticalFlip", "Resize", "ToTensor", "functional",
]  # fmt: skip

functional = images
TRIES = 10  # to find a random part that fits into an image
FORM_MIN = 1e-6  # its logarithm is taken
Draws = np.random.Generator


class Transform:
    """A transform of an image. Subclasses define `apply`."""

    def __call__(self, img: Any) -> Any:
        """Returns the transformed image.

        Raises:
          PicogradError: the transform does not accept the image.
        """
        if not isinstance(img, (Tensor, np.ndarray)):
            fact = f"{type(self).__name__}: an image is an array or a Tensor (..., C, H, W), got a {type(img).__name__}."
            raise ArgumentTypeError(fact, "ToTensor()(img)")
        array = img.numpy() if isinstance(img, Tensor) else img
        if array.ndim < 3:
            raise ShapeError(f"{type(self).__name__}: an image is (..., C, H, W), got {array.shape}.", "img[None]")
        found = self.apply(array, draws())
        return Tensor(np.ascontiguousarray(found)) if isinstance(img, Tensor) else found

    def apply(self, img: Image, rng: Draws) -> Image:
        """Returns the transformed image, with random numbers from `draws`."""
        raise NotImplementedError


def draws() -> Draws:
    """Returns a NumPy generator whose seed is picograd's next draw."""
    return np.random.default_rng(int(Tensor.randint(0, 2**31 - 1, (), device="cpu").item()))


class Compose:
    """Transforms applied in order.

    >>> Compose([Pad(1), CenterCrop(3)])(np.ones((1, 1, 1))).tolist()
    [[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]):
        self.transforms = [*transforms]

    def __call__(self, img: Any) -> Any:
        """Returns the transformed image."""
        for transform in self.transforms:
            img = transform(img)
        return img


# ---- the same each time ----
class ToTensor:
    """Converts an image (H, W, C) or (H, W) to a Tensor of floats (C, H, W); bytes are divided by 255.

    >>> ToTensor()(np.array([[0, 51, 255]], np.uint8)).tolist()
    [[[0.0, 0.20000000298023224, 1.0]]]
    """

    def __call__(self, pic: Any) -> Tensor:
        """Returns the Tensor."""
        array = np.asarray(pic)
        if array.ndim not in (2, 3):
            raise ShapeError(f"ToTensor: an image is (H, W, C) or (H, W), got {array.shape}.")
        array = np.ascontiguousarray(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))
        return Tensor(array.astype(np.float32) / 255 if array.dtype == np.uint8 else array)


class Normalize(Transform):
    """Subtracts a mean and divides by a standard deviation: (img - mean) / std, per channel."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        self.mean, self.std = mean, std

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        return images.normalize(img, self.mean, self.std)


class Pad(Transform):
    """Pads an image, as `functional.pad` does."""

    def __init__(self, padding: int | Sequence[int], fill: float = 0, padding_mode: Mode = "constant"):
        self.padding, self.fill, self.padding_mode = padding, fill, padding_mode

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        return images.pad(img, self.padding, self.fill, self.padding_mode)


class CenterCrop(Transform):
    """Crops the center of an image, as `functional.center_crop` does."""

    def __init__(self, size: int | Sequence[int]):
        self.size = size_of("CenterCrop", size)

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        return images.center_crop(img, self.size)


class Resize(Transform):
    """Resizes an image, as `functional.resize` does."""

    def __init__(self, size: int | Sequence[int], interpolation: Interpolation = "bilinear"):
        size_of("Resize", size)
        self.size, self.interpolation = size, interpolation

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        return images.resize(img, self.size, self.interpolation)


# ---- by chance ----
class RandomHorizontalFlip(Transform):
    """Mirrors horizontally, with a probability.

    >>> RandomHorizontalFlip(p=1.0)(np.array([[[1, 2]]])).tolist()
    [[[2, 1]]]
    """

    flip = staticmethod(images.hflip)

    def __init__(self, p: float = 0.5):
        self.p = probability(type(self).__name__, p)

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        return self.flip(img) if rng.random() < self.p else img


class RandomVerticalFlip(RandomHorizontalFlip):
    """Mirrors vertically, with a probability."""

    flip = staticmethod(images.vflip)


class RandomCrop(Transform):
    """Crops a random part of an image.

    Args:
      size:           size of the part
      padding:        padding of the image before cropping, as in `functional.pad`
      pad_if_needed:  pad an image that is too small on both sides

    >>> RandomCrop(2)(np.zeros((3, 8, 8))).shape
    (3, 2, 2)
    """

    def __init__(
        self, size: int | Sequence[int], padding: int | Sequence[int] | None = None, pad_if_needed: bool = False,
        fill: float = 0, padding_mode: Mode = "constant",
    ):  # fmt: skip
        self.size, self.padding, self.pad_if_needed = size_of("RandomCrop", size), padding, pad_if_needed
        self.fill, self.padding_mode = fill, padding_mode

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        around, (height, width) = (self.fill, self.padding_mode), self.size
        if self.padding is not None:
            img = images.pad(img, self.padding, *around)
        if self.pad_if_needed:
            img = images.pad(img, (max(width - img.shape[-1], 0), max(height - img.shape[-2], 0)), *around)
        room = img.shape[-2] - height, img.shape[-1] - width
        if min(room) < 0:
            raise ShapeError(f"RandomCrop: {self.size} is larger than the image, {img.shape[-2:]}.", "pad_if_needed=True")
        top, left = (int(rng.integers(0, each + 1)) for each in room)
        return images.crop(img, top, left, height, width)


class RandomResizedCrop(Transform):
    """Crops a part of random area and aspect ratio, and resizes it.

    Args:
      size:   size of the result
      scale:  smallest and largest area, as a fraction of the image's
      ratio:  smallest and largest width / height

    Source:   Szegedy et al. 2014, arXiv:1409.4842, section 6.
    """

    def __init__(
        self, size: int | Sequence[int], scale: Sequence[float] = (0.08, 1.0), ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Interpolation = "bilinear",
    ):  # fmt: skip
        self.size, self.interpolation = size_of("RandomResizedCrop", size), interpolation
        self.scale, self.ratio = area_and_form("RandomResizedCrop", scale, ratio)

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        rows, columns = img.shape[-2:]
        part = part_of(rows, columns, self.scale, self.ratio, rng)
        if part is None:  # the center, as large as the ratio allows
            width = min(columns, round(rows * self.ratio[1]))
            height = min(rows, round(columns / self.ratio[0]))
            part = (rows - height) // 2, (columns - width) // 2, height, width
        return images.resize(images.crop(img, *part), self.size, self.interpolation)


class RandomRotation(Transform):
    """Rotates an image about its center by a random angle.

    Args:
      degrees:  largest angle in both directions; or smallest and largest
    """

    def __init__(self, degrees: float | Sequence[float], interpolation: Interpolation = "nearest", fill: float = 0):
        pair = (-degrees, degrees) if isinstance(degrees, (int, float)) else degrees
        self.degrees = interval("RandomRotation", "degrees", pair, -math.inf)
        self.interpolation, self.fill = interpolation, fill

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        return images.rotate(img, rng.uniform(*self.degrees), self.interpolation, self.fill)


class ColorJitter(Transform):
    """Changes brightness, contrast, saturation and hue, in random order.

    Args:
      brightness, contrast, saturation:  the factor is uniform in [max(0, 1 - x), 1 + x], or in the given pair
      hue:                               uniform in [-x, x], fractions of the hue circle; or in the pair, within [-0.5, 0.5]
    """

    def __init__(
        self, brightness: float | Sequence[float] = 0, contrast: float | Sequence[float] = 0,
        saturation: float | Sequence[float] = 0, hue: float | Sequence[float] = 0,
    ):  # fmt: skip
        given = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
        self.factors: dict[str, tuple[float, float]] = {}
        for name, value in given.items():
            one = isinstance(value, (int, float)) and value >= 0
            pair = (max(0.0, 1.0 - value), 1.0 + value) if one else value  # type: ignore[operator]
            self.factors[name] = interval("ColorJitter", name, pair)
        self.factors["hue"] = interval(
            "ColorJitter", "hue", (-hue, hue) if isinstance(hue, (int, float)) else hue, -0.5, 0.5
        )

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        for place in rng.permutation(len(self.factors)):
            name, pair = [*self.factors.items()][place]
            factor = rng.uniform(*pair)
            if pair != ((0.0, 0.0) if name == "hue" else (1.0, 1.0)):
                img = getattr(images, f"adjust_{name}")(img, factor)
        return img


class RandomErasing(Transform):
    """Replaces a part of random area and aspect ratio by a value, with a probability.

    Args:
      p:      probability
      scale:  smallest and largest area, as a fraction of the image's
      ratio:  smallest and largest height / width
      value:  a number, one per channel, or "random": normal numbers

    Source:   Zhong et al. 2017, arXiv:1708.04896.
    """

    def __init__(
        self, p: float = 0.5, scale: Sequence[float] = (0.02, 0.33), ratio: Sequence[float] = (0.3, 3.3), value: Any = 0
    ):
        self.p, self.value = probability("RandomErasing", p), value
        self.scale, self.ratio = area_and_form("RandomErasing", scale, ratio)

    def apply(self, img: Image, rng: Draws) -> Image:
        """As Transform."""
        rows, columns = img.shape[-2:]
        form = 1 / self.ratio[1], 1 / self.ratio[0]
        part = part_of(rows, columns, self.scale, form, rng) if rng.random() < self.p else None
        if part is None or part[2:] == (rows, columns):
            return img
        drawn = rng.standard_normal((img.shape[-3], *part[2:])) if isinstance(self.value, str) else self.value
        return images.erase(img, *part, np.reshape(drawn, (-1, 1, 1)) if np.ndim(drawn) == 1 else drawn)


# ---- draws and their bounds ----
def part_of(
    rows: int, columns: int, scale: tuple[float, float], ratio: tuple[float, float], rng: Draws
) -> tuple[int, int, int, int] | None:
    """Returns (top, left, height, width) of a random part; None if no try fits into the image.

    Args:
      ratio:  bounds of width / height, whose logarithm is uniform
    """
    for _ in range(TRIES):
        area = rows * columns * rng.uniform(*scale)
        form = math.exp(rng.uniform(math.log(ratio[0]), math.log(ratio[1])))
        height, width = round(math.sqrt(area / form)), round(math.sqrt(area * form))
        if 0 < height <= rows and 0 < width <= columns:
            return int(rng.integers(0, rows - height + 1)), int(rng.integers(0, columns - width + 1)), height, width
    return None


def area_and_form(name: str, scale: Any, ratio: Any) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns the bounds of a part's area and of its aspect ratio. Raises as `interval`."""
    return interval(name, "scale", scale, 0.0, 1.0), interval(name, "ratio", ratio, FORM_MIN)


def probability(name: str, p: float) -> float:
    """Returns a probability.

    Raises:
      ArgumentError: it is below 0 or above 1.
    """
    if not 0 <= p <= 1:
        raise ArgumentError(f"{name}: p must be from 0 to 1, got {p}.")
    return p


def interval(name: str, argument: str, pair: Any, least: float = 0.0, most: float = math.inf) -> tuple[float, float]:
    """Returns the smallest and the largest number of an interval.

    Raises:
      ArgumentError: it is not an ordered pair within the bounds.
    """
    low, high = pair if isinstance(pair, (tuple, list)) and len(pair) == 2 else (math.nan, math.nan)
    if not (least <= low <= high <= most and math.isfinite(low) and math.isfinite(high)):
        bounds = "" if math.isinf(least) else f" from {least:g}" + ("" if math.isinf(most) else f" to {most:g}")
        raise ArgumentError(f"{name}: {argument} must be (least, greatest){bounds}, got {pair}.")
    return float(low), float(high)
