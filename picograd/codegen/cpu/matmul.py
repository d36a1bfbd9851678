"""The loops of a matrix product on a CPU: packed panels, a register tile, and an epilogue on a tile in cache if need be.

In:    Nest (kind MATMUL), whose anchor is the MATMUL, and a RegisterTile
Out:   two phases of statements in the free form: pack, multiply
Called by: codegen/emit.py.    Next: picograd/codegen/cpu/few_rows.py

The micro-kernel keeps an MR x NR tile of the result in registers while it walks K; blocks of a long K are added up in a
second tile. Its operands come from panels (codegen/cpu/panels.py). What its epilogue reads of large values is asked for
before the tile is computed.
Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", is the source of the layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.axes import rest_in_vectors
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.cpu.panels import (
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
)
from picograd.codegen.epilogue import store_outputs
from picograd.codegen.index import element_within
from picograd.codegen.loops import along, split
from picograd.codegen.operands import contiguous_axis, is_plain
from picograd.codegen.prefetch import prefetch_large
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import Tile
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, swap_last
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Dim, Op, Shape, const, toposort
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.opts import RegisterTile
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, less, minimum, mod, mul, subtract
from picograd.record import Record, replace

MOST_VECTORS = 40  # of a row of the result: one less to compute is worth a loop of its own
MOST_OWN = 112 << 10  # bytes of a panel that a thread packs for itself, on its stack: it stays in the second-level cache
MOST_REPEATS = 4  # times such a panel is packed, where packing copies vectors; where it goes element by element, once
FEWEST_PREFETCHED = 1 << 16  # elements: fewer are still in the second-level cache


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
        return floordiv(add(self.m, self.tile.rows - 1), self.tile.rows)

    @property
    def pieces(self) -> Dim:
        """Parts of the rows, each of some panels."""
        return floordiv(add(self.row_panels, self.tile.panels - 1), self.tile.panels)

    @property
    def dtype(self) -> DType:
        """In which dtype it is accumulated."""
        return accumulator_dtype(self.anchor)

    @property
    def registers(self) -> Tile:
        return Tile(self.tile.rows, self.tile.vectors, self.lanes, self.dtype, self.has_fma)


def product_of(anchor: Op, tile: RegisterTile, target: Target) -> Product:
    """Returns the product that the loops of `emit_matmul` compute."""
    a, b = anchor.src
    lhs, rhs = (swap_last(b), swap_last(a)) if tile.turned else (a, b)
    lanes = lanes_of(anchor, target)
    return Product(anchor, lhs, rhs, tile, lanes, target.has_fma, tile.vectors * lanes)


def lanes_of(anchor: Op, target: Target) -> int:
    """Returns how many elements of the accumulators a vector holds."""
    return max(1, target.vector_bytes // max(4, accumulator_dtype(anchor).itemsize))


def emit_matmul(nest: Nest, context: Context) -> None:
    """Writes a product: operands into panels in phase `pack`, tiles of the result in phase `build`."""
    params, target, scratch = context.params, context.target, context.scratch
    pack, build = context.phase(0), context.phase(1)
    tile = context.next_tile()
    assert nest.anchor is not None and isinstance(tile, RegisterTile)
    product = product_of(nest.anchor, tile, target)
    lhs = _left(product, pack, scratch)
    shared = None if _packs_own_panels(product) else pack_columns(
        product.rhs, product.nr, product.lanes, product.dtype, pack, scratch
    )
    panels, last = floordiv(add(product.n, product.nr - 1), product.nr), _vectors_of_last(product)
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
    last = -(-(n % nr) // product.lanes)
    return last if last and (vectors - last) * MOST_VECTORS >= -(-n // product.lanes) else 0


def _multiply(
    nest: Nest, product: Product, params: Sequence[Op], lhs: Operand, shared: Operand | None, columns: tuple[Dim, Dim],
    build: Builder,
) -> None:  # fmt: skip
    """Writes the loops over tiles of some panels of columns: the first, and how many."""
    batch, tile, (first, count) = product.batch, product.tile, columns
    with build.loop(numel((*batch, count, product.pieces)), AxisKind.GRID) as position:
        *at, piece, number = split(position, [*batch, product.pieces, count])  # the rows of a piece stay in cache
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
    return whole_columns and mod(product.m, product.tile.rows) == 0 and not product.tile.turned


def is_alone(nest: Nest) -> bool:
    """True where the product is stored, and nothing is computed of it."""
    return [output for _, output in nest.outputs] == [nest.anchor]


def _store_whole(
    product: Product, out: Op, batch: Sequence[Dim], row: Dim, column: Dim, acc: Op, build: Builder
) -> None:
    """Stores a tile of which nothing is computed any more."""

    def store(i: Dim, c: Dim, where: Dim) -> None:
        at = (*batch, add(mul(row, product.tile.rows), i), add(mul(column, product.panel), c))
        build.store(out, flatten(at, product.anchor.shape), cast(build.load(acc, where), product.anchor.dtype))

    product.registers.each(build, store)


def _prefetch(nest: Nest, product: Product, batch: Sequence[Dim], row: Dim, column: Dim, build: Builder) -> None:
    """Asks for values as large as the product that a tile's epilogue reads: they arrive while it is computed."""
    anchor, tile = product.anchor, product.tile
    count = numel(anchor.shape)
    if is_alone(nest) or not isinstance(count, int) or count < FEWEST_PREFETCHED:
        return
    zero = const(0, anchor.dtype)
    with build.loop(tile.rows, AxisKind.UNROLL) as i, build.loop(tile.vectors, AxisKind.UNROLL) as vector:
        at = (add(mul(row, tile.rows), i), add(mul(column, product.panel), mul(vector, product.lanes)))
        coords = (*batch, *(at[::-1] if tile.turned else at))
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
            store_outputs(nest, params, (*batch, *(at[::-1] if tile.turned else at)), value, build)

        count = minimum(subtract(product.n, first_column), product.nr)
        rest = rest_in_vectors(
            lambda: toposort([output for _, output in nest.outputs], stop={anchor}), product.n, product.lanes
        )
        along(build, 0, count, product.lanes, store, rest=rest)


