"""Rung 5, packed: both operands are copied into panels in which what the micro-kernel reads next lies next.

In:    `Product`
Out:   a Program of two phases: pack, multiply; their parts, which rung 6 shares among threads
Next:  picograd/tools/ladder/threads.py

A panel of b is K rows of a tile's columns, one after the other. A panel of a is the rows of a tile, each a cache line
longer than K: at distances of a power of two they would all want the same places of the cache. To copy costs m*k + k*n, to
multiply m*k*n. It buys reads that run straight through memory, whatever the lengths, and edges for nothing: panels are
filled up with zeros, and of the tiles at the edges only what is in c is stored.
Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication".
"""

from __future__ import annotations

from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, read
from picograd.codegen.loops import along
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.stages import Program
from picograd.ir.symbolic import add, less, minimum, mul, subtract
from picograd.tools.ladder.product import NUM_OPERANDS, Product, at
from picograd.tools.ladder.registers import Tile, each, multiply_tile

LINE = 16  # float32 of a cache line


@dataclass(frozen=True)
class Panels:
    """The packed operands of a product.

    a:  (row panels, rows of a tile, K + LINE)
    b:  (column panels, K, columns of a tile)
    """

    product: Product

    @property
    def num_rows(self) -> int:
        """Panels of a."""
        return -(-self.product.m // self.product.rows)

    @property
    def num_columns(self) -> int:
        """Panels of b."""
        return -(-self.product.n // self.product.width)

    @property
    def a(self) -> Op:
        """The memory of a's panels."""
        return self.product.memory(NUM_OPERANDS, self.num_rows * self.product.rows * (self.product.k + LINE))

    @property
    def b(self) -> Op:
        """The memory of b's panels."""
        return self.product.memory(NUM_OPERANDS + 1, self.num_columns * self.product.k * self.product.width)

    def place_a(self, panel: Dim, row: Dim, k: Dim) -> Dim:
        """Returns where an element of a panel of a lies."""
        return at(at(panel, self.product.rows, row), self.product.k + LINE, k)

    def place_b(self, panel: Dim, k: Dim, column: Dim) -> Dim:
        """Returns where an element of a panel of b lies."""
        return at(at(panel, self.product.k, k), self.product.width, column)


def packed(product: Product) -> Program:
    """Returns a phase that packs and one that multiplies, on one thread."""
    panels, pack, build = Panels(product), Builder(), Builder()
    emit_packing(pack, panels, AxisKind.LOOP)
    with build.loop(panels.num_columns, AxisKind.LOOP) as column, build.loop(panels.num_rows, AxisKind.LOOP) as row:
        emit_tile(build, panels, row, column)
    return product.program("packed", pack.finish(), build.finish(), scratch=(panels.a, panels.b))


def emit_packing(build: Builder, panels: Panels, kind: AxisKind) -> None:
    """Writes two loops over panels: those of a, those of b."""
    product = panels.product
    with build.loop(panels.num_rows, kind) as panel, build.loop(product.rows, AxisKind.LOOP) as row:
        i = at(panel, product.rows, row)

        def copy_a(k: Dim) -> None:
            build.store(panels.a, panels.place_a(panel, row, k), product.a(i, k, less(i, product.m)))

        along(build, 0, product.k, product.lanes, copy_a)
    with build.loop(panels.num_columns, kind) as panel, build.loop(product.k, AxisKind.LOOP) as k:

        def copy_b(column: Dim) -> None:
            j = at(panel, product.width, column)
            build.store(panels.b, panels.place_b(panel, k, column), product.b(k, j, less(j, product.n)))

        along(build, 0, product.width, product.lanes, copy_b)


def emit_tile(build: Builder, panels: Panels, row_panel: Dim, column_panel: Dim) -> None:
    """Writes the product of two panels: the micro-kernel, then what of its tile is in c."""
    product = panels.product
    tile = Tile(product.rows, product.vectors, product.lanes)
    sums = multiply_tile(
        build, product, tile,
        lambda row, k: read(panels.a, panels.place_a(row_panel, row, k)),
        lambda k, column: read(panels.b, panels.place_b(column_panel, k, column)),
    )  # fmt: skip
    i, j = mul(row_panel, tile.rows), mul(column_panel, tile.width)
    if product.m % tile.rows == 0 and product.n % tile.width == 0:

        def store(row: Op, column: Dim, place: Dim) -> None:
            build.store(product.c, product.place(add(i, row), add(j, column)), build.load(sums, place))

        each(build, tile, store)
        return
    done = build.alloc(dtypes.float32, tile.rows * tile.width, MemorySpace.SHARED)
    each(build, tile, lambda row, column, place: build.store(done, place, build.load(sums, place)))
    with build.loop(minimum(subtract(product.m, i), tile.rows), AxisKind.LOOP) as row:

        def copy(column: Dim) -> None:
            place = product.place(add(i, row), add(j, column))
            build.store(product.c, place, build.load(done, at(row, tile.width, column)))

        along(build, 0, minimum(subtract(product.n, j), tile.width), product.lanes, copy)
