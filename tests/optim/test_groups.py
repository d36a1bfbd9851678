"""Parameter groups, named parameters, hooks of a step, optimizers of users, and state that PyTorch reads."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import ArgumentError, Tensor, nn, optim
from picograd.optim.optimizer import IMPLEMENTATIONS
from tests.helpers import in_full, same_value


def two() -> list[Tensor]:
    return [Tensor([1.0, 2.0], requires_grad=True), Tensor([[3.0]], requires_grad=True)]


def train(parameters, optimizer, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        sum((p**3).sum() for p in parameters).backward()
        optimizer.step()


@pytest.mark.req("C8")
@pytest.mark.parametrize(("name", "settings"), [("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("RMSprop", {})])
def test_a_group_that_is_added_later_trains_as_pytorchs(name, settings, device) -> None:
    ours = two()
    theirs = [torch.tensor(p.tolist(), requires_grad=True) for p in ours]
    optimizers = []
    for library, parameters in ((optim, ours), (torch.optim, theirs)):
        optimizer = getattr(library, name)(parameters[:1], lr=0.01, **settings)
        train(parameters, optimizer, 2)
        optimizer.add_param_group({"params": parameters[1], "lr": 0.1, "layer": "last"})
        train(parameters, optimizer, 2)
        optimizers.append(optimizer)
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)
    mine, other = (optimizer.state_dict() for optimizer in optimizers)
    assert list(mine["state"]) == list(other["state"]) and mine["param_groups"][1]["layer"] == "last"
    assert [group["params"] for group in mine["param_groups"]] == [group["params"] for group in other["param_groups"]]


@pytest.mark.req("C8")
@pytest.mark.parametrize(("name", "settings"), [("SGD", {"momentum": 0.9}), ("AdamW", {}), ("RAdam", {}), ("Adagrad", {})])
def test_pytorch_goes_on_from_our_state(name, settings, device) -> None:
    ours = two()
    mine = getattr(optim, name)(ours, lr=0.02, **settings)
    train(ours, mine, 3)
    theirs = [torch.tensor(p.tolist(), requires_grad=True) for p in ours]
    other = getattr(torch.optim, name)(theirs, lr=1.0, **settings)
    saved = mine.state_dict()
    state = {
        i: {name: torch.tensor(tensor.numpy(), dtype=torch.float32) for name, tensor in kept.items()}
        for i, kept in saved["state"].items()
    }
    other.load_state_dict({"state": state, "param_groups": saved["param_groups"]})
    train(ours, mine, 3)
    train(theirs, other, 3)
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)


def test_parameters_may_have_names() -> None:
    net = nn.Linear(2, 1)
    optimizer = optim.AdamW(net.named_parameters(), lr=0.1)
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert optimizer.param_groups[0]["params"][0] is net.weight
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["weight", "bias"]
    again = optim.AdamW([{"params": net.named_parameters()}])
    again.load_state_dict(optimizer.state_dict())
    assert again.lr == 0.1 and again.param_groups[0]["param_names"] == ["weight", "bias"]


def test_a_group_may_be_empty() -> None:
    w = Tensor([1.0], requires_grad=True)
    optimizer = optim.Adam([{"params": [w]}, {"params": [], "weight_decay": 0.0}], lr=0.5)
    w.sum().backward()
    optimizer.step()
    assert w.item() == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("make", "fact"),
    [
        (lambda a, b: optim.SGD([{"params": [a]}, {"params": [b, a]}]),
         "SGD: parameter 1 of a group, (2,), is already in a group."),
        (lambda a, b: optim.SGD([a, a]), "SGD: parameter 1 of a group, (2,), is already in a group."),
        (lambda a, b: optim.SGD([("a", a), b]), "SGD: give names to all parameters, or to none."),
        (lambda a, b: optim.SGD([("a", a)]).add_param_group({"params": b}),
         "SGD: give names to all parameters, or to none."),
        (lambda a, b: optim.SGD([a]).state[b], "state: a tensor of shape (1, 1) is not a parameter of this optimizer."),
    ],
)  # fmt: skip
def test_groups_that_do_not_fit_are_refused(make, fact) -> None:
    with pytest.raises(ArgumentError) as caught:
        make(*two())
    assert caught.value.fact == fact


def test_hooks_run_around_a_state_that_is_saved_and_loaded() -> None:
    optimizer = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5)
    seen: list[str] = []
    handles = [
        optimizer.register_state_dict_pre_hook(lambda optimizer: seen.append("save")),
        optimizer.register_state_dict_post_hook(lambda optimizer, state: {**state, "epoch": 3}),
        optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: seen.append(f"load {state.pop('epoch')}")),
        optimizer.register_load_state_dict_pre_hook(lambda optimizer, state: seen.append("first"), prepend=True),
        optimizer.register_load_state_dict_post_hook(lambda optimizer: seen.append("loaded")),
    ]
    state = optimizer.state_dict()
    optimizer.load_state_dict(state)
    assert seen == ["save", "first", "load 3", "loaded"] and state["epoch"] == 3
    for handle in handles:
        handle.remove()
    optimizer.load_state_dict(optimizer.state_dict())
    assert len(seen) == 4 and sorted(optimizer.state_dict()) == ["param_groups", "state"]


def test_hooks_run_around_a_step() -> None:
    w, seen = Tensor([1.0], requires_grad=True), []
    optimizer = optim.SGD([w], lr=0.5)
    handles = [
        optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append(("before", w.item(), args))),
        optimizer.register_step_post_hook(lambda optimizer, args, kwargs: seen.append(("after", w.item(), kwargs))),
    ]
    w.sum().backward()
    optimizer.step()
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert seen == [("before", 1.0, ()), ("after", 0.5, {})] and w.item() == 0.0


@pytest.mark.req("C8")
def test_an_optimizer_of_the_user_is_written_as_in_pytorch(device, rng) -> None:
    def written_for(library):
        class Momentum(library.optim.Optimizer):
            def __init__(self, params, lr=0.1, beta=0.9):
                super().__init__(params, {"lr": lr, "beta": beta})

            @library.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        if p.grad is None:
                            continue
                        state = self.state[p]
                        if len(state) == 0:
                            state["step"], state["mean"] = 0, library.zeros_like(p)
                        state["step"] += 1
                        state["mean"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                        p.add_(state["mean"] / (1 - group["beta"] ** state["step"]), alpha=-group["lr"])

        return Momentum

    ours = two()
    theirs = [torch.tensor(p.tolist(), requires_grad=True) for p in ours]
    mine, other = written_for(pg)(ours), written_for(torch)(theirs)
    train(ours, mine, 3)
    train(theirs, other, 3)
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)
    assert mine.state[0]["step"] == 3 and mine.state[ours[1]] is mine.state[1]
    again = written_for(pg)([copy.deepcopy(p) for p in ours])
    again.load_state_dict(pickle.loads(pickle.dumps(mine.state_dict())))
    assert again.state_dict()["state"][1]["step"] == 3
    np.testing.assert_array_equal(again.state[1]["mean"].numpy(), mine.state[1]["mean"].numpy())


# ---- parameters on several devices ----
PLACES = "CPU", "NUMPY"
SEVERAL = [("SGD", {"momentum": 0.9}), ("Adam", {"amsgrad": True}), ("NAdam", {}), ("ASGD", {}), ("Lion", {}), ("Muon", {})]


def on_two() -> list[Tensor]:
    return [Tensor([[1.0 + i, 2.0]], requires_grad=True, device=place) for i, place in enumerate((*PLACES, "CPU"))]


def by_place(parameters) -> list[list[Tensor]]:
    return [[p for p in parameters if p.device == place] for place in PLACES]


def train_apart(parameters, optimizers, steps: int, schedules=()) -> None:
    """Steps of which each parameter has a loss of its own; the last one has none in every other."""
    for number in range(steps):
        for parameter in parameters:
            parameter.grad = None
        for parameter in parameters[: 2 + number % 2]:
            (parameter**3).sum().backward()
        for each in (*optimizers, *schedules):
            each.step()


@pytest.mark.parametrize(("name", "settings"), SEVERAL)
def test_a_group_may_have_parameters_on_several_devices(name, settings) -> None:
    """Each is updated where it is, as by an optimizer of its own."""
    together, apart = on_two(), on_two()
    mine = getattr(optim, name)(together, lr=0.01, **settings)
    others = [getattr(optim, name)(parameters, lr=0.01, **settings) for parameters in by_place(apart)]
    for lr in (0.01, 0.1):
        for optimizer in (mine, *others):
            optimizer.lr = lr
        train_apart(together, [mine], 3)
        train_apart(apart, others, 3)
    for a, b in zip(together, apart):
        assert a.device == b.device
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())
    again = getattr(optim, name)(on_two(), lr=0.5, **settings)
    again.load_state_dict(mine.state_dict())
    kept = [(p, value) for p in again.parameters() for value in again.state[p].values() if isinstance(value, Tensor)]
    assert again.lr == 0.1 and all(value.device == p.device for p, value in kept)


def test_a_schedule_changes_settings_on_every_device() -> None:
    together, apart = on_two(), on_two()
    mine = optim.Adam(together, lr=0.01)
    others = [optim.Adam(parameters, lr=0.01) for parameters in by_place(apart)]
    for parameters, optimizers in ((together, [mine]), (apart, others)):
        schedules = [optim.lr_scheduler.OneCycleLR(each, 0.1, total_steps=10) for each in optimizers]
        train_apart(parameters, optimizers, 5, schedules)
    for a, b in zip(together, apart):
        np.testing.assert_array_equal(a.detach().numpy(), b.detach().numpy())


@pytest.mark.parametrize("order", [("CPU", "NUMPY"), ("NUMPY", "CPU")])
def test_parameters_that_part_later_go_on_as_together(order) -> None:
    """One layer of a module is moved, and moved back: each device has a count of its own meanwhile."""
    moved, stayed = (nn.ModuleList([nn.Linear(2, 1, device="CPU") for _ in range(2)]) for _ in range(2))
    stayed.load_state_dict(moved.state_dict())
    optimizers = [optim.Adam(each.parameters(), lr=0.1) for each in (moved, stayed)]
    for place in ("CPU", *order):
        moved[0].to(place)
        train_apart([*moved.parameters()], optimizers[:1], 2)
        train_apart([*stayed.parameters()], optimizers[1:], 2)
        assert {p.device.upper() for p in moved[0].parameters()} == {place}
    for a, b in zip(moved.parameters(), stayed.parameters()):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-6)
    assert len(optimizers[0].param_groups[0].parts) == (0 if order[-1] == "CPU" else 2)


# ---- parameters that leave and change places ----
CHANGES: list[Callable[[list], object]] = [
    lambda own: own.pop(), lambda own: own.pop(0), lambda own: own.reverse(), lambda own: own.insert(0, own.pop(1)),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(("name", "settings"), [("Adam", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9})])
def test_each_parameter_keeps_its_state_as_in_pytorch(name: str, settings: dict[str, float], change: Callable) -> None:
    ours = [Tensor([1.0 + i], requires_grad=True) for i in range(3)]
    theirs = [torch.tensor(p.tolist(), requires_grad=True) for p in ours]
    optimizers = [getattr(library, name)(params, **settings) for library, params in ((optim, ours), (torch.optim, theirs))]
    for parameters, optimizer in zip((ours, theirs), optimizers):
        train_apart(parameters, [optimizer], 2)
        change(optimizer.param_groups[0]["params"])
        train_apart(parameters, [optimizer], 2)
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-5, atol=1e-6)
    left = [optimizer.param_groups[0]["params"] for optimizer in optimizers]
    for a, b in zip(*left, strict=True):
        for key, value in optimizers[1].state[b].items():
            same_value(optimizers[0].state[a][key].float(), value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("places", [("CPU",) * 3, ("CPU", "NUMPY", "CPU"), ("NUMPY", "CPU", "CPU")], ids=str)
def test_a_parameter_taken_out_of_its_group_stays_as_it_is(places: tuple[str, ...]) -> None:
    """And one that is added behind it has a state of its own."""
    parameters = [Tensor([1.0 + i], requires_grad=True, device=place) for i, place in enumerate(places)]
    others = [Tensor(p.tolist(), requires_grad=True) for p in parameters]
    optimizer, other = optim.Adam(parameters, lr=0.1), optim.Adam(others[1:], lr=0.1)
    train_apart(parameters, [optimizer], 2)
    train_apart(others, [other], 2)
    first = optimizer.param_groups[0]["params"].pop(0)
    before = first.tolist()
    added = [Tensor([9.0], requires_grad=True) for _ in range(2)]
    for each, one in zip((optimizer, other), added):
        each.add_param_group({"params": [one]})
    train_apart([*parameters, added[0]], [optimizer], 2)
    train_apart([*others, added[1]], [other], 2)
    assert first.tolist() == before and [p.item() for p in parameters[1:]] == [p.item() for p in others[1:]]
    assert added[0].item() == added[1].item()


def test_an_optimizer_prints_its_groups_as_pytorch_does() -> None:
    """But for the settings that choose between PyTorch's implementations, which have no effect here."""

    def printed(of: Any) -> list[str]:
        weight, bias = of.ones(2, requires_grad=True), of.ones(3, requires_grad=True)
        optimizer = of.optim.AdamW([{"params": [weight]}, {"params": [bias], "lr": 0.5}], weight_decay=0.25)
        return [line for line in repr(optimizer).split("\n") if line.split(":")[0].strip() not in IMPLEMENTATIONS]

    assert printed(pg) == printed(torch)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "Lion"])
