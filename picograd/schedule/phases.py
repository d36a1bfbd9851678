"""Makes of a convolution over an x with gaps, as the gradient by x of one with a stride, several over x itself.

In:    a CONV
Out:   `has_phases`; `by_phases`: its value from CONVs without gaps
Called by: schedule/contract.py.    Next: picograd/schedule/weight_gradients.py

With a steps between elements of x, position p = a q + r meets an element only under each a-th tap, t = t0 + a u: that is
element q + u + (r + t0 - before) / a. So for each r there is a convolution of every a-th tap, and positions interleave:

    x: . 0 . 1 . 2 .    w: 0 1 2    even positions see taps 1, odd ones taps 0 and 2

Source: Dumoulin and Visin 2016, arXiv:1603.07285, chapter 4; the phases are those of a polyphase filter bank.
"""

from __future__ import annotations

from itertools import product
from math import prod

from picograd.ir.build import pad, reshape, shrink, static_shape, zeros_like
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.record import replace

MOST_PHASES = 16


def has_phases(op: Op) -> bool:
    """True for a CONV with gaps between the elements of x, and a stride and a dilation of one."""
    arg: ConvArg = op.arg
    if max(arg.input_dilation) == 1 or {*arg.stride, *arg.dilation} != {1} or not op.dtype.is_float:
        return False
    lengths = (*op.src[0].shape[2:], *op.src[1].shape)
    return prod(arg.input_dilation) <= MOST_PHASES and all(isinstance(n, int) and n > 0 for n in lengths)


def by_phases(op: Op, x: Op, w: Op) -> Op:
    """Returns a CONV as one for each phase of its positions, put beside each other."""
    arg, out = op.arg, static_shape(op.shape[2:])
    aparts = arg.input_dilation
    counts = [-(-length // apart) for length, apart in zip(out, aparts)]  # positions of each phase, perhaps one too many
    whole: Op | None = None
    for at in product(*map(range, aparts)):
        part = _phase(op, x, w, at, counts)
        part = reshape(part, (*part.shape[:2], *(n for count in counts for n in (count, 1))))
        beside = [(0, 0), (0, 0)]
        for r, apart in zip(at, aparts):
            beside += [(0, 0), (r, apart - 1 - r)]
        part = pad(part, tuple(beside))
        whole = part if whole is None else whole + part
    assert whole is not None
    whole = reshape(whole, (*whole.shape[:2], *(count * apart for count, apart in zip(counts, aparts))))
    return shrink(whole, ((0, whole.shape[0]), (0, whole.shape[1]), *((0, length) for length in out)))


def _phase(op: Op, x: Op, w: Op, at: tuple[int, ...], counts: list[int]) -> Op:
    """Returns the values at positions a q + r, q < count, for one r of each axis."""
    arg: ConvArg = op.arg
    padding, taps, kept = [], [(0, n) for n in static_shape(w.shape[:2])], [(0, x.shape[0]), (0, x.shape[1])]
    lengths = static_shape(x.shape[2:])
    for i, (r, apart) in enumerate(zip(at, arg.input_dilation)):
        before, num_taps = arg.padding[i][0], static_shape(w.shape)[2 + i]
        first = (before - r) % apart
        start = (r + first - before) // apart  # the element under the first tap of position 0
        stop = start + counts[i] + (num_taps - first - 1) // apart  # behind that under the last tap of the last
        if first >= num_taps or start >= lengths[i] or stop <= 0:  # nothing is met
            like = (*op.shape[:2], *counts)
            return zeros_like(Op(OpCode.EXPAND, op.dtype, (Op(OpCode.CONST, op.dtype, (), 0.0),), like))
        taps.append((first, num_taps))
        kept.append((max(0, start), min(lengths[i], stop)))
        padding.append((max(0, -start), max(0, stop - lengths[i])))
    steps = tuple(arg.input_dilation)
    plain = replace(arg, padding=tuple(padding), input_dilation=(1,) * len(steps))
    return Op(OpCode.CONV, op.dtype, (shrink(x, tuple(kept)), _every(shrink(w, tuple(taps)), steps)), plain)


def _every(w: Op, steps: tuple[int, ...]) -> Op:
    """Returns w (O, C, *taps) with each `step`-th tap alone."""
    for i, step in enumerate(steps):
        axis, length = 2 + i, static_shape(w.shape)[2 + i]
        count = -(-length // step)
        w = pad(w, tuple((0, count * step - length) if j == axis else (0, 0) for j in range(len(w.shape))))
        w = reshape(w, (*w.shape[:axis], count, step, *w.shape[axis + 1 :]))
        w = shrink(w, tuple((0, 1) if j == axis + 1 else (0, n) for j, n in enumerate(w.shape)))
        w = reshape(w, (*w.shape[: axis + 1], *w.shape[axis + 2 :]))
    return w
