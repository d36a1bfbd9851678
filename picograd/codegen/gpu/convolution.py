"""The loops of a convolution on a GPU: a matrix product whose right operand is read through windows.

In:    Nest (kind CONV)
Out:   one or two phases of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/block_rows.py

Rows are the output channels of a group, columns its positions in all images, k = (channel, tap): no window is stored.
Where a group has few output channels (depthwise convolutions, pools) nobody else needs what a thread reads: then each
element of the result is a thread's own sum.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder, Context, Scratch
from picograd.codegen.epilogue import store_outputs
from picograd.codegen.gpu.grid_product import GridProduct
from picograd.codegen.gpu.matmul import lanes_along, operand_lanes
from picograd.codegen.gpu.staged import Operand
from picograd.codegen.gpu.tiles import gpu_tile
from picograd.codegen.index import element_or_zero
from picograd.codegen.loops import grid_of_threads, split
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import multiply_add
from picograd.codegen.windows import Windows
from picograd.device import Target
from picograd.ir.build import cast, swap_last
from picograd.ir.coordinates import Coords, unflatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, mod, mul

FEW_CHANNELS = 4  # output channels of a group


def emit_convolution_gpu(nest: Nest, context: Context) -> None:
    """Writes a convolution: a block for each tile of channels and positions, or a thread for each element."""
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    assert nest.anchor is not None
    windows = Windows(nest.anchor)
    if windows.m < FEW_CHANNELS:
        _emit_elements(nest, windows, params, build, target)
    else:
        _emit_blocks(nest, windows, params, build, after, target, scratch)


def _emit_elements(nest: Nest, windows: Windows, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes a thread for each element of the result: where a group has too few channels to fill a tile."""
    anchor, dtype = windows.anchor, accumulator_dtype(windows.anchor)
    with grid_of_threads(build, numel(nest.domain), target) as number:
        b, o, *at = split(number, list(nest.domain))
        group = floordiv(o, max(1, windows.m))
        acc = build.alloc(dtype, 1, MemorySpace.REGISTER)
        build.store(acc, 0, const(0, dtype))
        with build.loop(windows.channels, AxisKind.LOOP) as c, build.loop(windows.num_taps, AxisKind.LOOP) as tap:
            lhs = cast(windows.weight(o, c, tap), dtype)
            rhs = cast(windows.column(b, at, group, c, tap, True), dtype)
            build.store(acc, 0, multiply_add(lhs, rhs, build.load(acc, 0)))
        store_outputs(nest, params, (b, o, *at), cast(build.load(acc, 0), anchor.dtype), build)


def _emit_blocks(
    nest: Nest, windows: Windows, params: Sequence[Op], build: Builder, after: Builder, target: Target, scratch: Scratch
) -> None:
    """Writes the weight, (output channels, K), times windows, (K, positions): a block of threads a tile of that product."""
    anchor = windows.anchor
    images, positions = anchor.shape[0], mul(anchor.shape[0], numel(windows.spatial))
    matrix = swap_last(windows.matrix)  # (groups, output channels, K)

    def sides(at: Sequence[Dim]) -> tuple[Operand, Operand]:
        (group,) = at

        def weight(row: Dim, k: Dim, inside: Op | bool) -> Op:
            return element_or_zero(matrix, (group, row, k), inside)

        def column(position: Dim, k: Dim, inside: Op | bool) -> Op:
            b, *place = unflatten(position, (images, *windows.spatial))
            return windows.column(b, place, group, floordiv(k, windows.num_taps), mod(k, windows.num_taps), inside)

        left = Operand(windows.m, weight, True, operand_lanes(matrix, windows.k, target), target.has_async_copies)
        return left, Operand(positions, column, False, 1, target.has_async_copies)

    def coords(at: Sequence[Dim], row: Dim, position: Dim) -> Coords:
        b, *place = unflatten(position, (images, *windows.spatial))
        return (b, add(mul(at[0], windows.m), row), *place)

    lanes = lanes_along([value for _, value in nest.outputs], (windows.spatial or (1,))[-1], target)
    product = GridProduct(
        nest, params, target, [windows.groups], windows.m, positions, windows.k, sides, coords, lanes
    )
    tile = gpu_tile(windows.m, positions, windows.k, windows.groups, anchor.dtype, target, takes_tf32(anchor))
    product.emit(build, after, tile, scratch)
