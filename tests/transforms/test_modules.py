"""Modules as functions of their state."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg
from picograd import ArgumentError, Tensor, nn


class Tied(nn.Module):
    """Two layers with one weight, and a buffer."""

    def __init__(self) -> None:
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("shift", Tensor([1.0, 2.0]))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.second(self.first(x)) * scale + self.shift


def test_other_values_are_used_and_the_own_come_back() -> None:
    net, x = Tied(), Tensor([[1.0, 1.0]])
    before = net(x).detach().numpy()
    double = {"first.weight": Tensor([[2.0, 0.0], [0.0, 2.0]]), "shift": Tensor([0.0, 0.0])}
    assert pg.functional_call(net, double, (x,)).tolist() == [[4.0, 4.0]]
    assert pg.functional_call(net, double, x, {"scale": 10.0}).tolist() == [[40.0, 40.0]]
    assert pg.functional_call(net, [{"first.weight": double["first.weight"]}, {"shift": double["shift"]}], x).tolist() == [
        [4.0, 4.0]
    ]
    np.testing.assert_array_equal(net(x).detach().numpy(), before)
    assert net.second.weight is net.first.weight


def test_a_tied_tensor_is_replaced_everywhere_or_where_it_is_named() -> None:
    net, x = Tied(), Tensor([[1.0, 1.0]])
    with pg.no_grad():
        net.first.weight.copy_(Tensor([[1.0, 0.0], [0.0, 1.0]]))
    double = {"first.weight": Tensor([[2.0, 0.0], [0.0, 2.0]]), "shift": Tensor([0.0, 0.0])}
    assert pg.functional_call(net, double, x).tolist() == [[4.0, 4.0]]
    assert pg.functional_call(net, double, x, tie_weights=False).tolist() == [[2.0, 2.0]]


def test_the_own_come_back_after_an_error() -> None:
    net = nn.Linear(2, 2)
    own = net.weight
    with pytest.raises(pg.ShapeError):
        pg.functional_call(net, {"weight": Tensor.ones(3, 5)}, Tensor.ones(1, 2))
    assert net.weight is own


def test_paths_are_checked() -> None:
    net, x = nn.Linear(2, 1), Tensor.ones(1, 2)
    with pytest.raises(ArgumentError) as error:
        pg.functional_call(net, {"wait": x}, x)
    assert error.value.fact == "functional_call: 'wait' is not a path of Linear."
    assert error.value.hint == "its paths are 'weight', 'bias'."
    with pytest.raises(ArgumentError, match="functional_call: 'bias' of Linear is missing, and strict=True"):
        pg.functional_call(net, {"weight": net.weight}, x, strict=True)
    with pytest.raises(ArgumentError, match="functional_call: 'weight' is given twice"):
        pg.functional_call(net, [{"weight": net.weight}, {"weight": net.weight}], x)


def test_under_jit_the_parameters_are_arguments() -> None:
    net, x = nn.Linear(2, 1), Tensor.ones(1, 2)
    captured = pg.jit(lambda params, x: pg.functional_call(net, params, x))
    for value in (1.0, 2.0, 3.0):
        params = {"weight": Tensor.full((1, 2), value), "bias": Tensor([0.5])}
        assert captured(params, x).item() == 2 * value + 0.5


def test_states_are_stacked() -> None:
    models = [Tied() for _ in range(3)]
    params, buffers = pg.func.stack_module_state(models)
    assert (list(params), list(buffers)) == (["first.weight"], ["shift"])
    assert params["first.weight"].shape == (3, 2, 2) and params["first.weight"].is_leaf
    np.testing.assert_array_equal(params["first.weight"].detach().numpy()[1], models[1].first.weight.detach().numpy())
    with pytest.raises(ArgumentError, match="stack_module_state: there is no model"):
        pg.func.stack_module_state([])
    with pytest.raises(ArgumentError, match="model 1 is a Linear in eval mode, model 0 a Linear in train mode"):
        pg.func.stack_module_state([nn.Linear(1, 1), nn.Linear(1, 1).eval()])
