"""Chain rules that are planted wrong: each is found by its slope, and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.autodiff import host
from picograd.autodiff.chain_rules import chain_rules
from picograd.autodiff.modes import Derivative
from picograd.ir.op import Op
from picograd.ir.pattern import Rule

Source = Callable[[Op, Op], Op]


def plant(monkeypatch: pytest.MonkeyPatch, name: str, change: Callable[[Source], Source]) -> None:
    """Changes the derivatives of a row by its sources."""
    (right,) = [rule for rule in chain_rules.rules if rule.name == name]
    action = right.action
    wrong = Rule(name, right.pattern, Derivative(action.kind, tuple(one and change(one) for one in action.by_source)))
    for code, rules in list(chain_rules._by_code.items()):
        if right in rules:
            monkeypatch.setitem(chain_rules._by_code, code, [wrong if rule is right else rule for rule in rules])
        if code in chain_rules._sure and chain_rules._sure[code][0] is right:
            monkeypatch.setitem(chain_rules._sure, code, (wrong, chain_rules._sure[code][1]))


def twice(right: Source) -> Source:
    return lambda grad, out: right(grad, out) * 2.0


def negative(right: Source) -> Source:
    return lambda grad, out: -right(grad, out)


def normal(*shape: int) -> Tensor:
    numbers = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return Tensor(numbers, requires_grad=True)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "mul": lambda x: x * x,
    "div": lambda x: 1.0 / (x + 9.0) / x.exp(),
    "sub": lambda x: x.exp() - x,
    "tanh": lambda x: x.tanh(),
    "erf": lambda x: pg.nn.functional.gelu(x),
    "log": lambda x: (x * x + 1.0).log(),
    "relu": lambda x: x.relu(),
    "reduce add": lambda x: x.sum(0) * 3.0,
    "reduce max": lambda x: x.amax(1) + 1.0,
    "scan add": lambda x: x.cumsum(1),
    "permute": lambda x: x.T.exp(),
    "pad": lambda x: pg.nn.functional.pad(x, (1, 2)),
    "gather": lambda x: x[pg.tensor([0, 2, 2])],
    "matmul": lambda x: x @ x.T,
    "conv": lambda x: pg.nn.functional.conv1d(x.unsqueeze(0), x[:, :3].unsqueeze(0).contiguous()),
    "pow constant": lambda x: (x * x + 1.0) ** 1.5,
}


def step(function: Callable[[Tensor], Tensor]) -> None:
    x = normal(4, 6)
    function(x).sin().sum().backward()
    assert x.grad is not None
    x.grad.realize()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_wrong_chain_rule_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = pg.verify(step, PROGRAMS[name])
    assert right and right.gradients, right
    plant(monkeypatch, name, negative if name in ("relu", "gather") else twice)
    found = pg.verify(step, PROGRAMS[name]).first
    assert found is not None and found.what == f'the chain rule "{name}"', found
    assert any(line.file == __file__ for line in found.lines), found
    with pytest.raises(AssertionError, match="the slope is"):
        exec(compile(found.script, "shown.py", "exec"), {})


def test_attention_is_held_by_its_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(x: Tensor) -> Tensor:
        return pg.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)

    def run() -> Any:
        x = normal(1, 2, 16, 8)
        attend(x).sin().sum().backward()
        assert x.grad is not None
        return x.grad.realize()

    assert pg.verify(run)
    (right,) = [rule for rule in chain_rules.rules if rule.name == "attention"]
    reverse = right.action.reverse

    def wrong(op: Op, grads: Any, needed: Any, rules: Any) -> list[Op | None]:
        return [part if part is None or i else part * 2.0 for i, part in enumerate(reverse(op, grads, needed, rules))]

    row = Rule("attention", right.pattern, type(right.action)(wrong, right.action.forward))
    code = right.pattern.codes
    monkeypatch.setitem(chain_rules._by_code, code, [row])
    found = pg.verify(run).first
    assert found is not None and found.what == 'the chain rule "attention"', found
    assert any(line.file == __file__ for line in found.lines), found


def test_a_rule_of_a_function_of_the_host_is_named_by_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its gradient is that of constant rank, which is no slope where a singular value is left out: it is not held so."""

    def run() -> Any:
        x = normal(4, 3)
        pg.linalg.pinv(x, rtol=0.5).sin().sum().backward()
        assert x.grad is not None
        return x.grad.realize()

    right = pg.verify(run)
    assert right and right.gradients >= 3, right
    wrong = lambda grad, out: host.pinv_grad(grad, out) * 2.0  # noqa: E731
    monkeypatch.setitem(host.GRADIENTS, "pinv", (wrong, None, None))
    found = pg.verify(run).first
    assert found is not None and found.what == 'the chain rule "pinv"', found
    with pytest.raises(AssertionError, match="the slope is"):
        exec(compile(found.script, "shown.py", "exec"), {})


def test_numbers_of_the_program_are_those_without_verify() -> None:
    """Neither the generator of picograd nor that of NumPy is used."""
    pg.manual_seed(3)
    np.random.seed(3)
    expected = pg.randn(4).tolist(), np.random.rand()
    pg.manual_seed(3)
    np.random.seed(3)
    pg.verify(step, PROGRAMS["tanh"])
    assert (pg.randn(4).tolist(), np.random.rand()) == expected
