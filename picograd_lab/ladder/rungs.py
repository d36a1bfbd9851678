"""Seven rungs from three loops to the compiler's product, each an emitter with one more idea than the one before.

In:    `Product`
Out:   Programs; `RUNGS`, by name; FUSED and TWO_PASSES, which the compiler makes from Tensors

1 naive, 2 blocked, 3 vectors, 4 registers, 5 packed, 6 threads, 7 fused. The text before a rung says what it leaves
undone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, read
from picograd.codegen.loops import along
from picograd.ir.build import multiply_add
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.stages import Program
from picograd.ir.symbolic import add, less, minimum, mul, subtract, unflatten
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_lab.ladder.product import NUM_OPERANDS, Product, at, cuts


# ---- rung 1, naive ----
# The definition, c[i, j] = sum over k of a[i, k] * b[k, j], as three loops. Each addition waits for the one before, some
# 4 cycles, and b is read down a column: only 4 bytes of each cache line are used before the line is evicted.
def naive(product: Product) -> Program:
    """Returns three loops around one multiplication and one addition."""
    build = Builder()
    with build.loop(product.m, AxisKind.LOOP) as i, build.loop(product.n, AxisKind.LOOP) as j:
        total = build.alloc(dtypes.float32, 1, MemorySpace.REGISTER)
        build.store(total, 0, const(0.0, dtypes.float32))
        with build.loop(product.k, AxisKind.LOOP) as k:
            build.store(total, 0, build.load(total, 0) + product.a(i, k) * product.b(k, j))
        build.store(product.c, product.place(i, j), build.load(total, 0))
    return product.program("naive", build.finish())


# ---- rungs 2 and 3, blocked and vectors ----
# The same work in an order that suits caches; then 4, 8 or 16 columns at a time. A block of b, DEPTH rows of WIDTH
# columns, stays in the first-level cache during a pass over all rows of a. The innermost loop runs along rows of b and c,
# so it uses whole cache lines, and its sums do not wait for each other: it suits vectors, which change only this loop. Two
# loads and a store for each multiplication remain.
DEPTH, WIDTH = 4, 1024  # 16 KB of b; such long rows are contiguous in cache for any distance in memory


def blocked(product: Product) -> Program:
    """Returns loops over blocks of b, one column at a time."""
    return product.program("blocked", _emit(product, 1).finish())


def vectors(product: Product) -> Program:
    """Returns the same loops, with a vector of columns at a time."""
    return product.program("vectors", _emit(product, product.lanes).finish())


def _emit(product: Product, lanes: int) -> Builder:
    """Emits the loops: `DEPTH` rows of b, `WIDTH` columns wide, stay in the cache during a pass over all rows of a."""
    build = Builder()
    zero = const(0.0, dtypes.float32)
    along(build, 0, product.m * product.n, lanes, lambda place: build.store(product.c, place, zero))
    with (
        build.loop(-(-product.k // DEPTH), AxisKind.LOOP) as block,
        build.loop(-(-product.n // WIDTH), AxisKind.LOOP) as stripe,
        build.loop(product.m, AxisKind.LOOP) as i,
        build.loop(minimum(subtract(product.k, mul(block, DEPTH)), DEPTH), AxisKind.LOOP) as depth,
    ):
        k, first = add(mul(block, DEPTH), depth), mul(stripe, WIDTH)

        def multiply_add(j: Dim) -> None:
            place = product.place(i, j)
            build.store(product.c, place, build.load(product.c, place) + product.a(i, k) * product.b(k, j))

        along(build, first, minimum(subtract(product.n, first), WIDTH), lanes, multiply_add)
    return build


# ---- rung 4, registers ----
# Rows x vectors of sums stay in registers over all of K, and an FMA does two operations. With 12 x 2 vectors, 2 loads of
# b and 12 of single elements of a feed 24 FMAs, and nothing is stored inside the loop. The 24 sums do not wait for each
# other either: an FMA takes 4 cycles, up to two start in each, so 8 must be in flight. Left undone: b is read down a
# stripe of columns, from another row of it, and soon another page of memory, for each k.
@dataclass(frozen=True)
class Tile:
    """A tile of c: `rows` of `vectors` vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.vectors * self.lanes


def registers(product: Product) -> Program:
    """Returns loops over tiles of c; lower tiles and shorter vectors compute the edges."""
    build = Builder()
    halves = [product.lanes >> i for i in range(product.lanes.bit_length())]
    for column, num_columns, width in cuts(product.n, [product.width, *halves]):
        tile_vectors, lanes = (product.vectors, product.lanes) if width == product.width else (1, width)
        with build.loop(num_columns, AxisKind.LOOP) as column_index:
            j = add(column, mul(column_index, width))
            for row, num_rows, rows in cuts(product.m, [product.rows, product.m % product.rows or 1]):
                with build.loop(num_rows, AxisKind.LOOP) as row_index:
                    i = add(row, mul(row_index, rows))
                    _tile_of_c(build, product, Tile(rows, tile_vectors, lanes), i, j)
    return product.program("registers", build.finish())


