"""Calls with odd arguments, beside PyTorch: the same values, shapes and dtypes, or an error in both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg

Call = Callable[[Any], Any]


def uint8(library: Any) -> Any:
    return library.tensor([1, 2], dtype=library.uint8)


CALLS: dict[str, Call] = {
    "bincount of nothing": lambda L: L.bincount(L.zeros(0, dtype=L.int64), L.zeros(0)),
    "bincount of nothing, of a length": lambda L: L.bincount(L.zeros(0, dtype=L.int64), L.zeros(0), minlength=2),
    "no gradient below 0": lambda L: slope(L, L.special.entr, [-1.0, 0.0, 0.5, float("inf")]),
    "a degree beside uint8": lambda L: L.special.chebyshev_polynomial_t(uint8(L), -1),
    "x beside degrees of uint8": lambda L: L.special.hermite_polynomial_h(-1, uint8(L)),
    "a large degree beside uint8": lambda L: L.special.legendre_polynomial_p(uint8(L) - 1, 300),
    "a weight of one axis": lambda L: L.nn.functional.linear(L.ones(2, 3), L.ones(3)),
    "a weight of one axis with a bias": lambda L: L.nn.functional.linear(L.ones(3), L.ones(3), L.ones(1)),
    "no classes": lambda L: L.nn.functional.cross_entropy(L.zeros(2, 0), L.zeros(2, 0)),
    "no classes, each": lambda L: L.nn.functional.cross_entropy(L.zeros(2, 0), L.zeros(2, 0), reduction="none"),
    "no classes, the sum": lambda L: L.nn.functional.cross_entropy(L.zeros(2, 0), L.zeros(2, 0), reduction="sum"),
    "taken from a number": lambda L: L.take_along_dim(L.tensor(3.0), L.tensor(0), 0),
    "taken from a number, flat": lambda L: L.take_along_dim(L.tensor(3.0), L.tensor(0)),
    "rolled along no axes": lambda L: L.roll(L.tensor([[1, 2], [3, 4]]), 1, ()),
    "rolled twice along no axes": lambda L: L.roll(L.tensor([1, 2, 3]), (1, 2), ()),
    "no index": lambda L: L.zeros(2, 0).scatter(1, L.zeros(2, 0, dtype=L.int64), L.zeros(1, 0)),
    "no index, added": lambda L: L.ones(2, 3).scatter_add(1, L.zeros(0, 3, dtype=L.int64), L.zeros(0, 1)),
    "no index, reduced": lambda L: L.zeros(2, 0).scatter_reduce(1, L.zeros(2, 0, dtype=L.int64), L.zeros(1, 0), "sum"),
    "nothing that is repeated": lambda L: L.zeros(1, 0).expand(3, 0).add_(1),
    "repeated not at all": lambda L: L.zeros(1, 3).expand(0, 3).copy_(L.ones(3)),
    "repeated and written to": lambda L: L.zeros(1, 3).expand(2, 3).neg_(),
    "bytes as bools": lambda L: L.tensor([2, 0, 1], dtype=L.uint8).view(L.bool),
    "words as bools": lambda L: L.tensor([[258, 0]], dtype=L.int32).view(L.bool),
    "floats as bools": lambda L: L.tensor([1.5, 0.0]).view(L.bool),
    "bools as bytes": lambda L: L.tensor([True, False]).view(L.int8),
    "bools as words": lambda L: L.tensor([True, False, True, True]).view(L.int32),
    "bools as bools": lambda L: L.tensor([True, False]).view(L.bool),
    "empty vectors joined along another axis": lambda L: L.cat([L.zeros(0), L.zeros(0, dtype=L.int64)], 1),
    "a sum as its out": lambda L: L.sum(L.tensor([1.5, 2.6]), 0, out=L.empty((), dtype=L.int32)),
    "a mean as its out": lambda L: L.mean(L.tensor([1.5, 2.6]), 0, out=L.empty((), dtype=L.float64)),
    "a running product as its out": lambda L: L.cumprod(L.tensor([1.5, 2.6]), 0, out=L.empty(2, dtype=L.int64)),
    "a greatest value and a narrow out": lambda L: L.amax(L.tensor([1.5, 2.6]), 0, out=L.empty((), dtype=L.int32)),
    "an empty slice": lambda L: L.zeros(0).slice_scatter(L.zeros(0), 0, 3, None, 2),
    "a view of a view in too few elements": lambda L: L.zeros(2, 3).t().reshape(0, 3),
    "a view of a view in too many elements": lambda L: L.zeros(1, 3)[:, :1].expand(2, 1).reshape(2, 2, 2, 2),
    "a power that overflows": lambda L: L.tensor([1.0, 0.5]).ldexp(L.tensor(2000.0)),
    "one pair": lambda L: transform(L, "irfft", 1),
    "one pair of a signal": lambda L: transform(L, "hfft", 1),
    "one pair and one number": lambda L: transform(L, "irfft", 1, n=1),
    "a Sequential and a list": lambda L: len(L.nn.Sequential(L.nn.ReLU()) + [L.nn.ReLU()]),
    "a list in place": lambda L: len(L.nn.Sequential(L.nn.ReLU()).__iadd__([L.nn.ReLU()])),
    "two Sequentials": lambda L: len(L.nn.Sequential(L.nn.ReLU()) + L.nn.Sequential(L.nn.Tanh())),
    "a list of modules and a list": lambda L: len(L.nn.ModuleList([L.nn.ReLU()]) + [L.nn.ReLU()]),
}


def slope(library: Any, function: Call, values: list[float]) -> Any:
    x = library.tensor(values, requires_grad=True)
    function(x).sum().backward()
    return x.grad


def transform(library: Any, name: str, pairs: int, **options: int) -> Any:
    x = library.stack([library.ones(pairs), library.zeros(pairs)], -1)
    return getattr(library.fft, name)(torch.view_as_complex(x) if library is torch else x, **options)


@pytest.mark.parametrize("name", CALLS)
def test_an_odd_call_is_as_in_pytorch(name: str) -> None:
    try:
        expected = CALLS[name](torch)
    except (RuntimeError, IndexError, ValueError):
        with pytest.raises(pg.PicogradError):
            CALLS[name](pg)
        return
    found = CALLS[name](pg)
    if isinstance(expected, int):
        assert found == expected
        return
    assert str(found.dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-6)


def test_powers_of_numbers_overflow() -> None:
    assert pg.tensor([1.0, -1.0]).ldexp(1e10).tolist() == [float("inf"), float("-inf")]
    assert pg.zeros(0, requires_grad=True).roll(1).requires_grad


def test_hooks_within_a_differentiated_function_are_called() -> None:
    def tripled(library: Any) -> Call:
        def function(x: Any) -> Any:
            y = x * x
            y.register_hook(lambda grad: grad * 2)
            return y * 3

        return function

    def found(library: Any) -> list[Any]:
        x, function = library.tensor([1.0, 2.0]), tripled(library)
        made = [
            library.func.grad(lambda x: function(x).sum())(x),
            library.func.vjp(function, x)[1](library.ones(2))[0],
            library.func.jacrev(function)(x),
            library.autograd.functional.jacobian(function, x),
        ]
        return [each.tolist() for each in made]

    assert found(pg) == found(torch)


def test_hooks_within_a_body_are_called_or_refused() -> None:
    def hooked(x: pg.Tensor) -> pg.Tensor:
        y = x * x
        y.register_hook(lambda grad: grad * 2)
        return y * 3

    x = pg.tensor([1.0, 2.0], requires_grad=True)
    pg.checkpoint(hooked, x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [12.0, 24.0]
    fact = r"registers a hook on a tensor of shape \(2,\) that it made; no gradient would reach the hook"
    with pytest.raises(pg.JitError, match=f"outline: .* {fact}"):
        pg.outline(hooked)(x)
    with pytest.raises(pg.JitError, match=fact):
        pg.scan(lambda carry, row: (carry + hooked(row), None), x, x.reshape(1, 2))


def test_hooks_read_values_of_each_row() -> None:
    def rows(library: Any) -> Any:
        x = library.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * x
        y.register_hook(lambda grad: grad * 2 if grad.sum().item() > 0 else grad)
        weights = library.tensor([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 1.0, 1.0]])
        if library is torch:  # its hooks see all rows at once, and read none
            return [torch.autograd.grad(y, x, row, retain_graph=True)[0].tolist() for row in weights]
        return pg.autograd.grad(y, x, weights, is_grads_batched=True)[0].tolist()

    assert rows(pg) == rows(torch)

    def hooked(x: pg.Tensor) -> pg.Tensor:
        y = x * x
        y.register_hook(lambda grad: grad * 2 if grad.sum().item() > 0 else grad)
        return y

    assert pg.func.jacrev(hooked)(pg.tensor([1.0, 2.0])).tolist() == [[4.0, 0.0], [0.0, 8.0]]
