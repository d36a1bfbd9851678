"""The meaning of Ops that move, reduce or order elements.

In:    an Op, the arrays of its sources, the values of symbolic integers
Out:   the array of its result, to be rounded to the Op's dtype
Next:  picograd/evaluator/contractions.py

Sums and products of floats are accumulated in float64 and rounded once: the reference that every blocked, pairwise or
split summation of a device is compared with.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from picograd.evaluator.elementwise import Array, double
from picograd.ir.dims import dim_value
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode

Variables = Mapping[str, int]
Rule = Callable[[Op, Sequence[Array], Variables], Any]


def shape_value(shape: Sequence[Dim], variables: Variables) -> tuple[int, ...]:
    """Returns a shape with every symbolic dimension resolved."""
    return tuple(dim_value(dim, variables) for dim in shape)


# ---- movement ----
def _reshape(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return args[0].reshape(shape_value(op.shape, variables))


def _permute(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return args[0].transpose(op.arg)


def _expand(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return np.broadcast_to(args[0], shape_value(op.shape, variables))


def _pad(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return np.pad(args[0], [shape_value(pair, variables) for pair in op.arg]) if op.arg else args[0]


def _shrink(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return args[0][tuple(slice(*shape_value(pair, variables)) for pair in op.arg)]


def _flip(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    return np.flip(args[0], op.arg)


# ---- along axes ----
UFUNCS: dict[OpCode, np.ufunc] = {
    OpCode.ADD: np.add,
    OpCode.MUL: np.multiply,
    OpCode.MAX: np.maximum,
    OpCode.MIN: np.minimum,
}
BOOL_UFUNCS: dict[OpCode, np.ufunc] = {
    OpCode.ADD: np.logical_or,
    OpCode.MUL: np.logical_and,
    OpCode.MAX: np.logical_or,
    OpCode.MIN: np.logical_and,
}


def _accumulated(op: Op, array: Array) -> tuple[Array, np.ufunc, np.dtype[Any]]:
    """Returns the array to combine, the ufunc for the combining opcode and the dtype to combine in."""
    code = op.arg[0]
    if op.dtype.kind == "b":
        return array, BOOL_UFUNCS[code], np.dtype(np.bool_)
    if op.dtype.is_float:
        return double(array, op.src[0].dtype), UFUNCS[code], np.dtype(np.float64)
    return array, UFUNCS[code], op.dtype.numpy


def identity_of(code: OpCode, op: Op) -> Any:
    """Returns what REDUCE(code) of nothing is."""
    if code in (OpCode.ADD, OpCode.MUL):
        return code is OpCode.MUL
    return op.dtype.min if code is OpCode.MAX else op.dtype.max


def _reduce(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    array, ufunc, dtype = _accumulated(op, args[0])
    code, axes = op.arg
    return ufunc.reduce(array.astype(dtype), axis=axes, initial=dtype.type(identity_of(code, op)))


def _scan(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    array, ufunc, dtype = _accumulated(op, args[0])
    return ufunc.accumulate(array.astype(dtype), axis=op.arg[1])


def _sort(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    """Stable argsort, ties in the order they stand; NaN counts as the greatest value."""
    axis, descending = op.arg
    array = double(args[0], op.src[0].dtype)
    if not descending:
        return np.argsort(array, axis=axis, kind="stable")
    order = np.argsort(np.flip(array, axis), axis=axis, kind="stable")
    return array.shape[axis] - 1 - np.flip(order, axis)


def _iota(op: Op, args: Sequence[Array], variables: Variables) -> Any:
    return np.arange(dim_value(op.arg, variables))


# ---- indexing ----
def _within(index: Array, length: int) -> tuple[Array, Array]:
    """Returns the index as int64, 0 where it is outside an axis, and where it is inside."""
    inside = (index >= 0) & (index < length)
    return np.where(inside, index, 0).astype(np.int64), inside


def _split(x: Array, index: Array, axis: int, batch: int) -> tuple[tuple[int, int, int, int], Array]:
    """Returns (batch, left, axis, right) element counts of x, and the index as (batch, J)."""
    groups = (x.shape[:batch], x.shape[batch:axis], x.shape[axis : axis + 1], x.shape[axis + 1 :])
    counts = tuple(math.prod(group) for group in groups)
    num_indices = math.prod(index.shape[batch:])
    return (counts[0], counts[1], counts[2], counts[3]), index.reshape(counts[0], num_indices)


def _gather(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    """Takes the slices the index names; an index outside the axis names zeros."""
    x, (axis, batch) = args[0], op.arg
    shape = shape_value(op.shape, variables)
    if not x.shape[axis]:
        return np.zeros(shape, x.dtype)
    index, inside = _within(args[1], x.shape[axis])
    counts, flat = _split(x, index, axis, batch)
    rows, left = np.arange(counts[0])[:, None, None], np.arange(counts[1])[None, :, None]
    taken = x.reshape(counts)[rows, left, flat[:, None, :]]  # (batch, left, J, right)
    return np.where(inside.reshape(flat.shape)[:, None, :, None], taken, np.zeros((), x.dtype)).reshape(shape)


def _scatter(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    """Stores or combines the updates one index after the other, so the last of equal indices wins.

    Updates whose index is outside the axis are left out.
    """
    base, (code, axis, batch) = args[0], op.arg
    index, inside = _within(args[1], base.shape[axis])
    counts, flat = _split(base, index, axis, batch)
    result = double(base, op.dtype).reshape(counts).copy()
    updates = double(args[2], op.dtype).reshape(counts[0], counts[1], flat.shape[1], counts[3])
    kept, left = inside.reshape(flat.shape), np.arange(counts[1])[None, :]
    ufunc = None if code is None else (BOOL_UFUNCS if op.dtype.kind == "b" else UFUNCS)[code]
    for j in range(flat.shape[1]):
        rows = kept[:, j].nonzero()[0]
        at = (rows[:, None], left, flat[rows, j, None])
        result[at] = updates[rows, :, j] if ufunc is None else ufunc(result[at], updates[rows, :, j])
    return result.reshape(base.shape)


def _update(op: Op, args: Sequence[Array], variables: Variables) -> Array:
    result = args[0].copy()
    result[tuple(slice(*shape_value(pair, variables)) for pair in op.arg)] = args[1]
    return result


ARRAY_RULES: dict[OpCode, Rule] = {
    OpCode.RESHAPE: _reshape,
    OpCode.PERMUTE: _permute,
    OpCode.EXPAND: _expand,
    OpCode.PAD: _pad,
    OpCode.SHRINK: _shrink,
    OpCode.FLIP: _flip,
    OpCode.REDUCE: _reduce,
    OpCode.SCAN: _scan,
    OpCode.SORT: _sort,
    OpCode.IOTA: _iota,
    OpCode.GATHER: _gather,
    OpCode.SCATTER: _scatter,
    OpCode.UPDATE: _update,
}
