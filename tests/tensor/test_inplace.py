"""Functions in place: each equals the one without the last _, writes where it is stored, and keeps gradients."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import DTypeError, GradientError, ShapeError, Tensor, dtypes
from picograd.public import plain
from picograd.tensor import inplace
from tests.helpers import mostly_evaluated, same_value
from tests.operations.table import all_operations
from tests.tensor import test_inplace_shapes

FLOATS = np.array([[0.25, 0.5, 0.75], [0.3, 0.4, 0.6]], np.float32)
ABOVE_ONE = np.array([1.25, 2.0, 3.5], np.float32)
INTEGERS = np.array([[6, -4, 9], [12, 3, -8]])
BESIDE = np.array([0.5, 1.5, 2.5], np.float32)
# name: (self, arguments); a float array of BESIDE's kind becomes a tensor
OF_ONE = """
    abs absolute acos asin atan arccos arcsin arctan ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 fix floor
    frac i0 lgamma log log10 log1p log2 logical_not logit nan_to_num neg negative rad2deg reciprocal relu round rsqrt sgn
    sigmoid sign sin sinc sinh sqrt square tan tanh asinh arcsinh atanh arctanh trunc
"""
OF_TWO = """
    add sub mul div subtract multiply divide true_divide atan2 arctan2 copysign eq ne lt le gt ge not_equal less less_equal
    greater greater_equal floor_divide fmod heaviside hypot ldexp logical_and logical_or logical_xor nextafter pow remainder
    igamma igammac xlogy clamp_min clamp_max
