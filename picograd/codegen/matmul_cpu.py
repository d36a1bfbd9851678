"""A matrix product on a CPU: packed panels times a register tile; or few rows times a matrix that is not packed.

The micro-kernel keeps an MR x NR tile of the result in registers while it walks K; blocks of a long K are added up in a
second tile. Its operands come from panels (codegen/panels.py). Large values that the epilogue reads are prefetched before
the tile is computed. The layout is that of Goto and van de Geijn 2008, "Anatomy of high-performance matrix
multiplication".

Few rows, (1, K) @ (K, N), are limited by how fast the matrix is read: each of its elements is read once for all rows,
since packing takes longer than multiplying by sixteen rows. Lanes run over columns, and each adds up its own sum over K
in order, with one rounding a step, in the blocks of codegen/matmul.py: the same sum as that of each of many rows. So a
row has the same bits alone and among others.

    row-major matrix       a strip of columns, with its sums in a cache, some rows of K at a time, the next ones prefetched
    column-major matrix    squares of lanes x lanes: lines along K, computed as vectors, transposed in registers, while
                           those of the next columns are prefetched
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.index import element_within
from picograd.codegen.loops import STRIP_VECTORS_MAX, STRIPS_MIN, along, prefetch_large, rest_in_vectors
from picograd.codegen.matmul import Tile, blocks_of_k, contiguous_axis, is_cut, is_plain, most_rows, store_outputs
from picograd.codegen.panels import (
    BETWEEN_ROWS,
    PACK_ROWS,
    Operand,
    fill_panel,
    in_blocks,
    pack_columns,
    packs_slowly,
    rows_to_clear,
    rows_to_transpose,
    shares_cache_sets,
    squares_of,
)
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.bodies import substitute
from picograd.ir.build import cast, expand, multiply_add, reduce, reshape, swap_last
from picograd.ir.op import Dim, Op, Shape, const, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import RegisterTile
from picograd.ir.shape import numel
from picograd.ir.stages import Nest, NestKind
from picograd.ir.symbolic import Coords, add, ceildiv, flatten, floordiv, less, minimum, mod, mul, subtract, unflatten
from picograd.record import Record, replace

# ---- choosing a register tile ----
ROW_PANELS = 8  # of a piece, at least: their rows stay in the second-level cache while the columns pass
PIECES_MIN = 8  # with as many, threads pack the panels that they read: of columns that are packed element by element
PIECES_WANTED = 16  # the same of columns packed by vectors, where up to REPEATS_MAX threads may pack one panel
WORTH_ANOTHER_TILE = 0.975  # of the cost of the usual tile
STORE_BY_MEMORY = 0.5  # cost of storing a tile through memory, in steps of K for each of its lanes (measured 2026-11-23)


def register_tile(nest: Nest, transposed: bool, target: Target) -> RegisterTile:
    """Returns the tile with as many accumulators as the registers hold, at most as large as the result."""
    anchor = nest.anchor
    m, n = anchor.shape[-2:][::-1] if transposed else anchor.shape[-2:]
    lanes = target.sum_lanes(anchor.dtype)
    rows, vectors = rows_and_vectors(m, n, lanes, most_rows(target), 0.0 if transposed else _ragged_overhead(nest, lanes))
    batch = numel(anchor.shape[:-2])
    if not (isinstance(m, int) and isinstance(n, int) and isinstance(batch, int)):
        return RegisterTile(rows, vectors, ROW_PANELS, transposed)
    columns = max(1, batch * ceildiv(n, vectors * lanes))
    rhs = swap_last(anchor.src[0]) if transposed else anchor.src[1]
    slow = packs_slowly(rhs, anchor.dtype.compute_dtype, lanes)
    pieces = 1 if slow else min(REPEATS_MAX, ceildiv(PIECES_WANTED, columns))
    if columns * pieces < (PIECES_MIN if pieces == 1 else PIECES_WANTED):
        return RegisterTile(rows, vectors, ROW_PANELS, transposed)
    return RegisterTile(rows, vectors, max(ROW_PANELS, ceildiv(m, rows * pieces)), transposed)


def _ragged_overhead(nest: Nest, lanes: int) -> float:
    """Returns the cost of storing a tile through memory, as a fraction of the cost of its sums.

    All tiles go by way of memory as soon as their rows do not divide M. 0 where an epilogue needs that anyway.
    """
    k = nest.anchor.src[0].shape[-1]
    return STORE_BY_MEMORY * lanes / k if isinstance(k, int) and k and is_alone(nest) else 0.0


def rows_and_vectors(m: Dim, n: Dim, lanes: int, most: int, ragged_overhead: float = 0.0) -> tuple[int, int]:
    """Returns the rows and vectors of a tile: most x 2, unless another costs clearly less.

    24 rows of 48 columns, in vectors of 16: 12 x 2 computes 24 x 64, 8 x 3 what is wanted and no edge.

    Args:
      m, n:             rows and columns of the result
      lanes:            of a vector
      most:             rows of two vectors that the registers hold
      ragged_overhead:  extra cost of a tile whose rows do not divide m, as a part of the cost of its sums
    """
    if not (isinstance(m, int) and isinstance(n, int)):
        return (min(most, m) if isinstance(m, int) else most), (1 if isinstance(n, int) and n <= lanes else 2)
    if m <= most or n <= lanes:
        return min(most, m), min(2, ceildiv(n, lanes))
    usual = (most, 2)
    others = [(rows, 2) for rows in range(most - 1, 2 * most // 3 - 1, -1)] + [(2 * most // 3, 3)]

    def cost(tile: tuple[int, int]) -> float:
        rows, vectors = tile
        computed = ceildiv(m, rows) * rows * ceildiv(n, vectors * lanes) * vectors
        return computed * (1 + ragged_overhead) if m % rows else computed

    best = min(others, key=lambda tile: (cost(tile), -tile[0] * tile[1]))
    return best if cost(best) < WORTH_ANOTHER_TILE * cost(usual) else usual


def better_transposed(nest: Nest) -> bool:
    """True where the left operand becomes the columns: if K is contiguous in both, the smaller is transposed.

    (M, K) @ (N, K).T with M < N, a layer on a small batch, is computed as (N, K) @ (M, K).T and stored transposed. Not
    where more of that shape is read then: element by element that takes longer than to pack the larger operand.
    """
    a, b = nest.anchor.src
    m, n = a.shape[-2], b.shape[-1]
    if not (isinstance(m, int) and isinstance(n, int) and 2 * m <= n):
        return False
    return contiguous_axis(a) == -1 and contiguous_axis(b) == -2 and not _reads_more(nest)


def _reads_more(nest: Nest) -> bool:
    """True where the epilogue reads other memory as large as the product, or of a length not known here."""
    after = toposort([value for _, value in nest.outputs], stop={nest.anchor})
    lengths = [numel(op.shape) for op in after if op.code is OpCode.PARAM]
    own = numel(nest.anchor.shape)
    return any(not isinstance(length, int) or not isinstance(own, int) or length >= own for length in lengths)


def register_tiles(nest: Nest, tile: RegisterTile, target: Target) -> list[RegisterTile]:
    """Other cuts: more or less work for a thread at a time, a lower and wider tile, the transposed product."""
    m = nest.anchor.shape[-1 if tile.transposed else -2]
    panels = ceildiv(m, tile.rows) if isinstance(m, int) else math.inf
    cuts = [replace(tile, panels=n) for n in (ROW_PANELS // 2, 2 * ROW_PANELS) if panels > min(n, tile.panels)]
    wide = replace(tile, rows=max(1, tile.rows * 2 // 3), vectors=3) if tile.rows > 1 else tile
    return [*cuts, wide, register_tile(nest, not tile.transposed, target)]


# ---- packed panels times a register tile ----
ROW_VECTORS_MAX = 40  # of a row of the result: one less to compute is worth a loop of its own
PANEL_BYTES_MAX = 112 << 10  # of a panel that a thread packs for itself, on its stack: it stays in the second-level cache
REPEATS_MAX = 4  # times such a panel is packed, where packing copies vectors; where it goes element by element, once
PREFETCHED_ELEMENTS_MIN = 1 << 16  # elements: fewer are still in the second-level cache


class Product(Record):
    """A product as the loops see it: rows times columns, perhaps those of the transposed product.

    lhs, rhs:  (..., M, K) and (..., K, N)
    tile:      how it is cut
    lanes:     of one vector
    has_fma:   an instruction multiplies and adds
    panel:     columns from one panel to the next: those of a tile, or more
    """

    anchor: Op
    lhs: Op
    rhs: Op
    tile: RegisterTile
    lanes: int
    has_fma: bool
    panel: int

    @property
    def batch(self) -> tuple[Dim, ...]:
        return self.anchor.shape[:-2]

    @property
    def m(self) -> Dim:
        return self.lhs.shape[-2]

    @property
    def k(self) -> Dim:
        return self.lhs.shape[-1]

    @property
    def n(self) -> Dim:
        return self.rhs.shape[-1]

    @property
    def nr(self) -> int:
        """Columns of the register tile."""
        return self.tile.vectors * self.lanes

    @property
    def row_panels(self) -> Dim:
        return ceildiv(self.m, self.tile.rows)

    @property
    def pieces(self) -> Dim:
        """Parts of the rows, each of some panels."""
        return ceildiv(self.row_panels, self.tile.panels)

    @property
    def dtype(self) -> DType:
        """The dtype of accumulators."""
        return self.anchor.dtype.compute_dtype

    @property
    def registers(self) -> Tile:
        return Tile(self.tile.rows, self.tile.vectors, self.lanes, self.dtype, self.has_fma)


def product_of(anchor: Op, tile: RegisterTile, target: Target) -> Product:
    """Returns the product that the loops of `emit_matmul` compute."""
    a, b = anchor.src
    lhs, rhs = (swap_last(b), swap_last(a)) if tile.transposed else (a, b)
    lanes = target.sum_lanes(anchor.dtype)
    return Product(anchor, lhs, rhs, tile, lanes, target.has_fma, tile.vectors * lanes)


def emit_matmul(nest: Nest, context: Context) -> None:
    """Writes a product: operands into panels in phase `pack`, tiles of the result in phase `build`."""
    params, target, scratch = context.params, context.target, context.scratch
    pack, build = context.phase(0), context.phase(1)
    tile = context.next_tile()
    assert isinstance(tile, RegisterTile)
    product = product_of(nest.anchor, tile, target)
    lhs = _left(product, pack, scratch)
    shared = None if _packs_own_panels(product) else pack_columns(
        product.rhs, product.nr, product.lanes, product.dtype, pack, scratch
    )
    panels, last = ceildiv(product.n, product.nr), _vectors_of_last(product)
    if not last:
        _multiply(nest, product, params, lhs, shared, (0, panels), build)
        return
    _multiply(nest, product, params, lhs, shared, (0, subtract(panels, 1)), build)
    narrow = replace(product, tile=replace(tile, vectors=last))
    _multiply(nest, narrow, params, lhs, shared, (subtract(panels, 1), 1), build)


def _vectors_of_last(product: Product) -> int:
    """Returns how many vectors the last panel of columns has, if that is so few that a tile of its own pays; else 0."""
    n, nr, vectors = product.n, product.nr, product.tile.vectors
    if not isinstance(n, int) or n <= nr:
        return 0
    last = ceildiv(n % nr, product.lanes)
    return last if last and (vectors - last) * ROW_VECTORS_MAX >= ceildiv(n, product.lanes) else 0


def _multiply(
    nest: Nest, product: Product, params: Sequence[Op], lhs: Operand, shared: Operand | None, columns: tuple[Dim, Dim],
    build: Builder,
) -> None:  # fmt: skip
    """Writes the loops over tiles of some panels of columns: the first, and how many."""
    batch, tile, (first, count) = product.batch, product.tile, columns
    with build.loop(numel((*batch, count, product.pieces)), AxisKind.GRID) as position:
        *at, piece, number = unflatten(position, [*batch, product.pieces, count])  # the rows of a piece stay in cache
        start, column = mul(piece, tile.panels), add(first, number)
        is_whole = _fits(product, add(first, count)) and is_alone(nest)
        rhs = shared or _own_right(product, at, column, build)
        with build.loop(minimum(subtract(product.row_panels, start), tile.panels), AxisKind.LOOP) as index:
            row = add(start, index)
            _prefetch(nest, product, at, row, column, build)
            acc = product.registers.multiply_long(
                build, product.k, lambda i, k: lhs(at, row, i, k), lambda c, k: rhs(at, column, c, k)
            )
            if is_whole:
                (slot, _), *_ = nest.outputs
                _store_whole(product, params[slot], at, row, column, acc, build)
            else:
                _store_tile(nest, product, params, at, row, column, _in_memory(product, acc, build), build)


def _fits(product: Product, end: Dim) -> bool:
    """True where panels up to `end` are whole tiles, whose rows are rows of the result."""
    last = add(mul(subtract(end, 1), product.panel), product.nr)
    whole_columns = mod(product.n, product.panel) == 0 or less(product.n, last) is False
    return whole_columns and mod(product.m, product.tile.rows) == 0 and not product.tile.transposed


def is_alone(nest: Nest) -> bool:
    """True where the product is stored, and nothing is computed of it."""
    return [output for _, output in nest.outputs] == [nest.anchor]


def _store_whole(product: Product, out: Op, batch: Sequence[Dim], row: Dim, column: Dim, acc: Op, build: Builder) -> None:
    """Stores a tile of a product without an epilogue."""

    def store(i: Dim, c: Dim, where: Dim) -> None:
        at = (*batch, add(mul(row, product.tile.rows), i), add(mul(column, product.panel), c))
        build.store(out, flatten(at, product.anchor.shape), cast(build.load(acc, where), product.anchor.dtype))

    product.registers.each(build, store)


def _prefetch(nest: Nest, product: Product, batch: Sequence[Dim], row: Dim, column: Dim, build: Builder) -> None:
    """Asks for values as large as the product that a tile's epilogue reads: they arrive while it is computed."""
    anchor, tile = product.anchor, product.tile
    count = numel(anchor.shape)
    if is_alone(nest) or not isinstance(count, int) or count < PREFETCHED_ELEMENTS_MIN:
        return
    zero = const(0, anchor.dtype)
    with build.loop(tile.rows, AxisKind.UNROLL) as i, build.loop(tile.vectors, AxisKind.UNROLL) as vector:
        at = (add(mul(row, tile.rows), i), add(mul(column, product.panel), mul(vector, product.lanes)))
        coords = (*batch, *(at[::-1] if tile.transposed else at))
        done = [element_within(output, coords, {anchor: zero}, range(len(coords))) for _, output in nest.outputs]
        prefetch_large(build, done, count)


