"""A block of a graph's value as its own graph, which reads only the data that the block depends on.

In:    an Op, and (start, stop) along each of its axes
Out:   a graph of the value of SHRINK(op), with the SHRINK moved as near to the PARAMs as possible

    block(MATMUL(a, b), rows 3..5)  ->  MATMUL(SHRINK(a, rows 3..5), b)

So a kernel too slow for NumPy is compared on a part of its outputs, and a wrong kernel is shown on little data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd.ir.build import pad, reshape, shrink
from picograd.ir.op import Op, filled
from picograd.ir.opcode import ELEMENTWISE, IDENTITY, OpCode

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def block(op: Op, ranges: Sequence[Range]) -> Op:
    """Returns the part of an Op's value inside some ranges; shapes are numbers."""
    return _Blocks().of(op, tuple(ranges))


def every(shape: Sequence[object]) -> Ranges:
    """Returns the full ranges of a shape."""
    return tuple([(0, int(dim)) for dim in shape])  # type: ignore[call-overload]


class _Blocks:
    """The blocks of one graph, each made once."""

    def __init__(self) -> None:
        self.made: dict[tuple[Op, Ranges], Op] = {}

    def of(self, op: Op, ranges: Ranges) -> Op:
        if ranges == every(op.shape):
            return op
        key = op, ranges
        if key not in self.made:
            rule = RULES.get(op.code, _shrunk)
            self.made[key] = rule(self, op, ranges)
        return self.made[key]


def _shape(ranges: Ranges) -> tuple[int, ...]:
    return tuple([stop - start for start, stop in ranges])


