"""Norms, distances, cross products and covariances.

In:    tensors
Out:   `cross`, `cov`, `corrcoef`: methods of Tensor; `cross_op`, `cdist`
Next:  picograd/tensor/products/host_calls.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import diagonal, pad_axis, reshape, shrink_axis, unary
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import axis_of, broadcast_shapes, broadcast_to, cast, one_name, promoted, to_float
from picograd.tensor.core import T
from picograd.tensor.elements.operators import result_of
from picograd.tensor.reductions.norms import norm_op

if TYPE_CHECKING:
    from picograd.tensor.tensor import Tensor


__all__ = ["cdist", "corrcoef", "cov", "cross"]


# ---- on Ops ----
def _turned(x: Op, axis: int, by: int) -> Op:
    """Returns three elements along an axis, the one at `by` first."""

    def piece(start: int, stop: int, before: int) -> Op:
        return pad_axis(shrink_axis(x, axis, start, stop), axis, before, 3 - before - (stop - start))

    return piece(by, 3, 0) + piece(0, by, 3 - by)


def cross_op(function: str, a: Op, b: Op, axis: int) -> Op:
    """Returns a x b along an axis of length 3.

    Raises:
      ShapeError: the shapes do not broadcast, have other numbers of axes, or the axis another length.
    """
    if len(a.shape) != len(b.shape):
        raise ShapeError(f"{function}: both need as many axes, got {a.shape} and {b.shape}.")
    shape = broadcast_shapes(function, a.shape, b.shape)
    place = axis_of(function, shape, axis)
    for given in (a.shape, b.shape):
        if given[place] != 3:
            raise ShapeError(f"{function}: axis {axis} of {given} must have length 3, it has {given[place]}.")
    a, b = broadcast_to(a, shape), broadcast_to(b, shape)
    return _turned(a, place, 1) * _turned(b, place, 2) - _turned(a, place, 2) * _turned(b, place, 1)


def common(function: str, *tensors: Tensor) -> list[Op]:
    """Returns the values of tensors in one dtype."""
    ops = [tensor.read() for tensor in tensors]
    dtype = ops[0].dtype
    for op in ops[1:]:
        dtype = promoted(cast(ops[0], dtype), op)
    return [cast(op, dtype) for op in ops]


def cdist(x1: Any, x2: Any, p: float = 2.0, compute_mode: str | None = None) -> Any:
    """Returns the distance of each vector of x1 from each of x2: (..., P, M), (..., R, M) -> (..., P, R).

    out[i, j] = (sum |x1[i] - x2[j]|^p)^(1/p)

    Args:
      x1, x2:        stacks of vectors; leading axes broadcast
      p:             0 or more, or inf
      compute_mode:  taken for PyTorch's sake: differences are always formed, in one kernel with their sum

    Raises:
      ShapeError:    there are less than two axes, or M differs.
      ArgumentError: p is negative.

    >>> cdist(Tensor([[0.0, 0.0], [3.0, 4.0]]), Tensor([[0.0, 0.0]]))
    Tensor([[0.],
            [5.]])
    """
    first, second = tensor_of("cdist", "x1", x1), tensor_of("cdist", "x2", x2)
    a, b = common("cdist", first, second)
    if len(a.shape) < 2 or len(b.shape) < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: needs (..., P, M) and (..., R, M), got {a.shape} and {b.shape}.")
    if not isinstance(p, (int, float)) or not p >= 0:
        raise ArgumentError(f"cdist: p must be 0 or more, got {p!r}.")
    rows = (*a.shape[:-1], 1, a.shape[-1])
    columns = (*b.shape[:-2], 1, *b.shape[-2:])
    shape = broadcast_shapes("cdist", rows, columns)
    difference = broadcast_to(reshape(to_float(a), rows), shape) - broadcast_to(reshape(to_float(b), columns), shape)
    op = norm_op(difference, p, (len(shape) - 1,))
    return first.from_op(op, first.other_device("cdist", second))


def cross(self: T, other: Any, dim: int | None = None, *, axis: int | None = None) -> T:
    """Returns the cross product along an axis of length 3; by default the first that is so long.

    Raises:
      ShapeError: the shapes do not broadcast, or there is no such axis.

    >>> Tensor([1.0, 0.0, 0.0]).cross(Tensor([0.0, 1.0, 0.0]))
    Tensor([0., 0., 1.])
    """
    found = tensor_of("cross", "other", other)
    a, b = common("cross", self, found)
    chosen = one_name("cross", dim, axis)
    if chosen is None:
        shape = broadcast_shapes("cross", a.shape, b.shape)
        if 3 not in shape:
            raise ShapeError(f"cross: needs an axis of length 3, got {a.shape} and {b.shape}.")
        chosen = shape.index(3)
    return result_of(self, "cross", cross_op("cross", a, b, chosen), found)


def cov(self: T, *, correction: int = 1, fweights: Any = None, aweights: Any = None) -> T:
    """Returns the covariances of the rows, each an unknown, of which a column is an observation.

    C = (X - mean) diag(w) (X - mean).T / (sum w - correction * sum w a / sum w), w = fweights * aweights

    Args:
      correction:  1 for an unbiased estimate, 0 for the mean of products
      fweights:    how often each observation was made, integers
      aweights:    how much each observation counts, floats

    Raises:
      ShapeError: there are more than two axes, or weights are not one for each observation.
      DTypeError: fweights are no integers, or aweights no floats.

    >>> Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).cov()
    Tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if self.ndim > 2:
        raise ShapeError(f"cov: needs at most two axes, got shape {self.shape}.")
    x = self if self.dtype.is_float else self.cast(dtypes.default_float)
    x = x.reshape(1, -1) if x.ndim < 2 else x
    weights = _weights(self, fweights, aweights, x.shape[1:])
    if weights is None:
        total: Any = x.shape[-1]
        mean, norm = x.sum(1, keepdim=True) / total, total - correction
    else:
        total = weights.sum()
        mean = (x * weights).sum(1, keepdim=True) / total
        norm = total - correction * ((weights * aweights).sum() / total if aweights is not None else 1)
    centred = x - mean
    right = (centred if weights is None else centred * weights).T
    norm = norm.cast(x.dtype).clamp(min=0) if isinstance(norm, type(self)) else max(norm, 0)
    result: T = centred.matmul(right).div(norm)
    return result.squeeze()


