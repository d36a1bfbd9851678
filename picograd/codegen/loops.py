"""Loops that several emitters write: over positions in groups of axes, several extents, vectors or squares and a rest.

In:    extents, a body
Out:   statements in the free form
Called by: the emitters.    Next: picograd/codegen/elementwise.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from picograd.codegen.builder import Builder
from picograd.device import Target
from picograd.ir.op import Dim
from picograd.ir.opcode import AxisKind
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, less, minimum, mod, mul, subtract

BLOCK_ELEMENTS = 4096  # of one GRID iteration on a CPU: a few microseconds of work, well inside L1


def over_registers(target: Target) -> AxisKind:
    """Returns the kind of a loop whose index chooses registers, so that it must be written out.

    Compilers of languages like C do that (render/grids.py), and the text stays short; elsewhere it is done here.
    """
    return AxisKind.LOOP if target.language in ("cuda", "opencl") else AxisKind.UNROLL


def split(position: Dim, extents: Sequence[Dim]) -> list[Dim]:
    """Returns the position in each group of a position in all of them."""
    positions: list[Dim] = []
    for extent in reversed(extents[1:]):
        positions.append(mod(position, extent))
        position = floordiv(position, extent)
    return [position, *reversed(positions)] if extents else []


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
    """Runs `square` for the first place of each lanes x lanes of height x width, `one` for each place that is left."""
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
    """Runs `body` for start .. start + count: whole vectors, `before` before each, then what is left one by one.

    Args:
      rest:  where `count` is no multiple of the lanes, what is left; it then goes in vectors of half as many, a quarter ...
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
    if rest == 0:
        with build.loop(left, AxisKind.LOOP) as index:
            body(add(place, index))
    elif isinstance(rest, int):
        with build.loop(minimum(floordiv(left, rest), 1), AxisKind.LOOP) as once:  # or never
            in_smaller_vectors(build, add(place, mul(once, rest)), rest, lanes, lambda index, _: body(index))
    else:
        in_smaller_vectors(build, place, left, lanes, lambda index, _: body(index))


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
    """Opens a block that runs once for each position < total, a thread each."""
    threads = target.block_threads
    num_blocks = floordiv(add(total, threads - 1), threads)
    with build.loop(num_blocks, AxisKind.GRID) as block, build.loop(threads, AxisKind.BLOCK) as thread:
        position = add(mul(block, threads), thread)
        with build.when(less(position, total)):
            yield position


def emit_blocks(build: Builder, extents: list[Dim], lanes: int, body: Callable[[list[Dim]], None], rest: Dim = 0) -> None:
    """Writes the loops of a CPU over `extents`: GRID over pieces of the outermost axis, vectors along the innermost.

    Args:
      rest:  of the innermost of several axes, behind its whole vectors, where it is to go in smaller ones
    """
    if len(extents) <= 1:
        total = extents[0] if extents else 1
        with build.loop(_num_pieces(total, BLOCK_ELEMENTS), AxisKind.GRID) as block:
            start = mul(block, BLOCK_ELEMENTS)
            count = minimum(subtract(total, start), BLOCK_ELEMENTS) if _is_long(total) else total
            along(build, start if _is_long(total) else 0, count, lanes, lambda i: body([i] if extents else []))
        return
    outer, inner, last = extents[0], extents[1:-1], extents[-1]
    below = numel(extents[1:])
    per_piece = max(1, BLOCK_ELEMENTS // max(1, below)) if isinstance(below, int) else 1
    with build.loop(_num_pieces(outer, per_piece), AxisKind.GRID) as piece:
        start = mul(piece, per_piece)
        with build.loop(minimum(subtract(outer, start), per_piece), AxisKind.LOOP) as row:
            nested(build, inner, [add(start, row)],
                   lambda at: along(build, 0, last, lanes, lambda i: body([*at, i]), rest=rest))  # fmt: skip


def _is_long(total: Dim) -> bool:
    return not isinstance(total, int) or total > 2 * BLOCK_ELEMENTS


def _num_pieces(total: Dim, piece: int) -> Dim:
    if piece == BLOCK_ELEMENTS and not _is_long(total):
        return 1
    return floordiv(add(total, piece - 1), piece)
