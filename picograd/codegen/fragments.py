"""Brings the fragments of matrix instructions from shared memory to registers, four matrices of 8 x 8 at a time.

In:    where an element lies in shared memory
Out:   LoadMatrices in the free form: `load_left`, of 16 x 16; `load_right`, of 16 x 16 too: two fragments of 16 x 8
Called by: codegen/tensor_product.py, codegen/block_rows.py, codegen/warp_rows.py.
Next: picograd/codegen/tensor_product.py

A thread says where one row of one of the four matrices begins. A row runs along K, or along positions; then the matrices
are turned on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from picograd.codegen.builder import Builder
from picograd.ir.op import Dim, Op
from picograd.ir.statements import MATRIX_ROW, WARP_THREADS
from picograd.ir.symbolic import add, floordiv, mod, mul


@dataclass(frozen=True)
class Matrix:
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
    build: Builder, into: Op, place: Dim, matrix: Matrix, thread: Dim, position: Dim, k: Dim, for_position: int
) -> None:
    """Brings four matrices; for_position: the bit of a matrix's number that says which half of the positions it has."""
    lane = mod(thread, WARP_THREADS)
    number, row = floordiv(lane, MATRIX_ROW), mod(lane, MATRIX_ROW)
    of_position, of_k = (mul(mod(floordiv(number, bit), 2), MATRIX_ROW) for bit in (for_position, 3 - for_position))
    if matrix.along_k:
        of_position = add(of_position, row)
    else:
        of_k = add(of_k, row)
    index = matrix.index(add(k, of_k), add(position, of_position))
    build.load_matrices(into, place, matrix.memory, index, turned=not matrix.along_k)
