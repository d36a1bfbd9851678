"""Test of exercise 5."""

from __future__ import annotations

from types import ModuleType

import picograd as pg


def arguments(device: str = "CPU") -> tuple[pg.Tensor, pg.Tensor]:
    pg.manual_seed(0)
    return pg.randn(5, 30, device=device), pg.randn(5, 30, device=device)


def test_both_gradients_are_right(exercise: ModuleType) -> None:
    x, y = arguments()
    report = exercise.gate_grad.check(pg.ones(5, 30), x, y)
    assert report, str(report)


def test_the_gate_has_that_gradient(exercise: ModuleType) -> None:
    report = exercise.gate.check(*arguments())
    assert report and "none is given" not in str(report), str(report)


def test_a_step_of_a_training_uses_it(exercise: ModuleType) -> None:
    x, y = arguments("CUDASIM")
    step = pg.jit(lambda x, y: pg.grad(lambda x, y: exercise.gate(x, y).square().mean(), (0, 1))(x, y))
    expected = pg.grad(lambda x, y: (pg.nn.functional.silu(x) * y).square().mean(), (0, 1))(x, y)
    for _ in range(3):
        for found, wanted in zip(step(x, y), expected):
            assert pg.allclose(found, wanted, atol=1e-6), "a captured step has other gradients than silu(x) * y"
