"""Every name of the standard is there, with the parameters the standard gives it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import picograd.array_api as xp

# Names that take the same parameters, as the standard (2025.12) writes them; "/" ends those given by position alone.
SIGNATURES = {
    "x, /": "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite isinf "
    "isnan log log1p log2 log10 logical_not negative positive real reciprocal round sign signbit sin sinh square sqrt tan "
    "tanh trunc matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values linalg.det linalg.eigh "
    "linalg.eigvalsh linalg.inv linalg.matrix_transpose linalg.slogdet linalg.svdvals",
    "x1, x2, /": "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide "
    "equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum "
    "minimum multiply nextafter not_equal pow remainder subtract matmul linalg.matmul linalg.outer linalg.solve",
    "x, /, min, max": "clip",
    "x, /, *, axis, keepdims": "all any argmax argmin count_nonzero max mean min",
    "x, /, *, axis, dtype, keepdims": "sum prod",
    "x, /, *, axis, correction, keepdims": "std var",
    "x, /, *, axis, dtype, include_initial": "cumulative_sum cumulative_prod",
    "x, /, *, axis, n, prepend, append": "diff",
    "x, /, *, axis, descending, stable": "argsort sort",
    "x1, x2, /, *, side, sorter": "searchsorted",
    "x1, x2, /, *, invert": "isin",
    "x1, x2, /, *, axes": "tensordot linalg.tensordot",
    "x1, x2, /, *, axis": "vecdot linalg.vecdot linalg.cross",
    "condition, x1, x2, /": "where",
    "x, indices, /, *, axis": "take take_along_axis",
    "*arrays": "broadcast_arrays",
    "*shapes": "broadcast_shapes",
    "*arrays, indexing": "meshgrid",
    "*arrays_and_dtypes": "result_type",
    "x, /, shape": "broadcast_to",
    "x, /, shape, *, copy": "reshape",
    "arrays, /, *, axis": "concat stack",
    "x, /, axis": "expand_dims squeeze",
    "x, /, *, axis": "flip unstack",
    "x, source, destination, /": "moveaxis",
    "x, /, axes": "permute_dims",
    "x, repeats, /, *, axis": "repeat",
    "x, /, shift, *, axis": "roll",
    "x, repetitions, /": "tile",
    "start, /, stop, step, *, dtype, device": "arange",
    "start, stop, /, num, *, dtype, device, endpoint": "linspace",
    "obj, /, *, dtype, device, copy": "asarray",
    "shape, *, dtype, device": "empty ones zeros",
    "shape, fill_value, *, dtype, device": "full",
    "x, /, *, dtype, device": "empty_like ones_like zeros_like",
    "x, /, fill_value, *, dtype, device": "full_like",
    "n_rows, n_cols, /, *, k, dtype, device": "eye",
    "x, /, *, device, copy": "from_dlpack",
    "x, /, *, k": "tril triu",
    "x, dtype, /, *, copy, device": "astype",
    "from_, to, /": "can_cast",
    "type, /": "finfo iinfo",
    "dtype, kind": "isdtype",
    "x, /, *, upper": "linalg.cholesky",
    "x, /, *, offset": "linalg.diagonal",
    "x, /, *, keepdims, ord": "linalg.matrix_norm",
    "x, n, /": "linalg.matrix_power",
    "x, /, *, rtol": "linalg.matrix_rank linalg.pinv",
    "x, /, *, mode": "linalg.qr",
    "x, /, *, full_matrices": "linalg.svd",
    "x, /, *, offset, dtype": "linalg.trace",
    "x, /, *, axis, keepdims, ord": "linalg.vector_norm",
    "n, /, *, d, dtype, device": "fft.fftfreq fft.rfftfreq",
    "x, /, *, axes": "fft.fftshift fft.ifftshift",
}
CASES = [(name, parameters) for parameters, names in SIGNATURES.items() for name in names.split()]


def found(name: str) -> object:
    owner, _, last = name.rpartition(".")
    return getattr(getattr(xp, owner) if owner else xp, last)


@pytest.mark.req("C10")
@pytest.mark.parametrize(("name", "parameters"), CASES, ids=[name for name, _ in CASES])
def test_parameters_are_those_of_the_standard(name, parameters):
    given = inspect.signature(found(name)).parameters.values()
    plain = inspect.Signature([p.replace(annotation=p.empty, default=p.empty) for p in given])
    words = [p.strip() for p in str(plain).strip("()").split(",")]
    assert ", ".join(words) == parameters


def test_names_beside_the_functions():
    values = {"e", "inf", "nan", "newaxis", "pi", "linalg", "fft", "Array", "__array_api_version__"}
    dtypes = {"bool", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))}
    functions = {name for name, _ in CASES if "." not in name}
    assert set(xp.__all__) == functions | values | dtypes | {"__array_namespace_info__"}
    methods = "abs add and bool complex dlpack dlpack_device eq float floordiv ge getitem gt index int invert le lshift lt "
    methods += "matmul mod mul ne neg or pos pow rshift setitem sub truediv xor array_namespace"
    operators = "add and floordiv lshift mod mul or pow rshift sub truediv xor"
    names = ["dtype", "device", "mT", "ndim", "shape", "size", "T", "to_device"]
    names += [f"__{name}__" for name in methods.split()]
    names += [f"__{side}{name}__" for name in operators.split() for side in ("i", "r")]
    assert not [name for name in names if not hasattr(xp.Array, name)]


def test_the_namespace_is_loaded_when_it_is_first_asked_for():
    script = (
        "import sys, picograd as pg; assert 'picograd.array_api' not in sys.modules;"
        "print(pg.array_api.sum(pg.array_api.ones(3)).item())"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "3.0\n"
