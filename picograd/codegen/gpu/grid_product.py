"""A product over the grid of a GPU: a block of threads for each tile of the result, and for each part of a long K.

In:    operands (codegen/gpu/staged.py), a tile
Out:   one or two phases of statements in the free form
Called by: codegen/gpu/matmul.py, codegen/gpu/convolution.py.    Next: picograd/codegen/gpu/staged.py

Where tiles are too few to fill a GPU and K is long, blocks share it: each leaves the sums of its part in scratch memory,
and a second phase adds the parts of an element in order. How many there are follows from the shape alone, so that bits do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.epilogue import store_outputs
from picograd.codegen.gpu.block_product import BlockProduct
from picograd.codegen.gpu.staged import Operand
from picograd.codegen.gpu.tensor_product import TensorProduct
from picograd.codegen.gpu.tiles import num_parts, part_length
from picograd.codegen.loops import grid_of_threads, split
from picograd.device import Target
from picograd.ir.build import cast
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind
from picograd.ir.opts import BlockTile, WarpTile
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, floordiv, less, mul
from picograd.record import Record


class GridProduct(Record):
    """Products of m x k and k x n, a batch of them.

    sides:   position in the batch -> the operands
    coords:  (position in the batch, row, column) -> where the result has that
    lanes:   columns that are stored at once
    """

    nest: Nest
    params: Sequence[Op]
    target: Target
    batch: Sequence[Dim]
    m: Dim
    n: Dim
    k: Dim
    sides: Callable[[Sequence[Dim]], tuple[Operand, Operand]]
    coords: Callable[[Sequence[Dim], Dim, Dim], Coords]
    lanes: int

    @property
    def anchor(self) -> Op:
        assert self.nest.anchor is not None
        return self.nest.anchor

    def emit(self, build: Builder, after: Builder, tile: BlockTile | WarpTile, scratch: Scratch) -> None:
        """Writes the product, and where K has parts their sum."""
        anchor, batch = self.anchor, numel(self.batch)
        parts = num_parts(self.m, self.n, self.k, batch, anchor.dtype, self.target, takes_tf32(anchor))
        if parts == 1 or not isinstance(self.k, int):
            self._emit_tiles(build, tile, 1, self.k, self._store)
            return
        shape = (parts, *self.batch, self.m, self.n)
        sums = scratch(self.anchor.dtype.compute_dtype, numel(shape))

        def leave(build: Builder, part: Dim, at: Sequence[Dim], row: Dim, column: Dim, value: Op) -> None:
            build.store(sums, flatten((part, *at, row, column), shape), value)

        self._emit_tiles(build, tile, parts, part_length(self.k, parts), leave)
        with grid_of_threads(after, numel(shape[1:]), self.target) as place:
            total = read(sums, place)
            for part in range(1, parts):
                total = total + read(sums, add(place, mul(numel(shape[1:]), part)))
            *at, row, column = split(place, shape[1:])
            self._store(after, 0, at, row, column, total)

    def _emit_tiles(
        self, build: Builder, tile: BlockTile | WarpTile, parts: int, length: Dim,
        store: Callable[[Builder, Dim, Sequence[Dim], Dim, Dim, Op], None],
    ) -> None:  # fmt: skip
        """Writes the tiles of each part of K, which have a `length`; store(build, part, position in the batch, ...)."""
        tiles = [floordiv(add(self.m, tile.rows - 1), tile.rows), floordiv(add(self.n, tile.columns - 1), tile.columns)]
        with build.loop(numel((parts, *self.batch, *tiles)), AxisKind.GRID) as place:
            part, *at, row_tile, column_tile = split(place, [parts, *self.batch, *tiles])
            sides = self.sides(at)
            if parts > 1:
                left, right = (of_part(side, mul(part, length), self.k) for side in sides)
                sides = left, right
            product = self._product(build, tile, length, sides)
            product.emit(
                mul(row_tile, tile.rows), mul(column_tile, tile.columns),
                lambda row, column, value: store(build, part, at, row, column, value),
            )  # fmt: skip

    def _product(
        self, build: Builder, tile: BlockTile | WarpTile, length: Dim, sides: tuple[Operand, Operand]
    ) -> BlockProduct | TensorProduct:
        """Returns what writes the product of a block."""
        dtype, wide = self.anchor.dtype, self.anchor.dtype.compute_dtype
        if isinstance(tile, WarpTile):
            return TensorProduct(build, self.target, dtype, wide, length, *sides, self.lanes, tile)
        return BlockProduct(build, self.target, wide, wide, length, *sides, self.lanes, tile)

    def _store(self, build: Builder, part: Dim, at: Sequence[Dim], row: Dim, column: Dim, value: Op) -> None:
        store_outputs(self.nest, self.params, self.coords(at, row, column), cast(value, self.anchor.dtype), build)


def of_part(operand: Operand, first: Dim, k: Dim) -> Operand:
    """Returns what an operand is of a part of K that begins at `first`."""

    def at(position: Dim, own: Dim, inside: Op | bool) -> Op:
        where = add(first, own)
        return operand.at(position, where, both(inside, less(where, k)))

    return Operand(operand.extent, at, operand.along_k, operand.lanes, operand.copied)
