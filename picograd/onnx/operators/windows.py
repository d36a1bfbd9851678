"""Windows that move along axes: where they lie, what they see, and pooling over them.

In:    tensors (N, C, spatial axes...)
Out:   `OPERATORS`, `Windows`
Next:  picograd/onnx/operators/convolution.py
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from picograd.errors import ArgumentError, ShapeError
from picograd.onnx.record import Step, row
from picograd.onnx.values import Array
from picograd.tensor.tensor import Tensor


@dataclass(frozen=True)
class Windows:
    """Where windows lie along each spatial axis.

    kernel, strides, dilations:  elements of a window, steps from window to window, steps within one
    before, after:   elements of padding that are asked for
    beyond:          elements after those, which the last window reaches where lengths are rounded up
    outputs:         number of windows
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    beyond: tuple[int, ...]
    outputs: tuple[int, ...]

    def padded(self, x: Tensor, value: float, beyond: bool = True) -> Tensor:
        """Returns x with `value` around it."""
        pads = [
            n for axis in reversed(range(len(self.kernel)))
            for n in (self.before[axis], self.after[axis] + (self.beyond[axis] if beyond else 0))
        ]  # fmt: skip
        return x.pad(pads, value=value) if any(pads) else x

    def seen(self, x: Tensor) -> Tensor:
        """Returns what each window of a padded tensor sees: (N, C, outputs..., kernel...)."""
        first = x.ndim - len(self.kernel)
        for axis, count in enumerate(self.outputs):
            at = first + 2 * axis
            starts = Tensor.arange(count, device=x.device).unsqueeze(1) * self.strides[axis]
            places = starts + Tensor.arange(self.kernel[axis], device=x.device) * self.dilations[axis]
            x = x.index_select(at, places.reshape(-1)).unflatten(at, (count, self.kernel[axis]))
        ndim = len(self.kernel)
        order = [*range(first), *(first + 2 * i for i in range(ndim)), *(first + 2 * i + 1 for i in range(ndim))]
        return x.permute(*order)


