"""Gives a matrix product the form that suits its shape and what its operands are computed from.

In:    operands (..., M, K) and (..., K, N)
Out:   `product`: a MATMUL; with one column, sums along rows; with a matrix of small integers, sums of the blocks of these
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from math import prod

from picograd import dtype as dtypes
from picograd.ir.build import cast, expand, permute, reduce, reshape, shrink, swap_last
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, OpCode
from picograd.ir.shape import MatmulArg, numel
from picograd.ir.symbolic import Coords, affine, move, placeholder


def product(a: Op, b: Op, arg: MatmulArg | None = None, plain_sums: bool = False) -> Op:
    """Returns a @ b; with one column multiplied and added up, narrow floats in float32 as MATMUL does.

    So are batches of products with one row, and, unless sums are plain, one with a matrix of integers of one byte: to add
    up along its rows is twice as fast as to transpose it. Any other has a kernel of its own, which adds in the order of
    products of many rows.
    """
    *batch, m, k = a.shape
    n = b.shape[-1]
    is_row = m == 1 and not batch
    if is_row and n != 1 and not is_of_bytes(b):
        return Op(OpCode.MATMUL, a.dtype, (a, b), arg)
    if (m != 1 or is_row and plain_sums) and n != 1 and is_of_bytes(b):
        wide = a.dtype.compute_dtype
        return cast(product_of_parts(cast(a, wide), cast(swap_last(b), wide)), a.dtype)
    if m != 1 and n != 1:
        return Op(OpCode.MATMUL, a.dtype, (a, b), arg)
    wide = a.dtype.compute_dtype
    matrix, vector = (a, swap_last(b)) if n == 1 else (swap_last(b), a)  # (..., M or N, K), (..., 1, K)
    total = cast(sum_of_products(cast(matrix, wide), cast(vector, wide)), a.dtype)
    return reshape(total, (*batch, m, n))


def sum_of(terms: Iterable[Op]) -> Op:
    """Returns Ops of one shape added up, from the first to the last."""
    first, *others = terms
    return sum(others, first)


# ---- matrices of small integers ----
# Adds up products with a matrix of small integers in the blocks that it was packed in, not element by element.
#
# A weight of four bits has two elements in a byte, neighbours or half a row apart, and a scale for each group of, say,
# 128. Its element at k reads bytes at k // 2, scales at k // 128 and chooses by k % 2: no vector along K reads that in
# the order of memory. So K is taken apart where the matrix takes it apart, and the short axes, which choose, are
# written out.
#
#     sum over k < 4096 of w[k] * x[k]  ->  sum over g < 32, i < 64 of w[g, i, 0] * x[g, i, 0] + w[g, i, 1] * x[g, i, 1]
BYTE_ELEMENTS_MAX = 4  # elements
TERMS_MAX = 16  # that short axes are written out as


def is_of_bytes(operand: Op) -> bool:
    """True for a value computed from integers of one byte, element by element: a weight that is dequantised."""
    order = toposort([operand], sources=lambda op: op.src if _is_chosen(op) else of_elements(op))
    return any(op.dtype.itemsize == 1 and not op.dtype.is_float and op.dtype is not dtypes.bool_ for op in order)


def sum_of_products(matrix: Op, vector: Op) -> Op:
    """Returns the sum over the last axis of matrix (..., N, K) times vector (..., 1, K): (..., N)."""
    parts = _parts(matrix, vector, of_groups=True)
    total = sum_of(part * expand(of_vector, part.shape) for part, of_vector in parts)
    front = len(matrix.shape) - 1
    return reduce(total, OpCode.ADD, tuple(range(front, len(total.shape))))


def product_of_parts(rows: Op, matrix: Op) -> Op:
    """Returns rows (..., M, K) times the transposed matrix (..., N, K): one product for each element of a byte."""
    parts = _parts(matrix, rows, of_groups=False)
    return sum_of(_product(_in_one(of_rows, rows), _in_one(part, matrix)) for part, of_rows in parts)


def _product(rows: Op, matrix: Op) -> Op:
    return Op(OpCode.MATMUL, rows.dtype, (rows, swap_last(matrix)))


def _in_one(part: Op, whole: Op) -> Op:
    """Returns a part with its axes of K as one."""
    front = len(whole.shape) - 1
    return reshape(part, (*part.shape[:front], numel(part.shape[front:])))


def _parts(matrix: Op, rows: Op, of_groups: bool) -> list[tuple[Op, Op]]:
    """Returns parts of matrix (..., N, K) and rows (..., M, K) whose products are summands of theirs: (..., N or M, *K).

    One for each place along the short axes of K; all of it where it is not taken apart.

    Args:
      of_groups: K is taken apart into groups too, which share a scale
    """
    extents = _extents(matrix, of_groups) if is_of_bytes(matrix) else ()
    if len(extents) < 2:
        return [(matrix, rows)]
    front = len(matrix.shape) - 1
    short = [axis for axis, extent in enumerate(extents) if extent <= BYTE_ELEMENTS_MAX]
    long = [axis for axis, extent in enumerate(extents) if extent > BYTE_ELEMENTS_MAX]
    order = (*range(front), *(front + axis for axis in (*short, *long)))
    matrix, rows = (permute(reshape(op, (*op.shape[:-1], *extents)), order) for op in (matrix, rows))
    if short and short[-1] > long[0]:
        rows = Op(OpCode.CONTIGUOUS, rows.dtype, (rows,))  # its elements are as far apart as those of the matrix
    places = itertools.product(*(range(extents[axis]) for axis in short))
    return [(_at(matrix, front, place), _at(rows, front, place)) for place in places]


def _at(op: Op, front: int, place: tuple[int, ...]) -> Op:
    """Returns the elements at one place of the axes after the first `front`."""
    rest = op.shape[front + len(place) :]
    chosen = tuple([(i, i + 1) for i in place])
    bounds = (*((0, dim) for dim in op.shape[:front]), *chosen, *((0, dim) for dim in rest))
    return reshape(shrink(op, bounds), (*op.shape[:front], *rest))


def _extents(matrix: Op, of_groups: bool) -> tuple[int, ...]:
    """Returns the lengths of the axes that K consists of, the outermost first, one of them long; () where K stays whole."""
    depth = matrix.shape[-1]
    if not isinstance(depth, int):
        return ()
    lengths = [1]
    for length in sorted(length for length, is_group in set(_blocks(matrix)) if of_groups or not is_group):
        if lengths[-1] < length < depth and length % lengths[-1] == 0 and depth % length == 0:
            lengths.append(length)
    extents = tuple([outer // inner for inner, outer in zip(lengths, [*lengths[1:], depth])])[::-1]
    written_out = prod(extent for extent in extents if extent <= BYTE_ELEMENTS_MAX)
    return extents if max(extents) > BYTE_ELEMENTS_MAX and written_out <= TERMS_MAX else ()


def _blocks(matrix: Op) -> Iterator[tuple[int, bool]]:
    """Yields lengths of blocks of K that its elements are computed from; `_extents` leaves out those that do not divide K.

    And whether they are groups: places differ from one to the next, but nothing is chosen.
    """
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
            if op.code is OpCode.PAD:
                yield from ((length, False) for length in _bounds_of_parts(op, coords, k))
            else:
                yield from ((length, length > BYTE_ELEMENTS_MAX) for length in _divisors(moved, k))
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
    """Yields where, of k, a PAD begins and ends what it has around zeros, and ends: parts that are joined meet there."""
    for coord, dim, (before, after) in zip(coords, pad.shape, pad.arg):
        if isinstance(coord, Op) and isinstance(dim, int) and isinstance(before, int) and isinstance(after, int):
            yield from (_unit(coord, k) * bound for bound in (before, dim - after, dim))


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
