"""Gives a matrix product the form that suits its shape and its reader.

In:    a simplified graph
Out:   the same, where products with a vector are sums along rows, and transposed products are products
Called by: schedule/create.py.    Next: picograd/schedule/fuse.py

    (..., M, K) @ (..., K, 1)  ->  sum over K of a[m, k] * b[k]       read as it lies, and fused like any other sum
    (a @ b).T                  ->  b.T @ a.T                          the same sums, stored as they are asked for
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.ir.build import cast, expand, reduce, reshape, swap_last
from picograd.ir.lines import copy_lines
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode


def contract(roots: Sequence[Op]) -> list[Op]:
    """Returns the graphs with every product in its best form."""
    order = toposort(roots)
    readers: dict[Op, int] = dict.fromkeys(roots, 1)
    for op in order:
        for s in op.src:
            readers[s] = readers.get(s, 0) + 1
    became: dict[Op, Op] = {}
    for op in order:
        if is_transposed_product(op) and readers[op.src[0]] == 1:
            a, b = (became[s] for s in op.src[0].src)
            became[op] = product(swap_last(b), swap_last(a))
        elif op.code is OpCode.MATMUL:
            became[op] = product(*(became[s] for s in op.src))
        else:
            src = tuple(map(became.__getitem__, op.src))
            became[op] = op if src == op.src else op.replace(src=src)
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


def is_transposed_product(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes of a MATMUL."""
    if op.code is not OpCode.PERMUTE or op.src[0].code is not OpCode.MATMUL:
        return False
    ndim = len(op.arg)
    return bool(op.arg == (*range(ndim - 2), ndim - 1, ndim - 2))


def product(a: Op, b: Op) -> Op:
    """Returns a @ b; with one row or one column multiplied and added up, narrow floats in float32 as MATMUL does."""
    *batch, m, k = a.shape
    n = b.shape[-1]
    if m != 1 and n != 1:
        return Op(OpCode.MATMUL, a.dtype, (a, b))
    wide = a.dtype.wide
    length = m if n == 1 else n
    whole = (*batch, length, k)
    lhs, rhs = expand(cast(a, wide), whole), expand(cast(swap_last(b), wide), whole)  # (..., M or N, K)
    total = cast(reduce(lhs * rhs, OpCode.ADD, (len(batch) + 1,)), a.dtype)
    return reshape(total, (*batch, m, n))
