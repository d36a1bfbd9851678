"""Resizing, boxes and sampling grids for images (N, C, spatial axes...).

Resize handles each axis separately, as a weighted sum of neighbours whose positions and weights the host computes. It
follows the operator's specification, versions 10 to 19, and its reference implementation for antialias.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.nn.functions.interpolation import PADDING, Sampler, affine_grid, cubic_far, cubic_near, weighted
from picograd.record import Record
from picograd.tensor.tensor import Tensor
from picograd_onnx.record import row
from picograd_onnx.values import Array, affordable, fixed

# ---- resize ----
Numbers = Sequence[float] | None
POLICIES = ("stretch", "not_larger", "not_smaller")


class Rule(Record):
    """Attributes of Resize: how positions and weights are computed."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    antialias: bool
    exclude_outside: bool
    extrapolation: float


# ---- places ----
def _sources(rule: Rule, length: int, out: int, scale: float, roi: tuple[float, float]) -> Array:
    """Returns the position along the input's axis for each element of the result."""
    i = np.arange(out, dtype=np.float64)
    resized = scale * length  # the length before it is rounded down to `out`
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
    """Returns the neighbours of each position and their weights, both (out, neighbours)."""
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
    """Resizes x along one axis to length `out`, by weighted sums of neighbours."""
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
    """Resizes axes of x by the nearest element, or by linear or cubic interpolation."""
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
    """Returns scales and lengths for requested sizes; each policy except "stretch" keeps the aspect ratio."""
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
    """Returns resize with the rules of version 10."""
    return resize(x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric", nearest_mode="floor")


def upsample(x: Tensor, scales: Sequence[float], *, mode: str = "nearest") -> Tensor:
    """Enlarges axes of x."""
    return resize_10(x, scales, mode="linear" if mode == "bilinear" else mode)


OPERATORS = [
    row("Resize", 10, resize_10, "x row"), row("Resize", 11, resize, "x row row row"),
    row("Upsample", 7, upsample), row("Upsample", 9, upsample, "x row"),
]  # fmt: skip


# ---- boxes and grids ----
PAIRS = 16  # pairs of boxes that are compared in the time of one step of Python


# ---- boxes ----
def suppress(
    boxes: Array, scores: Array, most: int | None = None, iou_threshold: float | None = None,
    score_threshold: float | None = None, *, center_point_box: int = 0,
) -> Array:  # fmt: skip
    """Returns (batch, class, box) of the kept boxes, by falling score; overlaps with a better one are dropped."""
    if boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise ShapeError(f"NonMaxSuppression: boxes {boxes.shape} must be (batches, boxes, 4) for scores {scores.shape}.")
    least = -math.inf if score_threshold is None else score_threshold
    chosen = []
    for batch, group in itertools.product(range(scores.shape[0]), range(scores.shape[1])):
        corners, numbers = _corners(boxes[batch].astype(np.float64), center_point_box), scores[batch, group]
        order = np.argsort(-numbers, kind="stable")
        kept = _kept(corners, order[numbers[order] > least], most or 0, iou_threshold or 0.0)
        chosen += [(batch, group, box) for box in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _kept(corners: Array, order: Array, most: int, overlap: float) -> list[int]:
    """Returns up to `most` boxes in the given order, without those that overlap an earlier one too much."""
    kept: list[int] = []
    while len(order) and len(kept) < most:
        affordable("NonMaxSuppression", (len(kept) + 1) * len(order) // PAIRS)
        kept.append(int(order[0]))
        order = order[1:][_overlaps(corners[order[0]], corners[order[1:]]) <= overlap]
    return kept


def _corners(boxes: Array, is_center: int) -> Array:
    """Returns boxes as smallest and largest coordinates along both axes."""
    if is_center:
        center, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([center - half, center + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlaps(box: Array, others: Array) -> Array:
    """Returns the intersection over union of a box and each of the others."""
    both: Array = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0).prod(1)
    either = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - both
    return np.divide(both, either, out=np.zeros_like(both), where=either > 0)


def roi_align(
    x: Tensor, rois: Array, batches: Array, *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """Returns for each region of an image and each bin of it the mean, or the maximum, of interpolated points."""
    if mode not in ("avg", "max"):
        raise ArgumentError(f'RoiAlign: mode must be "avg" or "max", got {mode!r}.')
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    if rois.shape != (len(batches), 4) or not np.isfinite(rois).all() or not 0 < spatial_scale < math.inf:
        raise ShapeError(f"RoiAlign: rois {rois.shape} must be 4 finite numbers for each of {len(batches)} regions.")
    if len(batches) and not 0 <= batches.min() <= batches.max() < x.shape[0]:
        raise IndexingError(f"RoiAlign: batch_indices must be from 0 to {x.shape[0] - 1}, got {batches.tolist()}.")
    affordable("RoiAlign", len(batches), output_height + output_width)
    parts = []
    for region, batch in zip(rois.astype(np.float64), batches.tolist()):
        x1, y1, x2, y2 = region * spatial_scale - half
        extents = (y2 - y1, x2 - x1) if half else (max(y2 - y1, 1.0), max(x2 - x1, 1.0))
        ys = _points(y1, extents[0], output_height, sampling_ratio)
        xs = _points(x1, extents[1], output_width, sampling_ratio)
        parts.append(_region(x[batch], ys, xs, mode))
    if not parts:
        return Tensor.zeros(0, x.shape[1], output_height, output_width, dtype=x.dtype, device=x.device)
    return Tensor.stack(parts).to(x.dtype)


def _points(start: float, extent: float, bins: int, ratio: int) -> Array:
    """Returns coordinates at equal distances within each bin, (bins, points)."""
    count = ratio if ratio > 0 else max(math.ceil(extent / bins), 1)
    affordable("RoiAlign", count, bins)
    inside = (np.arange(count) + 0.5) / count
    return start + (np.arange(bins)[:, None] + inside[None, :]) * (extent / bins)


def _region(image_CHW: Tensor, ys: Array, xs: Array, mode: str) -> Tensor:
    """Returns the pooled points of all pairs of coordinates, (C, bins, bins)."""
    (y_low, y_high, y_weight), (x_low, x_high, x_weight) = (
        _between(points.reshape(-1), length) for points, length in zip((ys, xs), image_CHW.shape[1:])
    )
    corners = []
    for rows, by_row in ((y_low, y_weight[0]), (y_high, y_weight[1])):
        for columns, by_column in ((x_low, x_weight[0]), (x_high, x_weight[1])):
            picked = image_CHW.index_select(1, fixed(rows, image_CHW.device))
            picked = picked.index_select(2, fixed(columns, image_CHW.device))
            corners.append(picked * fixed((by_row[:, None] * by_column[None, :]).astype(np.float32), image_CHW.device))
    points = corners[0] + corners[1] + corners[2] + corners[3]
    if mode == "max":
        points = corners[0].maximum(corners[1]).maximum(corners[2].maximum(corners[3]))
    points = points.reshape(image_CHW.shape[0], *ys.shape, *xs.shape)
    return points.amax((2, 4)) if mode == "max" else points.mean((2, 4))


def _between(places: Array, length: int) -> tuple[Array, Array, tuple[Array, Array]]:
    """Returns the elements before and after each position along an axis, and their weights; 0 far outside."""
    inside = (places >= -1.0) & (places <= length)
    cut = places.clip(0, length - 1)
    low = np.floor(cut).astype(np.int64)
    high = np.minimum(low + 1, length - 1)
    part = cut - low
    return low, high, ((1 - part) * inside, part * inside)


# ---- grids ----
WAYS = {"nearest": "nearest", "linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic", "bicubic": "bicubic"}


def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear", padding_mode: str = "zeros"
) -> Tensor:
    """Samples x at the positions of a grid: -1 and 1 are the first and last element of an axis, or their outer edges.

    Unlike PyTorch's, it accepts any number of axes and also clamps positions before cubic interpolation.
    """
    if mode not in WAYS or padding_mode not in PADDING:
        raise ArgumentError(f"GridSample: there is no mode {mode!r} with padding_mode {padding_mode!r}.")
    if grid.shape[-1] != x.ndim - 2 or grid.shape[0] != x.shape[0]:
        raise ShapeError(f"GridSample: a grid of shape {grid.shape} does not fit {x.shape}.")
    sampler = Sampler(x.to(x.dtype.compute_dtype).read(), padding_mode, bool(align_corners))
    places = sampler.places(grid.to(x.dtype.compute_dtype).read())
    bring = sampler.between_edges if WAYS[mode] == "bicubic" else sampler.padded
    inside = [bring(place, length) for place, length in zip(places, sampler.lengths)]
    return x.from_op(sampler.at(inside, WAYS[mode]), x.device).to(x.dtype)


def affine_grid_by(theta: Tensor, size: list[int], *, align_corners: int = 0) -> Tensor:
    """Returns the grid of an affine map; ONNX's own body fails for a batch of one in two dimensions."""
    return affine_grid(theta, size, bool(align_corners))


# ---- caches ----
def tensor_scatter(
    cache: Tensor, update: Tensor, starts: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Returns a cache with each batch's update written from its start on, and wrapped around at the end if circular."""
    if mode not in ("linear", "circular"):
        raise ArgumentError(f'TensorScatter: mode must be "linear" or "circular", got {mode!r}.')
    result, values = cache.movedim(axis, 1).clone(), update.movedim(axis, 1)
    places = Tensor.arange(values.shape[1], device=cache.device).unsqueeze(0)
    if starts is not None:
        places = places + starts.unsqueeze(1)
    places = places.expand(cache.shape[0], -1)
    batches = Tensor.arange(cache.shape[0], device=cache.device).unsqueeze(1)
    result[batches, places % cache.shape[axis] if mode == "circular" else places] = values
    return result.movedim(1, axis)


OPERATORS += [
    row("NonMaxSuppression", 10, suppress, "3! 3! one one one"), row("RoiAlign", 10, roi_align, "4 2! 1!"),
    row("GridSample", 16, grid_sample, "3+ like"), row("AffineGrid", 20, affine_grid_by, "3 row"),
    row("TensorScatter", 24, tensor_scatter, "3+ like 1"),
]  # fmt: skip
