"""Sees which kernels are a product of matrices in memory and nothing else: a vendor's library can compute these.

In:    Kernel
Out:   `PlainProduct`, or the reason why it is none
Called by: engine/library.py.    Next: picograd/codegen/lower.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.codegen.index import element_anywhere
from picograd.ir.coordinates import placeholder
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Matrix, PlainProduct
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Kernel, NestKind
from picograd.ir.symbolic import affine, from_op

DTYPES = (dtypes.float32, dtypes.float16, dtypes.bfloat16)  # whose sums are float32 here as there


class NotPlain(Exception):
    """Why a kernel is no plain product."""


def plain_product(kernel: Kernel) -> PlainProduct | str:
    """Returns what a library would have to compute in place of a kernel, or the reason why none could.

    Taken is one product whose result is stored as it is, in the dtype of both operands, and whose operands lie in memory
    with rows or columns side by side, at equal distances, as do the matrices of a batch. So are views: transposed, cut out,
    heads of an attention. Not taken is what is computed on its way in or out, a bias, an activation, a cast: a generated
    kernel does that without another pass over memory.
    """
    try:
        return _product_of(kernel)
    except NotPlain as reason:
        return str(reason)


def _product_of(kernel: Kernel) -> PlainProduct:
    """Returns the product that a kernel is; raises NotPlain."""
    if [[nest.kind for nest in phase] for phase in kernel.phases] != [[NestKind.MATMUL]]:
        raise NotPlain("it is not one product")
    ((nest,),) = kernel.phases
    anchor, ((out, value), *others) = nest.anchor, nest.outputs
    assert anchor is not None, "a product has an anchor"
    while value.code is OpCode.RESHAPE:  # no element moves
        value = value.src[0]
    if others or value is not anchor:
        raise NotPlain("more is computed than the product")
    *outer, m, n = _numbers(anchor.shape)
    k = _numbers(anchor.src[0].shape)[-1]
    batch = numel(outer)
    assert isinstance(batch, int)
    if not batch * m * n * k:
        raise NotPlain("it is empty")
    if anchor.dtype not in DTYPES:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    a, b = (_matrix(operand, anchor, name) for operand, name in zip(anchor.src, ("the left operand", "the right operand")))
    return PlainProduct(a, b, out, batch, m, n, k, anchor.dtype.name, takes_tf32(anchor))


def _numbers(shape: Shape) -> list[int]:
    """Returns a shape, all of which is known."""
    known = [dim for dim in shape if isinstance(dim, int)]
    if len(known) < len(shape):
        raise NotPlain("its shape is symbolic")
    return known


def _matrix(operand: Op, anchor: Op, name: str) -> Matrix:
    """Returns where an operand lies; raises NotPlain."""
    load = element_anywhere(operand)
    if load.code is not OpCode.LOAD or load.dtype is not anchor.dtype:
        raise NotPlain(f"{name} is computed")
    if len(load.src) > 2:
        raise NotPlain(f"{name} has zeros around it")
    terms, offset = affine(from_op(load.src[1]))
    *outer, rows, columns = extents = _numbers(operand.shape)
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
