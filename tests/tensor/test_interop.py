"""Out of a tensor: arrays, numbers, text, copies."""

from __future__ import annotations

import copy
import ctypes
import operator
import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import picograd as pg
from picograd import DTypeError, GradientError, Tensor, dtypes
from picograd.errors import SharingError


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


def test_texts_of_one_number_are_its_own(device):
    assert (f"{Tensor(1.5)}", f"{Tensor(1.5):.4f}", f"{Tensor(3):>4}") == ("1.5", "1.5000", "   3")
    assert f"{Tensor([1.5])}" == "Tensor([1.5])"
    with pytest.raises(TypeError, match="formats one number, not a tensor of shape"):
        f"{Tensor([1.5]):.4f}"


def test_what_is_in_a_tensor(device):
    x = Tensor([[1, 2], [3, 4]])
    assert 3 in x and Tensor([1, 9]) in x and np.float32(2) in x and 5 not in x and "3" not in x and None not in x


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.matmul, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
]  # fmt: skip


@pytest.mark.req("C10")
@pytest.mark.parametrize("function", OPERATORS, ids=lambda function: function.__name__)
def test_an_array_is_an_operand_at_either_side(function, device):
    """PyTorch takes it at the right; at the left, NumPy would make an array of objects of it."""
    a, b = np.array([[1.5, 2.0], [3.0, 0.5]], np.float32), np.array([[2.0, 2.0], [1.0, 4.0]])
    expected = function(torch.tensor(a).double(), torch.tensor(b))
    for left, right in ((Tensor(a), b), (a.astype(np.float64), Tensor(b, dtypes.float64)), (a, Tensor(b))):
        found = function(left, right)
        assert isinstance(found, Tensor) and found.dtype.name == str(expected.dtype).removeprefix("torch.")
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6)
        assert found.device == device


def test_gradients_flow_past_an_array(device):
    x = Tensor([1.0, 2.0], requires_grad=True)
    (np.array([3.0, 4.0], np.float32) * x).sum().backward()
    assert x.grad.tolist() == [3.0, 4.0]
    x = Tensor([1.0, 2.0])
    x += np.array([1, 1])
    assert x.tolist() == [2.0, 3.0]
    with pytest.raises(DTypeError, match="Tensor: needs real numbers or bools"):
        x + np.array(["a", "b"])


def test_bits_of_arrays(device):
    for function in (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift):
        a, b = np.array([6, 5]), np.array([3, 1])
        for left, right in ((Tensor(a), b), (a, Tensor(b))):
            assert function(left, right).tolist() == function(a, b).tolist()


def test_layout_is_in_order(device):
    for shape in ((2, 3, 4), (2, 0, 3), ()):
        x, y = Tensor.zeros(*shape), torch.zeros(shape)
        assert (x.stride(), x.is_contiguous(), x.storage_offset()) == (y.stride(), True, 0)
    assert Tensor.zeros(2, 3).T.stride(0) == 2
    with pytest.raises(IndexError, match="stride: axis 2 is out of range"):
        Tensor.zeros(2, 3).stride(2)


def test_addresses(device):
    x = (Tensor.arange(12, dtype=dtypes.float32) + 1).reshape(3, 4)
    address = x.data_ptr()
    assert (x[1:].data_ptr(), x[1, 2:].data_ptr(), x.T.T.data_ptr()) == (address + 16, address + 24, address)
    assert (ctypes.c_float * 2).from_address(x[1, 2:].data_ptr())[:] == [7.0, 8.0]
    for view in (x.T, x[:, 1:], x.unsqueeze(0).expand(2, 3, 4)):
        with pytest.raises(SharingError, match="is not contiguous in memory"):
            view.data_ptr()
    assert x.T.contiguous().data_ptr() != address


