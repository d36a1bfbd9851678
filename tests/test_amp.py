"""torch.amp, torch.cuda.amp and torch.random by their names."""

from __future__ import annotations

from typing import Any

import pytest

import picograd as pg


def test_amp_is_autocast_and_the_scaler() -> None:
    assert pg.amp.autocast is pg.autocast and pg.amp.GradScaler is pg.GradScaler is pg.cuda.amp.GradScaler
    x = pg.ones(2, 2)
    for context, dtype in (
        (pg.amp.autocast("cpu"), pg.bfloat16), (pg.amp.autocast("cuda"), pg.float16), (pg.cuda.amp.autocast(), pg.float16),
        (pg.cuda.amp.autocast(False), pg.float32), (pg.cuda.amp.autocast(True, pg.bfloat16), pg.bfloat16),
    ):  # fmt: skip
        with context:
            assert (x @ x).dtype == dtype
    assert pg.amp.is_autocast_available("cpu")


@pytest.mark.parametrize("cast", [None, pg.float32])
def test_a_function_computes_its_gradient_as_its_value(cast: Any) -> None:
    seen = []

    class Product(pg.autograd.Function):
        @staticmethod
        @pg.amp.custom_fwd(device_type="cpu", cast_inputs=cast)
        def forward(ctx: Any, x: pg.Tensor) -> pg.Tensor:
            ctx.save_for_backward(x)
            seen.append((x @ x).dtype)
            return (x @ x).float()

        @staticmethod
        @pg.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: pg.Tensor) -> pg.Tensor:
            (x,) = ctx.saved_tensors
            seen.append((x @ x).dtype)
            return grad.float() * 2

    x = pg.ones(2, 2, requires_grad=True)
    with pg.autocast("cpu"):
        y = Product.apply(x).sum()
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [[2.0, 2.0]] * 2
    assert {*seen} == {pg.bfloat16 if cast is None else pg.float32}


# ---- random numbers ----
def test_after_a_fork_the_generator_goes_on_as_before() -> None:
    pg.manual_seed(3)
    pg.rand(2)
    wanted = [pg.rand(3).tolist() for _ in range(2)]
    for enabled in (True, False):
        pg.manual_seed(3)
        pg.rand(2)
        with pg.random.fork_rng(enabled=enabled):
            pg.manual_seed(8)
            pg.rand(5, device="NUMPY")
            pg.rand(5)
        found = [pg.rand(3).tolist() for _ in range(2)]
        assert (found == wanted) is enabled and (pg.initial_seed() == 3) is enabled


def test_a_generator_knows_a_device() -> None:
    a, b = pg.Generator(device="cpu").manual_seed(5), pg.Generator("numpy").manual_seed(5)
    assert (a.device, b.device, pg.Generator(5).device) == ("cpu", "numpy", pg.get_default_device())
    assert pg.rand(3, generator=a).tolist() == pg.rand(3, generator=b).tolist()
    assert pg.rand(3, generator=a).tolist() != pg.rand(3, generator=pg.Generator(5)).tolist()
