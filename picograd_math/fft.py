"""Fourier transforms of complex, real and Hermitian signals; the frequencies of a spectrum, and their order.

The sum over a signal x of n elements is X[k] = sum over j of x[j] e^(-2 pi i j k / n); the inverse has the opposite sign.
`norm` selects the scale: "backward" (the default) divides the inverse by n, "forward" the transform by n, "ortho" both by
the root of n. The gradient of a transform is the transform with the opposite sign.

One half of a real signal's spectrum determines the other. A Hermitian signal, which equals its reversed conjugate, has a
real spectrum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, equal, pad, positions, shrink, where
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.record import Record, replace
from picograd.tensor.arguments import tensor_of
from picograd.tensor.build import axes_of, is_integer, whole
from picograd.tensor.formulas import of_tensors
from picograd.tensor.tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft",
    "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "pairs", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


# ---- complex signals ----
Lengths = Sequence[int] | None
Axes = int | Sequence[int] | None
NORMS = ("backward", "ortho", "forward")


class Request(Record):
    """A call of a transform, with checked arguments.

    name:     name of the function, for errors
    lengths:  lengths of the signal along `axes`; -1: unchanged
    axes:     axes of the signal, counted from the front
    norm:     one of NORMS
    """

    name: str
    lengths: tuple[int, ...]
    axes: tuple[int, ...]
    norm: str

    def scale(self, count: int, is_forward: bool) -> float:
        """Returns the scale of a transform of `count` elements."""
        if self.norm == "ortho":
            return 1 / math.sqrt(count)
        return 1 / count if (self.norm == "forward") is is_forward else 1.0


def operand(name: str, value: Any, is_complex: bool) -> tuple[Tensor, Op]:
    """Returns a tensor and its value as floats, with pairs if it is complex.

    Raises:
      DTypeError: it has 16 bits.
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
    """Returns the checked arguments of a call, for a signal with `rank` axes.

    Args:
      default:  number of trailing axes that are transformed if neither lengths nor dim are given; None: all

    Raises:
      ArgumentError: they do not match, or norm is not one of NORMS.
    """
    if norm is not None and norm not in NORMS:
        raise ArgumentError(f"{name}: norm must be one of {', '.join(NORMS)}, got {norm!r}.")
    sizes = None if lengths is None else [lengths] if is_integer(lengths) else list(lengths)
    if dim is None:
        count = len(sizes) if sizes is not None else rank if default is None else default
        dims: list[Any] = list(range(-count, 0))
    else:
        dims = [dim] if is_integer(dim) else list(dim)
    if any(not is_integer(axis) or not -rank <= axis < rank for axis in dims):
        raise ArgumentError(f"{name}: dim={dim} names axes outside a signal of {rank} axes.")
    axes = tuple(axis % rank for axis in dims)
    sizes = [-1] * len(axes) if sizes is None else sizes
    if len(set(axes)) != len(axes) or len(sizes) != len(axes) or not axes:
        raise ArgumentError(f"{name}: dim={dim} and lengths {lengths} must name equally many different axes.")
    if any(not is_integer(length) or (length < 1 and length != -1) for length in sizes):
        raise ArgumentError(f"{name}: a length must be 1 or more, got {lengths}.")
    return Request(name, tuple(map(int, sizes)), tuple(map(int, axes)), norm or "backward")


def resized(name: str, x: Op, axis: int, length: int) -> tuple[Op, int]:
    """Returns a signal cropped, or padded with zeros, to a length along an axis; -1: unchanged."""
    there = x.shape[axis]
    if not isinstance(there, int):
        raise ShapeError(f"{name}: the transformed axis needs a length that is a number, got axis {axis} of {x.shape}.")
    length = there if length == -1 else length
    if length < 1:
        raise ShapeError(f"{name}: axis {axis} of {x.shape} has no elements.")
    if length < there:
        return shrink(x, tuple((0, length if i == axis else dim) for i, dim in enumerate(x.shape))), length
    return pad(x, tuple((0, length - there if i == axis else 0) for i in range(len(x.shape)))), length


