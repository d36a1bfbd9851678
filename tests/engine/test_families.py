"""Graphs of new lengths: formulas and gradients are written out once for many of them, with the values of each alone."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.engine import realize
from picograd.engine.known import Families, _graph_apart, look_at
from picograd.engine.lengths import OFTEN
from picograd.errors import UnsupportedOp
from picograd.look import watch
from picograd.nn import functional as F
from tests.helpers import forgotten

LENGTHS = (20, 23, 31, 28, 17, 25, 30, 70, 90, 300, 65)


@pytest.fixture(autouse=True)
def looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has lengths looked at from the first graph on, as after some graphs of a process."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")  # whose plannings are counted
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    forgotten()


def data(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def written_at(step: Callable[[int], Any], lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns for each length how often graphs were written out."""
    counts = [0]
    write = realize.written_out

    def counted(*args: Any, **named: Any) -> Any:
        counts[-1] += 1
        return write(*args, **named)

    monkeypatch.setattr(realize, "written_out", counted)
    for n in lengths:
        counts.append(0)
        step(n)
    return counts[1:]


def policy() -> Callable[[int], Any]:
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    optimizer = pg.optim.Adam(net.parameters(), lr=1e-2)

    def step(n: int) -> float:
        states, actions, returns = Tensor(data(n, 4)), Tensor(np.arange(n) % 2), Tensor(data(n))
        advantages = (returns - returns.mean()) / (returns.std() + 1e-8)
        chosen = F.log_softmax(net(states), -1).gather(1, actions[:, None])[:, 0]
        loss = -(chosen * advantages).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def crops() -> Callable[[int], Any]:
    text, weight = Tensor(data(4000, 3)), Tensor(data(3, 5)).requires_grad_()

    def step(n: int) -> Any:
        i = 733 * n % 1009
        x, y = text[i : i + n], text[i + 1 : i + 1 + n]
        weight.grad = None
        ((x @ weight).sum(1) * y[:, 0]).mean().backward()
        return weight.grad.numpy()

    return step


def masks() -> Callable[[int], Any]:
    x = Tensor(data(4000, 3))

    def step(n: int) -> Any:
        kept = x[pg.arange(4000) < n]
        return F.layer_norm(kept, (3,)).softmax(0).numpy()

    return step


def boxes() -> Callable[[int], Any]:
    """Each box beside its own of as many others: the diagonal of all pairs, and a number that is the length."""
    weight = Tensor(data(4, 4)).requires_grad_()

    def step(n: int) -> Any:
        found, true = (Tensor(data(n, 4)) @ weight).sigmoid(), Tensor(data(n, 4, seed=1)).sigmoid()
        shared = pg.minimum(found[:, None], true).prod(-1)
        places = Tensor(np.arange(n)) + n
        weight.grad = None
        ((1 - pg.diag(shared)) * (places * 2.0)).mean().backward()
        return weight.grad.numpy()

    return step


