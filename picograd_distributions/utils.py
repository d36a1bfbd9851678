"""torch.distributions.utils by its names: building blocks for users' distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, ShapeError
from picograd.tensor.free_functions import tril_indices
from picograd.tensor.modes import enable_grad
from picograd.tensor.tensor import Tensor

__all__ = [
    "broadcast_all", "clamp_probs", "euler_constant", "lazy_property", "logits_to_probs", "probs_to_logits",
    "tril_matrix_to_vec", "vec_to_tril_matrix",
]  # fmt: skip
euler_constant = 0.57721566490153286061  # OEIS A001620


def broadcast_all(*values: Tensor | float) -> tuple[Tensor, ...]:
    """Returns tensors and numbers as tensors broadcast to one shape.

    Args:
      values:  numbers get the dtype and device of the first tensor, else the default dtype

    Raises:
      ArgumentError: a value is neither a tensor nor a number.
      ShapeError: the shapes do not broadcast.

    >>> loc, scale = pg.distributions.utils.broadcast_all(pg.zeros(3), 2.0)
    >>> scale
    Tensor([2., 2., 2.])
    """
    for value in values:
        if not isinstance(value, Tensor | float | int):
            raise ArgumentError(f"broadcast_all: values must be tensors and numbers, got {value!r}.")
    like = next((value for value in values if isinstance(value, Tensor)), Tensor(0.0, dtypes.default_float))
    return tuple(Tensor.broadcast_tensors(*[one if isinstance(one, Tensor) else like.new_tensor(one) for one in values]))


def clamp_probs(probs: Tensor) -> Tensor:
    """Returns probabilities clamped to [eps, 1 - eps] of their dtype, so that their logits are finite.

    >>> pg.distributions.utils.clamp_probs(Tensor([0.0, 0.5]))
    Tensor([1.1920929e-07, 5.0000000e-01])
    """
    eps = dtypes.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Returns the logarithms of probabilities; for binary ones log(p / (1 - p)).

    Args:
      probs:      of the classes along the last axis; with is_binary those of success
      is_binary:  each is a probability of success

    >>> pg.distributions.utils.probs_to_logits(Tensor(0.5), is_binary=True)
    Tensor(0.)
    """
    probs = clamp_probs(probs)
    return probs.log() - (-probs).log1p() if is_binary else probs.log()


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Returns softmax(logits) along the last axis; for binary ones sigmoid(logits).

    Args:
      logits:     of the classes along the last axis; with is_binary log(p / (1 - p))
      is_binary:  each is log(p / (1 - p))

    >>> pg.distributions.utils.logits_to_probs(pg.zeros(2))
    Tensor([0.5, 0.5])
    """
    return logits.sigmoid() if is_binary else logits.softmax(-1)


class lazy_property(property):  # noqa: N801  PyTorch's name
    """A property that is computed on first access, with gradients, and then kept on the object.

    Args:
      wrapped:  method that computes it

    >>> class Scaled:
    ...     @pg.distributions.utils.lazy_property
    ...     def scale(self):
    ...         return pg.ones(2)
    >>> made = Scaled()
    >>> made.scale is made.scale
    True
    """

    def __init__(self, wrapped: Callable[[Any], Any]):
        super().__init__(self._kept)
        self.wrapped, self.__doc__ = wrapped, wrapped.__doc__

    def _kept(self, made: Any) -> Any:
        name = self.wrapped.__name__
        if name not in vars(made):
            with enable_grad():
                vars(made)[name] = self.wrapped(made)
        return vars(made)[name]


def _standard_normal(shape: Sequence[int], dtype: DType, device: Any) -> Tensor:
    """Returns draws of the standard normal distribution: distributions of users draw from it."""
    return Tensor.randn(*shape, dtype=dtype, device=device)


def _sum_rightmost(value: Tensor, dim: int) -> Tensor:
    """Returns the sums over the last `dim` axes: densities of independent components."""
    return value if dim == 0 else value.sum(dim=tuple(range(-dim, 0)))


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """Returns the lower triangles of matrices as vectors, row by row.

    Args:
      mat:   (..., n, n)
      diag:  the last included diagonal, from -n to n - 1

    Raises:
      ShapeError: the matrices lack the diagonal.

    >>> pg.distributions.utils.tril_matrix_to_vec(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([1., 3., 4.])
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ShapeError(f"tril_matrix_to_vec: diag must be from {-n} to {n - 1}, got {diag}.")
    rows, columns = tril_indices(n, n, diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Returns matrices whose lower triangles are vectors, row by row.

    Args:
      vec:   (..., m)
      diag:  the last filled diagonal; for 0, m = 1 + ... + n for n x n matrices

    Raises:
      ShapeError: no square matrix has a triangle of m elements.

    >>> pg.distributions.utils.vec_to_tril_matrix(Tensor([1.0, 3.0, 4.0]))
    Tensor([[1., 0.],
            [3., 4.]])
    """
    count = vec.shape[-1]
    n = next(n for n in range(max(0, -diag), count + abs(diag) + 2) if _triangle(n, diag) >= count)
    if _triangle(n, diag) != count:
        raise ShapeError(f"vec_to_tril_matrix: no square matrix has {count} elements up to diagonal {diag}.")
    rows, columns = tril_indices(n, n, diag)
    flat = vec.new_zeros((*vec.shape[:-1], n * n))
    flat = flat.index_copy(-1, rows * n + columns, vec)
    return flat.reshape((*vec.shape[:-1], n, n))


def _triangle(n: int, diag: int) -> int:
    """Returns the number of elements of an n x n matrix up to a diagonal."""
    return sum(min(max(row + 1 + diag, 0), n) for row in range(n))