def _in_memory(product: Product, acc: Op, build: Builder) -> Op:
    """Puts a tile in memory, where the epilogue finds an element by its number."""
    done = build.alloc(product.dtype, product.tile.rows * product.nr, MemorySpace.SHARED)
    product.registers.each(build, lambda i, c, where: build.store(done, where, build.load(acc, where)))
    return done


def _store_tile(
    nest: Nest, product: Product, params: Sequence[Op], batch: Sequence[Dim], row: Dim, column: Dim, done: Op,
    build: Builder,
) -> None:  # fmt: skip
    """The epilogue: outputs from the tile, by rows, only where the result is."""
    anchor, tile = product.anchor, product.tile
    first_row, first_column = mul(row, tile.rows), mul(column, product.panel)
    with build.loop(minimum(subtract(product.m, first_row), tile.rows), AxisKind.LOOP) as i:

        def store(c: Dim) -> None:
            at = (add(first_row, i), add(first_column, c))
            value = cast(build.load(done, add(mul(i, product.nr), c)), anchor.dtype)
            store_outputs(nest, params, (*batch, *(at[::-1] if tile.transposed else at)), value, build)

        count = minimum(subtract(product.n, first_column), product.nr)
        rest = rest_in_vectors(
            lambda: toposort([output for _, output in nest.outputs], stop={anchor}), product.n, product.lanes
        )
        along(build, 0, count, product.lanes, store, rest=rest)


