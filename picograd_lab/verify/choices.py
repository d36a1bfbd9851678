"""Bounds of elements that are read, written, ordered or chosen by integers and keys with rounding errors.

In:    a GATHER, a SCATTER, a SORT or a search for the greatest element, the arrays of its sources, and their bounds
Out:   the bound of its result: a few possible positions are all examined; with more, nothing is known

    index 3, exact    the bound of x[3]               index 3 +- 1    the largest distance of x[2], x[3], x[4] from x[3]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from picograd.evaluator.elementwise import Array
from picograd.evaluator.graph import RULES, Variables
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode

REACH_MAX = 4  # positions on each side of an index


def _offsets(error: Array) -> Iterator[Array]:
    """Yields each possible offset of indices within their bounds; 0 for a bound that is too large."""
    reach = np.where(error > REACH_MAX, 0, error).astype(np.int64)
    for offset in range(-int(reach.max(initial=0)), int(reach.max(initial=0)) + 1):
        yield np.clip(offset, -reach, reach)


def of_gather(op: Op, value: Array, args: Sequence[Array], errors: Sequence[Array], variables: Variables) -> Array:
    """Returns the bound of a gathered element: its own bound, and the distance of elements that may be read instead."""
    (x, index), axis, rule = args, op.arg[0], RULES[op.code]
    length = x.shape[axis]
    unknown = np.full((*x.shape[:axis], 1, *x.shape[axis + 1 :]), np.inf)
    own = np.concatenate([np.broadcast_to(errors[0], x.shape), unknown], axis)  # its last: an unknown index
    error = np.zeros(value.shape)
    for offset in _offsets(errors[1]):
        at = index.astype(np.int64) + offset
        at = np.where((at < 0) | (at >= length), -1, at)
        read = rule(op, [x, at], variables).astype(np.float64)
        bound = rule(op, [own, np.where(errors[1] > REACH_MAX, length, at)], variables)
        far = np.abs(read - value)
        same = (read == value) | (np.isnan(read) & np.isnan(value.astype(np.float64)))
        error = np.maximum(error, np.where(same, 0.0, np.where(np.isnan(far), np.inf, far)) + bound)
    return error


def of_scatter(op: Op, args: Sequence[Array], errors: Sequence[Array], certain: Array, variables: Variables) -> Array:
    """Returns the bound of a scattered element: updates that may move to it or away, beside the one for a certain index.

    Args:
      certain:  the bound for exact indices
    """
    (base, index, updates), (code, axis, batch) = args, op.arg
    places = index.shape[batch:]
    along = (*index.shape[:batch], *(1,) * (axis - batch), *places, *(1,) * (updates.ndim - axis - len(places)))
    is_open = np.broadcast_to((errors[1] > 0).reshape(along), updates.shape)
    adds = code is OpCode.ADD and op.dtype.kind != "b"
    size = np.abs(updates.astype(np.float64)) + errors[2] if adds else np.full(updates.shape, np.inf)
    may_come = np.where(is_open, size, 0.0)
    add, changed = op.replace(arg=(OpCode.ADD, axis, batch)), certain
    is_lost = np.broadcast_to((errors[1] > REACH_MAX).reshape(along), updates.shape)  # and may move to any position
    for offset in _offsets(errors[1]):
        near = np.where(is_lost, 0.0, may_come)
        changed = changed + RULES[op.code](add, [np.zeros(base.shape), index.astype(np.int64) + offset, near], variables)
    axes = tuple(range(axis, axis + len(places)))
    anywhere = np.where(is_lost, may_come, 0.0).sum(axes, keepdims=True)
    return changed + anywhere.reshape(*changed.shape[:axis], 1, *changed.shape[axis + 1 :])


def extreme_beside(op: Op) -> Op | None:
    """Returns the REDUCE if a comparison asks which elements of x equal the greatest or least of them, else None."""
    x, other = op.src
    kept = other.src[0] if other.code is OpCode.EXPAND else other
    reduced = kept.src[0] if kept.code is OpCode.RESHAPE else kept
    if reduced.code is not OpCode.REDUCE or reduced.src[0] is not x or reduced.arg[0] not in (OpCode.MAX, OpCode.MIN):
        return None
    is_kept = kept.shape == tuple([1 if axis in reduced.arg[1] else dim for axis, dim in enumerate(x.shape)])
    return reduced if is_kept else None


def of_extreme(reduced: Op, value: Array, error: Array) -> Array:
    """Returns 1 if rounding may decide whether an element is the extreme: another one is within the bounds.

    The extreme equals itself with any rounding, so only other elements make it uncertain.
    """
    code, axes = reduced.arg
    keys = (-1.0 if code is OpCode.MIN else 1.0) * value.astype(np.float64)
    may_be = keys + error >= (keys - error).max(axis=axes, keepdims=True)
    has_rivals = may_be.sum(axis=axes, keepdims=True) > 1
    moves = (may_be & (error > 0)).any(axis=axes, keepdims=True)
    return np.where(may_be & has_rivals & moves, 1.0, 0.0)


def of_sort(op: Op, args: Sequence[Array], error: Array, variables: Variables) -> Array:
    """Returns the bound of an order: 0 if a key is separated from all before and after it, else infinity."""
    axis, descending, *count = op.arg
    keys = args[0].astype(np.float64)
    order = RULES[op.code](op.replace(src=op.src[:1], arg=(axis, descending)), args[:1], variables)
    sign, is_last = (-1.0 if descending else 1.0), np.isnan(keys)
    reach = np.take_along_axis(np.where(is_last, 0.0, error), order, axis)
    keys = np.take_along_axis(np.where(is_last, np.inf, keys), order, axis) * sign
    least, most = np.moveaxis(keys - reach, axis, -1), np.moveaxis(keys + reach, axis, -1)
    before = np.maximum.accumulate(most, -1)[..., :-1]
    after = np.minimum.accumulate(least[..., ::-1], -1)[..., ::-1][..., 1:]
    apart = np.ones(least.shape, np.bool_)
    apart[..., 1:] &= before <= least[..., 1:]
    apart[..., :-1] &= most[..., :-1] <= after
    found = np.moveaxis(np.where(apart, 0.0, np.inf), -1, axis)
    if len(args) > 1:
        return np.take_along_axis(found, np.clip(args[1], 0, found.shape[axis] - 1), axis)
    return found.take(range(*count), axis) if count else found
