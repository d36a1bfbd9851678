"""Scatters on Ops: along an axis, combined by a reduction, in the places of a mask.

In:    Ops
Out:   `scattered_along`, `combined`, `mask_scattered`
Next:  picograd/tensor/indexing/selection.py
"""

from __future__ import annotations

from collections.abc import Callable

from picograd import dtype as dtypes
from picograd.autodiff.reductions import no_candidate
from picograd.errors import DTypeError
from picograd.ir.build import move_back, move_last, pad, reshape, scan, scatter, shrink, where
from picograd.ir.checks import Site, checked
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import subtract
from picograd.tensor.build import broadcast_shapes, broadcast_to, cast

Scatter = Callable[[Op, Op, Op, OpCode | None, int], Op]
CODES = {"sum": OpCode.ADD, "prod": OpCode.MUL, "mean": OpCode.ADD, "amax": OpCode.MAX, "amin": OpCode.MIN}


def scattered_along(base: Op, places: Op, updates: Op, code: OpCode | None, axis: int) -> Op:
    """Returns base[..., places, ...] = updates along one axis, the others equal; `places` may be shorter along them."""
    if not places.numel:
        return base
    block = tuple((0, dim if a == axis else n) for a, (dim, n) in enumerate(zip(base.shape, places.shape)))
    part, batch = shrink(base, block), len(base.shape) - 1
    target, index, values = (move_last(op, axis) for op in (part, places, updates))
    moved = scatter(target, index, values, code, batch, batch)
    result = move_back(moved, axis)
    if part is base:
        return result
    margins = tuple((0, subtract(dim, stop)) for dim, (_, stop) in zip(base.shape, block))
    return where(pad(filled(True, dtypes.bool_, result.shape), margins), pad(result, margins), base)


def combined(base: Op, places: Op, updates: Op, reduce: str, include_self: bool, axis: int, store: Scatter) -> Op:
    """Returns `base` with all updates of one place combined there: "sum", "mean", "prod", "amax" or "amin".

    Args:
      include_self:  what `base` has there is combined, too
      store:         how updates go to their places: `scattered_along`, or by slices
    """
    code = CODES[reduce]
    if include_self:
        result = store(base, places, updates, code, axis)
    else:
        covered = filled(False, dtypes.bool_, base.shape)
        covered = store(covered, places, filled(True, dtypes.bool_, updates.shape), None, axis)
        result = where(covered, store(no_candidate(base, code), places, updates, code, axis), base)
    if reduce != "mean":
        return result
    ones = filled(int(include_self), dtypes.int64, base.shape)
    count = store(ones, places, filled(1, dtypes.int64, updates.shape), OpCode.ADD, axis)
    count = Op(OpCode.MAX, dtypes.int64, (count, filled(1, dtypes.int64, base.shape)))
    if base.dtype.is_float:
        return result / cast(count, base.dtype)
    return Op(OpCode.IDIV, base.dtype, (result, cast(count, base.dtype)))


def mask_scattered(base: Op, mask: Op, source: Op) -> Op:
    """Returns the elements of `source`, in order, where the mask holds, else `base`; base and mask are broadcast.

    Raises:
      DTypeError: the mask is not bool.
      ShapeError: base and mask do not broadcast.
    """
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"masked_scatter: the mask must be bool, got {mask.dtype} of shape {mask.shape}.")
    shape = broadcast_shapes("masked_scatter", base.shape, mask.shape)
    base = broadcast_to(base, shape)
    if not base.numel:
        return base
    flat, length = (numel(shape),), numel(source.shape)
    chosen = reshape(broadcast_to(mask, shape), flat)
    place = scan(cast(chosen, dtypes.int64), OpCode.ADD, 0) - 1
    place = where(chosen, place, 0)
    site = Site(f"masked_scatter: the mask needs element {{}} of a source of {length} elements.")
    line = reshape(source, (length,))
    if length == 0:  # one element to read where nothing is chosen
        line = pad(line, ((0, 1),))
        site = Site("masked_scatter: the mask needs elements of a source that has none.")
        place = checked(where(chosen, filled(1, dtypes.int64, flat), 0), 1, site)
    else:
        place = checked(place, length, site)
    taken = Op(OpCode.GATHER, base.dtype, (line, place), (0, 0))
    return where(reshape(chosen, shape), reshape(taken, shape), base)
