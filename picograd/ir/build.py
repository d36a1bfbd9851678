"""Constructors of Ops that make none where nothing would change.

`reshape`, `permute`, `expand`, `pad`, `shrink`, `flip`, `cast`, `where`, `reduce`, `scan`, ...: an operand may be a
Python scalar where another gives it dtype and shape. Those of stacks of matrices make triangles, diagonals, and factors
one after the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from functools import partial

from picograd.dtype import DType, Scalar, bool_, int64
from picograd.errors import ShapeError
from picograd.ir.arithmetic import fold
from picograd.ir.host import lengths
from picograd.ir.op import Dim, Op, Shape, const, filled
from picograd.ir.opcode import ROUGHLY, MemorySpace, OpCode
from picograd.ir.symbolic import add, mul, subtract


def static_shape(shape: Shape) -> tuple[int, ...]:
    """Returns a shape that must be numbers.

    Raises:
      ShapeError: a dimension is symbolic.
    """
    for dim in shape:
        if not isinstance(dim, int):
            raise ShapeError(f"a symbolic dimension {dim} of {shape} is used where a number is needed.")
    return shape  # type: ignore[return-value]


# ---- movement ----


def reshape(x: Op, shape: Shape) -> Op:
    """Returns x with its elements, in order, in another shape; two reshapes become one."""
    if x.shape == shape:
        return x
    if x.code is OpCode.RESHAPE:
        x = x.src[0]
    return x if x.shape == shape else Op(OpCode.RESHAPE, x.dtype, (x,), shape)


def permute(x: Op, axes: tuple[int, ...]) -> Op:
    """Returns x with axis i of the result being axis axes[i] of x; two orders become one."""
    if x.code is OpCode.PERMUTE and len(axes) == len(x.arg):
        x, axes = x.src[0], tuple(map(x.arg.__getitem__, axes))
    return x if axes == tuple(range(len(axes))) else Op(OpCode.PERMUTE, x.dtype, (x,), axes)


def expand(x: Op, shape: Shape) -> Op:
    """Returns x with axes of length 1 repeated; a scalar fills any shape."""
    return x if x.shape == shape else Op(OpCode.EXPAND, x.dtype, (x,), shape)


def pad(x: Op, pads: tuple[tuple[Dim, Dim], ...]) -> Op:
    """Returns x with zeros before and after each axis."""
    return x if not any(before or after for before, after in pads) else Op(OpCode.PAD, x.dtype, (x,), pads)


def shrink(x: Op, bounds: tuple[tuple[Dim, Dim], ...]) -> Op:
    """Returns the part of x from start up to stop on each axis."""
    whole = tuple((0, dim) for dim in x.shape)
    return x if bounds == whole else Op(OpCode.SHRINK, x.dtype, (x,), bounds)


def shrink_axis(x: Op, axis: int, start: Dim, stop: Dim) -> Op:
    """Returns the part of x from start up to stop on one axis, which may be counted from the end."""
    place = axis % len(x.shape)
    return shrink(x, tuple((start, stop) if i == place else (0, dim) for i, dim in enumerate(x.shape)))


def pad_axis(x: Op, axis: int, before: Dim, after: Dim) -> Op:
    """Returns x with zeros before and after one axis, which may be counted from the end."""
    place = axis % len(x.shape)
    return pad(x, tuple((before, after) if i == place else (0, 0) for i in range(len(x.shape))))


def flip(x: Op, axes: tuple[int, ...]) -> Op:
    """Returns x backwards along `axes`."""
    return Op(OpCode.FLIP, x.dtype, (x,), axes) if axes else x


def move_all(view: Op, x: Op, count: Dim) -> Op:
    """Returns each row of x, along an axis of `count` in front, moved as `view` moves one of them."""
    if view.code is OpCode.RESHAPE:
        return reshape(x, (count, *view.shape))
    if view.code is OpCode.PERMUTE:
        return permute(x, (0, *(axis + 1 for axis in view.arg)))
    if view.code is OpCode.EXPAND:
        return expand(x if view.src[0].shape else reshape(x, (count, *(1 for _ in view.shape))), (count, *view.shape))
    if view.code is OpCode.FLIP:
        return Op(OpCode.FLIP, x.dtype, (x,), tuple(axis + 1 for axis in view.arg))
    whole = (0, 0) if view.code is OpCode.PAD else (0, count)
    return Op(view.code, x.dtype, (x,), (whole, *view.arg))


def swap_last(x: Op) -> Op:
    """Returns x with its last two axes exchanged."""
    last = len(x.shape) - 1
    return permute(x, (*range(last - 1), last, last - 1))


def move_last(x: Op, axis: int) -> Op:
    """Returns x with `axis` moved behind the others."""
    return permute(x, (*(i for i in range(len(x.shape)) if i != axis), axis))


def move_back(x: Op, axis: int) -> Op:
    """Undoes `move_last`: the last axis goes to place `axis`."""
    last = len(x.shape) - 1
    return permute(x, (*range(axis), last, *range(axis, last)))


def repeat_axes(x: Op, axes: Iterable[int], shape: Shape) -> Op:
    """Undoes the loss of `axes` in a REDUCE: x is repeated along them, to `shape`."""
    lost = set(axes)
    if not lost:
        return x
    if not x.shape:
        return expand(x, shape)
    return expand(reshape(x, tuple([1 if i in lost else dim for i, dim in enumerate(shape)])), shape)


def repeat_along(x: Op, shape: Shape, axis: int) -> Op:
    """Returns a line of numbers along one axis of `shape`, repeated along all others."""
    return repeat_axes(x, (i for i in range(len(shape)) if i != axis), shape)


# ---- memory ----
def is_register(memory: Op) -> bool:
    """True for memory without an address: that a thread has in its registers."""
    return memory.code is OpCode.ALLOC and memory.arg[2] is MemorySpace.REGISTER


# ---- elementwise ----
def cast(x: Op, dtype: DType) -> Op:
    """Returns x converted to `dtype`; a constant is converted at once, if that has the bits of a kernel."""
    if x.dtype is dtype:
        return x
    value = fold(OpCode.CAST, dtype, x.dtype, [x.arg]) if x.code is OpCode.CONST else None
    return Op(OpCode.CAST, dtype, (x,)) if value is None else const(value, dtype)


def unary(code: OpCode, x: Op) -> Op:
    """Returns an elementwise Op of one operand."""
    return Op(code, x.dtype, (x,))


def combined(code: OpCode, a: Op, b: Op) -> Op:
    """Returns a reduction's combination of two elements, in any order."""
    return Op(code, a.dtype, (a, b))


