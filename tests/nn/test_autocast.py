"""Mixed precision: what is computed in 16 bits, and how losses are scaled, as in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, dtypes, nn, optim
from picograd.nn import functional as F
from tests.helpers import same_value


@pytest.mark.req("C9")
def test_dtypes_of_results_are_pytorchs(device):
    x, w = Tensor.rand(4, 8), Tensor.rand(8, 8, requires_grad=True)
    with pg.autocast("cpu"):
        assert pg.is_autocast_enabled()
        low = x @ w
        found = [low, F.linear(x, w, w[0]), low + x, low.exp(), F.softmax(low, -1)]
        found += [F.cross_entropy(low, Tensor([0, 1, 2, 3])), F.layer_norm(low, (8,)), F.mse_loss(low, x)]
        found += [x.double() @ w.double()]
    names = ["bfloat16", "bfloat16", "float32", "bfloat16", "float32", "float32", "float32", "float32", "float64"]
    assert [str(tensor.dtype) for tensor in found] == names
    assert not pg.is_autocast_enabled() and (x @ w).dtype is dtypes.float32
    low.sum().backward()
    assert w.grad.dtype is dtypes.float32


@pytest.mark.req("C9")
def test_sums_of_products_by_equation_are_products(device):
    data = np.ones((3, 3), np.float32)
    for library, x in ((pg, Tensor(data)), (torch, torch.tensor(data))):
        with library.autocast("cpu"):
            found = [library.einsum("ij,jk->ik", x, x), library.tensordot(x, x, 1), library.einsum("ij->ji", x)]
        names = [str(tensor.dtype).removeprefix("torch.") for tensor in found]
        assert names == ["bfloat16", "bfloat16", "float32"]


def test_functions_that_have_weights_or_places_of_32_bits(device):
    """PyTorch's on a GPU, but for recurrent layers, whose states stay what they are."""
    x, grid, slopes = Tensor.rand(4, 4), Tensor.zeros(1, 2, 2, 2), Tensor([0.5])
    q, row = x.unsqueeze(0), x[0]
    with pg.autocast("cpu"):
        low = x @ x
        products = [x.addmm(x, x), row.addmv(x, row), x.addr(row, row), q.baddbmm(q, q), x.addbmm(q, q)]
        products += [F.scaled_dot_product_attention(q, q, q), F.scaled_dot_product_attention(q, q, q, Tensor.zeros(4, 4))]
        products += [F.prelu(low, slopes), nn.Sequential(nn.Linear(4, 4), nn.PReLU())(x)]
        wide = [F.prelu(x, slopes), x.clone().addmm_(x, x), F.grid_sample(low.reshape(1, 1, 4, 4), grid)]
        wide += [layer(4, 3)(x)[0] for layer in (nn.RNN, nn.GRU, nn.LSTM)]
        wide += [nn.RNN(4, 3, nonlinearity="relu")(x)[0], nn.RNNCell(4, 3)(x)]
    assert {tensor.dtype for tensor in products} == {dtypes.bfloat16}
    assert {tensor.dtype for tensor in wide} == {dtypes.float32}
    exact = (x + x @ x).numpy()
    same_value(products[0].float(), exact, rtol=2**-6)  # each operand, the product and the sum are off by 2^-9
    same_value(wide[1], exact, rtol=1e-6)


