"""Constructors of Ops for users' arguments: broadcasting, promotion, steps of views, axes."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from picograd import dtype as dtypes
from picograd.annotations import shown
from picograd.dtype import DType
from picograd.errors import ArgumentError, ArgumentTypeError, DTypeError, IndexingError, ShapeError
from picograd.ir.build import bitcast, cast, differs, either, equal, expand, iota, less_equal, permute, reshape, where
from picograd.ir.checks import Site, checked
from picograd.ir.op import Dim, Op, Shape, const_value, filled
from picograd.ir.opcode import OpCode
from picograd.ir.origin import Graphless, graphless_in, is_graphless

if TYPE_CHECKING:
    from typing_extensions import TypeIs

CATEGORY = {"b": 0, "i": 1, "u": 1, "f": 2}  # as in PyTorch: within one category a 0-d tensor does not widen the other


# ---- views ----
def apply_step(op: Op, code: OpCode, arg: Any) -> Op:
    """Returns one step of a view applied to `op`."""
    if code is OpCode.RESHAPE:
        return reshape(op, arg)
    if code is OpCode.PERMUTE:
        return permute(op, arg)
    if code is OpCode.DETACH:
        return Op(code, op.dtype, (op,)) if graphless_in((op,)) is not None else detached(op)
    return Op(code, op.dtype, (op,), arg)


# ---- broadcasting ----
@functools.lru_cache(maxsize=1024)
def broadcast_shapes(function: str, *shapes: Shape) -> Shape:
    """Returns the shape that all `shapes` broadcast to, by NumPy's rule; cached, since a network repeats the same few.

    Raises:
      ShapeError: two lengths of one axis differ and neither is 1.
    """
    rank = max(len(shape) for shape in shapes)
    result: list[Dim] = [1] * rank
    for shape in shapes:
        for axis, dim in enumerate(shape, rank - len(shape)):
            if result[axis] == 1:
                result[axis] = dim
            elif dim != 1 and dim != result[axis]:
                shown = " and ".join(str(s) for s in shapes)
                raise ShapeError(
                    f"{function}: shapes {shown} do not broadcast: axis {axis - rank} is {result[axis]} and {dim}.",
                    hint="lengths must be equal or 1, counted from the last axis; reshape or unsqueeze one of them.",
                )
    return tuple(result)


def broadcasts(shape: Shape, whole: Shape) -> bool:
    """Returns whether a shape can be broadcast to another one."""
    return len(shape) <= len(whole) and all(n in (1, m) for n, m in zip(shape[::-1], whole[::-1]))


def broadcast_to(op: Op, shape: Shape) -> Op:
    """Returns `op` broadcast to `shape`: axes of length 1 are added in front, then repeated."""
    if op.shape == shape:
        return op
    if op.shape and len(op.shape) < len(shape):
        op = reshape(op, (1,) * (len(shape) - len(op.shape)) + op.shape)
    return expand(op, shape)


def same_as_iota(op: Op, shape: Shape) -> Op:
    """Returns, with shape (*op.shape, n), whether op equals the position along the last axis."""
    line = cast(iota(shape[-1]), op.dtype)
    return equal(broadcast_to(reshape(op, (*op.shape, 1)), shape), broadcast_to(line, shape))


# ---- dtypes ----
def as_bits(op: Op, dtype: DType) -> Op:
    """Returns the bits of `op` as a dtype of its width; a bool is a byte, and every byte except 0 is true."""
    if op.dtype is dtype:
        return op
    if op.dtype is dtypes.bool_:
        op = cast(op, dtypes.uint8)
    if dtype is dtypes.bool_:
        return differs(as_bits(op, dtypes.uint8), 0)
    return bitcast(op, dtype)


def promoted(a: Op, b: Op) -> DType:
    """Returns the dtype of `a op b` by PyTorch's rule: a 0-d operand can only raise the other's category."""
    if a.dtype is b.dtype:
        return a.dtype
    if bool(a.shape) != bool(b.shape):
        full, single = (a, b) if a.shape else (b, a)
        if CATEGORY[single.dtype.kind] <= CATEGORY[full.dtype.kind]:
            return full.dtype
        return single.dtype
    return dtypes.promote(a.dtype, b.dtype)


def common_dtype(ops: Sequence[Op]) -> DType:
    """Returns the common dtype of `ops`; 0-d Ops count like others."""
    return functools.reduce(dtypes.promote, dict.fromkeys([op.dtype for op in ops]))


def to_float(op: Op) -> Op:
    """Returns `op` as a float: integers become the default float, as in PyTorch."""
    return op if op.dtype.kind == "f" else cast(op, dtypes.default_float)


def need_float(function: str, op: Op, name: str = "") -> Op:
    """Returns an operand that is a float; errors call it `name` if a function has several.

    Raises:
      DTypeError: it is not a float.
    """
    if op.dtype.kind != "f":
        rule = f"{name} must be a float" if name else "needs a float"
        raise DTypeError(f"{function}: {rule}, got {op.dtype} of shape {op.shape}.", hint=f"{name or 'x'}.float()")
    return op


def computed_in(dtype: DType, function: Callable[..., Op], ops: Sequence[Op], *args: Any) -> Op:
    """Applies `function` to operands of one dtype in a wider one, so that the result is rounded only once."""
    result = function(*[cast(op, dtype) for op in ops], *args)
    return cast(result, ops[0].dtype) if result.dtype.kind == "f" else result


def detached(op: Op) -> Op:
    """Returns `op` without gradient."""
    return Op(OpCode.DETACH, op.dtype, (op,)) if op.needs_grad or Graphless.living and is_graphless(op) else op


# ---- values that a function refuses ----
def guarded(op: Op, inside: Op, fact: str, hint: str | None = None) -> Op:
    """Returns `op`; computing it raises an error unless all of `inside`, which broadcasts to its shape, is true."""
    wrong = where(inside, filled(0, dtypes.int64, inside.shape), 1)
    passed = checked(wrong, 1, Site(fact, hint, of_values=True))
    return where(broadcast_to(equal(passed, 0), op.shape), op, 0)


def not_negative(function: str, name: str, op: Op) -> Op:
    """Returns `op`; computing it raises an error for a negative element. NaN is accepted."""
    inside = either(less_equal(0, op), differs(op, op))
    return guarded(op, inside, f"{function}: an element of {name} is negative.")


def divisor(op: Op) -> Op:
    """Returns the divisor of a rounded quotient; an integer 0 is an error, now or when it is computed."""
    if op.dtype.is_float or const_value(op) not in (None, 0) or not op.numel:
        return op
    fact, hint = "division: an integer is divided by 0.", "x / y gives floats; y.masked_fill(y == 0, 1) has no 0."
    if const_value(op) is not None:
        raise ArgumentError(fact, hint)
    return guarded(op, differs(op, 0), fact, hint)


# ---- arguments as users write them ----
def axis_of(function: str, shape: Shape, axis: int, extra: int = 0) -> int:
    """Returns `axis` counted from the front.

    Raises:
      IndexingError: the shape does not have the axis.
      ArgumentError: it is not an int; True, an int in Python, is probably a misplaced flag.
    """
    rank = len(shape) + extra
    if axis.__class__ is not int:
        if axis.__class__ is bool:
            raise ArgumentError(f"{function}: an axis must be an int, got {axis}.")
        axis = whole(function, "an axis", axis)
    if not -rank <= axis < rank and not (rank == 0 and axis in (-1, 0)):
        raise IndexingError(f"{function}: axis {axis} is out of range for shape {shape} with {len(shape)} axes.")
    return axis % rank if rank else 0


def is_integer(value: Any) -> TypeIs[int]:
    """True for an integer: Python's, NumPy's, or a 0-d array or tensor of integers."""
    if not hasattr(type(value), "__index__") or getattr(value, "ndim", False):
        return False
    return getattr(getattr(value, "dtype", None), "kind", "i") in "iu"


def whole(function: str, name: str, value: Any) -> int:
    """Returns an argument that is an integer.

    Raises:
      ArgumentError: it is something else.
    """
    if not hasattr(type(value), "__index__") or (isinstance(value, np.ndarray) and not is_integer(value)):
        raise ArgumentError(f"{function}: {name} must be an int, got {shown(value)}.")
    return int(operator.index(value))  # True becomes 1: equal Ops have equal arguments


def one_name(function: str, dim: Any, axis: Any, default: Any = None) -> Any:
    """Returns `axis` if it was given, else `dim`, which has a default.

    Raises:
      ArgumentError: both names were given.
    """
    if axis is None:
        return dim
    if dim != default:
        raise ArgumentError(f"{function}: dim={dim} and axis={axis} are two names of one argument; give one.")
    return axis


def axes_of(function: str, shape: Shape, dim: int | Sequence[int] | None, axis: Any = None) -> tuple[int, ...]:
    """Returns the axes that `dim` (or its other name `axis`) selects, in rising order; None selects all.

    Raises:
      ArgumentTypeError: it is neither an axis nor a sequence of axes.
      ArgumentError:     both names were given, or an axis occurs twice.
      IndexingError:     the shape does not have the axis.
    """
    dim = dim if axis is None else one_name(function, dim, axis)
    if dim is None:
        return tuple(range(len(shape)))
    if is_integer(dim):
        axis = axis_of(function, shape, dim)
        return (axis,) if shape else ()
    if not isinstance(dim, Iterable):
        raise ArgumentTypeError(f"{function}: dim must be an int, a sequence of ints or None, got {shown(dim)}.")
    chosen = [axis_of(function, shape, d) for d in dim]
    if len(set(chosen)) != len(chosen):
        raise ArgumentError(f"{function}: axes {tuple(dim)} of shape {shape} name one axis twice.")
    return tuple(sorted(chosen)) if shape else ()


def static(dim: Dim) -> int:
    """Returns a length that is a number.

    Raises:
      ShapeError: it is symbolic.
    """
    if isinstance(dim, int):
        return dim
    return dim.__index__()


def static_numel(shape: Sequence[Dim]) -> int:
    """Returns the number of elements of a shape of numbers.

    Raises:
      ShapeError: a length is symbolic.
    """
    return math.prod(map(static, shape))


def sizes(function: str, args: tuple[Any, ...], named: Any = None) -> tuple[Any, ...]:
    """Returns the dimensions given as f(2, 3), as f((2, 3)) or by name.

    Raises:
      ArgumentError: given in two of these ways.
    """
    if named is not None:
        if args:
            raise ArgumentError(f"{function}: {args} and {named} are given for one argument; give one.")
        args = (named,)
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        return tuple(args[0])
    return args
