"""Gradients of extremes and of products: of two, along axes, running and scattered.

Each function takes the incoming gradient `grad` and the Op `out`, and gives the gradient of one source. Equal candidates
for an extreme share its gradient equally, as in PyTorch's maximum and amax; a running maximum gives it to the last. NaN
wins, and is equal to NaN: where it is the extreme, those that are NaN share, as in PyTorch's max of all elements. The rules
of products hold to every order where factors are zero: dividing the product by each factor would fail there, so they
differentiate a way to compute the product from MULs of two, whose gradient is made of MULs of two again.
"""

from __future__ import annotations

import math
from math import prod

from picograd.dtype import bool_, int64
from picograd.ir.arithmetic import identity
from picograd.ir.build import (
    argsort,
    cast,
    differs,
    either,
    equal,
    expand,
    flip,
    gather,
    less,
    less_equal,
    move_back,
    move_last,
    pad_axis,
    permute,
    positions,
    reduce,
    repeat_axes,
    reshape,
    scan,
    scatter,
    shrink_axis,
    static_shape,
    where,
    zeros_like,
)
from picograd.ir.op import Dim, Op, Shape, const_value, filled
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.symbolic import ceildiv

TREE_MAX = 32  # elements of a product whose gradient is a tree

# ---- of two ----


def _of_two(grad: Op, mine: Op, other: Op, code: OpCode) -> Op:
    loses = less(mine, other) if code is OpCode.MAX else less(other, mine)
    ties = equal(mine, other)
    return where(ties, grad * 0.5, where(loses, zeros_like(grad), grad))


def extreme_lhs(grad: Op, out: Op) -> Op:
    """d max(a, b) / da = 1, 1/2 or 0 as a is above, equal to or below b."""
    return _of_two(grad, out.src[0], out.src[1], out.code)


def extreme_rhs(grad: Op, out: Op) -> Op:
    """d max(a, b) / db."""
    return _of_two(grad, out.src[1], out.src[0], out.code)


# ---- along axes ----


def _share(grad: Op, count: Op) -> Op:
    """Returns grad / count; counts are not exact in narrow floats, so it divides in float32 there."""
    return cast(cast(grad, count.dtype) / count, grad.dtype)


def _holds(x: Op, extreme: Op) -> Op:
    """True where x is the extreme of its elements: equal to it, or a NaN, which wins."""
    same = equal(x, extreme)
    return either(same, differs(x, x)) if x.dtype.is_float else same


def reduce_extreme(grad: Op, out: Op) -> Op:
    """The elements equal to the extreme share its gradient."""
    x, axes = out.src[0], out.arg[1]
    chosen = _holds(x, repeat_axes(out, axes, x.shape))
    count = reduce(cast(chosen, x.dtype.compute_dtype), OpCode.ADD, axes)
    return where(chosen, repeat_axes(_share(grad, count), axes, x.shape), zeros_like(x))


def scan_extreme(grad: Op, out: Op) -> Op:
    """Every result gives its gradient to the last element, up to itself, that is equal to it."""
    axis = out.arg[1]
    x, result, grad = (move_last(op, axis) for op in (out.src[0], out, grad))
    last = len(x.shape) - 1
    position = positions(x.shape, last)
    chosen = where(_holds(x, result), position, filled(0, int64, x.shape))
    index = scan(chosen, OpCode.MAX, last)
    return move_back(scatter(zeros_like(x), index, grad, OpCode.ADD, last, last), axis)


# ---- scattered ----


def no_candidate(base: Op, code: OpCode) -> Op:
    """Returns a base for a scatter of updates alone: what changes nothing, and gets no share where an update equals it.

    It is a constant behind a DETACH, as no other is: constants have no gradient that could be stopped.
    """
    return Op(OpCode.DETACH, base.dtype, (base.filled(identity(code, base.dtype)),))


def _is_no_candidate(base: Op) -> bool:
    while base.code in MOVEMENT:
        base = base.src[0]
    return base.code is OpCode.DETACH and const_value(base.src[0]) is not None


