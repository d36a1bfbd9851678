"""argsort, sort and topk against PyTorch."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.errors import ArgumentError
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.look import watch
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


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_a_long_axis_is_the_start_of_the_order(largest, dtype, device, rng):
    numbers = rng.integers(-30, 30, (2, 4133)).astype(dtype)  # equal ones in many blocks, and a last block cut off
    if dtype is np.float32:
        numbers[0, [5, 4132, 4130, 70]] = np.nan, -np.inf, np.nan, np.inf
    for x, dim in ((numbers, 1), (numbers.T.copy(), 0)):
        order = Tensor(x).argsort(dim, largest)
        top = Tensor(x).topk(9, dim, largest)
        assert top.indices.tolist() == order.narrow(dim, 0, 9).tolist()
        same_value(top.values, torch.tensor(x).topk(9, dim, largest).values)
    same_value(Tensor(numbers).kthvalue(3).values, torch.tensor(numbers).kthvalue(3).values)


def test_few_elements_of_an_order_are_no_whole_order():
    """A SORT keeps k places, or has ranks: kernels of a CPU then put no other element in order."""
    x = Tensor.zeros(1000, device="NUMPY")
    for result, sources, count in (
        (x.topk(10).indices, 1, 10), (x.kthvalue(15).indices, 1, 15), (x.kthvalue(16).indices, 2, 1),
        (x.median(0).indices, 2, 1), (x.quantile(0.3), 2, 2), (x.quantile(0.3, interpolation="lower"), 2, 1),
    ):  # fmt: skip
        (sort,) = [op for op in toposort(written_out([result.op])) if op.code is OpCode.SORT]
        assert (len(sort.src), sort.shape) == (sources, (count,))


def test_what_a_set_is_made_of_is_computed_once():
    """The number of values is read on the host; the order that it is counted in is not computed again after that."""
    x = pg.arange(20_000.0) % 7
    x.realize().unique(return_inverse=True, return_counts=True)[0].tolist()
    with watch() as counts:
        for result in (pg.arange(20_000.0) % 7).realize().unique(return_inverse=True, return_counts=True):
            result.tolist()
    assert [name.split("_")[0] for name in counts.names].count("sort") == 1


SETS: dict[str, Any] = {
    "empty": np.zeros(0, np.float32), "one": np.array([2]), "bools": np.array([True, False, True, True]),
    "NaN": np.array([1.0, np.nan, np.nan, np.inf, -np.inf, 1.0]), "zeros": np.array([0.0, -0.0, 1.0, -0.0]),
    "square": np.array([[3, 1, 1], [3, 3, 2]], np.int32), "scalar": np.array(5.0), "bytes": np.array([250, 3, 3], np.uint8),
    "half": np.array([1, 1, 2, 1], np.float16),
}  # fmt: skip


@pytest.mark.req("C5")
@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
@pytest.mark.parametrize("values", SETS)
def test_a_small_set_is_made_on_the_host(name: str, values: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = Tensor(SETS[values]), torch.tensor(SETS[values])
    with watch() as counts:
        found = getattr(mine, name)(return_inverse=True, return_counts=True)
    assert counts.kernels == 0
    for a, b in zip(found, getattr(other, name)(return_inverse=True, return_counts=True), strict=True):
        same_value(a, b)
    monkeypatch.setattr("picograd.engine.host_memory.SMALL_NUMEL_MAX", -1)
    monkeypatch.setattr(sys.modules["picograd.tensor.order"], "value_on_host", lambda op: None)
    for a, b in zip(found, getattr(mine, name)(return_inverse=True, return_counts=True), strict=True):
        assert a.dtype is b.dtype and np.array_equal(a.numpy(), b.numpy(), equal_nan=a.dtype.is_float)


def test_a_set_of_a_graph_is_computed_once() -> None:
    with watch() as counts:
        assert (Tensor([1.0, 2.0, 2.0]) * 2).unique().tolist() == [2.0, 4.0]
    assert counts.kernels == 1


def test_topk_of_too_many_is_refused():
    with pytest.raises(ArgumentError, match=r"k must be from 0 to 3, the length of axis -1 of \(3,\); got 4"):
        Tensor([1, 2, 3]).topk(4)
    with pytest.raises(ArgumentError, match=r"topk: k must be from 0 to 3, .*; got 1\.5"):
        Tensor([1, 2, 3]).topk(1.5)


def test_what_is_searched_for_may_be_a_number() -> None:
    rows = Tensor([1, 3, 5])
    assert pg.bucketize(4, rows).item() == 2 and pg.bucketize(3, rows, right=True).item() == 2
    assert pg.bucketize(float("nan"), rows.float()).item() == 3
    assert pg.isin(3, rows).item() and pg.isin(2, rows, invert=True).item()
    assert pg.isin(rows, 3).tolist() == [False, True, False]


@pytest.mark.parametrize("function", ["unique", "unique_consecutive"])
def test_no_rows_have_no_unique_rows(function: str) -> None:
    for shape, dim in [((0, 3), 0), ((3, 0), 1), ((2, 0, 3), 1)]:
        asked = {"return_inverse": True, "return_counts": True, "dim": dim}
        ours, theirs = (getattr(library.zeros(shape), function)(**asked) for library in (pg, torch))
        assert [tuple(x.shape) for x in ours] == [tuple(x.shape) for x in theirs]
