"""Small arguments as PyTorch's: alpha and beta of integers, out beside a dtype, memory formats, counts alone."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import nn
from tests.helpers import same_value

MATRIX, VECTOR = [[1, 2], [3, 4]], [1, 2]
VALUES = {"int": [1, 2], "bool": [True, False], "float": [0.5, 1.5]}
SUMS = [  # PyTorch subtracts no bools from numbers; here they are 0 and 1
    (name, lhs, rhs, alpha)
    for name, lhs, rhs, alpha in itertools.product(("add", "sub", "rsub", "add_", "sub_"), VALUES, VALUES, (1.5, 2.0, 2, 0))
    if "sub" not in name or "bool" not in (lhs, rhs) or lhs == rhs
]
PRODUCTS = {
    "addmm": ([MATRIX], [MATRIX], [MATRIX]),
    "addmv": ([VECTOR], [MATRIX], [VECTOR]),
    "addr": ([MATRIX], [VECTOR], [VECTOR]),
    "baddbmm": ([[MATRIX]], [[MATRIX]], [[MATRIX]]),
    "addbmm": ([MATRIX], [[MATRIX]], [[MATRIX]]),
}


def outcome(call: Any) -> Any:
    """Returns the dtype and the values, or None where it is refused."""
    try:
        result = call()
        return str(result.dtype).split(".")[-1], result.tolist()
    except (RuntimeError, pg.PicogradError):
        return None


@pytest.mark.parametrize(("name", "lhs", "rhs", "alpha"), SUMS)
def test_alpha_is_taken_and_refused_as_in_pytorch(name: str, lhs: str, rhs: str, alpha: float) -> None:

    def call(lib: Any) -> Any:
        x, y = lib.tensor(VALUES[lhs]), lib.tensor(VALUES[rhs])
        return lib.rsub(x, y, alpha=alpha) if name == "rsub" else getattr(x, name)(y, alpha=alpha)

    assert outcome(lambda: call(pg)) == outcome(lambda: call(torch))


@pytest.mark.parametrize("name", PRODUCTS)
def test_factors_of_integer_products_lose_their_fraction_as_in_pytorch(name: str) -> None:
    for alpha, beta in ((1.5, 1), (2.9, 2.9), (2, 3), (1, 0)):

        def call(lib: Any, **factors: float) -> Any:
            return getattr(lib, name)(*[lib.tensor(one[0]) for one in PRODUCTS[name]], **factors)

        ours, theirs = (outcome(functools.partial(call, lib, alpha=alpha, beta=beta)) for lib in (pg, torch))
        assert ours == theirs, (alpha, beta)


def test_value_of_integers_loses_its_fraction_and_a_wide_alpha_keeps_its_digits() -> None:
    for value in (1.5, 2, -2.7):
        assert pg.tensor([5]).addcmul(pg.tensor([3]), pg.tensor([2]), value=value).tolist() == [5 + int(value) * 6]
    for lib in (pg, torch):  # a product in float32 would be 1234567936
        assert lib.tensor([0.0], dtype=lib.float64).add(lib.tensor([123456789]), alpha=10.5).tolist() == [1296296284.5]


def test_out_of_another_dtype_than_asked_for_is_refused() -> None:
    for lib, error in ((pg, pg.DTypeError), (torch, RuntimeError)):
        for call in (
            lambda lib: lib.zeros(2, dtype=lib.int64, out=lib.ones(2)),
            lambda lib: lib.cumsum(lib.ones(2), 0, dtype=lib.float64, out=lib.ones(2)),
        ):
            with pytest.raises(error):
                call(lib)
        assert lib.zeros(2, dtype=lib.float32, out=lib.ones(2)).tolist() == [0.0, 0.0]


def test_counts_alone_repeat_their_places() -> None:
    for counts in ([3, 0, 2], [0], [1]):
        found = pg.repeat_interleave(pg.tensor(counts))
        assert found.tolist() == torch.repeat_interleave(torch.tensor(counts)).tolist() and found.dtype is pg.int64
    assert pg.repeat_interleave(pg.tensor([1, 2]), output_size=3).tolist() == [0, 1, 1]
    with pytest.raises(pg.ShapeError, match=r"counts must be a vector, got shape \(1, 2\)"):
        pg.repeat_interleave(pg.tensor([[1, 2]]))


def test_histogramdd_counts_the_points_of_a_batch() -> None:
    points = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    weight = np.random.default_rng(1).random((2, 5)).astype(np.float32)
    found = pg.histogramdd(pg.tensor(points), [2, 3, 2], weight=pg.tensor(weight))
    wanted = torch.histogramdd(torch.tensor(points), [2, 3, 2], weight=torch.tensor(weight))
    same_value(found.hist, wanted.hist)
    for ours, theirs in zip(found.bin_edges, wanted.bin_edges):
        same_value(ours, theirs)


@pytest.mark.parametrize("name", ["copysign", "nextafter"])
def test_a_flat_operand_has_zeros_for_its_gradient(name: str) -> None:
    grads = []
    for lib in (pg, torch):
        x = lib.tensor([1.5, -2.0, 0.0, -0.0, 3.0], requires_grad=True)
        y = lib.tensor([0.5, -3.0, -1.0, 0.0, 3.0], requires_grad=True)
        out = getattr(lib, name)(x, y)
        grads.append([out.tolist(), *[g.tolist() for g in lib.autograd.grad(out.sum(), [x, y])]])
    assert grads[0][0] == grads[1][0] and grads[0][2] == grads[1][2] == [0.0] * 5
    assert name == "nextafter" or grads[0][1] == grads[1][1]


def test_the_draws_of_a_function_are_the_same_in_all_chunks() -> None:
    def noisy(x: Any) -> Any:
        return x + pg.rand(2)

    pg.manual_seed(3)
    whole = pg.vmap(noisy, randomness="same")(pg.zeros(5, 2))
    after = pg.rand(1)
    for chunk in (1, 2, 5):
        pg.manual_seed(3)
        parts = pg.vmap(noisy, randomness="same", chunk_size=chunk)(pg.zeros(5, 2))
        assert parts.tolist() == whole.tolist() and pg.rand(1).tolist() == after.tolist()


@pytest.mark.parametrize("order", ["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"])
def test_a_memory_format_is_taken_where_pytorch_takes_one_and_changes_nothing(order: str) -> None:
    x, order = pg.ones(2, 3, 4, 5), getattr(pg, order)
    assert isinstance(order, pg.memory_format) and x.is_contiguous(memory_format=order)
    for same in (x.contiguous(memory_format=order), x.clone(memory_format=order), x.to(pg.float32, memory_format=order)):
        assert same.shape == x.shape and (same == x).all()
    for like in (pg.zeros_like, pg.ones_like, pg.empty_like, pg.rand_like, pg.randn_like):
        assert like(x, memory_format=order).shape == x.shape
    assert pg.full_like(x, 2.0, memory_format=order).sum() == 240
    assert pg.randint_like(x, 9, memory_format=order).shape == pg.empty(2, 3, 4, 5, memory_format=order).shape
    assert nn.Linear(2, 3).to(memory_format=order).weight.shape == (3, 2)
    for name in ["float", "double", "half", "bfloat16", "int", "short", "char", "byte", "long", "bool"]:
        cast = getattr(x, name)
        assert cast(memory_format=order).dtype is cast().dtype and cast.__name__ == name
    assert x.cpu(memory_format=order).shape == x.type(pg.float64, memory_format=order).shape == x.shape
    assert x.clone().resize_as_(pg.ones(2), memory_format=order).shape == (2,)


def test_a_gradient_of_gather_may_be_asked_for_as_sparse_and_is_dense() -> None:
    x = pg.Tensor([1.0, 2.0], requires_grad=True)
    pg.gather(x, 0, pg.Tensor([1, 1]), sparse_grad=True).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 2.0]
    assert x.gather(0, pg.Tensor([0]), sparse_grad=False).tolist() == [1.0]
    with pytest.raises(pg.ArgumentTypeError, match="sparse_grad"):
        pg.take_along_dim(x, pg.Tensor([0]), 0, sparse_grad=True)


def test_whole_numbers_are_drawn_as_leaves_where_their_dtype_has_gradients() -> None:
    x = pg.ones(2)
    for drawn in (pg.randint(0, 3, (2,), dtype=pg.float32, requires_grad=True), pg.randint_like(x, 3, requires_grad=True),
                  pg.randperm(2, dtype=pg.float32, requires_grad=True), pg.fft.fftfreq(2, requires_grad=True)):  # fmt: skip
        assert drawn.requires_grad and drawn.is_leaf
    assert not pg.randint(3, (2,), requires_grad=False).requires_grad
    for call in (lambda: pg.randint(3, (2,), requires_grad=True), lambda: pg.randperm(2, requires_grad=True)):
        with pytest.raises(pg.DTypeError, match="only floats have gradients, got int64"):
            call()


@pytest.mark.parametrize("name", ["sum", "amax", "softmax"])
def test_a_memory_format_is_refused_with_a_hint_elsewhere(name: str) -> None:
    with pytest.raises(pg.ArgumentTypeError, match="memory_format.*\n.*\n.*hint: tensors have one layout"):
        getattr(pg, name)(pg.ones(2), dim=0, memory_format=None)
