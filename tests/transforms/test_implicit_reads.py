"""Python values that a captured function reads without naming them: a change is noticed, by a new capture or a JitError.

Each program is a generator of results; it makes its own state, and captures with what it is given. Without jit it is right.
"""

from __future__ import annotations

import functools
import weakref
from array import array
from collections import ChainMap, OrderedDict, UserDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import JitError, Tensor, nn, optim
from picograd.nn import functional as F

pytestmark = pytest.mark.req("G10")
Capture = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Capture], Iterator[Tensor]]
X = np.linspace(-1.0, 1.5, 6, dtype=np.float32).reshape(2, 3)
CHANGED: dict[str, Program] = {}
UNCHANGED: dict[str, Program] = {}


def program(kept: dict[str, Program]) -> Callable[[Program], Program]:
    def keep(function: Program) -> Program:
        kept[function.__name__] = function
        return function

    return keep


def thrice(function: Callable[..., Any]) -> Iterator[Tensor]:
    for _ in range(3):
        yield function(Tensor(X))


def around(function: Callable[..., Any], change: Callable[[], object]) -> Iterator[Tensor]:
    """Yields three results, changes something, and yields two more."""
    yield from thrice(function)
    change()
    yield function(Tensor(X))
    yield function(Tensor(X))


class Holder:
    """An object of the user's."""

    def __init__(self, scale: float = 2.0):
        self.held = scale


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        pg.manual_seed(0)
        self.layer = nn.Linear(3, 3)


