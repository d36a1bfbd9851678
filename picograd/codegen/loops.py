"""Loops that several emitters write: over positions in groups of axes, several extents, vectors or squares and a rest.

In:    extents, a body
Out:   statements in the free form
Called by: the emitters.    Next: picograd/codegen/elementwise.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.builder import Builder
from picograd.device import Target
from picograd.ir.op import Dim
from picograd.ir.opcode import AxisKind
from picograd.ir.symbolic import add, floordiv, mod, mul, subtract


def over_registers(target: Target) -> AxisKind:
    """Returns the kind of a loop whose index chooses registers, so that it must be written out.

    Compilers of languages like C do that (render/blocks.py), and the text stays short; elsewhere it is done here.
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
    before: Callable[[Dim], None] | None = None,
) -> None:  # fmt: skip
    """Runs `body` for start .. start + count: whole vectors, `before` before each, then what is left one by one."""
    whole = floordiv(count, lanes) if lanes > 1 else 0
    if whole != 0:
        with build.loop(whole, AxisKind.LOOP) as vector:
            first = add(start, mul(vector, lanes))
            if before is not None:
                before(first)
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                body(add(first, lane))
    rest = subtract(count, mul(whole, lanes))
    if rest != 0:
        with build.loop(rest, AxisKind.LOOP) as index:
            body(add(start, add(mul(whole, lanes), index)))
