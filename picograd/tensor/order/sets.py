"""Tensors as sets: every value once, with where it went and how often it came.

In:    tensors
Out:   `unique`, `unique_consecutive`: methods of Tensor
Next:  picograd/tensor/movement/patterns.py

The values are sorted, so that equal ones are neighbours: n log n. Only their number is read on the host.
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.ir.build import compare, gather, iota, pad, reshape, scan, scatter, shrink, where
from picograd.ir.op import Op, filled
from picograd.ir.opcode import OpCode
from picograd.ir.shape import numel
from picograd.tensor.build import axis_of, detached
from picograd.tensor.core import T
from picograd.tensor.indexing.brackets import along
from picograd.tensor.order.ranks import starts_run
from picograd.tensor.variable import known

__all__ = ["unique", "unique_consecutive"]


def unique(
    self: T,
    sorted: bool = True,  # noqa: A002
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """Returns every element once, in order; computes the tensor. NaNs are all different.

    Args:
      sorted:          in order, which they are in any case
      return_inverse:  also, for each element, its place in the result: out[inverse] = self
      return_counts:   also how often each one came
      dim:             the slices along this axis are compared, from their first element on; None: all elements

    Raises:
      ShapeError: an axis beside `dim` has no elements.

    >>> Tensor([3, 1, 3]).unique()
    Tensor([1, 3])
    >>> Tensor([3, 1, 3]).unique(return_inverse=True, return_counts=True)
    (Tensor([1, 3]), Tensor([1, 0, 1]), Tensor([1, 2]))
    """
    return _once(self, "unique", return_inverse, return_counts, dim, sorts=True)


def unique_consecutive(self: T, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None) -> Any:
    """Returns the first of each run of equal elements; computes the tensor.

    Args:
      return_inverse:  also, for each element, the place of its run in the result
      return_counts:   also how long each run is
      dim:             the slices along this axis are compared; None: all elements

    Raises:
      ShapeError: an axis beside `dim` has no elements.

    >>> Tensor([3, 3, 1, 3]).unique_consecutive()
    Tensor([3, 1, 3])
    """
    return _once(self, "unique_consecutive", return_inverse, return_counts, dim, sorts=False)


def _once(self: T, function: str, inverse: bool, counts: bool, dim: int | None, sorts: bool) -> Any:
    """Returns the first of each run of equal elements or slices, once sorted if asked for."""
    axis, shape, device = axis_of(function, self.op.shape, dim or 0), self.op.shape, self.cell.device
    for a in range(len(shape)):
        known(function, self.shape, a)
    line = reshape(self.read(), (numel(shape),)) if dim is None or not shape else self.movedim(axis, 0).read()
    length = line.shape[0]
    assert isinstance(length, int)
    if length and not line.numel:
        raise ShapeError(f"{function}: the slices along axis {dim} of {self.shape} have no elements.")
    order, starts = _runs(line, sorts) if length else (iota(0), filled(False, dtypes.bool_, (0,)))
    number = scan(where(starts, filled(1, dtypes.int64, (length,)), 0), OpCode.ADD, 0) - 1  # of its run
    total = int(self.from_op(number, device)._host(function)[-1]) + 1 if length else 0
    begins = scatter(iota(total), where(starts, number, -1), iota(length), None, 0, 0)
    taken = gather(line, gather(order, begins, 0, 0), 0, 0)
    result = self.from_op(taken, device)
    results = [result if dim is None or not shape else result.movedim(0, axis)]
    if inverse:
        places = scatter(iota(length), order, number, None, 0, 0)
        results.append(self.from_op(reshape(places, shape) if dim is None or not shape else places, device))
    if counts:
        ends = pad(shrink(begins, ((min(1, total), total),)), ((0, min(1, total)),))
        last = compare(OpCode.CMPEQ, iota(total), total - 1)
        results.append(self.from_op(where(last, length, ends) - begins, device))
    return tuple(results) if len(results) > 1 else results[0]


# ---- on Ops ----
def _runs(line: Op, sorts: bool) -> tuple[Op, Op]:
    """Returns (order, whether a run of equal slices starts at each place of it)."""
    length = line.shape[0]
    keys = detached(line) if len(line.shape) == 1 else _dense_ranks(detached(line))
    if not sorts:
        return iota(length), starts_run(keys)
    order = Op(OpCode.SORT, dtypes.int64, (keys,), (0, False))
    return order, starts_run(gather(keys, order, 0, 0))


def _dense_ranks(rows: Op) -> Op:
    """Returns one integer for each row, in the order of rows compared from their first element on.

    Columns are ranked; then two and two of them become one, of pairs of ranks, which is ranked again: log2(columns) rounds.
    """
    length = rows.shape[0]
    columns = reshape(rows, (length, numel(rows.shape[1:])))
    ranks = _ranked(columns)
    while (count := ranks.shape[1]) != 1:
        assert isinstance(count, int) and isinstance(length, int)
        paired = pad(ranks, ((0, 0), (0, count % 2)))
        half = (count + 1) // 2
        pairs = reshape(paired, (length, half, 2))
        high, low = (reshape(shrink(pairs, ((0, length), (0, half), (i, i + 1))), (length, half)) for i in (0, 1))
        ranks = _ranked(high * length + low)
    return reshape(ranks, (length,))


def _ranked(columns: Op) -> Op:
    """Returns, in each column, how many different values are less than each."""
    order = Op(OpCode.SORT, dtypes.int64, (columns,), (0, False))
    ordered = Op(OpCode.PERMUTE, columns.dtype, (along(columns, order, 0),), (1, 0))
    number = scan(where(starts_run(ordered), filled(1, dtypes.int64, ordered.shape), 0), OpCode.ADD, 1) - 1
    back = Op(OpCode.PERMUTE, dtypes.int64, (order,), (1, 0))
    placed = scatter(filled(0, dtypes.int64, ordered.shape), back, number, None, 1, 1)
    return Op(OpCode.PERMUTE, dtypes.int64, (placed,), (1, 0))
