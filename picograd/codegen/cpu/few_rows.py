"""The loops of a product with one row, or a few, on a CPU: (1, K) @ (K, N), limited by how fast the matrix is read.

In:    Nest (kind MATMUL), whose anchor is a MATMUL of few rows
Out:   two phases of statements in the free form: the rows, where they must be computed; the product
Called by: codegen/emit.py.    Next: picograd/codegen/heads.py

Each element of the matrix is read once, from where it lies, for all rows: to pack it takes longer than to multiply it by
sixteen. Lanes run over columns, and each adds up its own sum over K in order, with one rounding a step, in the blocks of
codegen/tile.py: the sum that codegen/cpu/matmul.py computes for each of many rows. So a row has the same bits alone and
among others.

    columns lie side by side    a strip of columns, with its sums in a cache, some rows of K at a time,
                                while the next are asked for
    K lies side by side         squares of lanes x lanes: lines along K, computed as vectors, transposed in registers,
                                while those of the next columns are asked for
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.cpu.matmul import lanes_of
from picograd.codegen.cpu.panels import BETWEEN_ROWS, shares_cache_sets
from picograd.codegen.cpu.squares import squares_of
from picograd.codegen.epilogue import store_outputs
from picograd.codegen.index import element_within
from picograd.codegen.loops import along
from picograd.codegen.operands import contiguous_axis, is_plain
from picograd.codegen.prefetch import prefetch_large
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import Tile, blocks_of_k, is_cut, most_rows, multiply_add
from picograd.device import Target
from picograd.ir.bodies import substitute
from picograd.ir.build import cast, expand, reduce, reshape, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest, NestKind
from picograd.ir.symbolic import add, floordiv, minimum, mod, mul, subtract

Rows = Callable[[Dim, Dim], Op]  # the element of a row at k

MOST_STRIP = 64  # vectors: 4 KiB of the widest are read one after the other
FEWEST_STRIPS = 8  # for as many threads, where there are as many vectors
ROWS_AT_ONCE = 8  # of K, between a load and a store of a sum
FEW_TILES = 2  # few are the rows of two register tiles: each has one vector of sums, where those of a tile have two
FEWEST_VECTORS = 4  # of columns, with several rows: the columns that fill no vector take as long as some vectors


def has_few_rows(nest: Nest, target: Target) -> bool:
    """True for a product of one row, or on a CPU of few, with one matrix."""
    if nest.kind is not NestKind.MATMUL or nest.anchor is None:
        return False
    *batch, m, n = nest.anchor.shape
    if numel((*batch, m)) == 1:
        return True
    if target.is_gpu or numel(batch) != 1 or not isinstance(m, int):
        return False
    is_wide = not isinstance(n, int) or n >= FEWEST_VECTORS * lanes_of(nest.anchor, target)
    return m <= FEW_TILES * most_rows(target) and is_wide


def as_reduction(nest: Nest) -> Nest:
    """Returns the nest of the same product as sums along rows of the matrix: what a GPU's many threads share out."""
    anchor = nest.anchor
    assert anchor is not None
    (a, b), wide = anchor.src, anchor.dtype.compute_dtype
    domain = (*anchor.shape, a.shape[-1])  # (..., 1, N, K)
    row = expand(reshape(cast(a, wide), (*a.shape[:-1], 1, a.shape[-1])), domain)
    matrix = reshape(cast(swap_last(b), wide), domain)
    total = cast(reduce(row * matrix, OpCode.ADD, (len(domain) - 1,)), anchor.dtype)
    slots, values = zip(*nest.outputs)
    outputs = tuple(zip(slots, substitute(values, {anchor: total})))
    return Nest(NestKind.REDUCE, domain, (len(domain) - 1,), None, outputs)


def emit_few_rows(nest: Nest, context: Context) -> None:
    """Writes a product of one row: the row into memory in phase `pack`, the sums in phase `build`."""
    params, target, scratch = context.params, context.target, context.scratch
    pack, build = context.phase(0), context.phase(1)
    assert nest.anchor is not None
    product = _FewRows(nest, params, build, target)
    rows = _rows(nest.anchor, product.lanes, pack, scratch)
    if product.lanes > 1 and contiguous_axis(product.matrix) == -2:
        product.by_squares(rows)
    else:
        product.by_strips(rows)


