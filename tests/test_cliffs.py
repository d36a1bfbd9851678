"""The programs of examples/ have the losses of PyTorch from the same start; a jitted step has those of an eager one.

Losses of the first steps agree to 1e-4: sums of some hundred float32 terms in another order, in a few steps of training.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from bench.cliffs import SETTLED, Row, table, worst
from bench.cliffs_worker import Run, run
from bench.programs import TINY, equal_work, load
from picograd.look import watch

NUM_STEPS = 4
# A jitted step reads a stored batch; an eager one may compute it within its own kernels, and sum in another order.
FUSED_TOLERANCE = 2e-6
WITHOUT_DROPOUT = {"bert": {"dropout": 0.0}}
SIZES = {**TINY, "bert": {"count": 4, "B": 4}, "ddpm": {"num_steps": 4, "B": 4, "count": 1}}  # less to compile
SIZES |= {"lstm": {"count": 32, "B": 4}, "reinforce": {"num_episodes": 6, "longest": 30}}  # lengths enough for their plans
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def seconds_not_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs compile some hundred kernels: passes are verified in the tests of each, not here."""
    monkeypatch.setenv("PICOGRAD_VERIFY", "0")


class SameDraws:
    """A library whose random numbers, and the order of whose loaders, are NumPy's."""

    def __init__(self, library: ModuleType):
        self.library, self.rng = library, np.random.default_rng(0)
        self.utils = SimpleNamespace(data=SimpleNamespace(**vars(library.utils.data)))
        self.utils.data.DataLoader = self.loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def randint(self, low: int, high: Any, size: Any = None) -> Any:
        low, high, size = (0, low, high) if size is None else (low, high, size)
        return self.library.tensor(self.rng.integers(low, high, tuple(size)))

    def randperm(self, count: int) -> Any:
        return self.library.tensor(self.rng.permutation(count))

    def rand(self, *shape: Any) -> Any:
        return self.library.tensor(self.rng.random(shape[0] if isinstance(shape[0], tuple) else shape, np.float32))

    def randn(self, *shape: int) -> Any:
        return self.library.tensor(self.rng.standard_normal(shape, np.float32))

    def randn_like(self, other: Any) -> Any:
        return self.randn(*other.shape)

    def multinomial(self, probabilities: Any, num_samples: int) -> Any:
        totals = probabilities.detach().numpy().cumsum(1)
        return self.library.tensor((totals < self.rng.random((len(totals), num_samples))).sum(1, keepdims=True))

    def loader(self, dataset: Any, batch_size: int, shuffle: bool = False, collate_fn: Any = None, **_: Any) -> Any:
        order = self.rng.permutation(len(dataset)).tolist() if shuffle else range(len(dataset))
        return self.library.utils.data.DataLoader(dataset, batch_size, sampler=order, collate_fn=collate_fn)


def losses(name: str, library: ModuleType, weights: dict[str, Any] | None = None) -> tuple[dict[str, Any], list[float]]:
    """Returns the weights before training, as NumPy arrays, and the losses of the first steps."""
    program = load(name, library.__name__)
    random.seed(0)
    model = program.make(**WITHOUT_DROPOUT.get(name, {}))
    if weights is not None:
        model.load_state_dict({key: library.tensor(array) for key, array in weights.items()})
    start = {key: tensor.detach().numpy().copy() for key, tensor in model.state_dict().items()}
    program.torch = SameDraws(library)
    return start, [loss for _, loss in islice(program.train(model, **SIZES[name]), NUM_STEPS)]


@pytest.mark.variants(every=14)
@pytest.mark.req("B9")
@pytest.mark.parametrize("name", TINY)
def test_the_first_losses_are_pytorchs(name: str) -> None:
    weights, ours = losses(name, pg)
    _, theirs = losses(name, torch, weights)
    np.testing.assert_allclose(ours, theirs, rtol=TOLERANCE)
    assert len(set(ours)) == NUM_STEPS


@pytest.mark.variants(every=9)
@pytest.mark.filterwarnings("ignore:jit.* has been captured for")
@pytest.mark.parametrize("name", TINY)
def test_a_jitted_step_has_the_losses_of_an_eager_one_and_nothing_is_compiled_late(name: str) -> None:
    found, late = [], []
    for jit in (False, True):
        program, steps, early = load(name), [], 0
        random.seed(0)
        model = program.make(**WITHOUT_DROPOUT.get(name, {}))
        with watch() as counts:
            for epoch, loss in program.train(model, jit, num_epochs=SETTLED + 1, **SIZES[name]):
                early = counts.compiled if epoch < SETTLED else early
                steps.append(loss)
        found.append(steps)
        late.append(counts.compiled - early)
    np.testing.assert_allclose(*found, rtol=FUSED_TOLERANCE, atol=FUSED_TOLERANCE)  # a loss of a policy may be near 0
    assert late == [0, 0]


# ---- the bench ----
def test_an_episode_that_is_timed_is_as_long_in_one_library_as_in_the_other() -> None:
    def lengths(library: str) -> list[int]:
        program, counts = equal_work("reinforce", load("reinforce", library)), list[int]()

        class Counted(program.CartPole):  # type: ignore[misc, name-defined]
            def step(self, action: int) -> Any:
                counts.append(self.count)
                return super().step(action)

        program.CartPole = Counted
        for _ in program.train(program.make(), num_epochs=1, num_episodes=4, longest=40):
            pass
        return counts

    ours = lengths("picograd")
    starts = [at for at, count in enumerate(ours) if count == 0]
    assert ours == lengths("torch") and len(starts) == 4 and len(set(np.diff(starts))) > 1


def test_a_run_counts_each_epoch_and_notes_why_a_program_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run("xor", "picograd", 2, jit=True, sizes={"num_steps": 3})
    assert found.problem == "" and len(found.losses) == 3
    assert [len(seen) for seen in (found.epoch_s, found.step_s, found.scheduled, found.compiled)] == [2, 2, 2, 2]
    assert found.scheduled[1] == found.compiled[1] == 0

    def train(model: Any, jit: bool, num_epochs: int) -> Iterator[tuple[int, float]]:
        yield 0, 1.0
        raise ValueError("no second step\nat all")

    program = SimpleNamespace(make=lambda: None, train=train)
    monkeypatch.setattr("bench.cliffs_worker.load", lambda name, library: program)
    found = run("short", "picograd", 2, jit=False, sizes={})
    assert found.problem == "ValueError: no second step" and found.losses == [1.0] and found.epoch_s == []


def test_the_table_names_its_worst_cell() -> None:
    torch_run = Run(epoch_s=[1.0] * 4, step_s=[0.01] * 4)
    slow = Run(epoch_s=[2.0] * 4, step_s=[0.05] * 4, scheduled=[1, 0, 0, 2], compiled=[3, 0, 0, 1])
    quick = Run(epoch_s=[4.0] * 4, step_s=[0.005] * 4, scheduled=[1, 0, 0, 0], compiled=[1, 0, 0, 0])
    rows = [Row("a", "eager", slow, slow, torch_run), Row("a", "jit", quick, quick, torch_run)]
    assert worst(rows, counts=False) == "worst: a, eager: a warm step takes 5.00 of PyTorch's time, goal 1.5"
    assert worst(rows, counts=True) == "worst: a, eager: 1 compilations and 2 plannings after epoch 3"
    cells = [list(column.cells) for column in table(rows, counts=False).columns]
    assert cells[2] == ["2.00 s 2.00x", "4.00 s [red]4.00x[/red]"]
    assert cells[3] == ["50.00 ms [red]5.00x[/red]", "5.00 ms 0.50x"]
