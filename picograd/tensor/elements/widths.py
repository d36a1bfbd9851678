"""The bits of elements, as elements of another dtype and width.

In:    an Op and a dtype
Out:   `with_width`
Next:  picograd/tensor/movement/pieces.py

Elements lie in memory with their lowest bits first, as on every machine picograd runs on.
"""

from __future__ import annotations

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ShapeError
from picograd.ir.build import expand, reduce, reshape
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import floordiv, mul

UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def with_width(op: Op, dtype: DType) -> Op:
    """Returns the bits of `op` as elements of `dtype`, along the last axis.

    Raises:
      ShapeError: a number has no axis to cut, or the last axis no whole number of wider elements.
    """
    width, wanted = op.dtype.itemsize, dtype.itemsize
    if width == wanted:
        return Op(OpCode.BITCAST, dtype, (op,))
    if not op.shape:
        raise ShapeError(f"view: a number of {op.dtype} has no axis along which {dtype} fits its bits.")
    length = op.shape[-1]
    bits = Op(OpCode.BITCAST, UNSIGNED[width], (op,))
    if width > wanted:
        parts = _cut(bits, width // wanted, UNSIGNED[wanted])
        return Op(OpCode.BITCAST, dtype, (reshape(parts, (*op.shape[:-1], mul(length, width // wanted))),))
    count = wanted // width
    if mul(floordiv(length, count), count) != length:
        raise ShapeError(f"view: the last axis of {op.shape} is not a multiple of {count}, the {op.dtype} in one {dtype}.")
    rows = reshape(bits, (*op.shape[:-1], floordiv(length, count), count))
    return Op(OpCode.BITCAST, dtype, (_joined(rows, UNSIGNED[wanted]),))


def _cut(bits: Op, count: int, part: DType) -> Op:
    """Returns (..., count): unsigned integers cut into narrower ones, the lowest first."""
    shape = (*bits.shape, count)
    wide = expand(reshape(bits, (*bits.shape, 1)), shape)
    low = Op(OpCode.SHR, bits.dtype, (wide, _places(count, part.itemsize, bits.dtype, (*bits.shape, count))))
    mask = filled((1 << 8 * part.itemsize) - 1, bits.dtype, shape)
    return Op(OpCode.CAST, part, (Op(OpCode.AND, bits.dtype, (low, mask)),))


def _joined(rows: Op, whole: DType) -> Op:
    """Returns (...): the narrower unsigned integers of the last axis, the lowest first, as one."""
    wide = Op(OpCode.CAST, whole, (rows,))
    shifted = Op(OpCode.SHL, whole, (wide, _places(rows.shape[-1], rows.dtype.itemsize, whole, rows.shape)))
    return reduce(shifted, OpCode.ADD, (len(rows.shape) - 1,))


def _places(count: object, itemsize: int, dtype: DType, shape: tuple[object, ...]) -> Op:
    """Returns the place of the lowest bit of each part, over `shape`, whose last axis counts the parts."""
    line = Op(OpCode.IOTA, dtypes.int64, (), count)
    bits = Op(OpCode.CAST, dtype, (line,)) * (8 * itemsize)
    return expand(reshape(bits, (*(1 for _ in shape[:-1]), count)), shape)  # type: ignore[arg-type]
