"""Sees what a library can compute of a product before it stores it: a factor, a matrix added, a bias, a relu.

In:    the value that a nest stores, the product that it is computed from
Out:   `Epilogue`; NotPlain where more is computed
Called by: codegen/plain_product.py.    Next: picograd/codegen/unfuse.py

    relu(scale * product + factor * added + bias)      each part may be missing

The library adds up in this order, in float32, and rounds once, to the dtype of the result. A graph may have another order,
and of 16 bits it rounds after each Op, the product first: what differs is less than its own rounding. A gelu is not among
the parts: what the library's tanh gives is not written down. NOTE: nor is what its relu makes of a NaN; a generated relu
keeps it.
Source: cublasLt.h, cublasLtEpilogue_t; cuBLAS manual, cublasLtMatmul.
"""

from __future__ import annotations

from collections.abc import Iterator

from picograd import dtype as dtypes
from picograd.codegen.index import element_within
from picograd.codegen.strided import NotPlain, known_numbers, matrix_at
from picograd.dtype import DType
from picograd.ir.coordinates import placeholder, placeholders
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.opts import Bias, Epilogue, Matrix
from picograd.ir.symbolic import affine, from_op

MORE = "more is computed than the product"


def epilogue_of(value: Op, anchor: Op) -> Epilogue:
    """Returns what is computed of a product, where a library has it; raises NotPlain."""
    product = Op(OpCode.PARAM, anchor.dtype, (), (-1, ()))  # stands for its element: no kernel has such a slot
    rest = element_within(value, placeholders(value.shape), {anchor: product}, range(len(anchor.shape)))
    extents = known_numbers(anchor.shape)
    if rest.code is OpCode.CAST and anchor.dtype is dtypes.float32:  # which rounds as storing does
        rest = rest.src[0]
    under = _under_relu(rest)
    scale, factor_added, added, bias = 0.0, 0.0, None, None
    for sign, term in _terms(rest if under is None else under):
        factor, x = _multiple(term)
        factor *= sign
        if x is product and not scale and factor:
            scale = factor
        elif bias is None and factor == 1 and (found := _bias(x, extents, value.dtype)):
            bias = found
        elif added is None and factor and (matrix := _added(x, extents, value.dtype)):
            factor_added, added = factor, matrix
        else:
            raise NotPlain(MORE)
    if not scale:  # nor 0: a library may leave out what 0 times NaN is
        raise NotPlain(MORE)
    return Epilogue(scale, factor_added, added, bias, under is not None)


def _under_relu(value: Op) -> Op | None:
    """Returns x of relu(x); None where a value is none."""
    if value.code is not OpCode.WHERE or value.src[0].code is not OpCode.CMPLE:
        return None
    (x, limit), zero, kept = value.src[0].src, *value.src[1:]
    return x if x is kept and _is_zero(limit) and _is_zero(zero) else None


def _is_zero(value: Op) -> bool:
    return value.code is OpCode.CONST and value.arg == 0


def _terms(value: Op, sign: float = 1.0) -> Iterator[tuple[float, Op]]:
    """Yields the terms of a sum, each with its sign."""
    if value.code is OpCode.ADD or value.code is OpCode.SUB:
        x, y = value.src
        yield from _terms(x, sign)
        yield from _terms(y, -sign if value.code is OpCode.SUB else sign)
    else:
        yield sign, value


def _multiple(value: Op) -> tuple[float, Op]:
    """Returns (c, x) with a value of c * x; a value that is no multiple is 1 * itself."""
    if value.code is OpCode.NEG:
        return -1.0, value.src[0]
    if value.code is OpCode.MUL:
        for x, y in (value.src, value.src[::-1]):
            if y.code is OpCode.CONST:
                return float(y.arg), x
    return 1.0, value


def _added(load: Op, extents: list[int], dtype: DType) -> Matrix | None:
    """Returns where a matrix lies that is added; None where it is computed, or its rows do not lie side by side."""
    if not _is_read(load, dtype):
        return None
    try:
        found = matrix_at(load, extents, "what is added")
    except NotPlain:
        return None
    return None if found.is_turned else found


def _bias(load: Op, extents: list[int], dtype: DType) -> Bias | None:
    """Returns where a vector lies of which every row gets an element for each column."""
    if not _is_read(load, dtype):
        return None
    terms, offset = affine(from_op(load.src[1]))
    columns = placeholder(len(extents) - 1, extents[-1])
    return Bias(load.src[0].arg[0], offset) if terms == {columns: 1} else None


def _is_read(value: Op, dtype: DType) -> bool:
    """True for what comes from memory as it is, everywhere."""
    return value.code is OpCode.LOAD and value.dtype is dtype and len(value.src) == 2
