"""Casts between element types, including types that only arrays have; quantization to small integers with a scale.

Arrays of the host have types that tensors lack: strings, 8-bit floats without negative zero, types below a byte.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError, UnsupportedOp
from picograd.tensor.tensor import Tensor
from picograd_onnx.operators.math import matmul_integer
from picograd_onnx.record import of_scaled, row
from picograd_onnx.values import Array, as_array, dtype_of, element_type, is_tensor_dtype, numpy_of, type_name

FLOAT8 = {
    TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
}  # fmt: skip


def widened(x: Any) -> Tensor:
    """Converts a value to a tensor of its own dtype, or of the narrowest dtype that holds all values of its type."""
    if isinstance(x, Tensor):
        return x
    if x.dtype.kind in "OU":
        raise UnsupportedOp("strings are not numbers.")
    name = x.dtype.name
    return Tensor(x.astype(np.int8 if name.startswith("int") else np.uint8 if name.startswith("uint") else np.float32))


def cast(x: Any, *, to: int, saturate: int = 1, round_mode: str = "up") -> Any:
    """Casts the elements; floats out of an 8-bit float's range become its largest, unless saturate is 0."""
    if to == TensorProto.STRING:
        return _written(as_array(x))
    if isinstance(x, np.ndarray) and x.dtype.kind in "OU":
        x = _parsed(x, to)
    if to == TensorProto.FLOAT8E8M0:
        return _power_of_two(as_array(x), round_mode)
    target = numpy_of(to)
    if to in FLOAT8 and saturate:
        x = _saturated(widened(x), target)
    if is_tensor_dtype(np.empty(0, target)):
        return _tensor_cast(widened(x), dtype_of(to, "Cast"))
    return _narrowed(as_array(x) if isinstance(x, Tensor) else x, to)


def _tensor_cast(x: Tensor, dtype: DType) -> Tensor:
    if x.dtype is dtypes.float64 and dtype in (dtypes.float8_e4m3, dtypes.float8_e5m2):
        x = x.to(dtypes.float32)
    return x.to(dtype)


def _saturated(x: Tensor, target: np.dtype[Any]) -> Tensor:
    """Clamps x to the finite range of an 8-bit float; NaN stays."""
    most = float(ml_dtypes.finfo(target).max)  # type: ignore[no-untyped-call]
    return x.clamp(-most, most) if x.dtype.is_float else x


def _narrowed(x: Array, to: int) -> Array:
    """Casts an array to a type that tensors lack; integers wrap."""
    target = numpy_of(to)
    if target.name in ("int4", "uint4", "int2", "uint2"):
        bits = int(target.name[-1])
        whole = x.astype(np.int32) & ((1 << bits) - 1)
        signed = np.where(whole >> (bits - 1), whole - (1 << bits), whole) if target.name.startswith("int") else whole
        return signed.astype(np.int8).astype(target)
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(np.float32).astype(target)


def _power_of_two(x: Array, round_mode: str) -> Array:
    """Rounds positive numbers to powers of two: up, down or to the nearest."""
    modes = {"up": np.ceil, "down": np.floor, "nearest": np.rint}
    if round_mode not in modes:
        raise ArgumentError(f'Cast: round_mode must be "up", "down" or "nearest", got {round_mode!r}.')
    values = x.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mantissa, exponent = np.frexp(values)  # values = mantissa * 2 ** exponent, mantissa in [0.5, 1)
    down = exponent - 1
    chosen = {
        "up": down + (mantissa > 0.5), "down": down, "nearest": down + (mantissa >= 0.75),
    }[round_mode]  # fmt: skip
    codes = np.where(values == 0, 0, np.clip(chosen + 127, 0, 254)).astype(np.uint8)
    return np.where(np.isfinite(values), codes, 255).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


# ---- strings ----
def _parsed(x: Array, to: int) -> Array:
    """Parses strings as numbers.

    Raises:
      ArgumentError: a string is not a number.
    """
    target = numpy_of(to)
    kind = np.float64 if target.kind not in "biu" else np.int64
    try:
        return np.array([kind(float(text)) if kind is np.float64 else int(text) for text in x.reshape(-1)]).reshape(x.shape)
    except ValueError as error:
        raise ArgumentError(f"Cast: a string is not {type_name(to)}: {error}.") from None


def _written(x: Array) -> Array:
    """Formats numbers as strings."""
    if x.dtype.kind in "OU":
        return x
    floats = x.dtype.kind not in "biu"
    shown = [_number_text(float(v)) if floats else str(v.item()) for v in x.reshape(-1)]
    return np.array(shown, object).reshape(x.shape)


def _number_text(value: float) -> str:
    if np.isnan(value):
        return "NaN"
    return ("INF" if value > 0 else "-INF") if np.isinf(value) else f"{value:.9g}"


def cast_like(x: Any, target: Any, *, saturate: int = 1, round_mode: str = "up") -> Any:
    """Casts the elements to the type of another value."""
    return cast(x, to=element_type(target), saturate=saturate, round_mode=round_mode)


def bitcast(x: Any, *, to: int) -> Any:
    """Reinterprets the bits as another type of the same width."""
    return as_tensor_bits(x, dtype_of(to, "BitCast"))


def as_tensor_bits(x: Tensor, dtype: DType) -> Tensor:
    """Reinterprets the bits of x as another dtype; bools are bytes."""
    if x.dtype is dtypes.bool_:
        x = x.to(dtypes.uint8)
    return x if x.dtype is dtype else x.ne(0) if dtype is dtypes.bool_ else x.bitcast(dtype)


def legacy_cast(x: Any, *, to: str) -> Any:
    """Casts the elements to a type that a string names."""
    if to not in {*TensorProto.DataType.keys()}:  # noqa: SIM118
        raise ArgumentError(f"Cast: there is no element type {to!r}.")
    return cast(x, to=TensorProto.DataType.Value(to))


OPERATORS = [
    row("Cast", 1, legacy_cast, hosts=True), row("Cast", 6, cast, hosts=True), row("CastLike", 15, cast_like, hosts=True),
    row("BitCast", 26, bitcast),
]  # fmt: skip


# ---- quantization ----
RANGES: dict[int, tuple[int, int]] = {
    TensorProto.UINT8: (0, 255), TensorProto.INT8: (-128, 127), TensorProto.UINT16: (0, 65535),
    TensorProto.INT16: (-32768, 32767), TensorProto.UINT4: (0, 15), TensorProto.INT4: (-8, 7),
    TensorProto.UINT2: (0, 3), TensorProto.INT2: (-2, 1),
}  # fmt: skip


def _spread(x: Tensor, shape: tuple[int, ...], axis: int, block_size: int) -> Tensor:
    """Reshapes scales or zero points to broadcast with their tensor: one value, one per slice, or one per block."""
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
    """Returns round(x / scale) + zero, clamped to the range of the zero point's type or of output_dtype."""
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


OPERATORS += [
    row("QuantizeLinear", 10, quantize, span=of_scaled, hosts=True, state=(1, 2)),
    row("DequantizeLinear", 10, dequantize, span=of_scaled, hosts=True, state=(1, 2)),
    row("QLinearMatMul", 10, quantized_matmul, "1+ x x 1+", state=(1, 2, 4, 5, 6, 7)),
]  # fmt: skip
