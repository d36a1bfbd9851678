"""The loops of a matrix product on a CPU: packed panels, a register tile, and the epilogue on a tile in cache.

In:    Nest (kind MATMUL), whose anchor is the MATMUL
Out:   two phases of statements in the free form: pack, multiply
Called by: codegen/lower.py.    Next: picograd/codegen/matmul_gpu.py

The micro-kernel keeps an MR x NR tile of the result in registers while it walks all of K; its operands come from
panels in which what it reads next lies next. Packing evaluates the operands' expressions, so whatever stands
before the product (a transpose, a mask, an activation) costs one pass over the operand and no memory of its own.
Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication", is the source of the layout.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.codegen.axes import coefficients, index_roots
from picograd.codegen.builder import Builder, read
from picograd.codegen.elementwise import along, split
from picograd.codegen.index import element, element_within
from picograd.codegen.reduce import accumulator_dtype
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import swap_last
from picograd.ir.coordinates import Coords, flatten, placeholder
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mod, mul, subtract

Scratch = Callable[[DType, Dim], Op]
ROW_PANELS = 8  # row panels of one GRID iteration
PACK_ROWS = 32  # rows of K that one GRID iteration packs
PACK_TRANSPOSED = 16  # the same where packing transposes: a cache line of each column


@dataclass(frozen=True)
class Tiles:
    """The choices of one product, from its shapes and the target alone.

    lanes:      of one vector
    mr:         rows of the register tile
    vectors:    vectors side by side in it; nr = vectors * lanes columns
    """

    lanes: int
    mr: int
    vectors: int

    @property
    def nr(self) -> int:
        return self.vectors * self.lanes


def choose_tiles(m: Dim, n: Dim, dtype: DType, target: Target) -> Tiles:
    """Returns the register tile: as many accumulators as the registers hold, no larger than the result."""
    lanes = max(1, target.vector_bytes // max(4, dtype.itemsize))
    vectors = 1 if isinstance(n, int) and n <= lanes else 2
    rows = 12 if target.num_registers >= 32 else 6
    return Tiles(lanes, min(rows, m) if isinstance(m, int) else rows, vectors)


@dataclass(frozen=True)
class Operand:
    """One operand as the micro-kernel reads it.

    at:  at(batch, panel, position in the panel, k) -> its expression
    """

    at: Callable[[Sequence[Dim], Dim, Dim, Dim], Op]


@dataclass(frozen=True)
class Product:
    """A product as the loops see it: rows times columns, perhaps those of the transposed product.

    lhs, rhs:  (..., M, K) and (..., K, N)
    turned:    it is b.T @ a.T that is computed, and stored as a @ b
    """

    anchor: Op
    lhs: Op
    rhs: Op
    turned: bool

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


def turn(anchor: Op) -> Product:
    """Chooses which operand becomes columns: where K is contiguous in both, packing transposes it, so the smaller.

    (M, K) @ (N, K).T with M < N, a layer on a small batch, is computed as (N, K) @ (M, K).T and stored transposed.
    """
    a, b = anchor.src
    m, n = a.shape[-2], b.shape[-1]
    both_along_k = contiguous_axis(a) == len(a.shape) - 1 and contiguous_axis(b) == len(b.shape) - 2
    if both_along_k and isinstance(m, int) and isinstance(n, int) and 2 * m <= n:
        return Product(anchor, swap_last(b), swap_last(a), True)
    return Product(anchor, a, b, False)


def emit_matmul(
    nest: Nest, params: Sequence[Op], pack: Builder, build: Builder, target: Target, scratch: Scratch
) -> None:
    """Writes a product: operands into panels in phase `pack`, tiles of the result in phase `build`."""
    anchor = nest.anchor
    assert anchor is not None
    product = turn(anchor)
    dtype = accumulator_dtype(anchor)
    tiles = choose_tiles(product.m, product.n, dtype, target)
    lhs = _left(product.lhs, tiles, product.n, pack, scratch, dtype)
    rhs = _right(product.rhs, tiles, pack, scratch, dtype)
    row_panels = floordiv(add(product.m, tiles.mr - 1), tiles.mr)
    column_panels = floordiv(add(product.n, tiles.nr - 1), tiles.nr)
    pieces = floordiv(add(row_panels, ROW_PANELS - 1), ROW_PANELS)
    batch = product.batch
    with build.loop(numel((*batch, column_panels, pieces)), AxisKind.GRID) as position:
        *at, column, piece = split(position, [*batch, column_panels, pieces])
        start = mul(piece, ROW_PANELS)
        with build.loop(minimum(subtract(row_panels, start), ROW_PANELS), AxisKind.LOOP) as index:
            row = add(start, index)
            tile = _multiply_tile(product, tiles, at, row, column, lhs, rhs, dtype, build)
            _store_tile(nest, product, params, tiles, at, row, column, tile, build)


def _multiply_tile(
    product: Product, tiles: Tiles, batch: Sequence[Dim], row: Dim, column: Dim,
    lhs: Operand, rhs: Operand, dtype: DType, build: Builder,
) -> Op:  # fmt: skip
    """The micro-kernel: mr x nr accumulators over all of K, left in a tile of memory."""
    acc = build.alloc(dtype, tiles.mr * tiles.nr, MemorySpace.REGISTER)
    tile = build.alloc(dtype, tiles.mr * tiles.nr, MemorySpace.SHARED)

    def each(body: Callable[[Op, Op, Op, Dim], None]) -> None:
        with (
            build.loop(tiles.mr, AxisKind.UNROLL) as i,
            build.loop(tiles.vectors, AxisKind.UNROLL) as vector,
            build.loop(tiles.lanes, AxisKind.VECTOR) as lane,
        ):
            body(i, vector, lane, add(mul(i, tiles.nr), add(mul(vector, tiles.lanes), lane)))

    each(lambda i, vector, lane, where: build.store(acc, where, const(0, dtype)))
    with build.loop(product.k, AxisKind.LOOP) as k:

        def step(i: Op, vector: Op, lane: Op, where: Dim) -> None:
            a = lhs.at(batch, row, i, k)
            b = rhs.at(batch, column, add(mul(vector, tiles.lanes), lane), k)
            build.store(acc, where, multiply_add(a, b, build.load(acc, where)))

        each(step)
    each(lambda i, vector, lane, where: build.store(tile, where, build.load(acc, where)))
    return tile


def multiply_add(a: Op, b: Op, c: Op) -> Op:
    """Returns a * b + c: with one rounding for floats."""
    if c.dtype.is_float:
        return Op(OpCode.FMA, c.dtype, (a, b, c))
    if c.dtype is dtypes.bool_:
        return Op(OpCode.OR, c.dtype, (Op(OpCode.AND, c.dtype, (a, b)), c))
    return Op(OpCode.ADD, c.dtype, (Op(OpCode.MUL, c.dtype, (a, b)), c))


def _store_tile(
    nest: Nest, product: Product, params: Sequence[Op], tiles: Tiles, batch: Sequence[Dim], row: Dim, column: Dim,
    tile: Op, build: Builder,
) -> None:  # fmt: skip
    """The epilogue: outputs from the tile, by rows, only where the result is."""
    anchor = product.anchor
    first_row, first_column = mul(row, tiles.mr), mul(column, tiles.nr)
    with build.loop(minimum(subtract(product.m, first_row), tiles.mr), AxisKind.LOOP) as i:

        def store(c: Dim) -> None:
            at = (add(first_row, i), add(first_column, c))
            value = build.load(tile, add(mul(i, tiles.nr), c))
            done = value if value.dtype is anchor.dtype else Op(OpCode.CAST, anchor.dtype, (value,))
            store_outputs(nest, params, (*batch, *(at[::-1] if product.turned else at)), done, build)

        along(build, 0, minimum(subtract(product.n, first_column), tiles.nr), tiles.lanes, store)


def store_outputs(nest: Nest, params: Sequence[Op], coords: Coords, value: Op, build: Builder) -> None:
    """Stores every output of a nest at `coords` of its anchor, whose value there is `value`."""
    assert nest.anchor is not None
    axes = range(len(coords))
    done = [element_within(output, coords, {nest.anchor: value}, axes) for _, output in nest.outputs]
    for (slot, _), result in zip(nest.outputs, done):
        build.store(params[slot], flatten(coords, nest.domain), result)


# ---- packing ----
def _left(a: Op, tiles: Tiles, n: Dim, pack: Builder, scratch: Scratch, dtype: DType) -> Operand:
    """Panels of mr rows. They keep rows of K where K is contiguous, and otherwise put the mr rows side by side.

    Rows are stored 16 elements longer than K: with a K of a power of two they would all share one cache set.
    """
    *batch, m, k = a.shape
    along_k = contiguous_axis(a) == len(a.shape) - 1
    if along_k and isinstance(n, int) and n <= 4 * tiles.nr and _is_plain(a) and not _shares_cache_sets(k):
        last = subtract(m, 1)

        def direct(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> Op:
            return element_within(a, (*at, minimum(add(mul(panel, tiles.mr), i), last), kk))

        return Operand(direct)
    panels = floordiv(add(m, tiles.mr - 1), tiles.mr)
    length = add(k, 16) if along_k else k
    memory = scratch(dtype, numel((*batch, panels, tiles.mr, length)))
    shape: Shape = (*batch, panels, tiles.mr, length) if along_k else (*batch, panels, length, tiles.mr)

    def where(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> Dim:
        return flatten((*at, panel, i, kk) if along_k else (*at, panel, kk, i), shape)

    def put(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> None:
        value = element_within(a, (*at, add(mul(panel, tiles.mr), i), kk))
        pack.store(memory, where(at, panel, i, kk), _as(value, dtype))

    if along_k:
        with pack.loop(numel((*batch, panels)), AxisKind.GRID) as position:
            *at, panel = split(position, [*batch, panels])
            with pack.loop(minimum(subtract(m, mul(panel, tiles.mr)), tiles.mr), AxisKind.LOOP) as i:
                along(pack, 0, k, tiles.lanes, lambda kk: put(at, panel, i, kk))
    else:

        def fill(at: Sequence[Dim], panel: Dim, height: Dim, first: Dim, count: Dim) -> None:
            with pack.loop(count, AxisKind.LOOP) as kk:
                along(pack, 0, height, min(4, tiles.lanes), lambda i: put(at, panel, i, add(first, kk)))

        _in_blocks(pack, batch, k, PACK_ROWS, m, tiles.mr, fill)
    return Operand(lambda at, panel, i, kk: read(memory, where(at, panel, i, kk)))


def _in_blocks(
    pack: Builder, batch: Sequence[Dim], k: Dim, block: int, length: Dim, width: int,
    fill: Callable[[Sequence[Dim], Dim, Dim, Dim, Dim], None],
) -> None:  # fmt: skip
    """Fills panels of `width` a block of K at a time: what is written together stays in cache, what is read in the TLB.

    fill(batch, panel, how much of its width, first k, how many); what the last panel lacks is never stored.
    """
    blocks, whole, rest = floordiv(add(k, block - 1), block), floordiv(length, width), mod(length, width)
    with pack.loop(numel((*batch, blocks)), AxisKind.GRID) as position:
        *at, number = split(position, [*batch, blocks])
        first = mul(number, block)
        count = minimum(subtract(k, first), block)
        with pack.loop(whole, AxisKind.LOOP) as panel:
            fill(at, panel, width, first, count)
        if rest != 0:
            fill(at, whole, rest, first, count)


def _right(b: Op, tiles: Tiles, pack: Builder, scratch: Scratch, dtype: DType) -> Operand:
    """Panels of nr columns, row after row of K; the last panel is filled up with columns nobody stores."""
    *batch, k, n = b.shape
    panels = floordiv(add(n, tiles.nr - 1), tiles.nr)
    shape: Shape = (*batch, panels, k, tiles.nr)
    memory = scratch(dtype, numel(shape))
    along_k = contiguous_axis(b) == len(b.shape) - 2

    def put(at: Sequence[Dim], panel: Dim, kk: Dim, c: Dim) -> None:
        column = add(mul(panel, tiles.nr), c)
        value = element_within(b, (*at, kk, column))
        pack.store(memory, flatten((*at, panel, kk, c), shape), _as(value, dtype))

    def fill(at: Sequence[Dim], panel: Dim, width: Dim, first: Dim, count: Dim) -> None:
        if along_k:
            with pack.loop(width, AxisKind.LOOP) as c, pack.loop(count, AxisKind.LOOP) as kk:
                put(at, panel, add(first, kk), c)
        else:
            with pack.loop(count, AxisKind.LOOP) as kk:
                along(pack, 0, width, tiles.lanes, lambda c: put(at, panel, add(first, kk), c))

    _in_blocks(pack, batch, k, PACK_TRANSPOSED if along_k else PACK_ROWS, n, tiles.nr, fill)
    return Operand(lambda at, panel, c, kk: read(memory, flatten((*at, panel, kk, c), shape)))


def contiguous_axis(operand: Op) -> int:
    """Returns the axis along which most of an operand's accesses are contiguous; the last if none is."""
    ranges = [placeholder(axis, dim) for axis, dim in enumerate(operand.shape)]
    factors = [coefficients(root, ranges) for root in index_roots([element(operand, tuple(ranges))])]
    counts = [sum(f is not None and f[axis] == 1 for f in factors) for axis in range(len(ranges))]
    best = max(counts[-2:])
    return len(ranges) - 1 if counts[-1] == best else len(ranges) - 2


def _is_plain(operand: Op) -> bool:
    return element(operand, tuple(placeholder(axis, dim) for axis, dim in enumerate(operand.shape))).code is OpCode.LOAD


def _shares_cache_sets(k: Dim) -> bool:
    return not isinstance(k, int) or k % 1024 == 0


def _as(value: Op, dtype: DType) -> Op:
    return value if value.dtype is dtype else Op(OpCode.CAST, dtype, (value,))
