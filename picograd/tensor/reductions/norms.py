"""The p-norm, the one formula of it: `Tensor.norm`, `linalg.vector_norm`, distances and optimizers read it from here.

In:    an Op
Out:   `norm_op`
Next:  picograd/tensor/products/matmul.py
"""

from __future__ import annotations

import math

from picograd.ir.build import cast, compare, reduce, where, zeros_like
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.tensor.elements import pointwise
from picograd.tensor.formulas import formula


@formula
def norm_op(x: Op, p: float, axes: tuple[int, ...], keepdim: bool = False) -> Op:
    """Returns (sum |x|^p)^(1/p) along axes; p = 0 counts what is not 0, inf and -inf are the greatest and the least |x|.

    Gradients are 0 where x is 0, as in PyTorch, but for p = 0 and between p = 0 and 1. Narrow floats are computed with in
    float32: the square of 300 is no float16.
    """
    if p == 0:
        return cast(reduce(cast(compare(OpCode.CMPNE, x, 0), x.dtype.compute_dtype), OpCode.ADD, axes, keepdim), x.dtype)
    wide = cast(x, x.dtype.compute_dtype)
    if p == 2:
        return cast(pointwise.flat_sqrt(reduce(wide * wide, OpCode.ADD, axes, keepdim)), x.dtype)
    magnitude = pointwise.absolute(wide)
    if math.isinf(p) or p == 1:
        code = OpCode.ADD if p == 1 else OpCode.MAX if p > 0 else OpCode.MIN
        return cast(reduce(magnitude, code, axes, keepdim), x.dtype)
    return cast(_root(reduce(_powers(magnitude, p), OpCode.ADD, axes, keepdim), p), x.dtype)


def _powers(magnitude: Op, p: float) -> Op:
    """Returns |x|^p; at 0 a constant, whose derivative is 0."""
    is_zero = compare(OpCode.CMPEQ, magnitude, 0)
    safe = where(is_zero, magnitude.filled(1), magnitude)
    return where(is_zero, magnitude.filled(0.0 if p > 0 else math.inf), Op(OpCode.POW, safe.dtype, (safe, safe.filled(p))))


def _root(total: Op, p: float) -> Op:
    """Returns total^(1/p) with the derivative 0 at 0."""
    is_zero = compare(OpCode.CMPEQ, total, 0)
    some = where(is_zero, total.filled(1), total)
    return where(is_zero, zeros_like(total), Op(OpCode.POW, some.dtype, (some, some.filled(1 / p))))
