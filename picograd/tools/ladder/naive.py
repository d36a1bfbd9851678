"""Rung 1, naive: the definition, c[i, j] = sum over k of a[i, k] * b[k, j], as three loops.

In:    `Product`
Out:   a Program of one phase
Next:  picograd/tools/ladder/blocked.py

Each addition waits for the one before, some 4 cycles, and b is read down a column: of each cache line it fetches, it
uses 4 bytes before the line is gone.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.ir.op import const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.stages import Program
from picograd.tools.ladder.product import Product


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
