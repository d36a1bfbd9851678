"""Transforms of complex signals, and what all transforms share: lengths, axes, scales.

In:    pairs (..., n, 2)
Out:   `fft`, `ifft`, ... ; `Request`, `transformed`
Next:  picograd/fft/real.py

The sum over a signal x of n elements is X[k] = sum over j of x[j] e^(-2 pi i j k / n), and the inverse has the other sign.
`norm` says which of the two is divided: "backward" (the default) the inverse by n, "forward" the transform by n, "ortho"
each by the root of n. The gradient of a transform is the transform of the other sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, pad, permute, shrink
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.record import Record
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import INTS
from picograd.tensor.tensor import Tensor

Lengths = Sequence[int] | None
Axes = int | Sequence[int] | None
NORMS = ("backward", "ortho", "forward")


class Request(Record):
    """What a call asks for.

    name:     of the function, for errors
    lengths:  of the signal along each axis, in the order of `axes`; -1 is all there is
    axes:     of the signal, counted from the front
    norm:     one of NORMS
    """

    name: str
    lengths: tuple[int, ...]
    axes: tuple[int, ...]
    norm: str

    def scale(self, count: int, is_forward: bool) -> float:
        """Returns what a transform of `count` elements is multiplied by."""
        if self.norm == "ortho":
            return 1 / math.sqrt(count)
        return 1 / count if (self.norm == "forward") is is_forward else 1.0


def operand(name: str, value: Any, is_complex: bool) -> tuple[Tensor, Op]:
    """Returns a tensor and its value as floats, which must be pairs where it is complex.

    Raises:
      DTypeError: it is of 16 bits.
      ShapeError: it has no axis to transform, or no pairs.
    """
    tensor = tensor_of(name, "input", value)
    op = tensor.read()
    op = op if op.dtype.is_float else cast(op, dtypes.default_float)
    if op.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{name}: needs float32 or float64, got {op.dtype} of shape {op.shape}.", "x.float()")
    if is_complex and (not op.shape or op.shape[-1] != 2):
        raise ShapeError(
            f"{name}: the last axis must be pairs of real and imaginary parts, got shape {op.shape}.",
            "pg.fft.pairs(x) makes pairs of real numbers; rfft takes them as they are.",
        )
    if len(op.shape) <= is_complex:
        raise ShapeError(f"{name}: needs an axis to transform, got shape {op.shape}.")
    return tensor, op


def request(name: str, rank: int, lengths: Any, dim: Any, norm: str | None, default: int | None = None) -> Request:
    """Returns what the arguments of a call mean for a signal of `rank` axes.

    Args:
      default:  how many of the last axes are transformed where neither lengths nor dim are given; None: all

    Raises:
      ArgumentError: they do not fit each other, or norm is none of NORMS.
    """
    if norm is not None and norm not in NORMS:
        raise ArgumentError(f"{name}: norm must be one of {', '.join(NORMS)}, got {norm!r}.")
    sizes = None if lengths is None else [lengths] if isinstance(lengths, INTS) else list(lengths)
    if dim is None:
        count = len(sizes) if sizes is not None else rank if default is None else default
        dims: list[Any] = list(range(-count, 0))
    else:
        dims = [dim] if isinstance(dim, INTS) else list(dim)
    if any(not isinstance(axis, INTS) or not -rank <= axis < rank for axis in dims):
        raise ArgumentError(f"{name}: dim={dim} names axes that a signal of {rank} axes has not.")
    axes = tuple(axis % rank for axis in dims)
    sizes = [-1] * len(axes) if sizes is None else sizes
    if len(set(axes)) != len(axes) or len(sizes) != len(axes) or not axes:
        raise ArgumentError(f"{name}: dim={dim} and lengths {lengths} must name as many different axes.")
    if any(not isinstance(length, INTS) or (length < 1 and length != -1) for length in sizes):
        raise ArgumentError(f"{name}: a length must be 1 or more, got {lengths}.")
    return Request(name, tuple(map(int, sizes)), tuple(map(int, axes)), norm or "backward")


def resized(name: str, x: Op, axis: int, length: int) -> tuple[Op, int]:
    """Returns a signal cut, or continued by zeros, to a length along an axis; -1 is the length it has."""
    there = x.shape[axis]
    if not isinstance(there, int):
        raise ShapeError(f"{name}: the axis that is transformed must be a number long, got axis {axis} of {x.shape}.")
    length = there if length == -1 else length
    if length < 1:
        raise ShapeError(f"{name}: axis {axis} of {x.shape} has no elements.")
    if length < there:
        return shrink(x, tuple((0, length if i == axis else dim) for i, dim in enumerate(x.shape))), length
    return pad(x, tuple((0, length - there if i == axis else 0) for i in range(len(x.shape)))), length


def axes_last(x: Op, axes: Sequence[int], is_complex: bool) -> tuple[Op, tuple[int, ...]]:
    """Returns a signal with axes moved to its end, before the pairs if there are any, and the order they came from."""
    last = len(x.shape) - is_complex
    order = (*(i for i in range(last) if i not in axes), *axes, *range(last, len(x.shape)))
    return permute(x, order), order


def moved_back(x: Op, order: Sequence[int]) -> Op:
    """Undoes `axes_last`."""
    return permute(x, tuple(map(order.index, range(len(order)))))


def transformed(asked: Request, x: Op, is_forward: bool) -> Op:
    """Returns the transform of pairs over axes."""
    count = 1
    for axis, length in zip(asked.axes, asked.lengths):
        x, length = resized(asked.name, x, axis, length)
        count *= length
    moved, order = axes_last(x, asked.axes, True)
    found = host_call("fft", x.dtype, (moved,), (len(asked.axes), -1 if is_forward else 1))
    scale = asked.scale(count, is_forward)
    return moved_back(found if scale == 1 else found * scale, order)


def _complex(name: str, value: Any, lengths: Any, dim: Any, norm: str | None, is_forward: bool) -> Tensor:
    tensor, op = operand(f"fft.{name}", value, is_complex=True)
    asked = request(f"fft.{name}", len(op.shape) - 1, lengths, dim, norm)
    return Tensor.from_op(transformed(asked, op, is_forward), tensor.cell.device)


def pairs(real: Any, imag: Any = None) -> Tensor:
    """Returns complex numbers as pairs: (...) -> (..., 2).

    Args:
      real:  real parts
      imag:  imaginary parts, of the same shape; None is 0

    >>> pairs(Tensor([1.0, 2.0])).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    first = tensor_of("fft.pairs", "real", real)
    second = Tensor.zeros_like(first) if imag is None else tensor_of("fft.pairs", "imag", imag)
    return Tensor.stack([first, second], -1)


