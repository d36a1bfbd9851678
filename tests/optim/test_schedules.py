"""Schedules: thirty epochs equal PyTorch's, in jit too."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, optim
from picograd.look import watch

SCHEDULES = [
    ("LambdaLR", {"lr_lambda": lambda epoch: 0.95**epoch}),
    ("MultiplicativeLR", {"lr_lambda": lambda epoch: 0.95}),
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("MultiStepLR", {"milestones": [2, 5, 5], "gamma": 0.5}),
    ("ConstantLR", {"factor": 0.25, "total_iters": 4}),
    ("LinearLR", {"start_factor": 0.25, "total_iters": 4}),
    ("LinearLR", {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 7}),
    ("ExponentialLR", {"gamma": 0.9}),
    ("PolynomialLR", {"total_iters": 8, "power": 2.0}),
    ("CosineAnnealingLR", {"T_max": 5, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01}),
    ("CosineAnnealingWarmRestarts", {"T_0": 4}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 30}),
    ("OneCycleLR", {"max_lr": [0.5, 0.2], "epochs": 15, "steps_per_epoch": 2, "three_phase": True}),
    ("OneCycleLR", {"max_lr": 0.5, "total_steps": 40, "anneal_strategy": "linear", "cycle_momentum": False}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": [0.1, 0.3], "step_size_up": 4, "step_size_down": 7}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "triangular2"}),
    ("CyclicLR", {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "mode": "exp_range", "gamma": 0.9}),
]


def both(kind="SGD", **settings):
    """Returns an optimizer of either library, of two groups."""
    made = []
    for library, tensor in ((optim, Tensor), (torch.optim, torch.tensor)):
        first, second = tensor([1.0], requires_grad=True), tensor([2.0], requires_grad=True)
        groups = [{"params": [first]}, {"params": [second], "lr": 0.2}]
        made.append(getattr(library, kind)(groups, lr=0.1, **settings))
    return made


def rates(optimizer):
    """Returns what a schedule may have set."""
    names = ("lr", "momentum", "betas")
    return [float(np.ravel(group[name])[0]) for group in optimizer.param_groups for name in names if name in group]


def compare(mine, other, schedule, reference, epochs=30):
    for _ in range(epochs):
        np.testing.assert_allclose(rates(mine), rates(other), rtol=1e-9, atol=1e-15)
        last = [float(rate) for rate in reference.get_last_lr()]
        np.testing.assert_allclose(schedule.get_last_lr(), last, rtol=1e-9, atol=1e-15)
        stored = [group.lr_tensor.item() for group in mine.param_groups]
        np.testing.assert_allclose(stored, [group["lr"] for group in other.param_groups], rtol=1e-6, atol=1e-15)
        mine.step(), other.step()
        schedule.step(), reference.step()


@pytest.mark.req("C8")
@pytest.mark.parametrize(("name", "settings"), SCHEDULES)
@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_thirty_epochs_equal_pytorchs(name, settings, kind):
    mine, other = both(kind, **({"momentum": 0.9} if kind == "SGD" else {}))
    schedule, reference = (
        getattr(library.lr_scheduler, name)(optimizer, **settings)
        for library, optimizer in ((optim, mine), (torch.optim, other))
    )
    compare(mine, other, schedule, reference)


@pytest.mark.parametrize("done", [1, 4])
@pytest.mark.parametrize(("name", "settings"), [row for row in SCHEDULES if "T_mult" not in row[1]])
def test_a_schedule_that_goes_on_from_an_epoch_continues_its_rates(name, settings, done):
    mine, other = both(momentum=0.9)
    new = [getattr(library.lr_scheduler, name) for library in (optim, torch.optim)]
    for kind, optimizer in zip(new, (mine, other)):
        schedule = kind(optimizer, **settings)
        for _ in range(done):
            optimizer.step(), schedule.step()
    schedule, reference = (kind(one, last_epoch=done - 1, **settings) for kind, one in zip(new, (mine, other)))
    compare(mine, other, schedule, reference, epochs=6)


@pytest.mark.filterwarnings("ignore:The epoch parameter")
@pytest.mark.parametrize(("name", "settings"), SCHEDULES)
def test_parts_of_epochs_are_epochs_where_rates_follow_from_the_start(name, settings):
    mine, other = both(momentum=0.9)
    schedule = getattr(optim.lr_scheduler, name)(mine, **settings)
    reference = getattr(torch.optim.lr_scheduler, name)(other, **settings)
    other.step()
    if schedule.follows:
        with pytest.raises(pg.ArgumentError, match="a rate follows from the one before; epoch 0.5 is not whole"):
            schedule.step(0.5)
        return
    for epoch in (0.5, 3.75, 2.25):
        schedule.step(epoch)
        reference.step(epoch)
        np.testing.assert_allclose(rates(mine), rates(other), rtol=1e-9)


@pytest.mark.req("C8")
def test_one_after_the_other():
    mine, other = both()
    made = []
    for library, optimizer in ((optim.lr_scheduler, mine), (torch.optim.lr_scheduler, other)):
        parts = [
            library.LinearLR(optimizer, 0.1, total_iters=4), library.CosineAnnealingLR(optimizer, 10),
            library.ExponentialLR(optimizer, 0.9),
        ]  # fmt: skip
        made.append(library.SequentialLR(optimizer, parts, [5, 14]))
    compare(mine, other, *made)


@pytest.mark.req("C8")
def test_several_at_once():
    mine, other = both()
    made = []
    for library, optimizer in ((optim.lr_scheduler, mine), (torch.optim.lr_scheduler, other)):
        parts = [library.ConstantLR(optimizer, 0.1, 4), library.ExponentialLR(optimizer, 0.9)]
        made.append(library.ChainedScheduler(parts))
    compare(mine, other, *made)


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "settings",
    [{}, {"mode": "max", "threshold_mode": "abs", "cooldown": 2}, {"threshold_mode": "abs"}, {"min_lr": [0.05, 0.1]}],
)
def test_plateaus(settings, rng):
    mine, other = both()
    schedule, reference = (
        library.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.5, threshold=0.05, **settings)
        for library, optimizer in ((optim, mine), (torch.optim, other))
    )
    for value in rng.standard_normal(40).cumsum() * 0.1 + 2.0:
        schedule.step(value), reference.step(value)
        np.testing.assert_allclose(rates(mine), rates(other), rtol=1e-12)
        assert schedule.num_bad_epochs == reference.num_bad_epochs


def test_goes_on_from_a_saved_state():
    one, other = both()[0], both()[0]
    schedule, twin = (optim.lr_scheduler.CosineAnnealingLR(optimizer, 10) for optimizer in (one, other))
    for _ in range(4):
        schedule.step()
    other.load_state_dict(one.state_dict())
    twin.load_state_dict(schedule.state_dict())
    schedule.step(), twin.step()
    assert rates(one) == rates(other)


WITH_MOMENTUM = {
    "SGD": {"momentum": 0.9, "nesterov": True}, "RMSprop": {"momentum": 0.9}, "Adam": {"amsgrad": True}, "AdamW": {},
    "NAdam": {}, "RAdam": {}, "Adamax": {},
}  # fmt: skip


@pytest.mark.req("C8")
@pytest.mark.parametrize("jitted", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", WITH_MOMENTUM)
def test_momentum_that_changes_is_no_constant_of_a_plan(name, jitted, rng):
    start, data = rng.standard_normal(5), rng.standard_normal((12, 5))
    mine = Tensor(start, requires_grad=True)
    other = torch.tensor(start, requires_grad=True)
    ours = getattr(optim, name)([mine], lr=0.05, **WITH_MOMENTUM[name])
    theirs = getattr(torch.optim, name)([other], lr=0.05, **WITH_MOMENTUM[name])
    schedules = optim.lr_scheduler.OneCycleLR(ours, 0.1, 12), torch.optim.lr_scheduler.OneCycleLR(theirs, 0.1, 12)

    def step(x):
        ours.zero_grad()
        loss = ((mine - x) ** 2).sum()
        loss.backward()
        ours.step()
        return loss

    run = pg.jit(step) if jitted else step
    for row in data:
        run(Tensor(row))
        theirs.zero_grad()
        ((other - torch.tensor(row)) ** 2).sum().backward()
        theirs.step()
        for schedule in schedules:
            schedule.step()
    np.testing.assert_allclose(mine.detach().numpy(), other.detach().numpy(), rtol=1e-6)


def test_betas_that_change_are_saved_and_loaded():
    w = Tensor([1.0], requires_grad=True)
    first, second = (optim.Adam([w]) for _ in range(2))
    schedules = [optim.lr_scheduler.OneCycleLR(one, 0.1, 10) for one in (first, second)]
    for _ in range(3):
        schedules[0].step()
    second.load_state_dict(first.state_dict())
    group = copy.deepcopy(second).param_groups[0]
    assert group.changing["betas"].tolist() == list(first.param_groups[0]["betas"]) == list(group["betas"])


@pytest.mark.req("C8")
def test_a_schedule_makes_no_new_plan():
    w = Tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.Adam([w], lr=0.1)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    reference = torch.tensor([1.0, 2.0], requires_grad=True)
    theirs = torch.optim.Adam([reference], lr=0.1)
    twin = torch.optim.lr_scheduler.ExponentialLR(theirs, 0.5)

    @pg.jit
    def step():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        optimizer.step()
        return loss

    for number in range(10):
        with watch() as counts:
            step()
        assert number < 2 or not counts.compiled
        schedule.step()
        theirs.zero_grad()
        (reference * reference).sum().backward()
        theirs.step()
        twin.step()
    np.testing.assert_allclose(w.detach().numpy(), reference.detach().numpy(), rtol=1e-6)


ERRORS = [
    (lambda o: optim.lr_scheduler.ConstantLR(o, 2.0), "ConstantLR: factor must be in [0, 1], got 2.0."),
    (lambda o: optim.lr_scheduler.OneCycleLR(o, 0.1), "OneCycleLR: give total_steps, or epochs and steps_per_epoch."),
    (lambda o: optim.lr_scheduler.LambdaLR(o, [len, len, len]), "LambdaLR: lr_lambda has 3 values for 2 groups."),
    (lambda o: optim.lr_scheduler.StepLR(o, 2, last_epoch=3), "StepLR: last_epoch is 3, but a group has no initial_lr."),
    (lambda o: optim.lr_scheduler.CyclicLR(o, 0.1, 0.2, mode="round"),
     'CyclicLR: mode must be "triangular", "triangular2" or "exp_range", got \'round\'.'),
    (lambda o: optim.lr_scheduler.CyclicLR(optim.Adagrad([Tensor([1.0], requires_grad=True)]), 0.1, 0.2),
     "CyclicLR: the optimizer has no momentum."),
    (lambda o: optim.lr_scheduler.ReduceLROnPlateau(o, factor=1.0), "ReduceLROnPlateau: factor must be below 1, got 1.0."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), ERRORS)
def test_errors(call, fact):
    with pytest.raises(pg.ArgumentError) as caught:
        call(both()[0])
    assert caught.value.fact == fact and caught.value.line.file == __file__


class Warmup:
    """A factor as an object with settings."""

    def __init__(self, steps: int):
        self.steps = steps

    def __call__(self, epoch: int) -> float:
        return min(1.0, (epoch + 1) / self.steps)


@pytest.mark.parametrize("name", ["LambdaLR", "MultiplicativeLR"])
def test_states_of_schedules_of_functions_go_between_the_libraries(name: str) -> None:
    def made(library: Any, steps: int) -> tuple[Any, Any]:
        leaves = [library.ones(1, requires_grad=True), library.ones(1, requires_grad=True)]
        optimizer = library.optim.SGD([{"params": [leaf]} for leaf in leaves], lr=0.1)
        return optimizer, getattr(library.optim.lr_scheduler, name)(optimizer, [lambda epoch: 0.9, Warmup(steps)])

    for of, to in ((torch, pg), (pg, torch)):
        (first, schedule), (second, other) = made(of, 4), made(to, 9)
        first.step()
        schedule.step()
        assert schedule.state_dict()["lr_lambdas"] == [None, {"steps": 4}]
        second.load_state_dict(first.state_dict())
        other.load_state_dict(schedule.state_dict())
        for _ in range(4):
            for optimizer, each in ((first, schedule), (second, other)):
                optimizer.step()
                each.step()
            assert [float(g["lr"]) for g in second.param_groups] == pytest.approx(
                [float(g["lr"]) for g in first.param_groups]
            )


def test_what_is_no_state_is_refused_by_everything_that_loads_one() -> None:
    leaf = pg.ones(1, requires_grad=True)
    optimizer = pg.optim.Adam([leaf])
    exponential = pg.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    schedules = [
        exponential,
        pg.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1.0),
        pg.optim.lr_scheduler.ReduceLROnPlateau(optimizer),
        pg.optim.lr_scheduler.SequentialLR(optimizer, [exponential], []),
    ]
    for owner in (pg.nn.Linear(1, 1), optimizer, *schedules, pg.GradScaler()):
        name = type(owner).__name__
        for value, said, hint in (
            ("model.pt", "str 'model.pt'", "pg.load(path) reads one."),
            (None, "None", None),
            (pg.nn.Linear(1, 1), "Linear", "its state_dict()"),
        ):
            with pytest.raises(pg.errors.ArgumentTypeError) as caught:
                owner.load_state_dict(value)  # type: ignore[arg-type]
            assert caught.value.fact == f"load_state_dict: {name} needs a dict as state_dict() returns it, got {said}."
            assert caught.value.hint == hint
    with pytest.raises(pg.ArgumentError) as lacking:
        optimizer.load_state_dict({"model": {}, "optimizer": {}})
    fact = "load_state_dict: the state of Adam must have 'param_groups'; this dict has 'model', 'optimizer'."
    assert lacking.value.fact == fact


def test_names_that_a_wrapper_has_lengthened_get_a_hint() -> None:
    for prefix in ("module.", "_orig_mod."):
        with pytest.raises(pg.ArgumentError) as caught:
            pg.nn.Linear(1, 1).load_state_dict({f"{prefix}weight": pg.ones(1, 1), f"{prefix}bias": pg.ones(1)})
        assert caught.value.hint == f"{{name.removeprefix({prefix!r}): value for name, value in state.items()}}"
