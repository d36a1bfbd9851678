"""Gives matrix products, convolutions, attention and long sums the form that suits their kernels, shapes and readers.

In:    a simplified graph
Out:   `compose_attention`: MATMULs and a softmax where there is no kernel of an attention;
       `contract`: products with a vector as sums along rows, as are convolutions like them; transposed products as
       products; long sums as sums of sums; few first places of a long row, on a GPU, as those of blocks

    (..., M, K) @ (..., K, 1)  ->  sum over K of a[m, k] * b[k]       read where it is, and fused like any other sum
    (a @ b).T                  ->  b.T @ a.T                          the same sums, stored as they are asked for
    several products or convolutions of one costly value  ->  the value is stored, once
    conv(x, w), one output a group, few long sums  ->  sums of windows of x times w, as vectors along the sum
    conv(x with gaps, w)                           ->  a convolution for each phase of its positions
    sum over C of where(i[n] == c, x[n, c], 0), x in memory  ->  x[n, i[n]]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import isqrt, nan, prod

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.attention import composed, parts_of
from picograd.ir.bodies import map_bodies
from picograd.ir.build import (
    cast,
    expand,
    flip,
    gather,
    iota,
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
    where,
)
from picograd.ir.op import Dim, Op, const_value, filled, greatest_numel, toposort
from picograd.ir.opcode import ATTENTIONS, ELEMENTWISE, MOVEMENT, TRANSCENDENTAL, OpCode
from picograd.ir.origin import copy_lines
from picograd.ir.shape import ConvArg, MatmulArg, numel, of_numbers, takes_tf32
from picograd.ir.symbolic import Coords, add, affine, bounds, ceildiv, floordiv, less, move, mul, placeholder, subtract
from picograd.record import replace

# ---- the best form of each Op ----
PRODUCTS = ATTENTIONS | {OpCode.MATMUL, OpCode.CONV, OpCode.SORT}


def contract(roots: Sequence[Op], target: Target | None = None) -> list[Op]:
    """Returns the graphs with every product in its best form.

    Args:
      target:  whose kernels the products become; None: any CPU's
    """
    plain_sums = target is not None and target.plain_sums
    order = toposort(roots)
    readers: dict[Op, int] = dict.fromkeys(roots, 1)
    for op in order:
        for s in op.src:
            readers[s] = readers.get(s, 0) + 1
    became: dict[Op, Op] = {}
    shared = shared_by_products(order) | shared_by_convolutions(order) | joined_for_products(order, target)
    by_rows = averages_by_rows(roots, order, target)
    for op in order:
        src = tuple([became[s] for s in op.src])
        if is_transposed_product(op) and readers[op.src[0]] == 1:
            a, b = (became[s] for s in op.src[0].src)
            new = product(swap_last(b), swap_last(a), op.src[0].arg, plain_sums)
        elif op.code is OpCode.MATMUL:
            new = product(src[0], src[1], op.arg, plain_sums)
        elif op.code is OpCode.CONV:
            new = convolution(op, src[0], src[1], target)
        elif op.code in (OpCode.ATTENTION, OpCode.ATTENTION_GRAD):
            new = attention(op, src, target)
        elif op.code is OpCode.OUTPUT and src[0].dtype is not op.src[0].dtype:
            new = cast(Op(op.code, src[0].dtype, src, op.arg), op.dtype)
        elif op.code is OpCode.PERMUTE:
            new = permute(src[0], op.arg)
        elif has_blocks(op, target):
            new = first_of_blocks(op, src[0])
        elif is_choice_of_memory(op, readers):
            new = chosen(op, *(became[s] for s in (op.src[0].src[1], op.src[0].src[0].src[0].src[0])))
        elif is_long(op):
            new = in_pieces(op, src[0])
        else:
            new = op.replace(src)
        if op in by_rows:
            new = permute(Op(OpCode.CONTIGUOUS, op.dtype, (permute(new, ROWS_FIRST),)), ROWS_FIRST)
        became[op] = Op(OpCode.CONTIGUOUS, op.dtype, (new,)) if op in shared else new
        copy_lines(op, became[op], replace=True)
    return [became[root] for root in roots]


CHOSEN_ROW_MIN = 64  # elements of a row that is not read for one of them


def is_choice_of_memory(op: Op, readers: Mapping[Op, int]) -> bool:
    """True for sums along rows in memory of the one element whose number is the row's, where nothing else reads the rows.

    A row that is computed, or that something else walks, has the element at no further cost.
    """
    if op.code is not OpCode.REDUCE or op.arg != (OpCode.ADD, (len(op.shape),)) or op.src[0].code is not OpCode.WHERE:
        return False
    is_equal, x, other = op.src[0].src
    length = x.shape[-1]
    if is_equal.code is not OpCode.CMPEQ or const_value(other) != 0:
        return False
    if not isinstance(length, int) or length < CHOSEN_ROW_MIN:
        return False
    number, places = is_equal.src
    if places is not positions(x.shape, len(op.shape), places.dtype):
        return False
    while x.code in MOVEMENT and readers[x] == 1:
        x = x.src[0]
    in_memory = x.code in (OpCode.PARAM, OpCode.BUFFER) or x.realized is not None
    return in_memory and readers[x] == 1 and number.code is OpCode.EXPAND and number.src[0].shape == (*op.shape, 1)


def chosen(op: Op, x: Op, index: Op) -> Op:
    """Returns the element of each row that has the number of the row's index."""
    rank = len(op.shape)
    return gather(x, cast(reshape(index, op.shape), dtypes.int64), rank, rank)


