"""Optimizers: ten steps equal PyTorch's, and what a step does to whoever reads the parameters."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, dtypes, nn, optim
from picograd.ir.op import realized
from tests.helpers import same_value

SETTINGS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1}),
    ("AdamW", {"lr": 0.01}),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "maximize": True, "foreach": False}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "capturable": False}),
    ("AdamW", {"lr": 0.01, "amsgrad": True}),
    ("Adamax", {"lr": 0.01}),
    ("Adamax", {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "momentum_decay": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "betas": (0.9, 0.9), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.1}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.9, "centered": True, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.01, "centered": True, "alpha": 0.9, "maximize": True}),
    ("Rprop", {"lr": 0.01}),
    ("Rprop", {"lr": 0.01, "etas": (0.4, 1.5), "step_sizes": (1e-3, 0.05), "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "alpha": 0.5, "t0": 3.0, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.1}),
    ("Adafactor", {"lr": 0.1, "d": 1.5, "weight_decay": 0.1, "eps": (1e-4, 1e-2), "maximize": True}),
]


def pair(rng):
    w, b = rng.standard_normal((3, 2)).astype(np.float32), rng.standard_normal(2).astype(np.float32)
    ours = [Tensor(a, requires_grad=True) for a in (w, b)]
    theirs = [torch.tensor(a, requires_grad=True) for a in (w, b)]
    return ours, theirs


def loss_of(parameters, x):
    w, b = parameters
    return ((x @ w + b).tanh() ** 2).mean()


@pytest.mark.req("C8")
@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_ten_steps_equal_pytorch(name, settings, device, rng):
    ours, theirs = pair(rng)
    mine, other = getattr(optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    for step in range(10):
        x = rng.standard_normal((4, 3)).astype(np.float32)
        for optimizer, parameters, data in ((mine, ours, Tensor(x)), (other, theirs, torch.tensor(x))):
            optimizer.zero_grad()
            loss_of(parameters, data).backward()
            optimizer.step()
        if step == 4:
            mine.param_groups[0]["lr"] = other.param_groups[0]["lr"] = 0.003
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)


@pytest.mark.req("C8")
@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_goes_on_from_the_state_of_pytorchs(name, settings, rng):
    """And its own state_dict has PyTorch's names."""
    ours, theirs = pair(rng)
    mine, other = getattr(optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, **settings)
    for step in range(6):
        x = rng.standard_normal((4, 3)).astype(np.float32)
        if step == 3:
            mine.load_state_dict(other.state_dict())
            with pg.no_grad():
                for a, b in zip(ours, theirs):
                    a.assign(b.detach().numpy())
        for optimizer, parameters, data in ((mine, ours, Tensor(x)), (other, theirs, torch.tensor(x))):
            if step >= 3 or optimizer is other:
                optimizer.zero_grad()
                loss_of(parameters, data).backward()
                optimizer.step()
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)
    names = {name for name, value in other.state_dict()["state"][0].items() if value is not None} if other.state else set()
    assert set(mine.state_dict()["state"].get(0, {})) == names


def as_torch(state):
    if isinstance(state, Tensor):
        return torch.tensor(state.numpy())
    if isinstance(state, dict):
        return {name: as_torch(value) for name, value in state.items()}
    return [as_torch(value) for value in state] if isinstance(state, list) else state


@pytest.mark.req("C8")
@pytest.mark.parametrize(("name", "settings"), SETTINGS)
def test_pytorchs_goes_on_from_our_state(name, settings, rng):
    ours, theirs = pair(rng)
    mine, other = getattr(optim, name)(ours, **settings), getattr(torch.optim, name)(theirs, lr=0.7)
    for step in range(6):
        x = rng.standard_normal((4, 3)).astype(np.float32)
        if step == 3:
            other.load_state_dict(as_torch(mine.state_dict()))
            with torch.no_grad():
                for a, b in zip(ours, theirs):
                    b.copy_(torch.tensor(a.detach().numpy()))
        for optimizer, parameters, data in ((mine, ours, Tensor(x)), (other, theirs, torch.tensor(x))):
            if step >= 3 or optimizer is mine:
                optimizer.zero_grad()
                loss_of(parameters, data).backward()
                optimizer.step()
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)


