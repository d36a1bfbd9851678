"""The loops of a matrix product on a GPU: tiles of both operands in shared memory, a small tile per thread.

In:    Nest (kind MATMUL)
Out:   one phase of statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/convolution_gpu.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder, read
from picograd.codegen.index import element, zero_unless
from picograd.codegen.loops import split
from picograd.codegen.matmul import store_outputs
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import multiply_add
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import BlockTile
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul


def emit_matmul_gpu(nest: Nest, params: Sequence[Op], build: Builder, tile: BlockTile) -> None:
    """Writes a product: with 256 threads a block computes 64 x 64 of the result, a thread 4 x 4 of those."""
    anchor = nest.anchor
    assert anchor is not None
    *batch, m, n = anchor.shape
    dtype = accumulator_dtype(anchor)
    own = tile.own
    row_tiles, column_tiles = (floordiv(add(dim, tile.length - 1), tile.length) for dim in (m, n))
    with build.loop(numel((*batch, row_tiles, column_tiles)), AxisKind.GRID) as position:
        *at, row_tile, column_tile = split(position, [*batch, row_tiles, column_tiles])
        first_row, first_column = mul(row_tile, tile.length), mul(column_tile, tile.length)
        lhs = build.alloc(dtype, tile.side * tile.length, MemorySpace.SHARED)
        rhs = build.alloc(dtype, tile.side * tile.length, MemorySpace.SHARED)
        with build.loop(tile.threads, AxisKind.BLOCK) as thread:
            acc = build.alloc(dtype, own * own, MemorySpace.REGISTER)
            with build.loop(own * own, AxisKind.UNROLL) as place:
                build.store(acc, place, const(0, dtype))
            _multiply(anchor, tile, at, first_row, first_column, lhs, rhs, acc, thread, build)
            with build.loop(own, AxisKind.UNROLL) as i, build.loop(own, AxisKind.UNROLL) as j:
                row = add(first_row, add(mul(floordiv(thread, tile.side), own), i))
                column = add(first_column, add(mod(thread, tile.side), mul(j, tile.side)))
                with build.when(both(less(row, m), less(column, n))):
                    value = build.load(acc, add(mul(i, own), j))
                    done = value if value.dtype is anchor.dtype else Op(OpCode.CAST, anchor.dtype, (value,))
                    store_outputs(nest, params, (*at, row, column), done, build)


def _multiply(
    anchor: Op, tile: BlockTile, batch: Sequence[Dim], first_row: Dim, first_column: Dim,
    lhs: Op, rhs: Op, acc: Op, thread: Op, build: Builder,
) -> None:  # fmt: skip
    """Walks K in steps: all threads fill both tiles, wait, multiply, wait."""
    a, b = anchor.src
    *_, m, k_extent = a.shape
    n = b.shape[-1]
    side, own, length = tile.side, tile.own, tile.length
    with build.loop(floordiv(add(k_extent, side - 1), side), AxisKind.LOOP) as step:
        first_k = mul(step, side)
        with build.loop(own, AxisKind.UNROLL) as part:
            place = add(mul(part, tile.threads), thread)
            row, k = add(first_row, floordiv(place, side)), add(first_k, mod(place, side))
            inside = both(less(row, m), less(k, k_extent))
            target_place = add(mul(mod(place, side), length), floordiv(place, side))
            build.store(lhs, target_place, _inside(element(a, (*batch, row, k), None, inside), inside, lhs))
            column, k = add(first_column, mod(place, length)), add(first_k, floordiv(place, length))
            inside = both(less(column, n), less(k, k_extent))
            build.store(rhs, place, _inside(element(b, (*batch, k, column), None, inside), inside, rhs))
        build.barrier()
        with (
            build.loop(side, AxisKind.LOOP) as depth,
            build.loop(own, AxisKind.UNROLL) as i,
            build.loop(own, AxisKind.UNROLL) as j,
        ):
            left = read(lhs, add(mul(depth, length), add(mul(floordiv(thread, side), own), i)))
            right = read(rhs, add(mul(depth, length), add(mod(thread, side), mul(j, side))))
            where = add(mul(i, own), j)
            build.store(acc, where, multiply_add(left, right, build.load(acc, where)))
        build.barrier()


def _inside(value: Op, inside: Op | bool, memory: Op) -> Op:
    """Zero outside of the operand: beyond K an element must not count."""
    wide = value if value.dtype is memory.dtype else Op(OpCode.CAST, memory.dtype, (value,))
    return zero_unless(inside, wide)
