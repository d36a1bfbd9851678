"""Operators against PyTorch: values, dtypes, shapes, gradients."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest
import torch

from picograd import DTypeError, Tensor, dtypes
from tests.helpers import same_as_torch, same_value

ARITHMETIC = [operator.add, operator.sub, operator.mul, operator.truediv]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITS = [operator.and_, operator.or_, operator.xor]
SHAPES = [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 3, 4), (3, 1)), ((3,), ()), ((), (2, 2))]


@pytest.mark.req("C3")
@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("shapes", SHAPES)
def test_arithmetic_broadcasts_with_gradients(op, shapes, device, rng):
    a, b = (rng.uniform(0.5, 2.0, shape).astype(np.float32) for shape in shapes)
    same_as_torch(op, a, b)


@pytest.mark.req("C3")
@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("value", [2, 2.5, -1])
def test_scalars_stand_on_either_side(op, value, device, rng):
    x = rng.uniform(0.5, 2.0, (3, 2)).astype(np.float32)
    same_as_torch(lambda t: op(t, value), x)
    same_as_torch(lambda t: op(value, t), x)


@pytest.mark.req("C3")
@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op, device):
    a, b = np.array([1.0, 2.0, 3.0, np.nan], np.float32), np.array([2.0, 2.0, 1.0, np.nan], np.float32)
    same_as_torch(op, a, b, gradient=False)
    same_as_torch(lambda t: op(t, 2), np.array([1, 2, 3]))
    same_as_torch(lambda t: op(t, 1.5), np.array([1, 2, 3]))


@pytest.mark.req("C3")
@pytest.mark.parametrize("op", BITS)
def test_bit_operations(op, device):
    same_as_torch(op, np.array([12, 10, -1]), np.array([10, 3, 7]))
    same_as_torch(op, np.array([True, False, True]), np.array([True, True, False]))
    same_as_torch(lambda t: op(t, 6), np.array([12, 10, -1], np.int32))


@pytest.mark.req("C3")
def test_shifts_and_not(device):
    same_as_torch(lambda t: t << 2, np.array([1, 5, -3]))
    same_as_torch(lambda t: t >> 1, np.array([1, 5, -3]))
    same_as_torch(lambda t: ~t, np.array([1, 5, -3]))
    same_as_torch(lambda t: ~t, np.array([True, False]))
    same_as_torch(lambda t: ~t, np.array([1, 200], np.uint8))


@pytest.mark.req("C3")
def test_floor_division_and_remainder_take_the_divisors_sign(device):
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    same_as_torch(lambda x, y: x // y, a, b)
    same_as_torch(lambda x, y: x % y, a, b)
    same_as_torch(lambda x: 7 // x, b)
    same_as_torch(lambda x: 7 % x, b)
    floats = a.astype(np.float32) + 0.5
    same_as_torch(lambda x: x // 2.0, floats, gradient=False)
    same_as_torch(lambda x, y: x % y, floats, b.astype(np.float32), gradient=False)


def test_float_floor_division_is_exact_where_the_quotient_rounds_up(device):
    same_as_torch(lambda x, y: x // y, np.array([1.0, 6.0, -1.0]), np.array([0.1, 0.1, 0.1]), gradient=False)
    same_as_torch(lambda x: x // 0.0, np.array([1.0, -1.0, 0.0]), gradient=False)


@pytest.mark.req("C3")
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.7])
def test_powers_with_constant_exponents(exponent, device, rng):
    same_as_torch(lambda t: t**exponent, rng.uniform(0.5, 2.0, (5,)).astype(np.float32))


@pytest.mark.req("C3")
def test_powers_of_tensors_and_of_constants(device, rng):
    a, b = rng.uniform(0.5, 2.0, (4,)).astype(np.float32), rng.uniform(-2.0, 2.0, (4,)).astype(np.float32)
    same_as_torch(lambda x, y: x**y, a, b)
    same_as_torch(lambda x: 2**x, b)
    same_as_torch(lambda x: x**2, np.array([-3, 4]))
    same_as_torch(lambda x: x**5, np.array([-3, 4]))


NUMBERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.req("C3")
@pytest.mark.parametrize("left", NUMBERS)
def test_promotion_is_pytorchs(left):
    for right, shapes in itertools.product(NUMBERS, [((2,), (2,)), ((2,), ()), ((), (2,))]):
        a, b = np.ones(shapes[0], left), np.ones(shapes[1], right)
        expected = torch.mul(torch.tensor(a), torch.tensor(b)).dtype
        assert f"torch.{(Tensor(a) * Tensor(b)).dtype}" == str(expected), (right, shapes)


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [True, 2, 2.5])
def test_promotion_with_scalars_is_pytorchs(name, value, device):
    a = np.ones((2,), name)
    assert (Tensor(a) * value).dtype.name == str((torch.tensor(a) * value).dtype).split(".")[1]


def test_division_of_integers_is_a_float(device):
    same_as_torch(lambda a, b: a / b, np.array([1, 2]), np.array([2, 3]))
    same_as_torch(lambda a: a.div(2, rounding_mode="trunc"), np.array([-3, 3]))
    same_as_torch(lambda a: a.div(2, rounding_mode="floor"), np.array([-3, 3]))


def test_alpha_scales_the_second_operand(device, rng):
    a, b = rng.standard_normal((2, 3)).astype(np.float32)
    same_as_torch(lambda x, y: x.add(y, alpha=3), a, b)
    same_as_torch(lambda x, y: x.sub(y, alpha=0.5), a, b)


def test_equality_with_other_types_is_plain_python(device):
    assert (Tensor([1]) == None) is False  # noqa: E711
    assert (Tensor([1]) != "a") is True


def test_a_numpy_scalar_is_a_number(device):
    same_value(Tensor([1.0]) + np.float64(2.0), torch.tensor([1.0]) + 2.0)
    same_value(np.float32(2.0) * Tensor([1.5]), torch.tensor([3.0]))


# ---- in place ----
@pytest.mark.req("B7")
def test_in_place_operators_change_every_alias(device):
    x = Tensor([1.0, 2.0, 3.0])
    alias = x.reshape(3, 1)
    x += 1
    x *= 2
    x -= 1
    x /= 2
    assert alias.flatten().tolist() == [1.5, 2.5, 3.5]


@pytest.mark.req("G1")
def test_a_graph_built_earlier_keeps_the_old_value(device):
    x = Tensor([1.0, 2.0])
    y = x + 1
    x += 10
    assert y.tolist() == [2.0, 3.0]
    assert x.tolist() == [11.0, 12.0]


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (lambda x: x.T, [[10, 11, 12], [13, 14, 15]]),
        (lambda x: x[0], [[10, 11, 12], [3, 4, 5]]),
        (lambda x: x[:, 1], [[0, 11, 2], [3, 14, 5]]),
        (lambda x: x[:, ::2], [[10, 1, 12], [13, 4, 15]]),
        (lambda x: x[::-1, 2:], [[0, 1, 12], [3, 4, 15]]),
        (lambda x: x.reshape(-1)[1:5].reshape(2, 2), [[0, 11, 12], [13, 14, 5]]),
        (lambda x: x.reshape(3, 2).permute(1, 0)[1], [[0, 11, 2], [13, 4, 15]]),
    ],
)
@pytest.mark.req("B7")
def test_a_write_through_a_view_reaches_the_base(view, expected, device):
    x = Tensor.arange(6).reshape(2, 3)
    part = view(x)
    part += 10
    assert x.tolist() == expected
    assert (part.detach() == view(x)).all()


def test_in_place_keeps_gradients_of_what_was_computed(device):
    a = np.array([1.0, 2.0, 3.0], np.float32)

    def function(x):
        y = x * 2
        y[1:] *= x[1:]
        y += 1
        return y.sum()

    same_as_torch(function, a)


def test_copies_and_fills(device):
    x = Tensor.zeros(2, 3)
    x.copy_(Tensor([1, 2, 3]))
    assert x.tolist() == [[1.0, 2.0, 3.0]] * 2
    x[0].fill_(7)
    assert x.tolist() == [[7.0] * 3, [1.0, 2.0, 3.0]]
    x.zero_()
    assert x.sum().item() == 0
    assert x.assign(np.ones((2, 3))).dtype is dtypes.float32
    assert x.mean().item() == 1


def test_under_no_grad_a_leaf_is_changed_and_stays_the_same_leaf(device):
    import picograd as pg

    w = Tensor([1.0, 2.0], requires_grad=True)
    with pg.no_grad():
        w -= 0.5
    assert w.requires_grad and w.is_leaf
    (w * w).sum().backward()
    assert w.grad.tolist() == [1.0, 3.0]


@pytest.mark.req("C3")
def test_numbers_too_large_for_small_integers_divide_as_floats(device):
    for dtype in (np.uint8, np.int8):
        x = np.array([5, 100], dtype)
        same_as_torch(lambda t: t / 1000, x)
        same_as_torch(lambda t: -3 / t, x)
        same_as_torch(lambda t: t.div(2.5, rounding_mode="trunc"), x)


@pytest.mark.req("C3")
def test_integers_divide_toward_zero_exactly(device):
    a = np.array([2**62 + 1, -7, 7, -8, 8, -(2**63) + 1, 0])
    same_as_torch(lambda x, y: x.div(y, rounding_mode="trunc"), a, np.array([1, 2, -2, -2, 2, 3, 5]))
    same_as_torch(lambda x: x.div(7, rounding_mode="trunc"), np.array([200, 13], np.uint8))


@pytest.mark.req("C3")
def test_integers_of_more_than_64_bits_are_refused_where_they_would_wrap(device):
    with pytest.raises(DTypeError, match=f"add: {2**70} does not fit 64 bits"):
        Tensor([1]) + 2**70
    assert (Tensor([1.0]) + 2**70).item() == 2.0**70


STORES = {
    "full": lambda value: Tensor.full((2,), value, dtype=dtypes.uint8),
    "full_like": lambda value: Tensor.full_like(Tensor([1], dtypes.uint8), value),
    "fill_": lambda value: Tensor([1], dtypes.uint8).fill_(value),
    "masked_fill": lambda value: Tensor([1], dtypes.uint8).masked_fill(Tensor([True]), value),
    "x[...] = value": lambda value: Tensor([1], dtypes.uint8).__setitem__(0, value),
    "where": lambda value: Tensor.choose(Tensor([True]), Tensor([1], dtypes.uint8), value),
    "pow": lambda value: Tensor([1], dtypes.uint8) ** value,
    "Tensor": lambda value: Tensor([0, value], dtypes.uint8),
}


@pytest.mark.req("B6")
@pytest.mark.parametrize("function", STORES)
def test_a_number_that_does_not_fit_is_refused(function, device):
    STORES[function](200)
    with pytest.raises(DTypeError, match=r"300 does not fit uint8, whose range is 0 to 255\.") as error:
        STORES[function](300)
    assert error.value.fact.startswith(f"{function}: ")


def test_stored_floats_must_be_finite_where_integers_stand(device):
    with pytest.raises(DTypeError, match="fill_: nan does not fit int64"):
        Tensor([1]).fill_(float("nan"))
    assert Tensor([1]).fill_(2.7).item() == 2
    assert Tensor([1.0]).fill_(float("inf")).item() == float("inf")


def test_arrays_given_with_a_dtype_wrap(device):
    assert Tensor(np.array([300, -1]), dtypes.uint8).tolist() == [44, 255]


SPECIAL = [0.0, 300.5, -3.7, 1e30, 65519.0, float("nan"), float("inf"), -float("inf"), 2.0**53 + 2, -(2.0**62)]


@pytest.mark.parametrize("source", ["float16", "float32", "float64", "int64"])
def test_a_constant_is_cast_as_memory_is(source: str) -> None:
    """NaN, infinity, too large, and negative: a constant in a graph is converted before there is a kernel."""
    before = getattr(dtypes, source)
    numbers = SPECIAL if source != "int64" else [0, 300, -3, 2**53 + 1, -(2**62), 2**63 - 1]
    for name in ("bool_", "uint8", "int8", "int32", "int64", "uint64", "float16", "bfloat16", "float32"):
        after = getattr(dtypes, name)
        memory = Tensor(np.array(numbers)).to(before).realize().to(after)
        constants = [Tensor.full((), before.scalar(number), dtype=before).to(after) for number in numbers]
        found = [constant.double().item() for constant in constants]
        np.testing.assert_array_equal(found, memory.double().numpy(), err_msg=f"{source} to {name}")
