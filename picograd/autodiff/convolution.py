"""The transposes of CONV, which are CONVs again: no window of the input is ever stored.

In:    the incoming gradient `grad` and the CONV `out`
Out:   the gradient of x or of w
Next:  picograd/autodiff/extremes.py

out[b, o, p] = sum over c, t of X[b, c, p s + t d] w[o, c, t], where X is x with its elements e apart (input
dilation) and zeros around; s is the stride, d the dilation, and k taps span K = (k - 1) d + 1.
"""

from __future__ import annotations

from picograd.ir.build import flip, permute, reshape, shrink, static_shape
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.ir.symbolic import add, mul, subtract
from picograd.record import replace


def conv_x(grad: Op, out: Op) -> Op:
    """The gradient spreads backwards: grad, its elements s apart, convolved with w, channels and taps reversed.

    dX[j] = sum over t of grad[(j - t d) / s] w[t], wanted at j = lo + i e for each element i of x. More zeros around x
    than K - 1 are never seen by w together with x: there elements beyond both ends are computed and cut off again.
    """
    x, w = out.src
    arg: ConvArg = out.arg
    lengths, taps, windows = x.shape[2:], static_shape(w.shape[2:]), out.shape[2:]
    padding: list[tuple[int, int]] = []
    bounds: list[tuple[Dim, Dim]] = [(0, length) for length in x.shape[:2]]
    for i, length in enumerate(lengths):
        apart, span = arg.input_dilation[i], (taps[i] - 1) * arg.dilation[i] + 1
        before = span - 1 - arg.padding[i][0]
        after = _number(subtract(_span(length, apart), _span(windows[i], arg.stride[i]))) + span - 1 - before
        extra, extra_after = max(0, -(before // apart)), max(0, -(after // apart))
        padding.append((before + extra * apart, after + extra_after * apart))
        bounds.append((extra, add(length, extra)))
    transposed = replace(
        arg, stride=arg.input_dilation, padding=tuple(padding), input_dilation=arg.stride
    )  # fmt: skip
    return shrink(Op(OpCode.CONV, x.dtype, (grad, reversed_weight(w, arg.groups)), transposed), tuple(bounds))


def reversed_weight(w: Op, groups: int) -> Op:
    """Returns w (O, C / groups, *kernel) as (C, O / groups, *kernel), taps backwards."""
    outputs, channels, *kernel = static_shape(w.shape)
    spatial = tuple(range(3, 3 + len(kernel)))
    split = reshape(w, (groups, outputs // groups, channels, *kernel))
    swapped = reshape(permute(split, (0, 2, 1, *spatial)), (groups * channels, outputs // groups, *kernel))
    return flip(swapped, tuple(range(2, 2 + len(kernel))))


def conv_w(grad: Op, out: Op) -> Op:
    """dw[o, c, t] = sum over b, p of grad[b, o, p] X[b, c, p s + t d]: a CONV of x with grad, batch as channels.

    Its stride is d and its dilation s. What x has beyond the last window is not padded, or cut off.
    The gradient of such a gradient by its own weight, which is grad, is over a batch again.
    """
    x, w = out.src
    arg: ConvArg = out.arg
    batch, (channels,), lengths = x.shape[0], static_shape(x.shape[1:2]), x.shape[2:]
    taps, windows, spatial = static_shape(w.shape[2:]), out.shape[2:], tuple(range(2, len(x.shape)))
    split = reshape(x, (batch, arg.groups, channels // arg.groups, *lengths))
    moved = permute(split, (2, 1, 0, *(axis + 1 for axis in spatial)))  # (C / groups, groups, B, *)
    operand = reshape(moved, (channels // arg.groups, mul(batch, arg.groups), *lengths))
    padding: list[tuple[int, int]] = []
    for i, (lo, hi) in enumerate(arg.padding):
        beyond = _number(subtract(_span(lengths[i], arg.input_dilation[i]), _span(windows[i], arg.stride[i])))
        unseen = beyond + lo + hi - (taps[i] - 1) * arg.dilation[i]
        padding.append((lo, hi - min(hi, unseen)))
    transposed = replace(
        arg, stride=arg.dilation, dilation=arg.stride, padding=tuple(padding), of_weight=not arg.of_weight
    )  # fmt: skip
    by_channel = Op(OpCode.CONV, w.dtype, (operand, permute(grad, (1, 0, *spatial))), transposed)
    by_output = permute(by_channel, (1, 0, *spatial))  # (O, C / groups, *)
    return shrink(by_output, tuple((0, dim) for dim in w.shape))


def _span(count: Dim, apart: int) -> Dim:
    """Returns how many places `count` elements take that lie `apart` from each other."""
    return add(mul(subtract(count, 1), apart), 1)


def _number(value: Dim) -> int:
    """Returns how much longer a line is than its windows' places, which is a number where both have a stride of one."""
    return static_shape((value,))[0]