def transformed(asked: Request, x: Op, is_forward: bool) -> Op:
    """Returns the transform of pairs along axes."""
    count = 1
    for axis, length in zip(asked.axes, asked.lengths):
        x, length = resized(asked.name, x, axis, length)
        count *= length
    from_end = [axis + 1 - len(x.shape) for axis in asked.axes]
    found = host_call("fft", x.dtype, (x,), (-1 if is_forward else 1, *from_end))
    scale = asked.scale(count, is_forward)
    return found if scale == 1 else found * scale


def _complex(name: str, value: Any, lengths: Any, dim: Any, norm: str | None, is_forward: bool) -> Tensor:
    tensor, op = operand(f"fft.{name}", value, is_complex=True)
    asked = request(f"fft.{name}", len(op.shape) - 1, lengths, dim, norm)
    return Tensor.from_op(transformed(asked, op, is_forward), tensor.cell.device)


def pairs(real: Any, imag: Any = None) -> Tensor:
    """Returns complex numbers as pairs: (...) -> (..., 2).

    Args:
      real:  real parts
      imag:  imaginary parts, of the same shape; None: 0

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
      n:      the signal is cropped, or padded with zeros, to this length
      dim:    counted without the axis of the pairs
      norm:   "backward": no scale, "ortho": 1 / sqrt(n), "forward": 1 / n

    Raises:
      ShapeError:    input does not have pairs, or is empty.
      ArgumentError: n, dim or norm is out of range.

    >>> fft(pairs(Tensor([1.0, 2.0]))).tolist()
    [[3.0, 0.0], [-1.0, 0.0]]
    """
    return _complex("fft", input, n, dim, norm, True)


def ifft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the inverse of `fft`: 1 / n times the sum with the opposite sign.

    Args:
      input:  pairs
      n:      the spectrum is cropped, or padded with zeros, to this length
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
      s:      lengths to which the signal is cropped or padded with zeros; -1: unchanged
      dim:    axes, counted without that of the pairs
      norm:   as in `fft`, for both axes together

    >>> fft2(pairs(Tensor([[1.0, 2.0], [3.0, 4.0]])))[0, 0].tolist()
    [10.0, 0.0]
    """
    return _complex("fft2", input, s, dim, norm, True)


def ifft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the inverse of `fft2`.

    Args:
      input:  pairs
      s:      lengths to which the spectrum is cropped or padded with zeros; -1: unchanged
      dim:    axes, counted without that of the pairs
      norm:   as in `ifft`, for both axes together

    >>> ifft2(fft2(pairs(Tensor([[1.0, 2.0], [3.0, 4.0]]))))[..., 0].tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return _complex("ifft2", input, s, dim, norm, False)


def fftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the transform along several axes of pairs.

    Args:
      input:  pairs
      s:      lengths to which the signal is cropped or padded with zeros; -1: unchanged
      dim:    axes, counted without that of the pairs; by default the last len(s) axes, or all
      norm:   as in `fft`, for all axes together

    >>> fftn(pairs(Tensor([[1.0, 2.0], [3.0, 4.0]])))[0, 0].tolist()
    [10.0, 0.0]
    """
    return _complex("fftn", input, s, dim, norm, True)


def ifftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the inverse of `fftn`.

    Args:
      input:  pairs
      s:      lengths to which the spectrum is cropped or padded with zeros; -1: unchanged
      dim:    axes, counted without that of the pairs; by default the last len(s) axes, or all
      norm:   as in `ifft`, for all axes together

    >>> ifftn(fftn(pairs(Tensor([1.0, 2.0]))))[..., 0].tolist()
    [1.0, 2.0]
    """
    return _complex("ifftn", input, s, dim, norm, False)


# ---- real signals ----
def from_real(asked: Request, x: Op, is_forward: bool = True) -> Op:
    """Returns a real signal's spectrum: half of it along the last of the axes, the whole along the others."""
    *others, last = asked.axes
    x, length = resized(asked.name, x, last, asked.lengths[-1])
    found = host_call("rfft", x.dtype, (x,), (length, last - len(x.shape)))
    if not is_forward:
        found = conjugate(found)
    scale = asked.scale(length, is_forward)
    half = found if scale == 1 else found * scale
    if not others:
        return half
    return transformed(replace(asked, axes=tuple(others), lengths=asked.lengths[:-1]), half, is_forward)


def to_real(asked: Request, x: Op, is_forward: bool = False) -> Op:
    """Returns the real signal of a spectrum that is halved along the last of the axes."""
    *others, last = asked.axes
    if others:
        x = transformed(replace(asked, axes=tuple(others), lengths=asked.lengths[:-1]), x, is_forward)
    length = asked.lengths[-1]
    if length == -1:
        _, half = resized(asked.name, x, last, -1)
        length = 2 * (half - 1)
        if length < 1:
            fact = f"{asked.name}: axis {last} of {x.shape} has one pair; m = 1 pairs make 2 (m - 1) = 0 elements."
            raise ShapeError(fact, hint="n=1 gives the number of elements.")
    x, _ = resized(asked.name, x, last, length // 2 + 1)
    found = host_call("irfft", x.dtype, (conjugate(x) if is_forward else x,), (length, last + 1 - len(x.shape)))
    scale = asked.scale(length, is_forward)
    return found if scale == 1 else found * scale


def conjugate(x: Op) -> Op:
    """Returns the complex conjugate of pairs."""
    last = len(x.shape) - 1
    return where(equal(positions(x.shape, last), 0), x, -x)


def real_input(name: str, value: Any, lengths: Any, dim: Any, norm: str | None, is_forward: bool = True) -> Tensor:
    """Returns the transform of a real signal."""
    tensor, op = operand(f"fft.{name}", value, is_complex=False)
    asked = request(f"fft.{name}", len(op.shape), lengths, dim, norm)
    return Tensor.from_op(from_real(asked, op, is_forward), tensor.cell.device)


def real_output(name: str, value: Any, lengths: Any, dim: Any, norm: str | None, is_forward: bool = False) -> Tensor:
    """Returns the real signal of half a spectrum."""
    tensor, op = operand(f"fft.{name}", value, is_complex=True)
    asked = request(f"fft.{name}", len(op.shape) - 1, lengths, dim, norm)
    return Tensor.from_op(to_real(asked, op, is_forward), tensor.cell.device)


def rfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the first n // 2 + 1 elements of a real signal's transform, as pairs; the others are their conjugates.

    Args:
      input:  real
      n:      the signal is cropped, or padded with zeros, to this length
      dim:    an axis
      norm:   "backward": no scale, "ortho": 1 / sqrt(n), "forward": 1 / n

    Raises:
      ShapeError:    input is 0-d or empty.
      ArgumentError: n, dim or norm is out of range.

    >>> rfft(Tensor([1.0, 2.0, 3.0, 4.0])).round().tolist()
    [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]
    """
    return real_input("rfft", input, n, dim, norm)


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the real signal of n elements with the given `rfft`, as pairs.

    Args:
      input:  pairs, of which the first n // 2 + 1 are read
      n:      by default 2 (m - 1) for m pairs
      dim:    counted without the axis of the pairs
      norm:   "backward": 1 / n, "ortho": 1 / sqrt(n), "forward": no scale

    Raises:
      ShapeError:    input does not have pairs.
      ArgumentError: n, dim or norm is out of range.

    >>> irfft(rfft(Tensor([1.0, 2.0, 3.0, 4.0]))).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return real_output("irfft", input, n, dim, norm)


def rfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the transform of a real signal along two axes, half of it along the last.

    Args:
      input:  real
      s:      lengths to which the signal is cropped or padded with zeros; -1: unchanged
      dim:    axes
      norm:   as in `rfft`, for both axes together

    >>> rfft2(Tensor([[1.0, 2.0], [3.0, 4.0]]))[0, 0].tolist()
    [10.0, 0.0]
    """
    return real_input("rfft2", input, s, dim, norm)


def irfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the inverse of `rfft2`.

    Args:
      input:  pairs
      s:      lengths of the signal; -1: unchanged
      dim:    axes, counted without that of the pairs
      norm:   as in `irfft`, for both axes together

    >>> irfft2(rfft2(Tensor([[1.0, 2.0], [3.0, 4.0]]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return real_output("irfft2", input, s, dim, norm)


def rfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the transform of a real signal along several axes, half of it along the last.

    Args:
      input:  real
      s:      lengths to which the signal is cropped or padded with zeros; -1: unchanged
      dim:    axes; by default the last len(s) axes, or all
      norm:   as in `rfft`, for all axes together

    >>> rfftn(Tensor([[1.0, 2.0], [3.0, 4.0]]))[0, 0].tolist()
    [10.0, 0.0]
    """
    return real_input("rfftn", input, s, dim, norm)


def irfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the inverse of `rfftn`.

    Args:
      input:  pairs
      s:      lengths of the signal; -1: unchanged
      dim:    axes, counted without that of the pairs; by default the last len(s) axes, or all
      norm:   as in `irfft`, for all axes together

    >>> irfftn(rfftn(Tensor([[1.0, 2.0], [3.0, 4.0]]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return real_output("irfftn", input, s, dim, norm)


# ---- Hermitian signals ----
def hfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the real transform, with n elements, of half a signal with x[-j] = conj(x[j]).

    Args:
      input:  pairs, of which the first n // 2 + 1 are read
      n:      by default 2 (m - 1) for m pairs
      dim:    counted without the axis of the pairs
      norm:   "backward": no scale, "ortho": 1 / sqrt(n), "forward": 1 / n

    >>> hfft(Tensor([[1.0, 0.0], [2.0, 0.0]])).tolist()
    [3.0, -1.0]
    """
    return real_output("hfft", input, n, dim, norm, is_forward=True)


def ihfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the inverse of `hfft`, as pairs: the first n // 2 + 1 elements of a signal with x[-j] = conj(x[j]).

    Args:
      input:  real
      n:      the spectrum is cropped, or padded with zeros, to this length
      dim:    an axis
      norm:   "backward": 1 / n, "ortho": 1 / sqrt(n), "forward": no scale

    >>> ihfft(Tensor([3.0, -1.0]))[..., 0].tolist()
    [1.0, 2.0]
    """
    return real_input("ihfft", input, n, dim, norm, is_forward=False)


def hfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the real transform along two axes of half a signal.

    Args:
      input:  pairs
      s:      lengths of the spectrum; -1: unchanged
      dim:    axes, counted without that of the pairs
      norm:   as in `hfft`, for both axes together

    >>> hfft2(Tensor([[[1.0, 0.0], [2.0, 0.0]]])).tolist()
    [[3.0, -1.0]]
    """
    return real_output("hfft2", input, s, dim, norm, is_forward=True)


def ihfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the inverse of `hfft2`, as pairs.

    Args:
      input:  real
      s:      lengths to which the spectrum is cropped or padded with zeros; -1: unchanged
      dim:    axes
      norm:   as in `ihfft`, for both axes together

    >>> ihfft2(Tensor([[3.0, -1.0]]))[..., 0].tolist()
    [[1.0, 2.0]]
    """
    return real_input("ihfft2", input, s, dim, norm, is_forward=False)


def hfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the real transform along several axes of half a signal.

    Args:
      input:  pairs
      s:      lengths of the spectrum; -1: unchanged
      dim:    axes, counted without that of the pairs; by default the last len(s) axes, or all
      norm:   as in `hfft`, for all axes together

    >>> hfftn(Tensor([[1.0, 0.0], [2.0, 0.0]])).tolist()
    [3.0, -1.0]
    """
    return real_output("hfftn", input, s, dim, norm, is_forward=True)


def ihfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the inverse of `hfftn`, as pairs.

    Args:
      input:  real
      s:      lengths to which the spectrum is cropped or padded with zeros; -1: unchanged
      dim:    axes; by default the last len(s) axes, or all
      norm:   as in `ihfft`, for all axes together

    >>> ihfftn(Tensor([3.0, -1.0]))[..., 0].tolist()
    [1.0, 2.0]
    """
    return real_input("ihfftn", input, s, dim, norm, is_forward=False)


# ---- frequencies ----
def _numbers(
    name: str, n: int, start: int, count: int, d: float, dtype: DType | None, device: str | None, requires_grad: bool
) -> Tensor:
    if n < 1:
        raise ArgumentError(f"{name}: n must be 1 or more, got {n!r}.")
    if not isinstance(d, (int, float)) or d == 0:
        raise ArgumentError(f"{name}: d must be a number other than 0, got {d!r}.")
    numbers = Tensor.arange(start, start + count, dtype=dtype or dtypes.default_float, device=device)
    numbers = numbers.roll(start, 0) / (n * d) if start else numbers / (n * d)
    return numbers.requires_grad_() if requires_grad else numbers


def fftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns the frequencies of a transform: 0, 1, ..., then the negative ones, divided by n d.

    Args:
      n:  number of elements of the signal
      d:  time between two elements
      requires_grad: whether the result is a leaf that collects gradients

    Raises:
      ArgumentError: n is less than 1, or d is 0.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    n = whole("fft.fftfreq", "n", n)
    return _numbers("fft.fftfreq", n, -(n // 2), n, d, dtype, device, requires_grad)


def rfftfreq(
    n: int, d: float = 1.0, *, dtype: DType | None = None, device: str | None = None, requires_grad: bool = False
) -> Tensor:
    """Returns the frequencies of half a spectrum: 0 to n // 2, divided by n d.

    Args:
      n:  number of elements of the signal
      d:  time between two elements
      requires_grad: whether the result is a leaf that collects gradients

    Raises:
      ArgumentError: n is less than 1, or d is 0.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    n = whole("fft.rfftfreq", "n", n)
    return _numbers("fft.rfftfreq", n, 0, n // 2 + 1, d, dtype, device, requires_grad)


def _shifted(name: str, value: Any, dim: Axes, is_forward: bool) -> Tensor:
    tensor = tensor_of(name, "input", value)
    x = Tensor.from_op(tensor.read(), tensor.cell.device)
    axes = axes_of(name, x.op.shape, dim)
    if not axes:
        return x
    shifts = [x.shape[axis] // 2 if is_forward else -(x.shape[axis] // 2) for axis in axes]
    return _rolled(x, tuple(shifts), axes)


@of_tensors
def _rolled(x: Tensor, shifts: tuple[int, ...], axes: tuple[int, ...]) -> Tensor:
    return x.roll(shifts, axes)


def fftshift(input: Any, dim: Axes = None) -> Tensor:
    """Returns a spectrum rolled so that frequency 0 is in the middle.

    Args:
      input:  any tensor; for pairs, dim must name the axes

    Raises:
      IndexingError: input does not have the axis.

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    return _shifted("fft.fftshift", input, dim, True)


def ifftshift(input: Any, dim: Axes = None) -> Tensor:
    """Returns the inverse of `fftshift`.

    Args:
      input:  any tensor; for pairs, dim must name the axes

    Raises:
      IndexingError: input does not have the axis.

    >>> ifftshift(fftshift(fftfreq(5))).tolist() == fftfreq(5).tolist()
    True
    """
    return _shifted("fft.ifftshift", input, dim, False)
