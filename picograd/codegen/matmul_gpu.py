"""The loops of a matrix product on a GPU: tiles of both operands in shared memory, a small tile per thread.

In:    Nest (kind MATMUL)
Out:   one phase of statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/scatter.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder, read
from picograd.codegen.elementwise import split
from picograd.codegen.index import element
from picograd.codegen.matmul import multiply_add, store_outputs
from picograd.codegen.reduce import accumulator_dtype
from picograd.device import Target
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul

TILE = 64  # rows and columns of a block's part of the result
DEPTH = 16  # how much of K is in shared memory at a time
OWN = 4  # rows and columns of a thread's part
SIDE = TILE // OWN  # threads along a side


def emit_matmul_gpu(nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes a product: a block computes 64 x 64 of the result, a thread 4 x 4 of those."""
    anchor = nest.anchor
    assert anchor is not None
    *batch, m, n = anchor.shape
    dtype = accumulator_dtype(anchor)
    row_tiles, column_tiles = (floordiv(add(dim, TILE - 1), TILE) for dim in (m, n))
    with build.loop(numel((*batch, row_tiles, column_tiles)), AxisKind.GRID) as position:
        *at, row_tile, column_tile = split(position, [*batch, row_tiles, column_tiles])
        first_row, first_column = mul(row_tile, TILE), mul(column_tile, TILE)
        lhs = build.alloc(dtype, DEPTH * TILE, MemorySpace.SHARED)
        rhs = build.alloc(dtype, DEPTH * TILE, MemorySpace.SHARED)
        with build.loop(SIDE * SIDE, AxisKind.BLOCK) as thread:
            acc = build.alloc(dtype, OWN * OWN, MemorySpace.REGISTER)
            with build.loop(OWN * OWN, AxisKind.UNROLL) as own:
                build.store(acc, own, const(0, dtype))
            _multiply(anchor, at, first_row, first_column, lhs, rhs, acc, thread, build)
            with build.loop(OWN, AxisKind.UNROLL) as i, build.loop(OWN, AxisKind.UNROLL) as j:
                row = add(first_row, add(mul(floordiv(thread, SIDE), OWN), i))
                column = add(first_column, add(mod(thread, SIDE), mul(j, SIDE)))
                with build.when(both(less(row, m), less(column, n))):
                    value = build.load(acc, add(mul(i, OWN), j))
                    done = value if value.dtype is anchor.dtype else Op(OpCode.CAST, anchor.dtype, (value,))
                    store_outputs(nest, params, (*at, row, column), done, build)


def _multiply(
    anchor: Op, batch: Sequence[Dim], first_row: Dim, first_column: Dim,
    lhs: Op, rhs: Op, acc: Op, thread: Op, build: Builder,
) -> None:  # fmt: skip
    """Walks K in steps of DEPTH: all threads fill both tiles, wait, multiply, wait."""
    a, b = anchor.src
    *_, m, k_extent = a.shape
    n = b.shape[-1]
    with build.loop(floordiv(add(k_extent, DEPTH - 1), DEPTH), AxisKind.LOOP) as step:
        first_k = mul(step, DEPTH)
        with build.loop(DEPTH * TILE // (SIDE * SIDE), AxisKind.UNROLL) as part:
            place = add(mul(part, SIDE * SIDE), thread)
            row, k = add(first_row, floordiv(place, DEPTH)), add(first_k, mod(place, DEPTH))
            inside = both(less(row, m), less(k, k_extent))
            target_place = add(mul(mod(place, DEPTH), TILE), floordiv(place, DEPTH))
            build.store(lhs, target_place, _inside(element(a, (*batch, row, k), None, inside), inside, lhs))
            column, k = add(first_column, mod(place, TILE)), add(first_k, floordiv(place, TILE))
            inside = both(less(column, n), less(k, k_extent))
            build.store(rhs, place, _inside(element(b, (*batch, k, column), None, inside), inside, rhs))
        build.barrier()
        with (
            build.loop(DEPTH, AxisKind.LOOP) as depth,
            build.loop(OWN, AxisKind.UNROLL) as i,
            build.loop(OWN, AxisKind.UNROLL) as j,
        ):
            left = read(lhs, add(mul(depth, TILE), add(mul(floordiv(thread, SIDE), OWN), i)))
            right = read(rhs, add(mul(depth, TILE), add(mod(thread, SIDE), mul(j, SIDE))))
            where = add(mul(i, OWN), j)
            build.store(acc, where, multiply_add(left, right, build.load(acc, where)))
        build.barrier()


def _inside(value: Op, inside: Op | bool, memory: Op) -> Op:
    """Zero outside of the operand: beyond K an element must not count."""
    wide = value if value.dtype is memory.dtype else Op(OpCode.CAST, memory.dtype, (value,))
    if isinstance(inside, bool):
        return wide if inside else const(0, memory.dtype)
    return Op(OpCode.WHERE, memory.dtype, (inside, wide, const(0, memory.dtype)))
