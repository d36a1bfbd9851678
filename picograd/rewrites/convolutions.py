"""Gives a convolution the form that suits its shape: fewer taps, products, sums along rows, no gaps.

In:    a CONV whose sources are in their best form, a Target
Out:   `convolution`: what takes its place

    taps and places that meet padding alone    ->  left out; these places are 0
    few places                                 ->  (B * places, C * taps) @ (C * taps, O): windows are rows
    few elements of x, a weight turned around  ->  (B * elements, C) @ (C, O * taps): patches are added up
    a weight that sees one element at a time   ->  products of images, or one of all
    one output a group, few long sums          ->  sums of windows of x times w, as vectors along the sum
    gaps between the elements of x             ->  a convolution for each phase of its positions, or patches
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod

from picograd.device import Target
from picograd.ir.build import (
    cast,
    expand,
    flip,
    floordiv,
    gather,
    iota,
    joined,
    mod,
    pad,
    pad_axis,
    permute,
    positions,
    reduce,
    repeat_axes,
    reshape,
    shrink,
    shrink_axis,
    static_shape,
    swap_last,
)
from picograd.ir.op import Dim, Op, Shape, filled, greatest_numel
from picograd.ir.opcode import MOVEMENT, OpCode
from picograd.ir.shape import ConvArg, MatmulArg, numel, of_numbers
from picograd.ir.symbolic import add, bounds, ceildiv, less, mul, subtract
from picograd.record import replace
from picograd.rewrites.products import product, sum_of


def convolution(op: Op, x: Op, w: Op, target: Target | None) -> Op:
    """Returns a CONV of other sources in the form that fills vectors and reads no gap."""
    op = without_taps_in_padding(op.replace((x, w)))
    plain_sums = target is not None and target.plain_sums
    if is_of_pixels(op, target):
        return by_images(op, plain_sums)
    if has_few_elements(op, target):
        return by_patches(op, plain_sums)
    if has_few_terms(op, target):
        return of_all_images(op, plain_sums)
    few, zeros = without_places_in_padding(op)
    if has_few_places(few, target):
        return pad(of_all_images(few, plain_sums) if op.arg.of_weight else by_places(few, plain_sums), zeros)
    if is_narrow(op, target) or has_many_gaps(op):
        return with_roles_swapped(op)
    if target is not None and has_planes(op, target):
        return sums_of_planes(op, target.sum_lanes(op.dtype))
    if has_few_long_sums(op):
        return sums_of_windows(op)
    if has_phases(op):
        return by_patches(op, plain_sums) if has_patches(op) else by_phases(op)
    return op


# ---- taps and places that meet padding alone ----
Pairs = tuple[tuple[int, int], ...]


def without_taps_in_padding(op: Op) -> Op:
    """Returns a CONV without taps that meet padding at all its places: of 3 x 3 over one element the one in the middle."""
    (x, w), arg = op.src, op.arg
    unmet = _unmet(op, w.shape[2:], arg.dilation, op.shape[2:], arg.stride)
    taps = (*((0, n) for n in w.shape[:2]), *((first, subtract(n, last)) for n, (first, last) in zip(w.shape[2:], unmet)))
    return Op(op.code, op.dtype, (x, shrink(w, taps)), _with_less_padding(arg, unmet, arg.dilation))


def without_places_in_padding(op: Op) -> tuple[Op, Pairs]:
    """Returns a CONV without places that meet padding under all its taps, and how many there are before and behind it."""
    unmet = _unmet(op, op.shape[2:], op.arg.stride, op.src[1].shape[2:], op.arg.dilation)
    return Op(op.code, op.dtype, op.src, _with_less_padding(op.arg, unmet, op.arg.stride)), ((0, 0), (0, 0), *unmet)


def _with_less_padding(arg: ConvArg, unmet: Pairs, steps: Sequence[int]) -> ConvArg:
    less_by = [(first * step, last * step) for (first, last), step in zip(unmet, steps)]
    padding = tuple((before - first, after - last) for (before, after), (first, last) in zip(arg.padding, less_by))
    return replace(arg, padding=padding)


def _unmet(op: Op, counts: Shape, steps: Sequence[int], others: Shape, other_steps: Sequence[int]) -> Pairs:
    """Returns how many of the first and of the last taps, or places, along each axis meet padding alone; one is left.

    Args:
      counts, steps:        how many taps, or places, and from one to the next
      others, other_steps:  the same of places, or taps
    """
    found = []
    for i, (before, after) in enumerate(op.arg.padding):
        length, count, other, step = op.src[0].shape[2 + i], counts[i], others[i], steps[i]
        if not (isinstance(length, int) and isinstance(count, int) and isinstance(other, int)) or length == 0:
            found.append((0, 0))
            continue
        behind = before + (length - 1) * op.arg.input_dilation[i]  # the last element
        first = max(0, min(ceildiv(before - (other - 1) * other_steps[i], step), before // step, count - 1))
        found.append((first, max(0, min(count - 1 - behind // step, after // step, count - 1 - first))))
    return tuple(found)


# ---- few places ----
PLACES_MAX = 3  # of an image: more of them fill tiles


def has_few_places(op: Op, target: Target | None) -> bool:
    """True for a CONV with so few places that it is a product, on a CPU; the gradient of a weight for one place alone."""
    arg, (x, w) = op.arg, op.src
    if target is not None and (target.is_gpu or target.plain_sums and arg.of_weight) or not op.dtype.is_float:
        return False
    if max(arg.input_dilation) > 1 or w.shape[0] == arg.groups or 0 in (*x.shape, *w.shape):
        return False
    if not of_numbers((*x.shape[2:], *w.shape)):
        return arg.of_weight and {*op.shape[2:]} == {1} and _sees_all(op)
    return of_numbers(op.shape[2:]) and prod(static_shape(op.shape[2:])) <= (1 if arg.of_weight else PLACES_MAX)


def _sees_all(op: Op) -> bool:
    """True for windows of a symbolic length that begin with the first element of x and end with the last."""
    (x, w), steps = op.src, op.arg.dilation
    reaches = [add(mul(subtract(count, 1), step), 1) for count, step in zip(w.shape[2:], steps)]
    return {*op.arg.padding} == {(0, 0)} and all(subtract(n, reach) == 0 for n, reach in zip(x.shape[2:], reaches))


def by_places(op: Op, plain_sums: bool) -> Op:
    """Returns a CONV as a product of its windows with its weight, (groups, B * places, K) @ (groups, K, O)."""
    (_, w), arg, batch, groups = op.src, op.arg, op.shape[0], op.arg.groups
    outputs, channels, *taps = static_shape(w.shape)
    places, k = prod(static_shape(op.shape[2:])), channels * prod(taps)
    windows = reshape(_windows(op), (batch, groups, channels, places, prod(taps)))
    rows = reshape(permute(windows, (1, 0, 3, 2, 4)), (groups, mul(batch, places), k))
    matrix = swap_last(reshape(w, (groups, outputs // groups, k)))
    total = reshape(_multiplied(rows, matrix, arg, plain_sums), (groups, batch, places, outputs // groups))
    return reshape(permute(total, (1, 0, 3, 2)), op.shape)


TERMS_MAX = 32  # of a sum: a product of so few writes its result as fast as memory takes it ...
TERMS_RESULTS_MIN = 1 << 19  # ... which has so many elements that windows are few beside it,
TERMS_PLACES_MAX = 16  # up to so many taps


def has_few_terms(op: Op, target: Target | None) -> bool:
    """True for the gradient of a large weight that is a sum over few elements of few images, on a CPU."""
    arg, (x, w) = op.arg, op.src
    if not arg.of_weight or target is not None and (target.is_gpu or target.plain_sums) or not op.dtype.is_float:
        return False
    if not of_numbers((*op.shape, *x.shape, *w.shape)) or 0 in (*x.shape, *w.shape) or max(arg.input_dilation) > 1:
        return False
    if w.shape[0] == arg.groups or prod(static_shape(op.shape[2:])) > TERMS_PLACES_MAX:
        return False
    return prod(static_shape(w.shape[1:])) <= TERMS_MAX and prod(static_shape(op.shape)) >= TERMS_RESULTS_MIN


def of_all_images(op: Op, plain_sums: bool) -> Op:
    """Returns the gradient of a weight as one product over the elements of all images, (O, K) @ (K, C * places) by groups.

    An element of all channels is far from the next one in memory: of several images both operands are stored as rows.
    """
    (_, w), arg, groups = op.src, op.arg, op.arg.groups
    outputs, images, *pixels = w.shape
    num_pixels, own = numel(pixels), static_shape((outputs,))[0] // groups
    channels, places = op.shape[0], prod(static_shape(op.shape[2:]))
    windows = reshape(_windows(op), (channels, groups, images, places, num_pixels))
    matrix, rows = permute(windows, (1, 2, 4, 0, 3)), reshape(w, (groups, own, images, num_pixels))
    is_apart = num_pixels != 1 and images != 1
    matrix = Op(OpCode.CONTIGUOUS, op.dtype, (matrix,)) if is_apart or places > 1 else matrix
    rows = Op(OpCode.CONTIGUOUS, op.dtype, (rows,)) if is_apart else rows
    k = mul(images, num_pixels)
    matrix = reshape(matrix, (groups, k, mul(channels, places)))
    total = _multiplied(reshape(rows, (groups, own, k)), matrix, arg, plain_sums)
    return reshape(permute(reshape(total, (outputs, channels, places)), (1, 0, 2)), op.shape)


def _multiplied(rows: Op, matrix: Op, arg: ConvArg, plain_sums: bool) -> Op:
    """Returns the product of each group; one row of it has the bits that it has among others."""
    allowed = MatmulArg(tf32=True) if arg.tf32 else None
    if rows.shape[0] == 1:
        (rows, matrix) = (reshape(operand, operand.shape[1:]) for operand in (rows, matrix))
        return product(rows, matrix, allowed, plain_sums)
    if rows.shape[1] == 1 and matrix.shape[-1] != 1:
        return Op(OpCode.MATMUL, rows.dtype, (rows, matrix), allowed)
    return product(rows, matrix, allowed, plain_sums)


def _windows(op: Op) -> Op:
    """Returns the elements of x under the taps of each place: (B, C, places * taps); of one tap they are a step apart."""
    (x, w), arg = op.src, op.arg
    places, taps = static_shape(op.shape[2:]), w.shape[2:]
    if numel(taps) == 1:
        for i, (before, _) in enumerate(arg.padding):
            x = _elements(x, 2 + i, -before, arg.stride[i], places[i])
        return x
    seen = []
    for at in itertools.product(*map(range, places)):
        window = x
        for i, (before, _) in enumerate(arg.padding):
            window = _elements(window, 2 + i, at[i] * arg.stride[i] - before, arg.dilation[i], taps[i])
        seen.append(reshape(window, (*x.shape[:2], 1, numel(taps))))
    return joined(seen, 2)


def _elements(x: Op, axis: int, first: int, step: int, count: Dim) -> Op:
    """Returns `count` elements along an axis, a step apart; 0 outside of x, where its length is known."""
    reach = add(mul(subtract(count, 1), step), 1)
    beyond, start = subtract(add(reach, first), x.shape[axis]), max(0, first)
    x = pad_axis(x, axis, max(0, -first), max(0, beyond) if isinstance(beyond, int) else 0)
    return _every(shrink_axis(x, axis, start, add(reach, start)), axis, step)


# ---- gradients of a convolution's weight ----
# They take the form that fills the vectors of a CPU. Such a CONV has channels where others have images, and images where
# others have channels (autodiff/transposes.py):
#
#     x (C, B, *lengths), w (O, B, *windows)  ->  (C, O, *taps)
GUESSED_PIXELS = 64  # of images of symbolic lengths
FILLED_LANES_MIN = 0.6  # of the lanes of the vectors that outputs are computed in, one or two


def is_of_pixels(op: Op, target: Target | None) -> bool:
    """True for a weight that sees one element at a time, of fewer numbers than the images that it sees."""
    if not _is_plain(op, target) or op.src[0].shape[2:] != op.src[1].shape[2:] or set(op.arg.padding) != {(0, 0)}:
        return False
    (channels, outputs), pixels = static_shape(op.shape[:2]), numel(op.src[0].shape[2:])
    return channels * outputs <= (channels + outputs) * (pixels if isinstance(pixels, int) else GUESSED_PIXELS)


def by_images(op: Op, plain_sums: bool) -> Op:
    """Returns such a gradient as a sum of products, (C, P) @ (P, O) of each image, read in their present layout."""
    (x, w), wide = op.src, op.dtype.compute_dtype
    num_pixels = numel(x.shape[2:])
    images = permute(reshape(cast(x, wide), (*x.shape[:2], num_pixels)), (1, 0, 2))
    grads = permute(reshape(cast(w, wide), (*w.shape[:2], num_pixels)), (1, 2, 0))
    products = product(images, grads, MatmulArg(tf32=True) if op.arg.tf32 else None, plain_sums)
    return reshape(cast(reduce(products, OpCode.ADD, (0,)), op.dtype), op.shape)


def is_narrow(op: Op, target: Target | None) -> bool:
    """True for a weight whose outputs leave lanes empty that its channels fill."""
    if target is None or not _is_plain(op, target) or not of_numbers([n for s in op.src for n in s.shape]):
        return False
    if min(static_shape(_padding_of_swapped(op)[0])) < 0:
        return False
    lanes = target.sum_lanes(op.dtype)
    channels, outputs = static_shape(op.shape[:2])
    return _filled(outputs, lanes) < FILLED_LANES_MIN <= _filled(channels, lanes)


def has_many_gaps(op: Op) -> bool:
    """True for a weight whose x has more gaps than are worth a CONV for each phase; with its role swapped it has none.

    There is no CONV for each phase of images of symbolic lengths: windows are as long as they are.
    """
    arg: ConvArg = op.arg
    is_known = of_numbers([n for s in op.src for n in s.shape[2:]])
    if not arg.of_weight or prod(arg.input_dilation) <= (PHASES_MAX if is_known else 1):
        return False
    if arg.groups != 1 or {*arg.stride, *arg.dilation} != {1} or any(n == 0 for s in op.src for n in s.shape):
        return False
    padding = _padding_of_swapped(op)
    return all(isinstance(n, int) and n >= 0 for pair in padding for n in pair)


def with_roles_swapped(op: Op) -> Op:
    """Returns the sum over p of x[p + t] w[p] as a CONV of w, with reversed taps, whose outputs are channels of x."""
    (x, w), spatial = op.src, tuple(range(2, len(op.shape)))
    none = (1,) * len(spatial)
    arg = replace(op.arg, padding=_padding_of_swapped(op), dilation=op.arg.input_dilation, input_dilation=none)
    return permute(flip(Op(OpCode.CONV, op.dtype, (w, x), arg), spatial), (1, 0, *spatial))


def _padding_of_swapped(op: Op) -> tuple[tuple[Dim, Dim], ...]:
    each = zip(op.src[0].shape[2:], op.src[1].shape[2:], op.arg.padding, op.arg.input_dilation)
    more = [(subtract(add(mul(subtract(n, 1), apart), 1), window), pair) for n, window, pair, apart in each]
    return tuple([(add(rest, after), add(rest, before)) for rest, (before, after) in more])


def _is_plain(op: Op, target: Target | None) -> bool:
    """True for the gradient of a weight whose windows are contiguous, on a CPU, where sums need not be a result's own."""
    arg: ConvArg = op.arg
    if target is not None and (target.is_gpu or target.plain_sums):
        return False
    if not arg.of_weight or arg.groups != 1 or {*arg.stride, *arg.dilation, *arg.input_dilation} != {1}:
        return False
    return op.dtype.is_float and not any(n == 0 for s in op.src for n in s.shape)


