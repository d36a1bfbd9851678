"""a * b + c with one rounding, on processors that have no instruction for it (x86-64 before FMA3).

In:    FMA of scalar Ops
Out:   scalar Ops without FMA
Called by: codegen/passes/legalize.py.    Next: picograd/codegen/passes/linearize.py

Functions such as log and sin use FMA for what a rounding would lose, so two roundings would make them wrong. LLVM would
call the C library's fma for each element. Sums of products do not come here: `multiply_add` lets them round twice.
"""

from __future__ import annotations

import math

from picograd import dtype as dtypes
from picograd.codegen.scalar import FORMATS, absolute, and_, bitcast, bits_of, cast, less, where
from picograd.ir.op import Op

LOW_BITS = 27  # of the 53 of a float64; rounded to the nearest, each half has 26 bits, so their products are exact


def fma_without_instruction(op: Op) -> Op:
    """Returns a * b + c, off by hardly more than half a unit in the last place.

    float32: in float64, where the product is exact.
    float64: the product, the sum, and the errors of both added up. Where these errors are too small for a float64, or an
             operand is next to the greatest one, the result is that of two roundings.
    """
    a, b, c = op.src
    if op.dtype is dtypes.float32:
        wide = [cast(x, dtypes.float64) for x in op.src]
        return cast(wide[0] * wide[1] + wide[2], dtypes.float32)
    product = a * b
    total = product + c
    part = total - product
    sum_error = (product - (total - part)) + (c - part)
    exact = total + (_product_error(a, b, product) + sum_error)
    return where(less(absolute(exact), math.inf), exact, total)


def _product_error(a: Op, b: Op, product: Op) -> Op:
    """Returns a * b - product.

    Source: Dekker 1971, "A floating-point technique for extending the available precision", with operands that are cut
    in two by their bits: multiplying them by 2**27 would overflow sooner.
    """
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(x: Op) -> tuple[Op, Op]:
    """Returns a float64 rounded to the first half of its bits, and the rest."""
    keep = (1 << FORMATS[x.dtype].unsigned.bits) - (1 << LOW_BITS)
    high = bitcast(and_(bits_of(x) + (1 << (LOW_BITS - 1)), keep), x.dtype)
    return high, x - high
