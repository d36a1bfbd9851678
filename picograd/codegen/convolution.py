"""A convolution as a matrix product: the row, column and k of each element of its operands.

out[b, o, p] = sum over c, t of X[b, c, p s + t d] w[o, c, t], by groups of channels: rows are the output channels o of a
group, columns the positions of windows (b, p), k = (channel, tap). `Windows.column` reads an element of the windowed
operand through an index expression, so windows are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd import dtype as dtypes
from picograd.codegen.index import element_anywhere_valid, is_loaded, put_in_all, zero_unless
from picograd.codegen.matmul import contiguous_axis
from picograd.ir.build import permute, reshape, static_shape, swap_last
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg, numel
from picograd.ir.symbolic import add, both, floordiv, less, mod, mul, placeholders, subtract, to_op, unflatten
from picograd.record import Record

FILLED_LANES_MIN = 0.6  # of a CPU's lanes: lanes do not run along an axis that fills fewer
ITERATIONS_MIN = 16  # of GRID on a CPU: with fewer, the long sum of a weight's gradient is split
INSIDE = Op(OpCode.VAR, dtypes.bool_, (), ("inside", 1))  # the condition under which an element is read


class Windows(Record):
    """A CONV, as the loops see it."""

    anchor: Op

    @property
    def arg(self) -> ConvArg:
        return self.anchor.arg

    @property
    def groups(self) -> int:
        return self.arg.groups

    @property
    def m(self) -> int:
        """Output channels of a group."""
        return static_shape(self.anchor.src[1].shape[:1])[0] // self.groups

    @property
    def channels(self) -> Dim:
        """Input channels of a group; for a weight's gradient images."""
        return self.anchor.src[1].shape[1]

    @property
    def taps(self) -> Shape:
        return self.anchor.src[1].shape[2:]

    @property
    def num_taps(self) -> Dim:
        return numel(self.taps)

    @property
    def k(self) -> Dim:
        return mul(self.channels, self.num_taps)

    @property
    def spatial(self) -> Shape:
        """Positions of a window along each axis."""
        return self.anchor.shape[2:]

    @property
    def matrix(self) -> Op:
        """The weight of each group as (groups, K, output channels)."""
        return swap_last(reshape(self.anchor.src[1], (self.groups, self.m, self.k)))

    @property
    def by_channel(self) -> Op:
        """The weight of each group as (groups, input channels, taps, output channels)."""
        by_tap = reshape(self.anchor.src[1], (self.groups, self.m, self.channels, self.num_taps))
        return permute(by_tap, (0, 2, 3, 1))

    @property
    def is_by_channel(self) -> bool:
        """True if the weight is contiguous along taps, but not from channel to channel, as images are."""
        return contiguous_axis(self.matrix) != -2 and contiguous_axis(self.by_channel) == -2

    def places(self, position: Sequence[Dim], taps: Sequence[Dim]) -> list[Dim]:
        """Returns the position in x, with its padding, of taps of the window at a position: along each axis."""
        arg: ConvArg = self.anchor.arg
        each = zip(position, arg.stride, taps, arg.dilation)
        return [add(mul(place, step), mul(tap, apart)) for place, step, tap, apart in each]

    def weight(self, o: Dim, c: Dim, tap: Dim) -> Op:
        """Returns an element of w; `o` counts over all groups and `tap` over all axes; both are inside."""
        w = self.anchor.src[1]
        by_tap = reshape(w, (*w.shape[:2], self.num_taps))
        return _at(by_tap, (o, c, tap))

    def weight_row(self, o: Dim, k: Dim) -> Op:
        """Returns an element of w by its k, which may run on from one channel to the next."""
        w = self.anchor.src[1]
        return _at(reshape(w, (w.shape[0], self.k)), (o, k))

    def column(self, b: Dim, position: Sequence[Dim], group: Dim, c: Dim, tap: Dim, known: Op | bool) -> Op:
        """Returns the element under `tap` of the window at `position`; 0 between and around the elements of x.

        Args:
          known: what is known of b and position; if it is false, no memory is read
        """
        x, arg = self.anchor.src[0], self.arg
        at = zip(position, unflatten(tap, self.taps), x.shape[2:], range(len(self.taps)))
        places: list[Dim] = []
        valid = known
        for place, step, length, i in at:
            apart, (before, _) = arg.input_dilation[i], arg.padding[i]
            j = subtract(add(mul(place, arg.stride[i]), mul(step, arg.dilation[i])), before)
            valid = both(valid, both(less(-1, j), less(j, add(mul(subtract(length, 1), apart), 1))))
            if apart > 1:
                valid = both(valid, _is_zero(mod(j, apart)))
            places.append(floordiv(j, apart))
        return guarded(x, (b, add(mul(group, self.channels), c), *places), valid)


def _is_zero(value: Dim) -> Op | bool:
    if isinstance(value, int):
        return value == 0
    return Op(OpCode.CMPEQ, dtypes.bool_, (to_op(value), const(0, dtypes.int64)))


def _at(value: Op, coords: Sequence[Dim]) -> Op:
    """Returns an element whose coordinates are inside x."""
    marks = dict(zip(placeholders(value.shape), coords))
    found = element_anywhere_valid(value, True)
    return put_in_all([found], {mark: coord for mark, coord in marks.items() if isinstance(mark, Op)})[0]


def padded(x: Op, image: Dim, channel: Dim, places: Sequence[Dim]) -> Op:
    """Returns an element of x by its position along the spatial axes; 0 outside."""
    valid: Op | bool = True
    for place, length in zip(places, x.shape[2:]):
        valid = both(valid, both(less(-1, place), less(place, length)))
    return guarded(x, (image, channel, *places), valid)


def guarded(x: Op, coords: Sequence[Dim], valid: Op | bool) -> Op:
    """Returns an element if `valid`, else 0."""
    if valid is False:
        return const(0, x.dtype)
    values: dict[Op, Dim] = {m: c for m, c in zip(placeholders(x.shape), coords) if isinstance(m, Op)}
    if valid is True:
        return put_in_all([element_anywhere_valid(x, True)], values)[0]
    value = put_in_all([element_anywhere_valid(x, INSIDE)], {**values, INSIDE: valid})[0]
    return value if is_loaded(value) else zero_unless(valid, value)
