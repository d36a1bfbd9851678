"""Activations beyond the table: where pieces meet, in place, drawn ones, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as reference

import picograd as pg
from picograd import Tensor, dtypes, nn
from picograd.nn import functional
from tests.helpers import same_as_torch, same_value

PIECES = ["relu", "hardtanh", "relu6", "hardsigmoid", "hardswish", "hardshrink", "softshrink", "leaky_relu", "elu", "selu",
          "celu", "softplus", "logsigmoid", "mish", "silu", "gelu", "softsign", "tanhshrink"]  # fmt: skip


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", PIECES)
def test_gradients_where_pieces_meet(name, device):
    points = np.array([-3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0, 20.0, 25.0, 80.0, -80.0], np.float32)
    same_as_torch(getattr(functional, name), points, reference=getattr(reference, name))


@pytest.mark.parametrize("name", PIECES)
def test_nan_stays(name, device):
    assert np.isnan(getattr(functional, name)(Tensor([float("nan")])).item())


IN_PLACE = ["relu", "hardtanh", "relu6", "hardsigmoid", "hardswish", "leaky_relu", "elu", "selu", "celu", "mish", "silu"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name, device):
    values = np.array([-1.5, 0.5, 8.0], np.float32)
    x = Tensor(values)
    alias = x[1:]
    assert getattr(functional, name)(x, inplace=True) is x
    expected = getattr(reference, name)(torch.tensor(values)).numpy()
    np.testing.assert_allclose(x.numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(alias.numpy(), expected[1:], rtol=1e-6)


def test_rrelu_draws_a_slope_for_each_element(device):
    x = Tensor.full((1000,), -1.0)
    slopes = -functional.rrelu(x, 0.25, 0.75, training=True).numpy()
    assert slopes.min() >= 0.25 and slopes.max() < 0.75 and abs(slopes.mean() - 0.5) < 0.02


def test_gumbel_softmax_draws_classes_by_their_chance(device):
    logits = Tensor(np.log(np.tile(np.float32([0.2, 0.5, 0.3]), (4000, 1))), requires_grad=True)
    drawn = functional.gumbel_softmax(logits, tau=0.5, hard=True)
    np.testing.assert_allclose(drawn.detach().numpy().mean(0), [0.2, 0.5, 0.3], atol=0.03)
    drawn[:, 0].sum().backward()
    assert np.isfinite(logits.grad.numpy()).all() and (logits.grad.numpy() != 0).any()
    soft = functional.gumbel_softmax(logits.detach(), dim=0).numpy()
    np.testing.assert_allclose(soft.sum(0), 1.0, rtol=1e-4)


def test_16_bits_are_computed_in_32(device, rng):
    x = rng.standard_normal(512).astype(np.float32) * 4
    ours = functional.mish(Tensor(x, dtypes.bfloat16)).float().numpy()
    theirs = reference.mish(torch.tensor(x).bfloat16()).float().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=2**-8)


@pytest.mark.parametrize(
    ("call", "kind", "fact"),
    [
        (lambda: functional.elu(Tensor([1])), pg.DTypeError, "elu: needs a float, got int64 of shape (1,)."),
        (lambda: functional.relu6(Tensor([True])), pg.DTypeError, "relu6: needs numbers, got bool of shape (1,)."),
        (lambda: functional.celu(Tensor([1.0]), 0.0), pg.ArgumentError, "celu: alpha must not be 0."),
        (lambda: functional.softshrink(Tensor([1.0]), -1.0), pg.ArgumentError,
         "softshrink: lambd must not be negative, got -1.0."),
        (lambda: functional.hardtanh(Tensor([1.0]), 1.0, 0.0), pg.ArgumentError,
         "hardtanh: min_val must be at most max_val, got 1.0 and 0.0."),
        (lambda: functional.glu(Tensor([1.0, 2.0, 3.0])), pg.ShapeError,
         "glu: axis -1 of shape (3,) must be of even length to be halved."),
        (lambda: functional.prelu(Tensor.zeros(2, 3), Tensor.zeros(2)), pg.ShapeError,
         "prelu: weight (2,) must be (1,) or (3,) for input (2, 3)."),
        (lambda: functional.gumbel_softmax(Tensor([1.0]), 0.0), pg.ArgumentError,
         "gumbel_softmax: tau must be positive, got 0.0."),
        (lambda: functional.rrelu(Tensor([1.0]), 0.5, 0.1), pg.ArgumentError,
         "rrelu: lower must be at most upper, got 0.5 and 0.1."),
    ],
)  # fmt: skip
def test_errors(call, kind, fact):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__


# ---- as modules ----
MODULES = [
    ("ReLU", ()), ("ReLU6", ()), ("Hardtanh", (-0.5, 2.0)), ("Hardsigmoid", ()), ("Hardswish", ()), ("Hardshrink", (0.7,)),
    ("Softshrink", (0.7,)), ("LeakyReLU", (0.3,)), ("PReLU", (3,)), ("PReLU", ()), ("ELU", (1.5,)), ("SELU", ()),
    ("CELU", (1.5,)), ("Threshold", (0.5, -1.0)), ("Tanh", ()), ("Sigmoid", ()), ("GELU", ("tanh",)), ("SiLU", ()),
    ("Mish", ()), ("Softplus", (2.0, 3.0)), ("LogSigmoid", ()), ("Softsign", ()), ("Tanhshrink", ()), ("GLU", (2,)),
    ("Softmax", (1,)), ("LogSoftmax", (1,)), ("Softmin", (1,)), ("Softmax2d", ()),
]  # fmt: skip


@pytest.mark.req("C7")
@pytest.mark.parametrize(("name", "args"), MODULES)
def test_modules_equal_pytorch(name, args, rng):
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32) * 2
    mine, other = getattr(nn, name)(*args), getattr(torch.nn, name)(*args)
    same_value(mine(Tensor(x)), other(torch.tensor(x)))
    assert list(mine.state_dict()) == list(other.state_dict())
    assert repr(mine).startswith(f"{name}(")


def test_rrelu_module_draws_while_training():
    layer = nn.RReLU(0.25, 0.75)
    x = Tensor.full((100,), -1.0)
    assert len(set(layer(x).tolist())) > 50
    assert set(layer.eval()(x).tolist()) == {-0.5}


def test_softmax_without_an_axis_takes_pytorchs_and_warns():
    for name in ("softmax", "log_softmax", "softmin"):
        for shape in ((), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5)):
            x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
            with pytest.warns(UserWarning, match=f"{name}: dim is missing for shape"):
                found = getattr(pg.nn.functional, name)(Tensor(x))
            with pytest.warns(UserWarning, match="Implicit dimension choice"):
                wanted = getattr(torch.nn.functional, name)(torch.tensor(x))
            np.testing.assert_allclose(found.numpy(), wanted.numpy(), atol=1e-6)
