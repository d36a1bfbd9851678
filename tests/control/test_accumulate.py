"""pg.accumulate: the gradients of the mean loss over small batches, from one LOOP."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import ArgumentError, GradientError
from picograd.ir.opcode import OpCode
from tests.control.graphs import merged_ops, of_code


@pytest.mark.req("G6")
def test_accumulated_gradients_are_those_of_the_mean_loss(device: str, rng: np.random.Generator) -> None:
    model = pg.nn.MLP(3, [4, 1])
    xs = Tensor(rng.standard_normal((5, 8, 3)).astype(np.float32))
    targets = Tensor(rng.standard_normal((5, 8, 1)).astype(np.float32))

    def loss_of(x: Tensor, target: Tensor) -> Tensor:
        return ((model(x) - target) ** 2).mean()

    for times in (1, 2):  # a second call adds to what is there
        loss = pg.accumulate(loss_of, xs, targets)
        mine = [p.grad.numpy() for p in model.parameters()]
        whole = loss_of(xs.reshape(40, 3), targets.reshape(40, 1))
        reference = pg.grad(whole, list(model.parameters()))
        assert loss.item() == pytest.approx(whole.item(), rel=1e-5) and not loss.requires_grad
        for grad, other in zip(mine, reference):
            np.testing.assert_allclose(grad, times * other.numpy(), rtol=1e-4, atol=1e-6)


def test_accumulate_is_one_loop(rng: np.random.Generator) -> None:
    w = Tensor(rng.standard_normal((3, 2)), requires_grad=True)
    loss = pg.accumulate(lambda x: (x @ w).tanh().sum(), Tensor(rng.standard_normal((5, 8, 3))))
    assert len(of_code(OpCode.LOOP, merged_ops([loss, w.grad]))) == 1


def test_accumulate_needs_small_batches() -> None:
    with pytest.raises(ArgumentError, match=r"accumulate: needs at least one small batch, stacked along a first axis\."):
        pg.accumulate(lambda x: x.sum(), Tensor.zeros(0, 2))


def test_accumulate_needs_a_loss_that_is_a_tensor() -> None:
    with pytest.raises(GradientError, match=r"accumulate: <lambda> must return its loss, a scalar Tensor, got float\."):
        pg.accumulate(lambda x: 3.0, Tensor.ones(2, 2))  # type: ignore[arg-type, return-value]