# ---- packing ----
def _left(product: Product, pack: Builder, scratch: Scratch) -> Operand:
    """The left operand: read where it is, if its rows are read few times; else in panels."""
    a, n, rows = product.lhs, product.n, product.tile.rows
    *_, m, k = a.shape
    along_k = contiguous_axis(a) == -1
    if along_k and isinstance(n, int) and n <= 4 * product.nr and is_plain(a) and not shares_cache_sets(k):
        last = subtract(m, 1)
        return lambda at, panel, i, kk: element_within(a, (*at, minimum(add(mul(panel, rows), i), last), kk))
    panels = _RowPanels(product, along_k, pack, scratch)
    if along_k:
        panels.copy_rows()
    else:
        in_blocks(pack, a.shape[:-2], k, PACK_ROWS, m, rows, panels.copy_columns)
    return panels.read


class _RowPanels:
    """Panels of rows: row-major where K is contiguous, else column-major.

    Rows are stored longer than K: with a K of a power of two they would all share one cache set.
    """

    def __init__(self, product: Product, along_k: bool, pack: Builder, scratch: Scratch):
        self.a, self.rows, self.lanes, self.dtype = product.lhs, product.tile.rows, product.lanes, product.dtype
        self.along_k, self.pack = along_k, pack
        *batch, m, k = self.a.shape
        panels, length = ceildiv(m, self.rows), add(k, BETWEEN_ROWS) if along_k else k
        self.memory = scratch(self.dtype, numel((*batch, panels, self.rows, length)))
        self.shape: Shape = (*batch, panels, *((self.rows, length) if along_k else (length, self.rows)))

    def place(self, at: Sequence[Dim], panel: Dim, i: Dim, k: Dim) -> Dim:
        return flatten((*at, panel, *((i, k) if self.along_k else (k, i))), self.shape)

    def read(self, at: Sequence[Dim], panel: Dim, i: Dim, k: Dim) -> Op:
        return read(self.memory, self.place(at, panel, i, k))

    def put(self, at: Sequence[Dim], panel: Dim, i: Dim, k: Dim) -> None:
        value = element_within(self.a, (*at, add(mul(panel, self.rows), i), k))
        self.pack.store(self.memory, self.place(at, panel, i, k), cast(value, self.dtype))

    def put_zero(self, at: Sequence[Dim], panel: Dim, i: Dim, k: Dim) -> None:
        self.pack.store(self.memory, self.place(at, panel, i, k), const(0, self.dtype))

    def copy_rows(self) -> None:
        """Copies the panels of a matrix whose K is contiguous, row after row; rows that are missing are zeros."""
        pack, (*batch, m, k) = self.pack, self.a.shape
        shape = [*batch, ceildiv(m, self.rows)]
        with pack.loop(numel(shape), AxisKind.GRID) as position:
            *at, panel = unflatten(position, shape)
            height = minimum(subtract(m, mul(panel, self.rows)), self.rows)
            with pack.loop(height, AxisKind.LOOP) as i:
                along(pack, 0, k, self.lanes, lambda kk: self.put(at, panel, i, kk))
            with pack.loop(subtract(self.rows, height), AxisKind.LOOP) as i:
                along(pack, 0, k, self.lanes, lambda kk: self.put_zero(at, panel, add(height, i), kk))

    def copy_columns(self, at: Sequence[Dim], panel: Dim, height: Dim, first: Dim, count: Dim) -> None:
        """Copies `height` rows of a panel, `count` steps of K from `first` on; rows that are missing are zeros."""
        pack, lanes = self.pack, min(4, self.lanes)
        with pack.loop(rows_to_clear(count, height, self.rows), AxisKind.LOOP) as kk:
            along(pack, 0, self.rows, lanes, lambda i: self.put_zero(at, panel, i, add(first, kk)))
        with pack.loop(count, AxisKind.LOOP) as kk:
            along(pack, 0, height, lanes, lambda i: self.put(at, panel, i, add(first, kk)))