"""
OF_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "gcd", "lcm")
CALLS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    **dict.fromkeys(OF_ONE.split(), (FLOATS, ())),
    **dict.fromkeys(OF_TWO.split(), (FLOATS, (BESIDE,))),
    **dict.fromkeys(OF_BITS, (INTEGERS, (np.array([1, 2, 3]),))),
    "acosh": (ABOVE_ONE, ()),
    "arccosh": (ABOVE_ONE, ()),
    "bitwise_not": (INTEGERS, ()),
    "clamp": (FLOATS, (0.3, 0.5)),
    "clip": (FLOATS, (0.3, 0.5)),
    "polygamma": (FLOATS, (1,)),
    "mvlgamma": (ABOVE_ONE, (2,)),
    "lerp": (FLOATS, (BESIDE, 0.5)),
    "addcmul": (FLOATS, (BESIDE, BESIDE)),
    "addcdiv": (FLOATS, (BESIDE, BESIDE)),
    "cumsum": (FLOATS, (1,)),
    "cumprod": (FLOATS, (0,)),
    "renorm": (FLOATS, (2, 0, 0.5)),
    "float_power": (FLOATS.astype(np.float64), (2,)),
}
ROWS = [name for name, (array, _) in CALLS.items() if array.ndim == 2 and name != "renorm"]  # alike in each row
DIFFERENTIABLE = [name for name, (array, _) in CALLS.items() if array.dtype.kind == "f"]


def tensors(args: tuple[Any, ...]) -> list[Any]:
    return [Tensor(arg) if isinstance(arg, np.ndarray) else arg for arg in args]


@pytest.mark.req("C3")
@mostly_evaluated(every=5)
@pytest.mark.parametrize("name", CALLS)
def test_it_stores_what_the_function_returns(name: str, device: str) -> None:
    array, args = CALLS[name]
    x = Tensor(array)
    expected = getattr(Tensor(array), name)(*tensors(args)).cast(x.dtype).numpy()
    whole, part = x.flatten(), x[0]  # a view of all, and one of some
    result = getattr(x, name + "_")(*tensors(args))
    assert result is x and x.dtype is Tensor(array).dtype
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(whole.numpy(), expected.reshape(-1))
    np.testing.assert_array_equal(part.numpy(), expected[0])


@pytest.mark.variants(every=4)
@pytest.mark.req("C3")
@pytest.mark.parametrize("name", ROWS)
def test_a_view_is_written_through(name: str) -> None:
    array, args = CALLS[name]
    x = Tensor(array)
    getattr(x[1:], name + "_")(*tensors(args))
    expected = np.concatenate([array[:1], getattr(Tensor(array[1:]), name)(*tensors(args)).numpy().astype(array.dtype)])
    np.testing.assert_array_equal(x.numpy(), expected)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_leaf_that_requires_grad_is_refused(name: str) -> None:
    array, args = CALLS[name]
    with pytest.raises(GradientError, match="a leaf of shape"):
        getattr(Tensor(array, requires_grad=True), name + "_")(*tensors(args))
    with pg.no_grad():
        getattr(Tensor(array, requires_grad=True), name + "_")(*tensors(args))


def twins() -> dict[str, Any]:
    """Returns the methods that in_place or in_place_view made, by name."""
    named = {name: plain(getattr(Tensor, name)) for name in dir(Tensor) if name.endswith("_") and not name.startswith("_")}
    return {name: twin for name, twin in named.items() if twin.__code__.co_filename == inplace.__file__}


def test_every_twin_has_a_call() -> None:
    ours = {f"{name}_" for name in CALLS} - {"lerp_", "float_power_"}  # written by hand
    shapes = {name for name, *_ in (*test_inplace_shapes.CALLS, *test_inplace_shapes.ADDED)}
    rows = {row.name.removeprefix("Tensor.").removesuffix("_") + "_" for row in all_operations()}
    assert ours < twins().keys() < ours | shapes | rows


@pytest.mark.parametrize("name", twins())
def test_a_twin_is_a_method_of_its_own_name_with_the_arguments_of_its_function(name: str) -> None:
    twin, function = plain(getattr(Tensor, name)), inspect.unwrap(plain(getattr(Tensor, name)))
    assert inspect.signature(twin) == inspect.signature(function)
    assert pickle.loads(pickle.dumps(getattr(Tensor, name))) is getattr(Tensor, name)
    first = inspect.getdoc(twin).splitlines()[0]  # type: ignore[union-attr]
    assert re.match(rf"(Stores|Becomes) in place what `{function.__name__}` returns: .*\.$", first)


def test_a_traceback_names_the_twin() -> None:
    with pytest.raises(ShapeError) as caught:
        Tensor([1.0, 2.0]).add_(Tensor([[1.0], [2.0]]))
    assert "add_" in [entry.name for entry in caught.traceback]


# ---- gradients through writes ----
@pytest.mark.req("B7")
@pytest.mark.parametrize("name", ["exp", "sin", "sqrt", "sigmoid", "atan", "lgamma", "cumsum", "clamp", "square"])
def test_gradients_go_through_a_write(name: str, device: str) -> None:
    args = {"cumsum": (1,), "clamp": (0.3, 0.5)}.get(name, ())
    leaf, other = Tensor(FLOATS, requires_grad=True), torch.tensor(FLOATS, requires_grad=True)
    for x in (leaf, other):
        y = x * 2
        before = y[0].sum() if isinstance(x, Tensor) else y[0].clone().sum()  # read before the write: the old value
        getattr(y[1:], name + "_")(*args)
        ((y * y).sum() + before * 3).backward()
    same_value(leaf.grad, other.grad)


def test_a_result_of_a_higher_kind_is_refused() -> None:
    with pytest.raises(DTypeError) as caught:
        Tensor([1, 2]).exp_()
    assert caught.value.fact == "exp_: a result of dtype float32 does not fit in place into int64."
    assert caught.value.hint == "x = x.cast(dtypes.float32) first."
    for write in (lambda x: x.div_(2), lambda x: x.add_(0.5), lambda x: x.atan2_(1)):
        with pytest.raises(DTypeError, match="does not fit in place"):
            write(Tensor([1, 2]))
    with pytest.raises(DTypeError, match="float_power_: the result is float64"):
        Tensor([1.0]).float_power_(2)
    with pytest.raises(DTypeError, match="does not fit in place"):
        Tensor([True]).add_(1)


def test_a_result_of_another_width_is_stored_in_this_one() -> None:
    x = Tensor([1.0, 2.0]).half()
    assert x.mul_(Tensor([0.5, 0.25], dtype=dtypes.float64)).dtype is dtypes.float16
    assert Tensor([1, 2], dtype=dtypes.int8).add_(Tensor([300, 1])).tolist() == [45, 3]  # it wraps, as in PyTorch


def test_a_larger_result_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        Tensor([1.0, 2.0]).hypot_(Tensor([[1.0], [2.0]]))
    assert caught.value.fact == "hypot_: a result of shape (2, 2) does not fit into (2,)."


def test_operators_with_equals_write_in_place() -> None:
    x = Tensor([6, 5])
    alias = x
    x //= 2
    x %= 2
    x |= 4
    x &= 5
    x ^= 1
    x <<= 3
    x >>= 1
    assert x is alias and x.tolist() == [((((v // 2 % 2) | 4) & 5) ^ 1) << 3 >> 1 for v in (6, 5)]
