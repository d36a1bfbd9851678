"""Rung 4, a register tile: rows x vectors of sums stay in registers over all of K, and an FMA does two operations.

In:    `Product`
Out:   a Program of one phase; `Tile`, `multiply_tile` and `each`, which the next rungs use, too
Next:  picograd/tools/ladder/packed.py

With 12 x 2 vectors, 2 loads of b and 12 of single elements of a feed 24 FMAs, and nothing is stored inside the loop.
The 24 sums do not wait for each other either: an FMA takes 4 cycles, up to two begin in each, so 8 must be under way.
What is left: b is read down a stripe of columns, from another row of it, and soon another page of memory, for each k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.codegen.matmul import multiply_add
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.stages import Program
from picograd.ir.symbolic import add, mul
from picograd.tools.ladder.product import Product, at, cuts


@dataclass(frozen=True)
class Tile:
    """A piece of c: `rows` of `vectors` vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns."""
        return self.vectors * self.lanes


def registers(product: Product) -> Program:
    """Returns loops over tiles of c; what no whole tile fits on is done by lower tiles and shorter vectors."""
    build = Builder()
    halves = [product.lanes >> i for i in range(product.lanes.bit_length())]
    for column, num_columns, width in cuts(product.n, [product.width, *halves]):
        tile_vectors, lanes = (product.vectors, product.lanes) if width == product.width else (1, width)
        with build.loop(num_columns, AxisKind.LOOP) as column_index:
            j = add(column, mul(column_index, width))
            for row, num_rows, rows in cuts(product.m, [product.rows, product.m % product.rows or 1]):
                with build.loop(num_rows, AxisKind.LOOP) as row_index:
                    i = add(row, mul(row_index, rows))
                    _tile_of_c(build, product, Tile(rows, tile_vectors, lanes), i, j)
    return product.program("registers", build.finish())


def _tile_of_c(build: Builder, product: Product, tile: Tile, i: Dim, j: Dim) -> None:
    """Computes and stores the tile of c whose corner is c[i, j]."""
    sums = multiply_tile(
        build, product, tile, lambda row, k: product.a(add(i, row), k), lambda k, column: product.b(k, add(j, column))
    )

    def store(row: Op, column: Dim, place: Dim) -> None:
        build.store(product.c, product.place(add(i, row), add(j, column)), build.load(sums, place))

    each(build, tile, store)


def multiply_tile(
    build: Builder, product: Product, tile: Tile, a: Callable[[Op, Op], Op], b: Callable[[Op, Dim], Op]
) -> Op:
    """Writes the micro-kernel: a tile of sums over all of K, and returns the registers that hold them.

    Args:
      a:  (row of the tile, k) -> the element of a
      b:  (k, column of the tile) -> the element of b
    """
    sums = build.alloc(dtypes.float32, tile.rows * tile.width, MemorySpace.REGISTER)
    each(build, tile, lambda row, column, place: build.store(sums, place, const(0.0, dtypes.float32)))
    with build.loop(product.k, AxisKind.LOOP) as k:

        def step(row: Op, column: Dim, place: Dim) -> None:
            total = multiply_add(a(row, k), b(k, column), build.load(sums, place), product.has_fma)
            build.store(sums, place, total)

        each(build, tile, step)
    return sums


def each(build: Builder, tile: Tile, body: Callable[[Op, Dim, Dim], None]) -> None:
    """Runs body(row, column, place in the tile) for its elements, a vector at a time."""
    with (
        build.loop(tile.rows, AxisKind.UNROLL) as row,
        build.loop(tile.vectors, AxisKind.UNROLL) as vector,
        build.loop(tile.lanes, AxisKind.VECTOR) as lane,
    ):
        column = add(mul(vector, tile.lanes), lane)
        body(row, column, at(row, tile.width, column))
