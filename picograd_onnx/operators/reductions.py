"""Reductions, cumulative sums, arg-reductions, softmax and top-k.

In:    tensors; axes as attributes or as known arrays
Out:   `OPERATORS`
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.tensor.tensor import Tensor
from picograd_onnx.record import row

Reduce = Callable[[Tensor, tuple[int, ...], bool], Tensor]


# ---- what is reduced over which axes ----
def by_attribute(function: Reduce) -> Callable[..., Tensor]:
    """Returns a reduction with its axes as an attribute; no attribute means all axes."""

    def apply(x: Tensor, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Tensor:
        return function(x, _axes(x, axes or None), bool(keepdims))

    return apply


def by_input(function: Reduce) -> Callable[..., Tensor]:
    """Returns a reduction with its axes as an input; an empty one means all axes, or none with noop_with_empty_axes."""

    def apply(
        x: Tensor, axes: Sequence[int] | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        if not axes and noop_with_empty_axes:
            return function(x, (), bool(keepdims))
        return function(x, _axes(x, axes or None), bool(keepdims))

    return apply


def _axes(x: Tensor, axes: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(range(x.ndim)) if axes is None else tuple(axes)


def _reduced(x: Tensor, method: Callable[..., Tensor], axes: tuple[int, ...], keepdim: bool) -> Tensor:
    return method(x, axes, keepdim) if axes else x


def add(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the sum, in the element type of x."""
    return _reduced(x, Tensor.sum, axes, keepdim).to(x.dtype)


