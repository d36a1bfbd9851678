"""Gives a matrix product the form that suits its shape: with one row or column there is nothing to tile.

In:    a simplified graph
Out:   the same, where products with a vector are sums along rows
Called by: schedule/create.py.    Next: picograd/schedule/fuse.py

    (..., M, K) @ (..., K, 1)  ->  sum over K of a[m, k] * b[k]         read as it lies, and fused like any other sum
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.ir.build import cast, expand, reduce, reshape, swap_last
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.pattern import Pattern, PatternMatcher, graph_rewrite


def contract(roots: Sequence[Op]) -> list[Op]:
    """Returns the graphs with products of a vector written as sums."""
    became = graph_rewrite(roots, contractions)
    return [became[root] for root in roots]


def product_of_vector(out: Op) -> Op | None:
    """A product with one row or one column: multiply, then add up; narrow floats in float32, as MATMUL does."""
    a, b = out.src
    *batch, m, k = a.shape
    n = b.shape[-1]
    if m != 1 and n != 1:
        return None
    wide = dtypes.float32 if out.dtype.is_float and out.dtype.itemsize < 4 else out.dtype
    turned = swap_last(b)  # (..., N, K)
    length = m if n == 1 else n
    whole = (*batch, length, k)
    lhs, rhs = expand(cast(a, wide), whole), expand(cast(turned, wide), whole)
    return reshape(cast(reduce(lhs * rhs, OpCode.ADD, (len(batch) + 1,)), out.dtype), out.shape)


contractions = PatternMatcher([("product_of_vector", Pattern(OpCode.MATMUL, name="out"), product_of_vector)])
