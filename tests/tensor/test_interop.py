"""Out of a tensor: arrays, numbers, text, copies."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from picograd import GradientError, Tensor, dtypes


def test_arrays_are_copies(device):
    x = Tensor([1.0, 2.0])
    array = x.numpy()
    array += 1
    assert x.tolist() == [1.0, 2.0]
    assert np.asarray(x).dtype == np.float32
    assert np.array(x, dtype=np.float64).dtype == np.float64
    assert Tensor([1.0], dtypes.bfloat16).numpy().dtype == ml_dtypes.bfloat16


def test_numpy_would_lose_gradients(device):
    with pytest.raises(GradientError, match="would lose them"):
        Tensor([1.0], requires_grad=True).numpy()


def test_python_numbers(device):
    assert Tensor(2.5).item() == 2.5
    assert isinstance(Tensor([3]).item(), int)
    assert Tensor([[True]]).item() is True
    assert (float(Tensor(2.5)), int(Tensor(2)), bool(Tensor(0))) == (2.5, 2, False)
    assert [10, 20, 30][Tensor(1)] == 20
    assert f"{Tensor(2.5):.2f}" == "2.50"
    assert Tensor([[1, 2], [3, 4]]).tolist() == [[1, 2], [3, 4]]
    assert Tensor(4).tolist() == 4


def test_text(device):
    assert repr(Tensor([1.0, 2.5])) == "Tensor([1. , 2.5])"
    assert repr(Tensor([1], dtypes.int32)) == "Tensor([1], dtype=int32)"
    assert repr(Tensor(1.0, requires_grad=True)) == "Tensor(1., requires_grad=True)"


@pytest.mark.req("B9")
def test_copies_are_independent(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    (x * 2).sum().backward()
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.tolist() == [1.0, 2.0] and twin.requires_grad and twin.is_leaf
        assert twin.cell is not x.cell
        twin.detach().zero_()
    assert x.tolist() == [1.0, 2.0]


def test_clone_has_storage_of_its_own_and_gradients(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x.clone()
    y[0] = 9.0
    assert x.tolist() == [1.0, 2.0] and y.tolist() == [9.0, 2.0]
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]


def test_facts_of_a_tensor(device):
    x = Tensor.zeros(2, 3, dtype=dtypes.float16)
    assert (x.ndim, x.dim(), x.numel(), x.nbytes, x.element_size()) == (2, 2, 6, 12, 2)
    assert (x.size(), x.size(1), x.shape, x.device) == ((2, 3), 3, (2, 3), device)


@pytest.mark.req("C10")
def test_torch_tensors_are_read_as_arrays(device):
    import torch

    assert Tensor(torch.tensor([1.5, 2.5])).tolist() == [1.5, 2.5]
