"""A matrix product on a GPU: where its operands' elements are, and where its result's go.

In:    Nest (kind MATMUL)
Out:   one or two phases of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/grid_product.py
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Context
from picograd.codegen.gpu.grid_product import GridProduct
from picograd.codegen.gpu.staged import Operand
from picograd.codegen.index import element_or_zero
from picograd.codegen.operands import contiguous_axis, is_plain
from picograd.device import Target
from picograd.ir.build import swap_last
from picograd.ir.op import Dim, Op
from picograd.ir.opts import RegisterTile
from picograd.ir.stages import Nest


def emit_matmul_gpu(nest: Nest, context: Context) -> None:
    """Writes a product: with 256 threads a block computes 128 x 128 of the result, or less where there is less."""
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    tile, anchor = context.next_tile(), nest.anchor
    assert anchor is not None and not isinstance(tile, RegisterTile)
    *batch, m, n = anchor.shape
    a, b = anchor.src

    def sides(at: Sequence[Dim]) -> tuple[Operand, Operand]:
        return operand_of(a, at, target), operand_of(swap_last(b), at, target)

    lanes = lanes_along([value for _, value in nest.outputs], n, target)
    product = GridProduct(
        nest, params, target, batch, m, n, a.shape[-1], sides, lambda at, row, column: (*at, row, column), lanes
    )
    product.emit(build, after, tile, scratch)


def operand_of(operand: Op, batch: Sequence[Dim], target: Target) -> Operand:
    """Returns an operand as (..., positions, K)."""
    along_k = contiguous_axis(operand) == -1

    def at(position: Dim, k: Dim, inside: Op | bool) -> Op:
        return element_or_zero(operand, (*batch, position, k), inside)

    along = operand.shape[-1 if along_k else -2]
    return Operand(operand.shape[-2], at, along_k, operand_lanes(operand, along, target), target.has_async_copies)


def operand_lanes(operand: Op, along: Dim, target: Target) -> int:
    """Returns how many elements side by side are read at once: of one in memory what fills an access."""
    if not is_plain(operand):
        return lanes_along([operand], along, target)
    return gcd(along, max(1, target.vector_bytes // operand.dtype.itemsize)) if isinstance(along, int) else 1


def lanes_along(values: Sequence[Op], along: Dim, target: Target) -> int:
    """Returns how many elements side by side are computed and accessed at once."""
    return gcd(along, vector_lanes(values, target)) if isinstance(along, int) else 1
