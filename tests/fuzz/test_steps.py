"""Random training steps, of other lengths and perhaps another structure each time: values and state are PyTorch's.

Graphs of new lengths are symbolic from the third on, and large ones that are never the same are computed in pieces: each
program runs with either of them from the first step on.

To look for more than a test run has time for:  python -m tests.fuzz.test_steps 1000 3000
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.engine import pieces, realize
from picograd.engine.known import Families
from picograd.record import replace
from tests.fuzz.seeds import run_seeds
from tests.helpers import forgotten

SEEDS = range(36)
WAYS = {  # constants of engine/realize.py, and of engine/pieces.py
    "lengths": ({"PLANS_MIN": 0}, {"PLANNINGS_MAX": 10**9}),
    "pieces": ({"PLANS_MIN": 0}, {"OPS_OF_LARGE": 1, "PLANNINGS_MAX": 0, "TIMES_TO_PLAN": 10**9}),
    "both": ({"PLANS_MIN": 0}, {"OPS_OF_LARGE": 8, "PLANNINGS_MAX": 0, "TIMES_TO_PLAN": 2}),
}
LENGTHS = ((12, 15, 9, 13, 14, 10, 11), (3, 4, 5, 6, 7), (1, 2, 3, 17, 30), (40, 20, 50, 33, 64, 65), (16, 17, 24, 31, 32))
WIDTH = 3
Row = Callable[["Program", Any, int], Any]  # program, (rows, WIDTH) tensor, drawn number -> another such tensor


class Program:
    """A training of a few parameters in one of both libraries; all draws follow from the seed and from lengths."""

    def __init__(self, seed: int, lib: Any):
        self.rng, self.lib, self.draws = random.Random(seed), lib, np.random.default_rng(seed)
        self.weights = [self.data(WIDTH, WIDTH).requires_grad_() for _ in range(2)]
        self.bias, self.table = self.data(WIDTH).requires_grad_(), self.data(7, WIDTH).requires_grad_()
        self.cache, self.running, self.text = self.data(6, WIDTH), self.data(WIDTH), self.data(60, WIDTH)
        self.parameters = [*self.weights, self.bias, self.table]
        self.optimizer = lib.optim.SGD(self.parameters, lr=0.05, momentum=self.rng.choice([0.0, 0.9]))
        self.lengths = self.rng.choice(LENGTHS)
        self.same_rows = self.rows() if self.rng.random() < 0.7 else None
        self.kept: list[Any] = []
        self.step = 0

    def data(self, *shape: int) -> Any:
        return self.lib.tensor(self.draws.standard_normal(shape) * 0.5)

    def index(self, count: int, length: int, k: int) -> Any:
        return self.lib.tensor((np.arange(count) * 5 + k + self.step) % length)

    def rows(self) -> list[tuple[str, int]]:
        return [(self.rng.choice([*ROWS]), self.rng.randrange(1000)) for _ in range(self.rng.randint(2, 8))]

    def loss(self, x: Any) -> Any:
        values = [x]
        for name, k in self.same_rows or self.rows():
            y = ROWS[name](self, values[k % len(values)] if k % 3 == 0 else values[-1], k)
            if 0 < len(y) < 200:
                values.append(y.tanh() if k % 2 else y * 0.7)
        last = values[-1]
        if self.rng.random() < 0.2:
            self.kept.append(last)
        ends = [last.mean(), (last * last).sum() / len(x), last[-1].sum() + last[len(last) // 2].sum(), last.exp().std()]
        return ends[self.step % 2 + 2 * (len(last) > 1 and self.step % 3 == 0)] + (values[len(values) // 2] ** 2).mean()

    def steps(self) -> Iterator[list[Any]]:
        """Yields what is seen of each step, and of all parameters and buffers in the end."""
        for self.step in range(9):
            x = self.data(self.rng.choice(self.lengths), WIDTH).requires_grad_()
            loss, chance = self.loss(x), self.rng.random()
            seen = [loss.item()] if chance < 0.2 else []
            if 0.2 < chance < 0.4:
                (grad,) = self.lib.autograd.grad(loss, x, create_graph=True)
                loss = loss + (grad**2).sum()
            loss.backward(retain_graph=chance > 0.8)
            if chance > 0.8:
                (loss * 0.5).backward()
            seen += [x.grad, *[p.grad for p in self.parameters]]
            self.optimizer.step()
            if chance < 0.9:
                self.optimizer.zero_grad()
            yield [*seen, loss, *([self.kept.pop(0)] if len(self.kept) > 2 else [])]
        yield [*self.parameters, self.cache, self.running, *self.kept]


def written(p: Program, x: Any, k: int) -> Any:
    """Writes to a cache in one of several ways, and reads it."""
    rows = min(len(x), 6)
    with p.lib.no_grad():
        if k % 4 == 0:
            p.cache[:rows] = x[:rows]
        elif k % 4 == 1:
            p.cache[rows - 1] += x[-1]
        elif k % 4 == 2:
            p.cache.mul_(0.5).add_(x[0])
        else:
            p.cache.copy_(p.cache.roll(1, 0))
    return x[:rows] + p.cache[:rows]


def normalized(p: Program, x: Any, k: int) -> Any:
    """A norm by a running mean, which is state."""
    with p.lib.no_grad():
        p.running.mul_(0.9).add_(x.mean(0), alpha=0.1)
    return (x - p.running) / (x.var(0, unbiased=False) + 0.5).sqrt()


def recurrent(p: Program, x: Any, k: int) -> Any:
    h, found = x[:1] * 0.5, []
    for t in range(min(len(x), 3 + k % 7)):
        h = (h @ p.weights[0] + x[t : t + 1]).tanh()
        found.append(h)
    return p.lib.cat(found)


def masked(p: Program, x: Any, k: int) -> Any:
    y = x[x.detach()[:, 0] > 0.1]
    return y if len(y) else x


def refused(p: Program, x: Any, k: int) -> Any:
    """A step goes on behind an index that is out of range, and shapes that do not fit."""
    outside, other = p.lib.tensor([0, len(x)]), p.lib.zeros(WIDTH + 1, 2, dtype=x.dtype)
    with pytest.raises(IndexError, match="range|bounds"):
        x[outside].sum().item()
    with pytest.raises((RuntimeError, pg.ShapeError), match="shape|differ"):
        x @ other
    return x


def seen_on_the_way(p: Program, x: Any, k: int) -> Any:
    return x * (0.5 if x.sum().item() > 0.0123 else 1.0)


ROWS: dict[str, Row] = {
    "linear": lambda p, x, k: x @ p.weights[k % 2] + p.bias,
    "softmax": lambda p, x, k: x.softmax(k % 2) * len(x),
    "norm": lambda p, x, k: p.lib.nn.functional.layer_norm(x, (WIDTH,)),
    "centred": lambda p, x, k: x - x.mean(0),
    "cat": lambda p, x, k: p.lib.cat([x, x[: 1 + k % 3] * 2]),
    "attention": lambda p, x, k: (x @ x[: 2 + k % 5].T).softmax(-1) @ x[: 2 + k % 5],
    "crop": lambda p, x, k: x[(k + p.step) % len(x) :],
    "last": lambda p, x, k: x[-1 - (k + p.step) % len(x) :],
    "stride": lambda p, x, k: x[:: 1 + k % 2],
    "flip": lambda p, x, k: x.flip(0),
    "gathered": lambda p, x, k: x[p.index(1 + (k + p.step) % 7, len(x), k)],
    "embedded": lambda p, x, k: x + p.table[p.index(len(x), 7, k)],
    "added": lambda p, x, k: p.lib.zeros(6, WIDTH, dtype=x.dtype).index_add(0, p.index(len(x), 6, k), x),
    "sorted": lambda p, x, k: x.sort(0).values,
    "where": lambda p, x, k: p.lib.where(x > 0.1 * (p.step % 4), x, x * 0.1),
    "cumsum": lambda p, x, k: x.cumsum(0) / len(x),
    "pad": lambda p, x, k: p.lib.nn.functional.pad(x, (0, 0, k % 3, (k // 3) % 3)),
    "text": lambda p, x, k: x[:29] + p.text[(k + 13 * p.step) % 31 :][: min(len(x), 29)],
    "number": lambda p, x, k: x * (0.5 + 0.1 * p.step) + p.step / (len(x) + 1),
    "power": lambda p, x, k: (x.abs() + 0.2) ** (1 + (p.step % 3) * 0.5),
    "detached": lambda p, x, k: x.detach() * 0.5 + x * 0.5,
    "pooled": lambda p, x, k: p.lib.nn.functional.avg_pool1d(x.T[None], 2, 1, 1)[0].T,
    "pairs": lambda p, x, k: (-((x[:, None] - x[None, :9]) ** 2).sum(-1)).softmax(1) @ x[:9],
    "written": written, "normalized": normalized, "recurrent": recurrent, "masked": masked, "refused": refused,
    "seen": seen_on_the_way,
}  # fmt: skip


def arrays(seen: list[Any]) -> list[np.ndarray]:
    lists = [value.tolist() if hasattr(value, "tolist") else value or 0.0 for value in seen]
    return [np.array(value) for value in lists]


def check(seed: int, way: str) -> None:
    """Compares each step of a program with PyTorch's."""
    with pytest.MonkeyPatch.context() as patch:
        for module, constants in zip((realize, pieces), WAYS[way]):
            for name, value in constants.items():
                patch.setattr(module, name, value)
        if way == "pieces":
            patch.setattr(Families, "varied", lambda self, seen: (replace(seen, is_alone=True), None))
        forgotten()
        for step, (ours, theirs) in enumerate(zip(Program(seed, pg).steps(), Program(seed, torch).steps(), strict=True)):
            for number, (a, b) in enumerate(zip(arrays(ours), arrays(theirs), strict=True)):
                said, scale = f"seed {seed}, {way}: value {number} of step {step}", 1 + np.abs(b).max(initial=0)
                np.testing.assert_allclose(a, b, 1e-7, 1e-8 * scale, err_msg=said)


@pytest.mark.variants(every=3)
@pytest.mark.req("G10")
@pytest.mark.parametrize("seed", SEEDS)
def test_steps_of_other_lengths_and_structures_are_pytorchs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    check(seed, [*WAYS][seed // 3 % 3])


def test_the_programs_have_rows_of_every_kind() -> None:
    found = {name for seed in SEEDS for name, _ in Program(seed, torch).same_rows or ()}
    assert found == {*ROWS}


if __name__ == "__main__":
    os.environ.setdefault("PICOGRAD_DEVICE", "NUMPY")
    run_seeds(check, *WAYS)