def convolution(op: Op, x: Op, w: Op, target: Target | None) -> Op:
    """Returns a CONV of other sources in the form that fills vectors and reads no gap."""
    plain_sums = target is not None and target.plain_sums
    if is_of_pixels(op, target):
        return by_images(op, x, w, plain_sums)
    if is_narrow(op, target) or has_many_gaps(op):
        return with_roles_swapped(op, x, w)
    if has_few_long_sums(op):
        return sums_of_windows(op, x, w)
    if has_phases(op):
        return by_patches(op, x, w, plain_sums) if has_patches(op) else by_phases(op, x, w)
    return op.replace((x, w))


def attention(op: Op, sources: tuple[Op, ...], target: Target | None) -> Op:
    """Returns an attention of other sources, in float32 where that saves work.

    Narrow operands are then widened once, and not at each reading. They stay as they are where matrix instructions take
    them so, and where few queries read them only once.
    """
    if target is not None and (target.multiplies(op.dtype, takes_tf32(op)) or parts_of(op, target)):
        return op.replace(sources)
    wide = op.dtype.compute_dtype
    return Op(op.code, wide, tuple([cast(s, wide) if s.dtype is op.dtype else s for s in sources]), op.arg)


def _sum(terms: Iterable[Op]) -> Op:
    """Returns Ops of one shape added up, from the first to the last."""
    first, *others = terms
    return sum(others, first)