def rough_exp(x: Op) -> Op:
    """Returns exp(x) of a float32, by the instruction of a GPU for powers of two: for what is rounded to 16 bits next.

    Its error is 2 ulp, and that of x / log(2) once more; what is below 2**-126 may be 0.
    Source: PTX ISA 9.7.3.21, ex2.approx.ftz.f32.
    """
    return Op(OpCode.EXP2, x.dtype, (x * (1 / math.log(2)),), ROUGHLY)


def compare(code: OpCode, a: Op | Scalar, b: Op | Scalar) -> Op:
    """Returns the condition that the relation `code` holds between a and b; at least one of them is an Op."""
    if isinstance(a, Op):
        return Op(code, bool_, (a, _beside(a, b)))
    assert isinstance(b, Op), "compare: one of a and b must be an Op"
    return Op(code, bool_, (b.filled(a), b))


less, less_equal = partial(compare, OpCode.CMPLT), partial(compare, OpCode.CMPLE)
equal, differs = partial(compare, OpCode.CMPEQ), partial(compare, OpCode.CMPNE)


def both(a: Op, b: Op) -> Op:
    """Returns where two conditions hold together."""
    return Op(OpCode.AND, bool_, (a, b))


def either(a: Op, b: Op) -> Op:
    """Returns where at least one of two conditions holds."""
    return Op(OpCode.OR, bool_, (a, b))


def where(condition: Op, a: Op | Scalar, b: Op | Scalar) -> Op:
    """Returns a where the condition holds, else b; at least one of them is an Op."""
    known = a if isinstance(a, Op) else b
    assert isinstance(known, Op), "where: one of a and b must be an Op"
    return Op(OpCode.WHERE, known.dtype, (condition, _beside(known, a), _beside(known, b)))


def maximum(a: Op, b: Op | Scalar) -> Op:
    """Returns the greater of both; NaN if there is one."""
    return Op(OpCode.MAX, a.dtype, (a, _beside(a, b)))


