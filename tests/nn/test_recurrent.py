"""Recurrent layers and cells against PyTorch with the same weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, int64, nn
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from tests.calls import calls
from tests.helpers import same_value

LAYERS = ["RNN", "LSTM", "GRU"]
SETTINGS = [
    {},
    {"num_layers": 2},
    {"bidirectional": True, "num_layers": 2},
    {"bias": False, "batch_first": True},
]


def pair(name: str, *sizes: int, **settings) -> tuple[nn.Module, torch.nn.Module]:
    theirs = getattr(torch.nn, name)(*sizes, **settings)
    ours = getattr(nn, name)(*sizes, **settings)
    ours.load_state_dict({key: Tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    return ours, theirs


def parts(result) -> list:
    return [part for item in result for part in parts(item)] if isinstance(result, tuple) else [result]


def check_same(ours: nn.Module, theirs: torch.nn.Module, x: np.ndarray, state: list[np.ndarray] | None = None) -> None:
    """Compares values and the gradients of inputs, states and weights."""
    arrays = [x, *(state or [])]
    mine, other = ([make(a, requires_grad=True) for a in arrays] for make in (Tensor, torch.tensor))
    results = []
    for model, (first, *states) in ((ours, mine), (theirs, other)):
        given = () if state is None else (states[0] if len(states) == 1 else tuple(states),)
        results.append(parts(model(first, *given)))
    same_value(tuple(results[0]), tuple(results[1]), 1e-5, 1e-6)
    for result in results:
        sum((part * part).sum() * (i + 1) for i, part in enumerate(result)).backward()
    for a, b in zip(mine, other):
        # Sums over all steps, in another order.
        same_value(a.grad, b.grad, 1e-4, 1e-5)
    for name, parameter in theirs.named_parameters():
        same_value(dict(ours.named_parameters())[name].grad, parameter.grad, 1e-4, 1e-5)


@pytest.mark.variants
@pytest.mark.req("C7")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, settings, device, rng):
    ours, theirs = pair(name, 3, 4, **settings)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    check_same(ours, theirs, rng.standard_normal((5, 2, 3)).astype(np.float32))


@pytest.mark.variants(every=5)
@pytest.mark.req("C7")
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_from_a_state(name, batch_first, device, rng):
    ours, theirs = pair(name, 3, 4, 2, batch_first=batch_first)
    state = [rng.standard_normal((2, 2, 4)).astype(np.float32) for _ in range(1 + (name == "LSTM"))]
    check_same(ours, theirs, rng.standard_normal((2, 5, 3) if batch_first else (5, 2, 3)).astype(np.float32), state)


@pytest.mark.req("C7")
@pytest.mark.parametrize("name", LAYERS)
def test_one_sequence_without_a_batch(name, device, rng):
    check_same(*pair(name, 3, 4), rng.standard_normal((5, 3)).astype(np.float32))


@pytest.mark.req("C7")
@pytest.mark.parametrize("name", ["RNN", "RNNCell"])
def test_relu(name, device, rng):
    check_same(*pair(name, 3, 4, nonlinearity="relu"), rng.standard_normal((2, 3)).astype(np.float32))


@pytest.mark.variants(every=5)
@pytest.mark.req("C7")
@pytest.mark.parametrize("shape", [(2, 3), (3,)])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_cells(name, bias, shape, device, rng):
    ours, theirs = pair(f"{name}Cell", 3, 4, bias=bias)
    x = rng.standard_normal(shape).astype(np.float32)
    check_same(ours, theirs, x)
    state = [rng.standard_normal((*shape[:-1], 4)).astype(np.float32) for _ in range(1 + (name == "LSTM"))]
    check_same(ours, theirs, x, state)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_step_of_a_cell_is_one_formula(name: str, bias: bool) -> None:
    cell, x = getattr(nn, f"{name}Cell")(3, 4, bias=bias), Tensor.ones(2, 3)
    pg.realize(cell.parameters())
    states = parts(cell(x, cell(x)))
    codes = [op.code for op in toposort([state.op for state in states])]
    assert codes.count(OpCode.FORMULA) == 2 and OpCode.MATMUL not in codes and OpCode.SHRINK not in codes
    with pg.no_grad():
        same_value(tuple(parts(cell(x, cell(x)))), tuple(torch.tensor(state.detach().numpy()) for state in states))


def test_a_step_of_a_cell_calls_few_functions() -> None:
    cell, x, state = nn.LSTMCell(3, 4), Tensor.ones(2, 3), (Tensor.ones(2, 4), Tensor.ones(2, 4))
    with pg.no_grad():
        for _ in range(2):
            cell(x, state)
        assert calls(lambda: cell(x, state)) <= 35


def test_a_cell_in_an_autocast_block_has_the_values_of_the_layer(device) -> None:
    pg.manual_seed(0)
    layer, x = nn.GRU(3, 4), pg.randn(5, 2, 3)
    cell = nn.GRUCell(3, 4)
    cell.load_state_dict({key.removesuffix("_l0"): value for key, value in layer.state_dict().items()})
    with pg.autocast("cpu", dtype=pg.bfloat16):
        h, wanted = None, layer(x)[0]
        for x_NI in x:
            h = cell(x_NI, h)
    same_value(h, torch.tensor(wanted[-1].detach().numpy()), 2e-2, 2e-2)


@pytest.mark.req("C7")
def test_dropout_acts_between_layers_in_training_only(device, rng):
    x = Tensor(rng.standard_normal((5, 2, 3)).astype(np.float32))
    plain = nn.LSTM(3, 4, 2)
    dropped = nn.LSTM(3, 4, 2, dropout=0.5)
    dropped.load_state_dict(plain.state_dict())
    same_value(dropped.eval()(x)[0], torch.tensor(plain(x)[0].detach().numpy()))
    first, second = (dropped.train()(x)[0].detach().numpy() for _ in range(2))
    assert not np.array_equal(first, second)
    single = nn.LSTM(3, 4, 1, dropout=0.5)
    assert np.array_equal(*(single(x)[0].detach().numpy() for _ in range(2)))


@pytest.mark.req("C7")
def test_start_values_are_even_around_zero():
    values = np.concatenate([p.detach().numpy().ravel() for p in nn.LSTM(64, 25).parameters()])
    assert -0.2 <= values.min() < -0.199 and 0.199 < values.max() <= 0.2
    assert values.std() == pytest.approx(0.2 / math.sqrt(3), rel=0.03)


@pytest.mark.req("C7")
def test_a_long_sequence_is_one_loop(device):
    model = nn.LSTM(2, 3)
    short, long = (pg.count_ops(model(Tensor.ones(length, 1, 2))[0]) for length in (2, 500))
    assert short == long


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match=r"LSTM: input must be \(T, I\), or \(T, N, I\) with I = 3, got \(5, 2, 4\)"):
        nn.LSTM(3, 4)(Tensor.ones(5, 2, 4))
    with pytest.raises(DTypeError, match=r"GRU: input must be a float, got int64 of shape \(5, 2, 3\)"):
        nn.GRU(3, 4)(Tensor.ones(5, 2, 3, dtype=int64))
    with pytest.raises(ShapeError, match=r"GRU: the state must be \(1, 2, 4\), got \[\(1, 3, 4\)\]"):
        nn.GRU(3, 4)(Tensor.ones(5, 2, 3), Tensor.ones(1, 3, 4))
    with pytest.raises(ShapeError, match=r"the state must be \(\(2, 4\), \(2, 4\)\), got \[\(2, 4\)\]"):
        nn.LSTMCell(3, 4)(Tensor.ones(2, 3), Tensor.ones(2, 4))
    with pytest.raises(ShapeError, match=r"GRUCell: input must be \(N, I\), or \(I,\) with I = 3, got \(2, 4\)"):
        nn.GRUCell(3, 4)(Tensor.ones(2, 4))
    with pytest.raises(DTypeError, match=r"RNNCell: input must be a float, got int64 of shape \(2, 3\)"):
        nn.RNNCell(3, 4)(Tensor.ones(2, 3, dtype=int64))
    with pytest.raises(ArgumentError, match='nonlinearity must be "tanh" or "relu", got \'gelu\''):
        nn.RNN(3, 4, nonlinearity="gelu")
    with pytest.raises(ArgumentError, match="hidden_size must be at least 1, got 0"):
        nn.GRU(3, 0)
    with pytest.raises(ArgumentError, match="num_layers must be at least 1, got 0"):
        nn.GRU(3, 4, 0)
    with pytest.raises(ArgumentError, match="dropout must be a probability, got 2"):
        nn.GRU(3, 4, dropout=2.0)


def test_layers_are_printed_with_what_is_not_the_default():
    assert repr(nn.LSTM(3, 4, 2, batch_first=True)) == "LSTM(3, 4, num_layers=2, batch_first=True)"
    assert repr(nn.GRUCell(3, 4, bias=False)) == "GRUCell(3, 4, bias=False)"
