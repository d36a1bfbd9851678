"""Creation of arrays.

In:    shapes, Python numbers, nested lists of them, arrays of other libraries
Out:   Arrays: float32 by default, int64 of integers, on the default device
"""

from __future__ import annotations

from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType, Scalar
from picograd.errors import ArgumentError, DTypeError
from picograd.tensor.tensor import Tensor
from picograd_array_api.array import Array, array


def arange(
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: DType | None = None,
    device: str | None = None,
) -> Array:
    """Returns start, start + step, ... below `stop`; arange(n) counts from 0.

    The result is empty if step leads away from `stop`.

    Raises:
      ArgumentError: step is 0.

    >>> arange(1, 7, 2)
    Array([1, 3, 5])
    """
    if stop is None:
        start, stop = 0, start
    if step == 0:
        raise ArgumentError("arange: step must not be 0.")
    if (stop - start) / step <= 0:
        whole = all(isinstance(value, int) for value in (start, stop, step))
        return zeros((0,), dtype=dtype or (dtypes.default_int if whole else dtypes.default_float), device=device)
    return Array.arange(start, stop, step, dtype=dtype, device=device)


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: str | None = None, copy: bool | None = None
) -> Array:
    """Returns an array of numbers.

    Args:
      obj:   an array, a number, nested lists of numbers, or an array of another library (DLPack, buffer protocol)
      copy:  True: always copy. False: never; None: only if necessary

    Raises:
      ArgumentError: copy=False for a number, a list, or another dtype or device, which need a copy.
      SharingError:  copy=False where the memory of another library cannot be shared.
      DTypeError:    the data is neither numbers nor bools, or does not fit dtype.
      ShapeError:    lists at the same depth differ in length.

    >>> asarray([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    if isinstance(obj, Tensor):
        given = array("asarray", obj)
    elif hasattr(obj, "__dlpack__") and hasattr(obj, "__dlpack_device__"):
        try:
            given = Array.from_dlpack(obj, copy=copy)
        except BufferError:  # from the other library: DLPack does not support the elements or the layout
            if copy is False:
                raise
            return Array(obj, dtype, device)
    elif copy is False:
        raise ArgumentError(f"asarray: a {type(obj).__name__} must be copied, and copy=False.", hint="copy=None")
    else:
        return Array(obj, dtype, device)
    result = given if dtype is None else given.cast(dtype)
    result = result if device is None else result.to(device)
    if copy is False and result is not given:
        fact = f"asarray: copy=False, but {given.dtype} on {given.device} has to become {result.dtype} on {result.device}."
        raise ArgumentError(fact, hint="copy=None")
    return result.clone() if copy and result is given else result


def empty(shape: int | tuple[int, ...], *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns an array to be overwritten; it holds zeros.

    >>> empty((2, 3)).shape
    (2, 3)
    """
    return Array.empty(_shape(shape), dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns an array of the shape of x, to be overwritten; it holds zeros.

    >>> empty_like(Array([1, 2])).shape
    (2,)
    """
    return full_like(x, 0, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None, device: str | None = None
) -> Array:
    """Returns a matrix with ones on the diagonal `k` above the main one, zeros elsewhere.

    >>> eye(2, 3, k=1)
    Array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    columns = n_rows if n_cols is None else n_cols
    row = Array.arange(n_rows).reshape(n_rows, 1)
    k = max(-n_rows, min(k, columns))  # diagonals further away are outside, too
    return (row + k).eq(Array.arange(columns)).cast(dtype or dtypes.default_float).to(device)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Array:
    """Returns an array on the memory of another library's array; each sees the other's writes.

    Args:
      copy:  True: always copy. False: never; None: if the device or the layout requires it

    Raises:
      SharingError: copy=False, and only a copy is possible.
      DTypeError:   picograd lacks the dtype of the elements.

    >>> import numpy as np
    >>> from_dlpack(np.arange(3))
    Array([0, 1, 2])
    """
    return Array.from_dlpack(x, device=device, copy=copy)


def full(
    shape: int | tuple[int, ...], fill_value: Scalar, *, dtype: DType | None = None, device: str | None = None
) -> Array:
    """Returns `fill_value` broadcast to `shape`; by default in the default dtype of the number's kind.

    >>> full((2,), 7)
    Array([7, 7])
    """
    return Array.full(_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: Scalar, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns `fill_value` in the shape and dtype of x, by default on its device.

    >>> full_like(Array([1, 2]), 7)
    Array([7, 7])
    """
    return Array.full_like(array("full_like", x), fill_value, dtype=dtype).to(device)


def linspace(
    start: int | float,
    stop: int | float,
    /,
    num: int,
    *,
    dtype: DType | None = None,
    device: str | None = None,
    endpoint: bool = True,
) -> Array:
    """Returns `num` equally spaced numbers from `start` to `stop`, which is included if `endpoint`.

    Raises:
      DTypeError: dtype is not a float.

    >>> linspace(0.0, 1.0, 4, endpoint=False)
    Array([0.  , 0.25, 0.5 , 0.75])
    """
    chosen = dtype or dtypes.default_float
    if not chosen.is_float:
        raise DTypeError(f"linspace: needs a float dtype, got {chosen}.")
    if endpoint:
        return Array.linspace(start, stop, num, dtype=chosen, device=device)
    return Array.linspace(start, stop, num + 1, dtype=chosen, device=device)[:num]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Array, ...]:
    """Returns for each 1-d array its elements broadcast along the axes of all others.

    Args:
      indexing:  "ij": array i runs along axis i; "xy": the first two axes exchanged

    Raises:
      ArgumentError: another indexing.
      ShapeError:    an array has several axes.

    >>> x, y = meshgrid(Array([1, 2]), Array([3, 4]))
    >>> x.tolist(), y.tolist()
    ([[1, 2], [1, 2]], [[3, 3], [4, 4]])
    """
    return Array.meshgrid(*(array("meshgrid", x) for x in arrays), indexing=indexing)


def ones(shape: int | tuple[int, ...], *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns ones.

    >>> ones((2,))
    Array([1., 1.])
    """
    return Array.ones(_shape(shape), dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns ones in the shape and dtype of x, by default on its device.

    >>> ones_like(Array([1, 2]))
    Array([1, 1])
    """
    return full_like(x, 1, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Array:
    """Returns the lower triangle of the last two axes, with zeros above diagonal `k`.

    >>> tril(Array([[1, 2], [3, 4]]))
    Array([[1, 0],
           [3, 4]])
    """
    return array("tril", x).tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Array:
    """Returns the upper triangle of the last two axes, with zeros below diagonal `k`.

    >>> triu(Array([[1, 2], [3, 4]]))
    Array([[1, 2],
           [0, 4]])
    """
    return array("triu", x).triu(k)


def zeros(shape: int | tuple[int, ...], *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns zeros.

    >>> zeros((2,))
    Array([0., 0.])
    """
    return Array.zeros(_shape(shape), dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: str | None = None) -> Array:
    """Returns zeros in the shape and dtype of x, by default on its device.

    >>> zeros_like(Array([1, 2]))
    Array([0, 0])
    """
    return full_like(x, 0, dtype=dtype, device=device)


def _shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