def windows_of(
    function: str, lengths: Sequence[int], kernel: Sequence[int], strides: Sequence[int] | None, pads: Sequence[int] | None,
    dilations: Sequence[int] | None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
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
    spans = [(k - 1) * gap + 1 for k, gap in zip(kernel, gaps)]
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        given = _same(lengths, spans, steps, auto_pad)
    elif auto_pad not in ("NOTSET", "VALID", ""):
        raise ArgumentError(f"{function}: auto_pad must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, got {auto_pad!r}.")
    before, after = tuple(given[:ndim]), tuple(given[ndim:])
    outputs, beyond = [], []
    for axis, length in enumerate(lengths):
        room = length + before[axis] + after[axis] - spans[axis]
        if room < 0:
            shown = f"a window over {spans[axis]} elements does not fit the {room + spans[axis]}"
            raise ShapeError(f"{function}: {shown} along spatial axis {axis}, padding among them.")
        count = (-(-room // steps[axis]) if ceil_mode else room // steps[axis]) + 1
        if ceil_mode and (count - 1) * steps[axis] >= length + before[axis]:
            count -= 1  # a window that begins in the padding at the end sees nothing
        outputs.append(count)
        beyond.append(max(0, (count - 1) * steps[axis] - room))
    return Windows(tuple(kernel), tuple(steps), tuple(gaps), before, after, tuple(beyond), tuple(outputs))


def _same(lengths: Sequence[int], spans: Sequence[int], steps: Sequence[int], auto_pad: str) -> list[int]:
    """Returns the padding with which there is a window for each step."""
    whole = [max(0, (-(-n // step) - 1) * step + span - n) for n, span, step in zip(lengths, spans, steps)]
    small, large = [n // 2 for n in whole], [n - n // 2 for n in whole]
    return [*small, *large] if auto_pad == "SAME_UPPER" else [*large, *small]


# ---- pooling ----
def max_pool(
    x: Tensor, *, step: Step, kernel_shape: Sequence[int], strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None, auto_pad: str = "NOTSET",
    ceil_mode: int = 0, storage_order: int = 0,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Returns the largest element of each window, and where in the flattened input it stands."""
    windows = windows_of("MaxPool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    seen = windows.seen(windows.padded(x, x.dtype.min)).flatten(x.ndim)
    largest = seen.amax(-1)
    if len(step.outputs) < 2:
        return (largest,)
    return largest, _flat_places(seen.argmax(-1), x, windows, storage_order)


def _flat_places(inside: Tensor, x: Tensor, windows: Windows, storage_order: int) -> Tensor:
    """Returns the places in x of elements that stand at `inside` of their windows."""
    lengths, ndim = x.shape[2:], len(windows.kernel)
    images = Tensor.arange(x.shape[0] * x.shape[1], device=x.device).reshape(*x.shape[:2], *(1,) * ndim)
    places = images * math.prod(lengths)
    for axis in range(ndim):
        rest = math.prod(windows.kernel[axis + 1 :])
        within = (inside // rest) % windows.kernel[axis]
        starts = Tensor.arange(windows.outputs[axis], device=x.device) * windows.strides[axis] - windows.before[axis]
        place = starts.reshape(-1, *(1,) * (ndim - axis - 1)) + within * windows.dilations[axis]
        places = places + place * (math.prod(lengths[:axis]) if storage_order else math.prod(lengths[axis + 1 :]))
    return places


def average_pool(
    x: Tensor, *, kernel_shape: Sequence[int], strides: Sequence[int] | None = None, pads: Sequence[int] | None = None,
    dilations: Sequence[int] | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
) -> Tensor:  # fmt: skip
    """Returns the mean of each window: of what it sees of x, with count_include_pad of the padding too."""
    windows = windows_of("AveragePool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    axes = tuple(range(-len(kernel_shape), 0))
    ones = Tensor.ones(1, 1, *x.shape[2:], dtype=x.dtype.wide, device=x.device)
    if count_include_pad:
        ones = windows.padded(ones, 1.0, beyond=False).pad([n for end in reversed(windows.beyond) for n in (0, end)])
    else:
        ones = windows.padded(ones, 0.0)
    total = windows.seen(windows.padded(x.to(x.dtype.wide), 0.0)).sum(axes)
    return (total / windows.seen(ones).sum(axes)).to(x.dtype)


def lp_pool(
    x: Tensor, *, kernel_shape: Sequence[int], p: float = 2, strides: Sequence[int] | None = None,
    pads: Sequence[int] | None = None, dilations: Sequence[int] | None = None, auto_pad: str = "NOTSET", ceil_mode: int = 0,
) -> Tensor:  # fmt: skip
    """Returns the p-norm of each window."""
    windows = windows_of("LpPool", x.shape[2:], kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return _norm(windows.seen(windows.padded(x, 0.0)), p, tuple(range(-len(kernel_shape), 0)), False)


def _norm(x: Tensor, p: float, axes: tuple[int, ...], keepdim: bool) -> Tensor:
    wide = x.to(x.dtype.wide)
    powers = wide * wide if p == 2 else wide.abs() ** p
    total = powers.sum(axes, keepdim)
    return (total.sqrt() if p == 2 else total ** (1.0 / p)).to(x.dtype)


def global_average_pool(x: Tensor) -> Tensor:
    """Returns the mean over all spatial axes, which stay with length 1."""
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


def global_max_pool(x: Tensor) -> Tensor:
    """Returns the largest element over all spatial axes, which stay with length 1."""
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    """Returns the p-norm over all spatial axes, which stay with length 1."""
    return _norm(x, p, tuple(range(2, x.ndim)), True)


def max_unpool(
    x: Tensor, places: Tensor, shape: Array | None = None, *, kernel_shape: Sequence[int],
    strides: Sequence[int] | None = None, pads: Sequence[int] | None = None,
) -> Tensor:  # fmt: skip
    """Returns zeros with the elements of x at their places in the flattened input of a MaxPool."""
    ndim = len(kernel_shape)
    steps, given = strides or [1] * ndim, pads or [0] * (2 * ndim)
    lengths = [
        (n - 1) * steps[i] + kernel_shape[i] - given[i] - given[ndim + i] for i, n in enumerate(x.shape[2:])
    ]  # fmt: skip
    full = (*x.shape[:2], *lengths)
    if shape is not None and tuple(shape.tolist()) != full:
        places = _moved(places, full, tuple(shape.tolist()))
        full = tuple(shape.tolist())
    result = Tensor.zeros(math.prod(full), dtype=x.dtype, device=x.device)
    result[places.reshape(-1)] = x.reshape(-1)
    return result.reshape(full)


def _moved(places: Tensor, shape: Sequence[int], target: Sequence[int]) -> Tensor:
    """Returns the places in a larger tensor of what stands at `places` of one of another shape."""
    moved, rest = places * 0, places
    for axis in range(len(shape)):
        below = math.prod(shape[axis + 1 :])
        moved = moved + rest // below * math.prod(target[axis + 1 :])
        rest = rest % below
    return moved


OPERATORS = [
    row("MaxPool", 1, max_pool), row("AveragePool", 1, average_pool), row("LpPool", 2, lp_pool),
    row("GlobalAveragePool", 1, global_average_pool), row("GlobalMaxPool", 1, global_max_pool),
    row("GlobalLpPool", 2, global_lp_pool), row("MaxUnpool", 9, max_unpool, static=(2,)),
]  # fmt: skip