def _scattered(grad: Op, out: Op) -> tuple[Op, Op, Op]:
    """Returns where base and where updates hold the extreme, and the gradient each of those gets."""
    base, index, updates = out.src
    axis, batch = out.arg[1:]
    base_chosen = filled(False, bool_, base.shape) if _is_no_candidate(base) else _holds(base, out)
    updates_chosen = _holds(updates, gather(out, index, axis, batch))
    wide = base.dtype.compute_dtype
    count = scatter(cast(base_chosen, wide), index, cast(updates_chosen, wide), OpCode.ADD, axis, batch)
    return base_chosen, updates_chosen, _share(grad, count)


def scatter_extreme_base(grad: Op, out: Op) -> Op:
    """The base shares with the updates equal to it."""
    chosen, _, share = _scattered(grad, out)
    return where(chosen, share, zeros_like(share))


def scatter_extreme_updates(grad: Op, out: Op) -> Op:
    """The updates that hold the extreme share its gradient."""
    _, chosen, share = _scattered(grad, out)
    return where(chosen, gather(share, out.src[1], *out.arg[1:]), zeros_like(out.src[2]))


# ---- products ----
def reduce_product(grad: Op, out: Op) -> Op:
    """d(x0 x1 ...) / dxi = the product of the others."""
    x, axes = out.src[0], out.arg[1]
    kept = tuple(i for i in range(len(x.shape)) if i not in axes)
    first = axes[0] if axes == tuple(range(axes[0], axes[0] + len(axes))) else len(kept)
    order = (*kept[:first], *axes, *kept[first:])
    moved = permute(x, order)
    count = prod(static_shape(tuple(x.shape[axis] for axis in axes)))
    rows = reshape(moved, (*moved.shape[:first], count, *moved.shape[first + len(axes) :]))
    result = _others(rows, reshape(grad, _with_axis(rows.shape, first, 1)), first)
    return permute(reshape(result, moved.shape), tuple(order.index(i) for i in range(len(order))))


def _with_axis(shape: Shape, axis: int, *dims: Dim) -> Shape:
    """Returns a shape with other lengths in place of that of one axis."""
    return (*shape[:axis], *dims, *shape[axis + 1 :])


def _others(x: Op, grad: Op, axis: int) -> Op:
    """Returns grad times the product of the other elements along an axis.

    Few elements are multiplied by a binary tree of pairs, each of an element of the first half and one of the second.
    Many elements take the running products before and behind each. A row that fills lanes is a matrix first:
    elements of one column are multiplied, then columns.
    """
    count = static_shape(x.shape[axis : axis + 1])[0]
    if count < 2:
        return expand(grad, x.shape)
    if count <= TREE_MAX:
        half = 1 << (count - 1).bit_length() - 1
        filled = _filled_with_ones(pad_axis(x, axis, 0, 2 * half - count), axis, 0, count)
        pairs = reshape(filled, _with_axis(x.shape, axis, 2, half))
        one, other = (reshape(shrink_axis(pairs, axis, i, i + 1), _with_axis(x.shape, axis, half)) for i in (0, 1))
        both = _others(one * other, grad, axis)
        result = expand(reshape(both, _with_axis(x.shape, axis, 1, half)), pairs.shape) * flip(pairs, (axis,))
        return shrink_axis(reshape(result, filled.shape), axis, 0, count)
    width = 1 if axis < len(x.shape) - 1 else 1 << math.isqrt(count).bit_length() - 1
    height = ceildiv(count, width)
    filled = _filled_with_ones(pad_axis(x, axis, 0, height * width - count), axis, 0, count)
    lines = reshape(filled, _with_axis(x.shape, axis, height, width))
    before = scan(lines, OpCode.MUL, axis)
    behind = flip(scan(flip(lines, (axis,)), OpCode.MUL, axis), (axis,))
    of_lines = reshape(shrink_axis(before, axis, height - 1, height), _with_axis(x.shape, axis, width))
    of_lines = Op(OpCode.CONTIGUOUS, x.dtype, (_others(of_lines, grad, axis),))  # else each element computes it again
    others = reshape(of_lines, _with_axis(x.shape, axis, 1, width))
    result = _shifted(before, axis, 1) * _shifted(behind, axis, -1) * expand(others, lines.shape)
    return shrink_axis(reshape(result, filled.shape), axis, 0, count)


