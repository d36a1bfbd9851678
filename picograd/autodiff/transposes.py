"""The transposes of linear Ops: what moved, spread or summed values moves, sums or spreads gradients.

Each function takes the incoming gradient `grad` and the Op `out`, and gives the gradient of one source. Those of a
convolution are convolutions again, of the gradient and the other operand.
"""

from __future__ import annotations

from picograd.dtype import int64
from picograd.ir.build import (
    cast,
    equal,
    expand,
    flip,
    gather,
    pad,
    pad_axis,
    permute,
    positions,
    reduce,
    repeat_axes,
    reshape,
    scan,
    scatter,
    shrink,
    shrink_axis,
    static_shape,
    swap_last,
    where,
    zeros_like,
)
from picograd.ir.op import Dim, Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg, numel
from picograd.ir.symbolic import add, mod, mul, subtract
from picograd.record import replace

WITH_FACTORS = frozenset({OpCode.MUL, OpCode.ADD, OpCode.SUB, OpCode.NEG})  # what a sum of products begins with
PRODUCTS_MAX = 4  # of one that is taken apart

# ---- movement ----


def reshape_transpose(grad: Op, out: Op) -> Op:
    """RESHAPE back to the shape of the source."""
    return reshape(grad, out.src[0].shape)


def permute_transpose(grad: Op, out: Op) -> Op:
    """PERMUTE by the inverse permutation."""
    axes: tuple[int, ...] = out.arg
    return permute(grad, tuple(map(axes.index, range(len(axes)))))


def expand_transpose(grad: Op, out: Op) -> Op:
    """Sums over the axes that were repeated."""
    shape = out.src[0].shape
    if not shape:
        return reduce(grad, OpCode.ADD, tuple(range(len(out.shape))))
    axes = tuple([i for i, (small, large) in enumerate(zip(shape, out.shape)) if small != large])
    parts = _with_factors(grad, axes) if grad.code in WITH_FACTORS else []
    if not parts:
        return reshape(reduce(grad, OpCode.ADD, axes), shape)
    total, *others = [reduce(rest, OpCode.ADD, axes, keepdim=True) * expand(factor, shape) for factor, rest in parts]
    for other in others:
        total = total + other
    return total


def _with_factors(grad: Op, axes: tuple[int, ...]) -> list[tuple[Op, Op]]:
    """Takes a sum of products apart whose every product has a factor that is the same along `axes`: (factor, the rest).

    Multiplied in behind the sums, factors that are themselves computed from sums along these axes, as a normalisation's
    1 / sqrt(var + eps) is, need not be known before them: a pass less. Empty where it is no such sum, or a long one.
    """
    found: list[tuple[Op, Op]] = []
    addends = [(grad, False)]
    for op, is_negative in addends:  # which grows meanwhile
        if op.code is OpCode.MUL:
            lhs, rhs = op.src
            factor, rest = (lhs, rhs) if _is_same_along(lhs, axes) else (rhs, lhs)
            if factor is rhs and not _is_same_along(rhs, axes):
                return []
            found.append((-factor.src[0] if is_negative else factor.src[0], rest))
        elif op.code in WITH_FACTORS and len(addends) < 2 * PRODUCTS_MAX:
            first, *second = op.src
            addends.append((first, is_negative != (op.code is OpCode.NEG)))
            addends += [(s, is_negative != (op.code is OpCode.SUB)) for s in second]
        else:
            return []
    return found


def _is_same_along(op: Op, axes: tuple[int, ...]) -> bool:
    """True for a value that was repeated along all of `axes`; not for constants."""
    if op.code is not OpCode.EXPAND or op.src[0].code is OpCode.CONST:
        return False
    shape = op.src[0].shape
    return bool(shape) and all(shape[axis] == 1 for axis in axes)


def pad_transpose(grad: Op, out: Op) -> Op:
    """Cuts the zeros off again."""
    return shrink(grad, tuple((before, add(before, dim)) for (before, _), dim in zip(out.arg, out.src[0].shape)))


