"""The replay of functions that only take Tensors and give new ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.look import watch
from picograd.transforms.jit import Form
from picograd.transforms.replay import Replay


def is_stateless(function: Any) -> bool:
    """Returns whether the last call of a jitted function was replayed without state."""
    form: Form = function.latest
    return form.replay is not None and not isinstance(form.replay, Replay)


def adds_to_state() -> Callable[[Tensor], Tensor]:
    """Returns a function that keeps a sum of what it gets."""
    total = Tensor([0.0, 0.0])

    def add(x: Tensor) -> Tensor:
        total.add_(x)
        return total + x

    return add


def reads_state() -> Callable[[Tensor], Any]:
    """Returns a function that reads a tensor, and gives a dict."""
    shift = Tensor([10.0, 20.0])
    return lambda x: {"a": x.sum(), "b": [x * shift]}


FUNCTIONS: dict[str, tuple[Callable[[], Callable[[Tensor], Any]], bool]] = {
    "one result": (lambda: lambda x: x + 1, True),
    "a tuple": (lambda: lambda x: (x + 1, x * 2), True),
    "state that it reads": (reads_state, True),
    "a constant of its own": (lambda: lambda x: x + Tensor([1.0, 2.0]), True),
    "the argument, too": (lambda: lambda x: (x, x + 1), False),
    "a result twice": (lambda: lambda x: (y := x + 1, y), False),
    "only the argument": (lambda: lambda x: x, False),
    "no Tensor": (lambda: lambda x: None, False),
    "state that it writes": (adds_to_state, False),
}


def plain(result: Any) -> Any:
    """Returns a container with numbers in the place of Tensors."""
    if isinstance(result, Tensor):
        return result.tolist()
    if isinstance(result, dict):
        return {name: plain(item) for name, item in result.items()}
    return [*map(plain, result)] if isinstance(result, list | tuple) else result


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_those_without_jit(device: str, name: str) -> None:
    make, expected = FUNCTIONS[name]
    given = [Tensor([float(i), -2.0 * i]) for i in range(5)]
    found = []
    for called in (make(), pg.jit(make())):
        kept = [called(x) for x in given]  # the memory of none is written again
        found.append([plain(result) for result in kept])
    assert found[0] == found[1]
    assert is_stateless(called) == expected


def test_a_parameter_is_read_as_it_is(device: str) -> None:
    layer = pg.nn.Linear(2, 2)
    forward = pg.jit(lambda x: layer(x).detach())
    x = Tensor([[1.0, 2.0]])
    for rate in (1.0, 2.0, 3.0, 4.0):
        with pg.no_grad():
            layer.bias.fill_(rate)
            layer.weight.mul_(rate)
        np.testing.assert_array_equal(forward(x).numpy(), layer(x).detach().numpy())
    assert is_stateless(forward)


def test_another_form_mode_or_device_of_constants_is_seen(device: str) -> None:
    layer = pg.nn.Sequential(pg.nn.Dropout(0.5))
    forward = pg.jit(lambda x: layer(x) + 1)
    layer.eval()
    x = Tensor.ones(64)
    assert [forward(x).sum().item() for _ in range(4)] == [128.0] * 4
    layer.train()
    assert forward(x).sum().item() != 128.0
    layer.eval()
    assert forward(x).sum().item() == 128.0 and forward(Tensor.ones(8)).sum().item() == 16.0
    with pg.autocast(device, dtype=pg.bfloat16):
        assert forward(x).sum().item() == 128.0


def test_a_run_is_counted_and_an_index_outside_is_an_error(device: str) -> None:
    take = pg.jit(lambda x, i: x[i])
    x = Tensor([1.0, 2.0, 3.0])
    for _ in range(3):
        take(x, Tensor([0]))
    assert is_stateless(take)
    with watch() as counts:
        assert take(x, Tensor([2])).tolist() == [3.0]
    assert counts.plans >= 1
    with pytest.raises(IndexError, match="out of range"):
        take(x, Tensor([3])).tolist()
    assert take(x, Tensor([1])).tolist() == [2.0]


def test_donated_arguments_are_taken(device: str) -> None:
    add = pg.jit(lambda total, x: total + x, donate="total")
    total = Tensor([1.0])
    for _ in range(4):
        before, total = total, add(total, Tensor([1.0]))
    assert total.tolist() == [5.0]
    with pytest.raises(pg.JitError, match="donated"):
        before.tolist()
