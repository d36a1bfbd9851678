"""What a captured function reads of Python besides its arguments: a change is an error, never a stale result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import picograd as pg
from picograd import JitError, Tensor, nn, optim

pytestmark = pytest.mark.req("G10")


class Scale(nn.Module):
    """Reads a plain value, one of an object, and a list of modules."""

    def __init__(self) -> None:
        self.rate = 2.0
        self.settings = Settings()
        self.blocks = [nn.Linear(1, 1), nn.ReLU()]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x * self.rate + self.settings.offset


@dataclass
class Settings:
    offset: float = 1.0


def set_rate(model: Scale) -> None:
    model.rate = 3.0


def set_offset(model: Scale) -> None:
    model.settings.offset = 7.0


def replace_block(model: Scale) -> None:
    model.blocks[0] = nn.Linear(1, 1)


def add_block(model: Scale) -> None:
    model.blocks.append(nn.ReLU())


def remove_rate(model: Scale) -> None:
    del model.rate


CHANGES: dict[str, tuple[Callable[[Scale], None], str]] = {
    "a plain value": (set_rate, r"model\.rate was 2\.0 and is 3\.0"),
    "a value of an object": (set_offset, r"model\.settings\.offset was 1\.0 and is 7\.0"),
    "a module in a list": (replace_block, r"model\.blocks holds other modules"),
    "one module more": (add_block, r"model\.blocks holds other modules"),
    "an attribute less": (remove_rate, r"model\.rate was 2\.0"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_module_holds_is_guarded(name: str, device: str) -> None:
    change, message = CHANGES[name]
    model = Scale()
    apply = pg.jit(lambda x: model(x))
    first = [apply(Tensor([1.0])).tolist() for _ in range(3)]
    assert first == [model(Tensor([1.0])).tolist()] * 3
    change(model)
    with pytest.raises(JitError, match=message):
        apply(Tensor([1.0]))


def test_a_module_within_a_module_that_is_replaced_is_an_error(device: str) -> None:
    model = nn.MLP(1, [2, 1])
    apply = pg.jit(lambda x: model(x))
    for _ in range(3):
        apply(Tensor([1.0]))
    model.layers = nn.ModuleList([nn.Linear(1, 2), nn.Linear(2, 1)])
    with pytest.raises(JitError, match=r"model\.layers is another module"):
        apply(Tensor([1.0]))


def test_the_probability_of_a_dropout_is_guarded(device: str) -> None:
    drop = nn.Dropout(0.0)
    dropped = pg.jit(lambda x: drop(x))
    for _ in range(3):
        assert dropped(Tensor([1.0])).item() == 1.0
    drop.p = 1.0
    with pytest.raises(JitError, match=r"drop\.p was 0\.0 and is 1\.0"):
        dropped(Tensor([1.0]))


def test_an_object_within_an_object_is_guarded(device: str) -> None:
    class Holder:
        pass

    holder: Any = Holder()
    holder.inner = Holder()
    holder.inner.rate = 2.0
    scaled = pg.jit(lambda x: x * holder.inner.rate)
    for _ in range(3):
        assert scaled(Tensor([1.0])).item() == 2.0
    holder.inner.rate = 3.0
    with pytest.raises(JitError, match=r"holder\.inner\.rate was 2\.0 and is 3\.0"):
        scaled(Tensor([1.0]))
    holder.inner = Holder()
    holder.inner.rate = 4.0
    assert [scaled(Tensor([1.0])).item() for _ in range(3)] == [4.0] * 3  # another object is captured anew


def test_settings_of_an_optimizer_are_guarded_and_its_learning_rate_is_read(device: str) -> None:
    def losses(captured: bool) -> list[float]:
        weight = Tensor([1.0], requires_grad=True)
        optimizer = optim.AdamW([weight], lr=0.1)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = (weight * weight).sum()
            loss.backward()
            optimizer.step()
            return loss

        run = pg.jit(step) if captured else step
        found = []
        for k in range(5):
            optimizer.lr = 0.1 * (k + 1)
            found.append(run().item())
        optimizer.param_groups[0]["weight_decay"] = 0.5
        if captured:
            with pytest.raises(JitError, match=r"optimizer\.param_groups\[0\]\['weight_decay'\] was 0\.01 and is 0\.5"):
                run()
        return found

    assert losses(True) == pytest.approx(losses(False), rel=1e-6)


def test_a_counter_that_a_module_keeps_and_does_not_use_is_refused(device: str) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return x * 2

    model = Counting()
    doubled = pg.jit(lambda x: model(x))
    assert doubled(Tensor([1.0])).item() == 2.0
    with pytest.raises(JitError, match=r"changes what it reads: model\.calls was 1 and is 2\. Later calls"):
        doubled(Tensor([1.0]))


def test_a_second_trace_that_differs_is_told_in_numbers(device: str) -> None:
    calls = [0.0]

    def count(x: Tensor) -> Tensor:
        calls[0] += 1.0
        return x + calls[0]

    counted = pg.jit(count)
    counted(Tensor([0.0]))
    with pytest.raises(JitError, match=r"differs from the first: CONST 1\.0 float32 became CONST 2\.0 float32\."):
        counted(Tensor([0.0]))


# ---- functions that are called ----
factor = 2.0


def times_factor(x):
    return x * factor


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(1, 1)

    def forward(self, x):
        return times_factor(self.inner(x))


class Rule:
    def apply(self, x):
        return times_factor(x)


@pytest.mark.req("G10")
@pytest.mark.parametrize("how", ["function", "closure", "forward", "method", "bound method"])
def test_what_a_called_function_reads_is_remembered(how, device, monkeypatch):
    net, rule = Scaled(), Rule()
    apply = rule.apply

    def inside(x):
        return times_factor(x)

    function = {
        "function": lambda x: times_factor(x),
        "closure": lambda x: inside(x),
        "forward": lambda x: net(x),
        "method": lambda x: rule.apply(x),
        "bound method": lambda x: apply(x),
    }[how]
    step = pg.jit(function)
    x = Tensor([[1.0]])
    for _ in range(3):
        step(x)
    monkeypatch.setitem(globals(), "factor", 3.0)
    with pytest.raises(JitError, match=r"times_factor's factor was 2\.0 and is 3\.0"):
        step(x)


def test_a_bound_method_that_is_held_is_that_of_its_object(device):
    layer = nn.Linear(1, 1)
    apply = layer.forward
    step = pg.jit(lambda x: apply(x))
    x = Tensor([[1.0]])
    for _ in range(3):
        assert step(x).item() == layer(x).item()
    apply = nn.Linear(1, 1).forward
    with pytest.raises(JitError, match="apply is another function"):
        step(x)


def test_the_mode_of_a_module_that_a_called_function_uses_chooses_the_capture(device):
    drop = nn.Dropout(0.5)

    def inside(x):
        return drop(x)

    step = pg.jit(lambda x: inside(x))
    x = Tensor.ones(64)
    for _ in range(3):
        assert step(x).sum().item() != 64.0
    drop.eval()
    for _ in range(3):
        assert step(x).sum().item() == 64.0


class Trainer:
    """A captured method that calls another, which reads `self`."""

    rate = 2.0

    def __init__(self):
        self.scale = 2.0
        self.step = pg.jit(self._step)

    def _step(self, x):
        return self.loss(x) * self.rate

    def loss(self, x):
        return x * self.scale


@pytest.mark.parametrize(("change", "said"), [("scale", r"self\.scale was 2\.0 and is 5\.0"), ("rate", r"self\.rate was")])
def test_what_a_called_method_reads_of_self_is_remembered(change, said, device, monkeypatch):
    trainer, x = Trainer(), Tensor([1.0])
    for _ in range(3):
        trainer.step(x)
    monkeypatch.setattr(trainer if change == "scale" else Trainer, change, 5.0)
    with pytest.raises(JitError, match=said):
        trainer.step(x)


def test_another_function_of_the_same_name_is_captured_anew(device, monkeypatch):
    step, x = pg.jit(lambda x: times_factor(x)), Tensor([1.0])
    for _ in range(3):
        step(x)
    monkeypatch.setitem(globals(), "times_factor", lambda x: x * 9)
    assert [step(x).item() for _ in range(3)] == [9.0] * 3


def test_freezing_a_parameter_and_adding_one_are_noticed(device):
    layer, extra, x = nn.Linear(2, 2), Tensor([1.0], requires_grad=True), Tensor.ones(1, 2)
    optimizer = optim.SGD(layer.parameters(), lr=0.1)

    def train(x):
        optimizer.zero_grad()
        loss = (layer(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    step = pg.jit(train)
    for _ in range(3):
        step(x)
    layer.weight.requires_grad = False
    with pytest.raises(JitError, match=r"layer\.weight\.requires_grad was True and is False"):
        step(x)
    layer.weight.requires_grad = True
    optimizer.param_groups[0]["params"].append(extra)
    with pytest.raises(JitError, match=r"optimizer\.param_groups\[0\]\['params'\] holds other parameters"):
        step(x)


def test_a_group_of_parameters_that_goes_is_an_error():
    first, second = (Tensor([1.0, 2.0], requires_grad=True) for _ in range(2))
    optimizer = optim.SGD([{"params": [first]}, {"params": [second]}], lr=0.5)

    @pg.jit
    def step():
        optimizer.zero_grad()
        (first * second).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    frozen = optimizer.param_groups.pop()
    with pytest.raises(JitError, match=r"optimizer\.param_groups holds other parameters"):
        step()
    optimizer.param_groups.append(frozen)
    step()
    optimizer.load_state_dict(optimizer.state_dict())
    step()


# ---- objects in containers, and within objects ----
class Holder:
    """An object of the user's."""

    def __init__(self, **held: Any):
        vars(self).update(held)


