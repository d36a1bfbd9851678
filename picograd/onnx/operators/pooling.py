"""Windows that move along axes, and pooling over them.

In:    tensors (N, C, spatial axes...)
Out:   `OPERATORS`, `windows_of`, `padded`
Next:  picograd/onnx/operators/convolution.py

What a window gives is computed by the functions of picograd.nn; here stands where ONNX puts the windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd.errors import ArgumentError, ShapeError
from picograd.nn.functions.maxima import max_of_windows, put_back
from picograd.nn.functions.means import mean_of_windows, sum_of_windows
from picograd.nn.functions.placement import Windows, placed
from picograd.onnx.record import Step, row
from picograd.tensor.tensor import Tensor

Numbers = Sequence[int] | None


def windows_of(
    function: str, lengths: Sequence[int], kernel: Sequence[int], strides: Numbers, pads: Numbers, dilations: Numbers,
    auto_pad: str = "NOTSET", ceil_mode: int = 0,
) -> Windows:  # fmt: skip
    """Returns where windows lie along axes of these lengths.

    Raises:
      ArgumentError: a number is not one of steps, or auto_pad is none ONNX knows.
      ShapeError:    there is not one number for each axis, or a window is longer than what it moves along.
    """
    ndim = len(lengths)
    steps, gaps = [*(strides or [1] * ndim)], [*(dilations or [1] * ndim)]
    given = [*(pads or [0] * (2 * ndim))]
    if not len(kernel) == len(steps) == len(gaps) == ndim or len(given) != 2 * ndim:
        shown = f"kernel {[*kernel]}, strides {steps}, dilations {gaps} and pads {given}"
        raise ShapeError(f"{function}: {shown} do not fit {ndim} spatial axes.")
    if min([*kernel, *steps, *gaps], default=1) < 1 or min(given, default=0) < 0:
        shown = f"kernel {[*kernel]}, strides {steps} and dilations {gaps}"
        raise ArgumentError(f"{function}: {shown} must be >= 1, pads {given} >= 0.")
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        spans = [(k - 1) * gap + 1 for k, gap in zip(kernel, gaps)]
        given = _same(lengths, spans, steps, auto_pad)
    elif auto_pad not in ("NOTSET", "VALID", ""):
        raise ArgumentError(f"{function}: auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, got {auto_pad!r}.")
    around = tuple(given[:ndim]), tuple(given[ndim:])
    return placed(function, tuple(lengths), tuple(kernel), tuple(steps), tuple(gaps), around, bool(ceil_mode))


def _same(lengths: Sequence[int], spans: Sequence[int], steps: Sequence[int], auto_pad: str) -> list[int]:
    """Returns the padding with which there is a window for each step."""
    whole = [max(0, (-(-n // step) - 1) * step + span - n) for n, span, step in zip(lengths, spans, steps)]
    small, large = [n // 2 for n in whole], [n - n // 2 for n in whole]
    return [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]


def padded(x: Tensor, windows: Windows) -> Tensor:
    """Returns x with zeros around it where windows reach."""
    pads = [n for pair in reversed(windows.margins(x.shape[x.ndim - len(windows.kernel) :])) for n in pair]
    return x.pad(pads) if any(pads) else x


# ---- pooling ----
def max_pool(
    x: Tensor, *, step: Step, kernel_shape: Sequence[int], strides: Numbers = None, pads: Numbers = None,
    dilations: Numbers = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, storage_order: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the largest element of each window, and where in the flattened input it stands."""
    windows = windows_of("MaxPool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    largest, places = (x.from_op(op, x.device) for op in max_of_windows(x.read(), windows))
    if len(step.outputs) < 2:
        return (largest,)
    if storage_order:
        places = _moved(places, x.shape[2:], [math.prod(x.shape[2:axis]) for axis in range(2, x.ndim)])
    return largest, places + _first_places(x)


def _first_places(x: Tensor) -> Tensor:
    """Returns (N, C, 1, ...): where each image starts in the flattened tensor."""
    images = Tensor.arange(x.shape[0] * x.shape[1], device=x.device)
    return images.reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * math.prod(x.shape[2:])


def _moved(places: Tensor, lengths: Sequence[int], strides: Sequence[int]) -> Tensor:
    """Returns row-major places of elements in images of these lengths, in memory with these strides."""
    moved, rest = places * 0, places
    for length, stride in zip(reversed(lengths), reversed(strides)):
        moved, rest = moved + rest % length * stride, rest // length
    return moved


def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Numbers = None, pads: Numbers = None, dilations: Numbers = None,
    auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    """Returns the mean of each window: of what it sees of x, with count_include_pad of the padding too."""
    windows = windows_of("AveragePool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    wide = x.to(x.dtype.compute_dtype)
    return x.from_op(mean_of_windows(wide.read(), windows, bool(count_include_pad)), x.device).to(x.dtype)


def lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], p: float = 2, strides: Numbers = None, pads: Numbers = None,
    dilations: Numbers = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
) -> Tensor:  # fmt: skip
    """Returns the p-norm of each window."""
    windows = windows_of("LpPool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    powers = x.to(x.dtype.compute_dtype).abs().pow(p)
    return x.from_op(sum_of_windows(powers.read(), windows), x.device).pow(1.0 / p).to(x.dtype)


def global_average_pool(x: Tensor) -> Tensor:
    """Returns the mean over all spatial axes, which stay with length 1."""
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def global_max_pool(x: Tensor) -> Tensor:
    """Returns the largest element over all spatial axes, which stay with length 1."""
    largest: Tensor = x.flatten(2).max(2).values
    return largest.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    """Returns the p-norm over all spatial axes, which stay with length 1."""
    return x.to(x.dtype.compute_dtype).abs().pow(p).sum(tuple(range(2, x.ndim)), True).pow(1.0 / p).to(x.dtype)


def max_unpool(
    x: Tensor, places: Tensor, shape: Sequence[int] | None = None, *, kernel_shape: Sequence[int], strides: Numbers = None,
    pads: Numbers = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of x at their places in the flattened input of a MaxPool."""
    ndim = len(kernel_shape)
    steps, given = strides or [1] * ndim, pads or [0] * (2 * ndim)
    lengths = [(n - 1) * steps[i] + kernel_shape[i] - given[i] - given[ndim + i] for i, n in enumerate(x.shape[2:])]
    if shape is None:
        shape = [*x.shape[:2], *lengths]
    wanted = [*shape[2:]]
    fits = len(shape) == x.ndim and tuple(shape[:2]) == x.shape[:2] and min(lengths) > 0
    if not fits or any(asked < least for asked, least in zip(wanted, lengths)):
        raise ShapeError(f"MaxUnpool: output_shape {[*shape]} does not fit {x.shape} and windows that reach {lengths}.")
    inside = places % math.prod(lengths)
    if wanted != lengths:
        inside, lengths = _moved(inside, lengths, [math.prod(wanted[i + 1 :]) for i in range(ndim)]), wanted
    return x.from_op(put_back(x.read(), inside.read(), lengths), x.device)


OPERATORS = [
    row("MaxPool", 1, max_pool, "3+"), row("AveragePool", 1, average_pool, "3+"), row("LpPool", 2, lp_pool, "3+"),
    row("GlobalAveragePool", 1, global_average_pool, "3+"), row("GlobalMaxPool", 1, global_max_pool, "3+"),
    row("GlobalLpPool", 2, global_lp_pool, "3+"), row("MaxUnpool", 9, max_unpool, "3+ like row"),
]  # fmt: skip
