"""pg.compile is pg.jit under PyTorch's name."""

from __future__ import annotations

import pytest

import picograd as pg
from picograd import nn


def test_compile_is_a_decorator_with_and_without_arguments() -> None:
    @pg.compile
    def double(x: pg.Tensor) -> pg.Tensor:
        return x * 2

    @pg.compile(fullgraph=True, dynamic=False, mode="reduce-overhead")
    def triple(x: pg.Tensor) -> pg.Tensor:
        return x * 3

    x = pg.tensor([1.0, 2.0])
    assert [double(x).tolist() for _ in range(4)] == [[2.0, 4.0]] * 4
    assert triple(x).tolist() == [3.0, 6.0]


def test_a_compiled_module_has_the_attributes_of_the_module() -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    fast = pg.compile(net)
    assert [p.shape for p in fast.parameters()] == [(3, 2), (3,)] and list(fast.state_dict()) == list(net.state_dict())
    fast.eval()
    x = pg.ones(1, 2)
    for _ in range(3):
        assert fast(x).tolist() == net(x).tolist()
    with pytest.raises(AttributeError, match="'Sequential' object has no attribute 'wieghts'"):
        _ = fast.wieghts


def test_disable_gives_back_the_function_itself() -> None:
    def same(x: pg.Tensor) -> pg.Tensor:
        return x

    assert pg.compile(same, disable=True) is same and pg.compile(disable=True)(same) is same


def test_a_jitted_function_prints_as_what_it_is_made_of() -> None:
    @pg.jit
    def step(x: pg.Tensor) -> pg.Tensor:
        return x

    layer = "Linear(in_features=2, out_features=3, bias=True)"
    assert repr(pg.compile(pg.nn.Linear(2, 3))) == f"jit({layer})"
    assert repr(step).endswith("<locals>.step)") and repr(pg.jit(len, steps=4)) == "jit(len, steps=4)"
    assert repr(pg.GradScaler(init_scale=8.0)) == (
        "GradScaler(scale=8.0, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000)"
    )
    assert repr(pg.GradScaler(enabled=False)) == "GradScaler(enabled=False)"
    assert (repr(pg.Generator(3)), repr(pg.Generator(3, device="cpu"))) == ("Generator(3)", "Generator(3, device='cpu')")


def test_a_mode_that_there_is_not_is_told() -> None:
    with pytest.raises(pg.ArgumentError, match="mode must be one of default, .*, got 'fast'"):
        pg.compile(lambda x: x, mode="fast")