def in_a_dict(item: Any) -> Callable[[Tensor], Tensor]:
    held = {"a": item}
    return pg.jit(lambda x: held["a"](x))


def in_a_list_of_lists(item: Any) -> Callable[[Tensor], Tensor]:
    held = [[item]]
    return pg.jit(lambda x: held[0][0](x))


def in_an_object_in_an_object(item: Any) -> Callable[[Tensor], Tensor]:
    holder: Any = Holder(inner=Holder(net=item))
    return pg.jit(lambda x: holder.inner.net(x))


def in_a_dict_of_an_object(item: Any) -> Callable[[Tensor], Tensor]:
    holder: Any = Holder(nets={"a": item})
    return pg.jit(lambda x: holder.nets["a"](x))


def in_a_dict_of_a_module(item: Any) -> Callable[[Tensor], Tensor]:
    class Outer(nn.Module):
        def __init__(self) -> None:
            self.nets = {"a": item}

        def forward(self, x: Tensor) -> Tensor:
            return self.nets["a"](x)

    outer = Outer()
    return pg.jit(lambda x: outer(x))


def in_a_list_among_the_arguments(item: Any) -> Callable[[Tensor], Tensor]:
    captured = pg.jit(lambda nets, x: nets[0](x))
    return lambda x: captured([item], x)


