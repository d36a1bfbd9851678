"""Memory shared with other libraries: DLPack both ways, who sees whose writes, what is refused."""

from __future__ import annotations

import ctypes
import gc
import weakref

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, dtypes
from picograd.errors import ArgumentError, DTypeError, GradientError, JitError, SharingError

VIEWS = [
    np.s_[:], np.s_[::2], np.s_[:, 1:4], np.s_[::-1, ::2], np.s_[1:3, ::-2], np.s_[2], np.s_[None, :, None, 1:],
    np.s_[1:2, 2:3],
]  # fmt: skip
TORCH = [
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
FLOAT8 = [(torch.float8_e4m3fn, dtypes.float8_e4m3), (torch.float8_e5m2, dtypes.float8_e5m2)]


def address(array: np.ndarray) -> int:
    return array.ctypes.data


# ---- in: the memory of another library ----
@pytest.mark.req("C10")
@pytest.mark.parametrize("index", VIEWS, ids=str)
def test_any_view_of_an_array_is_taken_without_a_copy(device, index):
    array = np.arange(24.0).reshape(4, 6)
    x = Tensor.from_dlpack(array[index], copy=False)
    assert x.tolist() == array[index].tolist()
    array *= 2
    assert x.tolist() == array[index].tolist()


@pytest.mark.req("C10")
@pytest.mark.parametrize("index", VIEWS, ids=str)
def test_what_picograd_writes_is_in_the_array_at_once(device, index):
    array, expected = np.arange(24.0).reshape(4, 6), np.arange(24.0).reshape(4, 6)
    x = Tensor.from_dlpack(array[index], copy=False)
    x += 100
    expected[index] += 100
    assert (array == expected).all()


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_permuted_axes_are_views(device, order):
    array = np.arange(24).reshape(2, 3, 4).transpose(order)
    x = Tensor.from_dlpack(array, copy=False)
    assert x.tolist() == array.tolist()
    x[0] = 7
    assert (array[0] == 7).all()


def test_a_repeated_axis_is_read_and_not_written(device):
    array = np.broadcast_to(np.arange(3), (2, 3))
    x = Tensor.from_dlpack(torch.arange(3).expand(2, 3), copy=False)
    assert x.tolist() == array.tolist()
    with pytest.raises(ValueError, match="cannot be written through expand"):
        x += 1


def test_scalars_and_empty_arrays(device):
    value = torch.tensor(2.5)
    x = Tensor.from_dlpack(value, copy=False)
    value += 1
    assert x.shape == () and x.item() == 3.5
    assert Tensor.from_dlpack(np.zeros((2, 0, 3), np.float32)).shape == (2, 0, 3)


@pytest.mark.parametrize("kind", TORCH, ids=str)
def test_pytorch_and_picograd_share_each_dtype_both_ways(device, kind):
    given = torch.tensor([0, 1, 1, 0]).to(kind)
    x = Tensor.from_dlpack(given, copy=False)
    assert str(x.dtype) == str(given.dtype).removeprefix("torch.") and x.tolist() == given.tolist()
    back = torch.from_dlpack(x)
    assert back.dtype is kind and back.data_ptr() == given.data_ptr()
    x[0] = 1
    assert given.tolist()[0] == back.tolist()[0] == 1


@pytest.mark.parametrize(("theirs", "ours"), FLOAT8, ids=str)
def test_float8_arrives(device, theirs, ours):
    given = torch.tensor([1.0, -2.0, 0.5]).to(theirs)
    x = Tensor.from_dlpack(given)
    assert x.dtype is ours and x.cast(dtypes.float32).tolist() == [1.0, -2.0, 0.5]
    assert torch.from_dlpack(x).dtype is theirs


def test_an_older_capsule_gives_read_only_memory(device):
    class Older:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, stream=None):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    array = np.arange(3.0)
    x = Tensor.from_dlpack(Older(array))
    array[0] = 5
    assert x.tolist() == [5.0, 1.0, 2.0]
    with pytest.raises(SharingError, match="made read-only by another library"):
        x += 1


def test_memory_lives_as_long_as_a_view_of_it(device):
    class Array(np.ndarray):
        pass

    array = np.arange(4.0).view(Array)
    alive = weakref.ref(array)
    x = Tensor.from_dlpack(array)
    view = x[1:]
    del array, x
    gc.collect()
    assert alive() is not None and view.tolist() == [1.0, 2.0, 3.0]
    del view
    gc.collect()
    assert alive() is None


# ---- what is computed from shared memory ----
def test_a_graph_reads_the_memory_each_time_it_is_computed(device):
    array = np.zeros(2)
    x = Tensor.from_dlpack(array)
    y = (x + 1).realize()
    array[:] = 10
    assert y.tolist() == [1.0, 1.0], "computed before"
    assert (x + 1).tolist() == [11.0, 11.0], "not the value that was computed before"


def test_a_graph_keeps_the_value_from_before_a_write_of_picograd(device):
    array = np.zeros(2)
    x = Tensor.from_dlpack(array)
    y = x + 1
    x += 10
    assert y.tolist() == [1.0, 1.0] and array.tolist() == [10.0, 10.0]


def test_copies_are_copies(device):
    array = np.zeros(2)
    x = Tensor.from_dlpack(array)
    copies = [x.clone(), Tensor(x), Tensor.from_dlpack(array, copy=True), x.contiguous().realize()]
    array[:] = 1
    assert x.tolist() == [1.0, 1.0]
    assert [y.tolist() for y in copies] == [[0.0, 0.0]] * 4


def test_views_of_shared_memory_share_it(device):
    array = np.zeros((2, 2))
    x = Tensor.from_dlpack(array)
    x.T[0] += 5
    assert array.tolist() == [[5.0, 0.0], [5.0, 0.0]]


