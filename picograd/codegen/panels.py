"""Packs the operands of a matrix product into panels in which what the micro-kernel reads next lies next.

In:    a `Product`: its operands, its tile
Out:   `Operand`s: where an element of a panel is read; the statements that put it there
Called by: codegen/matmul.py.    Next: picograd/codegen/matmul_gpu.py

Each GRID iteration packs the panels that it multiplies, on its thread's stack: at most MOST_COLUMNS + MOST_ROWS bytes,
however large the operands are. Where panels are longer, or K has no fixed length, all of them are packed before, into
memory that the plan lends. Packing evaluates the operands' expressions, so whatever stands before the product (a
transpose, a mask, an activation) costs a pass over the operand and no memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from picograd.codegen.axes import coefficients, index_roots
from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.elementwise import along, split
from picograd.codegen.index import element, element_within
from picograd.codegen.reduce import accumulator_dtype
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import cast, swap_last
from picograd.ir.coordinates import flatten, placeholder
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.opts import RegisterTile
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, minimum, mod, mul, subtract

PACK_ROWS = 32  # rows of K that are packed at a time: their pages stay in the TLB
PACK_TRANSPOSED = 16  # the same where packing transposes: a cache line of each column
MOST_COLUMNS = 1 << 20  # bytes of the panels of columns that a GRID iteration packs
MOST_ROWS = 384 << 10  # bytes of a panel of rows that it packs
MOST_GROUP = 192 << 10  # bytes up to which several are packed together
GROUP = 4  # panels of rows that one panel of columns is read for; rows of 12 floats side by side fill lines by fours
DIRECT = 4  # panels of columns up to which rows are read where they lie
APART = 16  # elements between rows: with a K of a power of two they would all share one cache set


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
    tile:      how it is cut
    lanes:     of one vector
    """

    anchor: Op
    lhs: Op
    rhs: Op
    tile: RegisterTile
    lanes: int

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
    def dtype(self) -> DType:
        """In which dtype it is accumulated."""
        return accumulator_dtype(self.anchor)


def product_of(anchor: Op, tile: RegisterTile, target: Target) -> Product:
    """Returns the product that the loops of `emit_matmul` compute."""
    a, b = anchor.src
    lhs, rhs = (swap_last(b), swap_last(a)) if tile.turned else (a, b)
    return Product(anchor, lhs, rhs, tile, lanes_of(anchor, target))