def fft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the discrete Fourier transform along an axis of pairs (..., n, 2).

    Args:
      input:  pairs
      n:      the signal is cut, or continued by zeros, to this length
      dim:    counted without the axis of the pairs
      norm:   "backward": no scale, "ortho": 1 / sqrt(n), "forward": 1 / n

    Raises:
      ShapeError:    there are no pairs, or no elements.
      ArgumentError: n, dim or norm has no meaning.

    >>> fft(pairs(Tensor([1.0, 2.0]))).tolist()
    [[3.0, 0.0], [-1.0, 0.0]]
    """
    return _complex("fft", input, n, dim, norm, True)


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the inverse of `fft`: 1 / n times the sum with the other sign.

    Args:
      input:  pairs
      n:      the spectrum is cut, or continued by zeros, to this length
      dim:    counted without the axis of the pairs
      norm:   "backward": 1 / n, "ortho": 1 / sqrt(n), "forward": no scale

    >>> ifft(Tensor([[3.0, 0.0], [-1.0, 0.0]])).tolist()
    [[1.0, 0.0], [2.0, 0.0]]
    """
    return _complex("ifft", input, n, dim, norm, False)


def fft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the transform along two axes of pairs (..., m, n, 2).

    Args:
      input:  pairs
      s:      lengths that the signal is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes, counted without that of the pairs
      norm:   as `fft` takes it, of both axes together

    >>> fft2(pairs(Tensor([[1.0, 2.0], [3.0, 4.0]])))[0, 0].tolist()
    [10.0, 0.0]
    """
    return _complex("fft2", input, s, dim, norm, True)


def ifft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the inverse of `fft2`.

    Args:
      input:  pairs
      s:      lengths that the spectrum is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes, counted without that of the pairs
      norm:   as `ifft` takes it, of both axes together

    >>> ifft2(fft2(pairs(Tensor([[1.0, 2.0], [3.0, 4.0]]))))[..., 0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _complex("ifft2", input, s, dim, norm, False)


def fftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the transform along several axes of pairs.

    Args:
      input:  pairs
      s:      lengths that the signal is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes, counted without that of the pairs; by default the last ones, as many as s has, or all
      norm:   as `fft` takes it, of all axes together

    >>> fftn(pairs(Tensor([[1.0, 2.0], [3.0, 4.0]])))[0, 0].tolist()
    [10.0, 0.0]
    """
    return _complex("fftn", input, s, dim, norm, True)


def ifftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the inverse of `fftn`.

    Args:
      input:  pairs
      s:      lengths that the spectrum is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes, counted without that of the pairs; by default the last ones, as many as s has, or all
      norm:   as `ifft` takes it, of all axes together

    >>> ifftn(fftn(pairs(Tensor([1.0, 2.0]))))[..., 0].tolist()
    [1.0, 2.0]
    """
    return _complex("ifftn", input, s, dim, norm, False)
