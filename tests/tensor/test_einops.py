"""The functions of the package einops on tensors, as on PyTorch's."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import einops
import numpy as np
import pytest
import torch
from einops.layers import torch as torch_layers

import picograd as pg
from picograd import Tensor
from picograd.nn import einops as layers
from tests.helpers import same_value

CALLS = [
    ("rearrange", ("a (b c) d -> d (a c) b",), {"b": 2}),
    ("rearrange", ("a b ... -> ... (b a)",), {}),
    ("reduce", ("a (b c) d -> a b", "mean"), {"c": 2}),
    ("reduce", ("a b d -> () d", "max"), {}),
    ("reduce", ("a b d -> b", "prod"), {}),
    ("repeat", ("a b d -> a (n b) d m",), {"n": 2, "m": 3}),
]


@pytest.mark.req("C10")
@pytest.mark.parametrize(("function", "args", "lengths"), CALLS, ids=[args[0] for _, args, _ in CALLS])
def test_patterns_with_gradients(function, args, lengths, device, rng):
    data = rng.standard_normal((2, 4, 3))
    ours, theirs = Tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    mine, other = (getattr(einops, function)(x, *args, **lengths) for x in (ours, theirs))
    same_value(mine, other)
    (other * other).sum().backward()
    same_value(pg.grad((mine * mine).sum(), [ours])[0], theirs.grad)


@pytest.mark.req("C10")
def test_lists_and_packs(device):
    parts = [Tensor([[1, 2]]), Tensor([[3, 4]])]
    assert einops.rearrange(parts, "n a b -> (n a) b").tolist() == [[1, 2], [3, 4]]
    packed, shapes = einops.pack(parts, "* b")
    assert packed.shape == (2, 2)
    assert [part.tolist() for part in einops.unpack(packed, shapes, "* b")] == [[[1, 2]], [[3, 4]]]
    assert np.array_equal(einops.asnumpy(parts[0]), [[1, 2]])


@pytest.mark.req("C10")
def test_einsum(device, rng):
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((2, 4, 5))
    pattern = "batch row inner, batch inner column -> batch column row"
    mine = einops.einsum(Tensor(a), Tensor(b), pattern)
    same_value(mine, einops.einsum(torch.tensor(a), torch.tensor(b), pattern))


@pytest.mark.req("C10")
@pytest.mark.parametrize("imports", ["import einops, picograd as pg", "import picograd as pg, einops"])
def test_einops_knows_tensors_whichever_is_imported_first(imports):
    code = f"{imports}; print(einops.rearrange(pg.tensor([[1, 2]]), 'a b -> b a').tolist())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[[1], [2]]\n"


def test_layers(device, rng):
    data = rng.standard_normal((2, 4, 3, 3)).astype(np.float32)
    for ours, theirs, args, lengths in (
        (layers.Rearrange, torch_layers.Rearrange, ("n (a b) h w -> n b (h w) a",), {"a": 2}),
        (layers.Reduce, torch_layers.Reduce, ("n (a b) h w -> n b", "max"), {"a": 2}),
    ):
        mine, other = ours(*args, **lengths), theirs(*args, **lengths)
        assert str(mine) == str(other)
        x = Tensor(data, requires_grad=True)
        same_value(mine(x), other(torch.tensor(data)))
        same_value(pg.jit(mine)(x.detach()), other(torch.tensor(data)))
        mine(x).square().sum().backward()
        same_value(copy.deepcopy(mine)(x), pickle.loads(pickle.dumps(mine))(x))
    net = pg.nn.Sequential(pg.nn.Conv2d(4, 2, 2), layers.Rearrange("n c h w -> n (c h w)"), pg.nn.LazyLinear(5))
    assert net(Tensor(data)).shape == (2, 5) and len(net.state_dict()) == 4
    with pytest.raises(einops.EinopsError, match="Wrong shape: expected 4 dims"):
        net[1](Tensor([1.0]))