# ---- names that are not there yet ----
@program(CHANGED)
def an_adapter_that_hasattr_asks_for(capture: Capture) -> Iterator[Tensor]:
    class Net(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.adapter(x) if hasattr(self, "adapter") else self.layer(x)

    net: Any = Net()
    yield from around(capture(net), lambda: setattr(net, "adapter", nn.Linear(3, 3)))


@program(CHANGED)
def a_default_of_getattr(capture: Capture) -> Iterator[Tensor]:
    holders = [SimpleNamespace()]
    yield from around(capture(lambda x: x * getattr(holders[0], "gain", 1.0)), lambda: setattr(holders[0], "gain", 3.0))


@program(CHANGED)
def an_attribute_that_try_asks_for(capture: Capture) -> Iterator[Tensor]:
    holder: Any = Holder()

    def scaled(x: Tensor) -> Tensor:
        try:
            return x * holder.gain
        except AttributeError:
            return x

    yield from around(capture(scaled), lambda: setattr(holder, "gain", 3.0))


@program(CHANGED)
def a_buffer_that_a_state_dict_counts(capture: Capture) -> Iterator[Tensor]:
    net = Layer()
    yield from around(capture(lambda x: x * len(net.state_dict())), lambda: net.register_buffer("more", pg.ones(2)))


# ---- methods that run without being named ----
@program(CHANGED)
def the_forward_of_a_class(capture: Capture) -> Iterator[Tensor]:
    class Net(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    net = nn.Sequential(Net(), nn.ReLU())
    yield from around(capture(net), lambda: setattr(Net, "forward", lambda self, x: self.layer(x) * 3))


@program(CHANGED)
def a_method_that_super_leads_to(capture: Capture) -> Iterator[Tensor]:
    scale = [2.0]

    class Net(Layer):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * scale[0]

    class Shifted(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    yield from around(capture(Shifted()), lambda: scale.append(scale.pop() + 1))


@program(CHANGED)
def operators_and_other_implicit_calls(capture: Capture) -> Iterator[Tensor]:
    class Scale(Holder):
        def __rmul__(self, x: Tensor) -> Tensor:
            return x * self.held

        def __getattr__(self, name: str) -> float:
            return self.held + len(name)

        def __getitem__(self, i: int) -> float:
            return self.held + i

        def __enter__(self) -> float:
            return self.held

        def __exit__(self, *error: object) -> None:
            pass

    scale: Any = Scale()

    def scaled(x: Tensor) -> Tensor:
        with scale as held:
            return x.__mul__(scale[1]) + scale.length + held

    yield from around(capture(scaled), lambda: setattr(scale, "held", 5.0))


@program(CHANGED)
def a_descriptor(capture: Capture) -> Iterator[Tensor]:
    class Half:
        def __get__(self, owner: Any, kind: Any = None) -> float:
            return owner.held / 2

    class Halved(Holder):
        half = Half()

    halved = Halved()
    yield from around(capture(lambda x: x * halved.half), lambda: setattr(halved, "held", 6.0))


@program(CHANGED)
def a_pattern(capture: Capture) -> Iterator[Tensor]:
    holder = Holder()

    def matched(x: Tensor) -> Tensor:
        match holder:
            case Holder(held=2.0):
                return x
        return -x

    yield from around(capture(matched), lambda: setattr(holder, "held", 5.0))


@program(CHANGED)
def a_class_method_and_an_inherited_attribute(capture: Capture) -> Iterator[Tensor]:
    class Base:
        scale = 2.0

        @classmethod
        def twice(cls) -> float:
            return cls.scale * 2

    class Settings(Base):
        pass

    yield from around(capture(lambda x: x * Settings.twice() + Settings.scale), lambda: setattr(Base, "scale", 4.0))


@program(CHANGED)
def an_optimizers_hook(capture: Capture) -> Iterator[Tensor]:
    net = Layer()
    optimizer = optim.SGD(net.parameters(), lr=0.1)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        net.layer(x).square().mean().backward()
        optimizer.step()
        return net.layer.weight.detach() + 0

    def halve(*_: object) -> None:
        for parameter in net.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(0.5)

    yield from around(capture(step), lambda: optimizer.register_step_pre_hook(halve))


@program(CHANGED)
def code_and_defaults_of_a_function(capture: Capture) -> Iterator[Tensor]:
    def inner(x: Tensor, *, scale: float = 2.0) -> Tensor:
        return x * scale

    yield from around(capture(lambda x: inner(x)), lambda: setattr(inner, "__kwdefaults__", {"scale": 4.0}))
    yield from around(capture(lambda x: inner(x)), lambda: setattr(inner, "__code__", (lambda x, *, scale: x).__code__))


@program(CHANGED)
def an_attribute_of_a_function(capture: Capture) -> Iterator[Tensor]:
    def scaled(x: Tensor) -> Tensor:
        return x * scaled.scale  # type: ignore[attr-defined]

    scaled.scale = 2.0  # type: ignore[attr-defined]
    yield from around(capture(scaled), lambda: setattr(scaled, "scale", 4.0))


# ---- containers ----
@program(CHANGED)
def the_order_of_a_dict(capture: Capture) -> Iterator[Tensor]:
    scales = OrderedDict(a=1.0, b=2.0)
    folded = capture(lambda x: functools.reduce(lambda y, scale: y * 2 + scale, scales.values(), x))
    yield from around(folded, lambda: scales.move_to_end("a"))


@program(CHANGED)
def arguments_of_a_partial(capture: Capture) -> Iterator[Tensor]:
    scales = [2.0]
    inner = functools.partial(lambda scales, x: x * scales[0], scales)
    yield from around(capture(inner), lambda: scales.append(scales.pop() + 1))
    yield from around(capture(lambda x: inner(x)), lambda: scales.append(scales.pop() + 1))


@program(CHANGED)
def a_partial_method(capture: Capture) -> Iterator[Tensor]:
    class Scaled(Holder):
        def scaled(self, x: Tensor, times: float) -> Tensor:
            return x * times * self.held

        tripled = functools.partialmethod(scaled, times=3.0)

    holder = Scaled()
    yield from around(capture(lambda x: holder.tripled(x)), lambda: setattr(holder, "held", 4.0))


@pytest.mark.parametrize("wrapped", [MappingProxyType, lambda held: ChainMap({}, held), lambda held: held])
def test_views_of_a_dict_are_looked_into(wrapped: Callable[[Any], Any]) -> None:
    held: Any = UserDict(scale=2.0) if wrapped({}) == {} and type(wrapped({})) is dict else {"scale": 2.0}
    view = wrapped(held)
    by_method = held.get
    for function in (lambda x: x * view["scale"], lambda x: x * by_method("scale")):
        with pytest.raises(JitError, match="has changed"):
            list(around(pg.jit(function), lambda: held.__setitem__("scale", held["scale"] + 1)))


@pytest.mark.parametrize("numbers", [array("f", [2.0]), bytearray([2]), memoryview(bytearray([2]))])
def test_numbers_in_memory_are_looked_into(numbers: Any) -> None:
    with pytest.raises(JitError, match="numbers has changed in place"):
        list(around(pg.jit(lambda x: x * numbers[0]), lambda: numbers.__setitem__(0, 5)))


@program(CHANGED)
def a_weak_reference(capture: Capture) -> Iterator[Tensor]:
    holder = Holder()
    reference = weakref.ref(holder)
    yield from around(capture(lambda x: x * reference().held), lambda: setattr(holder, "held", 4.0))


@program(CHANGED)
def names_of_globals(capture: Capture) -> Iterator[Tensor]:
    names: dict[str, Any] = {"scale": 2.0}
    exec("def scaled(x): return x * globals()['scale']", names)  # noqa: S102
    yield from around(capture(names["scaled"]), lambda: names.__setitem__("scale", 4.0))


# ---- nothing that is read has changed ----
@program(UNCHANGED)
def state_of_a_trainer(capture: Capture) -> Iterator[Tensor]:
    @dataclass
    class Progress:
        scale: float = 2.0
        steps: int = 0

    progress, net, act = Progress(), Layer(), "relu"
    optimizer = optim.AdamW(net.parameters(), lr=0.1)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2)

    @capture
    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = getattr(F, act)(net.layer(x) * progress.scale).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(6):
        yield step(Tensor(X))
        schedule.step()
        progress.steps += 1
        net.note = str(progress.steps)


@program(UNCHANGED)
def an_object_that_counts_itself(capture: Capture) -> Iterator[Tensor]:
    class Memory:
        def __init__(self) -> None:
            self.items: list[int] = []

        def __len__(self) -> int:
            return len(self.items)

    class Agent:
        def __init__(self) -> None:
            self.net, self.memory = Layer(), Memory()
            self.act = capture(self.chosen)

        def chosen(self, x: Tensor) -> Tensor:
            return self.net.layer(x).argmax(-1)

    agent = Agent()
    for i in range(5):
        yield agent.act(Tensor(X))
        agent.memory.items.append(i)


# ---- tests ----
def results(kept: Program, capture: Capture) -> tuple[list[list[Any]], str]:
    """Returns the results before an error, and the error of a captured function."""
    found: list[list[Any]] = []
    try:
        for result in kept(capture):
            found.append(result.detach().tolist())
    except JitError as error:
        return found, str(error)
    return found, ""


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_is_seen_or_said(name: str) -> None:
    plain, _ = results(CHANGED[name], lambda function: function)
    found, error = results(CHANGED[name], pg.jit)
    assert len(found) >= 3
    assert (found == plain) if not error else (found == plain[: len(found)] and "since" in error)


@pytest.mark.parametrize("name", UNCHANGED)
def test_other_state_may_change(name: str) -> None:
    plain, _ = results(UNCHANGED[name], lambda function: function)
    assert results(UNCHANGED[name], pg.jit) == (plain, "")