def minimum(a: Op, b: Op | Scalar) -> Op:
    """Returns the smaller of both; NaN if there is one."""
    return Op(OpCode.MIN, a.dtype, (a, _beside(a, b)))


def zeros_like(x: Op) -> Op:
    """Returns zeros of the shape and dtype of x."""
    return filled(0, x.dtype, x.shape)


def number_like(x: Op, number: Dim) -> Op:
    """Returns a length, which may be symbolic, as a value in the dtype and shape of x."""
    if isinstance(number, int):
        return x.filled(number)
    return repeat_axes(cast(number, x.dtype), range(len(x.shape)), x.shape)


def _beside(x: Op, value: Op | Scalar) -> Op:
    """Returns an operand that goes with x: an Op as it is, a number in the dtype and shape of x."""
    return value if isinstance(value, Op) else x.filled(value)


# ---- functions of numbers, for those who write them by bits ----
def fma(a: Op, b: Op | float, c: Op | float) -> Op:
    """Returns a * b + c with one rounding."""
    return Op(OpCode.FMA, a.dtype, (a, _beside(a, b), _beside(a, c)))


def multiply_add(a: Op, b: Op, c: Op, has_fma: bool = True) -> Op:
    """Returns a * b + c: for floats with one rounding, or two where no instruction does both."""
    a, b = (cast(x, c.dtype) if x.dtype.is_narrow else x for x in (a, b))
    if c.dtype.is_float and has_fma:
        return Op(OpCode.FMA, c.dtype, (a, b, c))
    if c.dtype is bool_:
        return Op(OpCode.OR, c.dtype, (Op(OpCode.AND, c.dtype, (a, b)), c))
    return Op(OpCode.ADD, c.dtype, (Op(OpCode.MUL, c.dtype, (a, b)), c))


def floor(a: Op) -> Op:
    return Op(OpCode.FLOOR, a.dtype, (a,))


def bitcast(a: Op, dtype: DType) -> Op:
    return a if a.dtype is dtype else Op(OpCode.BITCAST, dtype, (a,))


def bits_of(a: Op) -> Op:
    """Returns the bits of a float as an unsigned integer."""
    return bitcast(a, a.dtype.unsigned)


def _of_two(code: OpCode, a: Op, b: Op | int) -> Op:
    return Op(code, a.dtype, (a, _beside(a, b)))


def floordiv(a: Op, b: Op | int) -> Op:
    """Returns a / b rounded to minus infinity; where an integer is divided by 0, 0."""
    return _of_two(OpCode.IDIV, a, b)


def mod(a: Op, b: Op | int) -> Op:
    """Returns the remainder of `floordiv`, with the sign of b."""
    return _of_two(OpCode.MOD, a, b)


def and_(a: Op, b: Op | int) -> Op:
    return _of_two(OpCode.AND, a, b)


def or_(a: Op, b: Op | int) -> Op:
    return _of_two(OpCode.OR, a, b)


def xor(a: Op, b: Op | int) -> Op:
    return _of_two(OpCode.XOR, a, b)


def shl(a: Op, b: Op | int) -> Op:
    return _of_two(OpCode.SHL, a, b)


def shr(a: Op, b: Op | int) -> Op:
    return _of_two(OpCode.SHR, a, b)


def absolute(x: Op) -> Op:
    """Returns a float without its sign."""
    return bitcast(and_(bits_of(x), x.dtype.sign_bit - 1), x.dtype)


def with_sign_of(magnitude: Op, x: Op) -> Op:
    """Returns a float >= 0 with the sign of x."""
    return bitcast(or_(bits_of(magnitude), and_(bits_of(x), x.dtype.sign_bit)), x.dtype)