@pytest.mark.req("C8")
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_parameter_groups(name, device, rng):
    ours, theirs = pair(rng)
    groups = [
        ([{"params": p[:1]}, {"params": p[1:], "lr": 0.5, "weight_decay": 0.2}]) for p in (ours, theirs)
    ]
    mine, other = getattr(optim, name)(groups[0], lr=0.1), getattr(torch.optim, name)(groups[1], lr=0.1)
    x = rng.standard_normal((4, 3)).astype(np.float32)
    for _ in range(3):
        for optimizer, parameters, data in ((mine, ours, Tensor(x)), (other, theirs, torch.tensor(x))):
            optimizer.zero_grad()
            loss_of(parameters, data).backward()
            optimizer.step()
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)


@pytest.mark.req("C8")
def test_adam_counts_the_steps_of_each_parameter(device, rng):
    ours, theirs = pair(rng)
    mine, other = optim.Adam(ours, lr=0.1), torch.optim.Adam(theirs, lr=0.1)
    for step in range(6):
        for optimizer, (w, b), one in ((mine, ours, Tensor), (other, theirs, torch.tensor)):
            optimizer.zero_grad()
            loss = (w * w).sum() if step in (1, 2) else (w * w).sum() + (b * b * b).sum()
            (loss * one(1.0)).backward()
            optimizer.step()
    for a, b in zip(ours, theirs):
        same_value(a.detach(), b, rtol=1e-6, atol=1e-6)


def test_the_learning_rate_is_a_buffer(device, rng):
    ours, _ = pair(rng)
    optimizer = optim.SGD(ours, lr=0.1)
    cell = optimizer.param_groups[0].lr_tensor.cell
    optimizer.lr = 0.5
    assert optimizer.lr == optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[0].lr_tensor.item() == 0.5
    assert optimizer.param_groups[0].lr_tensor.cell is cell


@pytest.mark.req("G1")
def test_a_step_is_one_realize_with_loss_and_gradients(device, rng, monkeypatch):
    from picograd.tensor import compute

    ours, _ = pair(rng)
    optimizer = optim.Adam(ours, lr=0.1)
    calls = []
    original = compute.realize
    monkeypatch.setattr(compute, "realize", lambda ops: calls.append(len(ops)) or original(ops))
    loss = loss_of(ours, Tensor.ones(4, 3))
    loss.backward()
    optimizer.step()
    # two parameters, two means each, the step count, two gradients, the loss
    assert calls == [10]
    assert {p.grad.op.code.name for p in ours} == {"BUFFER"}
    assert loss.op in realized


def test_a_graph_older_than_the_step_says_so_in_backward(device, rng):
    ours, _ = pair(rng)
    optimizer = optim.SGD(ours, lr=0.1)
    kept = loss_of(ours, Tensor.ones(4, 3))
    value = kept.detach().clone().item()
    loss_of(ours, Tensor.ones(2, 3)).backward()
    optimizer.step()
    assert kept.item() == value
    with pytest.raises(pg.GradientError, match="was computed before optimizer.step"):
        kept.backward()


def test_results_of_other_parameters_keep_their_graphs(device):
    a, b = Tensor([2.0], requires_grad=True), Tensor([3.0], requires_grad=True)
    other = (a * a).sum()
    (b * b).sum().backward()
    optim.SGD([b], lr=0.1).step()
    other.backward()
    assert a.grad.tolist() == [4.0]


@pytest.mark.req("A8")
def test_zero_grad_is_idempotent(device):
    a = Tensor([2.0], requires_grad=True)
    optimizer = optim.SGD([a], lr=0.1)
    (a * a).sum().backward()
    optimizer.zero_grad()
    optimizer.zero_grad()
    assert a.grad is None
    (a * a).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert a.grad.tolist() == [0.0]
    optimizer.step()
    assert a.tolist() == [2.0]