def _filled(count: int, lanes: int) -> float:
    """Returns how much of their vectors this number of outputs fills."""
    width = lanes if count <= lanes else 2 * lanes
    return count / (ceildiv(count, width) * width)


# ---- few elements ----
ELEMENTS_MAX = 4  # of x: of more, patches take longer to add up than such a weight to pack ...
LARGE_WEIGHT_MIN = 1 << 20  # ... unless it has as many elements,
ELEMENTS_OF_LARGE_MAX = 16  # up to so many of x


def has_few_elements(op: Op, target: Target | None) -> bool:
    """True for a CONV of few elements with several taps of a weight that is turned around, as in a gradient by x, on a CPU.

    A product reads such a weight where it is, in its own order: columns of outputs and taps.
    """
    (x, w), arg = op.src, op.arg
    if target is not None and target.is_gpu or arg.of_weight or not op.dtype.is_float:
        return False
    if not of_numbers((*x.shape[2:], *w.shape)):
        return False
    if {*arg.stride, *arg.dilation, *arg.input_dilation} != {1} or w.shape[0] == arg.groups or 0 in (*x.shape, *w.shape):
        return False
    most = ELEMENTS_MAX if w.numel < LARGE_WEIGHT_MIN else ELEMENTS_OF_LARGE_MAX
    return prod(static_shape(x.shape[2:])) <= most and set(w.shape[2:]) != {1} and _is_turned(w)


