"""Adds up products with a matrix of small integers in the blocks that it was packed in, not element by element.

In:    a matrix (..., N, K), computed from integers of one byte, and a vector (..., 1, K)
Out:   `is_of_bytes`; `sum_of_products`: the sum over K of their products
Called by: schedule/contract.py.    Next: picograd/schedule/phases.py

A weight of four bits has two elements in a byte, side by side or half a row apart, and a scale for each group of, say,
128. Its element at k reads bytes at k // 2, scales at k // 128 and chooses by k % 2: no vector along K reads that as it
lies. So K is taken apart where the matrix takes it apart, and the short axes, which choose, are written out.

    sum over k < 4096 of w[k] * x[k]  ->  sum over g < 32, i < 64 of w[g, i, 0] * x[g, i, 0] + w[g, i, 1] * x[g, i, 1]
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

from picograd import dtype as dtypes
from picograd.ir.build import expand, permute, reduce, reshape, shrink
from picograd.ir.coordinates import Coords, move, placeholder
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, OpCode

FEW = 4  # elements of a byte


def is_of_bytes(operand: Op) -> bool:
    """True for what is computed from integers of one byte, element by element: a weight that is dequantised."""
    order = toposort([operand], sources=_of_elements)
    return any(op.dtype.itemsize == 1 and not op.dtype.is_float and op.dtype is not dtypes.bool_ for op in order)


def sum_of_products(matrix: Op, vector: Op) -> Op:
    """Returns the sum over the last axis of matrix (..., N, K) times vector (..., 1, K): (..., N)."""
    whole, extents = matrix.shape, _extents(matrix) if is_of_bytes(matrix) else ()
    if len(extents) < 2:
        return reduce(matrix * expand(vector, whole), OpCode.ADD, (len(whole) - 1,))
    front = len(whole) - 1
    short = [axis for axis, extent in enumerate(extents) if extent <= FEW]
    long = [axis for axis, extent in enumerate(extents) if extent > FEW]
    order = (*range(front), *(front + axis for axis in (*short, *long)))
    matrix, vector = (permute(reshape(op, (*op.shape[:-1], *extents)), order) for op in (matrix, vector))
    if short and short[-1] > long[0]:
        vector = Op(OpCode.CONTIGUOUS, vector.dtype, (vector,))  # its elements lie as far apart as those of the matrix
    total: Op | None = None
    for place in product(*(range(extents[axis]) for axis in short)):
        a, b = (_at(op, front, place) for op in (matrix, vector))
        term = a * expand(b, a.shape)
        total = term if total is None else total + term
    assert total is not None
    return reduce(total, OpCode.ADD, tuple(range(front, front + len(long))))


def _at(op: Op, front: int, place: tuple[int, ...]) -> Op:
    """Returns the elements at one place of the axes that stand behind the first `front`."""
    rest = op.shape[front + len(place) :]
    chosen = tuple([(i, i + 1) for i in place])
    bounds = (*((0, dim) for dim in op.shape[:front]), *chosen, *((0, dim) for dim in rest))
    return reshape(shrink(op, bounds), (*op.shape[:front], *rest))


def _extents(matrix: Op) -> tuple[int, ...]:
    """Returns the lengths of the axes that K consists of, the outermost first: at least one is long; () where K is one."""
    depth = matrix.shape[-1]
    if not isinstance(depth, int):
        return ()
    sizes = [1]
    for size in sorted(set(_blocks(matrix))):
        if size % sizes[-1] == 0 and depth % size == 0 and sizes[-1] < size < depth:
            sizes.append(size)
    extents = tuple([outer // inner for inner, outer in zip(sizes, [*sizes[1:], depth])])[::-1]
    return extents if prod(extents) > FEW ** len(extents) or max(extents) > FEW else ()


def _blocks(matrix: Op) -> Iterator[int]:
    """Yields the lengths of blocks of K that its elements are computed from: of quotients, remainders and bounds of k."""
    axis = len(matrix.shape) - 1
    k = placeholder(axis, matrix.shape[axis])
    coords: Coords = (*[0] * axis, k)
    seen, stack = {(matrix, coords)}, [(matrix, coords)]
    while stack:
        op, coords = stack.pop()
        sources: list[tuple[Op, Coords]] = []
        if op.code in ELEMENTWISE or op.code is OpCode.CONTIGUOUS:
            sources = [(s, coords) for s in op.src]
        elif op.code in MOVEMENT:
            moved, inside = move(op, coords)
            sources = [(op.src[0], moved)]
            for dim in (*moved, inside):
                yield from _sizes(dim, k)
        for source in sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)


def _sizes(expression: Dim | bool, k: Op) -> Iterator[int]:
    """Yields b for each k // b, k < b, and (k // a) % (b / a) in an expression."""
    if not isinstance(expression, Op):
        return
    for op in toposort([expression]):
        if op.code in (OpCode.IDIV, OpCode.MOD, OpCode.CMPLT) and op.src[1].code is OpCode.CONST:
            inner, size = op.src[0], int(op.src[1].arg)
            if inner.code is OpCode.IDIV and inner.src[1].code is OpCode.CONST:
                inner, size = inner.src[0], size * int(inner.src[1].arg)
            if inner is k and size > 1:
                yield size


def _of_elements(op: Op) -> tuple[Op, ...]:
    """Returns the sources of an operation that a packing computes element by element."""
    return op.src if op.code in ELEMENTWISE or op.code in MOVEMENT else ()
