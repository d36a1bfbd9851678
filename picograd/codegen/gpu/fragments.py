"""Brings the fragments of matrix instructions from shared memory to registers, four matrices of 8 x 8 at a time.

In:    where an element lies in shared memory
Out:   loads in the free form: `load_left`, of 16 x 16; `load_right`, of 16 x 16 too: two fragments of 16 x 8
Called by: codegen/gpu/tensor_product.py, codegen/gpu/block_rows.py, codegen/gpu/warp_rows.py.
Next: picograd/codegen/gpu/tensor_product.py

Elements of 16 bits a warp brings by one instruction: a thread says where one row of one of the four matrices begins. A row
runs along K, or along positions; then the matrices are turned on the way. Of float32 each thread reads what it needs.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.codegen.builder import Builder, read
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind
from picograd.ir.statements import MATRIX_ROW, WARP_THREADS
from picograd.ir.symbolic import add, floordiv, mod, mul
from picograd.record import Record


class Matrix(Record):
    """A matrix in shared memory, of positions and K.

    index:    (k, position) -> where the element lies
    along_k:  neighbours along K lie side by side, else positions do
    """

    memory: Op
    index: Callable[[Dim, Dim], Dim]
    along_k: bool


def load_left(build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim) -> None:
    """Brings a thread's 8 elements of positions x K, 16 x 16, that begin at (position, k).

    The matrices are, in this order, the upper and the lower half of the first 8 of K, and those of the others.
    """
    _load(build, into, place, matrix, thread, position, k, 1)


def load_right(build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim) -> None:
    """Brings a thread's 4 elements of K x positions, 16 x 8, twice: of the 8 positions from `position` on, then the next 8.

    The matrices are, in this order, the halves of K of the first 8 positions, and those of the others.
    """
    _load(build, into, place, matrix, thread, position, k, 2)


def _load(
    build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim, position_bit: int
) -> None:
    """Brings four matrices; of the bits of their number, 1 and 2, one tells halves of positions, the other halves of K."""
    lane = mod(thread, WARP_THREADS)
    if matrix.memory.dtype.itemsize == 4:
        _load_elements(build, into, place, matrix, lane, position, k, position_bit)
        return
    number, row = floordiv(lane, MATRIX_ROW), mod(lane, MATRIX_ROW)
    of_position, of_k = (mul(mod(floordiv(number, bit), 2), MATRIX_ROW) for bit in (position_bit, 3 - position_bit))
    if matrix.along_k:
        of_position = add(of_position, row)
    else:
        of_k = add(of_k, row)
    index = matrix.index(add(k, of_k), add(position, of_position))
    build.load_matrices(into, place, matrix.memory, index, turned=not matrix.along_k)


def _load_elements(
    build: Builder, into: Op, place: Dim, matrix: Matrix, lane: Dim, position: Dim, k: Dim, position_bit: int
) -> None:
    """Brings a thread's two neighbours along K of each of the four matrices."""
    g, t = floordiv(lane, 4), mod(lane, 4)
    for number in range(4):
        of_position, of_k = (MATRIX_ROW * (number // bit % 2) for bit in (position_bit, 3 - position_bit))
        row, first = add(position, add(g, of_position)), add(k, add(mul(t, 2), of_k))
        with build.loop(2, AxisKind.VECTOR if matrix.along_k else AxisKind.UNROLL) as i:
            value = read(matrix.memory, matrix.index(add(first, i), row))
            build.store(into, add(add(place, 2 * number), i), value)