def horner(x: Op, coefficients: Sequence[float]) -> Op:
    """Returns the polynomial with these coefficients, the constant first."""
    result = x.filled(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = fma(result, x, c)
    return result


# ---- along axes ----


def reduce(x: Op, operation: OpCode, axes: tuple[int, ...], keepdim: bool = False) -> Op:
    """Returns x with `axes` combined by ADD, MUL, MAX or MIN; they disappear, or with keepdim are of length 1."""
    result = Op(OpCode.REDUCE, x.dtype, (x,), (operation, axes)) if axes else x
    return reshape(result, tuple([1 if i in axes else dim for i, dim in enumerate(x.shape)])) if keepdim else result


def scan(x: Op, operation: OpCode, axis: int) -> Op:
    """Returns the running combination of x along `axis`, the current element included."""
    return Op(OpCode.SCAN, x.dtype, (x,), (operation, axis))


def gather(x: Op, index: Op, axis: int, batch: int = 0) -> Op:
    """Returns x[..., index, ...] along `axis`, with `batch` leading axes shared by x and index."""
    return Op(OpCode.GATHER, x.dtype, (x, index), (axis, batch))


def scatter(base: Op, index: Op, updates: Op, operation: OpCode | None, axis: int, batch: int) -> Op:
    """Returns base with `updates` combined in at `index` along `axis`; operation None stores them."""
    return Op(OpCode.SCATTER, base.dtype, (base, index, updates), (operation, axis, batch))


def argsort(x: Op, axis: int, descending: bool = False) -> Op:
    """Returns the positions along `axis` of the elements of x in order; equal elements keep theirs."""
    return Op(OpCode.SORT, int64, (x,), (axis, descending))


def iota(length: Dim, dtype: DType = int64) -> Op:
    """Returns 0, 1, ... length - 1."""
    return Op(OpCode.IOTA, dtype, (), length)


def positions(shape: Shape, axis: int, dtype: DType = int64) -> Op:
    """Returns the position along `axis` of every element of `shape`."""
    return repeat_axes(iota(shape[axis], dtype), (i for i in range(len(shape)) if i != axis), shape)


# ---- joins ----
JOINED_PIECES_MAX = 16


def joined(ops: list[Op], axis: int) -> Op:
    """Returns Ops joined along an axis.

    Each element looks at all pieces for its own. So many pieces are joined by groups, and these again: the cost of an
    element grows with the logarithm of their number.
    """
    ops = _without_rows([op for op in ops if op.shape[axis] != 0] or ops[:1], axis)
    while len(ops) > JOINED_PIECES_MAX:
        groups = [ops[i : i + JOINED_PIECES_MAX] for i in range(0, len(ops), JOINED_PIECES_MAX)]
        ops = [unary(OpCode.CONTIGUOUS, _side_by_side(group, axis)) for group in groups]
    return _side_by_side(ops, axis)


def joined_ops(options: tuple[int, DType], *ops: Op) -> list[Op]:
    """Concatenates Ops along an axis, in a dtype."""
    axis, dtype = options
    return [joined([cast(op, dtype) for op in ops], axis)]


def stacked_ops(options: tuple[int, DType], *ops: Op) -> list[Op]:
    """Stacks Ops along a new axis, in a dtype."""
    axis, _ = options
    return joined_ops(options, *[reshape(op, (*op.shape[:axis], 1, *op.shape[axis:])) for op in ops])


def _side_by_side(ops: list[Op], axis: int) -> Op:
    """Returns Ops joined: each padded to the whole length, chosen by position."""
    if len(ops) == 1:
        return ops[0]
    total = functools.reduce(add, [op.shape[axis] for op in ops])
    start: Dim = 0
    result: Op | None = None
    for op in ops:
        stop = add(start, op.shape[axis])
        after = subtract(total, stop)
        piece, inside = (pad_axis(x, axis, start, after) for x in (op, filled(True, bool_, op.shape)))
        result = piece if result is None else where(inside, piece, result)
        start = stop
    assert result is not None
    return result


def _without_rows(ops: list[Op], axis: int) -> list[Op]:
    """Returns pieces to join in the place of others: rows of one value, one after the other or backwards, are one piece."""
    pieces, first = list[Op](), 0
    while first < len(ops):
        (whole, row), end = row_of(ops[first]), first + 1
        apart = 0 if whole is None or end == len(ops) else row_of(ops[end])[1] - row
        kind = whole, ops[first].shape
        while abs(apart) == 1 and end < len(ops):
            another, number = row_of(ops[end])
            if (another, ops[end].shape) != kind or number != row + apart * (end - first):
                break
            end += 1
        pieces.append(ops[first] if whole is None or end == first + 1 else _rows(ops[first], end - first, apart, axis))
        first = end
    return pieces


def _rows(op: Op, count: int, apart: int, axis: int) -> Op:
    """Returns so many rows joined along an axis, the first of which is `op`, the others behind or before it."""
    whole, row = row_of(op)
    assert whole is not None
    start = min(row, row + apart * (count - 1))
    block = reshape(shrink_axis(whole, 0, start, start + count), (count, *op.shape))
    block = flip(block, (0,)) if apart < 0 else block
    block = permute(block, (*range(1, axis + 1), 0, *range(axis + 1, len(block.shape))))
    return reshape(block, (*op.shape[:axis], mul(count, op.shape[axis]), *op.shape[axis + 1 :]))


def row_of(op: Op) -> tuple[Op | None, int]:
    """Returns a value and the number of its row that an Op is; no value for any other Op."""
    while op.code is OpCode.RESHAPE:
        op = op.src[0]
    if op.code is OpCode.SHRINK and isinstance(row := op.arg[0][0], int):
        whole = op.src[0]
        if op.arg == ((row, row + 1), *[(0, dim) for dim in whole.shape[1:]]):
            return whole, row
    return None, 0


# ---- stacks of matrices (..., m, n) ----
def product(*factors: Op) -> Op:
    """Returns the product of matrices, from left to right."""
    result, *rest = factors
    for factor in rest:
        result = Op(OpCode.MATMUL, result.dtype, (result, factor))
    return result


def triangle(x: Op, lower: bool, diagonal: float = 1.0) -> Op:
    """Returns one triangle of x, and so much of its diagonal."""
    last = len(x.shape) - 1
    row, column = positions(x.shape, last - 1), positions(x.shape, last)
    inside = less(column, row) if lower else less(row, column)
    on = zeros_like(x) if not diagonal else x if diagonal == 1.0 else x * diagonal
    return where(inside, x, where(equal(row, column), on, zeros_like(x)))


def with_diagonal(x: Op, values: Op) -> Op:
    """Returns x with `values` on its diagonal."""
    return where(is_on_diagonal(x.shape), along_rows(values, x), x)


def is_on_diagonal(shape: Shape) -> Op:
    """Returns for each element of matrices (..., m, n) whether it is on the diagonal."""
    last = len(shape) - 1
    return equal(positions(shape, last - 1), positions(shape, last))


def along_rows(values: Op, x: Op) -> Op:
    """Returns a vector (..., n) as each row of a matrix like x (..., m, n)."""
    return repeat_axes(values, (len(x.shape) - 2,), x.shape)


def along_columns(values: Op, x: Op) -> Op:
    """Returns a vector (..., m) as each column of a matrix like x (..., m, n)."""
    return repeat_axes(values, (len(x.shape) - 1,), x.shape)


def everywhere(values: Op, x: Op) -> Op:
    """Returns a number for each matrix of x, at each of its elements."""
    last = len(x.shape)
    return repeat_axes(values, (last - 2, last - 1), x.shape)


def total(x: Op) -> Op:
    """Returns the sum of the elements of each matrix."""
    return reduce(x, OpCode.ADD, (len(x.shape) - 2, len(x.shape) - 1))


def factors_of(x: Op, m: int, n: int) -> tuple[Op, Op, Op]:
    """Returns the factors (..., m, k), (..., k) and (..., k, n) that are one after the other in x."""
    first, middle, _ = lengths(m, n)
    batch, k = x.shape[:-1], min(m, n)
    u, s = shrink_axis(x, -1, 0, first), shrink_axis(x, -1, first, first + middle)
    return reshape(u, (*batch, m, k)), s, reshape(shrink_axis(x, -1, first + middle, sum(lengths(m, n))), (*batch, k, n))


def rows_columns(x: Op) -> tuple[int, int]:
    m, n = static_shape(x.shape[-2:])
    return m, n


def diagonal(x: Op) -> Op:
    """Returns the diagonal (..., min(m, n)) of x (..., m, n), whose lengths may be symbolic where they are one.

    k x k elements and k zeros, in rows longer by one: the diagonal is the first column.
    """
    k, batch = x.shape[-1], x.shape[:-2]
    if x.shape[-2] is not k and x.shape[-2] != k:
        k = min(rows_columns(x))
        x = shrink_axis(shrink_axis(x, -2, 0, k), -1, 0, k)
    flat = pad_axis(reshape(x, (*batch, mul(k, k))), -1, 0, k)
    return reshape(shrink_axis(reshape(flat, (*batch, k, add(k, 1))), -1, 0, 1), (*batch, k))
