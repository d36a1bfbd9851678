"""Loops that several emitters write: over several extents, in vectors and a remainder, in squares, in runs; prefetches.

Runs keep sums accurate. Adding n numbers one after the other gives an error of up to n roundings. In
runs of 16, and runs of 16 runs, it is 16 for each level: 4 log2(n). Each run has totals of its own, which are then added
to those of the level above; sums no longer than a run are plain loops. How a sum is cut depends on its extents alone. One
more level gives the same bits, so a symbolic length can be cut by its upper bound.

    for i < 4096: total += x[i]   ->   for a < 16: outer = 0
                                           for b < 16: inner = 0
                                               for c < 16: inner += x[256 a + 16 b + c]
                                               outer += inner
                                           total += outer

Source: Higham 1993, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14(4), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from math import gcd
from typing import TypeVar

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.device import Target, language_of
from picograd.dtype import DType
from picograd.ir.op import Dim, Op, toposort
from picograd.ir.opcode import TRANSCENDENTAL, AxisKind, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import (
    INDEX_ARITHMETIC,
    add,
    bounds,
    ceildiv,
    floordiv,
    from_op,
    less,
    minimum,
    mod,
    mul,
    subtract,
    to_op,
    unflatten,
)
from picograd.record import Record

# ---- several extents, vectors and a remainder, squares, threads ----
BLOCK_ELEMENTS = 4096  # elements of one GRID iteration on a CPU: a few microseconds of work, well inside L1
ACCESS_ELEMENT_BYTES_MIN = 2  # a thread of a GPU takes at most eight elements at a time, even of one byte
STRIP_VECTORS_MAX = 64  # vectors of columns that are read one after the other on a CPU: 4 KiB of the widest
STRIPS_MIN = 8  # strips, so that as many threads have work, if there are enough vectors
BLOCKS_WANTED = 128  # as many as large GPUs have multiprocessors (A100 108, H100 132), so that few are idle; not measured


def over_registers(target: Target) -> AxisKind:
    """Returns the kind of a loop whose index chooses registers, so that it must be unrolled.

    If the language's compiler does that (devices/render_grids.py), the text stays short.
    """
    return AxisKind.LOOP if language_of(target.language).unrolls else AxisKind.UNROLL


def nested(build: Builder, extents: Sequence[Dim], at: list[Dim], body: Callable[[list[Dim]], None]) -> None:
    """Opens one LOOP for each extent and runs `body` with all positions."""
    if not extents:
        body(at)
        return
    with build.loop(extents[0], AxisKind.LOOP) as index:
        nested(build, extents[1:], [*at, index], body)


def in_squares(
    build: Builder, height: Dim, width: Dim, lanes: int, square: Callable[[Dim, Dim], None], one: Callable[[Dim, Dim], None]
) -> None:
    """Runs `square` at the first place of each lanes x lanes square of height x width, `one` at each remaining place."""
    tall, wide = (mul(floordiv(extent, lanes), lanes) for extent in (height, width))
    below, beside = subtract(height, tall), subtract(width, wide)
    with build.loop(floordiv(height, lanes), AxisKind.LOOP) as row:
        top = mul(row, lanes)
        with build.loop(floordiv(width, lanes), AxisKind.LOOP) as column:
            square(top, mul(column, lanes))
        if beside != 0:
            with build.loop(lanes, AxisKind.LOOP) as i, build.loop(beside, AxisKind.LOOP) as j:
                one(add(top, i), add(wide, j))
    if below != 0:
        with build.loop(below, AxisKind.LOOP) as i, build.loop(width, AxisKind.LOOP) as j:
            one(add(tall, i), j)


def along(
    build: Builder, start: Dim, count: Dim, lanes: int, body: Callable[[Dim], None],
    before: Callable[[Dim], None] | None = None, rest: Dim = 0,
) -> None:  # fmt: skip
    """Runs `body` for start .. start + count: whole vectors, `before` before each, then the remainder.

    A remainder that only a run knows takes some lanes of a vector; else it is done one by one, in less code.

    Args:
      rest:  number of remaining elements if they are done in vectors of half the lanes, a quarter, ...; 0: one by one
    """
    whole = floordiv(count, lanes) if lanes > 1 else 0
    if whole != 0:
        with build.loop(whole, AxisKind.LOOP) as vector:
            first = add(start, mul(vector, lanes))
            if before is not None:
                before(first)
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                body(add(first, lane))
    left, place = subtract(count, mul(whole, lanes)), add(start, mul(whole, lanes))
    if left == 0:
        return
    if lanes > 1 and not isinstance(left, int):
        with some_lanes(build, left, lanes) as lane:
            body(add(place, lane))
    elif rest == 0:
        with build.loop(left, AxisKind.LOOP) as index:
            body(add(place, index))
    else:
        in_smaller_vectors(build, place, rest, lanes, lambda index, _: body(index))


@contextmanager
def some_lanes(build: Builder, count: Dim, lanes: int) -> Iterator[Op]:
    """Opens a vector of which only the first `count` lanes run; none at all if the count is 0."""
    with (
        build.loop(minimum(count, 1), AxisKind.LOOP),
        build.loop(lanes, AxisKind.VECTOR) as lane,
        build.when(less(lane, count)),
    ):
        yield lane


def in_smaller_vectors(build: Builder, start: Dim, count: Dim, lanes: int, body: Callable[[Dim, int], None]) -> None:
    """Runs body(index, width) for start .. start + count in vectors of powers of two that add up to it, widest first.

    Args:
      lanes:  a power of two that is greater than the count
    """
    width = lanes // 2
    while width:
        there = mod(floordiv(count, width), 2)
        if there != 0:
            kind = AxisKind.VECTOR if width > 1 else AxisKind.LOOP
            with build.loop(there, AxisKind.LOOP), build.loop(width, kind) as lane:
                body(add(start, lane), width)
        start = add(start, mul(there, width))
        width //= 2


@contextmanager
def grid_of_threads(build: Builder, total: Dim, target: Target) -> Iterator[Dim]:
    """Opens a block that runs for each position < total, on a thread of its own."""
    threads = target.block_threads
    num_blocks = ceildiv(total, threads)
    with build.loop(num_blocks, AxisKind.GRID) as block, build.loop(threads, AxisKind.BLOCK) as thread:
        position = add(mul(block, threads), thread)
        with build.when(less(position, total)):
            yield position


# ---- lanes ----
def rest_in_vectors(computed: Callable[[], Iterable[Op]], extent: Dim, lanes: int) -> Dim:
    """Returns the number of elements behind the whole vectors of an axis, if vectors of fewer lanes should take them.

    0: they are done one by one, in less code. The cost of an element decides: 14 tanh took as long as 56 in vectors.
    """
    rest = mod(extent, lanes)
    return rest if rest != 0 and any(op.code in TRANSCENDENTAL for op in computed()) else 0


OF_DATA_TOO = (OpCode.MAX, OpCode.NEG)  # in values as well as in indices, such as a stored max(i - 1, 0)


def vector_lanes(values: Iterable[Op], target: Target, narrowest: int = 4) -> int:
    """Returns the number of elements that fill one vector register, for the widest element that is computed.

    Indices and lengths do not count, nor values computed of these alone, nor values that only a GATHER's index needs. Other
    elements count as `narrowest` bytes at least.
    """
    widest, order = narrowest, toposort(values := list(values))
    if OpCode.GATHER in {op.code for op in order}:
        order = toposort(values, sources=lambda op: op.src[:1] if op.code is OpCode.GATHER else op.src)
    unsure, lengths = [], set[Op]()
    for op in order:
        if op.code is OpCode.VARIABLE or (lengths and _is_of_lengths(op, lengths)):
            lengths.add(op)
        elif op.code in (OpCode.RANGE, OpCode.PARAM) or (op.dtype is dtypes.int64 and op.code in INDEX_ARITHMETIC):
            if op.code in OF_DATA_TOO:
                unsure.append(op)
        elif not (op.dtype is dtypes.int64 and op.code is OpCode.CONST):
            widest = max(widest, op.dtype.itemsize)
    if unsure and not set(toposort([s for op in order if op.code is OpCode.LOAD for s in op.src[1:]])).issuperset(unsure):
        widest = max(widest, dtypes.int64.itemsize)
    return max(1, target.vector_bytes // widest)


def _is_of_lengths(op: Op, lengths: Container[Op]) -> bool:
    """True for an integer that is computed from symbolic lengths and constants alone."""
    of_lengths = [s in lengths for s in op.src]
    if op.dtype is not dtypes.int64 or not any(of_lengths):
        return False
    return all(is_length or s.code is OpCode.CONST for is_length, s in zip(of_lengths, op.src))


# ---- who computes an element, or a column ----
def each_element(
    build: Builder, extents: list[Dim], lanes: int, target: Target, body: Callable[[list[Dim]], None], rest: Dim = 0,
    parts: Sequence[tuple[int, int]] = (),
) -> None:  # fmt: skip
    """Runs body(positions) for each element of `extents`.

    CPU:  GRID over pieces of the outermost axis, vectors and a remainder along the innermost.
    GPU:  a thread for each `lanes` neighbours along the innermost axis.

    Args:
      rest:   remaining elements of the innermost of several axes, if a CPU should take them in smaller vectors; else 0
      parts:  start and count of parts of the innermost of several axes that a CPU walks in loops of their own
    """
    if not target.is_gpu:
        _in_blocks(build, extents, lanes, body, rest, parts)
        return
    *outer, last = extents or [1]
    lanes = gcd(last, lanes) if isinstance(last, int) else 1
    accesses = [*outer, floordiv(last, lanes)]
    with grid_of_threads(build, numel(accesses), target) as position:
        *at, access = unflatten(position, accesses)
        with build.loop(lanes, AxisKind.VECTOR) as lane:
            body([*at, add(mul(access, lanes), lane)] if extents else [])


def access_lanes(values: Iterable[Op], stored: Iterable[DType], along: AbstractSet[Dim], target: Target) -> int:
    """Returns the number of elements that a thread of a GPU takes at a time: one access to the widest memory it walks.

    Computed values may take any number of registers: the classes 0, 1, 2, ... that are compared with a label have eight
    bytes each, but logits of two bytes are still not read by twos.

    Args:
      values:  values that are read, at placeholders
      stored:  dtypes of the values written for each element
      along:   the placeholders of the axes along which neighbouring elements are walked
    """
    widest = max([ACCESS_ELEMENT_BYTES_MIN, *[dtype.itemsize for dtype in stored]])
    wider = [op for op in toposort(values) if op.code is OpCode.LOAD and op.dtype.itemsize > widest]
    walked = [op.dtype.itemsize for op in wider if not along.isdisjoint(toposort(op.src[1:]))]
    widest = max([widest, *walked])
    return max(1, target.vector_bytes // widest)


EachColumn = Callable[[Callable[[Dim, Dim], None]], None]  # runs body(number of the column among those here, column)


@contextmanager
def share_columns(
    build: Builder, left: Sequence[Dim], columns: Dim, most: int, lanes: int, target: Target
) -> Iterator[tuple[list[Dim], int, EachColumn]]:
    """Opens the loops over (left, columns); yields the position on the left, the number of columns here, and their loop.

    CPU:  a GRID iteration has up to `most` columns, in vectors and a remainder.
    GPU:  a thread has one column.
    """
    if target.is_gpu:
        with grid_of_threads(build, numel((*left, columns)), target) as position:
            *at, column = unflatten(position, [*left, columns])
            yield at, 1, lambda body: body(0, column)
        return
    width = min(most, columns) if isinstance(columns, int) else most
    pieces = ceildiv(columns, width)
    with build.loop(numel((*left, pieces)), AxisKind.GRID) as position:
        *at, piece = unflatten(position, [*left, pieces])
        start = mul(piece, width)
        count = minimum(subtract(columns, start), width)
        yield at, width, lambda body: along(build, 0, count, lanes, lambda c: body(c, add(start, c)))


def _in_blocks(
    build: Builder, extents: list[Dim], lanes: int, body: Callable[[list[Dim]], None], rest: Dim,
    parts: Sequence[tuple[int, int]],
) -> None:  # fmt: skip
    """Writes the loops of a CPU over `extents`: GRID over pieces of the outermost axis, vectors along the innermost.

    Args:
      rest, parts:  see `each_element`
    """

    def row(at: list[Dim]) -> None:
        for first, count in parts:
            along(build, first, count, lanes, lambda i: body([*at, i]), rest=count % lanes)
        if not parts:
            along(build, 0, extents[-1], lanes, lambda i: body([*at, i]), rest=rest)

    if len(extents) <= 1:
        total = extents[0] if extents else 1
        with build.loop(_num_pieces(total, BLOCK_ELEMENTS), AxisKind.GRID) as block:
            start = mul(block, BLOCK_ELEMENTS)
            count = minimum(subtract(total, start), BLOCK_ELEMENTS) if _is_long(total) else total
            along(build, start if _is_long(total) else 0, count, lanes, lambda i: body([i] if extents else []))
        return
    outer, inner = extents[0], extents[1:-1]
    below = numel(extents[1:])
    per_piece = max(1, BLOCK_ELEMENTS // max(1, below)) if isinstance(below, int) else 1
    with build.loop(_num_pieces(outer, per_piece), AxisKind.GRID) as piece:
        start = mul(piece, per_piece)
        with build.loop(minimum(subtract(outer, start), per_piece), AxisKind.LOOP) as line:
            nested(build, inner, [add(start, line)], row)


def _is_long(total: Dim) -> bool:
    return not isinstance(total, int) or total > 2 * BLOCK_ELEMENTS


def _num_pieces(total: Dim, piece: int) -> Dim:
    if piece == BLOCK_ELEMENTS and not _is_long(total):
        return 1
    return ceildiv(total, piece)


# ---- runs: sums with few roundings ----
RUN_STEPS = 8  # additions to a total before it is added to the next one

T = TypeVar("T")


class _Loop(Record):
    """One loop over a part of an axis.

    step:    elements of the axis from one iteration to the next
    count:   iterations; 0: to the end of the axis
    is_run:  the loop has totals of its own, which are added to the outer ones after it
    """

    axis: int
    step: int
    count: int
    is_run: bool


def in_runs(
    build: Builder, extents: Sequence[Dim], total: T, fresh: Callable[[], T], join: Callable[[T, T], None],
    body: Callable[[T, list[Dim]], None], run: int = RUN_STEPS,
) -> None:  # fmt: skip
    """Runs body(totals, position) for all positions, in order.

    Args:
      total:  totals that hold the sum afterwards
      fresh:  makes new totals of no elements
      join:   join(part, total) adds the one to the other
      run:    number of additions of the innermost level; 0: all of them
    """
    loops = _loops(extents, run) if run else [_Loop(axis, 1, 0, False) for axis in range(len(extents))]
    _within(build, extents, loops, [0] * len(extents), total, fresh, join, body)


def _within(
    build: Builder, extents: Sequence[Dim], loops: Sequence[_Loop], at: list[Dim], total: T, fresh: Callable[[], T],
    join: Callable[[T, T], None], body: Callable[[T, list[Dim]], None],
) -> None:  # fmt: skip
    """Writes the inner `loops` of `in_runs`, inside of loops whose position is `at`."""
    if not loops:
        body(total, at)
        return
    loop, *inner = loops
    own = fresh() if loop.is_run else total
    with build.loop(_count(extents[loop.axis], loop, at[loop.axis]), AxisKind.LOOP) as index:
        here = [*at]
        here[loop.axis] = add(at[loop.axis], mul(index, loop.step))
        _within(build, extents, inner, here, own, fresh, join, body)
    if loop.is_run:
        join(own, total)


def _count(extent: Dim, loop: _Loop, start: Dim) -> Dim:
    """Returns the number of iterations of a loop that begins at `start`."""
    if loop.count == 1 or loop.count and mod(extent, loop.count * loop.step) == 0:
        return loop.count
    left = ceildiv(subtract(extent, start), loop.step)
    return minimum(left, loop.count) if loop.count else left


def _loops(extents: Sequence[Dim], run: int) -> list[_Loop]:
    """Returns the loops, the outermost first; each level has at most as many additions as a run."""
    found: list[_Loop] = []
    chain, most = 1, run
    for axis in reversed(range(len(extents))):
        step, left = 1, longest(extents[axis])
        while chain * left > most:
            count = most // chain
            if count > 1 or not found:
                found.append(_Loop(axis, step, count, False))
                step, left = step * count, ceildiv(left, count)
            found[-1:] = [_Loop(loop.axis, loop.step, loop.count, True) for loop in found[-1:]]
            chain, most = 1, RUN_STEPS
        found.append(_Loop(axis, step, 0, False))
        chain = min(chain * left, most)
    return found[::-1]


def longest(extent: Dim) -> int:
    """Returns the length by which a sum is cut: the largest possible one."""
    return max(0, bounds(extent)[1])


# ---- prefetches ----
LINE_NBYTES = 64  # of a cache line


def prefetch_large(build: Builder, values: Sequence[Op], numel: Dim) -> None:
    """Prefetches the elements that `values` read from memory of `numel` elements or more."""
    for load in toposort(values):
        if load.code is OpCode.LOAD and _is_large(load, numel):
            build.prefetch(load.src[0], load.src[1])


def prefetch_lines(build: Builder, values: Callable[[Dim], Sequence[Op]], start: Dim, count: int, numel: Dim) -> None:
    """Prefetches the elements that values(column) read at `count` columns from `start` on, once for each cache line.

    Args:
      numel: least number of elements of memory that is prefetched, if it is contiguous along the columns
    """
    here, beside = (toposort(values(column)) for column in (start, add(start, 1)))
    for load in here:
        if load.code is OpCode.LOAD and _is_large(load, numel):
            index = from_op(load.src[1])
            if any(op.code is OpCode.LOAD and op.src[:2] == (load.src[0], to_op(add(index, 1))) for op in beside):
                of_line = LINE_NBYTES // load.dtype.itemsize
                with build.loop(ceildiv(count, of_line), AxisKind.UNROLL) as line:
                    build.prefetch(load.src[0], add(index, mul(line, of_line)))


def _is_large(load: Op, numel: Dim) -> bool:
    """True for a load from a PARAM of at least `numel` elements at an index that depends on no other load."""
    memory, index = load.src[:2]
    if memory.code is not OpCode.PARAM or any(op.code is OpCode.LOAD for op in toposort([index])):
        return False
    (length,) = memory.arg[1]
    return isinstance(length, int) and isinstance(numel, int) and length >= numel