PLACES = [
    in_a_dict, in_a_list_of_lists, in_an_object_in_an_object, in_a_dict_of_an_object, in_a_dict_of_a_module,
    in_a_list_among_the_arguments,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_wherever_a_module_is_kept_its_mode_chooses_the_capture(place: Any, device: str) -> None:
    drop = nn.Dropout(1.0)
    apply = place(drop)
    for training in (True, True, True, False, False, False, True):
        drop.train(training)
        assert apply(Tensor([1.0])).item() == (0.0 if training else 1.0)


@pytest.mark.parametrize("place", PLACES)
def test_wherever_a_module_is_kept_what_it_holds_is_guarded(place: Any, device: str) -> None:
    model = Scale()
    apply = place(model)
    for _ in range(3):
        apply(Tensor([1.0]))
    model.rate = 3.0
    with pytest.raises(JitError, match=r"rate was 2\.0 and is 3\.0"):
        apply(Tensor([1.0]))


@pytest.mark.parametrize("part", ["model", "body"])
def test_a_variable_named_as_an_attribute_of_its_module_is_guarded(part: str, device: str) -> None:
    models = [Scale(), Scale()]
    for model in models:
        setattr(model, part, nn.Linear(1, 1))
    model = models[0]
    apply = pg.jit(lambda x: model(x))
    for _ in range(3):
        apply(Tensor([1.0]))
    model = models[1]
    with pytest.raises(JitError, match=r"model is another module"):
        apply(Tensor([1.0]))


@pytest.mark.parametrize("kind", [dict, list])
def test_an_object_that_is_replaced_in_a_container_is_an_error(kind: Any, device: str) -> None:
    held = {"0": nn.Linear(1, 1)} if kind is dict else [nn.Linear(1, 1)]
    key: Any = "0" if kind is dict else 0
    apply = pg.jit(lambda x: held[key](x))
    for _ in range(3):
        apply(Tensor([1.0]))
    held[key] = nn.Linear(1, 1)
    with pytest.raises(JitError, match=r"held\['0'\] is another module|held holds other modules"):
        apply(Tensor([1.0]))


def test_objects_and_optimizers_in_lists_are_guarded(device: str) -> None:
    weight = Tensor([1.0], requires_grad=True)
    optimizers, settings = [optim.SGD([weight], lr=0.1)], [Holder(rate=2.0)]

    def step() -> Tensor:
        optimizers[0].zero_grad()
        loss = (weight * settings[0].rate).sum()  # type: ignore[attr-defined]
        loss.backward()
        optimizers[0].step()
        return loss

    for change, message in (
        (lambda: setattr(settings[0], "rate", 3.0), r"settings\[0\]\.rate was 2\.0"),
        (lambda: optimizers[0].param_groups[0].update(weight_decay=0.5), r"optimizers\[0\].*'weight_decay'\] was 0\.0"),
    ):
        captured = pg.jit(step)
        for _ in range(3):
            captured()
        change()
        with pytest.raises(JitError, match=message):
            captured()


class Stack(nn.Module):
    def __init__(self, count=2):
        self.layers = [nn.Linear(2, 2) for _ in range(count)]

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("count", [2, 20])
@pytest.mark.req("G10")
def test_other_modules_in_a_list_are_noticed(device, count):
    net, x = Stack(count), Tensor.ones(1, 2)
    step = pg.jit(lambda x: net(x))
    for _ in range(3):
        step(x)
    kept = net.layers
    net.layers = list(kept)
    assert (step(x) - net(x)).abs().max().item() < 1e-5
    net.layers[0] = nn.Linear(2, 2)
    with pytest.raises(JitError, match=r"net\.layers"):
        step(x)
    net.layers = Stack(count).layers
    with pytest.raises(JitError, match=r"net\.layers"):
        step(x)
    net.layers = kept
    assert (step(x) - net(x)).abs().max().item() < 1e-5


@pytest.mark.req("G10")
def test_another_module_or_optimizer_of_the_name_is_noticed(device):
    layers, x = [nn.Linear(2, 2), nn.Linear(2, 2)], Tensor.ones(1, 2)
    net, optimizer = nn.Linear(2, 2), None

    def through_the_list(x):
        for layer in layers:
            x = layer(x)
        return x

    def train(x):
        optimizer.zero_grad()
        loss = (net(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    optimizer = optim.SGD(net.parameters(), lr=0.1)
    functions = [pg.jit(through_the_list), pg.jit(lambda x: net(x)), pg.jit(train)]
    for function in functions:
        for _ in range(3):
            function(x)
    optimizer = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(JitError, match=r"optimizer is another optimizer"):
        functions[2](x)
    layers[1], net = nn.Linear(2, 2), nn.Linear(2, 2)
    with pytest.raises(JitError, match=r"layers holds other modules"):
        functions[0](x)
    with pytest.raises(JitError, match=r"net is another module"):
        functions[1](x)


def test_an_equal_value_in_the_place_of_another_is_looked_at_once(device):
    scale, factors, x = 2.5e3, [1.0, 2.0], Tensor([1.0])
    step = pg.jit(lambda x: x * scale * factors[1])
    for _ in range(3):
        step(x)
    scale, factors = float("2500"), [float("1"), float("2")]
    assert step(x).item() == 5000.0
    (form,) = step.forms.values()
    (capture,) = form.captures.values()
    watched = capture.conditions.watched
    assert step(x).item() == 5000.0 and capture.conditions.watched is watched
    factors[1] = 3.0
    with pytest.raises(JitError, match=r"factors has changed"):
        step(x)


@dataclass(slots=True)
class Slotted:
    rate: float = 2.0

    def times(self, x: Tensor) -> Tensor:
        return x * self.rate


def test_an_object_with_slots_is_guarded(device: str) -> None:
    held = Slotted()
    for function in (lambda x: x * held.rate, lambda x: held.times(x), held.times):
        held.rate = 2.0
        captured = pg.jit(function)
        for _ in range(3):
            assert captured(Tensor([1.0])).item() == 2.0
        held.rate = 3.0
        with pytest.raises(JitError, match=r"rate was 2\.0 and is 3\.0"):
            captured(Tensor([1.0]))


class Bare:
    __slots__ = ("weight",)


def test_a_tensor_in_a_slot_is_guarded(device: str) -> None:
    held = Bare()
    held.weight = Tensor([2.0])
    captured = pg.jit(lambda x: x * held.weight)
    for _ in range(3):
        assert captured(Tensor([1.0])).item() == 2.0
    held.weight = Tensor([3.0])
    with pytest.raises(JitError, match=r"held\.weight is another tensor"):
        captured(Tensor([1.0]))


def test_a_list_that_holds_itself_is_looked_into_so_far(device):
    items, x = [1.0], Tensor([1.0])
    items.append(items)
    step = pg.jit(lambda x: x * items[0])
    assert [step(x).item() for _ in range(3)] == [1.0] * 3
    items[0] = 2.0
    with pytest.raises(JitError, match="items has changed"):
        step(x)
