"""On which device operands meet: PyTorch's rules, asked of its meta device; values against the same on one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn, optim
from tests.on_devices import device_params

on_each = pytest.mark.parametrize("there", ["NUMPY", *device_params("CUDASIM", "OPENCL", "C", "CUDA", "PTX")])
Call = Callable[..., Any]

# x is a vector elsewhere, n a number elsewhere, m a mask, i indices, b bits; v a vector on the CPU, t and u numbers there.
ELEMENTS: dict[str, Call] = {
    "x * t": lambda p, x, t, **_: x * t,
    "t - x": lambda p, x, t, **_: t - x,
    "t / n": lambda p, n, t, **_: t / n,
    "x * v": lambda p, x, v, **_: x * v,
    "n * v": lambda p, n, v, **_: n * v,
    "x < t": lambda p, x, t, **_: x < t,
    "t ** x": lambda p, x, t, **_: t**x,
    "add, alpha": lambda p, x, t, u, **_: p.add(x, t, alpha=3),
    "i + t": lambda p, i, t, **_: i + t,
    "i // k": lambda p, i, k, **_: i // k,
    "i & k": lambda p, i, k, **_: i & k,
    "i << k": lambda p, i, k, **_: i << k,
    "gcd": lambda p, i, k, **_: p.gcd(i, k),
    "maximum": lambda p, x, t, **_: p.maximum(x, t),
    "fmod": lambda p, x, t, **_: p.fmod(x, t),
    "remainder": lambda p, x, t, **_: p.remainder(t, x),
    "atan2": lambda p, x, t, **_: p.atan2(x, t),
    "hypot": lambda p, x, t, **_: p.hypot(t, x),
    "xlogy": lambda p, x, t, **_: p.xlogy(x, t),
    "logaddexp": lambda p, x, t, **_: p.logaddexp(x, t),
    "nextafter": lambda p, x, t, **_: p.nextafter(x, t),
    "heaviside": lambda p, x, t, **_: p.heaviside(x, t),
    "isclose": lambda p, x, t, **_: p.isclose(x, t),
    "logical_and": lambda p, x, t, **_: p.logical_and(x, t),
    "zeta": lambda p, x, t, **_: p.special.zeta(x + 1, t),
    "xlog1py": lambda p, x, t, **_: p.special.xlog1py(t, x),
    "lerp": lambda p, x, t, u, **_: p.lerp(x, t, u),
    "addcmul": lambda p, x, t, **_: p.addcmul(x, x, t),
    "addcdiv": lambda p, x, t, **_: p.addcdiv(t, x, x),
    "clamp": lambda p, x, t, u, **_: p.clamp(x, u, t),
    "clamp by v": lambda p, x, v, **_: p.clamp(x, v),
    "where t": lambda p, m, x, t, **_: p.where(m, t, x),
    "where t, u": lambda p, m, t, u, **_: p.where(m, t, u),
    "where of a number's condition": lambda p, x, t, u, **_: p.where(u > 0, x, t),
    "where v": lambda p, m, x, v, **_: p.where(m, x, v),
    "cat": lambda p, x, v, **_: p.cat([x, v]),
    "stack": lambda p, n, t, **_: p.stack([n, t]),
    "matmul": lambda p, x, v, **_: x @ v,
}
# What the meta device is asked in vain: it lets all of it pass, or nothing. By PyTorch's rules for CUDA.
ALLOWED: dict[str, Call] = {
    "masked_fill": lambda p, x, m, t, **_: x.masked_fill(m, t),
    "copysign": lambda p, x, t, **_: p.copysign(x, -t),
    "x[k]": lambda p, x, k, **_: x[k],
    "x[of the CPU]": lambda p, x, j, **_: x[j],
    "x[None, of the CPU]": lambda p, x, j, **_: x.reshape(1, 3)[:, j],
    "x[mask of the CPU]": lambda p, x, v, **_: x[v > 2],
    "index_put": lambda p, x, j, t, **_: x.index_put((j,), t),
    "index_put, accumulated": lambda p, x, j, t, **_: x.index_put((j,), t, accumulate=True),
    "index_fill": lambda p, x, i, t, **_: x.index_fill(0, i, t),
}
REFUSED: dict[str, Call] = {
    "v[of elsewhere]": lambda p, v, i, **_: v[i],
    "masked_fill of v": lambda p, v, n, **_: v.masked_fill(v > 1, n),
    "mask of the CPU": lambda p, x, t, v, **_: x.masked_fill(v > 1, t),
    "gather": lambda p, x, j, **_: x.gather(0, j),
    "index_select": lambda p, x, j, **_: x.index_select(0, j),
    "take": lambda p, x, j, **_: x.take(j),
    "scatter": lambda p, x, j, **_: x.scatter(0, j, 1.0),
    "index_add": lambda p, x, j, v, **_: x.index_add(0, j, v),
    "index_put of v": lambda p, x, i, v, **_: x.index_put((i,), v),
    "in place of a number": lambda p, n, t, **_: t.mul_(n),
    "in place of v": lambda p, n, v, **_: v.mul_(n),
}


def operands(make: Callable[[Any, bool], Any]) -> dict[str, Any]:
    """Returns what the calls take; `make` gets host data, and whether it is to be elsewhere."""
    away = {"x": [1.0, 2.0, 0.5], "n": 4.0, "m": [True, False, True], "i": [0, 2, 1]}
    here = {"v": [1.0, 2.0, 3.0], "t": 2.0, "u": 0.25, "k": 1, "j": [2, 2, 0]}
    return {name: make(data, name in away) for name, data in {**away, **here}.items()}


def ours(there: str) -> dict[str, Any]:
    return operands(lambda data, is_away: Tensor(data, device=there if is_away else "CPU"))


def theirs(there: str) -> dict[str, Any]:
    return operands(lambda data, is_away: torch.tensor(data, device=there if is_away else "cpu"))


def is_allowed_by_torch(call: Call) -> bool:
    try:
        call(torch, **theirs("meta"))
    except RuntimeError:
        return False
    return True


def test_both_outcomes_are_asked_for() -> None:
    outcomes = [is_allowed_by_torch(call) for call in ELEMENTS.values()]
    assert outcomes.count(True) > 25 and outcomes.count(False) > 5


@pytest.mark.variants(every=19)
@on_each
@pytest.mark.parametrize("name", [*ELEMENTS, *ALLOWED, *REFUSED])
def test_operands_meet_as_in_pytorch(name: str, there: str) -> None:
    call = {**ELEMENTS, **ALLOWED, **REFUSED}[name]
    if name in REFUSED or (name in ELEMENTS and not is_allowed_by_torch(call)):
        with pytest.raises(pg.DeviceError, match="on two devices"):
            call(pg, **ours(there))
        return
    out, expected = call(pg, **ours(there)), call(torch, **theirs("cpu"))
    assert out.device == there and str(out.dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(out.numpy(), expected.numpy(), rtol=1e-5)  # a few ulp of exp and log


@pytest.mark.variants(every=3, first=1)
@on_each
def test_in_place_and_assigned(there: str) -> None:
    made = ours(there)
    x, v, t = made["x"], made["v"], made["t"]
    x.mul_(t).add_(t, alpha=2)
    x.masked_fill_(made["m"], t)
    assert x.device == there and x.tolist() == [2, 8, 2]
    x[0] = t * 3
    assert x.tolist() == [6, 8, 2]
    x[1:] = v[:2]  # a view takes a value from anywhere
    v[:2] = x[1:] * 5
    assert (x.device, x.tolist(), v.device, v.tolist()) == (there, [6, 1, 2], "CPU", [5, 10, 3])
    x[made["j"]] = t
    v[made["j"]] = made["n"]  # a number, wherever it is
    assert (x.tolist(), v.device, v.tolist()) == ([2, 1, 2], "CPU", [4, 10, 4])
    x[v > 5] = t * 4
    assert x.tolist() == [2, 8, 2]
    x.copy_(v), v.copy_(made["x"] + 1)
    assert (x.device, x.tolist(), v.device, v.tolist()) == (there, [4, 10, 4], "CPU", [5, 11, 5])
    with pytest.raises(pg.DeviceError, match=r"x\[...\] = value: operands are on two devices"):
        x[made["j"]] = v  # rows that indices choose take values with axes from their own device
    assert x.tolist() == [4, 10, 4]


@pytest.mark.variants(every=3)
@on_each
def test_gradients_flow_back_to_the_number(there: str) -> None:
    t = Tensor(2.0, requires_grad=True, device="CPU")
    x = Tensor([1.0, 2.0, 3.0], device=there, requires_grad=True)
    (first,) = pg.autograd.grad((x * t**2).sum(), t, create_graph=True)
    assert first.device == "CPU" and first.item() == 24
    assert pg.autograd.grad(first, t)[0].item() == 12
    y = Tensor([0.0, 0.0], device=there) * 1
    y[0] = t
    (y.sum() * 3 + pg.where(x > 2, t, x).sum()).backward()
    assert t.grad is not None and x.grad is not None
    assert (t.grad.device, t.grad.item(), x.grad.device, x.grad.tolist()) == ("CPU", 4, there, [1, 1, 0])


@pytest.mark.variants(every=3, first=1)
@on_each
def test_parameters_and_state_dicts_move(there: str) -> None:
    away, here = nn.Linear(2, 1).to(there), nn.Linear(2, 1)
    away.load_state_dict(here.state_dict())
    assert away.weight.device == there and away.weight.tolist() == here.weight.tolist()
    away.weight.data = here.weight.data * 2
    assert away.weight.device == here.weight.device and away.weight.requires_grad


# ---- in jit ----
@pytest.mark.variants(every=3, first=2)
@on_each
def test_arguments_state_and_constants_are_brought_to_the_plan(there: str) -> None:
    scale = Tensor(1.0, device="CPU")
    scaled = pg.jit(lambda x, t: (x * t + scale * Tensor(10.0, device="CPU"), (x * t).sum().to("CPU")))
    x = Tensor([1.0, 2.0], device=there)
    for i in range(4):
        out, total = scaled(x, Tensor(float(i), device="CPU"))
        assert (out.device, total.device) == (there, "CPU")
        assert out.tolist() == [i + 10 * (i + 1), 2 * i + 10 * (i + 1)] and total.item() == 3 * i
        scale.add_(1)


@pytest.mark.variants(every=3)
@on_each
def test_state_on_the_cpu_is_taken_back(there: str) -> None:
    count = Tensor(0.0, device="CPU")

    @pg.jit
    def step(x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before = (x * count).sum()
        count.add_(1)
        t.mul_(2)
        return before, count, t

    x, t = Tensor([1.0, 2.0, 3.0], device=there), Tensor(1.0, device="CPU")
    for i in range(5):
        before, after, twice = step(x, t)
        assert (before.device, after.device, twice.device, count.device, t.device) == (there, *["CPU"] * 4)
        assert (before.item(), after.item(), count.item()) == (6 * i, i + 1, i + 1)
        assert t.item() == twice.item() == 2 ** (i + 1)


def train(there: str, is_jitted: bool) -> list[float]:
    """Returns losses and what is left of a scale on the CPU and weights elsewhere, by an optimizer of both."""
    scale = Tensor(0.5, requires_grad=True, device="CPU")
    w = Tensor([1.0, 2.0, 3.0], device=there, requires_grad=True)
    optimizer = optim.Adam([{"params": [scale]}, {"params": [w]}], lr=0.01)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = ((x * scale * w - 1) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    run = pg.jit(step) if is_jitted else step
    losses = [run(Tensor([1.0, 2.0, float(i)], device=there)).item() for i in range(5)]
    assert (scale.device, w.device) == ("CPU", there)
    return [*losses, scale.item(), *w.detach().tolist()]


@pytest.mark.variants(every=3, first=1)
@on_each
def test_a_scale_on_the_cpu_is_trained(there: str) -> None:
    expected = train("CPU", False)
    assert train(there, False) == pytest.approx(expected, rel=1e-5)  # a sum of three in another order
    assert train(there, True) == pytest.approx(expected, rel=1e-5)


def test_what_has_axes_does_not_cross() -> None:
    x, y = Tensor([1.0, 2.0], device="NUMPY"), Tensor([1.0, 2.0], device="CPU")
    with pytest.raises(pg.JitError) as caught:
        pg.jit(lambda x, y: x * y.sum())(x, y)
    assert str(caught.value).splitlines()[0] == "jit: <lambda> computes on several devices: CPU, NUMPY."
    assert caught.value.hint == "move them to one before the call; only a tensor of no axes may stay on CPU."
    assert pg.jit(lambda x, y: x * y)(x, y.sum()).tolist() == [3, 6]


def test_steps_of_a_loop_read_a_number_of_the_cpu() -> None:
    t = Tensor(2.0, device="CPU")
    run = pg.jit(lambda x: x * t, steps=2)
    for _ in range(3):
        assert run(Tensor([[1.0, 2.0], [3.0, 4.0]], device="NUMPY")).tolist() == [
            [t.item(), 2 * t.item()],
            [3 * t.item(), 4 * t.item()],
        ]
        t.add_(1)