def shrink_transpose(grad: Op, out: Op) -> Op:
    """Zeros where the source was not looked at."""
    return pad(grad, tuple((start, subtract(dim, stop)) for (start, stop), dim in zip(out.arg, out.src[0].shape)))


def flip_transpose(grad: Op, out: Op) -> Op:
    """FLIP is its own transpose."""
    return flip(grad, out.arg)


# ---- identity with a meaning ----


def cast_transpose(grad: Op, out: Op) -> Op:
    """CAST back to the dtype of the source."""
    return cast(grad, out.src[0].dtype)


def copy_transpose(grad: Op, out: Op) -> Op:
    """COPY back to the device of the source; a source that is computed from no memory lives everywhere."""
    for op in reversed(toposort(out.src)):  # a COPY before what it copies
        device = op.arg[0].device if op.code is OpCode.BUFFER else op.arg if op.code is OpCode.COPY else None
        if device is not None:
            return Op(OpCode.COPY, grad.dtype, (grad,), device)
    return grad


# ---- along axes ----


def sum_transpose(grad: Op, out: Op) -> Op:
    """Every summand has the gradient of its sum."""
    return repeat_axes(grad, out.arg[1], out.src[0].shape)


def cumsum_transpose(grad: Op, out: Op) -> Op:
    """Element i went into every sum from i on: a running sum from the other end."""
    axis = out.arg[1]
    return flip(scan(flip(grad, (axis,)), OpCode.ADD, axis), (axis,))


def gather_transpose(grad: Op, out: Op) -> Op:
    """Adds the gradient of each element to the place it was read from.

    Where one element of a row is read, nothing is added up: its gradient is chosen at its place, which fuses with readers.
    """
    x, index = out.src
    axis, batch = out.arg
    if numel(index.shape[batch:]) != 1:
        return scatter(zeros_like(x), index, grad, OpCode.ADD, axis, batch)
    left, right = x.shape[:axis], x.shape[axis + 1 :]
    place = reshape(index, (*index.shape[:batch], *(1,) * (len(x.shape) - batch)))
    is_read = equal(positions(x.shape, axis, index.dtype), expand(place, x.shape))
    return where(is_read, expand(reshape(grad, (*left, 1, *right)), x.shape), zeros_like(x))


def scatter_add_transpose(grad: Op, out: Op) -> Op:
    """Each update has the gradient of the element it was added to."""
    return gather(grad, out.src[1], *out.arg[1:])


def scatter_store_base(grad: Op, out: Op) -> Op:
    """Elements that were overwritten have gradient 0."""
    return scatter(grad, out.src[1], zeros_like(out.src[2]), None, *out.arg[1:])


def scatter_store_updates(grad: Op, out: Op) -> Op:
    """The gradient goes to the last of the updates with equal indices."""
    index, updates = out.src[1], out.src[2]
    axis, batch = out.arg[1:]
    count = Op(OpCode.IOTA, int64, (), numel(index.shape))
    number = reshape(count, index.shape)  # which update each index belongs to
    base = filled(0, int64, (*index.shape[:batch], out.shape[axis]))
    last = scatter(base, index, number, OpCode.MAX, batch, batch)
    counted = equal(gather(last, index, batch, batch), number)  # (batch..., J...)
    left, right = axis - batch, len(out.shape) - axis - 1
    shape = (*index.shape[:batch], *(1,) * left, *index.shape[batch:], *(1,) * right)
    taken = gather(grad, index, axis, batch)
    return where(expand(reshape(counted, shape), updates.shape), taken, zeros_like(updates))


def update_base(grad: Op, out: Op) -> Op:
    """Elements that were overwritten have gradient 0."""
    return Op(OpCode.UPDATE, grad.dtype, (grad, zeros_like(out.src[1])), out.arg)