def _weights(self: T, fweights: Any, aweights: Any, shape: Shape) -> Any:
    """Returns the product of the weights that are given, one for each observation; None where there are none."""
    given: list[Any] = []
    for name, value, kinds in (("fweights", fweights, "iu"), ("aweights", aweights, "f")):
        if value is None:
            continue
        weights = tensor_of("cov", name, value)
        if weights.shape != shape:
            raise ShapeError(f"cov: {name} of shape {weights.shape} are not one for each of {shape} observations.")
        if weights.dtype.kind not in kinds:
            raise DTypeError(f"cov: {name} must be {'floats' if kinds == 'f' else 'integers'}, got {weights.dtype}.")
        given.append(weights)
    if len(given) == 2:
        return given[0] * given[1]
    return given[0] if given else None


def corrcoef(self: T) -> T:
    """Returns the correlations of the rows: their covariances by the roots of their variances, from -1 to 1.

    Raises:
      ShapeError: there are more than two axes.

    >>> Tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]).corrcoef()
    Tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    if self.ndim > 2:
        raise ShapeError(f"corrcoef: needs at most two axes, got shape {self.shape}.")
    covariance = cov(self)
    if covariance.ndim == 0:
        return covariance / covariance
    deviation = self.from_op(unary(OpCode.SQRT, diagonal(covariance.read())), covariance.cell.device)
    return (covariance / deviation.reshape(-1, 1) / deviation.reshape(1, -1)).clamp(-1, 1)
