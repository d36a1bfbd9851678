"""The meaning of a graph with a bound on the rounding error of each element: the one tolerance of `verify`.

A running error analysis (Wilkinson 1963; Higham 2002, Accuracy and Stability of Numerical Algorithms, 3.3): every Op has a
value by the evaluator, and a bound on a device's distance from the exact result. Inputs are exact, since each kernel is
compared on its own inputs. In order:

    elementwise     the function at the ends of its operands' intervals, plus its own roundings. With exact operands,
    + - * / and a square root have no error: IEEE 754 defines their last bit, and no compiler may contract them
    sums, products  the errors of the terms, plus LAMBDA sqrt(n) roundings of the sum of magnitudes, the size of n roundings
    of random sign (Higham and Mary 2019, SIAM J. Sci. Comput. 41(5))
    movement        the errors move with the elements
    indices         rounded indices are intervals, too; their reads and writes are in choices.py

The evaluator rounds, too, so two values agree if they differ by at most twice the bound.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.evaluator.elementwise import ELEMENTWISE_RULES, Array, double
from picograd.evaluator.graph import CONTRACTION_RULES, RULES, Variables, apply, shape_value
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import COMPARE, ELEMENTWISE, FUNCTIONS, IDENTITY, MOVEMENT, SEVERAL_RESULTS, OpCode
from picograd.ir.shape import takes_tf32
from picograd.rewrites.contract import compose_attention
from picograd.rewrites.simplify import is_lossless
from picograd_lab.verify import choices
from picograd_lab.verify.bits import BITWISE, of_bits

GIVEN_TOLERANCES: dict[DType, float] = {  # of a user's kernel, as a share of the result's largest element
    dtypes.float64: 1e-12, dtypes.float32: 1e-5, dtypes.float16: 4e-3, dtypes.bfloat16: 3e-2,
    dtypes.float8_e4m3: 0.2, dtypes.float8_e5m2: 0.4,
}  # fmt: skip
LAMBDA = 4.0  # factor of a sum; roundings agree in sign as often as by chance
PLAIN_ROUNDINGS = 2  # roundings of + - * / and a square root, each half an ulp
FUNCTION_ROUNDINGS = 8  # tests/numerics holds every function of every device to half of this
POW_ROUNDINGS = 16
TF32_UNIT = 2.0**-11
WINOGRAD_FACTOR = 16.0  # transforms add neighbours before they multiply (Lavin and Gray 2016, arXiv:1509.09308)
WINOGRAD_REACH = 7  # places of a tile to each side of one
EXACT = COMPARE | MOVEMENT | IDENTITY | {
    OpCode.NEG, OpCode.FLOOR, OpCode.MAX, OpCode.MIN, OpCode.WHERE, OpCode.CHECK, OpCode.BITCAST, OpCode.MOD, OpCode.IDIV,
}  # fmt: skip
ALONG_AXES = frozenset({OpCode.REDUCE, OpCode.SCAN, OpCode.SCATTER})
# Rounded once by every device, and in its own dtype if that is a wide one (narrow floats are computed in float32).
ROUNDED_ONCE = frozenset({OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.DIV, OpCode.SQRT, OpCode.CAST})
# Of integers, those whose results are between those at the ends of their operands' intervals.
MONOTONE = COMPARE | {
    OpCode.NEG, OpCode.ADD, OpCode.SUB, OpCode.MUL, OpCode.IDIV, OpCode.MAX, OpCode.MIN, OpCode.CAST, OpCode.WHERE,
}  # fmt: skip
WHOLE_MAX = 2.0**53  # float64 represents integers up to here exactly


class Bounded(NamedTuple):
    """The value of an Op.

    error:  float64, in its shape; None: exact, infinity: unknown
    """

    value: Array
    error: Array | None


def bounded(outputs: Sequence[Op], values: Mapping[Op, Array], variables: Mapping[str, int] | None = None) -> list[Bounded]:
    """Returns the value of each output, with its bound.

    Args:
      values:     arrays of PARAMs, in their shapes; they are exact
      variables:  values of symbolic integers by name

    Raises:
      Refused: a CHECK rejects an index.
    """
    known, roots = dict(variables or {}), compose_attention(outputs)
    found: dict[Op, Any] = {}
    with np.errstate(all="ignore"):
        for op in toposort(roots, stop=values):
            if op in values:
                found[op] = Bounded(np.asarray(values[op]).reshape(shape_value(op.shape, known)), None)
            else:
                found[op] = _bounded(op, [found[s] for s in op.src], known)
    return [found[root] for root in roots]


def unit(dtype: DType) -> float:
    """Returns the unit roundoff: half an ulp of 1."""
    return 2.0**-dtype.precision


def _bounded(op: Op, args: Sequence[Any], variables: Variables) -> Any:
    if op.code in SEVERAL_RESULTS:
        results = apply(op, [arg.value for arg in args], variables)
        assert isinstance(results, tuple)
        if op.code is OpCode.KERNEL:
            return [Bounded(result, of_given(result, dtype) / 2) for result, dtype in zip(results, op.arg[0].dtypes)]
        return [Bounded(result, _unknown(result)) for result in results]
    if op.code is OpCode.OUTPUT:
        return args[0][op.arg]
    value = np.asarray(apply(op, [arg.value for arg in args], variables))
    error = _error(op, value, args, variables)
    return Bounded(value, None if error is None or not error.any() else error)


def of_given(value: Array, dtype: DType) -> Array:
    """Returns the error bound of each element of a user's kernel, whose operations are unknown."""
    size = np.abs(value.astype(np.float64))
    most = float(size[np.isfinite(size)].max(initial=0.0))
    return np.full(value.shape, GIVEN_TOLERANCES[dtype] * max(most, 1e-37) if dtype.is_float else 0.0)


