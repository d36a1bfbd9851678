"""Where an element stands: positions, coordinates, and what movement does to them.

In:    coordinates (integers or symbolic), shapes, movement Ops
Out:   `flatten`, `unflatten`, `reshape_coords`, `move`, `placeholder`, `placeholders`
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul, subtract, to_op, weighted_sum

Coords = tuple[Dim, ...]


def placeholder(axis: int, extent: Dim) -> Op:
    """A RANGE that stands for an axis while accesses are analysed; its id is negative, as no real loop's is."""
    return Op(OpCode.RANGE, dtypes.int64, (to_op(extent),), (-1 - axis, AxisKind.LOOP))


@lru_cache(maxsize=1024)
def placeholders(shape: Shape) -> Coords:
    """The coordinates of any element of a shape: a placeholder for each axis, 0 for those of length 1."""
    return tuple(0 if dim == 1 else placeholder(axis, dim) for axis, dim in enumerate(shape))


def flatten(coords: Sequence[Dim], shape: Shape) -> Dim:
    """Returns the row-major position of `coords` in `shape`."""
    stride: Dim = 1
    parts: list[tuple[Dim, int]] = []
    for coord, dim in zip(reversed(coords), reversed(shape)):
        parts.append((coord, stride) if isinstance(stride, int) else (mul(coord, stride), 1))
        stride = mul(stride, dim)
    return weighted_sum(parts)


def unflatten(position: Dim, shape: Shape) -> Coords:
    """Returns the coordinates of a row-major position; the inverse of `flatten`."""
    coords: list[Dim] = []
    for dim in reversed(shape[1:]):
        coords.append(mod(position, dim))
        position = floordiv(position, dim)
    return (position, *reversed(coords)) if shape else ()


def reshape_coords(coords: Coords, new: Shape, old: Shape) -> Coords:
    """Returns where element `coords` of shape `new` stands in shape `old`.

    Axes of length 1 are left out of the arithmetic: only those that really split or merge meet a division.
    """
    kept_old = tuple(dim for dim in old if dim != 1)
    kept_new = [(coord, dim) for coord, dim in zip(coords, new) if dim != 1]
    if kept_old == tuple(dim for _, dim in kept_new):
        values = iter([coord for coord, _ in kept_new])
    else:
        position = flatten([coord for coord, _ in kept_new], tuple(dim for _, dim in kept_new))
        values = iter(unflatten(position, kept_old))
    return tuple(0 if dim == 1 else next(values) for dim in old)


def move(op: Op, coords: Coords) -> tuple[Coords, Op | bool]:
    """Returns the source coordinates of element `coords` of a movement Op, and where there is one."""
    shape = op.src[0].shape
    if op.code is OpCode.RESHAPE:
        return reshape_coords(coords, op.shape, shape), True
    if op.code is OpCode.PERMUTE:
        back = {axis: i for i, axis in enumerate(op.arg)}
        return tuple(coords[back[axis]] for axis in range(len(shape))), True
    if op.code is OpCode.EXPAND:
        return tuple(0 if dim == 1 else coord for coord, dim in zip(coords, shape)), True
    if op.code is OpCode.FLIP:
        last = [subtract(dim, 1) for dim in shape]
        return tuple(subtract(last[i], c) if i in op.arg else c for i, c in enumerate(coords)), True
    if op.code is OpCode.SHRINK:
        return tuple(add(coord, start) for coord, (start, _) in zip(coords, op.arg)), True
    assert op.code is OpCode.PAD, f"{op} has no value at a point: it must be computed by a nest of its own"
    inside: Op | bool = True
    moved: list[Dim] = []
    for coord, dim, (before, after) in zip(coords, shape, op.arg):
        source = subtract(coord, before)
        if before:
            inside = both(inside, less(-1, source))
        if after:
            inside = both(inside, less(source, dim))
        moved.append(source)
    return tuple(moved), inside
