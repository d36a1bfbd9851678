"""The shape of every Op from its sources: the first check, made on the user's line. And the arithmetic of an Op.

In:    opcode, sources, argument
Out:   the result's shape, or a ShapeError that names the rule;  `flops_of`

The operations of floats are those of a graph as it was written, before anything is fused: 2 M N K of a product, one for
each element of an elementwise operation, one for each element that a reduction or scan reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from sys import maxsize
from typing import Any

from picograd import dtype as dtypes
from picograd.errors import ShapeError
from picograd.ir.host import HOST_SHAPES, HostCall
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.opcode import ATTENTIONS, BINARY, IDENTITY, MOVEMENT, SOURCES, TERNARY, UNARY, OpCode
from picograd.ir.symbolic import add, dim_value, floordiv, subtract
from picograd.ir.symbolic import mul as times
from picograd.record import Record

INTS = frozenset({int})


class MatmulArg(Record):
    """Permissions of one matrix product; most products have none.

    tf32:  matrix instructions may round operands of float32 to 11 bits of significand (ir/statements.py, Mma)
    """

    tf32: bool = False


class ConvArg(Record):
    """The static part of a convolution over D spatial axes: x (B, C, *spatial), w (O, C/groups, *kernel).

    stride:          (D,) steps between outputs
    padding:         (D,) pairs of zeros before and after
    dilation:        (D,) steps between kernel taps
    input_dilation:  (D,) steps between inputs (a transposed convolution's stride)
    groups:          number of independent slices of the channels
    of_weight:       it computes the gradient of a weight: channels are examples, and axis 0 is not a batch
    tf32:            as in MatmulArg
    """

    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    input_dilation: tuple[int, ...]
    groups: int = 1
    of_weight: bool = False
    tf32: bool = False


class AttentionArg(Record):
    """The static part of attention: q (B, H, T, D), k and v (B, G, S, D), with H a multiple of G.

    scale:     factor of the scores
    causal:    position t sees s <= t + S - T
    window:    position t sees s > t + S - T - window: its own and the window - 1 before it; 0: all
    soft_cap:  scores become soft_cap * tanh(scores / soft_cap); 0: no cap
    tf32:      as in MatmulArg
    dropout:   probability that a weight is 0, below 1; the others are divided by 1 - dropout
    """

    scale: float
    causal: bool = False
    window: int = 0
    soft_cap: float = 0.0
    tf32: bool = False
    dropout: float = 0.0


def draws_of(op: Op) -> tuple[Op, ...]:
    """Returns the seeds and the numbers of heads of an ATTENTION or an ATTENTION_GRAD with dropout; () without."""
    return op.src[-2:] if op.arg.dropout else ()


def takes_tf32(product: Op) -> bool:
    """Returns whether a MATMUL, CONV, ATTENTION or ATTENTION_GRAD may round operands of float32 to TF32."""
    return product.dtype is dtypes.float32 and product.arg is not None and bool(product.arg.tf32)


ARRAY_NDIM_MAX = 64  # of a NumPy array


def check_array(function: str, shape: Sequence[Dim], itemsize: int) -> None:
    """Raises if NumPy has no arrays of a shape, though there are tensors of it.

    Raises:
      ShapeError: it has more than 64 axes; or it has no elements, but its other axes have more bytes than can be counted.
    """
    if len(shape) > ARRAY_NDIM_MAX:
        raise ShapeError(
            f"{function}: NumPy's arrays have up to {ARRAY_NDIM_MAX} axes, this tensor has {len(shape)}.",
            hint="x.flatten() first.",
        )
    if 0 in shape and prod(dim or 1 for dim in shape if isinstance(dim, int)) * itemsize > maxsize:
        raise ShapeError(f"{function}: NumPy has no arrays of shape {tuple(shape)}.", hint="x.flatten() first.")


def of_numbers(dims: Iterable[Any]) -> bool:
    """True if all lengths are plain ints, none symbolic; every view asks this."""
    return INTS.issuperset(map(type, dims))


def numel(shape: Iterable[Dim]) -> Dim:
    """Returns the product of the dimensions."""
    lengths = tuple(shape)
    if INTS.issuperset(map(type, lengths)):  # `of_numbers` written out, since this is called most often
        return prod(lengths)
    count: Dim = 1
    for dim in lengths:
        count = count * dim if isinstance(count, int) and isinstance(dim, int) else times(count, dim)
    return count


def unequal(message: str, pairs: Iterable[tuple[Dim, Dim]]) -> ShapeError:
    """Returns an error that names lengths that differ."""
    error = ShapeError(message)
    error.unequal = tuple(pairs)
    return error


def _elementwise(code: OpCode) -> Callable[[tuple[Op, ...], Any], Shape]:
    def rule(src: tuple[Op, ...], arg: Any) -> Shape:
        first = src[0].shape
        for other in src:
            if other.shape is not first and other.shape != first:
                message = f"{code.name.lower()}: shapes differ: {', '.join(str(s.shape) for s in src)}."
                raise unequal(message, zip(first, other.shape))
        return first

    return rule


def _same(src: tuple[Op, ...], arg: Any) -> Shape:
    return src[0].shape


def _reshape(src: tuple[Op, ...], arg: Shape) -> Shape:
    if numel(src[0].shape) != numel(arg):
        before, after = numel(src[0].shape), numel(arg)
        raise unequal(f"reshape: {src[0].shape} has {before} elements, {arg} has {after}.", [(before, after)])
    return arg


def _permute(src: tuple[Op, ...], arg: tuple[int, ...]) -> Shape:
    shape = src[0].shape
    if sorted(arg) != list(range(len(shape))):
        raise ShapeError(f"permute: {arg} does not name each of the {len(shape)} axes of {shape} once.")
    return tuple(map(shape.__getitem__, arg))


def _expand(src: tuple[Op, ...], arg: Shape | int) -> Shape:
    if isinstance(arg, int):  # lanes of a vector, in a Program
        return ()
    shape = src[0].shape
    fits = not shape or len(shape) == len(arg)
    for dim, wanted in zip(shape, arg):
        fits = fits and (dim == wanted or dim == 1)
    if not fits:
        pairs = [(dim, wanted) for dim, wanted in zip(shape, arg) if dim != 1]
        raise unequal(f"expand: {shape} does not fit {arg}: each axis must be equal or of length 1.", pairs)
    return arg


def _pad(src: tuple[Op, ...], arg: tuple[tuple[Dim, Dim], ...]) -> Shape:
    shape = src[0].shape
    if len(arg) != len(shape) or any(isinstance(margin, int) and margin < 0 for pair in arg for margin in pair):
        raise ShapeError(f"pad: {arg} needs one non-negative pair for each axis of {shape}.")
    return tuple(add(dim, add(before, after)) for dim, (before, after) in zip(shape, arg))


def _shrink(src: tuple[Op, ...], arg: tuple[tuple[Dim, Dim], ...]) -> Shape:
    """Returns the lengths of the parts that are kept."""
    shape = src[0].shape
    result: list[Dim] = []
    for dim, (start, stop) in zip(shape, arg):
        if isinstance(start, int) and isinstance(stop, int):
            if start < 0 or stop < start or (isinstance(dim, int) and stop > dim):
                raise ShapeError(f"shrink: {start}:{stop} is outside an axis of length {dim} of {shape}.")
            result.append(stop - start)
        else:
            result.append(subtract(stop, start))
    if len(arg) != len(shape):
        raise ShapeError(f"shrink: {arg} needs one pair for each axis of {shape}.")
    return tuple(result)


def _flip(src: tuple[Op, ...], arg: tuple[int, ...]) -> Shape:
    _check_axes("flip", arg, src[0].shape)
    return src[0].shape


def _check_axes(what: str, axes: tuple[int, ...], shape: Shape) -> None:
    if axes and (min(axes) < 0 or max(axes) >= len(shape) or len(set(axes)) != len(axes)):
        raise ShapeError(f"{what}: axes {axes} are not distinct axes of {shape}.")


def _reduce(src: tuple[Op, ...], arg: tuple[OpCode, tuple[int, ...] | int]) -> Shape:
    shape, axes = src[0].shape, arg[1]
    if isinstance(axes, int):  # lanes of a vector, in a Program
        return ()
    _check_axes("reduce", axes, shape)
    return tuple([dim for axis, dim in enumerate(shape) if axis not in axes])


def _scan(src: tuple[Op, ...], arg: tuple[OpCode, int]) -> Shape:
    _check_axes("scan", (arg[1],), src[0].shape)
    return src[0].shape


def _sort(src: tuple[Op, ...], arg: tuple[int, bool] | tuple[int, bool, int]) -> Shape:
    _check_axes("sort", (arg[0],), src[0].shape)
    if len(src) > 1:
        return src[1].shape
    return tuple([arg[2] if len(arg) > 2 and i == arg[0] else dim for i, dim in enumerate(src[0].shape)])


def _gather(src: tuple[Op, ...], arg: tuple[int, int]) -> Shape:
    """x (batch..., left..., K, right...), index (batch..., J...) -> (batch..., left..., J..., right...)."""
    (axis, batch), x, index = arg, src[0].shape, src[1].shape
    if not 0 <= batch <= axis < len(x) or x[:batch] != index[:batch]:
        raise ShapeError(f"gather: index {index} does not fit axis {axis} of {x} with {batch} batch axes.")
    return x[:axis] + index[batch:] + x[axis + 1 :]


def _scatter(src: tuple[Op, ...], arg: tuple[OpCode | None, int, int]) -> Shape:
    base, index, updates = (s.shape for s in src)
    expected = _gather((src[0], src[1]), arg[1:])
    if updates != expected:
        raise ShapeError(f"scatter: updates {updates} are not {expected}, the shape of {base} at {index}.")
    return base


def _update(src: tuple[Op, ...], arg: tuple[tuple[Dim, Dim], ...]) -> Shape:
    base, value = src
    block = _shrink((base,), arg)
    if value.shape != block:
        message = f"update: a value of shape {value.shape} does not fit the block {block} of {base.shape}."
        raise unequal(message, zip(value.shape, block))
    return base.shape


def _matmul(src: tuple[Op, ...], arg: Any) -> Shape:
    """(*batch, M, K) @ (*batch, K, N): (*batch, M, N)."""
    lhs, rhs = src[0].shape, src[1].shape
    if len(lhs) < 2 or len(rhs) < 2:
        raise ShapeError(f"matmul: lhs {lhs}, rhs {rhs} need two axes each, for rows and columns.")
    if lhs[:-2] != rhs[:-2]:
        raise unequal(f"matmul: batch axes differ: lhs {lhs}, rhs {rhs}.", zip(lhs[:-2], rhs[:-2]))
    if lhs[-1] != rhs[-2]:
        message = f"matmul: inner dimensions differ: lhs {lhs} has K={lhs[-1]}, rhs {rhs} has K={rhs[-2]}."
        raise unequal(message, [(lhs[-1], rhs[-2])])
    return (*lhs[:-1], rhs[-1])


def _conv(src: tuple[Op, ...], arg: ConvArg) -> Shape:
    """x (B, C, *spatial), w (O, C / groups, *kernel): (B, O, *places where the kernel fits)."""
    x, w = src[0].shape, src[1].shape
    num_spatial = len(x) - 2
    if num_spatial < 1 or len(w) != len(x):
        raise ShapeError(f"conv: x {x}, w {w} do not fit (B, C, *spatial), (O, C / groups, *kernel).")
    if any(len(part) != num_spatial for part in (arg.stride, arg.padding, arg.dilation, arg.input_dilation)):
        raise ShapeError(f"conv: {arg} needs one entry for each of the {num_spatial} spatial axes of x {x}.")
    if x[1] != times(w[1], arg.groups):
        raise ShapeError(f"conv: x {x} has {x[1]} channels, w {w} needs {w[1]} x {arg.groups} groups.")
    if _int(w[0]) % arg.groups:
        raise ShapeError(f"conv: w {w} has {w[0]} outputs, which {arg.groups} groups cannot share.")
    spatial = [_places(i, x[i + 2], w[i + 2], arg) for i in range(num_spatial)]
    return (x[0], w[0], *spatial)


def _places(axis: int, length: Dim, taps: Dim, arg: ConvArg) -> Dim:
    """Returns the number of places along a spatial axis where a kernel of `taps` fits; for symbolic lengths at least 1."""
    apart, dilation = arg.input_dilation[axis], arg.dilation[axis]
    whole = add(times(subtract(length, 1), apart), 1 + sum(arg.padding[axis]))
    span = add(times(subtract(taps, 1), dilation), 1)
    unseen = subtract(whole, span)
    if isinstance(unseen, int) and unseen < 0:
        raise ShapeError(f"conv: a kernel spanning {span} is longer than the padded input {whole} of axis {axis}.")
    return add(floordiv(unseen, arg.stride[axis]), 1)


def _attention(src: tuple[Op, ...], arg: AttentionArg) -> Shape:
    q, k, v = (s.shape for s in src[:3])
    if not (len(q) == len(k) == len(v) == 4 and q[0] == k[0] and q[3] == k[3] and k[:3] == v[:3]):
        raise ShapeError(f"attention: q {q}, k {k}, v {v} do not fit (B, H, T, D), (B, G, S, D), (B, G, S, D).")
    if _int(q[1]) % _int(k[1]):
        raise ShapeError(f"attention: q {q} has {q[1]} heads, not a multiple of the {k[1]} of k {k}.")
    if len(src) == 4 and src[3].shape != (*q[:3], k[2]):
        raise ShapeError(f"attention: a mask {src[3].shape} of q {q} and k {k} is not {(*q[:3], k[2])}.")
    if len(src) == 5 and any(s.shape != q[:2] for s in src[3:]):
        seeds, numbers = (s.shape for s in src[3:])
        raise ShapeError(f"attention: seeds {seeds} and numbers {numbers} of draws for q {q} are not {q[:2]} each.")
    return (*q[:3], v[3])


def _attention_grad(src: tuple[Op, ...], arg: AttentionArg) -> Shape:
    """Sources: q, k, v, the output's gradient, logsumexp and delta of each row (autodiff/bodies.py), and draws."""
    grad, *rows = (s.shape for s in src[3:6])
    if grad != _attention((*src[:3], *src[6:]), arg) or any(shape != grad[:3] for shape in rows):
        given = f"grad {grad}, logsumexp {rows[0]}, delta {rows[1]}"
        raise ShapeError(f"attention: {given} do not fit (B, H, T, E), (B, H, T), (B, H, T).")
    return src[0].shape


def _custom(src: tuple[Op, ...], arg: HostCall) -> Shape:
    return HOST_SHAPES[arg.name](src, arg.options)


def _kernel(src: tuple[Op, ...], arg: Any) -> Shape:
    """Returns the shape of the first result; all results are read through OUTPUTs."""
    return arg[1][0]


def _formula(src: tuple[Op, ...], arg: Any) -> Shape:
    """Returns the shape of the only result; several results are read through OUTPUTs."""
    return arg.kinds[0][1] if len(arg.kinds) == 1 else ()


def _output(src: tuple[Op, ...], arg: int) -> Shape:
    producer = src[0]
    if producer.code is OpCode.GRADIENT:  # there may be many leaves: all their shapes would take too long
        leaf: Op = producer.src[2 * producer.arg + arg]
        return leaf.shape
    if producer.code is OpCode.FORMULA:
        return producer.arg.kinds[arg][1]
    shapes = _result_shapes(producer)
    if not 0 <= arg < len(shapes):
        raise ShapeError(f"output: there is no result {arg} of {producer.code.name}, which has {len(shapes)}.")
    return shapes[arg]


def _result_shapes(producer: Op) -> list[Shape]:
    """Returns the shape of each result of an Op with several."""
    if producer.code is OpCode.ATTENTION:
        return [producer.shape, producer.src[0].shape[:3]]
    if producer.code is OpCode.ATTENTION_GRAD:
        return [s.shape for s in producer.src[:3]]
    if producer.code is OpCode.KERNEL:
        return list(producer.arg[1])
    if producer.code is OpCode.CALL:
        return [s.shape for s in producer.arg.src]
    if producer.code is OpCode.LOOP:
        body, num_carry, num_steps = producer.arg
        return [s.shape if i < num_carry else (num_steps, *s.shape) for i, s in enumerate(body.src)]
    raise ShapeError(f"output: {producer.code.name} has one result.")


def _int(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise ShapeError(f"a symbolic dimension {dim} is used where a number is needed.")
    return dim


RULES: dict[OpCode, Callable[[tuple[Op, ...], Any], Shape]] = {
    OpCode.BUFFER: lambda src, arg: arg[1],
    OpCode.PARAM: lambda src, arg: arg[1],
    OpCode.IOTA: lambda src, arg: (arg,),
    OpCode.LEAF: _same,
    OpCode.DETACH: _same,
    OpCode.CONTIGUOUS: _same,
    OpCode.COPY: _same,
    OpCode.COLLECTIVE: _same,
    OpCode.RESHAPE: _reshape,
    OpCode.PERMUTE: _permute,
    OpCode.EXPAND: _expand,
    OpCode.PAD: _pad,
    OpCode.SHRINK: _shrink,
    OpCode.FLIP: _flip,
    OpCode.REDUCE: _reduce,
    OpCode.SCAN: _scan,
    OpCode.CHECK: _same,
    OpCode.SORT: _sort,
    OpCode.GATHER: _gather,
    OpCode.SCATTER: _scatter,
    OpCode.UPDATE: _update,
    OpCode.MATMUL: _matmul,
    OpCode.CONV: _conv,
    OpCode.ATTENTION: _attention,
    OpCode.ATTENTION_GRAD: _attention_grad,
    OpCode.FORMULA: _formula,
    OpCode.OUTPUT: _output,
    OpCode.CUSTOM: _custom,
    OpCode.KERNEL: _kernel,
    **{code: _elementwise(code) for code in UNARY | BINARY | TERNARY},
}

Op.shape_rules.update(RULES)
Op.shape_keeping.update(UNARY | BINARY | TERNARY | IDENTITY | {OpCode.COPY, OpCode.CHECK})


# ---- arithmetic of an Op ----
# Ops that move, convert or find numbers, and compute none.
WITHOUT_ARITHMETIC = MOVEMENT | IDENTITY | SOURCES | {
    OpCode.CAST, OpCode.BITCAST, OpCode.COPY, OpCode.OUTPUT, OpCode.GATHER, OpCode.SCATTER, OpCode.SORT, OpCode.CHECK,
    OpCode.THREEFRY,
}  # fmt: skip
NO_VARIABLES: Mapping[str, int] = {}


def flops_of(op: Op, variables: Mapping[str, int] = NO_VARIABLES) -> int:
    """Returns the floating-point operations of one Op; a multiplication and an addition count as two.

    Args:
      variables:  values of symbolic integers by name
    """
    if op.code in WITHOUT_ARITHMETIC or not op.dtype.is_float:
        return 0

    def count(*dims: Dim) -> int:
        return dim_value(numel(dims), variables)

    def all_of(shape: Shape) -> int:
        return count(*shape)

    if op.code is OpCode.MATMUL:
        return 2 * all_of(op.shape) * count(op.src[0].shape[-1])
    if op.code is OpCode.CONV:
        return 2 * all_of(op.shape) * all_of(op.src[1].shape[1:])
    if op.code in ATTENTIONS:
        (*_, queries, features), (*_, keys, _), (*_, values) = (s.shape for s in op.src[:3])
        factors = (1, 1) if op.code is OpCode.ATTENTION else (3, 2)
        lengths = factors[0] * count(features) + factors[1] * count(values)
        return 2 * all_of(op.src[0].shape[:2]) * count(queries) * count(keys) * lengths
    if op.code in (OpCode.REDUCE, OpCode.SCAN):
        return all_of(op.src[0].shape)
    return all_of(op.shape)
