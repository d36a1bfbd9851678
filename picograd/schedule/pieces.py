"""Takes a reduction of many terms in two steps: pieces, then the results of these.

In:    a REDUCE of a simplified graph
Out:   `is_long`; `in_pieces`: two REDUCEs
Called by: schedule/contract.py.    Next: picograd/schedule/fuse.py

A row is one thread's, so a sum of all would be one thread's too, and each of its 64 partial sums of 16 million numbers
would add 262,144 of them one after the other: a float32 loses four of its seven digits that way.

    sum of (4096, 4096)  ->  (512, 8, 4096), its axes 1 and 2 added up  ->  (512,), added up
"""

from __future__ import annotations

from math import isqrt, prod

from picograd.ir.build import cast, reduce, reshape
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import floordiv

FEW_RESULTS = 8
MANY_TERMS = 1 << 17
PIECE_TERMS = 1 << 15
FEWEST_PIECES = 4
TRIED_MAX = 1 << 20  # enough for all lengths up to 2 ** 40


def is_long(op: Op) -> bool:
    """True for a REDUCE of many terms, whose number is known.

    Where axis 0 is kept, it may be a batch: how a row is added up must not depend on how many there are. Where it is
    reduced, only few results are cut: of many, as of the columns of a matrix, each thread has its own.
    """
    if op.code is not OpCode.REDUCE:
        return False
    x, results = op.src[0], numel(op.shape)
    terms = numel(x.shape[axis] for axis in op.arg[1])
    if not isinstance(terms, int) or terms < MANY_TERMS or results == 0:
        return False
    if 0 in op.arg[1] and not (isinstance(results, int) and results <= FEW_RESULTS):
        return False
    return prod(_pieces(op)) >= FEWEST_PIECES


def in_pieces(op: Op, x: Op) -> Op:
    """Returns what a long REDUCE gives of `x`: a piece is a part of the outermost axes, so that it is walked in order."""
    code, axes = op.arg
    pieces = dict(zip(sorted(axes), _pieces(op)))
    split: list[Dim] = []  # the shape of x with each axis that is cut as two
    inner: list[int] = []  # its axes that are reduced first
    outer: list[int] = []  # and those of what is left of it then
    for axis, dim in enumerate(x.shape):
        piece = pieces.get(axis, 1)
        if piece > 1:
            outer.append(len(split) - len(inner))
            split.append(piece)
            dim = floordiv(dim, piece)
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
        largest = _largest_divisor(dim, min(dim, wanted))
        found.append(largest)
        wanted //= largest
        if largest < dim:
            wanted = 1  # what lies inside of a part is not cut
    return tuple(found)


def _largest_divisor(dim: int, most: int) -> int:
    """Returns the largest divisor of `dim` up to `most`, or 1 where that is not found among TRIED_MAX numbers.

    Divisors come in pairs: those above the root are found by their partners below it.
    """
    if most < 1:
        return 1
    root, least_partner = isqrt(dim), -(-dim // most)
    for partner in range(least_partner, min(root, least_partner + TRIED_MAX) + 1):
        if dim % partner == 0:
            return dim // partner
    start = min(most, root)
    return next((n for n in range(start, max(start - TRIED_MAX, 1), -1) if dim % n == 0), 1)
