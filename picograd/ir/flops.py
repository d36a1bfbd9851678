"""Floating-point operations of an Op: of a graph as it was written, before anything is fused.

In:    an Op
Out:   `flops_of`
Next:  picograd/ir/coordinates.py

2 M N K of a product, one for each element of an elementwise operation, one for each element that a reduction or scan reads.
"""

from __future__ import annotations

from collections.abc import Mapping

from picograd.ir.dims import dim_value
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import ATTENTIONS, IDENTITY, MOVEMENT, SOURCES, OpCode
from picograd.ir.shape import numel

# What moves, converts or finds numbers, and computes none.
WITHOUT_ARITHMETIC = MOVEMENT | IDENTITY | SOURCES | {
    OpCode.CAST, OpCode.BITCAST, OpCode.COPY, OpCode.OUTPUT, OpCode.GATHER, OpCode.SCATTER, OpCode.SORT, OpCode.CHECK,
    OpCode.THREEFRY,
}  # fmt: skip
NO_VARIABLES: Mapping[str, int] = {}


def flops_of(op: Op, variables: Mapping[str, int] = NO_VARIABLES) -> int:
    """Returns the floating-point operations of one Op; a multiplication and an addition count as two.

    Args:
      variables:  values of symbolic integers by name
    """
    if op.code in WITHOUT_ARITHMETIC or not op.dtype.is_float:
        return 0

    def count(*dims: Dim) -> int:
        return dim_value(numel(dims), variables)

    def all_of(shape: Shape) -> int:
        return count(*shape)

    if op.code is OpCode.MATMUL:
        return 2 * all_of(op.shape) * count(op.src[0].shape[-1])
    if op.code is OpCode.CONV:
        return 2 * all_of(op.shape) * all_of(op.src[1].shape[1:])
    if op.code in ATTENTIONS:
        (*_, queries, features), (*_, keys, _), (*_, values) = (s.shape for s in op.src[:3])
        factors = (1, 1) if op.code is OpCode.ATTENTION else (3, 2)
        lengths = factors[0] * count(features) + factors[1] * count(values)
        return 2 * all_of(op.src[0].shape[:2]) * count(queries) * count(keys) * lengths
    if op.code in (OpCode.REDUCE, OpCode.SCAN):
        return all_of(op.src[0].shape)
    return all_of(op.shape)
