"""Sees where the matrices of a product lie in memory: a vendor's library takes them as they lie.

In:    an operand (..., rows, columns), or the load of its element
Out:   `Matrix`; `NotPlain` says why it is none
Called by: codegen/plain_product.py, codegen/library_epilogue.py.    Next: picograd/codegen/library_epilogue.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.index import element_anywhere
from picograd.dtype import DType
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Matrix
from picograd.ir.symbolic import affine, from_op


class NotPlain(Exception):
    """Why a product is none that a library computes."""


def known_numbers(shape: Shape) -> list[int]:
    """Returns a shape, all of which is known; raises NotPlain."""
    known = [dim for dim in shape if isinstance(dim, int)]
    if len(known) < len(shape):
        raise NotPlain("its shape is symbolic")
    return known


def matrix_of(operand: Op, dtype: DType, name: str) -> Matrix:
    """Returns where an operand lies, as elements of a dtype; raises NotPlain."""
    load = element_anywhere(operand)
    if load.code is OpCode.CAST and load.src[0].dtype is dtype:
        load = load.src[0]
    if load.code is not OpCode.LOAD or load.dtype is not dtype:
        raise NotPlain(f"{name} is computed")
    if len(load.src) > 2:
        raise NotPlain(f"{name} has zeros around it")
    return matrix_at(load, known_numbers(operand.shape), name)


def matrix_at(load: Op, extents: Sequence[int], name: str) -> Matrix:
    """Returns where a batch of matrices lies, of which `load` reads the element at placeholders of its axes."""
    terms, offset = affine(from_op(load.src[1]))
    *outer, rows, columns = extents
    axes = [placeholder(axis, extent) for axis, extent in enumerate(extents)]
    if not terms.keys() <= {*axes}:
        raise NotPlain(f"{name} does not lie at equal distances")
    *outer_steps, row_step, column_step = [terms.get(axis, 0) for axis in axes]
    lies = _lies(rows, columns, row_step, column_step)
    if lies is None:
        raise NotPlain(f"{name} has neither rows nor columns side by side")
    return Matrix(load.src[0].arg[0], offset, *lies, _batch_stride(outer, outer_steps, name))


def _lies(rows: int, columns: int, row_step: int, column_step: int) -> tuple[int, bool] | None:
    """Returns the stride of a matrix and whether columns lie side by side; None where neither they nor rows do.

    >>> _lies(4, 3, 10, 1), _lies(4, 3, 1, 10), _lies(4, 3, 0, 1)
    ((10, False), (10, True), None)
    """
    for length, count, step, stride, is_turned in (
        (columns, rows, column_step, row_step, False),
        (rows, columns, row_step, column_step, True),
    ):
        if length == 1 or step == 1:
            apart = stride if count > 1 else length
            if apart >= length:  # or they overlap, as windows do
                return apart, is_turned
    return None


def _batch_stride(extents: Sequence[int], steps: Sequence[int], name: str) -> int:
    """Returns the distance between two matrices of a batch, whatever its axes; raises NotPlain."""
    axes = [(extent, step) for extent, step in zip(extents, steps) if extent > 1]
    if any(outer[1] != inner[1] * inner[0] for outer, inner in zip(axes, axes[1:])) or any(step < 0 for _, step in axes):
        raise NotPlain(f"the batch of {name} does not lie at equal distances")
    return axes[-1][1] if axes else 0
