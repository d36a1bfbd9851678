"""Gradients of Ops that choose: MAX and MIN of two, along axes, running, and scattered.

In:    the incoming gradient `grad` and the Op `out`
Out:   the gradient of one source
Next:  picograd/autodiff/products.py

Equal candidates share the gradient equally, as in PyTorch's maximum and amax; a running maximum gives it to the last. NaN
wins, and is equal to NaN: where it is the extreme, those that are NaN share, as in PyTorch's max of all elements.
"""

from __future__ import annotations

from picograd.dtype import bool_, int64
from picograd.ir.build import (
    cast,
    compare,
    either,
    gather,
    move_back,
    move_last,
    positions,
    reduce,
    repeat_axes,
    scan,
    scatter,
    where,
    zeros_like,
)
from picograd.ir.fold import identity
from picograd.ir.op import Op, const_value, filled
from picograd.ir.opcode import MOVEMENT, OpCode

# ---- of two ----


def _of_two(grad: Op, mine: Op, other: Op, code: OpCode) -> Op:
    loses = compare(OpCode.CMPLT, mine, other) if code is OpCode.MAX else compare(OpCode.CMPLT, other, mine)
    ties = compare(OpCode.CMPEQ, mine, other)
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
    same = compare(OpCode.CMPEQ, x, extreme)
    return either(same, compare(OpCode.CMPNE, x, x)) if x.dtype.is_float else same


def reduce_extreme(grad: Op, out: Op) -> Op:
    """The elements equal to the extreme share its gradient."""
    x, axes = out.src[0], out.arg[1]
    chosen = _holds(x, repeat_axes(out, axes, x.shape))
    count = reduce(cast(chosen, x.dtype.compute_dtype), OpCode.ADD, axes)
    return where(chosen, repeat_axes(_share(grad, count), axes, x.shape), zeros_like(x))


def scan_extreme(grad: Op, out: Op) -> Op:
    """Every result gives its gradient to the last element, up to itself, that is equal to it."""
    operation, axis = out.arg
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
