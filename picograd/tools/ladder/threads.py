"""Rung 6, threads: the loops over panels and tiles become GRID loops, whose iterations the worker pool shares.

In:    `Product`
Out:   a Program of two phases: pack, multiply
Next:  picograd/tools/ladder/fused.py

Between the phases all threads wait for each other. One iteration multiplies one panel of b by up to PANELS panels of
a: small enough that there are more iterations than threads, large enough that a thread keeps its panel of b in its own
cache. No sum is cut, so the result is the same, bit for bit, with any number of threads.
"""

from __future__ import annotations

from picograd.codegen.builder import Builder
from picograd.codegen.loops import split
from picograd.ir.opcode import AxisKind
from picograd.ir.stages import Program
from picograd.ir.symbolic import add, minimum, mul, subtract
from picograd.tools.ladder.packed import Panels, emit_packing, emit_tile
from picograd.tools.ladder.product import Product

PANELS = 16  # of a, of one iteration


def threads(product: Product) -> Program:
    """Returns the phases of rung 5 with GRID loops."""
    panels, pack, build = Panels(product), Builder(), Builder()
    emit_packing(pack, panels, AxisKind.GRID)
    pieces = -(-panels.num_rows // PANELS)
    with build.loop(panels.num_columns * pieces, AxisKind.GRID) as position:
        column, piece = split(position, [panels.num_columns, pieces])
        first = mul(piece, PANELS)
        with build.loop(minimum(subtract(panels.num_rows, first), PANELS), AxisKind.LOOP) as row:
            emit_tile(build, panels, add(first, row), column)
    return product.program("threads", pack.finish(), build.finish(), scratch=(panels.a, panels.b))