def test_types_by_name(device):
    for name in ("float32", "float64", "float16", "bfloat16", "uint8", "int8", "int16", "int32", "int64", "bool"):
        x, y = Tensor([1]).cast(dtypes.dtype_named(name)), torch.tensor([1]).to(getattr(torch, name))
        assert x.type() == y.type().replace("torch", "picograd")
        assert Tensor([1]).type(x.type()).dtype is x.dtype is Tensor([1]).type(y.type()).dtype
    assert Tensor([True]).type(Tensor).dtype is pg.float32  # as torch.Tensor
    assert Tensor([1.5]).type(int).dtype is dtypes.int64 and Tensor([1], dtypes.uint16).type() == "picograd.Uint16Tensor"
    with pytest.raises(DTypeError) as caught:
        Tensor([1]).type("float")
    assert caught.value.fact == "type: there is no tensor type 'float'."


def test_dtypes_have_pythons_names(device):
    x = Tensor([1.5])
    assert (x.to(pg.int).dtype, x.to(int).dtype, x.to(dtype=bool).dtype) == (pg.int32, pg.int64, pg.bool)
    assert x.to(pg.bool).tolist() == [True] and pg.zeros(1, dtype=pg.float).dtype is pg.float32
    assert pg.float32.is_floating_point and pg.int8.is_signed and not pg.uint8.is_signed and not pg.half.is_complex
    assert pg.Size([2, 3]) == Tensor.zeros(2, 3).shape and isinstance(x.shape, pg.Size)
    with pytest.raises(DTypeError) as caught:
        x.to(str)
    assert caught.value.fact == "cast: dtype must be one of picograd's, got <class 'str'>."


def test_text(device):
    assert repr(Tensor([1.0, 2.5])) == "Tensor([1. , 2.5])"
    assert repr(Tensor([1], dtypes.int32)) == "Tensor([1], dtype=int32)"
    assert repr(Tensor([1.0, 0.1], dtypes.bfloat16)) == "Tensor([1.    , 0.1001], dtype=bfloat16)"
    assert repr(Tensor([1.0, -0.0], dtypes.float8_e5m2)) == "Tensor([ 1., -0.], dtype=float8_e5m2)"
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


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))], ids=["copy", "pickle"])
def test_copies_share_memory_as_their_originals_do(device, twin):
    x = Tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    tensors = {"x": x, "turned": x.T, "flat": x.view(6), "same": x.detach()}
    if twin is copy.deepcopy:
        tensors["row"] = x[1]
    copies = twin(tensors)
    assert {name: value.tolist() for name, value in copies.items()} == {n: v.tolist() for n, v in tensors.items()}
    for found in (tensors, copies):
        found["flat"][4] = 9.0
        assert found["x"].tolist() == [[0.0, 1.0, 2.0], [3.0, 9.0, 5.0]] == found["same"].tolist()
        assert found["turned"].tolist()[1] == [1.0, 9.0]
        assert "row" not in found or found["row"].tolist() == [3.0, 9.0, 5.0]
        found["flat"][4] = 4.0
    assert copies["x"].cell is not x.cell


def test_a_part_is_pickled_alone(device):
    assert len(pickle.dumps(Tensor.zeros(1000, 8)[3])) < 1000


def test_a_copy_of_a_leaf_has_its_gradient(device):
    import torch

    for library in (torch, pg):
        x = library.ones(2, requires_grad=True)
        (x * 2).sum().backward()
        twin = copy.deepcopy(x)
        assert twin.grad.tolist() == [2.0, 2.0] and twin.grad is not x.grad
        twin.grad.zero_()
        assert x.grad.tolist() == [2.0, 2.0]
        assert pickle.loads(pickle.dumps(x)).grad is None


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


def test_a_text_that_leaves_elements_out_says_the_shape() -> None:
    assert repr(Tensor.zeros(0, 3)) == "Tensor([], shape=(0, 3))"
    assert repr(Tensor.zeros(40, 50)).endswith(", shape=(40, 50))")
    assert repr(Tensor.zeros(0)) == "Tensor([])"


