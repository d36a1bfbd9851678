"""Looking things up in what is in order: searchsorted, bucketize, isin.

In:    tensors
Out:   `searchsorted`, `bucketize`, `isin`: methods of Tensor
Next:  picograd/tensor/reductions/counts.py

A search halves what is left at each step: log2(n) reads for each value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, ShapeError
from picograd.ir.op import filled
from picograd.tensor.build import cast, detached
from picograd.tensor.core import T, TensorCore
from picograd.tensor.creation.places import lower_bound
from picograd.tensor.order.sorting import sort
from picograd.tensor.variable import known

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["bucketize", "isin", "searchsorted"]


def searchsorted(
    self: T,
    input: Any,  # noqa: A002
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> T:
    """Returns where each value of `input` would be inserted into the rows of this tensor to keep their order.

    The first place i with self[i - 1] < v <= self[i]; with `right`, self[i - 1] <= v < self[i]. NaN is greatest.

    Args:
      input:      values: for a vector a number or a tensor of any shape, else of self's shape but for the last axis
      out_int32:  the result is int32, else int64
      right:      behind equal elements, not before them
      side:       "left" or "right", in place of `right`
      sorter:     self.argsort(), where the rows are not in order themselves

    Raises:
      ShapeError:    the rows of input are not those of self.
      ArgumentError: side says another thing than right, or another word.

    >>> Tensor([1, 3, 3, 5]).searchsorted(Tensor([0, 3, 9]))
    Tensor([0, 1, 4])
    >>> Tensor([1, 3, 3, 5]).searchsorted(3, right=True)
    Tensor(3)
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ArgumentError(f'searchsorted: side must be "left" or "right", as right={right} says; got {side!r}.')
    ordered = self
    if sorter is not None:
        if sorter.shape != self.shape:
            raise ShapeError(f"searchsorted: sorter of shape {sorter.shape} must have the shape {self.shape} of x.")
        ordered = self.take_along_dim(sorter, -1)
    return places_of(ordered, "searchsorted", input, right or side == "right", out_int32)


def bucketize(self: T, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> T:
    """Returns the number of the bucket each element lies in; `boundaries`, a vector in order, lie between buckets.

    boundaries[i - 1] < x <= boundaries[i]; with `right`, boundaries[i - 1] <= x < boundaries[i].

    Args:
      boundaries: where one bucket ends and the next begins
      out_int32:  the result is int32, else int64
      right:      an element equal to a boundary lies behind it

    Raises:
      ShapeError: boundaries is no vector.

    >>> Tensor([0, 3, 9]).bucketize(Tensor([1, 3, 5]))
    Tensor([0, 1, 3])
    """
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries must be a vector, got shape {boundaries.shape}.")
    rows = type(self).from_op(boundaries.read(), boundaries.cell.device)
    return places_of(rows, "bucketize", self, right, out_int32)


def isin(self: T, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> T:
    """Returns True for each element that is among `test_elements`; with `invert`, False.

    Args:
      test_elements:  a tensor of any shape, or a number; they are sorted, and searched
      assume_unique:  neither has an element twice: it changes nothing here
      invert:         says the opposite

    >>> Tensor([1, 2, 3]).isin(Tensor([3, 1]))
    Tensor([ True, False,  True])
    """
    if not isinstance(test_elements, TensorCore):
        return self.ne(test_elements) if invert else self.eq(test_elements)
    tests: T = type(self).from_op(test_elements.read(), test_elements.cell.device).flatten()
    if not known("isin", tests.shape, 0):
        return self.from_op(filled(invert, dtypes.bool_, self.op.shape), self.other_device("isin", test_elements))
    ordered: T = sort(tests).values
    place = places_of(ordered, "isin", self, False, False).clamp(max=tests.shape[0] - 1)
    found = ordered.take(place)
    return self.ne(found) if invert else self.eq(found)


def places_of(self: T, function: str, values: Any, right: bool, out_int32: bool) -> T:
    """Returns the places of values in rows in order."""
    if not self.ndim:
        raise ShapeError(f"{function}: a sequence in order needs an axis, got shape ().")
    if not isinstance(values, TensorCore):
        dtype = dtypes.promote_scalar(self.dtype, values) if isinstance(values, (bool, int, float)) else None
        values = type(self)(values, dtype, self.device)
    rows, length = self.op.shape[:-1], known(function, self.shape, self.ndim - 1)
    if rows and values.op.shape[:-1] != rows:
        raise ShapeError(f"{function}: values of shape {values.shape} do not fit the rows of {self.shape}.")
    ordered, wanted = detached(self.read()), detached(values.read())
    dtype = dtypes.promote(ordered.dtype, wanted.dtype)
    found = lower_bound(cast(ordered, dtype), cast(wanted, dtype), length, right)
    device = self.other_device(function, values)
    return self.from_op(cast(found, dtypes.int32) if out_int32 else found, device)
