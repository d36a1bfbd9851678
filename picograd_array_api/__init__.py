"""The Python array API standard, version 2025.12, as a namespace: `picograd.array_api`.

Code written for the standard runs on picograd unchanged, on every device and with gradients:

>>> import picograd.array_api as xp
>>> x = xp.linspace(0.0, 1.0, 3)
>>> xp.sum(x * x)
Array(1.25)

array.py tells what differs from a Tensor. There is no complex dtype, so of the extension fft there is what needs none.
"""
# ruff: noqa: I001  (several names a line)

from __future__ import annotations

import math

from picograd.dtype import bool_ as bool
from picograd.dtype import float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64
from picograd_array_api import fft as fft
from picograd_array_api import linalg as linalg
from picograd_array_api.array import Array, __array_namespace_info__, astype, can_cast, finfo, iinfo, isdtype, result_type
from picograd_array_api.creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones, ones_like, tril,
    triu, zeros, zeros_like,
)  # fmt: skip
from picograd_array_api.elementwise import (
    abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or,
    bitwise_right_shift, bitwise_xor, ceil, clip, conj, copysign, cos, cosh, divide, equal, exp, expm1, floor, floor_divide,
    greater, greater_equal, hypot, imag, isfinite, isinf, isnan, less, less_equal, log, log10, log1p, log2, logaddexp,
    logical_and, logical_not, logical_or, logical_xor, maximum, minimum, multiply, negative, nextafter, not_equal, positive,
    pow, real, reciprocal, remainder, round, sign, signbit, sin, sinh, sqrt, square, subtract, tan, tanh, trunc,
)  # fmt: skip
from picograd_array_api.linalg import matmul, matrix_transpose, tensordot, vecdot
from picograd_array_api.manipulation import (
    argmax, argmin, argsort, broadcast_arrays, broadcast_shapes, broadcast_to, concat, count_nonzero, expand_dims, flip,
    isin, moveaxis, nonzero, permute_dims, repeat, reshape, roll, searchsorted, sort, squeeze, stack, take, take_along_axis,
    tile, unique_all, unique_counts, unique_inverse, unique_values, unstack, where,
)  # fmt: skip
from picograd_array_api.reductions import (
    all, any, cumulative_prod, cumulative_sum, diff, max, mean, min, prod, std, sum, var,
)  # fmt: skip

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

__array_api_version__ = "2025.12"
__all__ = [
    "Array", "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add", "all", "any", "arange",
    "argmax", "argmin", "argsort", "asarray", "asin", "asinh", "astype", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bool",
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "clip", "concat", "conj", "copysign",
    "cos", "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "divide", "e", "empty", "empty_like",
    "equal", "exp", "expand_dims", "expm1", "eye", "fft", "finfo", "flip", "float32", "float64", "floor", "floor_divide",
    "from_dlpack", "full", "full_like", "greater", "greater_equal", "hypot", "iinfo", "imag", "inf", "int16", "int32",
    "int64", "int8", "isdtype", "isfinite", "isin", "isinf", "isnan", "less", "less_equal", "linalg", "linspace", "log",
    "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor", "matmul",
    "matrix_transpose", "max", "maximum", "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan", "negative",
    "newaxis", "nextafter", "nonzero", "not_equal", "ones", "ones_like", "permute_dims", "pi", "positive", "pow", "prod",
    "real", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round", "searchsorted", "sign",
    "signbit", "sin", "sinh", "sort", "sqrt", "square", "squeeze", "stack", "std", "subtract", "sum", "take",
    "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril", "triu", "trunc", "uint16", "uint32", "uint64", "uint8",
    "unique_all", "unique_counts", "unique_inverse", "unique_values", "unstack", "var", "vecdot", "where", "zeros",
    "zeros_like",
]  # fmt: skip
