"""What movement, indexing, scatters, ranks, searches and sets say of calls that are wrong: the full first line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.errors import (
    ArgumentError,
    ArgumentTypeError,
    DTypeError,
    GradientError,
    IndexingError,
    PicogradError,
    ShapeError,
)

X = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
LINE, INTS = Tensor([1.0, 2.0, 3.0]), Tensor([0, 1])
NUMBER = Tensor(1.0)
NEEDED = Tensor([1.0, 2.0], requires_grad=True)
LISTS = "index: a list of {} means one index per axis in PyTorch, and a single index array in NumPy."
Case = tuple[Callable[[], Any], type[PicogradError], str]

WRONG: dict[str, list[Case]] = {
    "pieces": [
        (lambda: X.narrow(1, 2, 2), IndexingError,
         "narrow: 2 elements from 2 on are not inside axis 1 of length 3 in (2, 3)."),
        (lambda: X.narrow(0, 0.5, 1), ArgumentError, "narrow: start must be an int, got float 0.5."),  # type: ignore[arg-type]
        (lambda: NUMBER.narrow(0, 0, 1), ShapeError, "narrow: a tensor of shape () has no axis to narrow."),
        (lambda: X.select(1, 3), IndexingError, "select: 3 is out of range for axis 1 of length 3 in shape (2, 3)."),
        (lambda: X.select(2, 0), IndexingError, "select: axis 2 is out of range for shape (2, 3) with 2 axes."),
        (lambda: X.split(0), ArgumentError, "split: a piece must have at least 1 element, got 0."),
        (lambda: X.split([1, 2]), ShapeError, "split: [1, 2] adds up to 3, axis 0 of (2, 3) is 2."),
        (lambda: X.split([3, -1]), ArgumentError, "split: lengths must not be negative, got [3, -1]."),
        (lambda: X.chunk(0), ArgumentError, "chunk: chunks must be at least 1, got 0."),
        (lambda: X.tensor_split(0), ArgumentError, "tensor_split: the number of pieces must be at least 1, got 0."),
        (lambda: X.hsplit(2), ShapeError, "hsplit: axis 1 of (2, 3) cannot be split into 2 equal pieces."),
        (lambda: LINE.vsplit(1), ShapeError, "vsplit: needs 2 axes or more, got shape (3,)."),
        (lambda: X.unfold(1, 4, 1), ShapeError, "unfold: a window of 4 is longer than axis 1 of (2, 3)."),
        (lambda: X.unfold(1, 2, 0), ArgumentError, "unfold: step must be at least 1, got 0."),
        (lambda: LINE.diagonal(), ShapeError, "diagonal: needs two axes, got shape (3,)."),
        (lambda: X.diagonal(0, 1, 1), ArgumentError, "diagonal: dim1 1 and dim2 1 are one axis of (2, 3)."),
        (lambda: NUMBER.flatten(1), IndexingError, "flatten: axis 1 is out of range for shape () with 0 axes."),
        (lambda: X.unsqueeze(0).diag(), ShapeError, "diag: needs one or two axes, got shape (1, 2, 3)."),
        (lambda: LINE.diag_embed(0, 1, 1), ArgumentError, "diag_embed: dim1 1 and dim2 1 are one axis."),
        (lambda: X.select_scatter(LINE, 1, 0), ShapeError,
         "select_scatter: src of shape (3,) does not fit the piece of shape (2,)."),
        (lambda: X.slice_scatter(X, step=-1), ArgumentError, "slice_scatter: step must be at least 1, got -1."),
    ],
    "order": [
        (lambda: X.movedim((0, 1), 0), ArgumentError,
         "movedim: source (0, 1) and destination 0 must name equally many axes of (2, 3), each once."),
        (lambda: X.unsqueeze(0).t(), ShapeError, "t: needs at most two axes, got shape (1, 2, 3)."),
        (lambda: LINE.mT, ShapeError, "mT: needs two axes, got shape (3,)."),
        (lambda: LINE.H, ShapeError, "H: needs two axes, got shape (3,)."),
        (lambda: LINE.adjoint(), ShapeError, "adjoint: needs two axes, got shape (3,)."),
        (lambda: LINE.fliplr(), ShapeError, "fliplr: needs two axes, got shape (3,)."),
        (lambda: X.rot90(1, (0, 0)), ArgumentError, "rot90: dims must be two different axes of (2, 3), got (0, 0)."),
        (lambda: LINE.view(pg.float64), ShapeError,
         "view: the last axis of (3,) is not a multiple of 2, the float32 in one float64."),
        (lambda: NUMBER.view(pg.int8), ShapeError, "view: a tensor without axes cannot be viewed from float32 as int8."),
    ],
    "joined": [
        (lambda: pg.cat([]), ArgumentError, "cat: needs at least one tensor."),
        (lambda: pg.cat([NUMBER, LINE]), ShapeError, "cat: a tensor of shape () has no axis to join along."),
        (lambda: pg.cat([X, LINE]), ShapeError, "cat: shapes must match except along axis 0, got (2, 3), (3,)."),
        (lambda: pg.cat([X, 2]), DTypeError, "cat: needs tensors, got 2."),  # type: ignore[list-item]
        (lambda: Tensor.hstack([LINE, 3]), DTypeError, "hstack: needs tensors, got 3."),  # type: ignore[list-item]
        (lambda: Tensor.meshgrid(X), ShapeError, "meshgrid: needs vectors, got shape (2, 3)."),
        (lambda: Tensor.meshgrid(LINE, indexing="yx"), ArgumentError,
         "meshgrid: indexing must be \"ij\" or \"xy\", got 'yx'."),
        (lambda: Tensor.block_diag(X.unsqueeze(0)), ShapeError, "block_diag: needs at most two axes, got shape (1, 2, 3)."),
        (lambda: X.combinations(), ShapeError, "combinations: needs a vector, got shape (2, 3)."),
        (lambda: Tensor.broadcast_shapes((2,), (3,)), ShapeError,
         "broadcast_shapes: shapes (2,) and (3,) do not broadcast: axis -1 is 2 and 3."),
    ],
    "indexing": [
        (lambda: X[2], IndexingError, "index: 2 is out of range for axis 0 of length 2 in shape (2, 3)."),
        *(
            (lambda rows=rows: X[rows], IndexingError, LISTS.format(kind))
            for rows, kind in [
                ([[0, 1], [2, 0]], "lists"), ([range(1), 2], "lists"), ([INTS, INTS], "tensors"),
                ([Tensor(0), Tensor(1)], "tensors"), ([np.array([0]), 1], "tensors"), ([[0], INTS], "lists"),
            ]
        ),
        (lambda: X[0, 0, 0], IndexingError, "index: 3 indices are too many for shape (2, 3)."),
        (lambda: X[..., ...], IndexingError, "index: an index can contain only one ... (ellipsis)."),
        (lambda: X["a"], IndexingError, "index: needs ints, slices, None, ..., integer arrays or bool masks, got 'a'."),
        (lambda: X[LINE], IndexingError,
         "index: needs ints, slices, None, ..., integer arrays or bool masks, got Tensor of dtype float32."),
        (lambda: X[[0, 1], [0, 1, 2]], ShapeError, "index: index arrays of shapes (2,), (3,) do not broadcast."),
        (lambda: X[..., Tensor([True, False])], IndexingError,
         "index: a mask of shape (2,) does not fit the axes (3,) of (2, 3)."),
        (lambda: _assign(X.clone(), 0, LINE[:2]), ShapeError,
         "x[...] = value: a value of shape (2,) does not broadcast to (3,)."),
        (lambda: _assign(Tensor([1.0], requires_grad=True), 0, 2.0), GradientError,
         "x[...] = value: a leaf of shape (1,) that requires grad cannot be changed in place where gradients are"
         " recorded."),
        (lambda: X.take(LINE), DTypeError, "take: the index must be an integer tensor, got float32 of shape (3,)."),
        (lambda: X.gather(0, [0]), DTypeError,
         "gather: the index must be an integer tensor, got [0]."),  # type: ignore[arg-type]
    ],
    "scatters": [
        (lambda: X.scatter(0, INTS, LINE), ShapeError, "scatter: index of shape (2,) does not fit (2, 3) along dim 0."),
        (lambda: LINE.scatter(0, INTS, INTS), DTypeError,
         "scatter: src must be a tensor of float32, the dtype of x; got int64 of shape (2,)."),
        (lambda: LINE.scatter(0, INTS), ArgumentError, "scatter: give src, a tensor, or value, a number."),
        (lambda: LINE.scatter(0, INTS, LINE[:1]), ShapeError,
         "scatter: index of shape (2,) is larger than src of shape (1,)."),
        (lambda: LINE.scatter(0, INTS, 1.0, reduce="max"), ArgumentError,
         "scatter: reduce must be \"add\" or \"multiply\", got 'max'."),
        (lambda: LINE.scatter_reduce(0, INTS, LINE, "max"), ArgumentError,
         "scatter_reduce: reduce must be one of sum, prod, mean, amax, amin, got 'max'."),
        (lambda: X.index_add(0, INTS, LINE), ShapeError,
         "index_add: source of shape (3,) must be (2, 3): (2, 3) at (2,)."),
        (lambda: X.index_fill(0, X.long(), 1.0), ShapeError, "index_fill: index must have one axis, got (2, 3)."),
        (lambda: X.index_put((0,), LINE), ArgumentError,
         "index_put: needs integer tensors, bool masks and Nones, got (0,)."),
        (lambda: X.put(INTS, LINE), ShapeError, "put: source (3,) and index (2,) must have the same number of elements."),
        (lambda: X.masked_scatter(X, LINE), DTypeError,
         "masked_scatter: the mask must be bool, got float32 of shape (2, 3)."),
        (lambda: LINE.masked_fill_(X > 2, 0), ShapeError,
         "masked_fill_: a mask of shape (2, 3) does not broadcast to (3,)."),
        (lambda: LINE.repeat_interleave(Tensor([1, -1, 0]), 0), ArgumentError,
         "repeat_interleave: repeats must not be negative, got -1."),
        (lambda: LINE.repeat_interleave(INTS, 0), ShapeError,
         "repeat_interleave: repeats of shape (2,) must be (3,), the axis 0."),
    ],
    "order and ranks": [
        (lambda: LINE.kthvalue(4), ArgumentError, "kthvalue: k must be from 1 to 3, the length of axis -1 of (3,); got 4."),
        (lambda: Tensor.zeros(2, 0).median(1), ShapeError, "median: shape (2, 0) has no element along axis 1."),
        (lambda: Tensor.zeros(2, 0).mode(), ShapeError, "mode: shape (2, 0) has no element along axis -1."),
        (lambda: INTS.quantile(0.5), DTypeError, "quantile: needs a float, got int64 of shape (2,)."),
        (lambda: LINE.quantile(1.5), ArgumentError, "quantile: q must be a number from 0 to 1, got 1.5."),
        (lambda: LINE.quantile(0.5, interpolation="cubic"), ArgumentError,
         "quantile: interpolation must be one of linear, lower, higher, midpoint, nearest, got 'cubic'."),
        (lambda: LINE.quantile(Tensor([0.5, 2.0])).tolist(), ArgumentError,
         "quantile: an element of q is not from 0 to 1."),
    ],
    "searches and counts": [
        (lambda: X.searchsorted(LINE), ShapeError, "searchsorted: values of shape (3,) do not fit the rows of (2, 3)."),
        (lambda: LINE.searchsorted(1.0, side="left", right=True), ArgumentError,
         "searchsorted: side must be \"left\" or \"right\", as right=True says; got 'left'."),
        (lambda: LINE.bucketize(X), ShapeError, "bucketize: boundaries must be a vector, got shape (2, 3)."),
        (lambda: Tensor([1, -1]).bincount(), ArgumentError, "bincount: elements must not be negative, got -1."),
        (lambda: X.long().bincount(), ShapeError, "bincount: needs a vector and weights of the same shape; got (2, 3)."),
        (lambda: INTS.histc(), DTypeError, "histc: needs a float, got int64 of shape (2,)."),
        (lambda: LINE.histc(0), ArgumentError, "histc: needs bins >= 1 and finite min <= max, got 0, 0 and 0."),
        (lambda: LINE.histogram(2, range=(2, 1)), ArgumentError,
         "histogram: range must be (least, greatest), got (2, 1)."),
        (lambda: LINE.histogram(LINE[:1]), ShapeError, "histogram: edges must be a vector of two or more, got shape (1,)."),
        (lambda: Tensor.zeros(2, 0).unique(dim=0), ShapeError,
         "unique: the slices along axis 0 of (2, 0) have no elements."),
    ],
    "what PyTorch refuses": [
        (lambda: X.flip(0, dims=[1]), ArgumentError, "flip: (0,) and [1] are given for one argument; give one."),
        (lambda: Tensor.arange(0, float("inf")), ArgumentError,
         "arange: start, end and step must be finite, got 0, inf, 1."),
        (lambda: X.uniform_(3, -1), ArgumentError, "uniform_: low must be at most high, got 3 and -1."),
        (lambda: X.normal_(0, -1), ArgumentError, "normal_: std must not be negative, got -1."),
        (lambda: X.isclose(X, rtol=-0.5), ArgumentError,
         "isclose: rtol and atol must not be negative, got rtol=-0.5, atol=1e-08."),
        (lambda: X.cov(fweights=LINE), DTypeError, "cov: fweights must be integers, got float32."),
        (lambda: X.masked_fill(X > 0, LINE[:1]), ShapeError,
         "masked_fill: a tensor as value must have no axes, got shape (1,)."),
        (lambda: Tensor([1.0, 2.0, 3.0]).masked_scatter_(X > 0, X), ShapeError,
         "masked_scatter_: a result of shape (2, 3) does not fit into (3,)."),
        (lambda: LINE.index_select(0, X.long()), ShapeError, "index_select: index must have one axis, got (2, 3)."),
        (lambda: NUMBER.index_select(0, Tensor([0, 0])), ShapeError,
         "index_select: a tensor without axes has one element; index has shape (2,)."),
        (lambda: LINE.multinomial(0), ArgumentError, "multinomial: needs at least one sample, got 0."),
        (lambda: LINE.renorm(2, 0, 1.0), ShapeError, "renorm: needs two axes, got shape (3,)."),
        (lambda: X.renorm(0, 0, 1.0), ArgumentError,
         "renorm: p must be above 0 and maxnorm at least 0, got p=0, maxnorm=1.0."),
        (lambda: X.mean(dtype=pg.int64), DTypeError, "mean: dtype must be a float, got int64."),
        (lambda: X.cross(LINE), ShapeError, "cross: both need the same number of axes, got (2, 3) and (3,)."),
        (lambda: pg.linalg.cross(X, X[:, :1]), ShapeError,
         "linalg.cross: axis -1 of (2, 1) must have length 3, it has 1."),
        (lambda: LINE.norm("nuc"), ShapeError, 'norm: p="nuc" needs the two axes of matrices, got (0,) of shape (3,).'),
        (lambda: Tensor([1, 2]).narrow(0, Tensor(True), 1), ArgumentTypeError,
         "narrow: start must be an int or a Length, got a Tensor of shape () and dtype bool."),
        (lambda: pg.nn.functional.cross_entropy(X, X, ignore_index=1), ArgumentError,
         "cross_entropy: ignore_index=1 is for classes; target holds probabilities."),
        (lambda: pg.optim.Adam([NEEDED], lr=LINE), ArgumentError, "Adam: lr must be one number, got shape (3,)."),
        (lambda: pg.optim.Adafactor([NEEDED], eps=(-1.0, 1e-3)), ArgumentError,
         "Adafactor: beta2_decay must be at most 0 and eps at least 0, got -0.8, (-1.0, 0.001)."),
    ],
}  # fmt: skip


def _assign(x: Tensor, index: Any, value: Any) -> None:
    x[index] = value


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_call_says_what_is_wrong_where_it_stands(kind: str) -> None:
    for call, error, fact in WRONG[kind]:
        with pytest.raises(error) as caught:
            call()
        assert caught.value.fact == fact
        assert caught.value.line is not None and caught.value.line.file == __file__, fact


CHECKED: list[tuple[Callable[[Tensor, Tensor], Tensor], str]] = [
    (lambda m, v: v.scatter(0, Tensor([3]), 1.0), "scatter: 3 is out of range for axis 0 of length 3 in shape (3,)."),
    (lambda m, v: v.scatter(0, Tensor([-1]), 1.0), "scatter: -1 is out of range for axis 0 of length 3 in shape (3,)."),
    (lambda m, v: v.index_add(0, Tensor([5]), v[:1]), "index_add: 5 is out of range for axis 0 of length 3 in shape (3,)."),
    (lambda m, v: v.index_fill(0, Tensor([-4]), 1.0),
     "index_fill: -4 is out of range for axis 0 of length 3 in shape (3,)."),
    (lambda m, v: m.take(Tensor([6])), "take: 6 is out of range for axis 0 of length 6 in shape (6,)."),
    (lambda m, v: m.put(Tensor([-7]), v[:1]), "put: -7 is out of range for axis 0 of length 6 in shape (6,)."),
    (lambda m, v: v.masked_scatter(v > 0, v[:2]), "masked_scatter: the mask needs element 2 of a source of 2 elements."),
    (lambda m, v: v.masked_scatter(v > 0, v[:0]), "masked_scatter: the mask asks for elements of an empty source."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "fact"), CHECKED, ids=[fact.split(":")[0] for _, fact in CHECKED])
def test_what_values_decide_is_said_when_they_are_computed(call: Any, fact: str, device: str) -> None:
    found = call(Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]), Tensor([1.0, 2.0, 3.0]))
    with pytest.raises(IndexingError) as caught:
        found.tolist()
    assert caught.value.fact == fact
    assert caught.value.line is not None and caught.value.line.file == __file__