def _packs_own_panels(product: Product) -> bool:
    """True where each GRID iteration packs the panel of columns that it reads, and no memory is needed for all of them."""
    k, pieces = product.k, product.pieces
    if not isinstance(k, int) or not isinstance(pieces, int) or k * product.nr * product.dtype.itemsize > PANEL_BYTES_MAX:
        return False
    return pieces <= (1 if packs_slowly(product.rhs, product.dtype, product.lanes) else REPEATS_MAX)


def _own_right(product: Product, batch: Sequence[Dim], column: Dim, build: Builder) -> Operand:
    """One panel of nr columns, row after row of K; the last panel is filled up with columns of zeros."""
    b, nr, lanes, dtype, k = product.rhs, product.nr, product.lanes, product.dtype, product.k
    assert isinstance(k, int)
    memory = build.alloc(dtype, k * nr, MemorySpace.SHARED)
    first = mul(column, product.panel)
    width = minimum(subtract(product.n, first), nr)

    along_k = contiguous_axis(b) == -2
    with build.loop(rows_to_clear(k, width, nr), AxisKind.LOOP) as kk:
        along(build, 0, nr, lanes, lambda c: build.store(memory, add(mul(kk, nr), c), const(0, dtype)))
    length = rows_to_transpose(k) if along_k else k
    with build.loop(ceildiv(k, length), AxisKind.LOOP) as block:
        start = mul(block, length)

        def place(kk: Dim, c: Dim) -> Dim:
            return add(mul(add(start, kk), nr), c)

        def coords(kk: Dim, c: Dim) -> Coords:
            return (*batch, add(start, kk), add(first, c))

        extents = (width, minimum(subtract(k, start), length))
        fill_panel(b, memory, nr, lanes, along_k, extents, place, coords, build)
    return lambda at, panel, c, kk: read(memory, add(mul(kk, nr), c))