def _error(op: Op, value: Array, args: Sequence[Bounded], variables: Variables) -> Array | None:
    errors = [arg.error for arg in args]
    is_known = all(error is None for error in errors)
    if op.code in (OpCode.CMPEQ, OpCode.CMPNE) and not is_known:
        if op.src[0] is op.src[1]:  # only a NaN differs from itself
            return np.where(np.isinf(_whole(args[0])), 1.0, 0.0)
        if (reduced := choices.extreme_beside(op)) is not None:
            return choices.of_extreme(reduced, args[0].value, _whole(args[0]))
    if op.code in BITWISE and op.src[0].dtype.kind != "b":
        return None if is_known else of_bits(op, value, [arg.value for arg in args], [_whole(arg) for arg in args])
    if op.code in ELEMENTWISE and op.code is not OpCode.CHECK:
        moved = None if is_known else _at_the_ends(op, args)
        return _with_roundings(op, value, args, moved)
    if op.code in ALONG_AXES or op.code in CONTRACTION_RULES:
        is_sum = op.code in CONTRACTION_RULES or op.arg[0] in (OpCode.ADD, OpCode.MUL)
        if is_known and not (is_sum and op.dtype.is_float):
            return None
        if op.code is OpCode.SCATTER and errors[1] is not None:
            certain = _along_axes(op, value, [args[0], args[1]._replace(error=None), args[2]], variables, is_sum)
            return choices.of_scatter(op, [arg.value for arg in args], [_whole(arg) for arg in args], certain, variables)
        return _along_axes(op, value, args, variables, is_sum)
    if is_known:
        return None
    if op.code is OpCode.CHECK:
        return errors[0]
    if op.code in MOVEMENT | IDENTITY | {OpCode.UPDATE}:
        return np.asarray(RULES[op.code](op, [_whole(arg) for arg in args], variables))
    if op.code is OpCode.GATHER:
        return choices.of_gather(op, value, [arg.value for arg in args], [_whole(arg) for arg in args], variables)
    if op.code is OpCode.SORT and errors[1:] in ([], [None]):
        return choices.of_sort(op, [arg.value for arg in args], _whole(args[0]), variables)
    return _unknown(value)


