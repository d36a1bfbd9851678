"""The Python array API standard, version 2025.12, as a namespace.

In:    Tensors, Arrays, Python numbers
Out:   Arrays: Tensors whose operators promote as the standard says (array_api/array.py tells what differs from PyTorch)
Next:  picograd/array_api/array.py

Code written for the standard runs on picograd unchanged, on every device and with gradients:

>>> import picograd.array_api as xp
>>> x = xp.linspace(0.0, 1.0, 3)
>>> xp.sum(x * x)
Array(1.25)

A module for each chapter of the standard: creation, data_types, elementwise, indexing, linear_algebra, manipulation,
searching, sets, sorting, statistical, utility; the extensions linalg and fft. There is no complex dtype, so of fft only
what needs none.
"""
# ruff: noqa: I001  (several names a line)

from picograd.array_api import fft as fft
from picograd.array_api import linalg as linalg
from picograd.array_api.array import Array
from picograd.array_api.constants import e, inf, nan, newaxis, pi
from picograd.array_api.creation import (
    arange, asarray, empty, empty_like, eye, from_dlpack, full, full_like, linspace, meshgrid, ones, ones_like, tril,
    triu, zeros, zeros_like,
)  # fmt: skip
from picograd.array_api.data_types import astype, can_cast, finfo, iinfo, isdtype, result_type
from picograd.array_api.elementwise import (
    abs, acos, acosh, add, asin, asinh, atan, atan2, atanh, bitwise_and, bitwise_invert, bitwise_left_shift, bitwise_or,
    bitwise_right_shift, bitwise_xor, ceil, clip, conj, copysign, cos, cosh, divide, equal, exp, expm1, floor, floor_divide,
    greater, greater_equal, hypot, imag, isfinite, isinf, isnan, less, less_equal, log, log10, log1p, log2, logaddexp,
    logical_and, logical_not, logical_or, logical_xor, maximum, minimum, multiply, negative, nextafter, not_equal, positive,
    pow, real, reciprocal, remainder, round, sign, signbit, sin, sinh, sqrt, square, subtract, tan, tanh, trunc,
)  # fmt: skip
from picograd.array_api.indexing import take, take_along_axis
from picograd.array_api.info import __array_namespace_info__
from picograd.array_api.linear_algebra import matmul, matrix_transpose, tensordot, vecdot
from picograd.array_api.manipulation import (
    broadcast_arrays, broadcast_shapes, broadcast_to, concat, expand_dims, flip, moveaxis, permute_dims, repeat, reshape,
    roll, squeeze, stack, tile, unstack,
)  # fmt: skip
from picograd.array_api.searching import argmax, argmin, count_nonzero, nonzero, searchsorted, where
from picograd.array_api.sets import isin, unique_all, unique_counts, unique_inverse, unique_values
from picograd.array_api.sorting import argsort, sort
from picograd.array_api.statistical import cumulative_prod, cumulative_sum, max, mean, min, prod, std, sum, var
from picograd.array_api.utility import all, any, diff
from picograd.dtype import bool_ as bool
from picograd.dtype import float32, float64, int8, int16, int32, int64, uint8, uint16, uint32, uint64

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
