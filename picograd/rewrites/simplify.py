"""Rules that make a tensor graph smaller without changing a bit of its values.

In:    a tensor graph (not a Program: there EXPAND and REDUCE are about lanes)
Out:   `simplify`, `strip_identity`: tables; `simplify_graph`: one pass from the sources to the roots

Only integers reassociate. Three things may change, as they do from device to device: the payload of a NaN, the sign of a
MAX or MIN of zeros of both signs, and the sign of a sum of nothing but negative zeros. LEAF and DETACH say where gradients
are collected and stopped, so `simplify` keeps them; `strip_identity` removes them once all gradients are taken.

To read it, begin with the tables at the end: a row is a law; a law that takes more than a line is a function above.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from picograd.dtype import DType
from picograd.ir.arithmetic import fold, identity
from picograd.ir.build import cast, equal, expand, iota, pad, permute, reduce, reshape, shrink, where
from picograd.ir.op import Op, const_value, filled, toposort
from picograd.ir.opcode import ELEMENTWISE, OpCode
from picograd.ir.pattern import Pattern, PatternMatcher, graph_rewrite
from picograd.ir.ranges import value_range
from picograd.ir.symbolic import add, bounds, mul, subtract

REPEATING = (OpCode.RESHAPE, OpCode.PERMUTE, OpCode.EXPAND, OpCode.SHRINK, OpCode.FLIP)
COMPUTING = (
    *ELEMENTWISE, *REPEATING, OpCode.PAD, OpCode.REDUCE, OpCode.SCAN, OpCode.GATHER, OpCode.SCATTER, OpCode.MATMUL,
    OpCode.CONV,
)  # fmt: skip
COMMUTATIVE = (OpCode.ADD, OpCode.MUL, OpCode.AND, OpCode.OR, OpCode.XOR)


def simplify_graph(roots: Sequence[Op], rules: PatternMatcher | None = None) -> list[Op]:
    """Returns `roots` simplified.

    After:   no rule applies to a node as it was built; equal parts are the same Op.
    Before:  runs after gradients are taken, from the graph that the user wrote.
    Example: (x + 199) + 200  ->  x + 399        # integers
    """
    became = graph_rewrite(roots, simplify if rules is None else rules)
    return [became[root] for root in roots]


def _is_zero(op: Op, sign: float) -> bool:
    """True for an integer 0, or a float 0 with this sign."""
    value = const_value(op)
    return value is not None and value == 0 and (op.dtype.kind != "f" or math.copysign(1.0, value) == sign)


# ---- constants ----
def fold_constants(out: Op) -> Op | None:
    values = []
    for s in out.src:
        value = const_value(s)
        if value is None:
            return None
        values.append(value)
    result = fold(out.code, out.dtype, out.src[-1].dtype, values)
    return None if result is None else filled(result, out.dtype, out.shape)


def constant_right(out: Op) -> Op | None:
    a, b = out.src
    return out.replace(src=(b, a)) if const_value(a) is not None and const_value(b) is None else None


def nothing(out: Op) -> Op | None:
    return filled(0, out.dtype, out.shape) if 0 in out.shape else None


def movement_of_constant(out: Op) -> Op | None:
    value = const_value(out)
    plain = out.code is OpCode.EXPAND and out.src[0].code is OpCode.CONST
    return None if value is None or plain else filled(value, out.dtype, out.shape)


def pad_of_zeros(out: Op) -> Op | None:
    return filled(0, out.dtype, out.shape) if _is_zero(out.src[0], 1.0) else None


# ---- arithmetic ----
def add_zero(out: Op) -> Op | None:
    return out.src[0] if _is_zero(out.src[1], -1.0) else None


def sub_zero(out: Op) -> Op | None:
    return out.src[0] if _is_zero(out.src[1], 1.0) else None


def sub_constant(out: Op) -> Op | None:
    value = const_value(out.src[1])
    return None if value is None else out.src[0] + -value


def merge_constants(out: Op) -> Op | None:
    inner, outer = out.src[0], const_value(out.src[1])
    value = const_value(inner.src[1])
    if outer is None or value is None:
        return None
    merged = fold(out.code, out.dtype, out.dtype, [value, outer])
    return None if merged is None else out.replace(src=(inner.src[0], filled(merged, out.dtype, out.shape)))


def pow_two(out: Op) -> Op | None:
    # A POW of float64 is computed in float64 itself, so only there its last bit may differ from the product's.
    return out.src[0] * out.src[0] if out.dtype.itemsize < 8 or out.dtype.is_int else None


def where_constant(out: Op) -> Op | None:
    value = const_value(out.src[0])
    return None if value is None else out.src[1 if value else 2]


def where_same(out: Op) -> Op | None:
    condition, value, other = out.src
    if value is not other:
        return None
    # NOTE: a CHECK has to be made even where the value does not depend on it.
    return None if any(op.code is OpCode.CHECK for op in toposort([condition])) else value


def check_certain(out: Op) -> Op | None:
    (index,), (_, length) = out.src, out.arg
    low, high = value_range(index)
    return index if low >= 0 and high < bounds(length)[0] else None


def compare_certain(out: Op) -> Op | None:
    if out.src[0].dtype.is_float:
        return None
    (a_low, a_high), (b_low, b_high) = map(value_range, out.src)
    is_strict = out.code is OpCode.CMPLT
    if a_high < b_low + (not is_strict):
        return filled(True, out.dtype, out.shape)
    return filled(False, out.dtype, out.shape) if a_low >= b_high + (not is_strict) else None


def is_lossless(source: DType, target: DType) -> bool:
    """True when `target` holds every value of `source`."""
    if source is target or source.kind == "b":
        return True
    if target.kind == "b" or (source.kind == "f" and target.kind != "f"):
        return False
    if source.kind == "f" or target.kind != "f":
        return source.bits < target.bits and (source.kind != "i" or target.kind == "i")
    return source.bits - (source.kind == "i") <= target.precision


def cast_same(out: Op) -> Op | None:
    return out.src[0] if out.src[0].dtype is out.dtype else None


def cast_cast(out: Op) -> Op | None:
    inner = out.src[0]
    return cast(inner.src[0], out.dtype) if is_lossless(inner.src[0].dtype, inner.dtype) else None


# ---- movement ----
def same_movement(out: Op) -> Op | None:
    x = out.src[0]
    if out.code is OpCode.PERMUTE:
        return x if out.arg == tuple(range(len(out.arg))) else None
    if out.code is OpCode.FLIP:
        return x if all(x.shape[axis] == 1 for axis in out.arg) else None
    return x if out.shape == x.shape else None  # RESHAPE, EXPAND, PAD, SHRINK


def reshape_reshape(out: Op) -> Op:
    return reshape(out.src[0], out.arg)


def permute_permute(out: Op) -> Op:
    return permute(out.src[0], out.arg)


def expand_expand(out: Op) -> Op:
    return expand(out.src[0].src[0], out.arg)


def shrink_shrink(out: Op) -> Op:
    inner = out.src[0]
    bounds = tuple((add(first, start), add(first, stop)) for (first, _), (start, stop) in zip(inner.arg, out.arg))
    return shrink(inner.src[0], bounds)


def shrink_joined(out: Op) -> Op | None:
    """A part of joined values that is within one of them, as where their gradient is taken apart, is a part of that one."""
    mask, chosen, other = out.src[0].src
    spans = [(before, subtract(dim, after)) for dim, (before, after) in zip(mask.shape, mask.arg)]
    numbers = [*spans, *out.arg]
    if const_value(mask.src[0]) is not True or not all(isinstance(end, int) for span in numbers for end in span):
        return None
    if all(first <= start and stop <= end for (first, end), (start, stop) in zip(spans, out.arg)):
        return shrink(chosen, out.arg)
    if any(stop <= first or end <= start for (first, end), (start, stop) in zip(spans, out.arg)):
        return shrink(other, out.arg)
    return None


def pad_pad(out: Op) -> Op:
    inner = out.src[0]
    return pad(inner.src[0], tuple((add(a, c), add(b, d)) for (a, b), (c, d) in zip(inner.arg, out.arg)))


def flip_flip(out: Op) -> Op:
    inner = out.src[0]
    axes = tuple(sorted(set(inner.arg) ^ set(out.arg)))
    return out.replace(src=inner.src, arg=axes) if axes else inner.src[0]


def diagonal_matrix(out: Op, padded: Op) -> Op | None:
    """Rows of one element and n zeros, as rows shorter by one: no element asks where it is by a quotient."""
    shape = out.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        return None
    *batch, n, _ = shape
    margins = ((0, 0),) * (len(shape) - 1) + ((0, n),)
    kept = (*((0, dim) for dim in batch), (0, mul(n, n)))
    if (padded.src[0].shape, padded.arg, out.src[0].arg) != ((*batch, n, 1), margins, kept):
        return None
    row, column = (expand(reshape(iota(n), (*(1,) * len(batch), *own)), shape) for own in ((n, 1), (1, n)))
    return where(equal(row, column), expand(padded.src[0], shape), 0)


# ---- along axes ----
def reduce_short(out: Op) -> Op | None:
    x, (operation, axes) = out.src[0], out.arg
    gone = [axis for axis in axes if x.shape[axis] == 1]
    if axes and not gone:
        return None
    kept = [axis for axis in range(len(x.shape)) if axis not in gone]
    rest = tuple(kept.index(axis) for axis in axes if axis not in gone)
    return reduce(reshape(x, tuple(x.shape[axis] for axis in kept)), operation, rest)


def scan_short(out: Op) -> Op | None:
    return out.src[0] if out.src[0].shape[out.arg[1]] == 1 else None


def reduce_constant(out: Op) -> Op | None:
    """A REDUCE of nothing is its identity; of equal constants, what folds to the same bits."""
    x, (operation, axes) = out.src[0], out.arg
    lengths = [x.shape[axis] for axis in axes]
    value = const_value(x)
    if not all(isinstance(length, int) for length in lengths):
        return None
    count = math.prod(length for length in lengths if isinstance(length, int))
    if count == 0:
        return filled(identity(operation, out.dtype), out.dtype, out.shape)
    if value is None or (operation is OpCode.MUL and value != 1):
        return None
    if operation is OpCode.ADD:
        if out.dtype.kind == "f" and not _sums_exactly(value, count, out.dtype):
            return None
        value = value * count
    return filled(value, out.dtype, out.shape)


def _sums_exactly(value: float, count: int, dtype: DType) -> bool:
    """True when every partial sum of `count` times `value` is exact: whole multiples of one power of two that fit."""
    if not math.isfinite(value) or (value == 0 and math.copysign(1.0, value) == -1.0):
        return False
    numerator, _ = value.as_integer_ratio()
    odd = abs(numerator) // max(1, numerator & -numerator)
    return odd * count <= 1 << dtype.precision and math.isfinite(dtype.scalar(value * count))


def reduce_reduce(out: Op) -> Op | None:
    inner, (operation, axes) = out.src[0], out.arg
    if inner.arg[0] is not operation or (out.dtype.kind == "f" and operation in (OpCode.ADD, OpCode.MUL)):
        return None
    kept = [axis for axis in range(len(inner.src[0].shape)) if axis not in inner.arg[1]]
    merged = sorted((*inner.arg[1], *(kept[axis] for axis in axes)))
    return reduce(inner.src[0], operation, tuple(merged))


def matmul_of_nothing(out: Op) -> Op | None:
    return filled(0, out.dtype, out.shape) if out.src[0].shape[-1] == 0 else None


def bool_as_it_is(out: Op, x: Op) -> Op | None:
    if x.dtype.kind != "b":
        return None
    return x if out.code is OpCode.CMPNE else Op(OpCode.CMPEQ, out.dtype, (x, x.filled(False)))


# ---- the tables ----
def _on(code: OpCode | tuple[OpCode, ...], kinds: str = "biuf") -> Pattern:
    return Pattern(code, name="out", kinds=kinds)


def _twice(code: OpCode | tuple[OpCode, ...], kinds: str = "biuf") -> Pattern:
    """The Op on an Op of the same code."""
    inner = (Pattern(code), Pattern()) if code in (OpCode.ADD, OpCode.MUL) else (Pattern(code),)
    return Pattern(code, inner, name="out", kinds=kinds)


_ANY, _X = Pattern(), Pattern(name="x")
_CAST = Pattern(OpCode.CAST, (_X,))
_LONG_ROWS = Pattern(OpCode.RESHAPE, (Pattern(OpCode.PAD, name="padded"),))
_PART_OF_JOINED = Pattern(OpCode.SHRINK, (Pattern(OpCode.WHERE, (Pattern(OpCode.PAD), _ANY, _ANY)),), name="out")
_DIAGONAL = Pattern(OpCode.RESHAPE, (Pattern(OpCode.SHRINK, (_LONG_ROWS,)),), name="out")

simplify = PatternMatcher(
    [
        # ---- constants ----
        ("nothing", _on(COMPUTING), nothing),  # no elements: there is nothing to compute, and nothing to index
        ("fold constants", _on(tuple(ELEMENTWISE)), fold_constants),  # 199 + 200 = 399
        ("movement of constant", _on(REPEATING), movement_of_constant),  # reshape(expand(c)) = expand(c)
        ("pad of zeros", _on(OpCode.PAD), pad_of_zeros),  # pad(expand(0)) = expand(0)
        ("constant right", _on(COMMUTATIVE), constant_right),  # c + x = x + c
        # ---- arithmetic ----
        ("add zero", _on(OpCode.ADD), add_zero),  # x + 0 = x; floats: x + -0.0 = x, but -0.0 + 0.0 = 0.0
        ("sub zero", _on(OpCode.SUB), sub_zero),  # x - 0 = x; floats: x - 0.0 = x
        ("mul one", Pattern(OpCode.MUL, (_X, Pattern(value=1))), lambda x: x),  # x 1 = x
        ("mul zero", Pattern(OpCode.MUL, (_ANY, Pattern(value=0, name="c")), kinds="iu"), lambda c: c),  # x 0 = 0
        ("div one", Pattern(OpCode.DIV, (_X, Pattern(value=1))), lambda x: x),  # x / 1 = x
        ("idiv one", Pattern(OpCode.IDIV, (_X, Pattern(value=1)), kinds="iu"), lambda x: x),
        ("sub constant", _on(OpCode.SUB, "iu"), sub_constant),  # x - c = x + -c
        ("add add", _twice(OpCode.ADD, "iu"), merge_constants),  # (x + c) + d = x + (c + d)
        ("mul mul", _twice(OpCode.MUL, "iu"), merge_constants),  # (x c) d = x (c d)
        ("neg neg", Pattern(OpCode.NEG, (Pattern(OpCode.NEG, (_X,)),)), lambda x: x),  # -(-x) = x
        ("and true", Pattern(OpCode.AND, (_X, Pattern(value=True)), kinds="b"), lambda x: x),
        ("or false", Pattern(OpCode.OR, (_X, Pattern(value=False)), kinds="b"), lambda x: x),
        # int(b) != 0 = b;  int(b) == 0 = not b
        ("bool beside zero", Pattern((OpCode.CMPNE, OpCode.CMPEQ), (_CAST, Pattern(value=0)), name="out"), bool_as_it_is),
        ("pow one", Pattern(OpCode.POW, (_X, Pattern(value=1))), lambda x: x),  # x^1 = x
        ("pow two", Pattern(OpCode.POW, (_ANY, Pattern(value=2)), name="out"), pow_two),  # x^2 = x x
        ("cast same", _on(OpCode.CAST), cast_same),
        ("cast cast", _twice(OpCode.CAST), cast_cast),  # an exact cast on the way does nothing
        ("where constant", _on(OpCode.WHERE), where_constant),  # where(True, a, b) = a
        ("where same", _on(OpCode.WHERE), where_same),  # where(c, a, a) = a
        ("check of what is inside", _on(OpCode.CHECK), check_certain),
        ("compare what is certain", _on((OpCode.CMPLT, OpCode.CMPLE)), compare_certain),  # (x & 15) < 16
        # ---- movement ----
        ("same movement", _on((*REPEATING, OpCode.PAD)), same_movement),
        ("reshape reshape", _twice(OpCode.RESHAPE), reshape_reshape),  # only the last shape counts
        ("permute permute", _twice(OpCode.PERMUTE), permute_permute),
        ("expand expand", _twice(OpCode.EXPAND), expand_expand),
        ("shrink shrink", _twice(OpCode.SHRINK), shrink_shrink),
        ("shrink joined", _PART_OF_JOINED, shrink_joined),  # shrink(where(pad(True), a, b)) = shrink(a)
        ("pad pad", _twice(OpCode.PAD), pad_pad),
        ("flip flip", _twice(OpCode.FLIP), flip_flip),
        ("diagonal matrix", _DIAGONAL, diagonal_matrix),
        ("contiguous twice", Pattern(OpCode.CONTIGUOUS, (Pattern(OpCode.CONTIGUOUS, name="x"),)), lambda x: x),
        ("detach twice", Pattern(OpCode.DETACH, (Pattern(OpCode.DETACH, name="x"),)), lambda x: x),
        # ---- along axes ----
        ("reduce short", _on(OpCode.REDUCE), reduce_short),  # an axis of length 1 has nothing to combine
        ("scan short", _on(OpCode.SCAN), scan_short),
        ("reduce constant", _on(OpCode.REDUCE), reduce_constant),  # sum of n c = n c; max of c = c
        ("reduce reduce", _twice(OpCode.REDUCE), reduce_reduce),  # max over i of max over j = max over i, j
        ("matmul of nothing", _on(OpCode.MATMUL), matmul_of_nothing),  # K = 0: an empty sum
    ]
)

DETOURS = frozenset({OpCode.LEAF, OpCode.DETACH})
strip_identity = PatternMatcher(
    [
        ("strip leaf", Pattern(OpCode.LEAF, (_X,)), lambda x: x),
        ("strip detach", Pattern(OpCode.DETACH, (_X,)), lambda x: x),
    ]
)