def _along_axes(op: Op, value: Array, args: Sequence[Bounded], variables: Variables, is_sum: bool) -> Array:
    if op.dtype.kind != "b" and is_sum:
        return _of_sums(op, value, args, variables)
    return _of_choices(op, value, args, variables)


def _whole(arg: Bounded) -> Array:
    return np.zeros(arg.value.shape) if arg.error is None else arg.error


def _unknown(value: Array) -> Array:
    return np.full(value.shape, np.inf)


def _distance(a: Any, b: Any) -> Array:
    """Returns |a - b|; 0 for equal infinities or two NaN, infinity if only one is a number."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(invalid="ignore"):
        far = np.asarray(np.abs(a - b))
    if not np.isnan(far).any():  # neither NaN nor infinities that are equal: nearly always, and the whole of it
        return far
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.where(np.isnan(far), np.inf, far))


# ---- elementwise ----
def _ends(arg: Bounded, dtype: DType) -> list[Array]:
    """Returns the ends of an operand's interval; both values for an uncertain bool."""
    value, error = arg
    if dtype.kind == "b" and error is not None:
        return [value, value ^ (error > 0)]
    wide = double(value, dtype)
    return [wide] if error is None else [wide - error, wide + error]


def _at_the_ends(op: Op, args: Sequence[Bounded]) -> Array:
    """Returns the result's change if the operands move within their bounds."""
    rule, dtypes = ELEMENTWISE_RULES[op.code], [s.dtype for s in op.src]
    if op.code in (OpCode.CMPEQ, OpCode.CMPNE) or (op.code is OpCode.CAST and op.dtype.kind == "b"):
        return _where_they_meet(args)
    whole = any(arg.error is not None and dtype.is_int for arg, dtype in zip(args, dtypes))
    if whole and op.code not in MONOTONE or op.code is OpCode.IDIV and args[1].error is not None:
        return _unless_certain(op, args)
    if whole:  # computed in float64, which does not wrap
        args = [Bounded(arg.value.astype(np.float64), arg.error) if d.is_int else arg for arg, d in zip(args, dtypes)]
    middle = rule(op, [double(arg.value, dtype) for arg, dtype in zip(args, dtypes)])
    ends = [_ends(arg, dtype) for arg, dtype in zip(args, dtypes)]
    if op.code is OpCode.SQRT:  # only the nonnegative part of an interval
        ends = [[np.where(ends[0][-1] < 0, end, np.maximum(end, 0.0)) for end in ends[0]]]
    moved = np.zeros(np.shape(middle))
    for corner in itertools.product(*ends):
        moved = np.maximum(moved, _distance(end := rule(op, corner), middle))
        if whole and op.dtype.is_int:
            least, most = max(op.dtype.min, -WHOLE_MAX), min(op.dtype.max, WHOLE_MAX)
            moved = np.where((least <= end) & (end <= most) | (moved == 0), moved, np.inf)
    divisor = {OpCode.DIV: 1, OpCode.RECIPROCAL: 0}.get(op.code)
    if divisor is not None and args[divisor].error is not None:
        value, error = double(args[divisor].value, dtypes[divisor]), _whole(args[divisor])
        moved = np.where((error > 0) & (np.abs(value) <= error), np.inf, moved)
    return moved


def _where_they_meet(args: Sequence[Bounded]) -> Array:
    """Returns 1 if two intervals, or one and 0, overlap, so that equality is uncertain."""
    apart = _distance(args[0].value, args[1].value if len(args) > 1 else 0)
    reach = sum((_whole(arg) for arg in args), np.zeros(apart.shape))
    return np.where((reach > 0) & (apart <= reach), 1.0, 0.0)