# ---- few rows: the matrix is read where it is ----
Rows = Callable[[Dim, Dim], Op]  # the element of a row at k

K_AT_ONCE = 8  # products added to a sum between its load and its store
FEW_ROWS_TILES_MAX = 2  # rows are few up to as many register tiles, and have one vector of sums each in place of two; up to
# one tile for a batch of row-major matrices: what is packed for one of them is still in the cache
COLUMN_VECTORS_MIN = 4  # for several rows: with fewer, columns that fill no vector would be most of the time


def has_few_rows(nest: Nest, target: Target) -> bool:
    """True for a product of one row, or on a CPU of few, each of a batch with a matrix of its own."""
    if nest.kind is not NestKind.MATMUL or nest.anchor is None:
        return False
    *batch, m, n = nest.anchor.shape
    if numel((*batch, m)) == 1:
        return True
    if target.is_gpu or not isinstance(m, int):
        return False
    is_wide = not isinstance(n, int) or n >= COLUMN_VECTORS_MIN * target.sum_lanes(nest.anchor.dtype)
    tiles = 1 if numel(batch) != 1 and contiguous_axis(nest.anchor.src[1]) == -1 else FEW_ROWS_TILES_MAX
    return is_wide and m <= tiles * most_rows(target)


def as_reduction(nest: Nest) -> Nest:
    """Returns the nest of the same product as sums along rows of the matrix: what a GPU's many threads share out."""
    anchor = nest.anchor
    (a, b), wide = anchor.src, anchor.dtype.compute_dtype
    domain = (*anchor.shape, a.shape[-1])  # (..., 1, N, K)
    row = expand(reshape(cast(a, wide), (*a.shape[:-1], 1, a.shape[-1])), domain)
    matrix = reshape(cast(swap_last(b), wide), domain)
    total = cast(reduce(row * matrix, OpCode.ADD, (len(domain) - 1,)), anchor.dtype)
    slots, values = zip(*nest.outputs)
    outputs = tuple(zip(slots, substitute(values, {anchor: total})))
    return Nest(NestKind.REDUCE, domain, (len(domain) - 1,), None, outputs)


