"""What a jitted function reads and changes of Python: a program gives what it gives without jit, or a JitError says why."""

from __future__ import annotations

import copy
import itertools
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import JitError, Tensor, nn, optim

pytestmark = pytest.mark.req("G10")
Jit = Callable[[Any], Any]
Program = Callable[[Jit], list[Any]]
CALLS = 5  # two traces and three replays, at least
X = Tensor([[1.0, -2.0], [0.5, 3.0]])


def plain(function: Any) -> Any:
    return function


def shown(value: Any) -> Any:
    """Returns a value as lists of numbers."""
    if isinstance(value, Tensor):
        return value.detach().numpy().round(5).tolist()
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    return [shown(item) for item in value] if isinstance(value, list | tuple) else value


def run(program: Program, jit: Jit) -> list[Any]:
    pg.manual_seed(3)
    random.seed(3)
    return [shown(value) for value in program(jit)]


def linear() -> nn.Linear:
    return nn.Linear(2, 2)


# ---- gradients ----
def backward_inside_and_step_outside(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)

    def forward_and_backward(x: Tensor) -> Tensor:
        loss = (m(x) ** 2).mean()
        loss.backward()
        return loss

    f, found = jit(forward_and_backward), []
    for _ in range(CALLS):
        o.zero_grad()
        found.append(f(X))
        found.append(m.weight.grad)
        o.step()
    return [*found, m.weight, m.bias.grad]


def gradients_accumulate(jit: Jit) -> list[Any]:
    m, found = linear(), []

    def micro(x: Tensor) -> None:
        (m(x) ** 2).mean().backward()

    f = jit(micro)
    for i in range(3 * CALLS):
        if i % 3 == 0:
            m.zero_grad()
        f(X + i)
        found.append(m.weight.grad)
    return found


def gradients_set_to_zero(jit: Jit) -> list[Any]:
    m, found = linear(), []
    o = optim.SGD(m.parameters(), lr=0.1)

    def micro(x: Tensor) -> None:
        (m(x) ** 2).mean().backward()

    f = jit(micro)
    for _ in range(CALLS):
        o.zero_grad(set_to_none=False)
        f(X)
        found.append(m.weight.grad)
        o.step()
    return [*found, m.weight]


def gradients_clipped_inside(jit: Jit) -> list[Any]:
    m, found = linear(), []
    o = optim.SGD(m.parameters(), lr=0.1)

    def micro(x: Tensor) -> Tensor:
        (m(x) ** 2).mean().backward()
        return nn.utils.clip_grad_norm_(m.parameters(), 0.1)

    f = jit(micro)
    for _ in range(CALLS):
        o.zero_grad()
        found += [f(X), m.weight.grad]
        o.step()
    return [*found, m.weight]


def gradients_kept_between(jit: Jit) -> list[Any]:
    m, kept = linear(), []

    def micro(x: Tensor) -> None:
        (m(x) ** 2).mean().backward()

    f = jit(micro)
    for i in range(CALLS):
        m.zero_grad()
        f(X + i)
        kept.append(m.weight.grad)
    return kept