def test_a_notebook_shows_a_matrix_as_a_table_and_the_text_of_other_tensors() -> None:
    shown = Tensor([[1.5, float("nan")]], requires_grad=True)._repr_html_()
    assert "<caption>Tensor of shape (1, 2), float32, requires_grad=True</caption>" in shown
    assert ">1.5</td>" in shown and ">nan</td>" in shown
    assert Tensor(2.0)._repr_html_() == "<pre>Tensor(2.)</pre>"
    assert Tensor.zeros(3, 0)._repr_html_() == "<pre>Tensor([], shape=(3, 0))</pre>"
    assert Tensor.zeros(20, 30)._repr_html_().count("…") == 11 + 10


@pytest.mark.parametrize("name", ["CPU", "NUMPY"])
def test_what_numpy_has_no_arrays_for_is_said(name: str) -> None:
    deep, empty = Tensor.ones(*[1] * 65, device=name), Tensor.zeros(0, 2**62, 2**62, device=name)
    for read in (Tensor.numpy, Tensor.tolist, repr, pickle.dumps, np.asarray, np.from_dlpack):
        with pytest.raises(pg.ShapeError, match=r"NumPy's arrays have up to 64 axes, this tensor has 65\."):
            read(deep)
    for compute in (lambda: pg.linalg.det(deep), lambda: pg.linalg.det(deep.realize()), lambda: deep.to("NUMPY")):
        with pytest.raises(pg.ShapeError, match=r"NumPy's arrays have up to 64 axes, this tensor has 65\."):
            compute().sum().item()
    for read in (Tensor.numpy, Tensor.tolist, repr):
        with pytest.raises(pg.ShapeError, match=r"numpy: NumPy has no arrays of shape \(0, 4611686018427387904, 46116860"):
            read(empty)
    nested: object = 1.0
    for _ in range(65):
        nested = [nested]
    with pytest.raises(pg.ShapeError, match="Tensor: NumPy's arrays have up to 64 axes, these lists are nested deeper"):
        Tensor(nested)
    if name == "CPU":
        assert deep.sum().item() == 1.0 and deep.flatten().tolist() == [1.0]


def test_a_result_of_a_graph_is_not_copied_without_it(device):
    import torch

    for library in (torch, pg):
        result = library.ones(2, requires_grad=True) * 2
        with pytest.raises((RuntimeError, GradientError), match="deepcopy"):
            copy.deepcopy(result)
        again = pickle.loads(pickle.dumps(result))
        assert again.requires_grad and again.is_leaf and again.tolist() == [2.0, 2.0]
        assert copy.deepcopy(result.detach()).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "torch"])
def test_a_copy_of_a_network_has_no_gradients_and_one_of_another_leaf_has(library: Any) -> None:
    net, leaf = library.nn.Linear(2, 1), library.ones(2, requires_grad=True)
    (net(leaf) * 2).sum().backward()
    assert copy.deepcopy(net).weight.grad is None and net.weight.grad is not None
    assert copy.deepcopy(leaf).grad.tolist() == leaf.grad.tolist()


@pytest.mark.parametrize("library", [pg, torch], ids=["picograd", "torch"])
def test_a_tensor_keeps_attributes_and_its_copies_have_them_where_pytorchs_do(library: Any) -> None:
    plain, weight = library.ones(2), library.nn.Parameter(library.ones(2))
    for tensor in (plain, weight):
        tensor.no_decay = tensor.require_grad = [True]  # not requires_grad
        assert not hasattr(library.ones(2), "no_decay") and not plain.requires_grad
        for twin in (copy.copy(tensor), pickle.loads(pickle.dumps(tensor))):
            assert twin.no_decay == [True] and twin.tolist() == [1.0, 1.0]
    assert copy.copy(plain).no_decay is plain.no_decay
    twin = copy.deepcopy(plain)
    assert twin.no_decay == [True] and twin.no_decay is not plain.no_decay
    assert not hasattr(copy.deepcopy(weight), "no_decay")
