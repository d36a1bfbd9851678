"""Graphs of another structure at each step are computed in pieces, with the values that PyTorch gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.autodiff.unrolled import from_memory
from picograd.engine import pieces, realize
from picograd.ir.op import codes_in
from picograd.ir.opcode import OpCode
from picograd.look import watch
from tests.helpers import forgotten


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the second large graph of a line computed in pieces."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")  # whose plannings are counted
    monkeypatch.setattr(pieces, "PLANNINGS_MAX", 1)
    monkeypatch.setattr(realize, "PLANS_MIN", 0)
    forgotten()


Program = Callable[[Any, Any, random.Random], Any]


def teacher(lib: Any, model: Any, rng: random.Random) -> Any:
    """Each word is the target, or the one that was drawn."""
    target = lib.tensor([[rng.randrange(8) for _ in range(7)] for _ in range(3)])
    _, h = model["encoder"](model["embedding"](target))
    h, word, loss = h[0], target[:, 0] * 0, 0
    for t in range(7):
        h = model["cell"](model["embedding"](word), h)
        logits = model["out"](h)
        loss = loss + lib.nn.functional.cross_entropy(logits, target[:, t])
        word = target[:, t] if rng.random() < 0.5 else logits.argmax(-1)
    return loss


def tree(lib: Any, model: Any, rng: random.Random) -> Any:
    """A recursive network over a tree of its own."""

    def state(leaves: int) -> Any:
        if leaves == 1:
            return model["embedding"](lib.tensor([rng.randrange(8)]))
        left = rng.randint(1, leaves - 1)
        return model["pair"](lib.cat([state(left), state(leaves - left)], 1)).tanh()

    return (model["out"](state(rng.randint(6, 11))) ** 2).mean()


def drawn_layers(lib: Any, model: Any, rng: random.Random) -> Any:
    """Edges between layers, and what they do, are drawn."""
    values = [lib.tensor([[rng.gauss(0, 1) for _ in range(6)] for _ in range(4)])]
    for layer in model["layers"]:
        a, b = rng.choice(values), rng.choice(values)
        kind = rng.randrange(4)
        if kind == 0:
            values.append(layer(a + b).relu())
        elif kind == 1:
            values.append(layer(a).sigmoid() * b)
        elif kind == 2:
            values.append(lib.nn.functional.layer_norm(layer(a), (6,)) + b)
        else:
            values.append(layer(a).softmax(-1) - b.abs().sqrt())
    return (sum(values) ** 2).mean()


def gradient_penalty(lib: Any, model: Any, rng: random.Random) -> Any:
    """The loss has the gradient of a value by the input."""
    x = lib.tensor([[rng.gauss(0, 1) for _ in range(6)] for _ in range(4)], requires_grad=True)
    y = x
    for layer in model["layers"]:
        y = layer(y).tanh() if rng.random() < 0.6 else y + layer(y)
    (grad,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    return (y**2).mean() + ((grad.norm(dim=1) - 1) ** 2).mean()


PROGRAMS: list[Program] = [teacher, tree, drawn_layers, gradient_penalty]


def model_of(lib: Any) -> Any:
    module = lib.nn
    parts = {
        "embedding": module.Embedding(8, 6), "encoder": module.GRU(6, 6, batch_first=True), "cell": module.GRUCell(6, 6),
        "out": module.Linear(6, 8), "pair": module.Linear(12, 6),
        "layers": module.ModuleList([module.Linear(6, 6) for _ in range(6)]),
    }  # fmt: skip
    draws = np.random.default_rng(0)
    model = module.ModuleDict(parts)
    with lib.no_grad():
        for parameter in model.parameters():
            parameter.copy_(lib.tensor(draws.standard_normal(tuple(parameter.shape)).astype(np.float32) * 0.4))
    return model


def losses(lib: Any, program: Program, steps: int) -> tuple[list[float], list[int]]:
    """Returns the losses of a training, and how often each step was planned."""
    rng, model, planned = random.Random(0), model_of(lib), []
    optimizer, found = lib.optim.SGD(model.parameters(), lr=0.05), []
    for _ in range(steps):
        with watch() as counts:
            optimizer.zero_grad()
            loss = program(lib, model, rng)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        planned.append(counts.scheduled)
    return found, planned


@pytest.mark.parametrize("program", PROGRAMS)
def test_losses_are_pytorchs_and_pieces_are_soon_known(program: Program) -> None:
    found, planned = losses(pg, program, 14)
    np.testing.assert_allclose(found, losses(torch, program, 14)[0], rtol=2e-4)
    assert sum(planned[-9:]) <= 9, planned  # drawn_layers: 34, were new pieces not computed by single operations


def test_values_are_those_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    in_pieces, _ = losses(pg, drawn_layers, 5)
    monkeypatch.setattr(pieces, "PLANNINGS_MAX", 1000)
    np.testing.assert_allclose(in_pieces, losses(pg, drawn_layers, 5)[0], rtol=1e-5)


def drawn_steps(x: Tensor, turns: int) -> Tensor:
    """Another sequence of operations for each number of them."""
    rng = random.Random(turns)
    for _ in range(turns):
        x = rng.choice([lambda x: x @ x, lambda x: x * 0.5 + x.mean(), lambda x: x.softmax(0), lambda x: x.exp().T])(x)
        x = x.tanh()
    return x


def test_a_graph_that_comes_again_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "TIMES_TO_PLAN", 3)
    x = Tensor(np.eye(3, dtype=np.float32), requires_grad=True)
    runs = []
    for turns in (20, 23, 23, 23, 23, 23):
        with watch() as counts:
            drawn_steps(x, turns).detach().numpy()
        runs.append(counts.plans)
    assert runs[0] == 1 and min(runs[1:4]) > 10 and runs[4:] == [1, 1], runs


def test_an_index_outside_is_reported_with_its_line_and_all_can_go_on() -> None:
    table = Tensor(np.ones((4, 3), np.float32), requires_grad=True)
    for turns, last in ((20, 3), (21, 3), (22, 4), (23, 3)):
        x = drawn_steps(table[Tensor([0, 1, last])], turns)
        if last < 4:
            assert x.sum().item() == pytest.approx(x.sum().item())
        else:
            with pytest.raises(pg.IndexingError, match="index: 4 is out of range for axis 0 of length 4"):
                x.sum().item()


def test_a_gradient_that_is_zero_for_any_input() -> None:
    for turns in (20, 21, 22):
        x = Tensor(np.eye(3, dtype=np.float32), requires_grad=True)
        w = Tensor(np.ones((3, 3), np.float32), requires_grad=True)
        (drawn_steps(x * w.round(), turns) * x).sum().backward()
        assert w.grad is not None and x.grad is not None
        assert w.grad.tolist() == [[0.0] * 3] * 3 and x.grad.abs().sum().item() > 0


def test_large_graphs_of_other_lines_have_plans() -> None:
    x = Tensor(np.eye(3, dtype=np.float32))
    with watch() as counts:
        (drawn_steps(x, 20) + 1).numpy()
        (drawn_steps(x, 22) + 1).numpy()
    assert counts.plans == 2


def test_values_in_memory_end_graphs_but_not_those_of_gradients() -> None:
    """A loop that reads its loss in each turn would compute all turns before it again."""
    weight = Tensor(np.eye(3, dtype=np.float32), requires_grad=True)
    hidden = (weight * 2).tanh()
    hidden.realize()
    loss = (hidden * hidden).sum()
    (cut,), _ = from_memory([loss.cell.op], [])
    assert OpCode.TANH not in codes_in([cut]) and OpCode.TANH in codes_in([loss.cell.op])
    (grad,) = pg.autograd.grad(loss, weight, retain_graph=True)
    waiting = grad.cell.op
    assert from_memory([waiting], []) == ([waiting], [])
    assert loss.item() == pytest.approx(3 * np.tanh(2.0) ** 2, rel=1e-6)
    assert grad.numpy()[0, 0] == pytest.approx(4 * np.tanh(2.0) / np.cosh(2.0) ** 2, rel=1e-5)


def test_values_that_an_expand_makes_large_are_not_stored() -> None:
    """Distances of 16,384 points, a gigabyte of them, are added up as they are made."""
    for turns in (20, 21, 22):
        x = Tensor(np.linspace(0, 1, 1 << 14, dtype=np.float32), requires_grad=True)
        far = (((x[:, None] - x[None, :]) * 0.5 + 1.0) * 0.5 - 0.25).abs().sum(1)
        scale = drawn_steps(Tensor(np.eye(3, dtype=np.float32), requires_grad=True), turns).sum()
        with watch() as counts:
            (far.mean() * scale).item()
        assert counts.arena_nbytes + counts.temporary_nbytes < 1 << 26


def test_a_sum_of_any_number_of_gradients_is_in_pieces_too() -> None:
    """Each of them is as large as what is asked for: a table's, where a word has one row."""
    table = Tensor(np.ones((40, 3), np.float32), requires_grad=True)
    planned = []
    for words in (9, 12, 8, 15, 10, 14, 11, 13):
        states = [table[Tensor([word])] * (word + 1.0) for word in range(words)]
        sum([state.sum() for state in states], Tensor(0.0)).backward()
        with watch() as counts:
            assert table.grad is not None and table.grad[:, 0].tolist() == [*range(1, words + 1), *[0] * (40 - words)]
        planned.append(counts.scheduled)
        table.grad = None
    assert planned[-3:] == [0, 0, 0], planned


def test_graphs_that_differ_in_lengths_alone_are_planned() -> None:
    for n in (3, 5, 6, 7, 12, 13):
        x = Tensor(np.eye(n, dtype=np.float32), requires_grad=True)
        with watch() as counts:
            drawn_steps(x, 20).detach().numpy()
        assert counts.plans == 1, n


def test_a_line_whose_graphs_recur_with_other_lengths_may_plan_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two such graphs for one that is new: those of a loss over drawn objects are some dozens, most of them soon."""
    monkeypatch.setattr(pieces, "PLANNINGS_MAX", 4)
    x = drawn_steps(Tensor(np.eye(3, dtype=np.float32), requires_grad=True), 20)
    roots = [x.cell.op]
    seen = realize.look_at(roots)
    assert seen is not None

    def planned(new: int, recurring: int) -> bool:
        for _ in range(new):
            pieces.note_planning(roots, len(seen.ops))
        for _ in range(recurring):
            pieces.note_recurrence(roots)
        return not pieces.is_for_pieces(roots, seen)

    assert planned(3, 0) and planned(0, 2) and planned(1, 9) and planned(3, 0)
    assert not planned(1, 0)
