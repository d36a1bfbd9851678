"""argsort, sort and topk against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from picograd import Tensor
from picograd.errors import ArgumentError
from tests.helpers import same_as_torch, same_value


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((5,), 0), ((), 0), ((3, 4), 0), ((2, 3, 4), -2)])
def test_equal_elements_keep_their_order(shape, dim, descending, device, rng):
    numbers = rng.integers(0, 3, shape).astype(np.int32)
    mine = Tensor(numbers).sort(dim, descending)
    theirs = torch.sort(torch.tensor(numbers), dim=dim, descending=descending, stable=True)
    same_value(tuple(mine), tuple(theirs))
    same_value(Tensor(numbers).argsort(dim, descending), theirs.indices)


def test_nan_is_greatest(device):
    numbers = np.array([1.0, np.nan, -np.inf, np.inf], np.float32)
    assert Tensor(numbers).argsort().tolist() == torch.tensor(numbers).argsort().tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize("largest", [True, False])
def test_topk_and_its_gradient(largest, device, rng):
    same_as_torch(lambda x: x.topk(2, 1, largest).values, rng.permutation(12).reshape(3, 4).astype(np.float32))
    numbers = rng.permutation(12).reshape(3, 4)
    same_value(Tensor(numbers).topk(3, 0, largest).indices, torch.tensor(numbers).topk(3, 0, largest).indices)


def test_topk_of_too_many_is_refused():
    with pytest.raises(ArgumentError, match=r"k must be from 0 to 3, the length of axis -1 of \(3,\); got 4"):
        Tensor([1, 2, 3]).topk(4)
    with pytest.raises(ArgumentError, match=r"topk: k must be from 0 to 3, .*; got 1\.5"):
        Tensor([1, 2, 3]).topk(1.5)
