"""The loops of a matrix product on a GPU: a block of threads for each tile of the result.

In:    Nest (kind MATMUL)
Out:   one phase of statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/staged.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.axes import vector_lanes
from picograd.codegen.block_product import BlockProduct
from picograd.codegen.builder import Builder
from picograd.codegen.index import element_or_zero
from picograd.codegen.loops import over_registers, split
from picograd.codegen.matmul import store_outputs
from picograd.codegen.panels import contiguous_axis
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.staged import Operand
from picograd.codegen.tensor_product import TensorProduct
from picograd.device import Target
from picograd.ir.build import cast, swap_last
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind
from picograd.ir.opts import BlockTile, WarpTile
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, mul


def emit_matmul_gpu(
    nest: Nest, params: Sequence[Op], build: Builder, target: Target, tile: BlockTile | WarpTile
) -> None:
    """Writes a product: with 256 threads a block computes 128 x 128 of the result, or less where there is less."""
    anchor = nest.anchor
    assert anchor is not None
    *batch, m, n = anchor.shape
    a, b = anchor.src
    row_tiles, column_tiles = floordiv(add(m, tile.rows - 1), tile.rows), floordiv(add(n, tile.columns - 1), tile.columns)
    with build.loop(numel((*batch, row_tiles, column_tiles)), AxisKind.GRID) as position:
        *at, row_tile, column_tile = split(position, [*batch, row_tiles, column_tiles])
        left, right = operand_of(a, at, target), operand_of(swap_last(b), at, target)
        lanes = lanes_along([value for _, value in nest.outputs], n, target)
        product: BlockProduct | TensorProduct
        if isinstance(tile, WarpTile):
            product = TensorProduct(build, tile, a.dtype, a.shape[-1], left, right, lanes, over_registers(target))
        else:
            dtype = accumulator_dtype(anchor)
            product = BlockProduct(build, tile, dtype, a.shape[-1], left, right, lanes, over_registers(target))

        def store(row: Dim, column: Dim, value: Op) -> None:
            store_outputs(nest, params, (*at, row, column), cast(value, anchor.dtype), build)

        product.emit(mul(row_tile, tile.rows), mul(column_tile, tile.columns), store)


def operand_of(operand: Op, batch: Sequence[Dim], target: Target) -> Operand:
    """Returns an operand as (..., positions, K)."""
    along_k = contiguous_axis(operand) == -1

    def at(position: Dim, k: Dim, inside: Op | bool) -> Op:
        return element_or_zero(operand, (*batch, position, k), inside)

    along = operand.shape[-1 if along_k else -2]
    return Operand(operand.shape[-2], at, along_k, lanes_along([operand], along, target))


def lanes_along(values: Sequence[Op], along: Dim, target: Target) -> int:
    """Returns how many elements side by side are accessed at once."""
    lanes = vector_lanes(values, target)
    return lanes if isinstance(along, int) and along % lanes == 0 else 1
