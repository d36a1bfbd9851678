"""Functions of the namespace where they differ from the methods of Tensor: copies, axes, dtypes of sums, errors."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import picograd.array_api as xp
from picograd.errors import ArgumentError, DTypeError, IndexingError, LinAlgError, ShapeError, SharingError


def test_sums_and_products_are_wide_and_keep_the_sign():
    for function in (xp.sum, xp.prod, xp.cumulative_sum, xp.cumulative_prod):
        assert function(xp.ones(2, dtype=xp.int8)).dtype is xp.int64
        assert function(xp.ones(2, dtype=xp.uint8)).dtype is xp.uint64
        assert function(xp.ones(2, dtype=xp.float32)).dtype is xp.float32
        assert function(xp.ones(2, dtype=xp.int8), dtype=xp.int16).dtype is xp.int16


def test_running_sums_may_start_in_front():
    x = xp.asarray([[1, 2], [3, 4]])
    assert xp.cumulative_sum(x, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0, 3, 7]]
    assert xp.cumulative_prod(x, axis=0, include_initial=True).tolist() == [[1, 1], [1, 2], [3, 8]]
    with pytest.raises(ArgumentError, match="cumulative_sum: an array of shape \\(2, 2\\) needs an axis"):
        xp.cumulative_sum(x)


@pytest.mark.parametrize("correction", [0, 1, 0.0, 1.5])
def test_variances_take_any_correction(correction):
    values = np.array([[1.0, 2.0, 4.0], [0.0, 5.0, 5.0]])
    x = xp.asarray(values.tolist(), dtype=xp.float64)
    deviation = ((values - values.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) / (3 - correction)
    assert np.allclose(np.asarray(xp.var(x, axis=1, correction=correction)), deviation)
    assert np.allclose(np.asarray(xp.std(x, axis=1, correction=correction)), deviation**0.5)


def test_asarray_copies_when_it_is_told_to():
    x = xp.asarray([1.0, 2.0])
    assert xp.asarray(x).cell is x.cell and xp.asarray(x, copy=False).cell is x.cell
    assert xp.asarray(x, copy=True).cell is not x.cell
    with pytest.raises(ArgumentError, match="a list must be copied, and copy=False"):
        xp.asarray([1], copy=False)
    with pytest.raises(ArgumentError, match="copy=False, but float32 on CPU has to become float64"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    array = np.zeros(2)
    shared, own = xp.asarray(array), xp.asarray(array, copy=True)
    array[:] = 1
    assert shared.tolist() == [1.0, 1.0] and own.tolist() == [0.0, 0.0]
    packed = np.zeros(4, dtype=[("a", "i1"), ("b", "f8")])["b"]
    assert xp.asarray(packed).tolist() == [0.0] * 4
    with pytest.raises(BufferError, match="multiple of itemsize"):
        xp.asarray(packed, copy=False)
    with pytest.raises(SharingError, match="from_dlpack: shape \\(2, 2\\), strides \\(16, 24\\), on CPU must be copied"):
        xp.from_dlpack(np.lib.stride_tricks.as_strided(np.zeros(8), (2, 2), (16, 24)), copy=False)


def test_astype_copies_unless_told_not_to():
    x = xp.asarray([1.0])
    assert xp.astype(x, xp.float32).cell is not x.cell
    assert xp.astype(x, xp.float32, copy=False).cell is x.cell
    assert xp.astype(x, xp.int8).dtype is xp.int8


def test_empty_ranges_lead_nowhere():
    assert xp.arange(5, 0).tolist() == [] and xp.arange(0, 5, -1).dtype is xp.int64
    assert xp.arange(0.0, -1.0).dtype is xp.float32
    with pytest.raises(ArgumentError, match="step must not be 0"):
        xp.arange(0, 1, 0)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
def test_grids_are_those_of_numpy(indexing):
    lines = [np.arange(n) for n in (2, 3, 4)]
    for count in (0, 1, 2, 3):
        ours = xp.meshgrid(*(xp.asarray(line.tolist()) for line in lines[:count]), indexing=indexing)
        theirs = np.meshgrid(*lines[:count], indexing=indexing)
        assert [x.tolist() for x in ours] == [x.tolist() for x in theirs]


def test_axes_are_moved_as_numpy_does():
    x = np.zeros((2, 3, 4, 5))
    y = xp.zeros(x.shape)
    for source, destination in ((0, -1), ((0, 1), (-1, 0)), ((3, 0), (0, 2))):
        assert xp.moveaxis(y, source, destination).shape == np.moveaxis(x, source, destination).shape
    with pytest.raises(ArgumentError, match="movedim: source \\(0, 1\\) and destination 2 must name equally many axes"):
        xp.moveaxis(y, (0, 1), 2)
    assert xp.expand_dims(y, (0, -1)).shape == (1, 2, 3, 4, 5, 1)
    with pytest.raises(ArgumentError, match="squeeze: axis 0 of shape \\(2, 3, 4, 5\\) is not of length 1"):
        xp.squeeze(y, 0)


def test_kinds_of_dtype_are_checked_by_name():
    with pytest.raises(DTypeError, match="exp: needs floats, got int64 of shape \\(1,\\)"):
        xp.exp(xp.asarray([1]))
    with pytest.raises(DTypeError, match="logical_and: needs bools, got int64"):
        xp.logical_and(xp.asarray([1]), xp.asarray([1]))
    with pytest.raises(DTypeError, match="abs: needs an array, got float. *\n(.*\n)?.*asarray"):
        xp.abs(-1.0)


def test_an_axis_that_is_not_there_has_an_error_of_its_own():
    x, y = xp.asarray([[1.0, 2.0], [3.0, 4.0]]), xp.asarray([1.0, 2.0])
    with pytest.raises(IndexingError, match="take: axis 2 is out of range for shape \\(2, 2\\)"):
        xp.take(x, xp.asarray([0]), axis=2)
    with pytest.raises(IndexingError, match="vecdot: axis 1 is out of range for shape \\(2,\\)"):
        xp.vecdot(x, y, axis=1)
    with pytest.raises(ShapeError, match="vecdot: axis -1 of shapes \\(\\) and \\(2,\\)"):
        xp.vecdot(xp.asarray(1.0), y)
    with pytest.raises(ShapeError, match="take: indices must have one axis, got shape \\(1, 1\\)"):
        xp.take(x, xp.asarray([[0]]), axis=0)
    with pytest.raises(LinAlgError, match="linalg.inv: the matrix is singular"):
        xp.linalg.inv(xp.ones((2, 2))).tolist()


def test_differences():
    x = xp.asarray([[1, 4, 9], [0, 0, 5]])
    assert xp.diff(x).tolist() == [[3, 5], [0, 5]] and xp.diff(x, n=2).tolist() == [[2], [5]]
    assert xp.diff(x, axis=0, prepend=xp.asarray([[0, 0, 0]])).tolist() == [[1, 4, 9], [-1, -4, -4]]
    assert xp.diff(x, n=5).shape == (2, 0)
    with pytest.raises(DTypeError, match="no common dtype"):
        xp.diff(x, append=xp.asarray([[1.0], [2.0]]))


def test_every_function_takes_arrays_by_position_alone():
    for name in xp.__all__:
        function = getattr(xp, name)
        if inspect.isfunction(function) and name not in ("isdtype", "__array_namespace_info__"):
            first = next(iter(inspect.signature(function).parameters.values()))
            wanted = (first.POSITIONAL_ONLY, first.VAR_POSITIONAL)
            by_name = name in ("empty", "full", "ones", "zeros")  # the standard's `shape`
            assert by_name or first.kind in wanted or name in ("moveaxis", "repeat", "tile"), name


@pytest.mark.parametrize("dtype", [xp.uint8, xp.int64, xp.float32, xp.bool])
def test_truth_is_a_bool_of_any_dtype(dtype):
    x = xp.asarray([1, 0], dtype=xp.int8)
    assert xp.any(xp.astype(x, dtype)).dtype is xp.bool and not xp.all(xp.astype(x, dtype))


def test_a_diagonal_may_be_as_far_outside_as_one_likes() -> None:
    assert xp.eye(2, 3, k=2**70).tolist() == xp.eye(2, 3, k=-(2**63) - 1).tolist() == [[0.0] * 3] * 2
    assert xp.eye(0, k=-(2**63) - 1).shape == (0, 0) and xp.eye(2, 3, k=1).tolist() == [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
