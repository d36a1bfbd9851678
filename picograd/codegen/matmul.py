"""The loops of a matrix product on a CPU: packed panels, a register tile, and the epilogue on a tile in cache.

In:    Nest (kind MATMUL), whose anchor is the MATMUL, and a RegisterTile
Out:   statements in the free form: a phase that multiplies; where panels are long, one before that packs them
Called by: codegen/lower.py.    Next: picograd/codegen/panels.py

The micro-kernel keeps an MR x NR tile of the result in registers while it walks all of K; its operands come from
panels in which what it reads next lies next.
Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", is the source of the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Scratch
from picograd.codegen.elementwise import along, split
from picograd.codegen.index import element_within
from picograd.codegen.panels import (
    Operand,
    Product,
    count_of,
    group_of,
    own_left,
    own_right,
    packs_for_itself,
    product_of,
    reads_rows_in_place,
    rows_in_place,
    shared_left,
    shared_right,
)
from picograd.device import Target
from picograd.ir.build import cast
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import RegisterTile
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, minimum, mod, mul, subtract


def emit_matmul(
    nest: Nest, params: Sequence[Op], pack: Builder, build: Builder, target: Target, tile: RegisterTile, scratch: Scratch
) -> None:
    """Writes a product: tiles of the result in phase `build`, packing there too, or in phase `pack` for long panels."""
    assert nest.anchor is not None
    product = product_of(nest.anchor, tile, target)
    row_panels, column_panels = count_of(product.m, tile.rows), count_of(product.n, product.nr)
    pieces, blocks = count_of(row_panels, tile.panels), count_of(column_panels, tile.columns)
    batch, is_own = product.batch, packs_for_itself(product)
    if reads_rows_in_place(product.lhs, product.n, product.nr):
        lhs: Operand | None = rows_in_place(product)
    else:
        lhs = None if is_own else shared_left(product, pack, scratch)
    rhs = None if is_own else shared_right(product, pack, scratch)
    with build.loop(numel((*batch, blocks, pieces)), AxisKind.GRID) as position:
        *at, block, piece = split(position, [*batch, blocks, pieces])
        first_row, first_column = mul(piece, tile.panels), mul(block, tile.columns)
        columns = minimum(subtract(column_panels, first_column), tile.columns)
        right = rhs or own_right(product, at, first_column, build)
        height = minimum(subtract(row_panels, first_row), tile.panels)
        with (
            _rows(product, at, first_row, height, lhs, build) as (begin, count, left),
            build.loop(columns, AxisKind.LOOP) as column_index,
            build.loop(count, AxisKind.LOOP) as row_index,
        ):
            row, column = add(begin, row_index), add(first_column, column_index)
            acc = _multiply_tile(product, at, row, column, left, right, build)
            if _fits(product) and [output for _, output in nest.outputs] == [product.anchor]:
                _store_whole(product, params[nest.outputs[0][0]], at, row, column, acc, build)
            else:
                _store_tile(nest, product, params, at, row, column, _in_memory(product, acc, build), build)


@contextmanager
def _rows(
    product: Product, batch: Sequence[Dim], first: Dim, count: Dim, lhs: Operand | None, build: Builder
) -> Iterator[tuple[Dim, Dim, Operand]]:
    """Gives panels of rows, as the first, how many, and what reads them: all, or in a loop those packed together."""
    if lhs is not None:
        yield first, count, lhs
        return
    group = group_of(product)
    with build.loop(count_of(count, group), AxisKind.LOOP) as number:
        done = mul(number, group)
        begin = add(first, done)
        yield begin, minimum(subtract(count, done), group), own_left(product, batch, begin, group, build)


def _each(product: Product, build: Builder, body: Callable[[Op, Dim, Dim], None]) -> None:
    """Calls body(row, column, place in the accumulators) for the elements of a tile, a vector at a time."""
    tile, lanes = product.tile, product.lanes
    with (
        build.loop(tile.rows, AxisKind.UNROLL) as i,
        build.loop(tile.vectors, AxisKind.UNROLL) as vector,
        build.loop(lanes, AxisKind.VECTOR) as lane,
    ):
        column = add(mul(vector, lanes), lane)
        body(i, column, add(mul(i, product.nr), column))


def _multiply_tile(
    product: Product, batch: Sequence[Dim], row: Dim, column: Dim, lhs: Operand, rhs: Operand, build: Builder
) -> Op:
    """The micro-kernel: rows x nr accumulators over all of K."""
    dtype = product.dtype
    acc = build.alloc(dtype, product.tile.rows * product.nr, MemorySpace.REGISTER)
    _each(product, build, lambda i, c, where: build.store(acc, where, const(0, dtype)))
    with build.loop(product.k, AxisKind.LOOP) as k:

        def step(i: Op, c: Dim, where: Dim) -> None:
            a, b = lhs.at(batch, row, i, k), rhs.at(batch, column, c, k)
            build.store(acc, where, multiply_add(a, b, build.load(acc, where)))

        _each(product, build, step)
    return acc


def multiply_add(a: Op, b: Op, c: Op) -> Op:
    """Returns a * b + c: with one rounding for floats."""
    if c.dtype.is_float:
        return Op(OpCode.FMA, c.dtype, (a, b, c))
    if c.dtype is dtypes.bool_:
        return Op(OpCode.OR, c.dtype, (Op(OpCode.AND, c.dtype, (a, b)), c))
    return Op(OpCode.ADD, c.dtype, (Op(OpCode.MUL, c.dtype, (a, b)), c))


def _fits(product: Product) -> bool:
    """True where the result is whole tiles, whose rows are rows of the result."""
    whole = mod(product.m, product.tile.rows) == 0 and mod(product.n, product.nr) == 0
    return whole and not product.tile.turned


def _store_whole(
    product: Product, out: Op, batch: Sequence[Dim], row: Dim, column: Dim, acc: Op, build: Builder
) -> None:
    """Stores a tile of which nothing is computed any more."""

    def store(i: Op, c: Dim, where: Dim) -> None:
        at = (*batch, add(mul(row, product.tile.rows), i), add(mul(column, product.nr), c))
        build.store(out, flatten(at, product.anchor.shape), cast(build.load(acc, where), product.anchor.dtype))

    _each(product, build, store)


def _in_memory(product: Product, acc: Op, build: Builder) -> Op:
    """Puts a tile in memory, where the epilogue finds an element by its number."""
    done = build.alloc(product.dtype, product.tile.rows * product.nr, MemorySpace.SHARED)
    _each(product, build, lambda i, c, where: build.store(done, where, build.load(acc, where)))
    return done


def _store_tile(
    nest: Nest, product: Product, params: Sequence[Op], batch: Sequence[Dim], row: Dim, column: Dim, done: Op,
    build: Builder,
) -> None:  # fmt: skip
    """The epilogue: outputs from the tile, by rows, only where the result is."""
    anchor, tile = product.anchor, product.tile
    first_row, first_column = mul(row, tile.rows), mul(column, product.nr)
    with build.loop(minimum(subtract(product.m, first_row), tile.rows), AxisKind.LOOP) as i:

        def store(c: Dim) -> None:
            at = (add(first_row, i), add(first_column, c))
            value = cast(build.load(done, add(mul(i, product.nr), c)), anchor.dtype)
            store_outputs(nest, params, (*batch, *(at[::-1] if tile.turned else at)), value, build)

        along(build, 0, minimum(subtract(product.n, first_column), product.nr), product.lanes, store)


def store_outputs(nest: Nest, params: Sequence[Op], coords: Coords, value: Op, build: Builder) -> None:
    """Stores every output of a nest at `coords` of its anchor, whose value there is `value`."""
    assert nest.anchor is not None
    axes = range(len(coords))
    done = [element_within(output, coords, {nest.anchor: value}, axes) for _, output in nest.outputs]
    for (slot, _), result in zip(nest.outputs, done):
        build.store(params[slot], flatten(coords, nest.domain), result)
