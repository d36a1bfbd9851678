"""Numbers as small integers or 8-bit floats with a scale and a zero point.

In:    tensors, or arrays of types below a byte
Out:   `OPERATORS`
Next:  picograd/onnx/operators/control.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.onnx.kinds import of_scaled
from picograd.onnx.operators.casts import cast, widened
from picograd.onnx.operators.linear import matmul_integer
from picograd.onnx.record import row
from picograd.onnx.values import as_array, dtype_of, element_type, numpy_of
from picograd.tensor.tensor import Tensor

RANGES: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767), TensorProto.UINT4: (0, 15), TensorProto.INT4: (-8, 7),
    TensorProto.UINT2: (0, 3), TensorProto.INT2: (-2, 1),
}  # fmt: skip


def _spread(x: Tensor, shape: tuple[int, ...], axis: int, block_size: int) -> Tensor:
    """Returns scales, or zero points, so that they broadcast to what they belong to: one, one a slice, or one a block."""
    if x.numel() == 1:
        return x.reshape(())
    if block_size:
        if x.ndim != len(shape) or -(-shape[axis] // block_size) != x.shape[axis]:
            raise ShapeError(f"scales of shape {x.shape} do not fit blocks of {block_size} along axis {axis} of {shape}.")
        return x.repeat_interleave(block_size, axis).narrow(axis, 0, shape[axis])
    if x.ndim != 1 or x.shape[0] != shape[axis]:
        raise ShapeError(f"scales of shape {x.shape} do not fit axis {axis} of {shape}.")
    return x.reshape(-1, *(1,) * (len(shape) - axis - 1))


def quantize(
    x: Tensor, scale: Any, zero: Any = None, *,
    axis: int = 1, saturate: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0,
) -> Any:  # fmt: skip
    """Returns round(x / scale) + zero, cut to what the type of the zero point, or output_dtype, holds."""
    target = output_dtype or (TensorProto.UINT8 if zero is None else element_type(zero))
    steps = _spread(widened(scale), x.shape, axis, block_size)
    if precision:
        dtype = dtype_of(precision, "QuantizeLinear")
        x, steps = x.to(dtype), steps.to(dtype)
    ratio = (x if x.dtype.is_float else x.to(dtypes.float32)) / steps
    if target not in RANGES:
        return cast(ratio, to=target, saturate=saturate)
    whole = ratio.to(ratio.dtype.compute_dtype).round()
    if zero is not None:
        whole = whole + _spread(widened(zero), x.shape, axis, block_size).to(whole.dtype)
    whole = whole.clamp(*RANGES[target]).to(dtypes.int32)
    return cast(whole, to=target) if target in (TensorProto.UINT8, TensorProto.INT8) else _narrow(whole, target)


def _narrow(whole: Tensor, target: int) -> Any:
    if np.dtype(numpy_of(target)).kind in "iu" and numpy_of(target).itemsize > 1:
        return cast(whole, to=target)
    return as_array(whole).astype(np.int8).astype(numpy_of(target))


def dequantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Tensor:
    """Returns (x - zero) * scale."""
    values, scales = widened(x), widened(scale)
    dtype = dtype_of(output_dtype, "DequantizeLinear") if output_dtype else scales.dtype
    centered = values.to(dtypes.float32) if values.dtype.is_float else values.to(dtypes.int32)
    if zero is not None:
        centered = centered - _spread(widened(zero), centered.shape, axis, block_size).to(centered.dtype)
    steps = _spread(scales, centered.shape, axis, block_size)
    return (centered.to(steps.dtype.compute_dtype) * steps.to(steps.dtype.compute_dtype)).to(dtype)


def quantized_matmul(
    a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor, b_zero: Tensor, y_scale: Tensor, y_zero: Any
) -> Any:
    """Returns the product of two quantized matrices, quantized."""
    product = matmul_integer(a, b, a_zero, b_zero).to(dtypes.float32)
    rows = a_scale.unsqueeze(-1) if a_scale.ndim == 1 and a_scale.shape[0] > 1 else a_scale
    real = product * rows.to(dtypes.float32) * b_scale.to(dtypes.float32)
    return quantize(real, y_scale.to(dtypes.float32), y_zero)


OPERATORS = [
    row("QuantizeLinear", 10, quantize, span=of_scaled, hosts=True, state=(1, 2)),
    row("DequantizeLinear", 10, dequantize, span=of_scaled, hosts=True, state=(1, 2)),
    row("QLinearMatMul", 10, quantized_matmul, "1+ x x 1+", state=(1, 2, 4, 5, 6, 7)),
]  # fmt: skip
