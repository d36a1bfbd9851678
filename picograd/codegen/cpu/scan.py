"""The loops of a scan on a CPU: running sums, products, maxima and minima along one axis.

In:    Nest (kind SCAN), whose anchor is the SCAN
Out:   one phase of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/scan.py

Rows are independent of each other; along a row the order is the order of the axis, so the bits are those of a loop.
"""

from __future__ import annotations

from picograd.codegen.axes import vector_lanes
from picograd.codegen.builder import Context
from picograd.codegen.index import element_within
from picograd.codegen.loops import along, split
from picograd.codegen.rows import running_dtype, start_of
from picograd.codegen.scalar import combined
from picograd.ir.build import cast
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

PIECE = 256  # of the elements right of the axis, whose running values one thread keeps


def emit_scan(nest: Nest, context: Context) -> None:
    """Writes out[..., i, ...] = x[..., 0, ...] op ... op x[..., i, ...].

    GRID over what is left of the axis and pieces of what is right of it; vectors run along the right.
    """
    params, target = context.params, context.target
    build = context.phase(0)
    anchor = nest.anchor
    assert anchor is not None and len(nest.outputs) == 1
    (x,), (code, axis) = anchor.src, anchor.arg
    left, length, right = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    out, dtype = params[nest.outputs[0][0]], running_dtype(anchor)

    def step(running: Op, where: Dim, coords: Coords) -> None:
        value = cast(element_within(x, coords), dtype)
        total = combined(code, build.load(running, where), value)
        build.store(running, where, total)
        build.store(out, flatten(coords, x.shape), cast(total, anchor.dtype))

    columns = numel(right)
    width = min(PIECE, columns) if isinstance(columns, int) else PIECE
    lanes = vector_lanes([x], target) if width > 1 else 1
    pieces = floordiv(add(columns, width - 1), width)
    with build.loop(numel((*left, pieces)), AxisKind.GRID) as position:
        *at, piece = split(position, [*left, pieces])
        start = mul(piece, width)
        count = minimum(subtract(columns, start), width)
        running = build.alloc(dtype, width, MemorySpace.REGISTER if width == 1 else MemorySpace.SHARED)
        along(build, 0, count, lanes, lambda c: build.store(running, c, start_of(code, dtype)))
        with build.loop(length, AxisKind.LOOP) as i:
            along(
                build, 0, count, lanes, lambda c: step(running, c, (*at, i, *split(add(start, c), list(right))))
            )  # fmt: skip
