"""Boxes and grids over images.

In:    tensors (N, C, spatial axes...); boxes as arrays
Out:   `OPERATORS`
Next:  picograd/onnx/operators/signal.py
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from picograd.errors import ArgumentError, IndexingError, ShapeError
from picograd.nn.functions.grids import PADDING, Sampler, affine_grid
from picograd.onnx.record import row
from picograd.onnx.values import Array, affordable, fixed
from picograd.tensor.tensor import Tensor

PAIRS = 16  # of boxes, compared in the time of one step in Python


# ---- boxes ----
def suppress(
    boxes: Array, scores: Array, most: int | None = None, iou_threshold: float | None = None,
    score_threshold: float | None = None, *, center_point_box: int = 0,
) -> Array:  # fmt: skip
    """Returns (batch, class, box) of the boxes that stay: by falling score, none overlapping a better one too much."""
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
    """Returns up to `most` boxes in an order, without those that overlap one before them too much."""
    kept: list[int] = []
    while len(order) and len(kept) < most:
        affordable("NonMaxSuppression", (len(kept) + 1) * len(order) // PAIRS)
        kept.append(int(order[0]))
        order = order[1:][_overlaps(corners[order[0]], corners[order[1:]]) <= overlap]
    return kept


def _corners(boxes: Array, is_center: int) -> Array:
    """Returns boxes as least and largest coordinates along both axes."""
    if is_center:
        center, half = boxes[:, :2], boxes[:, 2:] / 2
        return np.concatenate([center - half, center + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlaps(box: Array, others: Array) -> Array:
    """Returns for each of the others the area of both boxes over the area of either."""
    both: Array = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0).prod(1)
    either = (box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(1) - both
    ratio: Array = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return ratio


def roi_align(
    x: Tensor, rois: Array, batches: Array, *, coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
    output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0, spatial_scale: float = 1.0,
) -> Tensor:  # fmt: skip
    """Returns for each region of an image the mean, or the maximum, of points that interpolate it, bin by bin."""
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
    """Returns (bins, points): coordinates evenly within each bin."""
    count = ratio if ratio > 0 else max(math.ceil(extent / bins), 1)
    affordable("RoiAlign", count, bins)
    inside = (np.arange(count) + 0.5) / count
    return start + (np.arange(bins)[:, None] + inside[None, :]) * (extent / bins)


def _region(image_CHW: Tensor, ys: Array, xs: Array, mode: str) -> Tensor:
    """Returns (C, bins, bins) of the points at each pair of coordinates."""
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
    """Returns the elements before and after places along an axis, and their weights: 0 far outside."""
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
    """Returns x at places a grid names: -1 is the first element of an axis and 1 the last, or their outer edges.

    Unlike PyTorch's this takes any number of axes, and brings places inside before cubic interpolation, too.
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
    """Returns the grid of an affine map; the body that ONNX has for it does not work for a batch of one in the plane."""
    return affine_grid(theta, size, bool(align_corners))


# ---- caches ----
def tensor_scatter(
    cache: Tensor, update: Tensor, starts: Tensor | None = None, *, axis: int = -2, mode: str = "linear"
) -> Tensor:
    """Returns a cache with each batch's update written from its start on, or around its end."""
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


OPERATORS = [
    row("NonMaxSuppression", 10, suppress, "3! 3! one one one"), row("RoiAlign", 10, roi_align, "4 2! 1!"),
    row("GridSample", 16, grid_sample, "3+ like"), row("AffineGrid", 20, affine_grid_by, "3 row"),
    row("TensorScatter", 24, tensor_scatter, "3+ like 1"),
]  # fmt: skip
