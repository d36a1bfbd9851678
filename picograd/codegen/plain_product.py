"""Sees which nests are a product of matrices in memory: a vendor's library can compute these.

In:    Nest (kind MATMUL)
Out:   `PlainProduct`; NotPlain says why it is none
Called by: codegen/unfuse.py.    Next: picograd/codegen/strided.py
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.codegen.index import element_anywhere
from picograd.codegen.library_epilogue import epilogue_of
from picograd.codegen.strided import NotPlain, known_numbers, matrix_of
from picograd.dtype import DType
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import PlainProduct
from picograd.ir.shape import numel, takes_tf32
from picograd.ir.stages import Nest

NARROW = (dtypes.float16, dtypes.bfloat16)
DTYPES = (dtypes.float32, *NARROW)  # whose sums are float32 here as there
SIDES = ("the left operand", "the right operand")


def product_of(nest: Nest) -> PlainProduct:
    """Returns what a library would have to compute in place of a nest; raises NotPlain where none could.

    Taken is one product with one result, whose operands lie in memory with rows or columns side by side, at equal
    distances, as do the matrices of a batch. So are views: transposed, cut out, heads of an attention. Operands of 16 bits
    may be widened to float32 on their way in: their products are exact there, as they are in the library. What is computed
    of the result is what a library's own epilogue has (codegen/library_epilogue.py).
    """
    anchor, ((out, value), *others) = nest.anchor, nest.outputs
    assert anchor is not None, "a product has an anchor"
    if others:
        raise NotPlain("it has several results")
    *outer, m, n = known_numbers(anchor.shape)
    k = known_numbers(anchor.src[0].shape)[-1]
    batch = numel(outer)
    assert isinstance(batch, int)
    if not batch * m * n * k:
        raise NotPlain("it is empty")
    if anchor.dtype not in DTYPES:
        raise NotPlain(f"its dtype is {anchor.dtype}")
    dtype = operand_dtype(anchor)
    a, b = (matrix_of(operand, dtype, name) for operand, name in zip(anchor.src, SIDES))
    epilogue = epilogue_of(value, anchor)
    out_dtype = value.dtype
    if out_dtype not in (dtype, anchor.dtype):
        raise NotPlain(f"its result is {out_dtype}")
    tf32 = takes_tf32(anchor) and dtype is dtypes.float32
    return PlainProduct(a, b, out, batch, m, n, k, dtype.name, out_dtype.name, tf32, epilogue)


def operand_dtype(anchor: Op) -> DType:
    """Returns the dtype in which a product's operands are read: narrow where both are widened on their way in."""
    read = {_source_dtype(operand) for operand in anchor.src}
    narrow = read.pop() if len(read) == 1 else anchor.dtype
    return narrow if anchor.dtype is dtypes.float32 and narrow in NARROW else anchor.dtype


def _source_dtype(operand: Op) -> DType:
    element = element_anywhere(operand)
    return element.src[0].dtype if element.code is OpCode.CAST else element.dtype
