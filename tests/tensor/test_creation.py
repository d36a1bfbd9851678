"""New tensors from rules, against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import ArgumentError, DTypeError, Tensor, dtypes
from tests.helpers import same_value


@pytest.mark.req("C1")
def test_from_lists_numbers_and_arrays(device):
    for data in (1, 2.5, True, [1, 2], [1.0, 2], [[True], [False]], [], np.ones((2, 2), np.int16), np.float64(3)):
        same_value(Tensor(data), torch.tensor(data))


@pytest.mark.req("C1")
def test_a_tensor_copies_what_it_is_made_from(device):
    array = np.zeros(3, np.float32)
    ours = Tensor(array)
    copy = Tensor(ours)
    array += 1
    ours += 2
    assert ours.tolist() == [2.0] * 3
    assert copy.tolist() == [0.0] * 3


@pytest.mark.req("C9")
def test_the_dtype_asked_for(device):
    assert Tensor([1.7], dtypes.int32).tolist() == [1]
    assert Tensor([1], dtype=dtypes.bfloat16).dtype is dtypes.bfloat16
    assert Tensor(Tensor([1]), dtypes.float64).dtype is dtypes.float64
    assert Tensor(np.array([1.0], dtypes.bfloat16.numpy)).dtype is dtypes.bfloat16


@pytest.mark.req("C1")
def test_constants(device):
    same_value(Tensor.zeros(2, 3), torch.zeros(2, 3))
    same_value(Tensor.zeros((2, 3), dtype=dtypes.int32), torch.zeros((2, 3), dtype=torch.int32))
    same_value(Tensor.ones(()), torch.ones(()))
    same_value(Tensor.full((2,), 7), torch.full((2,), 7))
    same_value(Tensor.full((2,), 0.5), torch.full((2,), 0.5))
    same_value(Tensor.full((), True), torch.full((), True))
    assert Tensor.empty(2, 0).shape == (2, 0)
    assert pg.zeros(2).tolist() == [0.0, 0.0]


@pytest.mark.req("C1")
@pytest.mark.parametrize(
    "args", [(5,), (0,), (2, 7), (2, 9, 3), (9, 2, -3), (1.5,), (0, 1, 0.25), (5, 2, -1.0), (0.0, -1.0, -0.5)]
)
def test_arange(args, device):
    same_value(Tensor.arange(*args), torch.arange(*args))


@pytest.mark.req("C1")
@pytest.mark.parametrize("args", [(0, 1, 5), (-3, 7, 11), (2, 2, 3), (1, 0, 4), (0, 1, 1), (0, 1, 0)])
def test_linspace_meets_both_ends(args, device):
    same_value(Tensor.linspace(*args), torch.linspace(*args))


@pytest.mark.req("C1")
def test_identity_matrices(device):
    same_value(Tensor.eye(3), torch.eye(3))
    same_value(Tensor.eye(2, 4, dtype=dtypes.int64), torch.eye(2, 4, dtype=torch.int64))


@pytest.mark.req("C1")
def test_like_another(device):
    x = Tensor(np.ones((2, 3), np.int32))
    assert (Tensor.zeros_like(x).dtype, Tensor.zeros_like(x).shape) == (dtypes.int32, (2, 3))
    assert Tensor.ones_like(x, dtype=dtypes.float32).tolist() == [[1.0] * 3] * 2
    assert Tensor.full_like(x, 7).tolist() == [[7] * 3] * 2
    assert x.new_zeros(2).dtype is dtypes.int32


@pytest.mark.req("G1")
def test_constants_take_no_memory_and_can_be_written_to(device):
    x = Tensor.zeros(3)
    x[1] = 5
    assert x.tolist() == [0.0, 5.0, 0.0]
    assert Tensor.zeros(3).tolist() == [0.0] * 3


@pytest.mark.req("C9")
def test_pythons_types_are_dtypes_as_in_pytorch(device):
    for kind in (float, int, bool):
        same_value(pg.ones(2, dtype=kind), torch.ones(2, dtype=kind))
        same_value(Tensor([1, 2], dtype=kind), torch.tensor([1, 2], dtype=kind))
        same_value(pg.ones(2).sum(dtype=kind), torch.ones(2).sum(dtype=kind))


MAKERS = {
    "zeros": lambda dtype: pg.zeros(2, dtype=dtype),
    "full": lambda dtype: pg.full((2,), 1, dtype=dtype),
    "arange": lambda dtype: pg.arange(3, dtype=dtype),
    "linspace": lambda dtype: pg.linspace(0, 1, 3, dtype=dtype),
    "eye": lambda dtype: pg.eye(2, dtype=dtype),
    "rand": lambda dtype: pg.rand(2, dtype=dtype),
    "randn": lambda dtype: pg.randn(2, dtype=dtype),
    "randint": lambda dtype: pg.randint(0, 3, (2,), dtype=dtype),
    "sum": lambda dtype: pg.ones(2).sum(dtype=dtype),
    "cumsum": lambda dtype: pg.ones(2).cumsum(0, dtype=dtype),
    "Tensor": lambda dtype: Tensor([1], dtype=dtype),
}


@pytest.mark.parametrize("name", MAKERS)
def test_what_is_no_dtype_is_refused_by_name(name):
    for wrong in ("float32", 3, np.float32):
        with pytest.raises(pg.DTypeError) as caught:
            MAKERS[name](wrong)
        assert caught.value.fact == f"{name}: dtype must be one of picograd's, got {wrong!r}."


@pytest.mark.parametrize("name", ["zeros", "ones", "empty", "rand", "randn"])
def test_a_shape_has_a_name_as_in_pytorch(name: str) -> None:
    make = getattr(pg, name)
    assert make(size=(2, 3)).shape == make((2, 3)).shape == make(2, 3).shape == (2, 3)
    with pytest.raises(ArgumentError, match=r"\(2, 3\) and \(2, 3\) are given for one argument; give one."):
        make(2, 3, size=(2, 3))


def test_a_shape_of_a_method_has_a_name_as_in_pytorch() -> None:
    x = pg.arange(6)
    assert x.reshape(shape=(2, 3)).shape == x.view(size=(2, 3)).shape == pg.reshape(x, shape=(2, -1)).shape == (2, 3)
    assert x.expand(size=(2, 6)).shape == pg.broadcast_to(x, size=(2, 6)).shape == (2, 6)
    assert x.new_zeros(size=(1,)).shape == x.new_ones(size=(1,)).shape == pg.full(size=(1,), fill_value=2).shape == (1,)
    assert x.view(dtype=pg.int32).tolist() == torch.arange(6).view(dtype=torch.int32).tolist()


def test_a_shape_where_data_belongs_is_told_from_it() -> None:
    with pytest.raises(DTypeError, match="Tensor: takes data and a dtype, got 5 and 4.") as caught:
        Tensor(5, 4)  # type: ignore[arg-type]
    assert caught.value.hint == "empty(5, 4, ...)"


def test_old_constructors_by_dtype(device: str) -> None:
    for name in ("Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long", "Bool"):
        mine, other = getattr(pg, f"{name}Tensor"), getattr(torch, f"{name}Tensor")
        assert mine(2, 3).shape == tuple(other(2, 3).shape) and mine(2).shape == (2,) and mine().shape == other().shape
        assert mine([[1, 0]]).tolist() == other([[1, 0]]).tolist()
        x, y = pg.tensor([0.0, 1.7]).type(mine), torch.tensor([0.0, 1.7]).type(other)
        assert x.tolist() == y.tolist() and str(x.dtype) == str(y.dtype).removeprefix("torch.")
        assert x.type() == mine == f"picograd.{name}Tensor"


def test_lengths_are_no_data() -> None:
    for lengths in ((2, 3), (2, 3, 4), (2, 3, 4, 5)):
        with pytest.raises(DTypeError, match=r"takes data and a dtype, got 2 and 3.\n.*\n? *hint: empty\(2, 3, ...\)"):
            Tensor(*lengths)


def test_a_variable_is_a_tensor_as_in_pytorch() -> None:
    for library in (pg, torch):
        of = library.autograd.Variable
        data = library.tensor([1.0, 2.0])
        x = of(data, requires_grad=True)
        (x * x).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0] and not data.requires_grad and isinstance(data, of)
        assert not of(x * 2).requires_grad and not isinstance(2.0, of)


def test_a_reversed_tensor_is_a_tensor() -> None:
    for library in (pg, torch):
        assert reversed(library.arange(6).reshape(3, 2)).tolist() == [[4, 5], [2, 3], [0, 1]]
        assert reversed(library.tensor(3)).tolist() == 3


def test_what_pytorch_has_and_picograd_has_not_says_what_to_write() -> None:
    with pytest.raises(AttributeError, match="'distributed'.\n  hint: a training runs in one process"):
        pg.distributed  # noqa: B018
    with pytest.raises(AttributeError, match="^module 'picograd' has no attribute 'nothing'$"):
        pg.nothing  # noqa: B018
    with pytest.raises(AttributeError, match="'picograd.cuda' has no attribute 'Stream'.\n  hint: kernels run in order"):
        pg.cuda.Stream()
    with pytest.raises(AttributeError, match="^module 'picograd.cuda' has no attribute 'nothing'$"):
        pg.cuda.nothing  # noqa: B018
    assert not hasattr(pg, "complex64")
