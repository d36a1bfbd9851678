"""Rungs 2 and 3, blocked and vectors: the same work in an order that caches like; then 4, 8 or 16 columns at a time.

In:    `Product`
Out:   a Program of one phase
Next:  picograd/tools/ladder/registers.py

A block of b, DEPTH rows of WIDTH columns, stays in the first-level cache while all rows of a meet it. The innermost
loop runs along rows of b and c, so it uses whole cache lines, and its sums do not wait for each other: that makes it
fit for vectors, which change nothing but this loop. What is left: two loads and a store for each multiplication.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.codegen.loops import along
from picograd.ir.op import Dim, const
from picograd.ir.opcode import AxisKind
from picograd.ir.stages import Program
from picograd.ir.symbolic import add, minimum, mul, subtract
from picograd.tools.ladder.product import Product

DEPTH, WIDTH = 4, 1024  # 16 KB of b; rows this long lie in cache side by side, whatever the distance between them


def blocked(product: Product) -> Program:
    """Returns loops over blocks of b, one column at a time."""
    return product.program("blocked", _emit(product, 1).finish())


def vectors(product: Product) -> Program:
    """Returns the same loops, with a vector of columns at a time."""
    return product.program("vectors", _emit(product, product.lanes).finish())


def _emit(product: Product, lanes: int) -> Builder:
    """Writes the loops: `DEPTH` rows of b, `WIDTH` columns wide, stay in the cache while all rows of a pass by."""
    build = Builder()
    zero = const(0.0, dtypes.float32)
    along(build, 0, product.m * product.n, lanes, lambda place: build.store(product.c, place, zero))
    with (
        build.loop(-(-product.k // DEPTH), AxisKind.LOOP) as block,
        build.loop(-(-product.n // WIDTH), AxisKind.LOOP) as stripe,
        build.loop(product.m, AxisKind.LOOP) as i,
        build.loop(minimum(subtract(product.k, mul(block, DEPTH)), DEPTH), AxisKind.LOOP) as depth,
    ):
        k, first = add(mul(block, DEPTH), depth), mul(stripe, WIDTH)

        def multiply_add(j: Dim) -> None:
            place = product.place(i, j)
            build.store(product.c, place, build.load(product.c, place) + product.a(i, k) * product.b(k, j))

        along(build, first, minimum(subtract(product.n, first), WIDTH), lanes, multiply_add)
    return build