def test_a_parameter_of_pytorch_is_trained_by_picograd():
    theirs = torch.nn.Parameter(torch.zeros(3))
    ours = Tensor.from_dlpack(theirs.detach()).requires_grad_()
    optimizer = pg.optim.SGD([ours], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        ((ours - 1) ** 2).sum().backward()
        optimizer.step()
    assert torch.allclose(theirs, torch.full((3,), 0.36))


def test_other_devices_read_shared_memory_anew():
    array = np.zeros(2)
    x = Tensor.from_dlpack(array)
    first = x.to("NUMPY")
    assert first.tolist() == [0.0, 0.0]
    array[:] = 1
    assert x.to("NUMPY").tolist() == [1.0, 1.0]


# ---- out: the memory of a tensor ----
@pytest.mark.req("C10")
def test_a_tensor_gives_its_memory_without_a_copy():
    x = (Tensor([1.0, 2.0]) * 3).realize()
    before = x.cell.held()[0].memory.address
    array = np.from_dlpack(x)
    assert address(array) == before
    array[0] = 9
    assert x.tolist() == [9.0, 6.0] and (x + 1).tolist() == [10.0, 7.0]


def test_a_tensor_whose_value_is_known_elsewhere_moves_first(device):
    x, twin = Tensor.zeros(3).realize(), Tensor.zeros(3).realize()
    y = x + 1
    array = np.from_dlpack(x)
    array[:] = 5
    assert (x.tolist(), twin.tolist(), y.tolist()) == ([5.0] * 3, [0.0] * 3, [1.0] * 3)


def test_views_are_given_in_strides(device):
    x = Tensor.arange(12).reshape(3, 4)
    for view in (x.T, x[1:, ::2], x[:, None].expand(3, 2, 4), x.flatten()[3]):
        given = np.from_dlpack(view)
        assert given.tolist() == view.tolist()
        assert np.shares_memory(given, np.from_dlpack(x))


def test_what_has_no_strides_is_copied_or_refused(device):
    x = Tensor([1, 2]).pad((1, 1))
    assert np.from_dlpack(x).tolist() == [0, 1, 2, 0]
    view = Tensor.arange(6).reshape(2, 3).T.view(6)
    assert torch.from_dlpack(view).tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(BufferError, match="has no strides"):
        view.__dlpack__(copy=False)


@pytest.mark.parametrize("version", [None, (0, 8), (1, 0), (2, 0)])
def test_capsules_are_of_the_version_that_the_consumer_knows(device, version):
    capsule = Tensor([1, 2]).__dlpack__(max_version=version)
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    assert is_valid(capsule, b"dltensor_versioned" if version and version[0] else b"dltensor")


def test_what_is_given_away_outlives_the_tensor(device):
    array = np.from_dlpack(Tensor([1, 2, 3]))
    gc.collect()
    assert (array + 1).tolist() == [2, 3, 4]
    assert torch.from_dlpack(Tensor([1.5])).tolist() == [1.5]


def test_arrays_without_a_copy(device):
    x = Tensor([1.0, 2.0])
    array = np.asarray(x, copy=False)
    array[0] = 7
    assert x.tolist() == [7.0, 2.0]
    copied = np.asarray(x)
    copied[0] = 0
    assert x.tolist() == [7.0, 2.0]
    with pytest.raises(SharingError, match="copied to become float64"):
        np.asarray(x, dtype=np.float64, copy=False)


# ---- what is refused ----
def test_gradients_are_not_lost(device):
    x = Tensor([1.0], requires_grad=True)
    with pytest.raises(GradientError, match="__dlpack__: a tensor of shape \\(1,\\) that needs gradients would lose them"):
        np.from_dlpack(x)
    shared = Tensor.from_dlpack(np.zeros(1))
    with pytest.raises(GradientError, match="cannot hold a value that needs gradients"):
        shared += x


def test_a_captured_function_reads_shared_memory_and_does_not_write_it():
    array = np.zeros(2, np.float32)
    x = Tensor.from_dlpack(array)

    @pg.jit
    def read(y):
        return x + y

    for number in (1.0, 2.0, 3.0):
        array[:] = number
        assert read(Tensor([1.0, 1.0])).tolist() == [number + 1] * 2

    @pg.jit
    def write(y):
        x.add_(y)
        return y * 1

    with pytest.raises(JitError, match="cannot be written to by a captured function"):
        write(Tensor([1.0, 1.0]))


def test_elements_that_picograd_has_no_dtype_for(device):
    with pytest.raises(DTypeError, match=r"DLPack type \(code 5, 64 bits, 1 lanes\) have no dtype in picograd"):
        Tensor.from_dlpack(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(DTypeError, match="from_dlpack: needs an array with __dlpack__, got list"):
        Tensor.from_dlpack([1, 2])


def test_streams_and_other_devices_are_refused(device):
    x = Tensor([1])
    assert x.__dlpack_device__() == (1, 0)
    with pytest.raises(SharingError, match="memory of the CPU has no stream, got 7"):
        x.__dlpack__(stream=7)
    with pytest.raises(SharingError, match="can be exported to the CPU only"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(ArgumentError, match="stream must be None"):
        x.to_device("CPU", stream=1)


def test_a_capsule_is_read_as_the_array_it_came_from(device):
    x = Tensor([1.0, 2.0])
    assert Tensor.from_dlpack(pg.to_dlpack(x)).tolist() == [1.0, 2.0]
    assert Tensor.from_dlpack(torch.utils.dlpack.to_dlpack(torch.arange(3))).tolist() == [0, 1, 2]