def _is_turned(w: Op) -> bool:
    """True for a view of a weight whose elements are not in its order."""
    while w.code is OpCode.RESHAPE:
        w = w.src[0]
    return w.code in MOVEMENT


# ---- convolutions with gaps ----
# A convolution over x with gaps between its elements, such as the gradient by x of one with a stride, becomes several over
# x itself.
#
# With a steps between elements of x, position p = a q + r meets an element only under each a-th tap, t = t0 + a u: that is
# element q + u + (r + t0 - before) / a. So for each r there is a convolution of every a-th tap, and positions interleave:
#
#     x: . 0 . 1 . 2 .    w: 0 1 2    even positions see taps 1, odd ones taps 0 and 2
#
# Source: Dumoulin and Visin 2016, arXiv:1603.07285, chapter 4; the phases are those of a polyphase filter bank.
#
# Where gaps are as wide as windows, windows do not overlap: a product gives the patch that each element of x contributes,
# and patches are neighbours. So it does where phases are many; patches that overlap are then added up, part by part.
PHASES_MAX = 16
PATCH_CHANNELS_MIN = 4  # that a product adds up: of fewer, phases are as fast


def has_phases(op: Op) -> bool:
    """True for a CONV with gaps between the elements of x, and a stride and a dilation of one."""
    arg: ConvArg = op.arg
    if max(arg.input_dilation) == 1 or {*arg.stride, *arg.dilation} != {1} or not op.dtype.is_float:
        return False
    is_known = all(isinstance(n, int) and n > 0 for n in op.src[1].shape)
    if not is_known or not all(_has_phases_along(op, axis) for axis in range(len(arg.stride))):
        return False
    return not arg.of_weight or prod(arg.input_dilation) <= PHASES_MAX