def _shifted(x: Op, axis: int, step: int) -> Op:
    """Returns x moved by `step` places along an axis, with ones where it came from."""
    count = static_shape(x.shape[axis : axis + 1])[0]
    if step > 0:
        return _filled_with_ones(pad_axis(shrink_axis(x, axis, 0, count - step), axis, step, 0), axis, step, count)
    return _filled_with_ones(pad_axis(shrink_axis(x, axis, -step, count), axis, 0, -step), axis, 0, count + step)


def scan_product(grad: Op, out: Op) -> Op:
    """The running product by doubling (Hillis and Steele 1986), differentiated: y[i] <- y[i] y[i - step]."""
    axis = out.arg[1]
    level, result = out.src[0], grad
    count = static_shape(level.shape[axis : axis + 1])[0]
    levels: list[tuple[int, Op, Op]] = []
    step = 1
    while step < count:
        before = _shifted(level, axis, step)
        levels.append((step, level, before))
        level = level * before
        step *= 2
    for step, level, before in reversed(levels):
        later = pad_axis(shrink_axis(result * level, axis, step, count), axis, 0, step)
        result = result * before + later
    return result


# ---- scattered ----


def scatter_product_base(grad: Op, out: Op) -> Op:
    """The base is one factor of each product; its gradient is that of the product times the other factors."""
    return grad * _scattered_others(out)[0]


def scatter_product_updates(grad: Op, out: Op) -> Op:
    """Each update is one factor of the product at its index."""
    return gather(grad, out.src[1], *out.arg[1:]) * _scattered_others(out)[1]


def _scattered_others(out: Op) -> tuple[Op, Op]:
    """Returns, for each element of the base and for each update, the product of all others that meet it.

    Factors of one product are neighbours once all are sorted by where they go: n log n.
    """
    base, index, updates = out.src
    axis, batch = out.arg[1:]
    last, num_index = len(base.shape) - 1, len(index.shape) - batch
    count, sent = base.shape[axis], prod(static_shape(index.shape[batch:]))
    assert isinstance(count, int)
    rows = move_last(base, axis)
    places = (*range(axis), *range(axis + num_index, len(updates.shape)), *range(axis, axis + num_index))
    columns = permute(updates, places)  # (batch..., left..., right..., J...)
    factors = _joined(rows, reshape(columns, (*rows.shape[:-1], sent)))
    line = reshape(index, (*index.shape[:batch], *(1,) * (last - batch), sent))
    keys = _joined(positions(rows.shape, last), expand(cast(line, int64), (*rows.shape[:-1], sent))) + 1
    order = argsort(keys, last)
    keys, factors = gather(keys, order, last, last), gather(factors, order, last, last)
    before = _product_before(factors, keys)
    after = flip(_product_before(flip(factors, (last,)), flip(keys, (last,))), (last,))
    others = scatter(zeros_like(factors), order, before * after, None, last, last)
    of_updates = reshape(shrink_axis(others, -1, count, count + sent), columns.shape)
    back = tuple(places.index(i) for i in range(len(places)))
    return move_back(shrink_axis(others, -1, 0, count), axis), permute(of_updates, back)


def _joined(a: Op, b: Op) -> Op:
    """Returns a and b joined along the last axis."""
    left, right = static_shape((a.shape[-1], b.shape[-1]))
    return pad_axis(a, -1, 0, right) + pad_axis(b, -1, left, 0)


def _product_before(x: Op, keys: Op) -> Op:
    """Returns the product of the elements before each element among those of the same key (> 0), which are neighbours."""
    count = static_shape(x.shape[-1:])[0]

    def earlier(op: Op, step: int) -> Op:
        """The value `step` places before, where the key is the same; else 1."""
        same = equal(keys, pad_axis(shrink_axis(keys, -1, 0, count - step), -1, step, 0))
        return where(same, pad_axis(shrink_axis(op, -1, 0, count - step), -1, step, 0), op.filled(1))

    level, step = x, 1
    while step < count:
        level = level * earlier(level, step)
        step *= 2
    return earlier(level, 1) if count else level


def _filled_with_ones(x: Op, axis: int, start: int, stop: int) -> Op:
    """Returns x with ones before `start` and from `stop` on, along an axis."""
    if (start, stop) == (0, x.shape[axis]):
        return x
    position = positions(x.shape, axis)
    if start:
        inside = less_equal(start, position)
    else:
        inside = less(position, stop)
    return where(inside, x, x.filled(1))