def _tile_of_c(build: Builder, product: Product, tile: Tile, i: Dim, j: Dim) -> None:
    """Computes and stores the tile of c whose corner is c[i, j]."""
    sums = multiply_tile(
        build, product, tile, lambda row, k: product.a(add(i, row), k), lambda k, column: product.b(k, add(j, column))
    )

    def store(row: Op, column: Dim, place: Dim) -> None:
        build.store(product.c, product.place(add(i, row), add(j, column)), build.load(sums, place))

    each(build, tile, store)


def multiply_tile(
    build: Builder, product: Product, tile: Tile, a: Callable[[Op, Op], Op], b: Callable[[Op, Dim], Op]
) -> Op:
    """Emits the micro-kernel, a tile of sums over all of K, and returns the registers that hold them.

    Args:
      a:  (row of the tile, k) -> element of a
      b:  (k, column of the tile) -> element of b
    """
    sums = build.alloc(dtypes.float32, tile.rows * tile.width, MemorySpace.REGISTER)
    each(build, tile, lambda row, column, place: build.store(sums, place, const(0.0, dtypes.float32)))
    with build.loop(product.k, AxisKind.LOOP) as k:

        def step(row: Op, column: Dim, place: Dim) -> None:
            total = multiply_add(a(row, k), b(k, column), build.load(sums, place), product.has_fma)
            build.store(sums, place, total)

        each(build, tile, step)
    return sums


def each(build: Builder, tile: Tile, body: Callable[[Op, Dim, Dim], None]) -> None:
    """Calls body(row, column, place in the tile) for its elements, a vector at a time."""
    with (
        build.loop(tile.rows, AxisKind.UNROLL) as row,
        build.loop(tile.vectors, AxisKind.UNROLL) as vector,
        build.loop(tile.lanes, AxisKind.VECTOR) as lane,
    ):
        column = add(mul(vector, tile.lanes), lane)
        body(row, column, at(row, tile.width, column))


# ---- rung 5, packed ----
# Both operands are copied into panels, in the order in which the micro-kernel reads them. A panel of b is K rows of a
# tile's columns, one after the other. A panel of a is the rows of a tile, each a cache line longer than K: at distances
# of a power of two they would all compete for the same cache sets. The copies cost m*k + k*n, the product m*k*n. The gain:
# reads are sequential for all lengths, and edges are free, as panels are padded with zeros, and tiles at the edges store
# only the elements of c.
# Source: Goto and van de Geijn 2008, "Anatomy of high-performance matrix multiplication".
LINE = 16  # float32 in a cache line