def _unless_certain(op: Op, args: Sequence[Bounded]) -> Array:
    """Returns infinity for uncertain integers, except for a remainder by an exact divisor."""
    (value, error), *others = args
    if op.code is OpCode.MOD and others[0].error is None and error is not None:
        below, above, by = value - error, value + error, np.abs(others[0].value.astype(np.float64))
        with np.errstate(all="ignore"):
            is_one_turn = np.floor(below / by) == np.floor(above / by)
        return np.where(error == 0, 0.0, np.where(is_one_turn, error, by))
    moves = [_whole(arg) > 0 for arg in args]
    return np.where(np.logical_or.reduce(moves), np.inf, 0.0)


def _roundings(op: Op) -> int:
    if op.code in EXACT or not op.dtype.is_float:
        return 0
    if op.code is OpCode.CAST:
        return 0 if is_lossless(op.src[0].dtype, op.dtype) else 1
    if op.code is OpCode.POW:
        return POW_ROUNDINGS
    return FUNCTION_ROUNDINGS if op.code in FUNCTIONS - {OpCode.SQRT} else PLAIN_ROUNDINGS


def _with_roundings(op: Op, value: Array, args: Sequence[Bounded], moved: Array | None) -> Array | None:
    count = _roundings(op)
    if not count:
        return moved
    made = _rounding(value, op.dtype) * count
    if op.code in (OpCode.EXP, OpCode.EXP2):
        made = np.where(np.isneginf(args[0].value), 0.0, made)
    if op.code in (OpCode.SIN, OpCode.COS, OpCode.LOG, OpCode.LOG2):
        made += np.where(np.isfinite(made), unit(op.dtype), 0.0)  # near the function's zeros
    if op.code is OpCode.FMA:  # a processor without the instruction rounds the product, too
        a, b = (double(arg.value, op.dtype) for arg in args[:2])
        made = made + _rounding(a * b, op.dtype)
    if op.code in ROUNDED_ONCE | {OpCode.FMA}:
        made = np.where(_is_exact(op, value, args), 0.0, made)
    return made if moved is None else moved + made


def _is_exact(op: Op, value: Array, args: Sequence[Bounded]) -> Array:
    """Returns True for elements for which every device has the same bits: exact operands, no subnormal result.

    An FMA, and a narrow result computed in float32, may be rounded twice; exact if nothing is lost.
    """
    size, plain = np.abs(value.astype(np.float64)), [double(arg.value, s.dtype) for arg, s in zip(args, op.src)]
    certain = [_whole(arg) == 0 for arg in args]
    exact: Array = np.logical_and.reduce([np.broadcast_to(one, value.shape) for one in certain])
    if op.code in (OpCode.MUL, OpCode.DIV):  # an exact 0, multiplied or divided by anything
        nothing = [sure & (arg.value == 0) for sure, arg in zip(certain, args)]
        exact = exact | (size == 0) & (nothing[0] | nothing[1] & (op.code is OpCode.MUL))
    exact = exact & ((size == 0) | (size >= _least(op.dtype)))
    if op.code is OpCode.FMA:
        product = plain[0] * plain[1]  # exact for two float32
        return exact & (op.dtype.itemsize < 8) & (product.astype(op.dtype.numpy) == product) & (product + plain[2] == value)
    is_rounded_once = op.dtype.itemsize >= 4 or op.code is OpCode.CAST and op.src[0].dtype is dtypes.float32
    return exact if is_rounded_once else exact & np.equal(ELEMENTWISE_RULES[op.code](op, plain), value)


def _rounding(value: Array, dtype: DType) -> Array:
    """Returns half an ulp of each element, or the possible loss of a subnormal number."""
    size = np.abs(value.astype(np.float64))
    return np.where(np.isfinite(size), size * unit(dtype) + _least(dtype), 0.0)


def _least(dtype: DType) -> float:
    """Returns the least normal number, below which devices may flush to 0; for small exponents, the least number."""
    exponent = 1 - dtype.exponent_bias
    return 2.0 ** (exponent if exponent < -100 else exponent + 1 - dtype.precision)


