"""What an Mma and a LoadMatrices mean: matrices of which each thread of a warp holds a part.

In:    the parts of lhs and rhs of all threads; the rows they read
Out:   `product_part`: what is added to the part of acc of one of them;  `matrices_part`: its part of four matrices;
       `as_tf32`: what of a float32 is multiplied
Called by: evaluator/program.py.    Next: picograd/evaluator/expressions.py
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from picograd.evaluator.elementwise import Array
from picograd.ir.statements import WARP_THREADS

LANES = np.arange(WARP_THREADS)[:, None]
GROUPS, PLACES = LANES // 4, LANES % 4


LHS, RHS, ACC = np.arange(8)[None], np.arange(4)[None], np.arange(4)[None]  # numbers of a thread's elements
# (row, column) of each element that each thread holds: PTX ISA, fragments of mma.m16n8k16
LHS_AT = GROUPS + 8 * (LHS // 2 % 2), 2 * PLACES + LHS % 2 + 8 * (LHS // 4)
RHS_AT = 2 * PLACES + RHS % 2 + 8 * (RHS // 2), GROUPS + 0 * RHS
ACC_AT = GROUPS + 8 * (ACC // 2), 2 * PLACES + ACC % 2


def product_part(lane: int, given: Sequence[tuple[Array, Array]]) -> Array:
    """Returns four elements of lhs @ rhs in float64: those of a thread, from the parts that all threads give.

    >>> ones = [(np.ones(8), np.ones(4))] * WARP_THREADS
    >>> product_part(5, ones)
    array([16., 16., 16., 16.])
    """
    lhs, rhs = np.zeros((16, 16)), np.zeros((16, 8))
    lhs[LHS_AT] = [left for left, _ in given]
    rhs[RHS_AT] = [right for _, right in given]
    rows, columns = ACC_AT[0][lane], ACC_AT[1][lane]
    part: Array = (lhs[rows] * rhs[:, columns].T).sum(1)
    return part


def as_tf32(values: Array) -> Array:
    """Returns float32 rounded to 11 bits of significand, ties away from zero.

    >>> as_tf32(np.array([1 + 2**-11, 1 + 2**-12, -np.inf], np.float32)).tolist()
    [1.0009765625, 1.0, -inf]
    """
    bits = values.view(np.uint32)
    rounded = ((bits + np.uint32(1 << 12)) & ~np.uint32((1 << 13) - 1)).view(np.float32)
    kept: Array = np.where(np.isfinite(values), rounded, values)
    return kept


def matrices_part(lane: int, rows: Sequence[Array], turned: bool) -> Array:
    """Returns two elements of each of four matrices of 8 x 8: those of a thread, from the rows that all threads read.

    >>> rows = [np.arange(8) + 10 * row for row in range(WARP_THREADS)]
    >>> matrices_part(5, rows, turned=False)
    array([ 12,  13,  92,  93, 172, 173, 252, 253])
    """
    matrices = np.stack(rows).reshape(4, 8, 8)
    own = matrices.transpose(0, 2, 1) if turned else matrices
    part: Array = own[:, lane // 4, 2 * (lane % 4) : 2 * (lane % 4) + 2].reshape(8)
    return part
