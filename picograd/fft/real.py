"""Transforms of real signals: half a spectrum says all.

In:    real tensors, or pairs of half a spectrum
Out:   `rfft`, `irfft` and their relatives; `from_real`, `to_real`
Next:  picograd/fft/hermitian.py
"""

from __future__ import annotations

from typing import Any

from picograd.fft.transforms import (
    Axes,
    Lengths,
    Request,
    axes_last,
    moved_back,
    operand,
    request,
    resized,
    transformed,
)
from picograd.ir.build import compare, positions, where
from picograd.ir.host import host_call
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import replace
from picograd.tensor.tensor import Tensor


def from_real(asked: Request, x: Op, is_forward: bool = True) -> Op:
    """Returns half a spectrum of a real signal along the last of the axes, and the whole one along the others."""
    *others, last = asked.axes
    x, length = resized(asked.name, x, last, asked.lengths[-1])
    moved, order = axes_last(x, [last], False)
    found = host_call("rfft", x.dtype, (moved,), (length,))
    if not is_forward:
        found = conjugate(found)
    scale = asked.scale(length, is_forward)
    half = moved_back(found if scale == 1 else found * scale, (*order, len(order)))
    if not others:
        return half
    return transformed(replace(asked, axes=tuple(others), lengths=asked.lengths[:-1]), half, is_forward)


def to_real(asked: Request, x: Op, is_forward: bool = False) -> Op:
    """Returns the real signal of half a spectrum along the last of the axes, and of a whole one along the others."""
    *others, last = asked.axes
    if others:
        x = transformed(replace(asked, axes=tuple(others), lengths=asked.lengths[:-1]), x, is_forward)
    length = asked.lengths[-1]
    if length == -1:
        _, half = resized(asked.name, x, last, -1)
        length = max(1, 2 * (half - 1))
    x, _ = resized(asked.name, x, last, length // 2 + 1)
    moved, order = axes_last(conjugate(x) if is_forward else x, [last], True)
    found = host_call("irfft", x.dtype, (moved,), (length,))
    scale = asked.scale(length, is_forward)
    return moved_back(found if scale == 1 else found * scale, order[:-1])


def conjugate(x: Op) -> Op:
    """Returns pairs with the imaginary parts negated."""
    last = len(x.shape) - 1
    return where(compare(OpCode.CMPEQ, positions(x.shape, last), 0), x, -x)


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
    """Returns the first n // 2 + 1 elements of the transform of a real signal, as pairs; the others are their conjugates.

    Args:
      input:  real
      n:      the signal is cut, or continued by zeros, to this length
      dim:    an axis
      norm:   "backward": no scale, "ortho": 1 / sqrt(n), "forward": 1 / n

    Raises:
      ShapeError:    there is no axis, or no element.
      ArgumentError: n, dim or norm has no meaning.

    >>> rfft(Tensor([1.0, 2.0, 3.0, 4.0])).round().tolist()
    [[10.0, 0.0], [-2.0, 2.0], [-2.0, 0.0]]
    """
    return real_input("rfft", input, n, dim, norm)


def irfft(input: Any, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """Returns the real signal of n elements whose `rfft` is given as pairs.

    Args:
      input:  pairs, the first n // 2 + 1 of them are read
      n:      by default 2 (m - 1), where m pairs are there
      dim:    counted without the axis of the pairs
      norm:   "backward": 1 / n, "ortho": 1 / sqrt(n), "forward": no scale

    Raises:
      ShapeError:    there are no pairs.
      ArgumentError: n, dim or norm has no meaning.

    >>> irfft(rfft(Tensor([1.0, 2.0, 3.0, 4.0]))).tolist()
    [1.0, 2.0, 3.0, 4.0]
    """
    return real_output("irfft", input, n, dim, norm)


def rfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the transform of a real signal along two axes, half of it along the last.

    Args:
      input:  real
      s:      lengths that the signal is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes
      norm:   as `rfft` takes it, of both axes together

    >>> rfft2(Tensor([[1.0, 2.0], [3.0, 4.0]]))[0, 0].tolist()
    [10.0, 0.0]
    """
    return real_input("rfft2", input, s, dim, norm)


def irfft2(input: Any, s: Lengths = None, dim: Axes = (-2, -1), norm: str | None = None) -> Tensor:
    """Returns the inverse of `rfft2`.

    Args:
      input:  pairs
      s:      lengths of the signal; -1 leaves an axis
      dim:    axes, counted without that of the pairs
      norm:   as `irfft` takes it, of both axes together

    >>> irfft2(rfft2(Tensor([[1.0, 2.0], [3.0, 4.0]]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return real_output("irfft2", input, s, dim, norm)


def rfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the transform of a real signal along several axes, half of it along the last.

    Args:
      input:  real
      s:      lengths that the signal is cut, or continued by zeros, to; -1 leaves an axis
      dim:    axes; by default the last ones, as many as s has, or all
      norm:   as `rfft` takes it, of all axes together

    >>> rfftn(Tensor([[1.0, 2.0], [3.0, 4.0]]))[0, 0].tolist()
    [10.0, 0.0]
    """
    return real_input("rfftn", input, s, dim, norm)


def irfftn(input: Any, s: Lengths = None, dim: Axes = None, norm: str | None = None) -> Tensor:
    """Returns the inverse of `rfftn`.

    Args:
      input:  pairs
      s:      lengths of the signal; -1 leaves an axis
      dim:    axes, counted without that of the pairs; by default the last ones, as many as s has, or all
      norm:   as `irfft` takes it, of all axes together

    >>> irfftn(rfftn(Tensor([[1.0, 2.0], [3.0, 4.0]]))).tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    return real_output("irfftn", input, s, dim, norm)