# ---- sums and products of many ----
def _terms(op: Op, args: Sequence[Bounded]) -> int:
    """Returns the largest number of terms of one result."""
    shape: tuple[int, ...] = args[0].value.shape
    if op.code is OpCode.REDUCE:
        return math.prod([int(shape[axis]) for axis in op.arg[1]])
    if op.code is OpCode.SCAN:
        return int(shape[op.arg[1]])
    if op.code is OpCode.SCATTER:
        return 1 + int(math.prod(args[1].value.shape[op.arg[2] :]))
    return shape[-1] if op.code is OpCode.MATMUL else int(math.prod(args[1].value.shape[1:]))


def _of_sums(op: Op, value: Array, args: Sequence[Bounded], variables: Variables) -> Array:
    """Returns the bound of sums, of sums of products, and of products along axes; integers do not round."""
    numbers = [i for i, s in enumerate(op.src) if op.code is not OpCode.SCATTER or i != 1]
    plain = [double(arg.value, s.dtype) for arg, s in zip(args, op.src)]
    sizes = [np.abs(a.astype(np.float64)) if i in numbers else a for i, a in enumerate(plain)]
    wide = [a + args[i].error if args[i].error is not None else a for i, a in enumerate(sizes)]
    rule = _rule_of_sizes(op if op.dtype.is_float else _of_doubles(op))
    magnitude = rule(sizes, variables)
    most = rule(wide, variables) if any(args[i].error is not None for i in numbers) else magnitude
    moved = most - magnitude
    if not op.dtype.is_float:
        return np.where(np.isnan(moved), np.inf, moved)
    count = _terms(op, args)
    # Narrow floats are summed in float32, except scattered ones, which are added in memory.
    accumulating = unit(op.dtype) if op.code is OpCode.SCATTER else min(unit(op.dtype), 2.0**-24)
    chance = min(float(count), LAMBDA * math.sqrt(count))
    if op.code is OpCode.CONV and math.prod(args[1].value.shape[2:]) > 1:
        if op.arg.of_weight:  # its taps are few, and a transform of a tile has products of other distances, too
            magnitude = rule([_of_neighbours(sizes[0]), sizes[1]], variables)
        axes = tuple(range(2, magnitude.ndim))
        magnitude = WINOGRAD_FACTOR * np.broadcast_to(magnitude.max(axis=axes, keepdims=True, initial=0), magnitude.shape)
    made = chance * accumulating * magnitude
    if op.code in CONTRACTION_RULES and takes_tf32(op):
        made = made + 2 * TF32_UNIT * magnitude
    error = moved + made + np.where(most > 0, _rounding(value, op.dtype), 0.0)  # zeros add up to 0
    if op.dtype.itemsize < 8 and _is_of_certain_terms(op, args):
        error = np.where(np.isfinite(magnitude), error, 0.0)  # infinities and NaN decide a sum in any order
    return np.where(np.isnan(error), np.inf, error)


def _of_neighbours(images: Array) -> Array:
    """Returns the largest elements within the tiles of a transform that have a place in common."""
    for axis in range(2, images.ndim):
        room = [(0, 0)] * axis + [(WINOGRAD_REACH, WINOGRAD_REACH)] + [(0, 0)] * (images.ndim - axis - 1)
        windows = np.lib.stride_tricks.sliding_window_view(np.pad(images, room), 2 * WINOGRAD_REACH + 1, axis)
        images = windows.max(-1)
    return images


def _is_of_certain_terms(op: Op, args: Sequence[Bounded]) -> bool:
    """True for sums whose terms are each certainly finite or certainly not; products need a certain sign."""
    if op.code is OpCode.MATMUL:
        return all(arg.error is None for arg in args)
    is_sum = op.code in (OpCode.REDUCE, OpCode.SCAN) and op.arg[0] is OpCode.ADD
    return is_sum and bool(np.isfinite(_whole(args[0])).all())