def _has_phases_along(op: Op, axis: int) -> bool:
    """True where a phase has as many positions as x has elements, and a number more, and begins within x."""
    length, apart, (before, _) = op.src[0].shape[2 + axis], op.arg.input_dilation[axis], op.arg.padding[axis]
    if isinstance(length, int):
        return length > 0
    beyond = subtract(ceildiv(op.shape[2 + axis], apart), length)
    (num_taps,) = static_shape(op.src[1].shape[2 + axis : 3 + axis])
    starts = [_start(r, before, apart) for r in range(apart) if (before - r) % apart < num_taps]
    return isinstance(beyond, int) and max(starts) < bounds(length)[0]


def _start(phase: int, before: int, apart: int) -> int:
    """Returns the element of x under the first tap, of those that meet any, of a phase's position 0."""
    return (phase + (before - phase) % apart - before) // apart


def has_patches(op: Op) -> bool:
    """True for one that has phases whose windows do not overlap, or more of these than are worth a CONV each."""
    aparts, (_, channels, *taps) = op.arg.input_dilation, static_shape(op.src[1].shape)
    if op.arg.of_weight or not of_numbers(op.src[0].shape[2:]):
        return False
    if prod(aparts) > PHASES_MAX:
        return True
    return channels >= PATCH_CHANNELS_MIN and all(num <= apart for num, apart in zip(taps, aparts))