def test_sixteen_bit_parameters_are_updated_in_float32(device):
    w = Tensor([1.0, 2.0], dtypes.bfloat16, requires_grad=True)
    optimizer = optim.AdamW([w], lr=0.1)
    (w.float() ** 2).sum().backward()
    optimizer.step()
    assert w.dtype is dtypes.bfloat16 and w.requires_grad
    assert w.float().tolist() == pytest.approx([0.9, 1.9], rel=2**-7)


@pytest.mark.req("B9")
@pytest.mark.parametrize(("name", "settings"), [SETTINGS[2], SETTINGS[4], SETTINGS[5]])
def test_saved_state_continues_exactly(name, settings, device, rng, tmp_path):
    ours, _ = pair(rng)
    optimizer = getattr(optim, name)(ours, **settings)
    data = [Tensor(rng.standard_normal((4, 3)).astype(np.float32)) for _ in range(4)]

    def train(parameters, its_optimizer, batches):
        for x in batches:
            its_optimizer.zero_grad()
            loss_of(parameters, x).backward()
            its_optimizer.step()

    train(ours, optimizer, data[:2])
    pg.save(optimizer.state_dict(), tmp_path / "optimizer.safetensors")
    twins = [copy.deepcopy(p) for p in ours]
    other = getattr(optim, name)(twins, **{**settings, "lr": 9.0})
    other.load_state_dict(pg.load(tmp_path / "optimizer.safetensors"))
    train(ours, optimizer, data[2:])
    train(twins, other, data[2:])
    assert [p.tolist() for p in ours] == [p.tolist() for p in twins]