def test_numbers_of_a_setting_may_come_as_a_list_or_as_ints(name: str) -> None:
    def stepped(betas: object) -> list[float]:
        w = Tensor([1.0, 2.0], requires_grad=True)
        optimizer = getattr(optim, name)([{"params": [w], "betas": betas}], lr=0.1)
        for _ in range(2):
            w.grad = Tensor([0.5, -1.0])
            optimizer.step()
        return w.detach().tolist()

    assert stepped([0.5, 0.75]) == stepped((0.5, 0.75)) and stepped((0, 0.75)) == stepped([0.0, 0.75])


def test_every_setting_of_a_constructor_is_one_of_groups() -> None:
    made = optim.RMSprop([Tensor([1.0], requires_grad=True)], foreach=True, capturable=True, centered=True)
    assert set(made.param_groups[0]) == {
        "params", "lr", "alpha", "eps", "weight_decay", "momentum", "centered", "maximize",
    }  # fmt: skip


@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "torch"])
def test_what_a_user_keeps_in_the_state_is_saved(library):
    made = [library.optim.SGD([library.nn.Parameter(library.ones(2))], lr=0.1) for _ in range(2)]
    made[0].state["seen"] = [1, {"epoch": 2}]
    made[1].load_state_dict(made[0].state_dict())
    assert made[1].state["seen"] == [1, {"epoch": 2}]


