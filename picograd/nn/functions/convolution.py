"""Convolutions along one, two or three axes, and their transposes.

Letters: N batch, C input channels, O output channels, G groups, K taps; L, H, W, D lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from picograd.autodiff.transposes import reversed_weight
from picograd.errors import ArgumentError, DTypeError, ShapeError
from picograd.ir.build import cast, expand, reshape
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg, of_numbers
from picograd.nn.functions.windows import Each, each_axis, least, with_batch, without_batch
from picograd.tensor.arguments import at_least, tensor_of
from picograd.tensor.build import static
from picograd.tensor.formulas import formula
from picograd.tensor.modes import lowered, uses_tf32
from picograd.tensor.tensor import Tensor

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

Pairs = tuple[tuple[int, int], ...]


def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Each = 1, padding: str | Each = 0,  # noqa: A002
    dilation: Each = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Returns the sums of products of `weight` with each window of input; see `conv2d`.

    Args:
      input:    (N, C, L) or (C, L)
      weight:   (O, C / groups, K)
      bias:     (O,) or None
      stride, padding, dilation, groups: as in `conv2d`

    >>> conv1d(Tensor([[[1.0, 2.0, 3.0]]]), Tensor([[[1.0, 10.0]]]))
    Tensor([[[21., 32.]]])
    """
    return _conv("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Each = 1, padding: str | Each = 0,  # noqa: A002
    dilation: Each = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Returns the sums of products of `weight` with each window of input.

    out[n, o, i, j] = bias[o] + sum over c, k, l of input[n, c, i s + k d - p, j s + l d - p] weight[o, c, k, l]

    Args:
      input:     (N, C, H, W) or (C, H, W)
      weight:    (O, C / groups, K, K'), of the dtype of input
      bias:      (O,) or None
      stride:    s, elements between windows
      padding:   p, zeros on each side; or "valid" (no padding) or "same" (H and W are kept, for stride 1)
      dilation:  d, elements between the taps of a window
      groups:    number of channel groups; an output channel sees only the input channels of its group

    Returns:   (N, O, H', W') with H' = (H + 2 p - d (K - 1) - 1) // s + 1

    Raises:
      ShapeError:    the shapes do not match, or no window fits.
      DTypeError:    the dtypes differ.
      ArgumentError: an argument is not a number in its range.

    NOTE: on a CPU, with at least 12 channels and a stride of 1, up to six rows of input are transformed together
    (Toom-Cook, codegen/winograd.py): errors are relative to the largest of these rows, and inf or NaN in one of them makes
    NaN of all results from them. PICOGRAD_PLAIN_SUMS=1 computes each result as the sum of its products, which is slower.

    >>> conv2d(Tensor.ones(1, 1, 3, 3), Tensor.ones(1, 1, 2, 2))
    Tensor([[[[4., 4.],
              [4., 4.]]]])
    """
    return _conv("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Each = 1, padding: str | Each = 0,  # noqa: A002
    dilation: Each = 1, groups: int = 1,
) -> Tensor:  # fmt: skip
    """Returns the sums of products of `weight` with each window of input; see `conv2d`.

    Args:
      input:    (N, C, D, H, W) or (C, D, H, W)
      weight:   (O, C / groups, K, K', K'')
      bias:     (O,) or None
      stride, padding, dilation, groups: as in `conv2d`

    >>> conv3d(Tensor.ones(1, 2, 2, 2, 2), Tensor.ones(3, 2, 2, 2, 2)).shape
    (1, 3, 1, 1, 1)
    """
    return _conv("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Each = 1, padding: Each = 0,  # noqa: A002
    output_padding: Each = 0, groups: int = 1, dilation: Each = 1,
) -> Tensor:  # fmt: skip
    """Returns the transpose of `conv1d`; see `conv_transpose2d`.

    Args:
      input:    (N, C, L) or (C, L)
      weight:   (C, O / groups, K)
      bias:     (O,) or None
      stride, padding, output_padding, groups, dilation: as in `conv_transpose2d`

    >>> conv_transpose1d(Tensor([[[1.0, 2.0]]]), Tensor([[[1.0, 10.0]]]))
    Tensor([[[ 1., 12., 20.]]])
    """
    return _transposed(
        "conv_transpose1d", 1, input, weight, bias, (stride, padding, output_padding, dilation), groups
    )  # fmt: skip


def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Each = 1, padding: Each = 0,  # noqa: A002
    output_padding: Each = 0, groups: int = 1, dilation: Each = 1,
) -> Tensor:  # fmt: skip
    """Returns the transpose of `conv2d`, used for its gradient: each element of input adds a scaled `weight` to a window.

    out[n, o, i s + k d - p, j s + l d - p] += input[n, c, i, j] weight[c, o, k, l]

    Args:
      input:           (N, C, H, W) or (C, H, W)
      weight:          (C, O / groups, K, K'), of the dtype of input
      bias:            (O,) or None
      stride:          s, elements between windows
      padding:         p, elements cropped on each side of the result
      output_padding:  further elements at the end, fewer than stride or dilation; it selects one of the possible lengths
      groups:          number of channel groups
      dilation:        d, elements between the taps of a window

    Returns:   (N, O, H', W') with H' = (H - 1) s - 2 p + d (K - 1) + output_padding + 1

    Raises:
      ShapeError:    the shapes do not match, or the result would be empty (PyTorch allows that for an empty batch).
      DTypeError:    the dtypes differ.
      ArgumentError: an argument is not a number in its range.

    >>> conv_transpose2d(Tensor.ones(1, 1, 2, 2), Tensor.ones(1, 1, 2, 2))
    Tensor([[[[1., 2., 1.],
              [2., 4., 2.],
              [1., 2., 1.]]]])
    """
    return _transposed(
        "conv_transpose2d", 2, input, weight, bias, (stride, padding, output_padding, dilation), groups
    )  # fmt: skip


def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Each = 1, padding: Each = 0,  # noqa: A002
    output_padding: Each = 0, groups: int = 1, dilation: Each = 1,
) -> Tensor:  # fmt: skip
    """Returns the transpose of `conv3d`; see `conv_transpose2d`.

    Args:
      input:    (N, C, D, H, W) or (C, D, H, W)
      weight:   (C, O / groups, K, K', K'')
      bias:     (O,) or None
      stride, padding, output_padding, groups, dilation: as in `conv_transpose2d`

    >>> conv_transpose3d(Tensor.ones(1, 2, 2, 2, 2), Tensor.ones(2, 3, 2, 2, 2), stride=2).shape
    (1, 3, 4, 4, 4)
    """
    return _transposed(
        "conv_transpose3d", 3, input, weight, bias, (stride, padding, output_padding, dilation), groups
    )  # fmt: skip


# ---- arguments and the CONV ----
def _conv(
    function: str, axes: int, x: Tensor, weight: Tensor, bias: Tensor | None, stride: Each, padding: str | Each,
    dilation: Each, groups: int,
) -> Tensor:  # fmt: skip
    """Checks the arguments of conv1d, conv2d and conv3d, and builds one CONV."""
    op, has_batch = with_batch(function, x, axes)
    op = cast(op, lowered(op.dtype))
    w, groups = _weight(function, op, weight, axes), at_least(function, "groups", groups, 1)
    strides = each_axis(function, "stride", stride, axes, 1)
    steps = each_axis(function, "dilation", dilation, axes, 1)
    margins = padding if isinstance(padding, str) else each_axis(function, "padding", padding, axes, 0)
    find = _conv_arg if of_numbers(op.shape) else _conv_arg.__wrapped__  # symbolic lengths are checked each time
    arg = find(function, op.shape, w.shape, strides, margins, steps, groups, uses_tf32(op.dtype))
    return _finished(function, op, w, arg, has_batch, x, weight, bias)


def _channels_hint(shape: Shape, wanted: int) -> str:
    """Returns a hint for an input whose number of channels differs from the weight's."""
    if shape[-1] == wanted and len(shape) > 2:
        order = (0, len(shape) - 1, *range(1, len(shape) - 1))
        return f"channels are axis 1: input.permute{order}, if they are the last axis."
    return "weight is (out_channels, in_channels / groups, *kernel)."


@lru_cache(maxsize=1024)
def _conv_arg(
    function: str, shape: Shape, kernel: Shape, strides: tuple[int, ...], padding: str | tuple[int, ...],
    steps: tuple[int, ...], groups: int, tf32: bool,
) -> ConvArg:  # fmt: skip
    """Returns the argument of a CONV of these shapes; cached, since a network repeats the same few."""
    if shape[1] != static(kernel[1]) * groups:
        raise ShapeError(
            f"{function}: input {shape} has {shape[1]} channels, weight {kernel} with groups={groups} "
            f"needs {static(kernel[1]) * groups}.",
            hint=_channels_hint(shape, static(kernel[1]) * groups),
        )
    if static(kernel[0]) % groups:
        raise ShapeError(f"{function}: weight {kernel} has {kernel[0]} outputs, not a multiple of groups={groups}.")
    spans = [(static(taps) - 1) * step + 1 for taps, step in zip(kernel[2:], steps)]
    pads = _padding(function, padding, strides, spans)
    _check_fits(function, shape, spans, pads)
    return ConvArg(strides, pads, steps, (1,) * len(steps), groups, tf32=tf32)


def _transposed(
    function: str, axes: int, x: Tensor, weight: Tensor, bias: Tensor | None, numbers: Sequence[Each], groups: int
) -> Tensor:
    """Spreads x by stride and convolves it with the flipped weight, padded by K - 1 - padding."""
    op, has_batch = with_batch(function, x, axes)
    op = cast(op, lowered(op.dtype))
    w, groups = _weight(function, op, weight, axes), at_least(function, "groups", groups, 1)
    if op.shape[1] != w.shape[0]:
        raise ShapeError(
            f"{function}: input {x.shape} has {op.shape[1]} channels, weight {weight.shape} needs {w.shape[0]}.",
            hint="weight is (in_channels, out_channels / groups, *kernel).",
        )
    if static(w.shape[0]) % groups:
        raise ShapeError(f"{function}: input {x.shape} has {w.shape[0]} channels, not a multiple of groups={groups}.")
    stride, padding, more, dilation = numbers
    strides, steps = each_axis(function, "stride", stride, axes, 1), each_axis(function, "dilation", dilation, axes, 1)
    cut, extra = each_axis(function, "padding", padding, axes, 0), each_axis(function, "output_padding", more, axes, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, strides, steps)):
        raise ArgumentError(
            f"{function}: output_padding {more} must be below stride {stride} or below dilation {dilation}."
        )
    reach = [(static(taps) - 1) * step for taps, step in zip(w.shape[2:], steps)]
    pads = tuple((r - p, r - p + e) for r, p, e in zip(reach, cut, extra))
    sizes = [(least(n) - 1) * s + r + 1 - 2 * p + e for n, s, r, p, e in zip(op.shape[2:], strides, reach, cut, extra)]
    if min(sizes) < 1:
        raise ShapeError(f"{function}: input {x.shape} is too short: the result would have lengths {tuple(sizes)}.")
    arg = ConvArg((1,) * axes, pads, steps, strides, groups, tf32=uses_tf32(op.dtype))
    return _finished(function, op, reversed_weight(w, groups), arg, has_batch, x, weight, bias)


def _weight(function: str, x: Op, weight: Tensor, axes: int) -> Op:
    """Returns the weight in the dtype of the product; raises an error for wrong axes or a wrong dtype."""
    w = tensor_of(function, "weight", weight).read()
    w = cast(w, lowered(w.dtype))
    if len(w.shape) != axes + 2 or 0 in w.shape[2:]:
        raise ShapeError(f"{function}: weight must have {axes + 2} axes, the last {axes} not empty, got {w.shape}.")
    if w.dtype is not x.dtype:
        raise DTypeError(f"{function}: input is {x.dtype}, weight is {w.dtype}.", hint="cast one of them.")
    return w


def _padding(function: str, padding: str | tuple[int, ...], strides: Sequence[int], spans: Sequence[int]) -> Pairs:
    """Returns zeros before and after for each axis; an odd total puts the extra one at the end, as in PyTorch."""
    if not isinstance(padding, str):
        return tuple((p, p) for p in padding)
    if padding == "valid":
        return ((0, 0),) * len(spans)
    if padding != "same":
        raise ArgumentError(f'{function}: padding must be numbers, "valid" or "same", got {padding!r}.')
    if max(strides) > 1:
        raise ArgumentError(f'{function}: padding="same" needs stride 1, got {tuple(strides)}.')
    return tuple(((span - 1) // 2, span - 1 - (span - 1) // 2) for span in spans)


def _check_fits(function: str, shape: Shape, spans: Sequence[int], pads: Pairs) -> None:
    for axis, (span, pair) in enumerate(zip(spans, pads)):
        length = least(shape[2 + axis]) + sum(pair)
        if span > length:
            raise ShapeError(
                f"{function}: a kernel spanning {span} is longer than axis {2 + axis} of input {shape}, "
                f"{length} with padding."
            )


def _finished(
    function: str, op: Op, w: Op, arg: ConvArg, has_batch: bool, x: Tensor, weight: Tensor, bias: Tensor | None
) -> Tensor:
    """Returns the CONV of operands, plus the bias; a batch axis that was added is removed."""
    if bias is None:
        result, device = Op(OpCode.CONV, op.dtype, (op, w), arg), x.other_device(function, weight)
    else:
        result, device = _with_bias(op, w, _bias(function, op, w, bias), arg), x.other_device(function, weight, bias)
    return x.from_op(without_batch(result, has_batch), device)


def _bias(function: str, x: Op, w: Op, bias: Tensor) -> Op:
    """Returns the bias, one number per output channel; raises ShapeError if it is not."""
    own = tensor_of(function, "bias", bias).read()
    own = cast(own, lowered(own.dtype))
    if own.shape != w.shape[:1]:
        raise ShapeError(f"{function}: bias must be ({w.shape[0]},), one number per output, got {own.shape}.")
    if own.dtype is not x.dtype:
        raise DTypeError(f"{function}: input is {x.dtype}, bias is {own.dtype}.", hint="cast one of them.")
    return own


@formula
def _with_bias(x: Op, w: Op, bias: Op, arg: ConvArg) -> Op:
    result = Op(OpCode.CONV, x.dtype, (x, w), arg)
    return result + expand(reshape(bias, (1, *bias.shape, *(1 for _ in result.shape[2:]))), result.shape)