def by_patches(op: Op, plain_sums: bool) -> Op:
    """Returns a CONV with gaps as a product, (B * positions of x, C) @ (C, outputs * taps), whose patches are added up."""
    (x, w), arg = op.src, op.arg
    batch, groups, (_, channels, *taps) = x.shape[0], arg.groups, static_shape(w.shape)
    outputs, lengths = static_shape(w.shape[:1])[0] // groups, static_shape(x.shape[2:])
    pixels = permute(reshape(x, (batch, groups, channels, prod(lengths))), (1, 0, 3, 2))
    flipped = reshape(flip(w, tuple(range(2, len(w.shape)))), (groups, outputs, channels, prod(taps)))
    rows = reshape(pixels, (groups, mul(batch, prod(lengths)), channels))
    columns = reshape(permute(flipped, (0, 2, 1, 3)), (groups, channels, outputs * prod(taps)))
    patches = reshape(_multiplied(rows, columns, arg, plain_sums), (groups, batch, *lengths, outputs, *taps))
    first_tap = len(lengths) + 3
    order = (1, 0, first_tap - 1, *(at for i in range(len(taps)) for at in (2 + i, first_tap + i)))
    whole = _added_patches(permute(patches, order), arg.input_dilation)
    moved, window = [(0, 0), (0, 0)], [(0, batch), (0, groups * outputs)]
    for i, num_taps in enumerate(taps):  # the positions of the result among those that patches cover
        start, (length, there) = arg.padding[i][0] - (num_taps - 1), static_shape((op.shape[2 + i], whole.shape[2 + i]))
        moved.append((max(0, start), max(0, length - start - there)))
        window.append((max(0, -start), max(0, -start) + length))
    return shrink(pad(whole, tuple(moved)), tuple(window))


