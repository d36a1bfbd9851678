"""Resize: each axis on its own, as a weighted sum of neighbours whose places and weights the host knows.

In:    tensors; scales or sizes
Out:   `OPERATORS`
Next:  picograd/onnx/operators/vision.py

Source: the operator's specification, versions 10 to 19, and its reference implementation for antialias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.resize import cubic_far, cubic_near, weighted
from picograd.onnx.record import row
from picograd.onnx.values import Array, affordable, fixed
from picograd.record import Record
from picograd.tensor.tensor import Tensor

Numbers = Sequence[float] | None
POLICIES = ("stretch", "not_larger", "not_smaller")


class Rule(Record):
    """How places and weights are found: the attributes of Resize."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


# ---- places ----
def _sources(rule: Rule, length: int, out: int, scale: float, roi: tuple[float, float]) -> Array:
    """Returns for each element of the result where along the axis of the input it lies."""
    i = np.arange(out, dtype=np.float64)
    resized = scale * length  # before it is rounded down to `out`
    half = (i + 0.5) / scale - 0.5
    if rule.coordinates == "half_pixel":
        return half
    if rule.coordinates == "half_pixel_symmetric":
        return length / 2 * (1 - out / (scale * length)) + half
    if rule.coordinates == "pytorch_half_pixel":
        return half if out > 1 else i * 0
    if rule.coordinates == "align_corners":
        return i * (length - 1) / (resized - 1) if resized != 1 else i * 0
    if rule.coordinates == "asymmetric":
        return i / scale
    if rule.coordinates == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if rule.coordinates == "tf_crop_and_resize":
        start, end = roi
        whole = length - 1
        if resized == 1:
            return i + 0.5 * (start + end) * whole
        return start * whole + i * (end - start) * whole / (resized - 1)
    raise ArgumentError(f"Resize: there is no coordinate_transformation_mode {rule.coordinates!r}.")


def _nearest(rule: Rule, places: Array) -> Array:
    rounded = {
        "round_prefer_floor": np.ceil(places - 0.5), "round_prefer_ceil": np.floor(places + 0.5),
        "floor": np.floor(places), "ceil": np.ceil(places),
    }.get(rule.nearest)  # fmt: skip
    if rounded is None:
        raise ArgumentError(f"Resize: there is no nearest_mode {rule.nearest!r}.")
    return rounded


def _neighbours(rule: Rule, places: Array, scale: float) -> tuple[Array, Array]:
    """Returns the neighbours of each place and their weights, both (out, neighbours)."""
    if rule.mode == "nearest":
        return _nearest(rule, places)[:, None].astype(np.int64), np.ones((len(places), 1))
    if rule.mode not in ("linear", "cubic"):
        raise ArgumentError(f'Resize: mode must be "nearest", "linear" or "cubic", got {rule.mode!r}.')
    reach = 1 if rule.mode == "linear" else 2
    shrink = min(scale, 1.0) if rule.antialias else 1.0
    first = math.floor(-reach / shrink) + 1
    low = np.floor(places)
    offsets = np.arange(first, 2 - first)
    distance = np.abs(offsets[None, :] - (places - low)[:, None]) * shrink
    weights = np.clip(1 - distance, 0, 1) if rule.mode == "linear" else _cubic(distance, rule.cubic)
    if rule.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return (low[:, None] + offsets[None, :]).astype(np.int64), weights


def _cubic(x: Array, a: float) -> Array:
    return np.where(x <= 1, cubic_near(x, a), np.where(x < 2, cubic_far(x, a), 0.0))