def multiply(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the product, in the element type of x."""
    return _reduced(x, Tensor.prod, axes, keepdim).to(x.dtype)


def average(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the mean; the mean of integers is rounded towards zero."""
    wide = x if x.dtype.is_float else x.to(dtypes.float64)
    return _reduced(wide, Tensor.mean, axes, keepdim).to(x.dtype)


def largest(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the largest element; the dtype's least number for no elements."""
    return _extreme(x, Tensor.amax, x.dtype.min, axes, keepdim)


def least(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the least element; the dtype's largest number for no elements."""
    return _extreme(x, Tensor.amin, x.dtype.max, axes, keepdim)


def _extreme(
    x: Tensor, method: Callable[..., Tensor], empty: Any, axes: tuple[int, ...], keepdim: bool
) -> Tensor:
    if any(x.shape[axis] == 0 for axis in axes):
        shape = [1 if axis in axes else n for axis, n in enumerate(x.shape) if keepdim or axis not in axes]
        return Tensor.full(shape, empty, dtype=x.dtype, device=x.device)
    return _reduced(x, method, axes, keepdim)


def l1(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the sum of magnitudes."""
    return add(x.abs(), axes, keepdim)


def squares(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the sum of squares."""
    return add(x * x, axes, keepdim)


def l2(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the root of the sum of squares."""
    wide = x if x.dtype.is_float else x.to(dtypes.float64)
    return squares(wide, axes, keepdim).sqrt().to(x.dtype)


def log_add(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the logarithm of the sum."""
    wide = x if x.dtype.is_float else x.to(dtypes.float64)
    return add(wide, axes, keepdim).log().to(x.dtype)


def log_sum_exp(x: Tensor, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    """Returns the logarithm of the sum of exponentials."""
    wide = x if x.dtype.is_float else x.to(dtypes.float64)
    empty = any(x.shape[axis] == 0 for axis in axes)
    return (log_add(wide, axes, keepdim) if empty else _reduced(wide, Tensor.logsumexp, axes, keepdim)).to(x.dtype)


# ---- places of extremes ----
def arg_largest(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Returns the index of the largest element along an axis: the first of several, or the last."""
    return _place(x, Tensor.argmax, axis, keepdims, select_last_index)


def arg_least(x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Tensor:
    """Returns the index of the least element along an axis: the first of several, or the last."""
    return _place(x, Tensor.argmin, axis, keepdims, select_last_index)


def _place(x: Tensor, method: Callable[..., Tensor], axis: int, keepdims: int, last: int) -> Tensor:
    if last:
        return x.shape[axis] - 1 - method(x.flip(axis), axis, bool(keepdims))
    return method(x, axis, bool(keepdims))


# ---- along an axis ----
def running(method: Callable[..., Tensor], start: int) -> Callable[..., Tensor]:
    """Returns a cumulative reduction; an exclusive one begins with `start` and leaves out the current element."""

    def apply(x: Tensor, axis: int, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
        x = x.flip(axis) if reverse else x
        if exclusive:
            first = Tensor.full_like(x.narrow(axis, 0, min(1, x.shape[axis])), start)
            x = Tensor.cat([first, x.narrow(axis, 0, max(0, x.shape[axis] - 1))], axis)
        total = method(x, axis).to(x.dtype)
        return total.flip(axis) if reverse else total

    return apply


def top_k(x: Tensor, k: int, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Tensor, Tensor]:  # noqa: A002
    """Returns the k largest or least elements along an axis and their indices."""
    found = x.topk(k, axis, bool(largest), bool(sorted))
    return found.values, found.indices


def top_fixed(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    """Returns the k largest elements along an axis and their indices."""
    found = x.topk(k, axis)
    return found.values, found.indices


# ---- normalised along an axis ----
def softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Returns exp(x) / sum(exp(x)) along an axis."""
    return x.softmax(axis)


def log_softmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Returns log(softmax(x)) along an axis."""
    return x.log_softmax(axis)


def hardmax(x: Tensor, *, axis: int = -1) -> Tensor:
    """Returns 1 for the first largest element along an axis, else 0."""
    return x.argmax(axis).one_hot(x.shape[axis]).movedim(-1, axis).to(x.dtype)


def flat(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns a function along one axis with the rules before version 13: all axes from `axis` on are joined."""

    def apply(x: Tensor, *, axis: int = 1) -> Tensor:
        return function(x.flatten(axis), axis=axis).reshape(x.shape)

    return apply


OPERATORS = [
    row("ReduceSum", 1, by_attribute(add)), row("ReduceSum", 13, by_input(add), "x axes"),
    row("ReduceProd", 1, by_attribute(multiply)), row("ReduceProd", 18, by_input(multiply), "x axes"),
    row("ReduceMean", 1, by_attribute(average)), row("ReduceMean", 18, by_input(average), "x axes"),
    row("ReduceMax", 1, by_attribute(largest)), row("ReduceMax", 18, by_input(largest), "x axes"),
    row("ReduceMin", 1, by_attribute(least)), row("ReduceMin", 18, by_input(least), "x axes"),
    row("ReduceL1", 1, by_attribute(l1)), row("ReduceL1", 18, by_input(l1), "x axes"),
    row("ReduceL2", 1, by_attribute(l2)), row("ReduceL2", 18, by_input(l2), "x axes"),
    row("ReduceSumSquare", 1, by_attribute(squares)), row("ReduceSumSquare", 18, by_input(squares), "x axes"),
    row("ReduceLogSum", 1, by_attribute(log_add)), row("ReduceLogSum", 18, by_input(log_add), "x axes"),
    row("ReduceLogSumExp", 1, by_attribute(log_sum_exp)), row("ReduceLogSumExp", 18, by_input(log_sum_exp), "x axes"),
    row("ArgMax", 1, arg_largest), row("ArgMin", 1, arg_least),
    row("CumSum", 11, running(Tensor.cumsum, 0), "x axis"), row("CumProd", 26, running(Tensor.cumprod, 1), "x axis"),
    row("TopK", 1, top_fixed), row("TopK", 10, top_k, "x one"),
    row("Softmax", 1, flat(softmax)), row("Softmax", 13, softmax),
    row("LogSoftmax", 1, flat(log_softmax)), row("LogSoftmax", 13, log_softmax),
    row("Hardmax", 1, flat(hardmax)), row("Hardmax", 13, hardmax),
]  # fmt: skip