def lanes_of(anchor: Op, target: Target) -> int:
    """Returns how many elements of the accumulators a vector holds."""
    return max(1, target.vector_bytes // max(4, accumulator_dtype(anchor).itemsize))


def count_of(extent: Dim, step: int) -> Dim:
    """Returns how many pieces of `step` cover an extent."""
    return floordiv(add(extent, step - 1), step)


def packs_for_itself(product: Product) -> bool:
    """True where each GRID iteration packs the panels that it reads."""
    tile = product.tile
    return fits_a_thread(product.k, tile.rows, product.nr * tile.columns, product.dtype.itemsize)


def fits_a_thread(k: Dim, rows: int, columns: int, itemsize: int) -> bool:
    """True where a thread's stack has room for so many rows and columns of length K."""
    return isinstance(k, int) and k * columns * itemsize <= MOST_COLUMNS and k * rows * itemsize <= MOST_ROWS


def reads_rows_in_place(lhs: Op, n: Dim, nr: int) -> bool:
    """True where rows are not packed: their elements lie next to each other, and few columns read them."""
    if not (is_along_k(lhs, -1) and isinstance(n, int) and n <= DIRECT * nr) or _shares_cache_sets(lhs.shape[-1]):
        return False
    return element(lhs, tuple(placeholder(axis, dim) for axis, dim in enumerate(lhs.shape))).code is OpCode.LOAD


def rows_in_place(product: Product) -> Operand:
    """The left operand as it is stored."""
    a, rows = product.lhs, product.tile.rows
    last = subtract(product.m, 1)
    return Operand(lambda at, panel, i, kk: element_within(a, (*at, minimum(add(mul(panel, rows), i), last), kk)))


# ---- by who reads them ----
def group_of(product: Product) -> int:
    """Returns how many panels of rows are packed together."""
    assert isinstance(product.k, int)
    nbytes = product.k * product.tile.rows * product.dtype.itemsize
    return max(1, min(GROUP, product.tile.panels, MOST_GROUP // max(1, nbytes)))


def own_left(product: Product, batch: Sequence[Dim], begin: Dim, group: int, build: Builder) -> Operand:
    """`group` panels of rows from panel `begin` on; what the last one lacks is never stored."""
    a, rows, lanes, dtype, k = product.lhs, product.tile.rows, product.lanes, product.dtype, product.k
    assert isinstance(k, int)
    along_k = is_along_k(a, -1)
    length = k + APART if along_k else k
    memory = build.alloc(dtype, group * rows * length, MemorySpace.SHARED)
    first = mul(begin, rows)
    height = minimum(subtract(product.m, first), group * rows)

    def where(panel: Dim, i: Dim, kk: Dim) -> Dim:
        return add(mul(panel, rows * length), add(mul(i, length), kk) if along_k else add(mul(kk, rows), i))

    def put(panel: Dim, i: Dim, kk: Dim) -> None:
        value = element_within(a, (*batch, add(first, add(mul(panel, rows), i)), kk))
        build.store(memory, where(panel, i, kk), cast(value, dtype))

    def fill(panel: Dim, count: Dim, start: Dim) -> None:
        with build.loop(minimum(subtract(k, start), PACK_ROWS), AxisKind.LOOP) as kk:
            _across(build, count, min(4, lanes), lambda i: put(panel, i, add(start, kk)))

    if along_k:  # rows of all panels, one after the other
        with build.loop(height, AxisKind.LOOP) as i:
            along(build, 0, k, lanes, lambda kk: put(0, i, kk))
    else:
        whole, rest = floordiv(height, rows), mod(height, rows)
        with build.loop(count_of(k, PACK_ROWS), AxisKind.LOOP) as block:
            with build.loop(whole, AxisKind.LOOP) as panel:
                fill(panel, rows, mul(block, PACK_ROWS))
            if rest != 0:
                fill(whole, rest, mul(block, PACK_ROWS))
    return Operand(lambda at, panel, i, kk: read(memory, where(subtract(panel, begin), i, kk)))


def own_right(product: Product, batch: Sequence[Dim], begin: Dim, build: Builder) -> Operand:
    """The tile's panels of columns from panel `begin` on, row after row of K; what the last lacks is never stored."""
    b, nr, lanes, dtype, k = product.rhs, product.nr, product.lanes, product.dtype, product.k
    assert isinstance(k, int)
    length = (k + 1) * nr  # one row apart: panels of a power of two would all share one cache set
    memory = build.alloc(dtype, product.tile.columns * length, MemorySpace.SHARED)
    first = mul(begin, nr)
    width = minimum(subtract(product.n, first), product.tile.columns * nr)
    whole, rest = floordiv(width, nr), mod(width, nr)

    def where(panel: Dim, c: Dim, kk: Dim) -> Dim:
        return add(mul(panel, length), add(mul(kk, nr), c))

    def put(panel: Dim, c: Dim, kk: Dim) -> None:
        value = element_within(b, (*batch, kk, add(first, add(mul(panel, nr), c))))
        build.store(memory, where(panel, c, kk), cast(value, dtype))

    def transpose(panel: Dim, count: Dim, start: Dim) -> None:
        block = minimum(subtract(k, start), PACK_TRANSPOSED)
        with build.loop(count, AxisKind.LOOP) as c, build.loop(block, AxisKind.LOOP) as kk:
            put(panel, c, add(start, kk))

    def each_panel(fill: Callable[[Dim, Dim], None]) -> None:
        with build.loop(whole, AxisKind.LOOP) as panel:
            fill(panel, nr)
        if rest != 0:
            fill(whole, rest)

    if is_along_k(b, -2):
        with build.loop(count_of(k, PACK_TRANSPOSED), AxisKind.LOOP) as block:
            each_panel(lambda panel, count: transpose(panel, count, mul(block, PACK_TRANSPOSED)))
    else:
        with build.loop(k, AxisKind.LOOP) as kk:
            each_panel(lambda panel, count: _across(build, count, lanes, lambda c: put(panel, c, kk)))
    return Operand(lambda at, panel, c, kk: read(memory, where(subtract(panel, begin), c, kk)))


def _across(build: Builder, count: Dim, lanes: int, body: Callable[[Dim], None]) -> None:
    """Runs `body` for 0 .. count; without a loop where the count is known."""
    if not isinstance(count, int):
        along(build, 0, count, lanes, body)
        return
    if count >= lanes:
        with build.loop(count // lanes, AxisKind.UNROLL) as vector, build.loop(lanes, AxisKind.VECTOR) as lane:
            body(add(mul(vector, lanes), lane))
    if count % lanes:
        with build.loop(count % lanes, AxisKind.UNROLL) as index:
            body(add(count // lanes * lanes, index))


# ---- all of them, before ----
def shared_left(product: Product, pack: Builder, scratch: Scratch) -> Operand:
    """Panels of rows. They keep rows of K where K is contiguous, and otherwise put the rows of a panel side by side.

    All of them, in memory that the plan lends.
    """
    a, rows, lanes, dtype = product.lhs, product.tile.rows, product.lanes, product.dtype
    *batch, m, k = a.shape
    along_k = is_along_k(a, -1)
    panels, length = count_of(m, rows), add(k, APART) if along_k else k
    memory = scratch(dtype, numel((*batch, panels, rows, length)))
    shape: Shape = (*batch, panels, rows, length) if along_k else (*batch, panels, length, rows)

    def where(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> Dim:
        return flatten((*at, panel, i, kk) if along_k else (*at, panel, kk, i), shape)

    def put(at: Sequence[Dim], panel: Dim, i: Dim, kk: Dim) -> None:
        value = element_within(a, (*at, add(mul(panel, rows), i), kk))
        pack.store(memory, where(at, panel, i, kk), cast(value, dtype))

    if along_k:
        with pack.loop(numel((*batch, panels)), AxisKind.GRID) as position:
            *at, panel = split(position, [*batch, panels])
            with pack.loop(minimum(subtract(m, mul(panel, rows)), rows), AxisKind.LOOP) as i:
                along(pack, 0, k, lanes, lambda kk: put(at, panel, i, kk))
    else:

        def fill(at: Sequence[Dim], panel: Dim, height: Dim, first: Dim, count: Dim) -> None:
            with pack.loop(count, AxisKind.LOOP) as kk:
                along(pack, 0, height, min(4, lanes), lambda i: put(at, panel, i, add(first, kk)))

        _in_blocks(pack, batch, k, PACK_ROWS, m, rows, fill)
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


def shared_right(product: Product, pack: Builder, scratch: Scratch) -> Operand:
    """Panels of nr columns, row after row of K; the last panel is filled up with columns nobody stores."""
    b, nr, lanes, dtype = product.rhs, product.nr, product.lanes, product.dtype
    *batch, k, n = b.shape
    shape: Shape = (*batch, count_of(n, nr), k, nr)
    memory = scratch(dtype, numel(shape))
    along_k = is_along_k(b, -2)

    def put(at: Sequence[Dim], panel: Dim, kk: Dim, c: Dim) -> None:
        column = add(mul(panel, nr), c)
        value = element_within(b, (*at, kk, column))
        pack.store(memory, flatten((*at, panel, kk, c), shape), cast(value, dtype))

    def fill(at: Sequence[Dim], panel: Dim, width: Dim, first: Dim, count: Dim) -> None:
        if along_k:
            with pack.loop(width, AxisKind.LOOP) as c, pack.loop(count, AxisKind.LOOP) as kk:
                put(at, panel, add(first, kk), c)
        else:
            with pack.loop(count, AxisKind.LOOP) as kk:
                along(pack, 0, width, lanes, lambda c: put(at, panel, add(first, kk), c))

    _in_blocks(pack, batch, k, PACK_TRANSPOSED if along_k else PACK_ROWS, n, nr, fill)
    return Operand(lambda at, panel, c, kk: read(memory, flatten((*at, panel, kk, c), shape)))


# ---- how an operand lies ----
def is_along_k(operand: Op, axis: int) -> bool:
    """True where most of an operand's accesses are contiguous along K, which is axis -1 on the left, -2 on the right."""
    return contiguous_axis(operand) == len(operand.shape) + axis


def contiguous_axis(operand: Op) -> int:
    """Returns the axis along which most of an operand's accesses are contiguous; the last if none is."""
    ranges = [placeholder(axis, dim) for axis, dim in enumerate(operand.shape)]
    factors = [coefficients(root, ranges) for root in index_roots([element(operand, tuple(ranges))])]
    counts = [sum(f is not None and f[axis] == 1 for f in factors) for axis in range(len(ranges))]
    best = max(counts[-2:])
    return len(ranges) - 1 if counts[-1] == best else len(ranges) - 2


def _shares_cache_sets(k: Dim) -> bool:
    return not isinstance(k, int) or k % 1024 == 0