@pytest.mark.parametrize("program", [policy, crops, masks, boxes])
def test_a_graph_of_a_new_length_is_not_written_out(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = written_at(program(), (*LENGTHS, 21, 80, 1000), monkeypatch)
    assert counts[-3:] == [0, 0, 0], counts


@pytest.mark.parametrize("program", [crops, masks, boxes])
def test_the_values_are_those_of_each_length_alone(program: Any) -> None:
    step = program()
    found = [step(n) for n in LENGTHS]
    for n, value in zip(LENGTHS, found):
        forgotten()
        np.testing.assert_allclose(value, step(n), rtol=1e-6, atol=1e-7, err_msg=f"{n}")


def test_offsets_that_follow_from_lengths_and_others_in_one_plan() -> None:
    """The start of x[n - 5 : n] follows from the length, that of x[i : i + n] is any number, and that of x[3 : n] stays."""
    x, planned = Tensor(data(500)), []
    for n in (*LENGTHS, 22, 29, 64):
        i = 733 * n % 97
        with watch() as counts:
            found = [(x[:n] * 2).softmax(0)[n - 5 : n].sum(), x[i : i + n].exp().mean(), x[3:n].std()]
            values = [value.item() for value in found]
        planned.append(counts.scheduled)
        whole = x.numpy().astype(np.float64)
        top = np.exp(2 * whole[:n])
        expected = [(top / top.sum())[n - 5 :].sum(), np.exp(whole[i : i + n]).mean(), whole[3:n].std(ddof=1)]
        np.testing.assert_allclose(values, expected, rtol=1e-5)
    assert planned[-3:] == [0, 0, 0], planned


def test_two_of_three_lengths_are_joined_in_either_order() -> None:
    planned = []
    for a, b, c in ((5, 4, 3), (3, 6, 4), (6, 5, 7), (4, 3, 5), (7, 6, 4), (3, 5, 6)):
        x, y = Tensor(data(a, b, c)), Tensor(data(c, b))
        with watch() as counts:
            found = pg.einsum("abc,cb->a", x.softmax(-1), y).exp().sum().item()
        planned.append(counts.scheduled)
        expected = torch.einsum("abc,cb->a", torch.tensor(x.numpy()).softmax(-1), torch.tensor(y.numpy())).exp().sum()
        assert found == pytest.approx(expected.item(), rel=1e-5)
    assert planned[-2:] == [0, 0], planned


def test_an_index_outside_a_new_length_is_reported_with_its_numbers() -> None:
    for n in LENGTHS[:7]:
        x, index = Tensor(data(n, 3)), Tensor(np.array([0, n - 1]))
        np.testing.assert_array_equal(x.softmax(1)[index].numpy(), x.softmax(1).numpy()[[0, n - 1]])
    for n in (18, 26, 19):
        x, index = Tensor(data(n, 3)), Tensor(np.array([0, n]))
        words = rf"index: {n} is out of range for axis 0 of length {n} in shape \({n}, 3\)"
        with pytest.raises(pg.IndexingError, match=words) as report:
            x.softmax(1)[index].numpy()
        assert "softmax(1)[index]" in str(report.value)


def test_a_number_that_changes_with_the_length_is_an_input_at_once() -> None:
    planned = []
    for n in (20, 23, 31, 28, 17, 300, 65, 70):
        x = Tensor(data(n))
        with watch() as counts:
            found = (x.sum() / n + n).item()
        planned.append(counts.scheduled)
        assert found == pytest.approx(x.numpy().mean() + n, rel=1e-5)
    assert planned == [1, 1, 1, 0, 0, 1, 0, 0]


def test_a_function_that_needs_a_number_keeps_its_lengths() -> None:
    w = Tensor(data(2, 1, 3, 3))
    for n in (5, 6, 7, 9, 8):
        x = Tensor(data(1, 1, n, 4))
        expected = torch.nn.functional.conv2d(torch.tensor(x.numpy()), torch.tensor(w.numpy())).relu().mean()
        assert F.conv2d(x, w).relu().mean().item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_symbolic_integer_of_the_user_keeps_its_value_whatever_its_name() -> None:
    n, x = pg.Variable("length0", 2, 400), Tensor(data(400))
    for length in (*LENGTHS, 30, 24):
        bound = 30 if length != 24 else 9
        found = x[: n.bind(bound)].exp().sum() + Tensor(data(length)).tanh().sum()
        expected = np.exp(x.numpy()[:bound]).sum() + np.tanh(data(length)).sum()
        assert found.item() == pytest.approx(expected, rel=1e-5)


# ---- programs drawn at random, beside PyTorch ----
UNARY = ("exp", "tanh", "sigmoid", "relu", "abs", "neg")


def drawn(rng: random.Random) -> Callable[[Any, Any, Any, int, int], Any]:
    """Returns a program of a few steps on an (n, 4) tensor, for both libraries."""
    steps = [
        rng.choice(
            ["unary", "softmax", "centred", "scaled", "cat", "product", "crop", "flip", "rows", "where", "cumsum", "norm",
             "pad", "stack", "weights"]
        )
        for _ in range(rng.randint(2, 5))
    ]  # fmt: skip
    names = [rng.choice(UNARY) for _ in steps]
    end = rng.choice(["mean", "sum", "rows", "std", "last"])

    def program(lib: Any, x: Any, w: Any, n: int, i: int) -> Any:
        f = lib.nn.functional
        for step, name in zip(steps, names):
            rows = x.shape[0]
            if step == "unary":
                x = getattr(lib, name)(x.clamp(-3, 3))
            elif step == "softmax":
                x = x.softmax(0) * rows
            elif step == "centred":
                x = x - x.mean(0, keepdim=True)
            elif step == "scaled":
                x = x / (x.std() + 1)
            elif step == "cat":
                x = lib.cat([x, x[:3] * 2])
            elif step == "product":
                x = x @ w
            elif step == "crop":
                x = x[i % 5 : rows - 1]
            elif step == "flip":
                x = x.flip(0)
            elif step == "rows":
                x = x[lib.arange(rows) // 2]
            elif step == "where":
                x = lib.where(x > 0, x, x * 0.1)
            elif step == "cumsum":
                x = x.cumsum(0) / rows
            elif step == "norm":
                x = f.layer_norm(x, (4,))
            elif step == "pad":
                x = f.pad(x, (0, 0, 1, 2))
            elif step == "stack":
                x = lib.stack([x, x * 2]).sum(0)
            else:
                x = (x @ x[:6].T).softmax(-1) @ x[:6]
        if end == "mean":
            return x.mean()
        if end == "std":
            return x.std()
        if end == "last":
            return x[-1].sum() + x[rows // 2].sum()
        return (x * x).sum() / n if end == "sum" else x.sum(1).tanh().mean()

    return program


@pytest.mark.variants(every=8)
@pytest.mark.parametrize("seed", range(48))
def test_programs_of_changing_lengths_equal_pytorch(seed: int) -> None:
    rng, seen = random.Random(seed), np.random.default_rng(seed)
    program = drawn(rng)
    weights = data(4, 4, seed=seed)
    for n in (12, 15, 9, 13, 14, 40, 55, 44, 10):
        i, rows = rng.randrange(100), seen.standard_normal((n, 4)).astype(np.float32)
        found = []
        for lib in (torch, pg):
            x, w = (lib.tensor(array, requires_grad=True) for array in (rows, weights))
            loss = program(lib, x, w, n, i)
            loss.backward()
            grads = [np.zeros(1) if p.grad is None else np.array(p.grad.tolist()) for p in (x, w)]
            found.append([loss.item(), *grads])
        for ours, theirs in zip(found[1], found[0], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-4 * (1 + np.abs(theirs).max()), err_msg=f"{n}")


def test_graphs_that_come_often_once_their_lengths_are_refused_keep_these() -> None:
    """The question after the refusal counts, too: it may be the one from which on a graph has a plan of its own."""
    families = Families()
    for n in (12, 20, 17):
        x, weight = Tensor(data(1, 2, n)).realize(), Tensor(data(3, 2, 3)).realize()
        seen = look_at([F.conv1d(x, weight).op])
        assert seen is not None
        seen, varied = families.varied(seen)
    assert varied is not None
    (family,) = families._known.values()
    family.lengths.times[_graph_apart(seen).sample()] = OFTEN - 1
    assert families.other_than(varied, UnsupportedOp("an Op needs a number")) is None
    assert families.varied(seen)[0].has_own
