"""Takes a reduction with few results and many terms in two steps: pieces, then the results of these.

In:    a REDUCE of a simplified graph
Out:   `is_long`; `in_pieces`: two REDUCEs
Called by: schedule/contract.py.    Next: picograd/schedule/fuse.py

A row is one thread's, so a sum of all would be one thread's too, and each of its 64 partial sums of 16 million numbers
would add 262,144 of them one after the other: a float32 loses four of its seven digits that way.

    sum of (4096, 4096)  ->  (512, 8, 4096), its axes 1 and 2 added up  ->  (512,), added up
"""

from __future__ import annotations

from math import prod

from picograd.ir.build import cast, reduce, reshape
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel

FEW_RESULTS = 8
MANY_TERMS = 1 << 17
PIECE_TERMS = 1 << 15
FEWEST_PIECES = 4


def is_long(op: Op) -> bool:
    """True for a REDUCE with few results, of many terms each, whose numbers are known."""
    if op.code is not OpCode.REDUCE:
        return False
    results, terms = numel(op.shape), numel(op.src[0].shape)
    if not isinstance(results, int) or not isinstance(terms, int) or not 0 < results <= FEW_RESULTS:
        return False
    return terms // results >= MANY_TERMS and prod(_pieces(op)) >= FEWEST_PIECES


def in_pieces(op: Op, x: Op) -> Op:
    """Returns what a long REDUCE gives of `x`: a piece is a part of the outermost axes, so that it is walked in order."""
    code, axes = op.arg
    pieces = dict(zip(sorted(axes), _pieces(op)))
    split: list[int] = []  # the shape of x with each axis that is cut as two
    inner: list[int] = []  # its axes that are reduced first
    outer: list[int] = []  # and those of what is left of it then
    for axis, dim in enumerate(x.shape):
        assert isinstance(dim, int), "is_long"
        piece = pieces.get(axis)
        if piece is not None and piece > 1:
            outer.append(len(split) - len(inner))
            split.append(piece)
            dim //= piece
        if axis in axes:
            inner.append(len(split))
        split.append(dim)
    wide = cast(x, x.dtype.compute_dtype)
    return cast(reduce(reduce(reshape(wide, tuple(split)), code, tuple(inner)), code, tuple(outer)), op.dtype)


def _pieces(op: Op) -> tuple[int, ...]:
    """Returns into how many parts each reduced axis is cut, the outermost first; 1 where it is not."""
    x = op.src[0]
    dims = [dim for axis, dim in enumerate(x.shape) if axis in op.arg[1] and isinstance(dim, int)]
    wanted = prod(dims) // PIECE_TERMS
    found = []
    for dim in dims:
        largest = max(n for n in range(1, min(dim, wanted) + 1) if dim % n == 0)
        found.append(largest)
        wanted //= largest
        if largest < dim:
            wanted = 1  # what lies inside of a part is not cut
    return tuple(found)
