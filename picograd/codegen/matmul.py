"""The common parts of products: the layout of operands, a tile of accumulators, and stores of results.

A `Tile` stays in registers while the sum over K runs:

    for k:  for i in rows:  a = lhs(i, k), in all lanes
                for each vector:  acc[i, vector] += a * rhs(vector, k)

Each element of lhs is loaded once for all vectors, each vector of rhs once for all rows: rows + vectors loads for rows *
vectors multiply-adds. A processor begins two in a cycle, and each takes four or five: eight to ten must be under way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeVar

from picograd.codegen.builder import Builder
from picograd.codegen.index import element_anywhere, element_within, steps_by_one
from picograd.codegen.loops import in_runs, longest
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import multiply_add
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.stages import Nest
from picograd.ir.symbolic import Coords, add, ceildiv, flatten, from_op, minimum, mul, placeholder, subtract, with_values
from picograd.record import Record


# ---- operands: along which axis they are contiguous ----
def last_axes(b: Op) -> tuple[Op, Op]:
    """Returns the placeholders of the last two axes."""
    k, column = (placeholder(len(b.shape) - 2 + i, dim) for i, dim in enumerate(b.shape[-2:]))
    return k, column


@lru_cache(maxsize=256)
def contiguous_axis(operand: Op) -> int:
    """Returns the one of the last two axes, -1 or -2, along which most of an operand's accesses are contiguous, else -1.

    Equal indices count once. Accesses that are the same for a row or a column, such as a scale or a row's maximum, do not
    count: they are few compared with the others.
    """
    axes = set(last_axes(operand))
    indices = {load.src[1] for load in _outer_loads(operand)}
    of_elements = [index for index in indices if axes <= {*toposort([index])}] or indices
    second_last, last = [sum(steps_by_one(index, place) for index in of_elements) for place in last_axes(operand)]
    return -1 if last >= second_last else -2


def contiguous_pieces_axis(operand: Op) -> int:
    """Returns the `contiguous_axis`; if there is none, the axis along which the operand's first elements are contiguous.

    The joined heads of an attention are contiguous within each head.
    """
    indices = [load.src[1] for load in _outer_loads(operand)]
    if any(steps_by_one(index, place) for index in indices for place in last_axes(operand)):
        return contiguous_axis(operand)
    second_last, last = [sum(_starts_by_one(index, place) for index in indices) for place in last_axes(operand)]
    return -1 if last >= second_last else -2


def _starts_by_one(index: Op, place: Op) -> bool:
    """True if an index grows by one from the first place of a RANGE to the second, at the start of all others."""
    starts: dict[Op, Dim] = {op: 0 for op in toposort([index]) if op.code is OpCode.RANGE}
    first, second = (with_values(from_op(index), starts | {place: at}) for at in (0, 1))
    return subtract(second, first) == 1


def _outer_loads(operand: Op) -> list[Op]:
    """Returns the loads of an operand's elements, without those of indices, which are the same for many elements.

    For an element that is looked up in a table by a number of its own, the load of that number.
    """
    axes = set(last_axes(operand))

    def sources(op: Op) -> tuple[Op, ...]:
        if op.code is not OpCode.LOAD:
            return op.src
        at_once = toposort([op.src[1]], sources=_before_loads)
        return op.src[1:2] if axes.isdisjoint(at_once) and not axes.isdisjoint(toposort([op.src[1]])) else ()

    order = toposort([element_anywhere(operand)], sources=sources)
    return [op for op in order if op.code is OpCode.LOAD and not sources(op)]


def _before_loads(op: Op) -> tuple[Op, ...]:
    return () if op.code is OpCode.LOAD else op.src


def is_plain(operand: Op) -> bool:
    """True for an operand in memory at places that do not depend on other loads."""
    loads = [op for op in toposort([element_anywhere(operand)]) if op.code is OpCode.LOAD]
    return loads == [element_anywhere(operand)]


# ---- tiles of accumulators ----
BLOCK_PRODUCTS = 512  # products that are added to one accumulator in a row
BLOCK_MULTIPLE = 16  # a block of K is whole vectors

T = TypeVar("T")


class Tile(Record):
    """rows x (vectors * lanes) accumulators.

    dtype:    dtype of the accumulators
    has_fma:  the target multiplies and adds in one instruction
    """

    rows: int
    vectors: int
    lanes: int
    dtype: DType
    has_fma: bool

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def each(self, build: Builder, body: Callable[[Dim, Dim, Dim], None]) -> None:
        """Calls body(row, column, place in the accumulators) for all elements, a vector at a time."""
        with (
            build.loop(self.rows, AxisKind.UNROLL) as i,
            build.loop(self.vectors, AxisKind.UNROLL) as vector,
            build.loop(self.lanes, AxisKind.VECTOR) as lane,
        ):
            column = add(mul(vector, self.lanes), lane)
            body(i, column, add(mul(i, self.columns), column))

    def new(self, build: Builder, start: Callable[[Dim, Dim], Op] | None = None) -> Op:
        """Returns accumulators that hold start(row, column), or 0."""
        acc = build.alloc(self.dtype, self.rows * self.columns, MemorySpace.REGISTER)
        zero = const(0, self.dtype)
        self.each(build, lambda i, c, where: build.store(acc, where, zero if start is None else start(i, c)))
        return acc

    def multiply(
        self, build: Builder, acc: Op, depth: Dim, lhs: Callable[[Dim, Dim], Op], rhs: Callable[[Dim, Dim], Op]
    ) -> Op:
        """Adds the sum over k < depth of lhs(row, k) * rhs(column, k) to accumulators, and returns them."""
        with build.loop(depth, AxisKind.LOOP) as k:
            self.step(build, acc, lambda i: lhs(i, k), lambda c: rhs(c, k))
        return acc

    def multiply_long(self, build: Builder, depth: Dim, lhs: Callable[[Dim, Dim], Op], rhs: Callable[[Dim, Dim], Op]) -> Op:
        """Returns accumulators with the sum over k < depth, which is added up in blocks if it is long."""

        def block(acc: Op, first: Dim, count: Dim) -> None:
            self.multiply(build, acc, count, lambda i, k: lhs(i, add(first, k)), lambda c, k: rhs(c, add(first, k)))

        return self.in_blocks(build, depth, block)

    def in_blocks(self, build: Builder, depth: Dim, body: Callable[[Op, Dim, Dim], None]) -> Op:
        """Runs body(accumulators, first k, number of k) for blocks of K; returns accumulators with the sum of all."""
        acc = self.new(build)
        if not is_cut(depth, self.dtype):
            body(acc, 0, depth)
            return acc

        def fresh() -> Op:
            memory = build.alloc(self.dtype, self.rows * self.columns, MemorySpace.SHARED)
            self.each(build, lambda i, c, where: build.store(memory, where, const(0, self.dtype)))
            return memory

        def join(part: Op, total: Op) -> None:
            def put(i: Dim, c: Dim, where: Dim) -> None:
                both = (build.load(total, where), build.load(part, where))
                build.store(total, where, Op(OpCode.ADD, self.dtype, both))

            self.each(build, put)

        def block(total: Op, first: Dim, count: Dim) -> None:
            own = self.new(build)
            body(own, first, count)
            join(own, total)

        total = fresh()
        blocks_of_k(build, depth, total, fresh, join, block)
        self.each(build, lambda i, c, where: build.store(acc, where, build.load(total, where)))
        return acc

    def step(self, build: Builder, acc: Op, lhs: Callable[[Dim], Op], rhs: Callable[[Dim], Op]) -> None:
        """Adds lhs(row) * rhs(column) to accumulators."""

        def add_product(i: Dim, c: Dim, where: Dim) -> None:
            build.store(acc, where, multiply_add(lhs(i), rhs(c), build.load(acc, where), self.has_fma))

        self.each(build, add_product)


def is_cut(depth: Dim, dtype: DType) -> bool:
    """True for a sum over K that is added up in blocks, so that rounding errors do not accumulate."""
    return dtype.is_float and longest(depth) > BLOCK_PRODUCTS


def blocks_of_k(
    build: Builder, depth: Dim, total: T, fresh: Callable[[], T], join: Callable[[T, T], None],
    block: Callable[[T, Dim, Dim], None],
) -> None:  # fmt: skip
    """Runs block(totals, first k, number of k) for blocks of K of about equal length, the same in every emitter."""
    length = mul(ceildiv(ceildiv(depth, ceildiv(depth, BLOCK_PRODUCTS)), BLOCK_MULTIPLE), BLOCK_MULTIPLE)

    def at(into: T, place: list[Dim]) -> None:
        first = mul(place[0], length)
        block(into, first, minimum(subtract(depth, first), length))

    in_runs(build, [ceildiv(depth, length)], total, fresh, join, at)


def most_alike(count: Dim, most: int) -> int:
    """Returns the length of each part if `count` is cut into the fewest parts of at most `most`, about equally long.

    >>> most_alike(10, 6), most_alike(0, 6)
    (5, 1)
    """
    if isinstance(count, int):
        return max(1, ceildiv(count, max(1, ceildiv(count, most))))
    return max(1, min(most, longest(count)))


def most_rows(target: Target) -> int:
    """Returns the number of rows of two vectors that fit the registers: 12 accumulators in 16 registers, 24 in 32."""
    return 12 if target.num_registers >= 32 else 6


# ---- outputs ----
def store_outputs(nest: Nest, params: Sequence[Op], coords: Coords, value: Op, build: Builder) -> None:
    """Stores every output of a nest at `coords` of its anchor, which has the value `value` there."""
    axes = range(len(coords))
    done = [element_within(output, coords, {nest.anchor: value}, axes) for _, output in nest.outputs]
    for (slot, _), result in zip(nest.outputs, done):
        build.store(params[slot], flatten(coords, nest.domain), result)
