"""Start values: what PyTorch's have in common with them, and their distributions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn

GAINS = ["linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "selu", "leaky_relu"]


@pytest.mark.req("C7")
@pytest.mark.parametrize("name", GAINS)
def test_gains_equal_pytorchs(name):
    assert nn.init.calculate_gain(name) == torch.nn.init.calculate_gain(name)
    assert nn.init.calculate_gain("leaky_relu", 0.2) == torch.nn.init.calculate_gain("leaky_relu", 0.2)


@pytest.mark.parametrize(("name", "shape", "more"), [
    ("eye_", (3, 5), ()), ("zeros_", (2, 3), ()), ("ones_", (2, 3), ()), ("constant_", (2, 3), (0.5,)),
    ("dirac_", (4, 2, 3), ()),
    ("dirac_", (4, 2, 3, 3), (2,)), ("dirac_", (2, 3, 3, 2, 4), ()),
])  # fmt: skip
def test_equal_pytorchs(name, shape, more, device):
    ours = getattr(nn.init, name)(Tensor.full(shape, 7.0), *more)
    theirs = getattr(torch.nn.init, name)(torch.full(shape, 7.0), *more)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.req("C7")
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 3), (4, 4)])
def test_orthogonal(shape):
    w = nn.init.orthogonal_(Tensor.zeros(*shape, requires_grad=True), gain=2.0)
    assert w.requires_grad and w.is_leaf
    flat = w.detach().numpy().reshape(shape[0], -1)
    small = flat @ flat.T if flat.shape[0] < flat.shape[1] else flat.T @ flat
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-5)


def test_sparse():
    w = nn.init.sparse_(Tensor.zeros(100, 20), 0.3, std=2.0).numpy()
    assert ((w == 0).sum(0) == 30).all() and abs(w[w != 0].std() - 2.0) < 0.15


@pytest.mark.parametrize(("call", "fact"), [
    (lambda: nn.init.eye_(Tensor.zeros(2)), "eye_: tensor must have two axes, got (2,)."),
    (lambda: nn.init.dirac_(Tensor.zeros(3, 2, 1), 2), "dirac_: 2 groups do not divide the first axis of (3, 2, 1)."),
    (lambda: nn.init.orthogonal_(Tensor.zeros(2)), "orthogonal_: tensor must have two axes at least, got (2,)."),
    (lambda: nn.init.sparse_(Tensor.zeros(2, 2), 2.0), "sparse_: sparsity must be in [0, 1], got 2.0."),
])  # fmt: skip
def test_errors(call, fact):
    with pytest.raises(pg.PicogradError) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__