@pytest.mark.req("C9")
def test_training_is_pytorchs(device, rng):
    mine, other = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 3)), torch.nn.Sequential(
        torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 3)
    )
    mine.load_state_dict(other.state_dict())
    ours, theirs = optim.SGD(mine.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    for _ in range(5):
        x, y = rng.standard_normal((8, 6)).astype(np.float32), rng.integers(0, 3, 8)
        with pg.autocast("cpu"):
            loss = F.cross_entropy(mine(Tensor(x)), Tensor(y))
        with torch.autocast("cpu"):
            reference = torch.nn.functional.cross_entropy(other(torch.tensor(x)), torch.tensor(y))
        for optimizer, value in ((ours, loss), (theirs, reference)):
            optimizer.zero_grad(), value.backward(), optimizer.step()
        same_value(loss, reference, rtol=2e-2)  # some roundings to 2^-8 on the way
    assert mine[0].weight.dtype is dtypes.float32


def test_as_a_decorator_in_jit_and_switched_off():
    x = Tensor.rand(4, 4)

    @pg.jit
    @pg.autocast("cuda")
    def step(x):
        y = x @ x
        with pg.autocast("cpu", enabled=False):
            return y, x @ x

    for _ in range(3):
        low, full = step(x)
        assert (low.dtype, full.dtype) == (dtypes.float16, dtypes.float32)


# ---- scaling ----
FACTORS = (1.0, 2.0, float("inf"), 3.0, float("nan"), 1.0, 1.0, 1.0)


@pytest.mark.req("C9")
@pytest.mark.parametrize("make", [
    (lambda w: optim.SGD(w, lr=0.1, momentum=0.9), lambda v: torch.optim.SGD(v, lr=0.1, momentum=0.9)),
    (lambda w: optim.Adam(w, lr=0.1), lambda v: torch.optim.Adam(v, lr=0.1)),
], ids=["SGD", "Adam"])  # fmt: skip
@pytest.mark.parametrize("first", [0, 2], ids=["a good step first", "one that is left out first"])
def test_inside_jit_one_plan_takes_steps_and_leaves_them_out_as_pytorch_does(make, first):
    w, v = Tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
    settings = {"init_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}
    mine, other = pg.GradScaler(**settings), torch.amp.GradScaler("cpu", **settings)
    ours, theirs = make[0]([w]), make[1]([v])

    @pg.jit
    def step(factor: Tensor) -> Tensor:
        ours.zero_grad()
        loss = (w * w).sum() * factor
        mine.scale(loss).backward()
        mine.unscale_(ours)
        mine.step(ours)
        mine.update()
        return loss

    for factor in FACTORS[first:]:
        step(Tensor(factor))
        theirs.zero_grad()
        other.scale((v * v).sum() * factor).backward()
        other.step(theirs)
        other.update()
        assert mine.get_scale() == other.get_scale()
        same_value(w.detach(), v.detach(), rtol=1e-6)
    assert mine.state_dict() == other.state_dict() and step.num_captures == 1


def test_inside_jit_state_that_a_step_makes_is_refused():
    w = Tensor([1.0], requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=0.1, momentum=0.9, dampening=0.5), pg.GradScaler()

    @pg.jit
    def step() -> None:
        scaler.scale(w.sum()).backward()
        scaler.step(optimizer)

    with pytest.raises(pg.JitError, match="GradScaler.step: SGD makes new state in a function that is traced"):
        step()


def test_the_greatest_scale_is_finite():
    scaler = pg.GradScaler(init_scale=2.0**127, growth_interval=1)
    scaler.update()
    assert scaler.get_scale() == 2.0**127


@pytest.mark.req("C9")
def test_scales_change_as_pytorchs_do(rng):
    w, v = Tensor([1.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0], requires_grad=True)
    settings = {"init_scale": 8.0, "growth_interval": 2, "growth_factor": 4.0, "backoff_factor": 0.25}
    mine, other = pg.GradScaler(**settings), torch.amp.GradScaler("cpu", **settings)
    ours, theirs = optim.SGD([w], lr=0.1, momentum=0.9), torch.optim.SGD([v], lr=0.1, momentum=0.9)
    for factor in FACTORS:
        for scaler, optimizer, x in ((mine, ours, w), (other, theirs, v)):
            optimizer.zero_grad()
            scaler.scale((x * x).sum() * factor).backward()
            scaler.step(optimizer)
            scaler.update()
        assert mine.get_scale() == other.get_scale()
        same_value(w.detach(), v.detach(), rtol=1e-6)
    assert mine.state_dict() == other.state_dict()


def test_gradients_are_clipped_between():
    w = Tensor([3.0, 4.0], requires_grad=True)
    optimizer, scaler = optim.SGD([w], lr=1.0), pg.GradScaler(init_scale=1024.0)
    scaler.scale((w * w).sum() / 2).backward()
    scaler.unscale_(optimizer)
    assert nn.utils.clip_grad_norm_([w], 1.0).item() == pytest.approx(5.0)
    scaler.step(optimizer)
    np.testing.assert_allclose(w.detach().numpy(), [2.4, 3.2], rtol=1e-5)
    with pytest.raises(pg.ArgumentError, match="unscaled already"):
        scaler.unscale_(optimizer)
    scaler.update()


@pytest.mark.parametrize(("device", "dtype"), [
    ("cpu", pg.bfloat16), ("c", pg.bfloat16), ("cuda:0", pg.float16), ("CUDASIM", pg.float16), ("opencl", pg.bfloat16),
])  # fmt: skip
def test_a_device_says_what_is_usual(device, dtype):
    with pg.autocast(device):
        assert (Tensor([[1.0]]) @ Tensor([[2.0]])).dtype is dtype


def test_a_device_that_there_is_not_is_an_error():
    with pytest.raises(pg.DeviceError, match="TPU: this is not a device"):
        pg.autocast("tpu")


def test_not_enabled_everything_passes():
    w = Tensor([1.0], requires_grad=True)
    scaler = pg.GradScaler(enabled=False)
    scaler.scale(w.sum()).backward()
    scaler.step(optim.SGD([w], lr=0.5))
    assert w.item() == 0.5 and scaler.state_dict() == {}


@pytest.mark.parametrize(("call", "fact"), [
    (lambda: pg.autocast("cpu", dtypes.float64), "autocast: dtype must be bfloat16 or float16, got float64."),
    (lambda: pg.GradScaler(growth_factor=0.5),
     "GradScaler: growth_factor must be above 1 and backoff_factor in (0, 1), got 0.5 and 0.5."),
])  # fmt: skip
def test_errors(call, fact):
    with pytest.raises(pg.ArgumentError) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__