def _added_patches(patches: Op, aparts: Sequence[int]) -> Op:
    """Returns patches, each `aparts` behind the one before, added up where they overlap.

    (B, groups, outputs, *(number of patches, taps along each axis))  ->  (B, groups * outputs, *positions)

    Patches are cut into parts as long as they are apart: parts of one number are neighbours, and do not overlap.
    """
    (batch, groups, outputs), lengths, taps = patches.shape[:3], static_shape(patches.shape[3::2]), patches.shape[4::2]
    counts = [ceildiv(num, apart) for num, apart in zip(static_shape(taps), aparts)]
    more = [count * apart - num for count, num, apart in zip(counts, static_shape(taps), aparts)]
    patches = pad(patches, ((0, 0),) * 3 + tuple(pair for n in more for pair in ((0, 0), (0, n))))
    parts = []
    for at in itertools.product(*map(range, counts)):
        kept, beside, shape = [(0, n) for n in patches.shape[:3]], [(0, 0), (0, 0)], [batch, mul(groups, outputs)]
        for i, apart in enumerate(aparts):
            kept += [(0, lengths[i]), (at[i] * apart, (at[i] + 1) * apart)]
            beside.append((at[i] * apart, (counts[i] - 1 - at[i]) * apart))
            shape.append(lengths[i] * apart)
        parts.append(pad(reshape(shrink(patches, tuple(kept)), tuple(shape)), tuple(beside)))
    return sum_of(parts)


def by_phases(op: Op) -> Op:
    """Returns a CONV as one for each phase of its positions, joined: along the last axis first, and stored as such rows.

    To interleave elements of two phases takes registers alone, to choose among phases of several axes a condition for each.
    """
    out, aparts = op.shape[2:], op.arg.input_dilation
    counts = [ceildiv(length, apart) for length, apart in zip(out, aparts)]  # positions of each phase, perhaps one too many

    def joined_from(at: tuple[int, ...]) -> Op:
        if len(at) == len(aparts):
            return _phase(op, at, counts)
        apart = aparts[len(at)]
        whole = _interleaved([joined_from((*at, r)) for r in range(apart)], 2 + len(at))
        is_row = 1 < apart < prod(aparts) and len(at) == len(aparts) - 1
        return Op(OpCode.CONTIGUOUS, op.dtype, (whole,)) if is_row else whole

    whole = joined_from(())
    return shrink(whole, ((0, whole.shape[0]), (0, whole.shape[1]), *((0, length) for length in out)))


def _interleaved(parts: Sequence[Op], axis: int) -> Op:
    """Returns Ops of one shape whose elements take turns along an axis."""
    shape, count = parts[0].shape, len(parts)
    split = (*shape[: axis + 1], 1, *shape[axis + 1 :])
    turns = [pad_axis(reshape(part, split), axis + 1, r, count - 1 - r) for r, part in enumerate(parts)]
    return reshape(sum_of(turns), (*shape[:axis], mul(shape[axis], count), *shape[axis + 1 :]))