def rates_of(library: Any, optimizer: str, change: str) -> list[float]:
    """Two parameters after five steps whose rate is a tensor, which somebody else writes, and that tensor each time."""
    schedules = library.optim.lr_scheduler
    p, q = (library.nn.Parameter(library.tensor(numbers)) for numbers in ([1.0, -2.0], [1.0, 2.0]))
    rate = library.tensor(0.1)
    taken = getattr(library.optim, optimizer)([{"params": [p]}, {"params": [q], "lr": 0.2}], lr=rate)
    schedule = {
        "by hand": lambda: None,
        "ExponentialLR": lambda: schedules.ExponentialLR(taken, 0.5),
        "ReduceLROnPlateau": lambda: schedules.ReduceLROnPlateau(taken, factor=0.5, patience=0),
        "CyclicLR": lambda: schedules.CyclicLR(taken, 0.05, 0.4, 2, cycle_momentum=False),
        "SequentialLR": lambda: schedules.SequentialLR(
            taken, [schedules.ConstantLR(taken, 0.1, 1), schedules.StepLR(taken, 1, 0.5)], [2]
        ),
    }[change]()
    found = []
    for _ in range(5):
        taken.zero_grad()
        (p * q * library.tensor([1.0, 3.0])).pow(2).sum().backward()
        taken.step()
        if schedule is None:
            rate.mul_(0.5)
        else:
            schedule.step(*[1.0] if change == "ReduceLROnPlateau" else [])
        found += [float(rate), *p.tolist(), *q.tolist()]
    assert taken.param_groups[0]["lr"] is rate
    return found


