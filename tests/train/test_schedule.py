"""Learning rates and seeds by the number of a step."""

from __future__ import annotations

import math

import pytest

from picograd_programs.train.loop import cosine_with_warmup, seed_of_step


def nanogpt(step: int, lr: float, warmup: int, last: int) -> float:
    """Returns what nanoGPT's get_lr gives for min_lr = lr / 10."""
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if step > last:
        return lr / 10
    coefficient = 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / (last - warmup)))
    return lr / 10 + coefficient * (lr - lr / 10)


def test_learning_rates_are_nanogpts() -> None:
    for step in range(2100):
        assert cosine_with_warmup(step, 1e-3, 100, 2000) == pytest.approx(nanogpt(step, 1e-3, 100, 2000), rel=1e-12)


def test_a_training_shorter_than_the_warmup_only_rises() -> None:
    rates = [cosine_with_warmup(step, 1.0, 100, 10) for step in range(10)]
    assert rates == sorted(rates) and rates[-1] == pytest.approx(10 / 101)


def test_seeds_of_steps_differ() -> None:
    assert len({seed_of_step(seed, step) for seed in range(10) for step in range(100)}) == 1000