def _phase(op: Op, at: tuple[int, ...], counts: list[Dim]) -> Op:
    """Returns the values at positions a q + r, q < count, for one r of each axis."""
    (x, w), arg = op.src, op.arg
    padding, taps, kept = [], [(0, n) for n in static_shape(w.shape[:2])], [(0, n) for n in x.shape[:2]]
    lengths = x.shape[2:]
    for i, (r, apart) in enumerate(zip(at, arg.input_dilation)):
        before, num_taps = arg.padding[i][0], static_shape(w.shape)[2 + i]
        first = (before - r) % apart
        start = _start(r, before, apart)
        stop = add(counts[i], start + (num_taps - first - 1) // apart)  # behind that under the last tap of the last
        beyond = subtract(stop, lengths[i])
        assert isinstance(beyond, int)
        if first >= num_taps or less(lengths[i], start + 1) is True or less(0, stop) is False:  # nothing is met
            return filled(0.0, op.dtype, (*op.shape[:2], *counts))
        taps.append((first, num_taps))
        kept.append((max(0, start), stop if beyond < 0 else lengths[i]))
        padding.append((max(0, -start), max(0, beyond)))
    steps = tuple(arg.input_dilation)
    plain = replace(arg, padding=tuple(padding), input_dilation=(1,) * len(steps))
    w = shrink(w, tuple(taps))
    for i, step in enumerate(steps):
        w = _every(w, 2 + i, step)
    return Op(OpCode.CONV, op.dtype, (shrink(x, tuple(kept)), w), plain)


def _every(x: Op, axis: int, step: int) -> Op:
    """Returns x with each `step`-th element along an axis alone."""
    if step == 1:
        return x
    count = ceildiv(x.shape[axis], step)
    x = pad_axis(x, axis, 0, subtract(mul(count, step), x.shape[axis]))
    groups = reshape(x, (*x.shape[:axis], count, step, *x.shape[axis + 1 :]))
    return reshape(shrink_axis(groups, axis + 1, 0, 1), (*x.shape[:axis], count, *x.shape[axis + 1 :]))


# ---- convolutions with few outputs a group ----
LONG_SUM_TERMS_MIN = 1024  # terms of a sum that a convolution's blocks are too short for
WINDOW_PLACES_MAX = 64  # of a window: few


def has_few_long_sums(op: Op) -> bool:
    """True for a CONV that is a product with a vector in each group: the gradient of a weight by channels of their own."""
    w, arg = op.src[1], op.arg
    if w.shape[0] != arg.groups or not op.dtype.is_float or set(arg.input_dilation) != {1}:
        return False
    return greatest_numel(w.shape[1:]) >= LONG_SUM_TERMS_MIN and greatest_numel(op.shape[2:]) <= WINDOW_PLACES_MAX


def sums_of_windows(op: Op) -> Op:
    """Returns a CONV with one output a group as a sum of products; outside of x a gather reads 0."""
    (x, w), arg, axes, wide = op.src, op.arg, len(op.shape) - 2, op.dtype.compute_dtype
    batch, groups = x.shape[0], arg.groups
    windows = reshape(x, (batch, groups, w.shape[1], *x.shape[2:]))
    for i in reversed(range(axes)):
        shape = (op.shape[2 + i], w.shape[2 + i])
        starts, steps = (repeat_axes(iota(n), (1 - axis,), shape) for axis, n in enumerate(shape))
        windows = gather(windows, starts * arg.stride[i] + steps * arg.dilation[i] - arg.padding[i][0], 3 + i, 0)
    places, taps = tuple(range(3, 3 + 2 * axes, 2)), tuple(range(4, 4 + 2 * axes, 2))
    windows = permute(windows, (0, 1, *places, 2, *taps))  # (B, G, *places, C, *taps)
    weight = reshape(w, (1, groups, *(1 for _ in places), *w.shape[1:]))
    terms = cast(windows, wide) * expand(cast(weight, wide), windows.shape)
    return cast(reduce(terms, OpCode.ADD, tuple(range(2 + axes, 3 + 2 * axes))), op.dtype)


OUTPUTS_MAX = 2  # of a group: of more, a vector of them shares what it reads
PLANE_ELEMENTS_MIN = 16  # of a gradient for each channel: fewer are not worth a plane of x ...
PHASE_ELEMENTS_MIN = 32  # ... and fewer not one for each phase


def has_planes(op: Op, target: Target) -> bool:
    """True for the gradient of a weight with few outputs a group, of images of known lengths, on a CPU."""
    (x, w), arg = op.src, op.arg
    if target.is_gpu or target.plain_sums or not arg.of_weight or not op.dtype.is_float:
        return False
    if not of_numbers((*op.shape[2:], *x.shape[2:], *w.shape[2:])) or 0 in (*x.shape, *w.shape):
        return False
    if max(arg.input_dilation) > 1 or min(map(min, arg.padding)) < 0:
        return False
    num_places, num_elements = (prod(static_shape(shape[2:])) for shape in (op.shape, w.shape))
    if num_elements < (PLANE_ELEMENTS_MIN if max(arg.dilation) == 1 else PHASE_ELEMENTS_MIN):
        return False
    return static_shape(w.shape[:1])[0] <= OUTPUTS_MAX * arg.groups and num_places <= WINDOW_PLACES_MAX


def sums_of_planes(op: Op, lanes: int) -> Op:
    """Returns such a gradient as sums of products of two long rows: of planes of x, padding included, and of w as wide.

    Positions are counted through a plane, so that their elements are neighbours under each tap. Where taps are apart, x has
    a plane for each phase of that, as in codegen/convolution_cpu.py. Behind its own elements w has zeros.
    """
    (x, w), arg, wide = op.src, op.arg, op.dtype.compute_dtype
    lengths, places, taps = static_shape(x.shape[2:]), static_shape(op.shape[2:]), static_shape(w.shape[2:])
    each = list(zip(lengths, places, taps, arg.stride, arg.dilation, arg.padding))
    farthest = [(place - 1) * step // apart for _, place, _, step, apart, _ in each]  # first taps in a plane
    extents = [tap + far for tap, far in zip(taps, farthest)]
    pitches = [prod(extents[i + 1 :]) for i in range(len(each))]
    row = ceildiv(1 + sum((tap - 1) * pitch for tap, pitch in zip(taps, pitches)), lanes) * lanes
    extents[0] = ceildiv(row + sum(far * pitch for far, pitch in zip(farthest, pitches)), pitches[0])
    batch, channels, groups, outputs = x.shape[0], w.shape[1], arg.groups, static_shape(w.shape[:1])[0] // arg.groups

    margins = [(before, n * apart - before - length) for n, (length, *_, apart, (before, _)) in zip(extents, each)]
    kept = [(0, length + min(0, after)) for length, (_, after) in zip(lengths, margins)]
    x = reshape(cast(x, wide), (batch, groups, channels, *lengths))
    x = shrink(x, (*((0, n) for n in x.shape[:3]), *kept))
    x = pad(x, (*[(0, 0)] * 3, *((before, max(0, after)) for before, after in margins)))
    if max(arg.dilation) > 1:
        x = Op(OpCode.CONTIGUOUS, wide, (x,))  # every second element of what has a condition is found one by one
    x = reshape(x, (batch, groups, channels, *(n for pair in zip(extents, arg.dilation) for n in pair)))
    x = permute(x, (0, 1, 2, *range(4, len(x.shape), 2), *range(3, len(x.shape), 2)))
    planes = reshape(Op(OpCode.CONTIGUOUS, wide, (x,)), (batch, groups, channels, prod(arg.dilation) * prod(extents)))

    whole = (ceildiv(row, pitches[0]), *extents[1:])
    w = pad(cast(w, wide), ((0, 0), (0, 0), *((0, n - tap) for n, tap in zip(whole, taps))))
    w = reshape(Op(OpCode.CONTIGUOUS, wide, (w,)), (1, groups, outputs, *[1] * len(places), channels, prod(whole)))
    w = shrink_axis(w, -1, 0, row)

    first = positions((*places, row), len(places))
    for i, (step, apart, pitch) in enumerate(zip(arg.stride, arg.dilation, pitches)):
        at = positions((*places, row), i) * step
        phase = mod(at, apart) * (prod(arg.dilation[i + 1 :]) * prod(extents))
        first = first + phase + floordiv(at, apart) * pitch
    windows = permute(gather(planes, first, 3, 0), (0, 1, *range(3, 3 + len(places)), 2, 3 + len(places)))
    shape = (batch, groups, outputs, *places, channels, row)
    terms = expand(reshape(windows, (*shape[:2], 1, *shape[3:])), shape) * expand(w, shape)
    return cast(reshape(reduce(terms, OpCode.ADD, (len(shape) - 2, len(shape) - 1)), op.shape), op.dtype)
