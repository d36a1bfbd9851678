"""The loops of a convolution on a GPU: a thread an element of the result.

In:    Nest (kind CONV)
Out:   one phase of statements in the free form
Called by: codegen/lower.py.    Next: picograd/codegen/scan.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder
from picograd.codegen.elementwise import grid_of_threads
from picograd.codegen.loops import split
from picograd.codegen.matmul import store_outputs
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import multiply_add
from picograd.codegen.windows import Windows
from picograd.device import Target
from picograd.ir.build import cast
from picograd.ir.op import Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import floordiv


def emit_convolution_gpu(nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes a convolution: each thread walks the channels and taps of its element."""
    anchor = nest.anchor
    assert anchor is not None
    windows, dtype = Windows(anchor), accumulator_dtype(anchor)
    with grid_of_threads(build, numel(nest.domain), target) as number:
        b, o, *at = split(number, list(nest.domain))
        group = floordiv(o, max(1, windows.m))
        acc = build.alloc(dtype, 1, MemorySpace.REGISTER)
        build.store(acc, 0, const(0, dtype))
        with build.loop(windows.channels, AxisKind.LOOP) as c, build.loop(windows.num_taps, AxisKind.LOOP) as tap:
            lhs = cast(windows.weight(o, c, tap), dtype)
            rhs = cast(windows.column(b, at, group, c, tap, True), dtype)
            build.store(acc, 0, multiply_add(lhs, rhs, build.load(acc, 0)))
        store_outputs(nest, params, (b, o, *at), cast(build.load(acc, 0), anchor.dtype), build)
