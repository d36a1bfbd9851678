"""Sets: distinct elements. What they are, the values decide: they are computed at once.

In:    arrays
Out:   Arrays, in named tuples
Next:  picograd/array_api/indexing.py
"""

from __future__ import annotations

from typing import NamedTuple

from picograd.array_api.array import Array, array, pair
from picograd.array_api.elementwise import Operand
from picograd.tensor.tensor import Tensor


class UniqueAll(NamedTuple):
    """What unique_all returns.

    values:           the distinct elements, in rising order
    indices:          where the first of each stands in the flattened array
    inverse_indices:  which of the values each element is, in the shape of the array
    counts:           how often each occurs
    """

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What unique_counts returns.

    values:  the distinct elements, in rising order
    counts:  how often each occurs
    """

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What unique_inverse returns.

    values:           the distinct elements, in rising order
    inverse_indices:  which of the values each element is, in the shape of the array
    """

    values: Array
    inverse_indices: Array


def isin(x1: Operand, x2: Operand, /, *, invert: bool = False) -> Array:
    """Returns True where an element of x1 is one of x2; where it is none, if `invert`.

    >>> isin(Array([1, 2, 3]), Array([3, 1]))
    Array([ True, False,  True])
    """
    elements, tested = pair("isin", x1, x2)
    return elements.isin(tested, invert=invert)


def unique_all(x: Tensor, /) -> UniqueAll:
    """Returns the distinct elements, where each first stands, which each element is, and how often each occurs.

    >>> unique_all(Array([3, 1, 3])).indices
    Array([1, 0])
    """
    source = array("unique_all", x)
    values, inverse, counts = source.unique(return_inverse=True, return_counts=True)
    order = inverse.flatten().argsort(stable=True)
    return UniqueAll(values, order[counts.cumsum(0) - counts], inverse.reshape(source.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """Returns the distinct elements, and how often each occurs.

    >>> unique_counts(Array([3, 1, 3])).counts
    Array([1, 2])
    """
    return UniqueCounts(*array("unique_counts", x).unique(return_counts=True))


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """Returns the distinct elements, and which of them each element is.

    >>> unique_inverse(Array([3, 1, 3])).inverse_indices
    Array([1, 0, 1])
    """
    source = array("unique_inverse", x)
    values, inverse = source.unique(return_inverse=True)
    return UniqueInverse(values, inverse.reshape(source.shape))


def unique_values(x: Tensor, /) -> Array:
    """Returns the distinct elements in rising order; each NaN is distinct.

    >>> unique_values(Array([3, 1, 3]))
    Array([1, 3])
    """
    values: Array = array("unique_values", x).unique()
    return values