def forgotten_inside_after_the_step(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = (m(x) ** 2).mean()
        loss.backward()
        o.step()
        o.zero_grad()
        return loss

    f = jit(step)
    return [*[f(X) for _ in range(CALLS)], m.weight, m.weight.grad]


def forgotten_outside_after_the_step(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = (m(x) ** 2).mean()
        loss.backward()
        o.step()
        return loss

    f, found = jit(step), []
    for _ in range(CALLS):
        o.zero_grad()
        found.append(f(X))
    return [*found, m.weight]


def never_forgotten(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        loss = (m(x) ** 2).mean()
        loss.backward()
        o.step()
        return loss

    f = jit(step)
    return [*[f(X) for _ in range(CALLS)], m.weight]


def read_after_the_step(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)

    def step(x: Tensor) -> None:
        o.zero_grad()
        (m(x) ** 2).mean().backward()
        o.step()

    f = jit(step)
    for _ in range(CALLS):
        f(X)
    return [m.weight, m.weight.grad]


def step_alone(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)
    f = jit(lambda: o.step() and None)
    for i in range(CALLS):
        o.zero_grad()
        (m(X + i) ** 2).mean().backward()
        f()
    return [m.weight]


def step_alone_of_kept_gradients(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.SGD(m.parameters(), lr=0.1)
    f = jit(lambda: o.step() and None)
    for i in range(CALLS):
        o.zero_grad(set_to_none=False)
        (m(X + i) ** 2).mean().backward()
        f()
    return [m.weight, m.weight.grad]


def eager_between(jit: Jit) -> list[Any]:
    m, found = linear(), []

    def micro(x: Tensor) -> None:
        (m(x) ** 2).mean().backward()

    f = jit(micro)
    for i in range(CALLS):
        micro(X)
        f(X + i)
        found.append(m.weight.grad)
    return found


def a_returned_gradient(jit: Jit) -> list[Any]:
    m, found = linear(), []

    def micro(x: Tensor) -> tuple[Tensor, Any]:
        (m(x) ** 2).mean().backward()
        return m.bias.grad, m.weight.grad[0]

    f = jit(micro)
    for i in range(CALLS):
        m.zero_grad()
        whole, row = f(X + i)
        whole.mul_(2.0)
        row.zero_()
        found += [m.bias.grad, m.weight.grad, whole is m.bias.grad]
    return found


# ---- what is kept ----
def kept_and_returned(jit: Jit) -> list[Any]:
    losses: list[Tensor] = []

    def f(x: Tensor) -> Tensor:
        loss = x.sum()
        losses.append(loss)
        return loss

    g = jit(f)
    return [*[g(X) for _ in range(CALLS)], *losses]


def kept_as_a_view_and_returned(jit: Jit) -> list[Any]:
    kept: dict[str, Tensor] = {}

    def f(x: Tensor) -> Tensor:
        y = x * 2
        kept["row"] = y[0]
        return y

    g = jit(f)
    return [*[g(X + i) for i in range(CALLS)], kept["row"]]


# ---- modules ----
def mode_switched(jit: Jit) -> list[Any]:
    m = nn.Sequential(linear(), nn.BatchNorm1d(2))
    f = jit(lambda x: m(x))
    found = [f(X) for _ in range(CALLS)]
    m.eval()
    found += [f(X) for _ in range(CALLS)]
    m.train()
    return [*found, *[f(X) for _ in range(CALLS)], m[1].running_mean]


def changed_after(change: Callable[[Any], Any], whole: bool = False) -> Program:
    def program(jit: Jit) -> list[Any]:
        m = Net()
        f = jit(m) if whole else jit(lambda x: m(x))
        found = [f(X) for _ in range(CALLS)]
        handle = change(m)
        found += [f(X) for _ in range(CALLS)]
        if hasattr(handle, "remove"):
            handle.remove()
        return [*found, *[f(X) for _ in range(CALLS)]]

    return program


class Net(nn.Module):
    def __init__(self) -> None:
        self.layer = linear()
        self.act: Any = pg.relu

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.layer(x))


def forward_hook(m: Any) -> Any:
    return m.register_forward_hook(lambda module, args, output: output * 0 + 1)


def pre_hook(m: Any) -> Any:
    return m.layer.register_forward_pre_hook(lambda module, args: (args[0] * 3,))


def other_act(m: Any) -> None:
    m.act = pg.tanh


def own_act(m: Any) -> None:
    m.act = lambda x: x * 5


def other_forward(m: Any) -> None:
    m.forward = lambda x: x * 7


def other_forward_below(m: Any) -> None:
    m.layer.forward = lambda x: x * 7


def other_layer(m: Any) -> None:
    m.layer = linear()


def other_weight(m: Any) -> None:
    m.layer.weight = nn.Parameter(Tensor([[1.0, 2.0], [3.0, 4.0]]))


def hook_that_changes(jit: Jit) -> list[Any]:
    m, scale = linear(), [2.0]
    m.register_forward_hook(lambda module, args, output: output * scale[0])
    f = jit(lambda x: m(x))
    found = [f(X) for _ in range(CALLS)]
    scale[0] = 3.0
    return [*found, *[f(X) for _ in range(CALLS)]]


def parameter_hook(jit: Jit) -> list[Any]:
    w = Tensor([1.0, 2.0], requires_grad=True)
    f = jit(lambda x: pg.autograd.grad((x * w).sum(), [w])[0])
    found = [f(X) for _ in range(CALLS)]
    handle = w.register_hook(lambda grad: grad * 10)
    found += [f(X) for _ in range(CALLS)]
    handle.remove()
    return [*found, *[f(X) for _ in range(CALLS)]]


def hook_after_accumulation(jit: Jit) -> list[Any]:
    w = Tensor([1.0, 2.0], requires_grad=True)
    total = Tensor([0.0, 0.0])

    def step(x: Tensor) -> None:
        (x * w).sum().backward()
        w.grad = None

    f = jit(step)
    found = [f(X) for _ in range(CALLS)]
    w.register_post_accumulate_grad_hook(lambda leaf: total.add_(leaf.grad))
    return [*found, *[f(X) for _ in range(CALLS)], total]


def deep_copy(jit: Jit) -> list[Any]:
    class Holder(nn.Module):
        def __init__(self) -> None:
            self.layer = linear()
            self.fast = jit(self.compute)

        def compute(self, x: Tensor) -> Tensor:
            return self.layer(x)

        def forward(self, x: Tensor) -> Tensor:
            return self.fast(x)

    m = Holder()
    found = [m(X) for _ in range(CALLS)]
    other = copy.deepcopy(m)
    with pg.no_grad():
        other.layer.weight.mul_(3.0)
    return [*found, *[other(X) for _ in range(CALLS)], *[m(X) for _ in range(CALLS)]]


def deep_copy_of_a_jitted_method(jit: Jit) -> list[Any]:
    class Holder(nn.Module):
        def __init__(self) -> None:
            self.layer = linear()

        @jit
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    m = Holder()
    found = [m(X) for _ in range(CALLS)]
    other = copy.deepcopy(m)
    with pg.no_grad():
        other.layer.weight.mul_(3.0)
    return [*found, *[other(X) for _ in range(CALLS)], *[m(X) for _ in range(CALLS)]]


# ---- Python state ----
def counter(jit: Jit) -> list[Any]:
    c = [0]

    def f(x: Tensor) -> Tensor:
        c[0] += 1
        return x * (2 if c[0] % 10 == 0 else 1)

    g = jit(f)
    return [*[g(X) for _ in range(12)], c]


def counter_of_an_object(jit: Jit) -> list[Any]:
    class Thing:
        calls = 0

        def scaled(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * (2 if self.calls > 3 else 1)

    t = Thing()
    g = jit(t.scaled)
    return [*[g(X) for _ in range(12)], t.calls]


def counter_nonlocal(jit: Jit) -> list[Any]:
    calls = 0

    def f(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * (2 if calls > 3 else 1)

    g = jit(f)
    return [*[g(X) for _ in range(12)], calls]


class Counting(nn.Module):
    def __init__(self) -> None:
        self.layer, self.calls = linear(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.layer(x)


def counter_of_a_module(jit: Jit) -> list[Any]:
    m = Counting()
    g = jit(lambda x: m(x))
    return [*[g(X) for _ in range(CALLS)], m.calls]


def appended_number(jit: Jit) -> list[Any]:
    seen: list[Any] = []

    def f(x: Tensor) -> Tensor:
        seen.append(x.shape)
        return x * 2

    g = jit(f)
    return [*[g(X) for _ in range(CALLS)], seen]


def added_to_a_set(jit: Jit) -> list[Any]:
    seen: set[Any] = set()

    def f(x: Tensor) -> Tensor:
        seen.add(len(seen))
        return x * 2

    g = jit(f)
    return [*[g(X) for _ in range(CALLS)], len(seen)]


def generator(jit: Jit) -> list[Any]:
    numbers = (n for n in [1, 1, 1, 2, 3, 4, 5, 6])
    g = jit(lambda x: x * next(numbers))
    return [g(X) for _ in range(CALLS)]


def count(jit: Jit) -> list[Any]:
    numbers = itertools.count()
    g = jit(lambda x: x * (1 if next(numbers) < 3 else 2))
    return [g(X) for _ in range(CALLS)]


def python_random(jit: Jit) -> list[Any]:
    g = jit(lambda x: x * (1 if random.random() < 0.7 else 2))
    return [g(X) for _ in range(20)]


def numpy_random(jit: Jit) -> list[Any]:
    draw = np.random.default_rng(3)
    g = jit(lambda x: x * (1 if draw.random() < 0.7 else 2))
    return [g(X) for _ in range(20)]


def numpy_global_random(jit: Jit) -> list[Any]:
    np.random.seed(3)
    g = jit(lambda x: x * (1 if np.random.rand() < 0.7 else 2))
    return [g(X) for _ in range(20)]


def idempotent_attribute(jit: Jit) -> list[Any]:
    class Thing:
        shape: Any = None

        def scaled(self, x: Tensor) -> Tensor:
            self.shape = x.shape
            return x * 2

    t = Thing()
    g, found = jit(t.scaled), []
    for i in range(3 * CALLS):
        found += [g(X if i % 3 else X[0]), t.shape]
    return found


# ---- names ----
def rebound_object(jit: Jit) -> list[Any]:
    class Config:
        def __init__(self, scale: float) -> None:
            self.scale = scale

    config = Config(2.0)
    g = jit(lambda x: x * config.scale)
    found = [g(X) for _ in range(CALLS)]
    config = Config(3.0)
    return [*found, *[g(X) for _ in range(CALLS)]]


def rebound_closure(jit: Jit) -> list[Any]:
    def make(scale: float) -> Any:
        return lambda x: x * scale

    act = make(2.0)
    g = jit(lambda x: act(x))
    found = [g(X) for _ in range(CALLS)]
    act = make(3.0)
    return [*found, *[g(X) for _ in range(CALLS)]]


def rebound_library_function(jit: Jit) -> list[Any]:
    act = pg.relu
    g = jit(lambda x: act(x))
    found = [g(X) for _ in range(CALLS)]
    act = pg.tanh
    return [*found, *[g(X) for _ in range(CALLS)]]


def library_functions_in_a_dict(jit: Jit) -> list[Any]:
    acts = {"act": pg.relu}
    g = jit(lambda x: acts["act"](x))
    found = [g(X) for _ in range(CALLS)]
    acts["act"] = pg.tanh
    return [*found, *[g(X) for _ in range(CALLS)]]


def computed_names(jit: Jit) -> list[Any]:
    class Config:
        scale2 = 1.0

    config = Config()
    config.scale2 = 2.0
    g = jit(lambda x: x * getattr(config, f"scale{x.ndim}"))
    found = [g(X) for _ in range(CALLS)]
    config.scale2 = 3.0
    return [*found, *[g(X) for _ in range(CALLS)]]


def names_in_vars(jit: Jit) -> list[Any]:
    class Config:
        pass

    config = Config()
    vars(config)["scale"] = 2.0
    g = jit(lambda x: x * vars(config)["scale"])
    found = [g(X) for _ in range(CALLS)]
    vars(config)["scale"] = 3.0
    return [*found, *[g(X) for _ in range(CALLS)]]


def long_list(jit: Jit) -> list[Any]:
    numbers = [1.0] * 1000
    g = jit(lambda x: x * numbers[700])
    found = [g(X) for _ in range(CALLS)]
    numbers[700] = 2.0
    return [*found, *[g(X) for _ in range(CALLS)]]


def long_dict(jit: Jit) -> list[Any]:
    numbers = {str(i): i for i in range(1000)}
    g = jit(lambda x: x * numbers["700"])
    found = [g(X) for _ in range(CALLS)]
    numbers["700"] = 2
    return [*found, *[g(X) for _ in range(CALLS)]]


def long_set(jit: Jit) -> list[Any]:
    numbers = set(range(1000))
    g = jit(lambda x: x * (2 if 700 in numbers else 1))
    found = [g(X) for _ in range(CALLS)]
    numbers.remove(700)
    return [*found, *[g(X) for _ in range(CALLS)]]


def long_list_of_objects(jit: Jit) -> list[Any]:
    class Config:
        scale = 1.0

    things = [Config() for _ in range(40)]
    g = jit(lambda x: x * things[30].scale)
    found = [g(X) for _ in range(CALLS)]
    things[30].scale = 2.0
    return [*found, *[g(X) for _ in range(CALLS)]]


def long_list_of_layers(jit: Jit) -> list[Any]:
    layers: list[Any] = [nn.Identity() for _ in range(40)]

    def f(x: Tensor) -> Tensor:
        for layer in layers:
            x = layer(x)
        return x

    g = jit(f)
    found = [g(X) for _ in range(CALLS)]
    layers[30] = nn.Tanh()
    return [*found, *[g(X) for _ in range(CALLS)]]


def set_of_names(jit: Jit) -> list[Any]:
    frozen = {"a"}
    g = jit(lambda x: x * (2 if "b" in frozen else 1))
    found = [g(X) for _ in range(CALLS)]
    frozen.add("b")
    return [*found, *[g(X) for _ in range(CALLS)]]


# ---- results in a graph outside ----
def added_to_a_loss(jit: Jit, change: Callable[[Tensor], Tensor] = lambda value: value) -> list[Any]:
    inner, outer = linear(), linear()
    f = jit(lambda x: inner(x).sum())
    for i in range(CALLS):
        (change(f(X + i)) * 2 + outer(X).sum()).backward()
    return [inner.weight.grad, outer.weight.grad]


def computed_before_it_is_added(jit: Jit) -> list[Any]:
    return added_to_a_loss(jit, lambda value: (value + 1).realize())


def a_parameter_as_it_is(jit: Jit) -> list[Any]:
    w, outer = Tensor([1.0, 2.0], requires_grad=True), linear()
    f = jit(lambda: w * 1.0)
    for _ in range(CALLS):
        (f() + outer(X).sum()).sum().backward()
    return [w.grad, outer.weight.grad]


def a_loss_alone(jit: Jit) -> list[Any]:
    m = linear()
    f = jit(lambda x: m(x).sum())
    for i in range(CALLS):
        f(X + i).backward()
    return [m.weight.grad]


def in_grad(jit: Jit) -> list[Any]:
    m = linear()
    f = jit(lambda x: m(x).sum())
    return [pg.autograd.grad(f(X) + m(X).sum(), m.weight) for _ in range(CALLS)]


def an_argument_of_another(jit: Jit, change: Callable[[Tensor], Tensor] = lambda value: value) -> list[Any]:
    inner, outer = linear(), linear()
    f = jit(lambda x: inner(x))
    g = jit(lambda h: (outer(change(h)) ** 2).sum().backward())
    for i in range(CALLS):
        g(f(X + i))
    return [inner.weight.grad, outer.weight.grad]


def a_detached_argument_of_another(jit: Jit) -> list[Any]:
    return an_argument_of_another(jit, lambda value: value.detach())


def a_state_of_its_own(jit: Jit) -> list[Any]:
    m = linear()

    def step(h: Tensor) -> Tensor:
        with pg.no_grad():
            norm = h.abs().sum()
        return m(h.detach()) / (1 + norm)

    f, found = jit(step), [X]  # at first a tensor like any other, then a result
    for _ in range(CALLS):
        found.append(f(found[-1]))
    return found


def a_closure_of_another(jit: Jit) -> list[Any]:
    inner, outer = linear(), linear()
    f = jit(lambda x: inner(x))
    h = [f(X) for _ in range(3)][-1]
    g = jit(lambda: (outer(h) ** 2).sum().backward())
    for _ in range(CALLS):
        g()
    return [inner.weight.grad, outer.weight.grad]


def detached_and_added(jit: Jit) -> list[Any]:
    return added_to_a_loss(jit, lambda value: (value + 1).detach())


def read_under_no_grad(jit: Jit) -> list[Any]:
    def change(value: Tensor) -> Tensor:
        with pg.no_grad():
            return value + 1

    return added_to_a_loss(jit, change)


def compared_and_counted(jit: Jit) -> list[Any]:
    return added_to_a_loss(jit, lambda value: (value > 0).float())


def called_with_and_without_gradients(jit: Jit) -> list[Any]:
    m, found = linear(), []

    def f(x: Tensor) -> Tensor:
        return m(x).sum() if pg.is_grad_enabled() else m(x).sum() + 1

    g = jit(f)
    for _ in range(CALLS):
        found.append(g(X))
        with pg.no_grad():
            found.append(g(X))
            target = g(X)
        ((m(X).sum() - target) ** 2).backward()
    return [*found, m.weight.grad]


# ---- views ----
def view_of_an_argument(jit: Jit) -> list[Any]:
    g, found = jit(lambda x: x[0]), []
    for _ in range(CALLS):
        x = X.clone()
        row = g(x)
        row.zero_()
        found.append(x)
    return found


def the_argument_itself(jit: Jit) -> list[Any]:
    g, found = jit(lambda x: x.add_(1.0)), []
    for _ in range(CALLS):
        x = X.clone()
        y = g(x)
        y.mul_(2.0)
        found += [x, y, y is x]
    return found


def view_of_state(jit: Jit) -> list[Any]:
    w = X.clone()
    g, found = jit(lambda: w.t()), []
    for _ in range(CALLS):
        row = g()
        row[0].add_(1.0)
        found += [w, row]
    return found


def two_views_of_one_result(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y[0]

    g, found = jit(f), []
    for _ in range(CALLS):
        y, row = g(X)
        row.zero_()
        found += [y, row]
    return found


def one_result_twice(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        return y, y

    g, found = jit(f), []
    for _ in range(CALLS):
        y, z = g(X)
        y.zero_()
        found += [y, z]
    return found


def transposed_in_place(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> Tensor:
        x.t_()
        return x * 1.0

    g, found, x = jit(f), [], Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    for _ in range(CALLS):
        found += [g(x), x]
    return found


def transposed_in_place_closure(jit: Jit) -> list[Any]:
    w = Tensor([[1.0, 2.0], [4.0, 5.0]])

    def f(x: Tensor) -> Tensor:
        w.t_()
        return x @ w

    g = jit(f)
    return [*[g(X) for _ in range(CALLS)], w]


def masked_write(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x * 2
        mask = y > 0
        y[mask] = -1.0
        return y, y * mask

    g = jit(f)
    return [g(X + i) for i in range(CALLS)]


def masked_write_of_an_argument(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> None:
        x[x < 0] = 0.0

    g, found = jit(f), []
    for i in range(CALLS):
        x = X - i
        g(x)
        found.append(x)
    return found


def masked_arithmetic(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> tuple[Tensor, ...]:
        y, z, rows = x * 2, x.int(), x * 1
        y[y > 0] *= 3.0
        y[y < 0] += x.mean()
        mask = y > 1
        y[mask] = 1 / y[mask] ** 0.5 - y[mask]
        z[z > 0] //= 2
        rows[rows.sum(1) > 0] -= Tensor([1.0, 2.0])
        y[y == 0] = -y[y == 0]
        return y, z, rows

    g = jit(f)
    return [g(X + i) for i in range(CALLS)]


def gradient_of_masked_arithmetic(jit: Jit) -> list[Any]:
    w = X.clone().requires_grad_()

    def f(x: Tensor) -> None:
        y = w * x
        mask = y > 0.3
        y[mask] = y[mask] ** 0.5  # the derivative of what the mask leaves out would be NaN
        y.sum().backward()

    g = jit(f)
    for i in range(CALLS):
        g(X + i)
    return [w.grad]


def read_by_a_mask(jit: Jit) -> list[Any]:
    g = jit(lambda x: x[x > 0].sum())
    return [g(X) for _ in range(CALLS)]


def returned_by_a_mask(jit: Jit) -> list[Any]:
    g = jit(lambda x: x[x > 0])
    return [g(X) for _ in range(CALLS)]


def a_value_for_each_chosen(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> Tensor:
        y = x * 1
        y[y > 0] *= Tensor([1.0, 2.0, 3.0])
        return y

    g = jit(f)
    return [g(X) for _ in range(CALLS)]


def chosen_by_another_mask(jit: Jit) -> list[Any]:
    def f(x: Tensor) -> Tensor:
        y = x.abs() * Tensor([1.0, -1.0])
        y[y > 0] = y[y < 0]
        return y

    g = jit(f)
    return [g(X) for _ in range(CALLS)]


# ---- optimizers ----
def trained(jit: Jit, make: Callable[[nn.Linear], optim.Optimizer], has_closure: bool = False) -> list[Any]:
    m = linear()
    o = make(m)

    def closure() -> Tensor:
        o.zero_grad()
        loss = ((m(X) - 1) ** 2).mean()
        loss.backward()
        return loss

    def step() -> Any:
        if has_closure:
            return o.step(closure)
        loss = closure()
        o.step()
        return loss

    f = jit(step)
    return [*[f() for _ in range(CALLS)], m.weight, m.bias]


def dampened(jit: Jit) -> list[Any]:
    return trained(jit, lambda m: optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.3), has_closure=True)


def muon(jit: Jit) -> list[Any]:
    return trained(jit, lambda m: optim.Muon([m.weight], lr=0.1))


def lbfgs(jit: Jit) -> list[Any]:
    return trained(jit, lambda m: optim.LBFGS(m.parameters(), lr=0.1, max_iter=3), has_closure=True)


def lbfgs_of_a_jitted_closure(jit: Jit) -> list[Any]:
    m = linear()
    o = optim.LBFGS(m.parameters(), lr=0.1, max_iter=3)

    def closure() -> Tensor:
        o.zero_grad()
        loss = ((m(X) - 1) ** 2).mean()
        loss.backward()
        return loss

    f = jit(closure)
    return [*[o.step(f) for _ in range(CALLS)], m.weight]


def scheduler_inside(jit: Jit) -> list[Any]:
    w = Tensor([1.0], requires_grad=True)
    o = optim.SGD([w], lr=1.0)
    s = optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.5)

    def step() -> None:
        o.zero_grad()
        (w * w).sum().backward()
        o.step()
        s.step()

    g = jit(step)
    for _ in range(CALLS):
        g()
    return [w, o.lr]


WORK: dict[str, Program] = {
    program.__name__: program for program in (
        backward_inside_and_step_outside, gradients_accumulate, gradients_set_to_zero, gradients_clipped_inside,
        gradients_kept_between, a_returned_gradient, forgotten_inside_after_the_step, forgotten_outside_after_the_step,
        step_alone,
        step_alone_of_kept_gradients, eager_between, mode_switched, parameter_hook, hook_after_accumulation, deep_copy,
        deep_copy_of_a_jitted_method, view_of_an_argument, the_argument_itself, view_of_state,
        two_views_of_one_result, one_result_twice, masked_write, masked_write_of_an_argument, rebound_library_function,
        rebound_object, rebound_closure, a_detached_argument_of_another, a_state_of_its_own, detached_and_added,
        read_under_no_grad, compared_and_counted, called_with_and_without_gradients, masked_arithmetic,
        gradient_of_masked_arithmetic, dampened, muon, lbfgs_of_a_jitted_closure,
    )
}  # fmt: skip
WORK |= {
    f"{change.__name__}{' of a jitted module' * whole}": changed_after(change, whole)
    for change in (forward_hook, pre_hook, other_act, own_act, other_forward, other_forward_below)
    for whole in (False, True)
}
REFUSED: dict[str, Program] = {
    program.__name__: program for program in (
        kept_and_returned, kept_as_a_view_and_returned, never_forgotten, read_after_the_step, counter,
        counter_of_an_object, counter_nonlocal, counter_of_a_module, appended_number, added_to_a_set, generator, count,
        python_random, numpy_random, numpy_global_random, computed_names, names_in_vars, long_list, long_dict, long_set,
        long_list_of_objects, long_list_of_layers, set_of_names, hook_that_changes, transposed_in_place,
        transposed_in_place_closure, scheduler_inside, idempotent_attribute, library_functions_in_a_dict,
        an_argument_of_another, a_closure_of_another, added_to_a_loss, computed_before_it_is_added, a_parameter_as_it_is,
        a_loss_alone, in_grad,
        read_by_a_mask, returned_by_a_mask, a_value_for_each_chosen, chosen_by_another_mask, lbfgs,
    )
}  # fmt: skip
REFUSED |= {change.__name__: changed_after(change) for change in (other_layer, other_weight)}


@pytest.mark.parametrize("name", WORK)
def test_it_gives_what_it_gives_without_jit(name: str) -> None:
    assert run(WORK[name], pg.jit) == run(WORK[name], plain)


@pytest.mark.variants
@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_remedy(name: str) -> None:
    run(REFUSED[name], plain)
    with pytest.raises(JitError) as caught:
        run(REFUSED[name], pg.jit)
    assert caught.value.hint and re.search(r"^jit: |grad: ", caught.value.fact), str(caught.value)
