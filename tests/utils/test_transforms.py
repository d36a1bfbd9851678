"""Transforms of images beside PyTorch's operations, Python's colorsys and the bounds of their draws."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.errors import ArgumentError, PicogradError
from picograd_loader import images
from picograd_loader import transforms as T

SHAPES = [(1, 5, 8), (3, 9, 4), (2, 3, 6, 7)]


def image(shape: tuple[int, ...], kind: Any = np.float32) -> Any:
    rng = np.random.default_rng(sum(shape))
    return rng.random(shape).astype(kind) if kind == np.float32 else rng.integers(0, 256, shape).astype(kind)


@pytest.mark.parametrize("shape", SHAPES)
def test_flips_cuts_and_edges_are_pytorchs(shape: tuple[int, ...]) -> None:
    img = image(shape)
    theirs = torch.from_numpy(img)
    assert np.array_equal(images.hflip(img), theirs.flip(-1)) and np.array_equal(images.vflip(img), theirs.flip(-2))
    for mode, name in (("constant", "constant"), ("edge", "replicate"), ("reflect", "reflect")):
        expected = torch.nn.functional.pad(theirs, (2, 1, 1, 2), name)
        assert np.array_equal(images.pad(img, (2, 1, 1, 2), padding_mode=mode), expected)  # type: ignore[arg-type]
    filled = torch.nn.functional.pad(theirs, (3, 3, 2, 2), value=0.5)
    assert np.array_equal(images.pad(img, (3, 2), 0.5), filled)
    assert np.array_equal(images.crop(img, -1, 1, 3, 2), torch.nn.functional.pad(theirs, (0, 0, 1, 0))[..., :3, 1:3])
    assert images.center_crop(img, (2, 3)).shape == (*shape[:-2], 2, 3)
    assert images.center_crop(img, 11)[..., :, :].sum() == pytest.approx(img.sum(), rel=1e-5)


@pytest.mark.parametrize("size", [(3, 3), (9, 12), (2, 15), 4])
def test_another_size_is_pytorchs_interpolation(size: Any) -> None:
    img = image((2, 3, 7, 10))
    theirs, nearest = torch.from_numpy(img), images.resize(img, size, "nearest")
    new = (4, 5) if size == 4 else size
    expected = torch.nn.functional.interpolate(theirs, new, mode="bilinear", antialias=True)
    assert np.allclose(images.resize(img, size), expected, atol=1e-5)
    assert np.array_equal(nearest, torch.nn.functional.interpolate(theirs, new, mode="nearest"))
    of_bytes = images.resize(image((1, 7, 10), np.uint8), size)
    assert of_bytes.dtype == np.uint8 and of_bytes.shape == (1, *new)


@pytest.mark.parametrize("angle", [0.0, 30.0, -77.0, 180.0, 90.0])
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_a_turn_is_pytorchs_grid_sample(angle: float, interpolation: Any) -> None:
    img = image((2, 3, 6, 8))
    turn, (rows, columns) = np.radians(angle), img.shape[-2:]
    matrix = [
        [np.cos(turn), -np.sin(turn) * rows / columns, 0.0],
        [np.sin(turn) * columns / rows, np.cos(turn), 0.0],
    ]  # fmt: skip
    grid = torch.nn.functional.affine_grid(torch.tensor([matrix] * 2), img.shape, align_corners=False)
    theirs = torch.nn.functional.grid_sample(torch.from_numpy(img).double(), grid, mode=interpolation, align_corners=False)
    assert np.allclose(images.rotate(img, angle, interpolation), theirs, atol=1e-6)
    assert (images.rotate(np.ones((1, 4, 4)), 45.0, interpolation, fill=1.0) == 1.0).all()


def test_colours_are_those_of_their_formulas() -> None:
    img = image((3, 4, 5))
    grey = 0.2989 * img[0] + 0.587 * img[1] + 0.114 * img[2]
    for factor in (0.0, 0.7, 1.6):
        assert np.allclose(images.adjust_brightness(img, factor), (factor * img).clip(0, 1), atol=1e-6)
        mixed = (factor * img + (1 - factor) * grey.mean()).clip(0, 1)
        assert np.allclose(images.adjust_contrast(img, factor), mixed, atol=1e-6)
        assert np.allclose(
            images.adjust_saturation(img, factor), (factor * img + (1 - factor) * grey).clip(0, 1), atol=1e-6
        )
    assert images.adjust_saturation(img[:1], 0.0) is not None and images.adjust_brightness(img, 2.0).dtype == np.float32
    bright = images.adjust_brightness(np.full((3, 1, 1), 200, np.uint8), 1.5)
    assert bright.dtype == np.uint8 and bright.tolist() == [[[255]]] * 3


@pytest.mark.parametrize("hue", [-0.5, -0.21, 0.0, 0.1, 0.5])
def test_a_hue_is_moved_as_by_colorsys(hue: float) -> None:
    img = image((3, 6, 6)).astype(np.float64)
    img[:, 0, 0], img[:, 0, 1], img[:, 0, 2] = 0.0, 0.5, [1.0, 1.0, 0.0]  # black, grey, yellow
    found = images.adjust_hue(img, hue)
    for y in range(6):
        for x in range(6):
            h, s, v = colorsys.rgb_to_hsv(*img[:, y, x])
            assert np.allclose(found[:, y, x], colorsys.hsv_to_rgb((h + hue) % 1.0, s, v))
    whole = (img * 255).astype(np.uint8)
    assert np.abs(images.adjust_hue(whole, 0.0).astype(int) - whole).max() <= 1


# ---- draws ----
def parts(transform: Any, img: Any, num: int = 60) -> list[Any]:
    pg.manual_seed(0)
    return [transform(img) for _ in range(num)]


def test_every_part_of_an_image_is_cut_out_and_flips_are_as_likely_as_is_said() -> None:
    img = np.arange(12).reshape(1, 3, 4)
    corners = {tuple(part.ravel()) for part in parts(T.RandomCrop((2, 2)), img)}
    assert corners == {tuple(img[0, y : y + 2, x : x + 2].ravel()) for y in range(2) for x in range(3)}
    around = parts(T.RandomCrop(4, padding=1, padding_mode="edge", pad_if_needed=True), img)
    assert {part.shape for part in around} == {(1, 4, 4)} and len({part.tobytes() for part in around}) > 4
    for p, least, most in ((0.0, 0, 0), (0.3, 8, 30), (1.0, 60, 60)):
        for flip, axis in ((T.RandomHorizontalFlip(p), 2), (T.RandomVerticalFlip(p), 1)):
            found = parts(flip, img)
            flipped = sum(np.array_equal(part, np.flip(img, axis)) for part in found)
            assert least <= flipped <= most and all(np.array_equal(np.sort(part.ravel()), img.ravel()) for part in found)


def test_parts_of_random_form_keep_their_bounds() -> None:
    ones = np.ones((3, 40, 30))
    erased = [
        part for part in parts(T.RandomErasing(0.8, (0.1, 0.2), (0.5, 2.0), value=[0, 2, 3]), ones) if (part != 1).any()
    ]
    assert 35 < len(erased) < 60
    for part in erased:
        rows, columns = (part[0] == 0).any(1).sum(), (part[0] == 0).any(0).sum()
        assert 0.09 < (part[0] == 0).mean() < 0.21 and 0.45 < rows / columns < 2.2
        assert (part[1][part[0] == 0] == 2).all() and (part[2][part[0] == 0] == 3).all()
    noise = parts(T.RandomErasing(1.0, value="random"), ones, 2)
    assert not np.array_equal(*noise)
    y, _ = np.mgrid[0:40, 0:30] / 40.0
    spans = [float(np.ptp(part)) for part in parts(T.RandomResizedCrop(8, (0.25, 0.25), (1.0, 1.0)), y[None])]
    assert all(abs(span - np.sqrt(0.25 * 40 * 30) / 40 * 7 / 8) < 0.05 for span in spans)
    assert T.RandomResizedCrop(8, (1.0, 1.0), (0.01, 0.01))(ones).shape == (3, 8, 8), "no such part: the middle"


def test_colours_and_angles_are_drawn_within_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    factors: dict[str, list[float]] = {}
    orders = set()
    for name in ("brightness", "contrast", "saturation", "hue"):
        kept = factors.setdefault(name, [])
        monkeypatch.setattr(
            images, f"adjust_{name}", lambda img, factor, kept=kept, name=name: kept.append(factor) or img + [name]
        )
    jitter = T.ColorJitter(0.5, (0.2, 0.3), 2.0, 0.1)
    pg.manual_seed(0)
    for _ in range(60):
        orders.add(tuple(jitter.apply([], T.draws())))  # type: ignore[arg-type]
    bounds = {"brightness": (0.5, 1.5), "contrast": (0.2, 0.3), "saturation": (0.0, 3.0), "hue": (-0.1, 0.1)}
    for name, (low, high) in bounds.items():
        found = factors[name]
        assert low <= min(found) < low + 0.1 * (high - low) and high - 0.1 * (high - low) < max(found) <= high
    assert len(orders) > 15
    angles: list[float] = []
    monkeypatch.setattr(images, "rotate", lambda img, angle, *how: angles.append(angle) or img)
    parts(T.RandomRotation(20), np.zeros((1, 2, 2)))
    assert -20 <= min(angles) < -15 and 15 < max(angles) <= 20


def test_a_seed_decides_the_draws_and_tensors_stay_tensors() -> None:
    augment = T.Compose([
        T.RandomCrop(6, padding=2), T.RandomHorizontalFlip(), T.RandomRotation(10, "bilinear"), T.ColorJitter(0.2),
        T.Normalize([0.5], [0.25]),
    ])  # fmt: skip
    whole = T.ToTensor()(image((6, 6), np.uint8))
    first, again = parts(augment, whole, 3), parts(augment, whole, 3)
    assert all(isinstance(part, pg.Tensor) and part.shape == (1, 6, 6) for part in first)
    assert [part.tolist() for part in first] == [part.tolist() for part in again] and first[0].tolist() != first[1].tolist()
    assert pg.data.transforms is T and T.functional is images


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: T.RandomHorizontalFlip(1.5), "RandomHorizontalFlip: p must be from 0 to 1, got 1.5."),
        (lambda: T.RandomCrop(0), "RandomCrop: size must be a number of pixels, or (height, width), got 0."),
        (lambda: T.RandomCrop(9)(np.zeros((1, 3, 3))), "RandomCrop: (9, 9) is larger than the image, (3, 3)."),
        (lambda: T.RandomCrop(2)(np.zeros((3, 3))), "RandomCrop: an image is (..., C, H, W), got (3, 3)."),
        (lambda: T.Pad(1)([[[1.0]]]), "Pad: an image is an array or a Tensor (..., C, H, W), got a list."),
        (lambda: T.ColorJitter(hue=0.7), "ColorJitter: hue must be (least, greatest) from -0.5 to 0.5, got (-0.7, 0.7)."),
        (lambda: T.ColorJitter(brightness=-1), "ColorJitter: brightness must be (least, greatest) from 0, got -1."),
        (lambda: T.RandomRotation((5, 1)), "RandomRotation: degrees must be (least, greatest), got (5, 1)."),
        (lambda: T.RandomErasing(ratio=(0, 1)), "RandomErasing: ratio must be (least, greatest) from 1e-06, got (0, 1)."),
        (lambda: T.RandomResizedCrop(2, (0.5, 1.5)), "RandomResizedCrop: scale must be (least, greatest) from 0 to 1"),
        (lambda: images.pad(np.zeros((1, 2, 2)), -1), "pad: padding must be one, two or four numbers, 0 or more, got -1."),
        (lambda: images.adjust_saturation(np.zeros((2, 2, 2)), 1.0), "images have 1 or 3 channels here, got 2"),
        (lambda: T.Normalize([0], [0])(np.zeros((1, 2, 2))), "normalize: std must not be 0"),
        (lambda: T.Normalize([0], [1])(np.zeros((1, 2, 2), np.uint8)), "normalize: the image must have floats, got uint8."),
    ],
)
def test_what_has_no_meaning_is_said(wrong: Any, said: str) -> None:
    with pytest.raises((ArgumentError, PicogradError)) as caught:
        wrong()
    assert said in caught.value.fact
