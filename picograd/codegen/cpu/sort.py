"""The loops of a stable argsort on a CPU by merging, bottom up: of 64-bit keys, and of lengths known only when it runs.

In:    Nest (kind SORT), whose anchor is the SORT
Out:   one phase of statements in the free form
Called by: codegen/emit.py, codegen/cpu/sort_network.py.    Next: picograd/codegen/gpu/sort.py

Runs of 1, 2, 4, ... positions that are in order already are merged two and two. Two tables of positions take turns,
and with each position stands its key, so that a comparison reads what lies next to each other:

    keys    3 1 2 0      positions  0 1 2 3
    pass 0  1 3 0 2                 1 0 3 2
    pass 1  0 1 2 3                 3 1 2 0

A NaN counts as the greatest value. Equal keys keep their order, forwards and backwards. Cost: n log2 n comparisons.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context
from picograd.codegen.index import element_within
from picograd.codegen.loops import split
from picograd.codegen.sort import Tables, at_most, comes_before, integer, key_dtype, less, negated, one_of
from picograd.ir.build import both, cast, compare, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, const, greatest
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, mod, mul, to_op


def emit_sort(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = the position along the axis of the i-th smallest (or greatest) element."""
    params, scratch = context.params, context.scratch
    build = context.phase(0)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (axis, descending) = anchor.src, anchor.arg
    rows, length = (*x.shape[:axis], *x.shape[axis + 1 :]), x.shape[axis]
    keys, positions = (scratch(t, mul(numel(rows), mul(2, length))) for t in (key_dtype(x.dtype), dtypes.int64))
    out = params[nest.outputs[0][0]]
    num_passes = max(0, greatest(length) - 1).bit_length()

    def sort_row(row: Dim) -> None:
        at = split(row, list(rows))
        tables = Tables(keys, positions, mul(row, mul(2, length)), length)
        with build.loop(length, AxisKind.LOOP) as i:
            key = element_within(x, (*at[:axis], i, *at[axis:]))
            build.store(keys, tables.at(0, i), cast(key, keys.dtype))
            build.store(positions, tables.at(0, i), i)
        with build.loop(num_passes, AxisKind.LOOP) as number:
            merge_runs(tables, number, number, descending, build)
        with build.loop(length, AxisKind.LOOP) as i:
            found = build.load(positions, tables.at(num_passes % 2, i))
            build.store(out, flatten((*at[:axis], i, *at[axis:]), x.shape), found)

    with build.loop(numel(rows), AxisKind.GRID) as row:
        sort_row(row)


def merge_runs(tables: Tables, number: Dim, turn: Dim, descending: bool, build: Builder) -> None:
    """Merges runs of 2 ** number elements of one table into the other, two and two.

    Args:
      turn: even where the first table is read, odd where the second is
    """
    source, target = mod(turn, 2), mod(add(turn, 1), 2)
    left, right = (build.alloc(dtypes.int64, 1, MemorySpace.REGISTER) for _ in range(2))
    width = integer(OpCode.SHL, const(1, dtypes.int64), to_op(number))
    last = integer(OpCode.SUB, to_op(tables.length), const(1, dtypes.int64))
    with build.loop(tables.length, AxisKind.LOOP) as i:
        pair = integer(OpCode.ADD, to_op(number), const(1, dtypes.int64))
        start = integer(OpCode.SHL, integer(OpCode.SHR, to_op(i), pair), pair)
        with build.when(compare(OpCode.CMPEQ, start, to_op(i))):
            build.store(left, 0, start)
            build.store(right, 0, integer(OpCode.ADD, start, width))
        middle = integer(OpCode.MIN, integer(OpCode.ADD, start, width), to_op(tables.length))
        end = integer(OpCode.MIN, integer(OpCode.ADD, middle, width), to_op(tables.length))
        a, b = build.load(left, 0), build.load(right, 0)
        places = [tables.at(source, at_most(side, last)) for side in (a, b)]
        key_a, key_b = (build.load(tables.keys, place) for place in places)
        sooner = comes_before(key_b, key_a, descending)
        take_b = both(less(b, end), one_of(negated(less(a, middle)), sooner))
        build.store(tables.keys, tables.at(target, i), where(take_b, key_b, key_a))
        if tables.positions is not None:
            position_a, position_b = (build.load(tables.positions, place) for place in places)
            build.store(tables.positions, tables.at(target, i), where(take_b, position_b, position_a))
        step = cast(take_b, dtypes.int64)
        build.store(right, 0, integer(OpCode.ADD, b, step))
        build.store(left, 0, integer(OpCode.ADD, a, integer(OpCode.SUB, const(1, dtypes.int64), step)))
