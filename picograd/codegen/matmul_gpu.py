"""The loops of a matrix product on a GPU: a block of threads for each tile of the result.

In:    Nest (kind MATMUL)
Out:   one phase of statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/staged.py
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from picograd.codegen.axes import vector_lanes
from picograd.codegen.block_product import BlockProduct
from picograd.codegen.builder import Builder
from picograd.codegen.index import element_or_zero
from picograd.codegen.loops import over_registers, split
from picograd.codegen.matmul import store_outputs
from picograd.codegen.panels import contiguous_axis, is_plain
from picograd.codegen.staged import Operand
from picograd.codegen.tensor_product import TensorProduct
from picograd.device import Target
from picograd.dtype import DType
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
        product = product_of(build, tile, anchor.dtype, a.shape[-1], (left, right), lanes, target)

        def store(row: Dim, column: Dim, value: Op) -> None:
            store_outputs(nest, params, (*at, row, column), cast(value, anchor.dtype), build)

        product.emit(mul(row_tile, tile.rows), mul(column_tile, tile.columns), store)


def product_of(
    build: Builder, tile: BlockTile | WarpTile, dtype: DType, k: Dim, sides: tuple[Operand, Operand], lanes: int,
    target: Target,
) -> BlockProduct | TensorProduct:  # fmt: skip
    """Returns what writes the product of a block.

    Args:
      dtype:  of the operands
      lanes:  columns that are stored at once
    """
    if isinstance(tile, WarpTile):
        return TensorProduct(build, tile, dtype, k, *sides, lanes, over_registers(target))
    return BlockProduct(build, tile, dtype.compute_dtype, k, *sides, lanes, over_registers(target))


def operand_of(operand: Op, batch: Sequence[Dim], target: Target) -> Operand:
    """Returns an operand as (..., positions, K)."""
    along_k = contiguous_axis(operand) == -1

    def at(position: Dim, k: Dim, inside: Op | bool) -> Op:
        return element_or_zero(operand, (*batch, position, k), inside)

    along = operand.shape[-1 if along_k else -2]
    return Operand(operand.shape[-2], at, along_k, operand_lanes(operand, along, target))


def operand_lanes(operand: Op, along: Dim, target: Target) -> int:
    """Returns how many elements side by side are read at once: of one in memory what fills an access."""
    if not is_plain(operand):
        return lanes_along([operand], along, target)
    return gcd(along, max(1, target.vector_bytes // operand.dtype.itemsize)) if isinstance(along, int) else 1


def lanes_along(values: Sequence[Op], along: Dim, target: Target) -> int:
    """Returns how many elements side by side are computed and accessed at once."""
    return gcd(along, vector_lanes(values, target)) if isinstance(along, int) else 1
