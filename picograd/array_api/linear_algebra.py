"""Products of matrices and vectors.

In:    arrays
Out:   Arrays
Next:  picograd/array_api/linalg.py
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.array_api.array import NUMERIC, Array, array, pair
from picograd.errors import ShapeError
from picograd.tensor.build import axis_of
from picograd.tensor.products.einsum import tensordot as torch_tensordot
from picograd.tensor.tensor import Tensor


def matmul(x1: Tensor, x2: Tensor, /) -> Array:
    """Returns the product of matrices over the last two axes, the axes before them broadcast.

    Raises:
      ShapeError: the inner dimensions differ.

    >>> matmul(Array([[1, 2], [3, 4]]), Array([1, 1]))
    Array([3, 7])
    """
    a, b = pair("matmul", array("matmul", x1), array("matmul", x2), NUMERIC)
    return a.matmul(b)


def matrix_transpose(x: Tensor, /) -> Array:
    """Returns a view with the last two axes exchanged.

    Raises:
      ShapeError: there are not two.

    >>> matrix_transpose(Array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]])
    """
    return array("matrix_transpose", x).mT


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Array:
    """Returns the sums of products over pairs of axes.

    Args:
      axes:  how many of the last axes of x1 meet the first ones of x2; or the axes of x1 and those of x2

    Raises:
      ShapeError:    axes that meet are not of one length.
      ArgumentError: an array has no such axes.

    >>> tensordot(Array([[1, 2], [3, 4]]), Array([1, 1]), axes=1)
    Array([3, 7])
    """
    a, b = pair("tensordot", array("tensordot", x1), array("tensordot", x2), NUMERIC)
    dims = axes if isinstance(axes, int) else (tuple(axes[0]), tuple(axes[1]))
    return array("tensordot", torch_tensordot(a, b, dims))


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Array:
    """Returns the dot products of vectors along one axis, the other axes broadcast.

    Raises:
      ShapeError:    the axes are not of one length.
      IndexingError: an array has no such axis.

    >>> vecdot(Array([[1, 2], [3, 4]]), Array([1, 1]))
    Array([3, 7])
    """
    a, b = pair("vecdot", array("vecdot", x1), array("vecdot", x2), NUMERIC)
    lengths = {x.shape[axis_of("vecdot", x.op.shape, axis)] if x.ndim else None for x in (a, b)}
    if None in lengths or len(lengths) > 1:
        raise ShapeError(f"vecdot: axis {axis} of shapes {a.shape} and {b.shape} must be of one length.")
    first, second = a.movedim(axis, -1).unsqueeze(-2), b.movedim(axis, -1).unsqueeze(-1)
    return first.matmul(second).squeeze((-2, -1))
