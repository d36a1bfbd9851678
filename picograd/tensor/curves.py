"""Curves given by their values at points: slopes at the points, areas between them.

In:    tensors of values, and of coordinates
Out:   `gradient`, `trapezoid`, `cumulative_trapezoid`, `trapz`
Next:  picograd/tensor/histograms.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.build import INTS, axes_of, axis_of
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import known

__all__ = ["cumulative_trapezoid", "gradient", "trapezoid", "trapz"]


# ---- slopes ----
def gradient(
    input: Tensor,  # noqa: A002
    *,
    spacing: float | Sequence[float | Tensor] = 1,
    dim: int | Sequence[int] | None = None,
    edge_order: int = 1,
) -> tuple[Tensor, ...]:
    """Returns along each axis the slope of a function whose values at the points of a grid are given.

    Inside, that of the parabola through a point and its neighbours; at the edges that of a line, or with edge_order=2 of a
    parabola, through the points there.

    Args:
      input:       the values
      spacing:     the distance of points: a number, one for each axis, or for each axis a vector of coordinates
      dim:         an axis or several; None: all
      edge_order:  1 or 2

    Raises:
      ArgumentError: another edge_order, an axis twice, or spacings for another number of axes.
      ShapeError:    an axis has fewer than edge_order + 1 points, or another number of coordinates.

    >>> gradient(Tensor([1.0, 2.0, 4.0, 7.0]))[0]
    Tensor([1. , 1.5, 2.5, 3. ])
    """
    if edge_order not in (1, 2):
        raise ArgumentError(f"gradient: edge_order must be 1 or 2, got {edge_order!r}.")
    if dim is None or isinstance(dim, INTS):
        axes = axes_of("gradient", input.shape, dim)
    else:
        axes = tuple(axis_of("gradient", input.shape, axis) for axis in dim)
        if len(set(axes)) != len(axes):
            raise ArgumentError(f"gradient: axes {tuple(dim)} of shape {input.shape} name one axis twice.")
    spacing = 1 if spacing is None else spacing
    spacings = list(spacing) if isinstance(spacing, Sequence) else [spacing] * len(axes)
    if len(spacings) != len(axes):
        raise ArgumentError(f"gradient: {len(spacings)} spacings were given for {len(axes)} axes.")
    return tuple(_slopes(input, axis, step, edge_order) for axis, step in zip(axes, spacings))


def _slopes(x: Tensor, axis: int, spacing: Any, edge_order: int) -> Tensor:
    """Returns the slopes along one axis."""
    count = known("gradient", x.shape, axis)
    if count <= edge_order:
        fact = f"gradient: edge_order={edge_order} needs {edge_order + 1} points, axis {axis} of {x.shape} has {count}."
        raise ShapeError(fact)
    x = x if x.dtype.is_float else x.float()
    if isinstance(spacing, Tensor):
        if spacing.shape != (count,):
            raise ShapeError(f"gradient: axis {axis} of {x.shape} needs {count} coordinates, got shape {spacing.shape}.")
        steps = spacing.diff().to(x.dtype)
    else:
        steps = Tensor.full((count - 1,), float(spacing), dtype=x.dtype, device=x.device)
    line = x.movedim(axis, -1)
    first, last = line[..., 1:2] - line[..., :1], line[..., -1:] - line[..., -2:-1]
    edges = [first / steps[:1], last / steps[-1:]]
    if edge_order == 2:
        edges[0] = _parabola(line[..., :3], steps[:1], steps[1:2], -1)
        edges[1] = _parabola(line[..., -3:], steps[-2:-1], steps[-1:], 1)
    return Tensor.cat([edges[0], _inside(line, steps), edges[1]], -1).movedim(-1, axis)


def _inside(line: Tensor, steps: Tensor) -> Tensor:
    """Returns the slopes at all points but the first and the last."""
    before, after = steps[:-1], steps[1:]
    rising = (line[..., 2:] - line[..., 1:-1]) * before / after
    return (rising + (line[..., 1:-1] - line[..., :-2]) * after / before) / (before + after)


def _parabola(three: Tensor, before: Tensor, after: Tensor, side: int) -> Tensor:
    """Returns the slope of the parabola through three points, at the first (side = -1) or the last (1)."""
    first = (three[..., 1:2] - three[..., :1]) / before
    second = (three[..., 2:] - three[..., 1:2]) / after
    curve = (second - first) / (before + after)
    return first - curve * before if side < 0 else second + curve * after


# ---- areas under curves ----
def trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Returns the area under y along `dim` by the trapezoidal rule, at points x or `dx` apart.

    >>> trapezoid(Tensor([1.0, 2.0, 3.0]))
    Tensor(4.)
    """
    return _trapezoids("trapezoid", y, x, dx, dim).sum(dim)


trapz = trapezoid


def cumulative_trapezoid(y: Tensor, x: Tensor | None = None, *, dx: float = 1.0, dim: int = -1) -> Tensor:
    """Returns the areas under y up to each point after the first along `dim`, at points x or `dx` apart.

    >>> cumulative_trapezoid(Tensor([1.0, 2.0, 3.0]))
    Tensor([1.5, 4. ])
    """
    return _trapezoids("cumulative_trapezoid", y, x, dx, dim).cumsum(dim)


def _trapezoids(function: str, y: Tensor, x: Tensor | None, dx: float, dim: int) -> Tensor:
    """Returns the area of each step."""
    dim = axis_of(function, y.shape, dim)
    count = known(function, y.shape, dim)
    parts = y.narrow(dim, 0, max(count - 1, 0)) + y.narrow(dim, min(1, count), max(count - 1, 0))
    if x is None:
        return parts * dx / 2
    if x.ndim == 1 and y.ndim > 1:
        x = x.reshape(tuple(-1 if axis == dim % y.ndim else 1 for axis in range(y.ndim)))
    elif x.ndim != y.ndim:
        raise ShapeError(f"{function}: x has shape {x.shape}; it needs one axis, or those of y {y.shape}.")
    return parts * x.diff(dim=dim) / 2
