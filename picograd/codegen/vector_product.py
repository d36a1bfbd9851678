"""The loops of a product with one row on a CPU: (1, K) @ (K, N), limited by how fast the matrix is read.

In:    Nest (kind MATMUL), whose anchor is a MATMUL of one row
Out:   two phases of statements in the free form: the row, where it must be computed; the product
Called by: codegen/lower.py.    Next: picograd/codegen/heads.py

Each element of the matrix is read once, from where it lies. Lanes run over columns, and each adds up its own sum over K in
order, with one rounding a step: the sum that codegen/matmul.py computes for each of many rows. So a row has the same bits
alone and among others.

    columns lie side by side    a strip of columns, with its sums in the first-level cache, some rows of K at a time
    K lies side by side         squares of lanes x lanes: lines along K, computed as vectors, transposed in registers,
                                while those of the next columns are asked for
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.index import element_within
from picograd.codegen.loops import along
from picograd.codegen.matmul import lanes_of, store_outputs
from picograd.codegen.panels import contiguous_axis, is_plain
from picograd.codegen.prefetch import prefetch_large
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.squares import squares_of
from picograd.codegen.tile import multiply_add
from picograd.device import Target
from picograd.ir.build import cast, expand, reduce, reshape, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest, NestKind
from picograd.ir.substitute import substitute
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

Row = Callable[[Dim], Op]  # the element of the row at k

MOST_STRIP = 64  # vectors: 4 KiB of the widest are read one after the other
FEWEST_STRIPS = 8  # for as many threads, where there are as many vectors
ROWS_AT_ONCE = 8  # of K, between a load and a store of a sum


def is_vector_product(nest: Nest) -> bool:
    """True for a product of one row with one matrix."""
    return nest.kind is NestKind.MATMUL and nest.anchor is not None and numel(nest.anchor.shape[:-1]) == 1


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


def emit_vector_product(
    nest: Nest, params: Sequence[Op], pack: Builder, build: Builder, target: Target, scratch: Scratch
) -> None:  # fmt: skip
    """Writes a product of one row: the row into memory in phase `pack`, the sums in phase `build`."""
    assert nest.anchor is not None
    product = _VectorProduct(nest, params, build, target)
    row = _row(nest.anchor, product.lanes, pack, scratch)
    if product.lanes > 1 and contiguous_axis(product.matrix) == -2:
        product.by_squares(row)
    else:
        product.by_strips(row)


def _row(anchor: Op, lanes: int, pack: Builder, scratch: Scratch) -> Row:
    """Returns how to read the row: from where it lies, or once it is computed."""
    a, dtype = anchor.src[0], accumulator_dtype(anchor)
    first = [0] * (len(a.shape) - 1)
    if is_plain(a):
        return lambda k: cast(element_within(a, (*first, k)), dtype)
    length = a.shape[-1]
    memory = scratch(dtype, length)
    with pack.loop(1, AxisKind.GRID):
        along(pack, 0, length, lanes, lambda k: pack.store(memory, k, cast(element_within(a, (*first, k)), dtype)))
    return lambda k: read(memory, k)


class _VectorProduct:
    """A product of one row that is being written.

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

    def element(self, k: Dim, column: Dim) -> Op:
        """Returns an element of the matrix."""
        return cast(element_within(self.matrix, (*self.first, k, column)), self.dtype)

    def added(self, row: Row, k: Dim, element: Op, total: Op) -> Op:
        """Returns a sum with the product at k added."""
        return multiply_add(row(k), element, total, self.has_fma)

    def store(self, column: Dim, total: Op) -> None:
        """Writes what is made of the sum of a column."""
        coords = (*self.first, 0, column)
        store_outputs(self.nest, self.params, coords, cast(total, self.anchor.dtype), self.build)

    # ---- columns side by side ----
    def by_strips(self, row: Row) -> None:
        """Writes the loops: GRID over strips of columns."""
        build, lanes, size = self.build, self.lanes, self._strip()
        with build.loop(floordiv(add(self.n, size - 1), size), AxisKind.GRID) as strip:
            start = mul(strip, size)
            width = minimum(subtract(self.n, start), size)
            totals = build.alloc(self.dtype, size, MemorySpace.SHARED)
            along(build, 0, width, lanes, lambda c: build.store(totals, c, const(0, self.dtype)))

            def some(k: Dim, count: int) -> None:
                def column(c: Dim) -> None:
                    total = build.load(totals, c)
                    for step in range(count):
                        total = self.added(row, add(k, step), self.element(add(k, step), add(start, c)), total)
                    build.store(totals, c, total)

                along(build, 0, width, lanes, column)

            whole = floordiv(self.k, ROWS_AT_ONCE)
            with build.loop(whole, AxisKind.LOOP) as block:
                some(mul(block, ROWS_AT_ONCE), ROWS_AT_ONCE)
            done = mul(whole, ROWS_AT_ONCE)
            with build.loop(subtract(self.k, done), AxisKind.LOOP) as k:
                some(add(done, k), 1)
            along(build, 0, width, lanes, lambda c: self.store(add(start, c), build.load(totals, c)))

    def _strip(self) -> int:
        """Returns how many columns a strip has."""
        if not isinstance(self.n, int):
            return MOST_STRIP * self.lanes
        vectors = -(-self.n // self.lanes)
        return max(1, min(MOST_STRIP, vectors // FEWEST_STRIPS)) * self.lanes

    # ---- K side by side ----
    def by_squares(self, row: Row) -> None:
        """Writes the loops: GRID over vectors of columns, and what is left of them."""
        build, lanes = self.build, self.lanes
        whole = floordiv(self.n, lanes)
        with build.loop(whole, AxisKind.GRID) as vector:
            self._columns(row, mul(vector, lanes))
        done = mul(whole, lanes)
        rest = subtract(self.n, done)
        if rest == 0:
            return
        at_once = rest if isinstance(rest, int) else 1
        with build.loop(1 if at_once == rest else rest, AxisKind.GRID) as c:
            self._single_columns(row, add(done, c), at_once)

    def _single_columns(self, row: Row, start: Dim, count: int) -> None:
        """Writes a few columns, each a sum of its own."""
        build = self.build
        totals = build.alloc(self.dtype, count, MemorySpace.REGISTER)
        with build.loop(count, AxisKind.UNROLL) as c:
            build.store(totals, c, const(0, self.dtype))
        with build.loop(self.k, AxisKind.LOOP) as k, build.loop(count, AxisKind.UNROLL) as c:
            build.store(totals, c, self.added(row, k, self.element(k, add(start, c)), build.load(totals, c)))
        with build.loop(count, AxisKind.UNROLL) as c:
            self.store(add(start, c), build.load(totals, c))

    def _columns(self, row: Row, start: Dim) -> None:
        """Writes a vector of columns."""
        build, lanes = self.build, self.lanes
        total = build.alloc(self.dtype, lanes, MemorySpace.REGISTER)
        with build.loop(lanes, AxisKind.VECTOR) as lane:
            build.store(total, lane, const(0, self.dtype))

        def step(k: Dim, element: Callable[[Dim], Op]) -> None:
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                build.store(total, lane, self.added(row, k, element(lane), build.load(total, lane)))

        squares = squares_of(self.matrix, self.dtype, lanes)
        whole = floordiv(self.k, lanes)
        with build.loop(whole, AxisKind.LOOP) as block:
            first = mul(block, lanes)
            with build.loop(lanes, AxisKind.UNROLL) as column:
                prefetch_large(build, [self.element(first, add(add(start, lanes), column))], numel(self.matrix.shape))
            element = squares.at(build, (*self.first, first, start))
            with build.loop(lanes, AxisKind.UNROLL) as k:
                step(add(first, k), partial(element, k))
        done = mul(whole, lanes)
        with build.loop(subtract(self.k, done), AxisKind.LOOP) as k:
            step(add(done, k), lambda lane: self.element(add(done, k), add(start, lane)))
        with build.loop(lanes, AxisKind.VECTOR) as lane:
            self.store(add(start, lane), build.load(total, lane))