def _rows(anchor: Op, lanes: int, pack: Builder, scratch: Scratch) -> Rows:
    """Returns how to read the rows: from where they lie, or once they are computed, or spread over the sets of a cache."""
    a, dtype = anchor.src[0], accumulator_dtype(anchor)
    *batch, m, k = a.shape
    first = [0] * len(batch)
    if is_plain(a) and (m == 1 or not shares_cache_sets(k)):
        return lambda i, k: cast(element_within(a, (*first, i, k)), dtype)
    length = k if m == 1 else add(k, BETWEEN_ROWS)
    memory = scratch(dtype, mul(m, length))
    with pack.loop(m, AxisKind.GRID) as i:

        def put(k: Dim) -> None:
            pack.store(memory, add(mul(i, length), k), cast(element_within(a, (*first, i, k)), dtype))

        along(pack, 0, k, lanes, put)
    return lambda i, k: read(memory, add(mul(i, length), k))


class _FewRows:
    """A product of a few rows that is being written.

    matrix:  (..., K, N)
    lanes:   of a vector of sums
    """

    def __init__(self, nest: Nest, params: Sequence[Op], build: Builder, target: Target):
        assert nest.anchor is not None
        self.nest, self.params, self.build, self.anchor = nest, params, build, nest.anchor
        self.matrix, self.dtype = nest.anchor.src[1], accumulator_dtype(nest.anchor)
        self.lanes, self.has_fma = lanes_of(nest.anchor, target), target.has_fma
        self.first: list[Dim] = [0] * (len(nest.anchor.shape) - 2)
        self.k, self.n = self.matrix.shape[-2:]
        m = nest.anchor.shape[-2]
        assert isinstance(m, int)
        self.m = m

    def element(self, k: Dim, column: Dim) -> Op:
        """Returns an element of the matrix."""
        return cast(element_within(self.matrix, (*self.first, k, column)), self.dtype)

    def ask_for(self, k: Dim, column: Dim) -> None:
        """Asks for the line of memory with an element of the matrix."""
        prefetch_large(self.build, [self.element(k, column)], numel(self.matrix.shape))

    def added(self, row: Op, element: Op, total: Op) -> Op:
        """Returns a sum with a product added."""
        return multiply_add(row, element, total, self.has_fma)

    def store(self, row: Dim, column: Dim, total: Op) -> None:
        """Writes what is made of the sum of a column."""
        coords = (*self.first, row, column)
        store_outputs(self.nest, self.params, coords, cast(total, self.anchor.dtype), self.build)

    # ---- columns side by side ----
    def by_strips(self, rows: Rows) -> None:
        """Writes the loops: GRID over strips of columns."""
        build, lanes, columns = self.build, self.lanes, self._strip()
        with build.loop(floordiv(add(self.n, columns - 1), columns), AxisKind.GRID) as strip:
            start = mul(strip, columns)
            width = minimum(subtract(self.n, start), columns)

            def each(body: Callable[[Dim, Dim, Dim], None]) -> None:
                with build.loop(self.m, AxisKind.LOOP) as i:
                    first = mul(i, columns)
                    along(build, 0, width, lanes, lambda c: body(i, c, add(first, c)))

            def fresh() -> Op:
                totals = build.alloc(self.dtype, self.m * columns, MemorySpace.SHARED)
                each(lambda i, c, where: build.store(totals, where, const(0, self.dtype)))
                return totals

            def join(part: Op, totals: Op) -> None:
                def put(i: Dim, c: Dim, where: Dim) -> None:
                    both = (build.load(totals, where), build.load(part, where))
                    build.store(totals, where, Op(OpCode.ADD, self.dtype, both))

                each(put)

            def add_products(totals: Op, k: Dim, count: int) -> None:
                def column(c: Dim) -> None:
                    of_row = [build.load(totals, add(i * columns, c)) for i in range(self.m)]
                    for step in range(count):
                        element = self.element(add(k, step), add(start, c))
                        of_row = [self.added(rows(i, add(k, step)), element, total) for i, total in enumerate(of_row)]
                    for i, total in enumerate(of_row):
                        build.store(totals, add(i * columns, c), total)

                def ahead(c: Dim) -> None:
                    with build.loop(count if self.m > 1 else 0, AxisKind.UNROLL) as step:
                        self.ask_for(add(k, add(count, step)), add(start, c))

                along(build, 0, width, lanes, column, ahead)

            def block(totals: Op, first: Dim, count: Dim) -> None:
                whole = floordiv(count, ROWS_AT_ONCE)
                with build.loop(whole, AxisKind.LOOP) as number:
                    add_products(totals, add(first, mul(number, ROWS_AT_ONCE)), ROWS_AT_ONCE)
                done = add(first, mul(whole, ROWS_AT_ONCE))
                with build.loop(mod(count, ROWS_AT_ONCE), AxisKind.LOOP) as k:
                    add_products(totals, add(done, k), 1)

            def own_block(totals: Op, first: Dim, count: Dim) -> None:
                own = fresh()
                block(own, first, count)
                join(own, totals)

            totals = fresh()
            if is_cut(self.k, self.dtype):
                blocks_of_k(build, self.k, totals, fresh, join, own_block)
            else:
                block(totals, 0, self.k)
            each(lambda i, c, where: self.store(i, add(start, c), build.load(totals, where)))

    def _strip(self) -> int:
        """Returns how many columns a strip has."""
        if not isinstance(self.n, int):
            return MOST_STRIP * self.lanes
        vectors = -(-self.n // self.lanes)
        return max(1, min(MOST_STRIP, vectors // FEWEST_STRIPS)) * self.lanes

    # ---- K side by side ----
    def by_squares(self, rows: Rows) -> None:
        """Writes the loops: GRID over vectors of columns, and what is left of them."""
        build, lanes = self.build, self.lanes
        whole = floordiv(self.n, lanes)
        with build.loop(whole, AxisKind.GRID) as vector:
            self._columns(rows, mul(vector, lanes), lanes)
        rest = mod(self.n, lanes)
        if rest != 0:
            with build.loop(minimum(rest, 1), AxisKind.GRID):
                self._columns(rows, mul(whole, lanes), rest)

    def _columns(self, rows: Rows, start: Dim, count: Dim) -> None:
        """Writes a vector of columns, of which `count` are columns of the matrix; the others are taken for zeros."""
        build, lanes = self.build, self.lanes
        tile = Tile(self.m, 1, lanes, self.dtype, self.has_fma)
        squares = squares_of(self.matrix, self.dtype, lanes)

        def add_products(acc: Op, first_k: Dim, depth: Dim) -> None:
            whole = floordiv(depth, lanes)
            with build.loop(whole, AxisKind.LOOP) as block:
                first = add(first_k, mul(block, lanes))
                if count == lanes:
                    with build.loop(lanes, AxisKind.UNROLL) as column:
                        self.ask_for(first, add(add(start, lanes), column))
                element = squares.at(build, (*self.first, first, start), count)
                with build.loop(lanes, AxisKind.UNROLL) as k:
                    tile.step(build, acc, lambda i: rows(i, add(first, k)), partial(element, k))
            done = add(first_k, mul(whole, lanes))
            with build.loop(mod(depth, lanes), AxisKind.LOOP) as k:
                line = self._line(add(done, k), start, count)
                tile.step(build, acc, lambda i: rows(i, add(done, k)), line)

        acc = tile.in_blocks(build, self.k, add_products)
        self._finish(tile, start, count, acc)

    def _line(self, k: Dim, start: Dim, count: Dim) -> Callable[[Dim], Op]:
        """Returns the elements at k of a vector of columns."""
        build, lanes = self.build, self.lanes
        if count == lanes:
            return lambda c: self.element(k, add(start, c))
        line, zero = build.alloc(self.dtype, lanes, MemorySpace.SHARED), const(0, self.dtype)
        along(build, 0, lanes, lanes, lambda c: build.store(line, c, zero))
        along(build, 0, count, 1, lambda c: build.store(line, c, self.element(k, add(start, c))))
        return lambda c: build.load(line, c)

    def _finish(self, tile: Tile, start: Dim, count: Dim, acc: Op) -> None:
        """Writes what is made of a tile: from registers, or where that is written once for all rows, from memory."""
        build = self.build
        if self.m == 1 and count == self.lanes:
            tile.each(build, lambda i, c, where: self.store(i, add(start, c), build.load(acc, where)))
            return
        done = build.alloc(self.dtype, self.m * self.lanes, MemorySpace.SHARED)
        tile.each(build, lambda i, c, where: build.store(done, where, build.load(acc, where)))
        with build.loop(self.m, AxisKind.LOOP) as i:
            first = mul(i, self.lanes)
            along(build, 0, count, self.lanes, lambda c: self.store(i, add(start, c), build.load(done, add(first, c))))