def emit_few_rows(nest: Nest, context: Context) -> None:
    """Writes a product of few rows: the rows into memory in phase `pack`, the sums in phase `build`."""
    params, target, scratch = context.params, context.target, context.scratch
    pack, build = context.phase(0), context.phase(1)
    product = _FewRows(nest, params, build, target)
    rows = _rows(nest.anchor, product.lanes, pack, scratch)
    if product.lanes > 1 and contiguous_axis(product.matrix) == -2:
        product.by_squares(rows)
    else:
        product.by_strips(rows)


def _rows(anchor: Op, lanes: int, pack: Builder, scratch: Scratch) -> Callable[[Coords], Rows]:
    """Returns how to read the rows of each product: from memory, or from a copy, computed or spread over a cache's sets."""
    a, dtype = anchor.src[0], anchor.dtype.compute_dtype
    *batch, m, k = a.shape
    if is_plain(a) and (m == 1 or not shares_cache_sets(k)):
        return lambda at: lambda i, k: cast(element_within(a, (*at, i, k)), dtype)
    length = k if m == 1 else add(k, BETWEEN_ROWS)
    memory = scratch(dtype, mul(numel((*batch, m)), length))
    with pack.loop(numel((*batch, m)), AxisKind.GRID) as row:
        here = unflatten(row, (*batch, m))

        def put(k: Dim) -> None:
            pack.store(memory, add(mul(row, length), k), cast(element_within(a, (*here, k)), dtype))

        along(pack, 0, k, lanes, put)
    return lambda at: lambda i, k: read(memory, add(mul(flatten((*at, i), (*batch, m)), length), k))


