"""Writes through views: pieces, windows, diagonals and orders, as PyTorch's views are written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.errors import ShapeError
from picograd.ir.op import toposort
from picograd.ir.opcode import OpCode
from tests.helpers import same_value

VIEWS: dict[str, Callable[[Any], Any]] = {
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(-1, 2),
    "split": lambda x: x.split(2, 2)[1],
    "split_with_sizes": lambda x: x.split_with_sizes([1, 3])[1],
    "chunk": lambda x: x.chunk(3, 2)[2],
    "tensor_split": lambda x: x.tensor_split((1, 3))[1],
    "hsplit": lambda x: x.hsplit(3)[1],
    "vsplit": lambda x: x.vsplit(2)[1],
    "dsplit": lambda x: x.dsplit((2,))[0],
    "unbind": lambda x: x.unbind(1)[2],
    "unfold apart": lambda x: x.unfold(2, 2, 3),
    "diagonal": lambda x: x.diagonal(),
    "diagonal above": lambda x: x.diagonal(2, 0, 2),
    "diagonal below": lambda x: x.diagonal(-1, 2, 1),
    "one element": lambda x: x.diagonal(-3),
    "movedim": lambda x: x.movedim((0, 1), (1, 2)),
    "swapaxes": lambda x: x.swapaxes(0, 2),
    "adjoint": lambda x: x.adjoint(),
    "ravel": lambda x: x.ravel(),
    "of a view": lambda x: x.movedim(0, 2).diagonal(1).narrow(0, 1, 2),
    "steps": lambda x: x[::2, :, 1::3],
    "atleast_2d": lambda x: (Tensor if isinstance(x, Tensor) else torch).atleast_2d(x[0, 0]),
}


@pytest.mark.req("C2")
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_a_view_is_seen(name: str, device: str, rng: np.random.Generator) -> None:
    data = rng.standard_normal((4, 3, 5)).astype(np.float32)
    ours, theirs = Tensor(data), torch.tensor(data)
    mine, other = VIEWS[name](ours), VIEWS[name](theirs)
    before = mine * 2
    mine += 10.0
    other += 10.0
    mine.mul_(0.5)
    other.mul_(0.5)
    same_value(ours, theirs)
    same_value(mine, other)
    same_value(before, (VIEWS[name](torch.tensor(data))) * 2)


@pytest.mark.req("C2")
@pytest.mark.parametrize("name", ["narrow", "diagonal above", "unfold apart", "tensor_split", "of a view"])
def test_gradients_flow_through_writes_to_views(name: str, device: str, rng: np.random.Generator) -> None:
    data = rng.standard_normal((4, 3, 5))
    weights = rng.standard_normal((4, 3, 5))
    found = []
    for library in (Tensor, torch.tensor):
        x = library(data, requires_grad=True)
        y = x * 1
        part = VIEWS[name](y)
        part.mul_(3.0).add_((x * x).sum())
        total = (y * y * library(weights)).sum()
        found.append(pg.grad(total, [x])[0] if isinstance(x, Tensor) else torch.autograd.grad(total, x)[0])
    same_value(*found)


def test_windows_that_overlap_are_read_but_not_written(device: str) -> None:
    windows = Tensor([1, 2, 3, 4]).unfold(0, 3, 1)
    assert windows.tolist() == [[1, 2, 3], [2, 3, 4]]
    with pytest.raises(ShapeError, match="repeats elements"):
        windows += 1


def test_copies_are_no_views(device: str) -> None:
    x = Tensor([[1, 2], [3, 4]])
    for copy in (x.narrow_copy(0, 0, 1), x.diag(), x.take(Tensor([0])), x[[0]], x.rot90(0), x.select_scatter(x[0], 0, 0)):
        copy += 5
    assert x.tolist() == [[1, 2], [3, 4]]


@pytest.mark.req("C2")
def test_many_tensors_are_joined_by_groups() -> None:
    """What an element costs grows with the logarithm of their number: no kernel reads more than sixteen of them."""
    rows = [Tensor([float(n)], requires_grad=True) for n in range(300)]
    joined = pg.cat(rows)
    stored = [op for op in toposort(written_out([joined.op])) if op.code is OpCode.CONTIGUOUS]
    assert len(stored) == 19 + 2
    assert joined.tolist() == list(range(300))
