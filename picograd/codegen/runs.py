"""Loops that add up in runs: each run has totals of its own, which are then added to those of the level above.

In:    extents, totals, a body that adds to some totals
Out:   statements in the free form
Called by: the emitters of reductions and products.    Next: picograd/codegen/row_loops.py

A total to which n numbers are added one after the other has an error of up to n roundings. In runs of 16, and runs of 16
runs, it has 16 for each level: 4 log2(n). Sums no longer than a run are plain loops. How a sum is cut depends on its
extents alone. One more level has the same bits, so a length between bounds is cut as each of its values.

    for i < 4096: total += x[i]   ->   for a < 16: outer = 0
                                           for b < 16: inner = 0
                                               for c < 16: inner += x[256 a + 16 b + c]
                                               outer += inner
                                           total += outer

Source: Higham 1993, "The accuracy of floating point summation", SIAM J. Sci. Comput. 14(4), section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from picograd.codegen.builder import Builder
from picograd.ir.op import Dim
from picograd.ir.opcode import AxisKind
from picograd.ir.symbolic import add, bounds, floordiv, minimum, mod, mul, subtract
from picograd.record import Record

RUN_STEPS = 8  # additions to a total before it is added to the next one

T = TypeVar("T")


class _Loop(Record):
    """One loop over a part of an axis.

    step:    elements of the axis from one iteration to the next
    count:   iterations; 0: to the end of the axis
    is_run:  the loop has totals of its own, which are added to those outside behind it
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
      fresh:  makes other totals, of nothing
      join:   join(part, total) adds the one to the other
      run:    additions of the innermost level; 0: all of them
    """
    loops = _loops(extents, run) if run else [_Loop(axis, 1, 0, False) for axis in range(len(extents))]

    def write(loops: Sequence[_Loop], at: list[Dim], total: T) -> None:
        if not loops:
            body(total, at)
            return
        loop, *inner = loops
        own = fresh() if loop.is_run else total
        with build.loop(_count(extents[loop.axis], loop, at[loop.axis]), AxisKind.LOOP) as index:
            here = [*at]
            here[loop.axis] = add(at[loop.axis], mul(index, loop.step))
            write(inner, here, own)
        if loop.is_run:
            join(own, total)

    write(loops, [0] * len(extents), total)


def _count(extent: Dim, loop: _Loop, start: Dim) -> Dim:
    """Returns how many iterations a loop has that begins at `start`."""
    if loop.count == 1 or loop.count and mod(extent, loop.count * loop.step) == 0:
        return loop.count
    left = floordiv(add(subtract(extent, start), loop.step - 1), loop.step)
    return minimum(left, loop.count) if loop.count else left


def _loops(extents: Sequence[Dim], run: int) -> list[_Loop]:
    """Returns the loops, the outermost first: of each level no more additions than a run has."""
    found: list[_Loop] = []
    chain, most = 1, run
    for axis in reversed(range(len(extents))):
        step, left = 1, longest(extents[axis])
        while chain * left > most:
            count = most // chain
            if count > 1 or not found:
                found.append(_Loop(axis, step, count, False))
                step, left = step * count, -(-left // count)
            found[-1:] = [_Loop(loop.axis, loop.step, loop.count, True) for loop in found[-1:]]
            chain, most = 1, RUN_STEPS
        found.append(_Loop(axis, step, 0, False))
        chain = min(chain * left, most)
    return found[::-1]


def longest(extent: Dim) -> int:
    """Returns the length by which a sum is cut: the greatest it may have."""
    return max(0, bounds(extent)[1])