CHANGES = ("by hand", "ExponentialLR", "ReduceLROnPlateau", "CyclicLR", "SequentialLR")


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "optimizer", ["Adam", *(pytest.param(name, marks=in_full) for name in ("SGD", "NAdam", "Adafactor", "Rprop", "ASGD"))]
)
def test_a_rate_that_is_a_tensor_is_read_at_each_step_and_written_in_place(optimizer: str, change: str) -> None:
    np.testing.assert_allclose(rates_of(pg, optimizer, change), rates_of(torch, optimizer, change), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["Rprop", "ASGD"])
def test_state_that_begins_with_the_rate_begins_with_that_of_the_first_step(optimizer: str) -> None:
    found = []
    for library in (pg, torch):
        p = library.nn.Parameter(library.tensor([1.0, -2.0]))
        taken = getattr(library.optim, optimizer)([p], lr=0.1)
        taken.param_groups[0]["lr"] = 0.01
        for _ in range(3):
            taken.zero_grad()
            p.pow(2).sum().backward()
            taken.step()
        found.append(p.detach().numpy())
    np.testing.assert_allclose(*found, rtol=1e-6)


def test_an_optimizer_of_ones_own_needs_no_learning_rate() -> None:
    found = []
    for lib in (pg, torch):

        class Own(lib.optim.Optimizer):  # type: ignore[misc, name-defined]
            def __init__(self, params: Any, **defaults: Any):
                self.lr, self.added = 7.0, 0
                super().__init__(params, defaults)

            def add_param_group(self, param_group: Any) -> None:
                super().add_param_group(param_group)
                self.added += 1
                for p in self.param_groups[-1]["params"]:
                    self.state[p]["first"] = p.detach().clone()

            def step(self, lib: Any = lib) -> None:
                with lib.no_grad():
                    for group in self.param_groups:
                        for p in group["params"]:
                            p.add_(p.grad, alpha=-group["beta"])

        w = lib.tensor([1.0, 2.0], requires_grad=True)
        for defaults in ({"beta": 0.5}, {"beta": 0.25, "lr": None}):
            optimizer: Any = Own([w], **defaults)
            optimizer.zero_grad()
            (w * w).sum().backward()
            optimizer.step()
            assert optimizer.state_dict()["param_groups"][0].get("lr") is None
            assert optimizer.added == 1 and optimizer.state[w]["first"].shape == (2,)
        found.append(w.tolist())
    assert found[0] == found[1] and Own([w]).lr == 7.0


def test_a_group_may_come_with_names_of_its_own() -> None:
    for lib in (pg, torch):
        first, second = lib.ones(1, requires_grad=True), lib.ones(2, requires_grad=True)
        groups = [{"params": [first], "param_names": ["a"]}, {"params": [second], "param_names": ["b"]}]
        optimizer = lib.optim.SGD(groups, lr=0.1)
        assert [group["param_names"] for group in optimizer.param_groups] == [["a"], ["b"]]
        with pytest.raises(ValueError, match="names"):
            lib.optim.SGD([{"params": [first], "param_names": ["a"]}, {"params": [second]}], lr=0.1)