@pytest.mark.req("C8")
def test_a_closure_gives_the_loss(device):
    w = Tensor([2.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (w * w).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert w.item() == pytest.approx(1.6)


def test_a_module_trains(device, rng):
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = optim.AdamW(net.parameters(), lr=0.02)
    x = Tensor(rng.standard_normal((32, 2)).astype(np.float32))
    y = x[:, :1] * x[:, 1:]
    losses = []
    for _ in range(60):
        loss = ((net(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"momentum": -0.9}),
        ("Adam", {"eps": -1e-8}),
        ("AdamW", {"weight_decay": float("nan")}),
    ],
)
def test_a_negative_setting_is_refused(name, settings, device):
    ((setting, value),) = settings.items()
    with pytest.raises(pg.ArgumentError, match=f"{name}: {setting} must not be negative, got {value}"):
        getattr(optim, name)([Tensor([1.0], requires_grad=True)], **settings)


# ---- parameters without a gradient now and then ----
class Beside:
    """Two parameters in an optimizer of ours, and the same in one of PyTorch's."""

    def __init__(self, name: str = "Adam", **settings: float):
        self.ours = [Tensor([1.0, 2.0], requires_grad=True), Tensor([3.0, 4.0], requires_grad=True)]
        self.theirs = [torch.tensor(p.tolist(), requires_grad=True) for p in self.ours]
        self.mine = getattr(optim, name)(self.ours, **settings)
        self.other = getattr(torch.optim, name)(self.theirs, **settings)

    def step(self, count: int) -> Tensor:
        """Steps along the gradient of the first `count` parameters."""
        self.mine.zero_grad()
        loss = sum((p**3).sum() for p in self.ours[:count])
        loss.backward()
        self.mine.step()
        return loss

    def step_theirs(self, count: int) -> None:
        self.other.zero_grad()
        sum((p**3).sum() for p in self.theirs[:count]).backward()
        self.other.step()

    def are_equal(self) -> None:
        for ours, theirs in zip(self.ours, self.theirs):
            same_value(ours.detach(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.req("B9")
def test_counts_that_differ_stay_different_when_loaded(device):
    both = Beside(lr=0.1)
    for number, count in enumerate([1, 1, 1, 2, 2, 2, 1, 2]):
        if number == 4:
            saved = both.mine.state_dict()
            both.mine = optim.Adam(both.ours, lr=0.1)
            both.mine.load_state_dict(saved)
        both.step(count)
        both.step_theirs(count)
    both.are_equal()


@pytest.mark.req("G10")
@pytest.mark.parametrize("steps", [None, 2])
def test_a_captured_step_may_leave_parameters_out(steps, device):
    both = Beside(lr=0.1)

    @pg.jit(steps=steps)
    def first_alone(x: Tensor) -> Tensor:
        return both.step(1) + x * 0.0

    for _ in range(3):
        both.step(2)
        both.step_theirs(2)
    for _ in range(4):
        first_alone(Tensor(0.0 if steps is None else [0.0] * steps))
        for _ in range(steps or 1):
            both.step_theirs(1)
    for _ in range(2):
        both.step(2)
        both.step_theirs(2)
    both.are_equal()


@pytest.mark.req("G10")
def test_a_captured_step_notices_that_counts_were_split(device):
    both = Beside(lr=0.1)
    captured = pg.jit(lambda: both.step(2))
    for _ in range(3):
        captured()
    both.step(1)
    with pytest.raises(pg.JitError, match=r"mine\.state holds something else"):
        captured()


@pytest.mark.req("G10")
@pytest.mark.parametrize("settings", [{"dampening": 0.3}, {"dampening": 0.3, "maximize": True}])
def test_a_first_step_that_is_traced_takes_the_gradient_as_it_is(device, settings):
    both = Beside("SGD", lr=0.1, momentum=0.9, **settings)
    captured = pg.jit(lambda: both.step(2))
    for _ in range(3):
        captured()
    both.step(2)
    for _ in range(4):
        both.step_theirs(2)
    both.are_equal()


@pytest.mark.req("G10")
def test_state_made_in_a_trace_is_refused_and_forgotten(device):
    w, v = (Tensor([1.0], requires_grad=True) for _ in range(2))
    optimizer = optim.Adam([w])

    def grow():
        optimizer.add_param_group({"params": [v]})

    with pytest.raises(pg.JitError, match=r"Adam: step\(\) makes state \(step, exp_avg, exp_avg_sq\) for parameter 1"):
        pg.jit(grow)()


# ---- groups as dicts ----
@pytest.mark.req("C8")
def test_however_a_group_is_set_its_learning_rate_is_read(device):
    group = optim.SGD([Tensor([1.0], requires_grad=True)], lr=0.5).param_groups[0]
    group.update(lr=0.25, weight_decay=0.5)
    assert (group["lr"], group["weight_decay"], group.lr_tensor.item()) == (0.25, 0.5, 0.25)
    group |= {"lr": 0.125}
    assert (group["lr"], group.lr_tensor.item()) == (0.125, 0.125)


@pytest.mark.req("B9")
@pytest.mark.parametrize("again", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_an_optimizer_is_copied_with_its_parameters(again, device):
    both = Beside(lr=0.1)
    both.step(2)
    parameters, optimizer = again((both.ours, both.mine))
    for step in (both.step, both.step_theirs, both.step_theirs):
        step(2)
    optimizer.zero_grad()  # a deep copy has its gradients, too
    sum((p**3).sum() for p in parameters).backward()
    optimizer.step()
    assert [p.tolist() for p in parameters] == [p.tolist() for p in both.ours]
    both.are_equal()


@pytest.mark.parametrize("count", [5, 5.0, [5.0], np.float32(5)], ids=repr)
def test_counts_of_old_files_are_taken(count, device):
    optimizer = optim.Adam([Tensor([1.0], requires_grad=True)])
    state = optimizer.state_dict()
    state["state"][0]["step"] = Tensor(count) if isinstance(count, list) else count
    optimizer.load_state_dict(state)
    assert optimizer.state[0]["step"].tolist() == 5.0