def _rule_of_sizes(op: Op) -> Any:
    """Returns the function that combines magnitudes as the Op combines values, in float64."""
    if op.code is OpCode.REDUCE:
        ufunc = np.add if op.arg[0] is OpCode.ADD else np.multiply
        return lambda a, _: np.asarray(ufunc.reduce(a[0], axis=op.arg[1]))
    if op.code is OpCode.SCAN:
        ufunc = np.add if op.arg[0] is OpCode.ADD else np.multiply
        return lambda a, _: np.asarray(ufunc.accumulate(a[0], axis=op.arg[1]))
    return lambda a, variables: np.asarray(RULES[op.code](op, a, variables))


def _of_choices(op: Op, value: Array, args: Sequence[Bounded], variables: Variables) -> Array:
    """Returns the bound of an extreme element, of any/all conditions, and of stores."""
    if op.code is OpCode.SCATTER and op.arg[0] is None:
        return np.asarray(RULES[op.code](op, [_whole(args[0]), args[1].value, _whole(args[2])], variables))
    is_bool, rule = op.dtype.kind == "b", RULES[op.code]
    alike = op if is_bool else _of_doubles(op)
    found = []
    for sign in (0.0, -1.0, 1.0):
        ends = []
        for arg, s in zip(args, alike.src):
            if s.dtype.kind == "b":
                ends.append(np.where(_whole(arg) > 0, sign > 0, arg.value) if sign else arg.value)
            else:
                ends.append(arg.value.astype(s.dtype.numpy) + sign * _whole(arg) if s.dtype.is_float else arg.value)
        found.append(rule(alike, ends, variables))
    middle, *moved = found
    return np.maximum(*[_distance(end, middle) for end in moved])


def _of_doubles(op: Op) -> Op:
    """Returns an Op with float64 in place of its numbers, except for the index of a SCATTER."""
    is_index = [op.code is OpCode.SCATTER and i == 1 for i in range(len(op.src))]
    doubles = [Op(OpCode.PARAM, dtypes.float64, (), (i, s.shape)) for i, s in enumerate(op.src)]
    src = [s if keep else double for s, double, keep in zip(op.src, doubles, is_index)]
    return Op(op.code, dtypes.float64, tuple(src), op.arg)


# ---- comparing ----
class Difference(NamedTuple):
    """The largest error of an array.

    ulp:      in units in the last place of the element's value; for integers, in steps of 1
    share:    of the tolerance at that element; above 1 it is too large
    wrong:    number of elements outside the tolerance
    at:       flat index of the element with the largest share
    unbounded: number of elements without a bound
    """

    ulp: float
    share: float
    wrong: int
    at: int
    unbounded: int


def difference(found: Array, expected: Array, error: Array | None, dtype: DType) -> Difference:
    """Compares a device's result with the meaning: the tolerance is twice the bound, and 0 for exact elements."""
    if not found.size:
        return Difference(0.0, 0.0, 0, 0, 0)
    far = _distance(found.reshape(-1), expected.reshape(-1))
    if dtype.is_int:
        far = np.where(found.reshape(-1) == expected.reshape(-1), 0.0, np.maximum(far, 1.0))
    allowed = np.zeros(far.shape) if error is None else 2 * error.reshape(-1)
    with np.errstate(all="ignore"):
        share = np.where(far == 0, 0.0, np.where(np.isinf(allowed), 0.0, far / np.maximum(allowed, 2.0**-1074)))
        ulps = np.where(np.isfinite(far), far / _ulp(expected.reshape(-1), dtype), np.inf)
    at = int(share.argmax())
    most = float(np.where(np.isinf(allowed), 0.0, ulps).max())
    return Difference(most, float(share[at]), int((share > 1).sum()), at, int(np.isinf(allowed).sum()))


def _ulp(value: Array, dtype: DType) -> Array:
    if not dtype.is_float:
        return np.ones(value.shape)
    _, exponent = np.frexp(np.abs(value.astype(np.float64)))
    return np.asarray(np.maximum(np.ldexp(1.0, exponent - dtype.precision), _least(dtype) * unit(dtype)))