# ---- packing ----
def _left(product: Product, pack: Builder, scratch: Scratch) -> Operand:
    """Panels of rows. They keep rows of K where K is contiguous, and otherwise put the rows of a panel side by side.

    Rows are stored longer than K: with a K of a power of two they would all share one cache set.
    """
    a, n, rows, lanes, dtype = product.lhs, product.n, product.tile.rows, product.lanes, product.dtype
    *batch, m, k = a.shape
    along_k = contiguous_axis(a) == -1
    if along_k and isinstance(n, int) and n <= 4 * product.nr and is_plain(a) and not shares_cache_sets(k):
        last = subtract(m, 1)

        def direct(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> Op:
            return element_within(a, (*at, minimum(add(mul(panel, rows), i), last), kk))

        return direct
    panels = floordiv(add(m, rows - 1), rows)
    length = add(k, BETWEEN_ROWS) if along_k else k
    memory = scratch(dtype, numel((*batch, panels, rows, length)))
    shape: Shape = (*batch, panels, rows, length) if along_k else (*batch, panels, length, rows)

    def where(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> Dim:
        return flatten((*at, panel, i, kk) if along_k else (*at, panel, kk, i), shape)

    def put(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> None:
        value = element_within(a, (*at, add(mul(panel, rows), i), kk))
        pack.store(memory, where(at, panel, i, kk), cast(value, dtype))

    def put_zero(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> None:
        pack.store(memory, where(at, panel, i, kk), const(0, dtype))

    if along_k:
        with pack.loop(numel((*batch, panels)), AxisKind.GRID) as position:
            *at, panel = split(position, [*batch, panels])
            height = minimum(subtract(m, mul(panel, rows)), rows)
            with pack.loop(height, AxisKind.LOOP) as i:
                along(pack, 0, k, lanes, lambda kk: put(at, panel, i, kk))
            with pack.loop(subtract(rows, height), AxisKind.LOOP) as i:
                along(pack, 0, k, lanes, lambda kk: put_zero(at, panel, add(height, i), kk))
    else:

        def fill(at: Sequence[Dim], panel: Dim, height: Dim, first: Dim, count: Dim) -> None:
            with pack.loop(rows_to_clear(count, height, rows), AxisKind.LOOP) as kk:
                along(pack, 0, rows, min(4, lanes), lambda i: put_zero(at, panel, i, add(first, kk)))
            with pack.loop(count, AxisKind.LOOP) as kk:
                along(pack, 0, height, min(4, lanes), lambda i: put(at, panel, i, add(first, kk)))

        in_blocks(pack, batch, k, PACK_ROWS, m, rows, fill)
    return lambda at, panel, i, kk: read(memory, where(at, panel, i, kk))


def _packs_own_panels(product: Product) -> bool:
    """True where each GRID iteration packs the panel of columns that it reads, and no memory is needed for all of them."""
    k, pieces = product.k, product.pieces
    if not isinstance(k, int) or not isinstance(pieces, int) or k * product.nr * product.dtype.itemsize > MOST_OWN:
        return False
    return pieces <= (1 if packs_slowly(product.rhs, product.dtype, product.lanes) else MOST_REPEATS)


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
    with build.loop(-(-k // length), AxisKind.LOOP) as block:
        start = mul(block, length)

        def place(kk: Dim, c: Dim) -> Dim:
            return add(mul(add(start, kk), nr), c)

        def coords(kk: Dim, c: Dim) -> Coords:
            return (*batch, add(start, kk), add(first, c))

        extents = (width, minimum(subtract(k, start), length))
        fill_panel(b, memory, nr, lanes, along_k, extents, place, coords, build)
    return lambda at, panel, c, kk: read(memory, add(mul(kk, nr), c))