# ---- products ----
def is_transposed_product(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes of a MATMUL."""
    return is_transposed(op) and op.src[0].code is OpCode.MATMUL


def product(a: Op, b: Op, arg: MatmulArg | None = None, plain_sums: bool = False) -> Op:
    """Returns a @ b; with one column multiplied and added up, narrow floats in float32 as MATMUL does.

    So are batches of products with one row, and, unless sums are plain, one with a matrix of integers of one byte: to add
    up along its rows is twice as fast as to transpose it. Any other has a kernel of its own, which adds in the order of
    products of many rows.
    """
    *batch, m, k = a.shape
    n = b.shape[-1]
    is_row = m == 1 and not batch
    if is_row and n != 1 and not is_of_bytes(b):
        return Op(OpCode.MATMUL, a.dtype, (a, b), arg)
    if (m != 1 or is_row and plain_sums) and n != 1 and is_of_bytes(b):
        wide = a.dtype.compute_dtype
        return cast(product_of_parts(cast(a, wide), cast(swap_last(b), wide)), a.dtype)
    if m != 1 and n != 1:
        return Op(OpCode.MATMUL, a.dtype, (a, b), arg)
    wide = a.dtype.compute_dtype
    matrix, vector = (a, swap_last(b)) if n == 1 else (swap_last(b), a)  # (..., M or N, K), (..., 1, K)
    total = cast(sum_of_products(cast(matrix, wide), cast(vector, wide)), a.dtype)
    return reshape(total, (*batch, m, n))


def is_transposed(op: Op) -> bool:
    """True for a PERMUTE that swaps the last two axes."""
    ndim = len(op.shape)
    return op.code is OpCode.PERMUTE and bool(op.arg == (*range(ndim - 2), ndim - 1, ndim - 2))


# ---- attention without a kernel ----
def compose_attention(roots: Sequence[Op], has_kernel: Callable[[Op], bool] = lambda op: False) -> list[Op]:
    """Replaces attentions and their gradients, also in the bodies of CALLs and LOOPs.

    Args:
      has_kernel:  whether the device has a kernel of one; none has by default

    After:   no ATTENTION and no ATTENTION_GRAD is left that has no kernel; scores (B, G, R T, S) are values like any other.
    Cost:    one walk where there are none.

    Example: OUTPUT(ATTENTION(q, k, v), 0)  ->  MATMUL(softmax(MATMUL(q, PERMUTE(k)) * scale), v)
    """
    return _compose(map_bodies(roots, partial(_compose, has_kernel=has_kernel)), has_kernel)


def _compose(roots: Sequence[Op], has_kernel: Callable[[Op], bool]) -> list[Op]:
    """Returns the graph with the composition in the place of each attention that has no kernel."""
    order = toposort(roots)
    chosen = {op for op in order if op.code in ATTENTIONS and not has_kernel(op)}
    if not chosen:
        return list(roots)
    became: dict[Op, Op] = {}
    results: dict[Op, list[Op]] = {}
    for op in order:
        if op.code is OpCode.OUTPUT and op.src[0] in results:
            new = results[op.src[0]][op.arg]
        else:
            new = op.replace(tuple(became[s] for s in op.src))
        if op in chosen:
            results[op] = composed(new)
            new = results[op][0]
        became[op] = new
        copy_lines(op, new)
    return [became[root] for root in roots]


# ---- gradients of a convolution's weight ----
# They take the form that fills the vectors of a CPU. Such a CONV has channels where others have images, and images where
# others have channels (autodiff/transposes.py):
#
#     x (C, B, *lengths), w (O, B, *windows)  ->  (C, O, *taps)
WELL_FILLED = 0.6  # of the lanes of the vectors that outputs are computed in, one or two


def is_of_pixels(op: Op, target: Target | None) -> bool:
    """True for a weight that sees one element at a time, of fewer numbers than the images that it sees."""
    if not _is_plain(op, target) or op.src[0].shape[2:] != op.src[1].shape[2:] or set(op.arg.padding) != {(0, 0)}:
        return False
    channels, outputs = static_shape(op.shape[:2])
    return channels * outputs <= (channels + outputs) * prod(static_shape(op.src[0].shape[2:]))


def by_images(op: Op, x: Op, w: Op, plain_sums: bool) -> Op:
    """Returns such a gradient as a sum of products, (C, P) @ (P, O) of each image, read in their present layout."""
    wide, num_pixels = op.dtype.compute_dtype, prod(static_shape(x.shape[2:]))
    images = permute(reshape(cast(x, wide), (*x.shape[:2], num_pixels)), (1, 0, 2))
    grads = permute(reshape(cast(w, wide), (*w.shape[:2], num_pixels)), (1, 2, 0))
    products = product(images, grads, MatmulArg(tf32=True) if op.arg.tf32 else None, plain_sums)
    return reshape(cast(reduce(products, OpCode.ADD, (0,)), op.dtype), op.shape)


def is_narrow(op: Op, target: Target | None) -> bool:
    """True for a weight whose outputs leave lanes empty that its channels fill."""
    if target is None or not _is_plain(op, target) or min(static_shape(_padding_of_swapped(op)[0])) < 0:
        return False
    lanes = target.sum_lanes(op.dtype)
    channels, outputs = static_shape(op.shape[:2])
    return _filled(outputs, lanes) < WELL_FILLED <= _filled(channels, lanes)


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


def with_roles_swapped(op: Op, x: Op, w: Op) -> Op:
    """Returns the sum over p of x[p + t] w[p] as a CONV of w, with reversed taps, whose outputs are channels of x."""
    spatial = tuple(range(2, len(op.shape)))
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
    return op.dtype.is_float and all(isinstance(n, int) and n > 0 for s in op.src for n in s.shape)


def _filled(count: int, lanes: int) -> float:
    """Returns how much of their vectors this number of outputs fills."""
    width = lanes if count <= lanes else 2 * lanes
    return count / (ceildiv(count, width) * width)


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
    return isinstance(beyond, int) and bounds(length)[0] > (2 * apart - before) // apart


def has_patches(op: Op) -> bool:
    """True for one that has phases whose windows do not overlap, or more of these than are worth a CONV each."""
    aparts, (_, channels, *taps) = op.arg.input_dilation, static_shape(op.src[1].shape)
    if op.arg.of_weight or not of_numbers(op.src[0].shape[2:]):
        return False
    if prod(aparts) > PHASES_MAX:
        return True
    return channels >= PATCH_CHANNELS_MIN and all(num <= apart for num, apart in zip(taps, aparts))


def by_patches(op: Op, x: Op, w: Op, plain_sums: bool) -> Op:
    """Returns a CONV with gaps as a product, (B * positions of x, C) @ (C, outputs * taps), whose patches are added up."""
    arg: ConvArg = op.arg
    batch, groups, (_, channels, *taps) = x.shape[0], arg.groups, static_shape(w.shape)
    outputs, lengths = static_shape(w.shape[:1])[0] // groups, static_shape(x.shape[2:])
    pixels = permute(reshape(x, (batch, groups, channels, prod(lengths))), (1, 0, 3, 2))
    flipped = reshape(flip(w, tuple(range(2, len(w.shape)))), (groups, outputs, channels, prod(taps)))
    rows = reshape(pixels, (groups, mul(batch, prod(lengths)), channels))
    columns = reshape(permute(flipped, (0, 2, 1, 3)), (groups, channels, outputs * prod(taps)))
    patches = product(rows, columns, MatmulArg(tf32=True) if arg.tf32 else None, plain_sums)
    patches = reshape(patches, (groups, batch, *lengths, outputs, *taps))
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
    return _sum(parts)


def by_phases(op: Op, x: Op, w: Op) -> Op:
    """Returns a CONV as one for each phase of its positions, joined."""
    arg, out = op.arg, op.shape[2:]
    aparts = arg.input_dilation
    counts = [ceildiv(length, apart) for length, apart in zip(out, aparts)]  # positions of each phase, perhaps one too many
    parts = []
    for at in itertools.product(*map(range, aparts)):
        part = _phase(op, x, w, at, counts)
        part = reshape(part, (*part.shape[:2], *(n for count in counts for n in (count, 1))))
        beside = [(0, 0), (0, 0)]
        for r, apart in zip(at, aparts):
            beside += [(0, 0), (r, apart - 1 - r)]
        parts.append(pad(part, tuple(beside)))
    whole = _sum(parts)
    whole = reshape(whole, (*whole.shape[:2], *(mul(count, apart) for count, apart in zip(counts, aparts))))
    return shrink(whole, ((0, whole.shape[0]), (0, whole.shape[1]), *((0, length) for length in out)))


def _phase(op: Op, x: Op, w: Op, at: tuple[int, ...], counts: list[Dim]) -> Op:
    """Returns the values at positions a q + r, q < count, for one r of each axis."""
    arg: ConvArg = op.arg
    padding, taps, kept = [], [(0, n) for n in static_shape(w.shape[:2])], [(0, n) for n in x.shape[:2]]
    lengths = x.shape[2:]
    for i, (r, apart) in enumerate(zip(at, arg.input_dilation)):
        before, num_taps = arg.padding[i][0], static_shape(w.shape)[2 + i]
        first = (before - r) % apart
        start = (r + first - before) // apart  # the element under the first tap of position 0
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
    return Op(OpCode.CONV, op.dtype, (shrink(x, tuple(kept)), _every(shrink(w, tuple(taps)), steps)), plain)


def _every(w: Op, steps: tuple[int, ...]) -> Op:
    """Returns w (O, C, *taps) with each `step`-th tap alone."""
    for i, step in enumerate(steps):
        axis, length = 2 + i, static_shape(w.shape)[2 + i]
        count = ceildiv(length, step)
        w = pad_axis(w, axis, 0, count * step - length)
        groups = reshape(w, (*w.shape[:axis], count, step, *w.shape[axis + 1 :]))
        w = reshape(shrink_axis(groups, axis + 1, 0, 1), (*w.shape[:axis], count, *w.shape[axis + 1 :]))
    return w


# ---- long sums ----
# Takes a reduction of many terms in two steps: pieces, then the results of these.
#
# A row is one thread's, so a sum of all would be one thread's too, and each of its 64 partial sums of 16 million numbers
# would add 262,144 of them one after the other: a float32 loses four of its seven digits that way.
#
#     sum of (4096, 4096)  ->  (512, 8, 4096), its axes 1 and 2 added up  ->  (512,), added up
PIECED_RESULTS_MAX = 8
PIECED_TERMS_MIN = 1 << 17
PIECE_TERMS = 1 << 15
PIECES_MIN = 4
TRIED_MAX = 1 << 20  # enough for all lengths up to 2 ** 40


def is_long(op: Op) -> bool:
    """True for a REDUCE of many terms, whose number is known.

    Where axis 0 is kept, it may be a batch: how a row is added up must not depend on how many there are. Where it is
    reduced, only few results are cut: of many, as of the columns of a matrix, each thread has its own.
    """
    if op.code is not OpCode.REDUCE:
        return False
    x, results = op.src[0], numel(op.shape)
    terms = numel(x.shape[axis] for axis in op.arg[1])
    if not isinstance(terms, int) or terms < PIECED_TERMS_MIN or results == 0:
        return False
    if 0 in op.arg[1] and not (isinstance(results, int) and results <= PIECED_RESULTS_MAX):
        return False
    return prod(_pieces(op)) >= PIECES_MIN


def in_pieces(op: Op, x: Op) -> Op:
    """Returns a long REDUCE of `x` in pieces; a piece is a part of the outermost axes, so that it is walked in order."""
    code, axes = op.arg
    pieces = dict(zip(sorted(axes), _pieces(op)))
    split: list[Dim] = []  # the shape of x with each axis that is cut as two
    inner: list[int] = []  # its axes that are reduced first
    outer: list[int] = []  # and those of the rest then
    for axis, dim in enumerate(x.shape):
        piece = pieces.get(axis, 1)
        if piece > 1:
            outer.append(len(split) - len(inner))
            split.append(piece)
            dim = floordiv(dim, piece)
        if axis in axes:
            inner.append(len(split))
        split.append(dim)
    wide = cast(x, x.dtype.compute_dtype)
    return cast(reduce(reduce(reshape(wide, tuple(split)), code, tuple(inner)), code, tuple(outer)), op.dtype)


def _pieces(op: Op) -> tuple[int, ...]:
    """Returns into how many parts each reduced axis is cut, the outermost first; 1 where it is not."""
    x = op.src[0]
    dims = [dim for axis, dim in enumerate(x.shape) if axis in op.arg[1] and isinstance(dim, int)]
    wanted = prod(dims) // PIECE_TERMS
    found = []
    for dim in dims:
        largest = _largest_divisor(dim, min(dim, wanted))
        found.append(largest)
        wanted //= largest
        if largest < dim:
            wanted = 1  # the inside of a part is not cut
    return tuple(found)


def _largest_divisor(dim: int, most: int) -> int:
    """Returns the largest divisor of `dim` up to `most`, or 1 where that is not found among TRIED_MAX numbers.

    Divisors come in pairs: those above the root are found by their partners below it.
    """
    if most < 1:
        return 1
    root, least_partner = isqrt(dim), ceildiv(dim, most)
    for partner in range(least_partner, min(root, least_partner + TRIED_MAX) + 1):
        if dim % partner == 0:
            return dim // partner
    start = min(most, root)
    return next((n for n in range(start, max(start - TRIED_MAX, 1), -1) if dim % n == 0), 1)


# ---- matrices of small integers ----
# Adds up products with a matrix of small integers in the blocks that it was packed in, not element by element.
#
# A weight of four bits has two elements in a byte, neighbours or half a row apart, and a scale for each group of, say,
# 128. Its element at k reads bytes at k // 2, scales at k // 128 and chooses by k % 2: no vector along K reads that in
# the order of memory. So K is taken apart where the matrix takes it apart, and the short axes, which choose, are
# written out.
#
#     sum over k < 4096 of w[k] * x[k]  ->  sum over g < 32, i < 64 of w[g, i, 0] * x[g, i, 0] + w[g, i, 1] * x[g, i, 1]
BYTE_ELEMENTS_MAX = 4  # elements
TERMS_MAX = 16  # that short axes are written out as


def is_of_bytes(operand: Op) -> bool:
    """True for a value computed from integers of one byte, element by element: a weight that is dequantised."""
    order = toposort([operand], sources=lambda op: op.src if _is_chosen(op) else of_elements(op))
    return any(op.dtype.itemsize == 1 and not op.dtype.is_float and op.dtype is not dtypes.bool_ for op in order)


def sum_of_products(matrix: Op, vector: Op) -> Op:
    """Returns the sum over the last axis of matrix (..., N, K) times vector (..., 1, K): (..., N)."""
    parts = _parts(matrix, vector, of_groups=True)
    total = _sum(part * expand(of_vector, part.shape) for part, of_vector in parts)
    front = len(matrix.shape) - 1
    return reduce(total, OpCode.ADD, tuple(range(front, len(total.shape))))


def product_of_parts(rows: Op, matrix: Op) -> Op:
    """Returns rows (..., M, K) times the transposed matrix (..., N, K): one product for each element of a byte."""
    parts = _parts(matrix, rows, of_groups=False)
    return _sum(_product(_in_one(of_rows, rows), _in_one(part, matrix)) for part, of_rows in parts)


def _product(rows: Op, matrix: Op) -> Op:
    return Op(OpCode.MATMUL, rows.dtype, (rows, swap_last(matrix)))


def _in_one(part: Op, whole: Op) -> Op:
    """Returns a part with its axes of K as one."""
    front = len(whole.shape) - 1
    return reshape(part, (*part.shape[:front], numel(part.shape[front:])))


def _parts(matrix: Op, rows: Op, of_groups: bool) -> list[tuple[Op, Op]]:
    """Returns parts of matrix (..., N, K) and rows (..., M, K) whose products are summands of theirs: (..., N or M, *K).

    One for each place along the short axes of K; all of it where it is not taken apart.

    Args:
      of_groups: K is taken apart into groups too, which share a scale
    """
    extents = _extents(matrix, of_groups) if is_of_bytes(matrix) else ()
    if len(extents) < 2:
        return [(matrix, rows)]
    front = len(matrix.shape) - 1
    short = [axis for axis, extent in enumerate(extents) if extent <= BYTE_ELEMENTS_MAX]
    long = [axis for axis, extent in enumerate(extents) if extent > BYTE_ELEMENTS_MAX]
    order = (*range(front), *(front + axis for axis in (*short, *long)))
    matrix, rows = (permute(reshape(op, (*op.shape[:-1], *extents)), order) for op in (matrix, rows))
    if short and short[-1] > long[0]:
        rows = Op(OpCode.CONTIGUOUS, rows.dtype, (rows,))  # its elements are as far apart as those of the matrix
    places = itertools.product(*(range(extents[axis]) for axis in short))
    return [(_at(matrix, front, place), _at(rows, front, place)) for place in places]


def _at(op: Op, front: int, place: tuple[int, ...]) -> Op:
    """Returns the elements at one place of the axes after the first `front`."""
    rest = op.shape[front + len(place) :]
    chosen = tuple([(i, i + 1) for i in place])
    bounds = (*((0, dim) for dim in op.shape[:front]), *chosen, *((0, dim) for dim in rest))
    return reshape(shrink(op, bounds), (*op.shape[:front], *rest))


def _extents(matrix: Op, of_groups: bool) -> tuple[int, ...]:
    """Returns the lengths of the axes that K consists of, the outermost first, one of them long; () where K stays whole."""
    depth = matrix.shape[-1]
    if not isinstance(depth, int):
        return ()
    lengths = [1]
    for length in sorted(length for length, is_group in set(_blocks(matrix)) if of_groups or not is_group):
        if lengths[-1] < length < depth and length % lengths[-1] == 0 and depth % length == 0:
            lengths.append(length)
    extents = tuple([outer // inner for inner, outer in zip(lengths, [*lengths[1:], depth])])[::-1]
    written_out = prod(extent for extent in extents if extent <= BYTE_ELEMENTS_MAX)
    return extents if max(extents) > BYTE_ELEMENTS_MAX and written_out <= TERMS_MAX else ()


def _blocks(matrix: Op) -> Iterator[tuple[int, bool]]:
    """Yields lengths of blocks of K that its elements are computed from; `_extents` leaves out those that do not divide K.

    And whether they are groups: places differ from one to the next, but nothing is chosen.
    """
    axis = len(matrix.shape) - 1
    k = placeholder(axis, matrix.shape[axis])
    coords: Coords = (*[0] * axis, k)
    seen, stack = {(matrix, coords)}, [(matrix, coords)]
    while stack:
        op, coords = stack.pop()
        sources: list[tuple[Op, Coords]] = []
        if op.code in ELEMENTWISE or op.code is OpCode.CONTIGUOUS or _is_chosen(op):
            sources = [(s, coords) for s in op.src if s.shape == op.shape]
        elif op.code in MOVEMENT:
            moved, _ = move(op, coords)
            sources = [(op.src[0], moved)]
            if op.code is OpCode.PAD:
                yield from ((length, False) for length in _bounds_of_parts(op, coords, k))
            else:
                yield from ((length, length > BYTE_ELEMENTS_MAX) for length in _divisors(moved, k))
        for source in sources:
            if source not in seen:
                seen.add(source)
                stack.append(source)


def _divisors(coords: Coords, k: Op) -> Iterator[int]:
    """Yields b for each k // b, k % b, and (k // a) % (b / a) in coordinates."""
    for op in toposort([coord for coord in coords if isinstance(coord, Op)]):
        if op.code in (OpCode.IDIV, OpCode.MOD) and op.src[1].code is OpCode.CONST:
            yield _unit(op.src[0], k) * int(op.src[1].arg)


def _bounds_of_parts(pad: Op, coords: Coords, k: Op) -> Iterator[int]:
    """Yields where, of k, a PAD begins and ends what it has around zeros, and ends: parts that are joined meet there."""
    for coord, dim, (before, after) in zip(coords, pad.shape, pad.arg):
        if isinstance(coord, Op) and isinstance(dim, int) and isinstance(before, int) and isinstance(after, int):
            yield from (_unit(coord, k) * bound for bound in (before, dim - after, dim))


def _unit(coord: Op, k: Op) -> int:
    """Returns by how much k grows while a coordinate made of it grows by one; 0 where it is not made of k alone."""
    terms, _ = affine(coord)
    ((atom, factor),) = terms.items() if len(terms) == 1 else ((coord, 0),)
    if factor != 1 or atom is k:
        return factor if factor == 1 else 0
    if atom.code in (OpCode.IDIV, OpCode.MOD) and atom.src[1].code is OpCode.CONST:
        return _unit(atom.src[0], k) * (int(atom.src[1].arg) if atom.code is OpCode.IDIV else 1)
    return 0


def of_elements(op: Op) -> tuple[Op, ...]:
    """Returns the sources of an operation that a packing computes element by element."""
    return op.src if op.code in ELEMENTWISE or op.code in MOVEMENT else ()


def _is_chosen(op: Op) -> bool:
    """True for elements of a list, each chosen by an integer: those of a code book."""
    return op.code is OpCode.GATHER and len(op.src[0].shape) == 1


# ---- few first places ----
BLOCK_ELEMENTS_MIN = 64  # elements that are put in order at once, at least
BLOCKS_MIN = 64  # of fewer the whole is put in order: that is fewer kernels


def has_blocks(op: Op, target: Target | None) -> bool:
    """True for few first places along a long last axis, on a GPU."""
    if op.code is not OpCode.SORT or len(op.arg) < 3 or target is None or not target.is_gpu:
        return False
    (x,), (axis, _, count) = op.src, op.arg
    length = x.shape[axis]
    is_long = isinstance(length, int) and length >= BLOCKS_MIN * max(BLOCK_ELEMENTS_MIN, 8 * count)
    return is_long and axis == len(x.shape) - 1


def first_of_blocks(op: Op, x: Op) -> Op:
    """Returns first places as those of what comes first in each block: at most an eighth of the row, and so on.

    Equal elements keep their order, since blocks do, and the filling of the last block is at its end.
    """
    axis, descending, count = op.arg
    rows, length, block = x.shape[:axis], x.shape[axis], max(BLOCK_ELEMENTS_MIN, 8 * count)
    assert isinstance(length, int)
    last = x.dtype.min if descending else nan if x.dtype.is_float else x.dtype.max
    shape = (*rows, length + -length % block)
    inside, padded = (pad_axis(part, axis, 0, -length % block) for part in (filled(True, dtypes.bool_, x.shape), x))
    blocks = reshape(where(inside, padded, filled(last, x.dtype, shape)), (*rows, shape[axis] // block, block))
    first = Op(OpCode.SORT, op.dtype, (blocks,), (axis + 1, descending, count))
    left = (*rows, shape[axis] // block * count)
    values = reshape(gather(blocks, first, axis + 1, axis + 1), left)
    places = reshape(first + positions(first.shape, axis) * block, left)
    chosen = Op(OpCode.SORT, op.dtype, (values,), op.arg)
    chosen = first_of_blocks(chosen, values) if left[axis] >= BLOCKS_MIN * block else chosen
    return gather(places, chosen, axis, axis)


# ---- values that are stored for products ----
COSTLY_STEPS_MIN = 64  # of computing a value


def shared_by_products(order: Sequence[Op]) -> set[Op]:
    """Returns the exponentials that several batches of products would recompute while they pack their operands.

    Those of an attention. They depend on a reduction: what is made of a product alone is stored with the product anyway.
    The products have a batch: the exponentials of a classifier are as many as its logits, too many to store. Where one of
    them is computed from another, only the outer one is stored.
    """
    needs_rows: set[Op] = set()  # what a packing would compute from a reduction
    for op in order:
        if any(s.code is OpCode.REDUCE or s in needs_rows for s in of_elements(op)):
            needs_rows.add(op)
    products: dict[Op, set[Op]] = {}  # op -> those whose packing computes it, two at most: further ones say nothing new
    for op in reversed(order):
        if op.code is OpCode.MATMUL and len(op.shape) > 2:
            readers, sources = {op}, op.src
        else:
            readers, sources = products.get(op, set()), () if op.code in TRANSCENDENTAL else of_elements(op)
        for s in sources if readers else ():
            known = products.setdefault(s, set())
            known |= set(list(readers - known)[: 2 - len(known)])
    several = [op for op, readers in products.items() if len(readers) > 1 and op.code in TRANSCENDENTAL]
    return {op for op in several if op.dtype.is_float and op in needs_rows}


def shared_by_convolutions(order: Sequence[Op]) -> set[Op]:
    """Elementwise values that several convolutions read and that are costly to recompute: from two large operands, or in
    COSTLY_STEPS_MIN steps.

    As the gradient behind a normalization, which that of x and that of the weight read: windows overlap, so that blocks of
    positions compute their edges more than once.
    """
    readers: dict[Op, set[Op]] = {}
    for op in order:
        for s in op.src if op.code is OpCode.CONV else ():
            while s.code in MOVEMENT:
                s = s.src[0]
            if s.code in ELEMENTWISE:
                readers.setdefault(s, set()).add(op)
    return {op for op, convolutions in readers.items() if len(convolutions) > 1 and _reads_several(op)}


def _reads_several(op: Op) -> bool:
    """True for a value that is computed from several as large as itself, or in a great many steps."""
    large: set[Op] = set()
    seen, stack = {op}, [op]
    while stack and len(large) < 2 and len(seen) < COSTLY_STEPS_MIN:
        at = stack.pop()
        if at.code not in ELEMENTWISE and at.code not in MOVEMENT:
            large |= {at} if greatest_numel(at.shape) >= greatest_numel(op.shape) else set()
        else:
            stack += [s for s in at.src if s not in seen]
            seen.update(at.src)
    return bool(stack) or len(large) > 1


def joined_for_products(order: Sequence[Op], target: Target | None) -> set[Op]:
    """Returns the joins of several values that a product reads: each is stored once, for all that read it.

    A product would choose between the values at each element that it packs. A join is stored as it was made: a view of it
    is as good, and a product transposes its last two axes by itself.
    """
    found: set[Op] = set()
    for op in order:
        if op.code is OpCode.MATMUL and 1 not in op.shape[-2:] or op.code is OpCode.CONV and is_of_pixels(op, target):
            found.update(_as_joined(operand) for operand in op.src if is_joined(operand))
    return found


def is_joined(operand: Op) -> bool:
    """True for what several values were joined to: PADs, each 0 where the others are not, added up and moved."""
    while operand.code in MOVEMENT and operand.code is not OpCode.PAD:
        operand = operand.src[0]
    sums = {operand: None} if operand.code is OpCode.ADD else {}
    stack = list(sums)
    while stack:
        for s in stack.pop().src:
            if s.code is OpCode.ADD and s not in sums:
                sums[s] = None
                stack.append(s)
            elif s.code is not OpCode.ADD and s.code is not OpCode.PAD:
                return False
    return bool(sums)


def _as_joined(operand: Op) -> Op:
    """Returns the value that a joined operand is a view of."""
    while operand.code is OpCode.RESHAPE or is_transposed(operand):
        operand = operand.src[0]
    return operand


ROWS_FIRST = (0, 2, 1, 3)  # of heads and rows


def averages_by_rows(roots: Sequence[Op], order: Sequence[Op], target: Target | None) -> set[Op]:
    """Returns the averages (B, H, T, D) of attentions that are read by rows, (B, T, H, D), as the next product does.

    Warpgroups store them in that order: products copy tiles of it as it is, and would each transpose another one first.
    """
    if target is None or not target.has_warpgroups:
        return set()
    read = {op.src[0] for op in order if op.code is OpCode.PERMUTE and op.arg == ROWS_FIRST}
    averages = {op for op in read if op.code is OpCode.OUTPUT and op.arg == 0 and op.src[0].code is OpCode.ATTENTION}
    return {op for op in averages if all(isinstance(dim, int) for dim in op.shape)}.difference(roots)


# ---- convolutions with one output a group ----
LONG_SUM_TERMS_MIN = 1024  # terms of a sum that a convolution's blocks are too short for
WINDOW_PLACES_MAX = 64  # of a window: few


def has_few_long_sums(op: Op) -> bool:
    """True for a CONV that is a product with a vector in each group: the gradient of a weight by channels of their own."""
    w, arg = op.src[1], op.arg
    if w.shape[0] != arg.groups or not op.dtype.is_float or set(arg.input_dilation) != {1}:
        return False
    return greatest_numel(w.shape[1:]) >= LONG_SUM_TERMS_MIN and greatest_numel(op.shape[2:]) <= WINDOW_PLACES_MAX


def sums_of_windows(op: Op, x: Op, w: Op) -> Op:
    """Returns a CONV with one output a group as a sum of products; outside of x a gather reads 0."""
    arg, axes, wide = op.arg, len(op.shape) - 2, op.dtype.compute_dtype
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