def _shrunk(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    return shrink(op, ranges)


def _alike(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    return op.replace(src=tuple([blocks.of(s, ranges) for s in op.src]))


# ---- movement ----
def _expand(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    (x,) = op.src
    inner = tuple([(0, 1) if dim == 1 else one for dim, one in zip(x.shape, ranges)]) if x.shape else ()
    return Op(OpCode.EXPAND, op.dtype, (blocks.of(x, inner),), _shape(ranges))


def _permute(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    inner = [ranges[op.arg.index(axis)] for axis in range(len(op.arg))]
    return op.replace(src=(blocks.of(op.src[0], tuple(inner)),))


def _flip(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    shape = every(op.shape)
    inner = [
        (shape[a][1] - stop, shape[a][1] - start) if a in op.arg else (start, stop)
        for a, (start, stop) in enumerate(ranges)
    ]
    return op.replace(src=(blocks.of(op.src[0], tuple(inner)),))


def _shrink(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    return blocks.of(op.src[0], tuple([(first + a, first + b) for (first, _), (a, b) in zip(op.arg, ranges)]))


def _pad(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    inner, zeros = [], []
    for (before, _), (_, length), (start, stop) in zip(op.arg, every(op.src[0].shape), ranges):
        first, last = max(start - before, 0), min(stop - before, length)
        if first >= last:
            return filled(0, op.dtype, _shape(ranges))
        inner.append((first, last))
        zeros.append((first + before - start, stop - before - last))
    return pad(blocks.of(op.src[0], tuple(inner)), tuple(zeros))


def _reshape(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    """Splits groups of axes with equally many elements on both sides, if the block is one range of their elements."""
    inner: list[Range] = []
    for old, new in _groups(every(op.src[0].shape), every(op.shape)):
        flat = _flat_range([ranges[axis] for axis in new], [op.shape[axis] for axis in new])
        cut = None if flat is None else _unflat([op.src[0].shape[axis] for axis in old], flat)
        if cut is None:
            return shrink(op, ranges)
        inner += cut
    return reshape(blocks.of(op.src[0], tuple(inner)), _shape(ranges))


def _groups(old: Ranges, new: Ranges) -> list[tuple[list[int], list[int]]]:
    """Returns the smallest groups of adjacent axes, by number, with equally many elements before and after."""
    found, i, j = [], 0, 0
    while i < len(old) or j < len(new):
        a: list[int] = []
        b: list[int] = []
        left = right = 1
        while not (a or b) or left != right:
            if (left <= right and i < len(old)) or j >= len(new):
                a.append(i)
                left, i = left * old[i][1], i + 1
            else:
                b.append(j)
                right, j = right * new[j][1], j + 1
        found.append((a, b))
    return found


def _flat_range(ranges: Sequence[Range], shape: Sequence[object]) -> Range | None:
    """Returns the range of flat elements of a block along some axes; None if it is not one range."""
    start, length, stride, is_whole = 0, 1, 1, True
    for (first, last), dim in zip(reversed(ranges), reversed(every(shape))):
        if not is_whole and last - first != 1:
            return None
        is_whole = is_whole and (first, last) == dim
        start, length, stride = start + first * stride, length * (last - first), stride * dim[1]
    return start, start + length


def _unflat(shape: Sequence[object], flat: Range) -> list[Range] | None:
    """Returns the block along some axes of a range of flat elements; None if it is not one block."""
    dims = [dim for _, dim in every(shape)]
    start, stop = flat
    found: list[Range] = []
    for axis in range(len(dims)):
        inner = math.prod(dims[axis + 1 :])
        if start // inner == (stop - 1) // inner:  # the range is inside one row of this axis
            found.append((start // inner, start // inner + 1))
            start, stop = start % inner, (stop - 1) % inner + 1
        elif start % inner == 0 and stop % inner == 0:
            return [*found, (start // inner, stop // inner), *((0, dim) for dim in dims[axis + 1 :])]
        else:
            return None
    return found


# ---- along axes ----
def _reduce(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    rest = iter(ranges)
    inner = [one if axis in op.arg[1] else next(rest) for axis, one in enumerate(every(op.src[0].shape))]
    return op.replace(src=(blocks.of(op.src[0], tuple(inner)),))


def _along(axis: int, blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    """Returns a block of a SCAN or a SORT, with the whole axis."""
    lines = [(*ranges[:axis], every(s.shape)[axis], *ranges[axis + 1 :]) for s in (op, *op.src)]
    part = op.replace(src=tuple(map(blocks.of, op.src, lines[1:])))
    if lines[0] == ranges:
        return part
    return shrink(part, tuple([(0, b - a) if i != axis else (a, b) for i, (a, b) in enumerate(ranges)]))


def _scan(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    return _along(op.arg[1], blocks, op, ranges)


def _sort(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    return _along(op.arg[0], blocks, op, ranges)


def _gather(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    (x, index), (axis, batch) = op.src, op.arg
    count = len(index.shape) - batch
    ours = (*ranges[:axis], every(x.shape)[axis], *ranges[axis + count :])
    theirs = (*ranges[:batch], *ranges[axis : axis + count])
    return op.replace(src=(blocks.of(x, ours), blocks.of(index, theirs)))


def _scatter(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    """Returns a block of a SCATTER, with all positions along the scattered axis."""
    (base, index, updates), (_, axis, batch) = op.src, op.arg
    whole, places = every(base.shape)[axis], every(index.shape)[batch:]
    left, right = ranges[:axis], ranges[axis + 1 :]
    src = (
        blocks.of(base, (*left, whole, *right)),
        blocks.of(index, (*ranges[:batch], *places)),
        blocks.of(updates, (*left, *places, *right)),
    )
    part = op.replace(src=src)
    if ranges[axis] == whole:
        return part
    return shrink(part, tuple([(0, b - a) if i != axis else (a, b) for i, (a, b) in enumerate(ranges)]))


def _matmul(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    (lhs, rhs), (*batch, rows, columns) = op.src, ranges
    inner = every(lhs.shape)[-1]
    return op.replace(src=(blocks.of(lhs, (*batch, rows, inner)), blocks.of(rhs, (*batch, inner, columns))))


def _conv(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    (x, w), (examples, channels, *places) = op.src, ranges
    of_w = channels if op.arg.groups == 1 else every(w.shape)[0]
    src = (blocks.of(x, (examples, *every(x.shape)[1:])), blocks.of(w, (of_w, *every(w.shape)[1:])))
    part = op.replace(src=src)
    left = (0, examples[1] - examples[0]), (0, channels[1] - channels[0]) if op.arg.groups == 1 else channels
    return part if (*left, *places) == every(part.shape) else shrink(part, (*left, *places))


def _iota(blocks: _Blocks, op: Op, ranges: Ranges) -> Op:
    ((start, stop),) = ranges
    return Op(OpCode.IOTA, op.dtype, (), stop - start) + start


RULES = {
    OpCode.IOTA: _iota,
    **dict.fromkeys(ELEMENTWISE | IDENTITY, _alike),
    OpCode.EXPAND: _expand,
    OpCode.PERMUTE: _permute,
    OpCode.FLIP: _flip,
    OpCode.SHRINK: _shrink,
    OpCode.PAD: _pad,
    OpCode.RESHAPE: _reshape,
    OpCode.REDUCE: _reduce,
    OpCode.SCAN: _scan,
    OpCode.SORT: _sort,
    OpCode.GATHER: _gather,
    OpCode.SCATTER: _scatter,
    OpCode.MATMUL: _matmul,
    OpCode.CONV: _conv,
}