# ---- one axis ----
def _along(x: Tensor, axis: int, out: int, scale: float, roi: tuple[float, float], rule: Rule) -> Tensor:
    """Returns x resized along one axis to length `out`, by weighted sums of neighbours."""
    length = x.shape[axis]
    if not out or not length:
        return x.narrow(axis, 0, 0)
    affordable("Resize", out, 1 if rule.mode == "nearest" else math.ceil(4 / min(scale, 1.0)) + 2)
    places = _sources(rule, length, out, scale, roi)
    neighbours, weights = _neighbours(rule, places, scale)
    outside = (neighbours < 0) | (neighbours >= length)
    if rule.exclude_outside and rule.mode != "nearest":
        weights = np.where(outside, 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    neighbours = neighbours.clip(0, max(length - 1, 0))
    result = _weighted(x, axis, neighbours, weights, rule.mode == "nearest")
    if rule.coordinates == "tf_crop_and_resize":
        beyond = ((places < 0) | (places > length - 1)).reshape(-1, *(1,) * (x.ndim - axis - 1))
        result = result.masked_fill(fixed(beyond, x.device), rule.extrapolation)
    return result


def _weighted(x: Tensor, axis: int, neighbours: Array, weights: Array, whole: bool) -> Tensor:
    taps = [fixed(neighbours[:, number].copy(), x.device) for number in range(neighbours.shape[1])]
    if whole:
        return x.index_select(axis, taps[0])
    kind = np.float64 if x.dtype is dtypes.float64 else np.float32
    used = [number for number in range(len(taps)) if weights[:, number].any()]
    factors = [fixed(weights[:, number].astype(kind), x.device).read() for number in used]
    return x.from_op(weighted(x.read(), axis, [taps[number].read() for number in used], factors), x.device)


# ---- all axes ----
def resize(
    x: Tensor, roi: Numbers = None, scales: Numbers = None, sizes: Sequence[int] | None = None, *,
    antialias: int = 0, axes: Sequence[int] | None = None, coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75, exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest", nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    """Returns x with axes of other lengths: nearest elements, or linear or cubic interpolation."""
    rule = Rule(
        mode, coordinate_transformation_mode, nearest_mode, cubic_coeff_a, bool(antialias), bool(exclude_outside),
        extrapolation_value,
    )  # fmt: skip
    if keep_aspect_ratio_policy not in POLICIES:
        raise ArgumentError(f"Resize: there is no keep_aspect_ratio_policy {keep_aspect_ratio_policy!r}.")
    chosen = [*(range(x.ndim) if axes is None else axes)]
    lengths = [x.shape[axis] for axis in chosen]
    if sizes:
        factors, outs = _by_sizes(lengths, sizes, keep_aspect_ratio_policy)
    elif scales is not None and len(scales) == len(chosen):
        factors = [*scales]
        if not all(0 < factor < math.inf for factor in factors):
            raise ArgumentError(f"Resize: scales must be positive, got {factors}.")
        outs = [math.floor(n * factor) for n, factor in zip(lengths, factors)]
    else:
        raise ShapeError(f"Resize: needs a scale or a size for each of the axes {chosen} of shape {x.shape}.")
    count = len(chosen)
    region = roi if roi is not None and len(roi) == 2 * count else [0.0] * count + [1.0] * count
    wide = x.dtype if rule.mode == "nearest" or x.dtype is dtypes.float64 else dtypes.float32
    result = x.to(wide)
    for number, axis in enumerate(chosen):
        crops = rule.coordinates == "tf_crop_and_resize"
        if crops or outs[number] != lengths[number] or factors[number] != 1:
            part = region[number], region[number + count]
            result = _along(result, axis, outs[number], factors[number], part, rule)
    return result.to(x.dtype)


def _by_sizes(lengths: Sequence[int], sizes: Sequence[int], policy: str) -> tuple[list[float], list[int]]:
    """Returns scales and lengths for the sizes asked for; a policy other than "stretch" keeps the aspect."""
    if len(lengths) != len(sizes):
        raise ShapeError(f"Resize: sizes {[*sizes]} do not fit {len(lengths)} axes.")
    if min(sizes) < 1 or min(lengths) < 1:
        raise ShapeError(f"Resize: sizes {[*sizes]} and the axes they change, {[*lengths]}, must be at least 1.")
    ratios = [size / n for size, n in zip(sizes, lengths)]
    if policy == "stretch":
        return ratios, [*sizes]
    factor = min(ratios) if policy == "not_larger" else max(ratios)
    return [factor] * len(lengths), [math.floor(n * factor + 0.5) for n in lengths]


def resize_10(x: Tensor, scales: Sequence[float], *, mode: str = "nearest") -> Tensor:
    """Returns resize as it was in version 10."""
    return resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def upsample(x: Tensor, scales: Sequence[float], *, mode: str = "nearest") -> Tensor:
    """Returns x with longer axes."""
    return resize_10(x, scales, mode="linear" if mode == "bilinear" else mode)


OPERATORS = [
    row("Resize", 10, resize_10, "x row"), row("Resize", 11, resize, "x row row row"),
    row("Upsample", 7, upsample), row("Upsample", 9, upsample, "x row"),
]  # fmt: skip
