"""Reading and writing by index, against NumPy (assignment) and PyTorch (values and gradients)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import DTypeError, Tensor, dtypes
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from picograd.look import watch
from tests.helpers import same_as_torch, same_value

BASIC = [
    0, -1, slice(None), slice(1, 3), slice(None, None, 2), slice(1, None, 2), slice(None, 2), slice(-2, None),
    slice(3, 1), (0, 1), (slice(None), 1), (..., 0), (0, ...), (1, ..., 2), (None, 1), (slice(None), None, 2),
    (slice(0, 2), slice(1, 3), slice(0, 4, 3)), (..., None), (0, 1, 2), (), (..., slice(0, 5, 4)),
]  # fmt: skip
REVERSED = [slice(None, None, -1), (slice(None), slice(None, None, -2)), (0, slice(2, 0, -1)), slice(0, 3, -1)]
ARRAYS = [
    [0, 2], ([0, 2, 1],), ([[0, 1], [2, 3]],), ([0, 1], [1, 2]), (slice(None), [0, 2]), (..., [0, 3]),
    ([0, 1], slice(None), [2, 3]), (0, [1, 2]), ([-1, 0],), ([[0], [1]], [0, 2]), (slice(None), [2, 0], [1, 1]),
    (slice(1, 3), [0, 1], slice(None, None, 2)), (None, [0, 1]), ([0, 3], 1), (slice(None), slice(None), [[0, 1]]),
]  # fmt: skip


@pytest.mark.req("B7")
@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_indexing_with_gradients(index, device, rng):
    same_as_torch(lambda t: t[index], rng.standard_normal((4, 3, 4)).astype(np.float32))


@pytest.mark.req("B7")
@pytest.mark.parametrize("index", REVERSED, ids=str)
def test_steps_backwards_follow_numpy(index, device, rng):
    x = rng.standard_normal((4, 3, 4))
    np.testing.assert_array_equal(Tensor(x)[index].numpy(), x[index])


@pytest.mark.req("B7")
@pytest.mark.parametrize("index", ARRAYS, ids=str)
def test_integer_arrays_with_gradients(index, device, rng):
    same_as_torch(lambda t: t[index], rng.standard_normal((4, 3, 4)).astype(np.float32))


@pytest.mark.req("B7")
@pytest.mark.parametrize("index", [i for i in ARRAYS if isinstance(i, tuple)], ids=str)
def test_integer_tensors_index_as_lists_do(index, device, rng):
    x = rng.standard_normal((4, 3, 4)).astype(np.float32)
    tensors = tuple(Tensor(item) if isinstance(item, list) else item for item in index)
    np.testing.assert_array_equal(Tensor(x)[tensors].numpy(), x[index])


# Index arrays for (2, 3, 4, 5), and how many axes the first of them count from 0 on: one element of each row is chosen.
COUNTING = [
    (lambda m: (m.arange(2), m.tensor([1, -1])), 1),
    (lambda m: (m.arange(2), m.tensor(2)), 1),
    (lambda m: (range(2), m.tensor([0, 2])), 1),
    (lambda m: (m.arange(2), m.arange(2)), 1),
    (lambda m: (m.arange(2), m.tensor([1, 2]), slice(1, 3)), 1),
    (lambda m: (m.arange(2)[:, None], m.arange(3), m.tensor([[0, 1, 2], [3, -1, -2]])), 2),
    (lambda m: (m.arange(2)[:, None], m.arange(3)[None], m.tensor([1, 2, 0])), 2),
    (lambda m: (m.arange(2)[:, None, None], m.arange(3)[:, None], m.arange(4), m.tensor(1)), 3),
    (lambda m: (m.arange(2), m.tensor([[1], [2]])), 0),
    (lambda m: (m.arange(2)[:, None], m.tensor([1, 2])), 0),
    (lambda m: (m.arange(2), slice(None), m.tensor([0, 2])), 0),
    (lambda m: (slice(None), m.arange(3), m.tensor([0, 2, 1])), 0),
    (lambda m: (m.arange(2), m.tensor([0, 2]), m.tensor([3, 1])), 0),
    (lambda m: (m.arange(1), m.tensor([2])), 0),
    (lambda m: (m.arange(2).flip(0), m.tensor([0, 2])), 0),
]


def test_arrays_that_count_rows_choose_one_element_of_each(device, rng):
    x = rng.standard_normal((2, 3, 4, 5)).astype(np.float32)
    for make, counted in COUNTING:
        same_as_torch(lambda t, make=make: t[make(pg if isinstance(t, Tensor) else torch)], x)
        batches = [op.arg[1] for op in toposort([Tensor(x)[make(pg)].op]) if op.code is OpCode.GATHER]
        assert batches == [counted]
    with pytest.raises(pg.IndexingError, match="index: 3 is out of range for axis 1 of length 3 in shape"):
        Tensor(x)[pg.arange(2), Tensor([0, 3])].tolist()


@pytest.mark.req("B7")
@pytest.mark.parametrize("index", [*BASIC, *REVERSED, *ARRAYS], ids=str)
def test_assignment_follows_numpy(index, device, rng):
    x = rng.standard_normal((4, 3, 4)).astype(np.float32)
    value = rng.standard_normal(x[index].shape).astype(np.float32)
    for new in (value, np.float32(7.0)):
        ours, expected = Tensor(x), x.copy()
        ours[index] = Tensor(new)
        expected[index] = new
        np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.req("B7")
@pytest.mark.parametrize("rows, accumulate", [([0, 3], False), ([0, 3], True), ([4, 4], True)])
def test_few_elements_are_written_with_no_axis_moved(rows, accumulate, device, rng):
    """Writes through arrays with whole axes between them move no axis of the tensor."""
    x, values = rng.standard_normal((7, 4, 6, 5)), rng.standard_normal((2, 4, 5))
    columns = [row // 3 for row in rows]
    gap, spread = (rows, None, columns), ([[row] for row in rows], [[0, 1, 2, 3]], [[column] for column in columns])

    def put(t, v):
        library, index = (pg, gap) if isinstance(t, Tensor) else (torch, spread)
        return t.index_put(tuple(part and library.tensor(part) for part in index), v, accumulate)

    same_as_torch(put, x, values)
    graph = toposort([put(Tensor(x), Tensor(values)).op])
    assert any(op.code is OpCode.SCATTER for op in graph)
    assert not any(op.code is OpCode.PERMUTE and op.numel == x.size for op in graph)


@pytest.mark.req("B7")
def test_masks(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    same_as_torch(lambda t: t[t > 0], x)
    rows = np.array([True, False, True])
    same_as_torch(lambda m, t: t[m], rows, x)
    same_as_torch(lambda m, t: t[m, 1:], rows, x)
    np.testing.assert_array_equal(Tensor(x)[x > 0].numpy(), x[x > 0])


@pytest.mark.req("B7")
def test_assignment_by_mask(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    ours, expected = Tensor(x), x.copy()
    ours[ours > 0] = -1.0
    expected[expected > 0] = -1.0
    np.testing.assert_array_equal(ours.numpy(), expected)
    count = int((expected < -0.5).sum())
    ours[ours < -0.5] = Tensor(np.arange(count))
    expected[expected < -0.5] = np.arange(count)
    np.testing.assert_array_equal(ours.numpy(), expected)
    ours[Tensor([True, False, True])] = 0
    expected[[True, False, True]] = 0
    np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.req("B7")
def test_gradients_flow_through_assignment(device, rng):
    x, v = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal((4,)).astype(np.float32)

    def rows(t, value):
        t = t * 1
        t[1] = value * value
        return t

    def picked(t, value):
        t = t * 1
        t[[0, 2], [1, 3]] = value[:2] * 3
        return t

    same_as_torch(rows, x, v)
    same_as_torch(picked, x, v)


@pytest.mark.req("A8")
def test_an_index_used_twice_adds_its_gradients(device):
    same_as_torch(lambda t: t[[0, 0, 1]], np.array([1.0, 2.0, 3.0], np.float32))


@pytest.mark.req("C5")
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gather(dim, device, rng):
    x = rng.standard_normal((3, 4, 2)).astype(np.float32)
    index = rng.integers(0, 2, (2, 3, 2))
    same_as_torch(lambda t, i: t.gather(dim, i), x, index)


@pytest.mark.parametrize("index", [(0, 4, 2), (0,), (3, 0, 7)])
def test_gathering_nothing_keeps_the_gradient(index):
    for library in (torch, pg):
        x = library.ones(3, 4, 2, requires_grad=True)
        taken = x.gather(1, library.zeros(*index, dtype=library.int64))
        taken.sum().backward()
        assert tuple(taken.shape) == index and x.grad.tolist() == [[[0.0] * 2] * 4] * 3


@pytest.mark.req("C5")
def test_take_along_dim_and_index_select(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    same_as_torch(lambda t, i: t.take_along_dim(i, 1), x, rng.integers(0, 4, (3, 2)))
    same_as_torch(lambda t, i: t.take_along_dim(i, 1), x, rng.integers(0, 4, (1, 2)))
    same_as_torch(lambda t, i: t.take_along_dim(i), x, rng.integers(0, 12, (5,)))
    same_as_torch(lambda t, i: t.index_select(0, i), x, np.array([2, 0, 2]))
    same_as_torch(lambda t, i: t.index_select(1, i), x, np.array([3]))


@pytest.mark.req("C5")
def test_one_hot_nonzero_and_masked_select(device, rng):
    classes = np.array([[0, 2], [1, 4]])
    same_as_torch(lambda t: t.one_hot(5), classes, reference=lambda t: torch.nn.functional.one_hot(t, 5))
    same_as_torch(lambda t: t.one_hot(), classes, reference=torch.nn.functional.one_hot)
    x = rng.standard_normal((3, 4)).astype(np.float32)
    same_value(Tensor(x > 0).nonzero(), torch.tensor(x > 0).nonzero())
    same_value(Tensor(x).masked_select(Tensor(x > 0)), torch.tensor(x).masked_select(torch.tensor(x > 0)))


def test_rows_come_by_iteration(device):
    assert [row.tolist() for row in Tensor([[1, 2], [3, 4]])] == [[1, 2], [3, 4]]
    assert len(Tensor.zeros(3, 2)) == 3


@pytest.mark.req("B6")
def test_classes_that_one_hot_has_no_place_for(device):
    for classes, count, fact in (([3], 3, "one_hot: class 3 is not one of the 3 classes."),
                                 ([0, -1], 2, "one_hot: class -1 is not one of the 2 classes."),
                                 ([-2], -1, "one_hot: class -2 is not one of the 1 classes.")):  # fmt: skip
        with pytest.raises(pg.IndexingError) as caught:
            pg.nn.functional.one_hot(Tensor(classes), count).realize()
        assert caught.value.fact == fact


def test_positions_of_uint8_are_refused_for_pytorch_takes_them_for_a_mask(device):
    for index in (Tensor([1, 0], dtype=dtypes.uint8), np.array([1, 0], np.uint8)):
        with pytest.raises(DTypeError, match="uint8 means a mask in PyTorch"):
            Tensor([1.0, 2.0])[index]


def test_a_tuple_in_an_index_is_a_list_of_places() -> None:
    x = Tensor.arange(24).reshape(2, 3, 4)
    array, places = x.numpy(), Tensor([0, 1])
    assert x[(1, 0),].tolist() == array[[1, 0]].tolist()
    assert x[:, (0, 2)].tolist() == array[:, [0, 2]].tolist()
    assert x[places, (1, 1)].tolist() == array[[0, 1], [1, 1]].tolist()
    assert x[((0,),),].shape == (1, 1, 3, 4) and x[(),].shape == (0, 3, 4)
    x[(0, 1), (1, 2)] = -1
    array[[0, 1], [1, 2]] = -1
    assert x.tolist() == array.tolist()


@pytest.mark.parametrize("wrong", [1.5, "a", object(), Tensor(1.5), np.array([0.5]), (1.5,)])
def test_what_is_no_place_is_an_index_error(wrong: Any) -> None:
    with pytest.raises(IndexError, match="needs ints"):
        Tensor.arange(24).reshape(2, 3, 4)[wrong, 0]


CHOSEN: dict[str, Any] = {
    "all axes": ((3, 4), (3, 4)), "rows": ((3, 4), (3,)), "images": ((3, 4, 2), (3, 4)), "no rows": ((0, 4), (0,)),
    "vector": ((5,), (5,)),
}  # fmt: skip


@pytest.mark.req("B7")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool", "float64"])
@pytest.mark.parametrize("shapes", CHOSEN)
def test_a_mask_chooses_from_small_values_on_the_host(shapes: str, dtype: str, rng: np.random.Generator) -> None:
    shape, of_mask = CHOSEN[shapes]
    numbers, mask = rng.integers(0, 2 if dtype == "bool" else 100, shape), rng.integers(0, 2, of_mask).astype(bool)
    x = Tensor(numbers).to(getattr(dtypes, dtype, dtypes.bool_)).realize()
    other = torch.tensor(numbers).to(getattr(torch, dtype))
    with watch() as counts:
        found = x[Tensor(mask)]
        views = x.T[Tensor(mask.T)] if len(shape) == 2 == mask.ndim else found
    assert counts.kernels == 0 and found.dtype is x.dtype and found.device == x.device
    wanted = other[torch.tensor(mask)]
    assert found.tolist() == wanted.tolist() and found.shape == tuple(wanted.shape)
    if views is not found:
        assert views.tolist() == other.T[torch.tensor(mask.T)].tolist()
    if shape == of_mask:
        assert x.masked_select(Tensor(mask)).tolist() == other.masked_select(torch.tensor(mask)).tolist()
    found.add_(1) if found.numel() and dtype != "bool" else None  # a copy of its own
    assert x.tolist() == other.tolist()


def test_what_a_mask_chooses_of_a_graph_or_with_gradients_is_a_graph() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[Tensor([True, False, True])] * 2).sum().backward()
    assert x.grad.tolist() == [2.0, 0.0, 2.0]
    with pg.no_grad():
        assert not x[Tensor([True, False, True])].requires_grad
    y = Tensor([1.0, 2.0, 3.0]) * 2
    with watch() as counts:
        assert (y[Tensor([True, False, True])] + 1).tolist() == [3.0, 7.0]
    assert counts.kernels == 1
    x = pg.zeros(3)
    x.add_(1)  # a write that waits is seen
    assert x[x > 0].tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(pg.IndexingError, match="a mask of shape"):
        x[Tensor([True, False])]


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
def test_integers_are_counted_on_the_host(dtype: str) -> None:
    numbers = np.array([3, 1, 1, 5], dtype)
    x = Tensor(numbers)
    with watch() as counts:
        found = [each.bincount(minlength=length) for each in (x, x[:0]) for length in (0, 2, 9)]
    other = torch.tensor(numbers)
    wanted = [each.bincount(minlength=length) for each in (other, other[:0]) for length in (0, 2, 9)]
    for a, b in zip(found, wanted):
        same_value(a, b)
    assert counts.kernels == 0
