"""What functions of windows share: arguments for each axis, the batch axis, where windows fall.

In:    arguments as users write them
Out:   `each_axis`, `with_batch`, `num_windows`, `window_places`
Next:  picograd/nn/convolve.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import iota, repeat_axes, reshape
from picograd.ir.op import Dim, Op
from picograd.tensor.build import static
from picograd.tensor.tensor import Tensor

Each = int | Sequence[int]  # one number for all spatial axes, or one for each
Bins = int | Sequence[int | None] | None  # the same; None: as many bins as the axis is long


def each_axis(function: str, name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """Returns an argument as one number for each spatial axis.

    Raises:
      ArgumentError: it is no int and no sequence of `count` of them, or one is below `least`.
    """
    values = (value,) * count if isinstance(value, int) else tuple(value) if isinstance(value, (tuple, list)) else ()
    if len(values) == 1:
        values *= count
    if len(values) != count or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise ArgumentError(f"{function}: {name} must be an int, or {count} of them, got {value!r}.")
    if min(values) < least:
        raise ArgumentError(f"{function}: {name} must be at least {least}, got {value!r}.")
    return values


def with_batch(function: str, x: Tensor, num_spatial: int) -> tuple[Op, bool]:
    """Returns (N, C, *spatial), and whether x has the batch axis itself.

    Raises:
      ShapeError: it has neither num_spatial + 1 nor num_spatial + 2 axes.
    """
    op = tensor_op(function, "input", x)
    if len(op.shape) not in (num_spatial + 1, num_spatial + 2):
        spatial = ", ".join(("L",) if num_spatial == 1 else ("D", "H", "W")[3 - num_spatial :])
        raise ShapeError(f"{function}: input must be (N, C, {spatial}) or (C, {spatial}), got {op.shape}.")
    has_batch = len(op.shape) == num_spatial + 2
    return (op if has_batch else reshape(op, (1, *op.shape))), has_batch


def tensor_op(function: str, name: str, value: Any) -> Op:
    """Returns the Op of an argument that must be a tensor.

    Raises:
      ArgumentError: it is none.
    """
    if not isinstance(value, Tensor):
        raise ArgumentError(f"{function}: {name} must be a Tensor, got {type(value).__name__}.", hint="pg.Tensor(data)")
    return value.read()


def need_float(function: str, op: Op) -> None:
    """Raises a DTypeError where `op` is no float."""
    if not op.dtype.is_float:
        raise DTypeError(f"{function}: input must be a float, got {op.dtype} of shape {op.shape}.", hint="input.float()")


def without_batch(op: Op, has_batch: bool) -> Op:
    """Undoes `with_batch`."""
    return op if has_batch else reshape(op, op.shape[1:])


def num_windows(
    function: str, length: Dim, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool = False
) -> int:
    """Returns how many windows an axis has; with ceil_mode one more that is cut off, if it starts before the end.

    Raises:
      ShapeError: none fits.
    """
    whole, span = static(length) + 2 * padding, (kernel - 1) * dilation + 1
    count = (whole - span + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= static(length) + padding:
        count -= 1
    if count < 1:
        raise ShapeError(
            f"{function}: a window spanning {span} does not fit an axis of length {length} with padding {padding}."
        )
    return count


def window_places(count: int, kernel: int, stride: int, padding: int, dilation: int) -> Op:
    """Returns (kernel, count) int64: the place in x that each tap of each window falls on, perhaps outside of it."""
    shape = (kernel, count)
    taps, starts = repeat_axes(iota(kernel), (1,), shape), repeat_axes(iota(count), (0,), shape)
    return starts * stride + taps * dilation - padding