@dataclass(frozen=True)
class Panels:
    """The packed operands of a product.

    a:  (row panels, rows of a tile, K + LINE)
    b:  (column panels, K, columns of a tile)
    """

    product: Product

    @property
    def num_rows(self) -> int:
        """Number of panels of a."""
        return -(-self.product.m // self.product.rows)

    @property
    def num_columns(self) -> int:
        """Number of panels of b."""
        return -(-self.product.n // self.product.width)

    @property
    def a(self) -> Op:
        """The memory of a's panels."""
        return self.product.memory(NUM_OPERANDS, self.num_rows * self.product.rows * (self.product.k + LINE))

    @property
    def b(self) -> Op:
        """The memory of b's panels."""
        return self.product.memory(NUM_OPERANDS + 1, self.num_columns * self.product.k * self.product.width)

    def place_a(self, panel: Dim, row: Dim, k: Dim) -> Dim:
        """Returns the index of an element of a panel of a."""
        return at(at(panel, self.product.rows, row), self.product.k + LINE, k)

    def place_b(self, panel: Dim, k: Dim, column: Dim) -> Dim:
        """Returns the index of an element of a panel of b."""
        return at(at(panel, self.product.k, k), self.product.width, column)


def packed(product: Product) -> Program:
    """Returns a phase that packs and one that multiplies, on one thread."""
    panels, pack, build = Panels(product), Builder(), Builder()
    emit_packing(pack, panels, AxisKind.LOOP)
    with build.loop(panels.num_columns, AxisKind.LOOP) as column, build.loop(panels.num_rows, AxisKind.LOOP) as row:
        emit_tile(build, panels, row, column)
    return product.program("packed", pack.finish(), build.finish(), scratch=(panels.a, panels.b))


def emit_packing(build: Builder, panels: Panels, kind: AxisKind) -> None:
    """Emits two loops over panels: those of a, those of b."""
    product = panels.product
    with build.loop(panels.num_rows, kind) as panel, build.loop(product.rows, AxisKind.LOOP) as row:
        i = at(panel, product.rows, row)

        def copy_a(k: Dim) -> None:
            build.store(panels.a, panels.place_a(panel, row, k), product.a(i, k, less(i, product.m)))

        along(build, 0, product.k, product.lanes, copy_a)
    with build.loop(panels.num_columns, kind) as panel, build.loop(product.k, AxisKind.LOOP) as k:

        def copy_b(column: Dim) -> None:
            j = at(panel, product.width, column)
            build.store(panels.b, panels.place_b(panel, k, column), product.b(k, j, less(j, product.n)))

        along(build, 0, product.width, product.lanes, copy_b)


def emit_tile(build: Builder, panels: Panels, row_panel: Dim, column_panel: Dim) -> None:
    """Emits the product of two panels: the micro-kernel, then the stores of its elements inside c."""
    product = panels.product
    tile = Tile(product.rows, product.vectors, product.lanes)
    sums = multiply_tile(
        build, product, tile,
        lambda row, k: read(panels.a, panels.place_a(row_panel, row, k)),
        lambda k, column: read(panels.b, panels.place_b(column_panel, k, column)),
    )  # fmt: skip
    i, j = mul(row_panel, tile.rows), mul(column_panel, tile.width)
    if product.m % tile.rows == 0 and product.n % tile.width == 0:

        def store(row: Op, column: Dim, place: Dim) -> None:
            build.store(product.c, product.place(add(i, row), add(j, column)), build.load(sums, place))

        each(build, tile, store)
        return
    done = build.alloc(dtypes.float32, tile.rows * tile.width, MemorySpace.SHARED)
    each(build, tile, lambda row, column, place: build.store(done, place, build.load(sums, place)))
    with build.loop(minimum(subtract(product.m, i), tile.rows), AxisKind.LOOP) as row:

        def copy(column: Dim) -> None:
            place = product.place(add(i, row), add(j, column))
            build.store(product.c, place, build.load(done, at(row, tile.width, column)))

        along(build, 0, minimum(subtract(product.n, j), tile.width), product.lanes, copy)


# ---- rung 6, threads ----
# The loops over panels and tiles become GRID loops, whose iterations the worker pool shares. Between the phases all
# threads wait for each other. One iteration multiplies one panel of b by up to PANELS panels of a: small enough to have
# more iterations than threads, large enough for a thread to keep its panel of b in its own cache. No sum is split, so the
# result has the same bits with any number of threads.
PANELS = 16  # panels of a in one iteration


def threads(product: Product) -> Program:
    """Returns the phases of rung 5 with GRID loops."""
    panels, pack, build = Panels(product), Builder(), Builder()
    emit_packing(pack, panels, AxisKind.GRID)
    pieces = -(-panels.num_rows // PANELS)
    with build.loop(panels.num_columns * pieces, AxisKind.GRID) as position:
        column, piece = unflatten(position, [panels.num_columns, pieces])
        first = mul(piece, PANELS)
        with build.loop(minimum(subtract(panels.num_rows, first), PANELS), AxisKind.LOOP) as row:
            emit_tile(build, panels, add(first, row), column)
    return product.program("threads", pack.finish(), build.finish(), scratch=(panels.a, panels.b))


# ---- rung 7, fused ----
# Bias and relu are applied to a tile in cache, by the compiler of all tensors. The kernel is that of
# picograd/codegen/matmul_cpu.py: rungs 1 to 6 in one emitter, with any expression as epilogue. A second pass over c costs
# 8 bytes of traffic for each element, which no arithmetic hides.
def expression(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """Returns relu(a @ b + bias)."""
    return (a @ b + bias).relu()


def fused() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Returns the expression as one kernel."""
    return jit(expression)


def two_passes() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    """Returns the product and the rest as a plan each."""
    product = jit(lambda a, b: a @ b)
    rest = jit(lambda c, bias: (c + bias).relu())
    return lambda a, b, bias: rest(product(a, b), bias)


# ---- the ladder ----
@dataclass(frozen=True)
class Rung:
    """One step of the ladder.

    name:       its name for `--show`
    adds:       its new idea
    emit:       emits it; None: the compiler does
    is_shared:  all threads share the work
    """

    name: str
    adds: str
    emit: Callable[[Product], Program] | None
    is_shared: bool = False


TWO_PASSES = Rung("two passes", "bias and relu, in a second pass over c", None, True)  # the reference of FUSED
FUSED = Rung("fused", "bias and relu on a tile before it is stored", None, True)
LADDER = (
    Rung("naive", "three loops", naive),
    Rung("blocked", "blocks of b that stay in cache, along rows", blocked),
    Rung("vectors", "a vector of columns at a time", vectors),
    Rung("registers", "a tile of sums in registers, FMA", registers),
    Rung("packed", "panels that are read straight through", packed),
    Rung("threads", "tiles shared among all threads", threads, True),
    FUSED,
)
RUNGS = {rung.name: rung for rung in LADDER}
