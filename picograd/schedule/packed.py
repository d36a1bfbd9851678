"""Adds up products with a matrix of small integers in the blocks that it was packed in, not element by element.

In:    a matrix (..., N, K), computed from integers of one byte, and a vector (..., 1, K)
Out:   `is_of_bytes`; `sum_of_products`: the sum over K of their products; `of_elements`
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
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, OpCode
from picograd.ir.symbolic import affine

FEW = 4  # elements of a byte
MOST_TERMS = 16  # that short axes are written out as


def is_of_bytes(operand: Op) -> bool:
    """True for what is computed from integers of one byte, element by element: a weight that is dequantised."""
    order = toposort([operand], sources=lambda op: op.src if _is_chosen(op) else of_elements(op))
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
    total, *others = [
        _at(matrix, front, place) * expand(_at(vector, front, place), (*whole[:-1], *(extents[axis] for axis in long)))
        for place in product(*(range(extents[axis]) for axis in short))
    ]
    for term in others:
        total = total + term
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
        if sizes[-1] < size < depth and size % sizes[-1] == 0 and depth % size == 0:
            sizes.append(size)
    extents = tuple([outer // inner for inner, outer in zip(sizes, [*sizes[1:], depth])])[::-1]
    written_out = prod(extent for extent in extents if extent <= FEW)
    return extents if max(extents) > FEW and written_out <= MOST_TERMS else ()


def _blocks(matrix: Op) -> Iterator[int]:
    """Yields the lengths of blocks of K that its elements are computed from, and others that come to nothing."""
    axis = len(matrix.shape) - 1
    k = placeholder(axis, matrix.shape[axis])
    coords: Coords = (*[0] * axis, k)
    seen, stack = {(matrix, coords)}, [(matrix, coords)]
    while stack:
        op, coords = stack.pop()
        sources: list[tuple[Op, Coords]] = []
        if op.code in ELEMENTWISE or op.code is OpCode.CONTIGUOUS or _is_chosen(op):
            sources = [(s, coords) for s in op.src if s.shape == op.shape]
        elif op.code in MOVEMENT:
            moved, _ = move(op, coords)
            sources = [(op.src[0], moved)]
            yield from _bounds_of_parts(op, coords, k) if op.code is OpCode.PAD else _divisors(moved, k)
        for source in sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)


def _divisors(coords: Coords, k: Op) -> Iterator[int]:
    """Yields b for each k // b, k % b, and (k // a) % (b / a) in coordinates."""
    for op in toposort([coord for coord in coords if isinstance(coord, Op)]):
        if op.code in (OpCode.IDIV, OpCode.MOD) and op.src[1].code is OpCode.CONST:
            yield _unit(op.src[0], k) * int(op.src[1].arg)


def _bounds_of_parts(pad: Op, coords: Coords, k: Op) -> Iterator[int]:
    """Yields where, of k, a PAD begins and ends what it has around zeros: parts that are joined meet there."""
    for coord, dim, (before, after) in zip(coords, pad.shape, pad.arg):
        if isinstance(coord, Op) and isinstance(dim, int) and isinstance(before, int) and isinstance(after, int):
            yield from (_unit(coord, k) * bound for bound in (before, dim - after))


def _unit(coord: Op, k: Op) -> int:
    """Returns by how much k grows while a coordinate made of it grows by one; 0 where it is not made of k alone."""
    terms, _ = affine(coord)
    ((atom, factor),) = terms.items() if len(terms) == 1 else ((coord, 0),)
    if factor != 1 or atom is k:
        return factor if factor == 1 else 0
    if atom.code in (OpCode.IDIV, OpCode.MOD) and atom.src[1].code is OpCode.CONST:
        return _unit(atom.src[0], k) * (int(atom.src[1].arg) if atom.code is OpCode.IDIV else 1)
    return 0


def of_elements(op: Op) -> tuple[Op, ...]:
    """Returns the sources of an operation that a packing computes element by element."""
    return op.src if op.code in ELEMENTWISE or op.code in MOVEMENT else ()


def _is_chosen(op: Op) -> bool:
    """True for elements of a list, each chosen by an integer: those of a code book."""
    return op.code is OpCode.GATHER and len(op.src[0].shape) == 1