class _FewRows:
    """Products of few rows that are being written.

    matrix:  (..., K, N)
    lanes:   of a vector of sums
    at:      which of the batch
    """

    k: Dim
    n: Dim

    def __init__(self, nest: Nest, params: Sequence[Op], build: Builder, target: Target):
        self.nest, self.params, self.build, self.anchor = nest, params, build, nest.anchor
        self.matrix, self.dtype = self.anchor.src[1], self.anchor.dtype.compute_dtype
        self.lanes, self.has_fma = target.sum_lanes(self.anchor.dtype), target.has_fma
        self.batch, self.at = self.anchor.shape[:-2], list[Dim]()
        self.k, self.n = self.matrix.shape[-2:]
        m = self.anchor.shape[-2]
        assert isinstance(m, int)
        self.m = m

    def element(self, k: Dim, column: Dim) -> Op:
        """Returns an element of the matrix."""
        return cast(element_within(self.matrix, (*self.at, k, column)), self.dtype)

    def ask_for(self, k: Dim, column: Dim) -> None:
        """Asks for the line of memory with an element of the matrix."""
        prefetch_large(self.build, [self.element(k, column)], numel(self.matrix.shape))

    def added(self, row: Op, element: Op, total: Op) -> Op:
        """Returns a sum with a product added."""
        return multiply_add(row, element, total, self.has_fma)

    def store(self, row: Dim, column: Dim, total: Op) -> None:
        """Writes the epilogue of a column."""
        coords = (*self.at, row, column)
        store_outputs(self.nest, self.params, coords, cast(total, self.anchor.dtype), self.build)

    # ---- row-major matrices ----
    def by_strips(self, rows_at: Callable[[Coords], Rows]) -> None:
        """Writes the loops: GRID over strips of columns."""
        build, columns = self.build, self._strip_columns()
        strips = ceildiv(self.n, columns)
        with build.loop(numel((*self.batch, strips)), AxisKind.GRID) as position:
            *self.at, strip = unflatten(position, (*self.batch, strips))
            start = mul(strip, columns)
            width = minimum(subtract(self.n, start), columns)
            sums = _Strip(self, rows_at(tuple(self.at)), start, width, columns)
            totals = sums.fresh()
            if is_cut(self.k, self.dtype):
                blocks_of_k(build, self.k, totals, sums.fresh, sums.join, sums.add_own_block)
            else:
                sums.add_block(totals, 0, self.k)
            sums.each(lambda i, c, where: self.store(i, add(start, c), build.load(totals, where)))

    def _strip_columns(self) -> int:
        """Returns how many columns a strip has."""
        if not isinstance(self.n, int):
            return STRIP_VECTORS_MAX * self.lanes
        batch = numel(self.batch)
        strips = ceildiv(STRIPS_MIN, max(1, batch)) if isinstance(batch, int) else STRIPS_MIN
        vectors = ceildiv(self.n, self.lanes)
        return max(1, min(STRIP_VECTORS_MAX, vectors // strips)) * self.lanes

    # ---- column-major matrices ----
    def by_squares(self, rows_at: Callable[[Coords], Rows]) -> None:
        """Writes the loops: GRID over vectors of columns, and the columns that fill no vector."""
        build, lanes, batch = self.build, self.lanes, self.batch
        whole = floordiv(self.n, lanes)
        with build.loop(numel((*batch, whole)), AxisKind.GRID) as position:
            *self.at, vector = unflatten(position, (*batch, whole))
            self._columns(rows_at(tuple(self.at)), mul(vector, lanes), lanes)
        rest = mod(self.n, lanes)
        if rest != 0:
            with build.loop(numel((*batch, minimum(rest, 1))), AxisKind.GRID) as position:
                *self.at, _ = unflatten(position, (*batch, minimum(rest, 1)))
                self._columns(rows_at(tuple(self.at)), mul(whole, lanes), rest)

    def _columns(self, rows: Rows, start: Dim, count: Dim) -> None:
        """Writes a vector of columns, the first `count` of them columns of the matrix; the others are taken for zeros."""
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
                element = squares.at(build, (*self.at, first, start), count)
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
        """Writes the epilogue of a tile: from registers, or where it is written once for all rows, from memory."""
        build = self.build
        if self.m == 1 and count == self.lanes:
            tile.each(build, lambda i, c, where: self.store(i, add(start, c), build.load(acc, where)))
            return
        done = build.alloc(self.dtype, self.m * self.lanes, MemorySpace.SHARED)
        tile.each(build, lambda i, c, where: build.store(done, where, build.load(acc, where)))
        with build.loop(self.m, AxisKind.LOOP) as i:
            first = mul(i, self.lanes)
            along(build, 0, count, self.lanes, lambda c: self.store(i, add(start, c), build.load(done, add(first, c))))


class _Strip:
    """Sums of a strip of columns, all rows of each, in the cache.

    start, width:  its columns
    pitch:         columns that a row of sums has room for
    """

    def __init__(self, product: _FewRows, rows: Rows, start: Dim, width: Dim, pitch: int):
        self.product, self.rows, self.start, self.width, self.pitch = product, rows, start, width, pitch
        self.build, self.m, self.lanes = product.build, product.m, product.lanes

    def each(self, body: Callable[[Dim, Dim, Dim], None]) -> None:
        """Runs body(row, column, place) for each sum."""
        with self.build.loop(self.m, AxisKind.LOOP) as i:
            first = mul(i, self.pitch)
            along(self.build, 0, self.width, self.lanes, lambda c: body(i, c, add(first, c)))

    def fresh(self) -> Op:
        """Returns memory of sums that are 0."""
        build, dtype = self.build, self.product.dtype
        totals = build.alloc(dtype, self.m * self.pitch, MemorySpace.SHARED)
        self.each(lambda i, c, where: build.store(totals, where, const(0, dtype)))
        return totals

    def join(self, part: Op, totals: Op) -> None:
        """Adds sums to others."""
        build = self.build

        def put(i: Dim, c: Dim, where: Dim) -> None:
            both = (build.load(totals, where), build.load(part, where))
            build.store(totals, where, Op(OpCode.ADD, self.product.dtype, both))

        self.each(put)

    def add_block(self, totals: Op, first: Dim, count: Dim) -> None:
        """Adds products of a block of K, K_AT_ONCE at a time."""
        build, whole = self.build, floordiv(count, K_AT_ONCE)
        with build.loop(whole, AxisKind.LOOP) as number:
            self.add_products(totals, add(first, mul(number, K_AT_ONCE)), K_AT_ONCE)
        done = add(first, mul(whole, K_AT_ONCE))
        with build.loop(mod(count, K_AT_ONCE), AxisKind.LOOP) as k:
            self.add_products(totals, add(done, k), 1)

    def add_own_block(self, totals: Op, first: Dim, count: Dim) -> None:
        """Adds the sums of a block of K, which are added up by themselves."""
        own = self.fresh()
        self.add_block(own, first, count)
        self.join(own, totals)

    def add_products(self, totals: Op, k: Dim, count: int) -> None:
        """Adds `count` products to each sum between loading and storing it; the next elements are asked for meanwhile."""
        product, build, pitch = self.product, self.build, self.pitch

        def column(c: Dim) -> None:
            of_row = [build.load(totals, add(i * pitch, c)) for i in range(self.m)]
            for step in range(count):
                element = product.element(add(k, step), add(self.start, c))
                of_row = [product.added(self.rows(i, add(k, step)), element, total) for i, total in enumerate(of_row)]
            for i, total in enumerate(of_row):
                build.store(totals, add(i * pitch, c), total)

        def ahead(c: Dim) -> None:
            with build.loop(count if self.m > 1 else 0, AxisKind.UNROLL) as step:
                product.ask_for(add(k, add(count, step)), add(self.start, c))

        along(build, 0, self.width, self.lanes, column, ahead)