def update_value(grad: Op, out: Op) -> Op:
    """The block that was written."""
    return shrink(grad, out.arg)


# ---- matmul ----


def matmul_lhs(grad: Op, out: Op) -> Op:
    """d(a b) = da b: grad b^T."""
    lhs, rhs = out.src
    return Op(OpCode.MATMUL, lhs.dtype, (cast(grad, rhs.dtype), swap_last(rhs)), out.arg)


def matmul_rhs(grad: Op, out: Op) -> Op:
    """d(a b) = a db: a^T grad."""
    lhs, rhs = out.src
    return Op(OpCode.MATMUL, rhs.dtype, (swap_last(lhs), cast(grad, lhs.dtype)), out.arg)


# ---- convolution ----
def conv_x(grad: Op, out: Op) -> Op:
    """The gradient spreads backwards: grad, its elements s apart, convolved with w, channels and taps reversed.

    dX[j] = sum over t of grad[(j - t d) / s] w[t], wanted at j = lo + i e for each element i of x. More zeros around x
    than K - 1 are never seen by w together with x: there elements beyond both ends are computed and cut off again.
    """
    x, w = out.src
    arg: ConvArg = out.arg
    lengths, taps = x.shape[2:], static_shape(w.shape[2:])
    padding: list[tuple[int, int]] = []
    bounds: list[tuple[Dim, Dim]] = [(0, length) for length in x.shape[:2]]
    for i, length in enumerate(lengths):
        apart, span = arg.input_dilation[i], (taps[i] - 1) * arg.dilation[i] + 1
        before, unseen = span - 1 - arg.padding[i][0], _unseen(out, i)
        most = unseen if isinstance(unseen, int) else arg.stride[i] - 1  # elements that are computed and cut off
        after = most - sum(arg.padding[i]) + 2 * (span - 1) - before
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

    Its stride is d and its dilation s. Elements of x beyond the last window are not padded, or cut off. The gradient of
    such a gradient by its own weight, which is grad, is over a batch again.
    """
    x, w = out.src
    arg: ConvArg = out.arg
    batch, (channels,), lengths = x.shape[0], static_shape(x.shape[1:2]), x.shape[2:]
    spatial = tuple(range(2, len(x.shape)))
    split = reshape(x, (batch, arg.groups, channels // arg.groups, *lengths))
    moved = permute(split, (2, 1, 0, *(axis + 1 for axis in spatial)))  # (C / groups, groups, B, *)
    operand = reshape(moved, (channels // arg.groups, mul(batch, arg.groups), *lengths))
    padding: list[tuple[int, int]] = []
    for i, (lo, hi) in enumerate(arg.padding):
        unseen = _unseen(out, i)
        if isinstance(unseen, int):
            padding.append((lo, hi - min(hi, unseen)))
            continue
        padding.append((lo, 0))
        padded = pad_axis(operand, 2 + i, 0, hi)
        operand = shrink_axis(padded, 2 + i, 0, subtract(padded.shape[2 + i], unseen))
    transposed = replace(
        arg, stride=arg.dilation, dilation=arg.stride, padding=tuple(padding), of_weight=not arg.of_weight
    )  # fmt: skip
    by_channel = Op(OpCode.CONV, w.dtype, (operand, permute(grad, (1, 0, *spatial))), transposed)
    by_output = permute(by_channel, (1, 0, *spatial))  # (O, C / groups, *)
    return shrink(by_output, tuple((0, dim) for dim in w.shape))


def _unseen(out: Op, axis: int) -> Dim:
    """Returns how many elements of the padded input of a CONV are beyond the last window along a spatial axis."""
    (x, w), arg = out.src, out.arg
    length, taps = x.shape[2 + axis], w.shape[2 + axis]
    whole = add(mul(subtract(length, 1), arg.input_dilation[axis]), sum(arg.padding[axis]))
    return mod(subtract(whole, mul(subtract(taps, 1), arg.dilation[axis])), arg.stride[axis])


