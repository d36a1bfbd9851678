"""Constraints by PyTorch's names: rules for parameters and values of distributions, and their only checker."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.engine.host_memory import value_on_host
from picograd.errors import ArgumentError
from picograd.evaluator.graph import evaluate
from picograd.ir.build import (
    bitcast,
    both,
    cast,
    either,
    equal,
    less,
    less_equal,
    reduce,
    reshape,
    static_shape,
    swap_last,
    unary,
    where,
    zeros_like,
)
from picograd.ir.checks import Site, checked
from picograd.ir.op import Buffer, Op, filled, toposort
from picograd.ir.opcode import OpCode
from picograd.tensor import host_calls
from picograd.tensor.build import broadcast_shapes, broadcast_to, detached
from picograd.tensor.cell import trace
from picograd.tensor.formulas import formula
from picograd.tensor.tensor import Tensor

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property",
    "greater_than", "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent",
    "less_than", "lower_cholesky", "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot",
    "positive", "positive_definite", "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex",
    "square", "stack", "symmetric", "unit_interval", "weights",
]  # fmt: skip
HINT = "validate_args=False leaves it unchecked."
KNOWN_ELEMENTS_MAX = 1 << 16  # checked at once, on the host
KNOWN_OPS_MAX = 8  # of a graph of constants that is computed there
SHOWN_ELEMENTS_MAX = 8  # of a vector or a matrix in an error
Array = np.ndarray[Any, Any]
Rule = Callable[..., Op]  # function of Ops of one dtype: an array, and bounds


class Constraint:
    """A set of numbers, vectors or matrices. Users' own constraints define check().

    words:        completes the sentence "it must be ..."
    event_dim:    number of axes of a member: 0 for numbers, 1 for vectors, 2 for matrices
    is_discrete:  whether members are isolated, as integers are
    """

    words: str = "in its constraint"
    event_dim: int = 0
    is_discrete: bool = False

    def check(self, value: Tensor) -> Tensor:
        """Returns, for each number, vector or matrix, whether it is a member.

        >>> pg.distributions.constraints.positive.check(Tensor([-1.0, 0.0, 2.0]))
        Tensor([False, False,  True])
        """
        raise NotImplementedError("Constraint: a subclass defines check(value).")

    def __repr__(self) -> str:
        return f"<constraint: {self.words}>"


class _Ruled(Constraint):
    """A constraint by a rule, which decides for each element or for each member."""

    def __init__(self, words: str, rule: Rule, *bounds: Any, event_dim: int = 0, is_discrete: bool = False):
        self.words = words.format(*map(_text, bounds))
        self.rule, self.bounds, self.event_dim, self.is_discrete = rule, bounds, event_dim, is_discrete
        self.base_constraint: Constraint = self  # of independent: the constraint of single members
        self.reinterpreted_batch_ndims = 0

    def check(self, value: Tensor) -> Tensor:
        found = _holds(value.read(), *[_op(bound) for bound in self.bounds], rule=self.rule)
        extra = len(found.shape) - value.ndim + self.event_dim  # axes of a member that the rule has kept
        return Tensor.from_op(_all(found, extra), value.cell.device)

    @property
    def lower_bound(self) -> Any:
        """The first bound."""
        return self.bounds[0]

    @property
    def upper_bound(self) -> Any:
        """The last bound."""
        return self.bounds[-1]


def _text(bound: Any) -> str:
    known = _known(bound.op) if isinstance(bound, Tensor) else np.asarray(bound)
    return "its bound" if known is None or known.size != 1 else f"{known.item():.10g}"


def _op(number: Any) -> Op:
    return number.read() if isinstance(number, Tensor) else filled(number, dtypes.float64, ())


# ---- rules ----
def _all(holds: Op, count: int, keepdim: bool = False) -> Op:
    """True if a constraint is true along all of the last `count` axes."""
    axes = tuple(range(len(holds.shape) - count, len(holds.shape)))
    return reduce(holds, OpCode.MIN, axes, keepdim) if count else holds


def _sum(x: Op) -> Op:
    return reduce(x, OpCode.ADD, (len(x.shape) - 1,))


def _equal(x: Op, y: Op | float) -> Op:
    return equal(x, y)


def _is_number(x: Op) -> Op:
    return _equal(x, x)


def _is_above(x: Op, low: Op | float) -> Op:
    return less(low, x)


def _is_below(x: Op, high: Op | float) -> Op:
    return less(x, high)


def _is_from(x: Op, low: Op | float) -> Op:
    return less_equal(low, x)


def _is_within(x: Op, low: Op | float, high: Op | float) -> Op:
    return both(less_equal(low, x), less_equal(x, high))


def _is_within_half(x: Op, low: Op | float, high: Op | float) -> Op:
    return both(less_equal(low, x), less(x, high))


def _is_probability_above_0(x: Op) -> Op:
    return both(less(0, x), less_equal(x, 1))


def _is_whole(x: Op) -> Op:
    return _equal(unary(OpCode.FLOOR, x), x) if x.dtype.is_float else _equal(x, x)


def _is_whole_from(x: Op, low: Op | float) -> Op:
    return both(_is_whole(x), less_equal(low, x))


def _is_whole_within(x: Op, low: Op | float, high: Op | float) -> Op:
    return both(_is_whole(x), _is_within(x, low, high))


def _is_bit(x: Op) -> Op:
    return either(_equal(x, 0), _equal(x, 1))


def _is_one_hot(x: Op) -> Op:
    return both(_all(_is_bit(x), 1), _equal(_sum(x), 1))


def _is_simplex(x: Op) -> Op:
    """Rows that are nonnegative and sum to 1, up to the rounding of their dtype."""
    off = max(1e-6, 16 * dtypes.finfo(x.dtype).eps)
    return both(_all(_is_from(x, 0), 1), _is_within(_sum(x), 1 - off, 1 + off))


def _are_weights(x: Op) -> Op:
    return both(_all(_is_from(x, 0), 1), _is_above(_sum(x), 0))


def _are_counts(x: Op, most: Op) -> Op:
    """Rows of nonnegative integers with a sum of at most `most`, an array of x's shape."""
    most = reduce(most, OpCode.MAX, (len(x.shape) - 1,))
    return both(_all(_is_whole_from(x, 0), 1), less_equal(_sum(x), most))


def _places(x: Op) -> tuple[Op, Op]:
    """Returns row and column of each element of matrices."""
    row, column = (Op(OpCode.IOTA, dtypes.int64, (), dim) for dim in x.shape[-2:])
    return broadcast_to(reshape(row, (x.shape[-2], 1)), x.shape), broadcast_to(column, x.shape)


def _is_lower_triangular(x: Op) -> Op:
    """Matrices, element by element: 0 above the diagonal, any number elsewhere."""
    return where(less(*_places(x)), _equal(x, 0), _equal(x, x))


def _is_lower_cholesky(x: Op) -> Op:
    """Matrices, element by element: 0 above the diagonal, positive on it."""
    return both(_is_lower_triangular(x), where(_equal(*_places(x)), _is_above(x, 0), _equal(x, x)))


def _is_corr_cholesky(x: Op) -> Op:
    """Matrices, element by element: as lower_cholesky, with rows of length 1, up to rounding."""
    off = 20 * dtypes.finfo(x.dtype).eps * static_shape(x.shape)[-1]
    length = reduce(x * x, OpCode.ADD, (len(x.shape) - 1,), keepdim=True)
    return both(_is_lower_cholesky(x), broadcast_to(_is_within(length, 1 - off, 1 + off), x.shape))


def _is_square(x: Op) -> Op:
    return _equal(zeros_like(x), 0 if x.shape[-1] == x.shape[-2] else 1)


def _is_symmetric(x: Op) -> Op:
    """Matrices, element by element: equal to the transpose, up to rounding."""
    other = swap_last(x)
    off = where(_is_below(other, 0), other * -1, other) * 1e-5 + 1e-6
    return _is_within(x, other - off, other + off)


def _is_positive_semidefinite(x: Op) -> Op:
    least = reduce(host_calls.call("eigvalsh", x), OpCode.MIN, (len(x.shape) - 2,))
    return both(_all(_is_symmetric(x), 2), _is_from(least, 0))


def _is_positive_definite(x: Op) -> Op:
    order = host_calls.call("cholesky_order", x, dtype=dtypes.int64)
    return both(_all(_is_symmetric(x), 2), _equal(order, 0))


# ---- by PyTorch's names ----
def greater_than(lower_bound: Any) -> Constraint:
    """Returns the numbers > a bound."""
    return _Ruled("above {}", _is_above, lower_bound)


def greater_than_eq(lower_bound: Any) -> Constraint:
    """Returns the numbers >= a bound."""
    return _Ruled("not below {}", _is_from, lower_bound)


def less_than(upper_bound: Any) -> Constraint:
    """Returns the numbers < a bound."""
    return _Ruled("below {}", _is_below, upper_bound)


def interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Returns the numbers between two bounds, both included."""
    return _Ruled("from {} to {}", _is_within, lower_bound, upper_bound)


def half_open_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Returns the numbers between two bounds, the upper one excluded."""
    return _Ruled("from {} to below {}", _is_within_half, lower_bound, upper_bound)


def integer_interval(lower_bound: Any, upper_bound: Any) -> Constraint:
    """Returns the integers between two bounds, both included."""
    return _Ruled("an integer from {} to {}", _is_whole_within, lower_bound, upper_bound, is_discrete=True)


def multinomial(upper_bound: Any) -> Constraint:
    """Returns the vectors of counts with a sum of at most this bound."""
    return _Ruled("counts with a sum of at most {}", _are_counts, upper_bound, event_dim=1, is_discrete=True)


def independent(base_constraint: Constraint, reinterpreted_batch_ndims: int) -> Constraint:
    """Returns arrays with additional axes, all of whose parts are members of a constraint."""
    base, more = base_constraint, reinterpreted_batch_ndims
    if not more:
        return base
    if not isinstance(base, _Ruled):
        return _OfMembers(base, more)
    made = _Ruled("", base.rule, *base.bounds, event_dim=base.event_dim + more, is_discrete=base.is_discrete)
    made.words, made.base_constraint, made.reinterpreted_batch_ndims = base.words, base, more
    return made


class _OfMembers(Constraint):
    """Arrays of members of a constraint without a rule."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int):
        self.base_constraint, self.reinterpreted_batch_ndims = base_constraint, reinterpreted_batch_ndims
        self.words, self.is_discrete = base_constraint.words, base_constraint.is_discrete
        self.event_dim = base_constraint.event_dim + reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        return _all_of(self.base_constraint.check(value), self.reinterpreted_batch_ndims)


class MixtureSameFamilyConstraint(Constraint):
    """The values of a mixture: members for all components; a value lacks the components' axis.

    Args:
      base_constraint:  constraint of the components' values
    """

    def __init__(self, base_constraint: Constraint):
        self.base_constraint, self.event_dim = base_constraint, base_constraint.event_dim
        self.words, self.is_discrete = base_constraint.words, base_constraint.is_discrete

    def check(self, value: Tensor) -> Tensor:
        """Returns for each value whether it is a member for all components."""
        return _all_of(self.base_constraint.check(value.unsqueeze(-1 - self.event_dim)), 1)


def _all_of(holds: Tensor, count: int) -> Tensor:
    """Returns whether all are true along the last `count` axes."""
    return holds.all(tuple(range(-count, 0))) if count else holds


class _Parts(Constraint):
    """Tensors joined along an axis from members of constraints.

    cseq:  constraints
    dim:   the axis
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int):
        self.cseq, self.dim = list(cseq), dim
        self.words = " and ".join(dict.fromkeys(one.words for one in self.cseq))
        self.is_discrete = any(one.is_discrete for one in self.cseq)


class cat(_Parts):  # noqa: N801
    """Members of constraints, joined along an axis as by Tensor.cat.

    Args:
      cseq:     constraints
      dim:      the axis
      lengths:  lengths of the parts; None: 1 each
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None):
        super().__init__(cseq, dim)
        self.lengths = list(lengths) if lengths is not None else [1] * len(self.cseq)
        self.event_dim = max(one.event_dim for one in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        """Returns whether elements belong to members."""
        parts = value.split(self.lengths, self.dim)
        return Tensor.cat([one.check(part) for one, part in zip(self.cseq, parts)], self.dim)


class stack(_Parts):  # noqa: N801
    """Members of constraints, joined along a new axis as by Tensor.stack.

    Args:
      cseq:  constraints
      dim:   the axis
    """

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0):
        super().__init__(cseq, dim)
        axes = max(one.event_dim for one in self.cseq)
        self.event_dim = axes + 1 if self.dim + axes < 0 else axes

    def check(self, value: Tensor) -> Tensor:
        """Returns whether elements belong to members."""
        return Tensor.stack([one.check(part) for one, part in zip(self.cseq, value.unbind(self.dim))], self.dim)


class _Dependent(Constraint):
    """A constraint that depends on other values; `dependent` may be called with is_discrete and event_dim."""

    words = "in a constraint that depends on others"

    def __init__(self, is_discrete: bool = False, event_dim: int = 0):
        self.is_discrete, self.event_dim = is_discrete, event_dim

    def __call__(self, *, is_discrete: bool = False, event_dim: int = 0) -> _Dependent:
        return _Dependent(is_discrete, event_dim)

    def check(self, value: Tensor) -> Tensor:
        raise ArgumentError("check: the constraint depends on other values.")


class dependent_property(property, _Dependent):  # noqa: N801
    """A property of a distribution that is its constraint; of the class, a dependent constraint.

    Args:
      fn:           getter; None, with the other arguments, returns a decorator
      is_discrete:  whether members are isolated
      event_dim:    number of axes of a member

    >>> class Mine(pg.distributions.Distribution):
    ...     @pg.distributions.constraints.dependent_property(event_dim=1)
    ...     def support(self):
    ...         return pg.distributions.constraints.simplex
    >>> Mine.support.event_dim, Mine().support
    (1, <constraint: not negative, with a sum of 1>)
    """

    def __init__(self, fn: Callable[[Any], Any] | None = None, *, is_discrete: bool = False, event_dim: int = 0):
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete, event_dim)

    def __call__(self, fn: Callable[[Any], Any]) -> dependent_property:  # type: ignore[override]
        return dependent_property(fn, is_discrete=self.is_discrete, event_dim=self.event_dim)


def is_dependent(constraint: Constraint) -> bool:
    """Returns whether a constraint depends on other values.

    >>> pg.distributions.constraints.is_dependent(pg.distributions.constraints.positive)
    False
    """
    return isinstance(constraint, _Dependent)


dependent = _Dependent()
real: Constraint = _Ruled("a number", _is_number)
positive, nonnegative, unit_interval = greater_than(0.0), greater_than_eq(0.0), interval(0.0, 1.0)
success: Constraint = _Ruled("above 0 and at most 1", _is_probability_above_0)
boolean: Constraint = _Ruled("0 or 1", _is_bit, is_discrete=True)
nonnegative_integer: Constraint = _Ruled("an integer of at least 0", _is_whole_from, 0, is_discrete=True)
positive_integer: Constraint = _Ruled("an integer above 0", _is_whole_from, 1, is_discrete=True)
real_vector = independent(real, 1)
one_hot: Constraint = _Ruled("zeros and a 1", _is_one_hot, event_dim=1, is_discrete=True)
simplex: Constraint = _Ruled("not negative, with a sum of 1", _is_simplex, event_dim=1)
weights: Constraint = _Ruled("not negative, with a sum above 0", _are_weights, event_dim=1)
lower_cholesky: Constraint = _Ruled("lower triangular with a diagonal above 0", _is_lower_cholesky, event_dim=2)
lower_triangular: Constraint = _Ruled("lower triangular", _is_lower_triangular, event_dim=2)
corr_cholesky: Constraint = _Ruled("lower triangular with rows of length 1", _is_corr_cholesky, event_dim=2)
square: Constraint = _Ruled("square", _is_square, event_dim=2)
symmetric: Constraint = _Ruled("symmetric", _is_symmetric, event_dim=2)
positive_semidefinite: Constraint = _Ruled("symmetric and positive semidefinite", _is_positive_semidefinite, event_dim=2)
positive_definite: Constraint = _Ruled("symmetric and positive definite", _is_positive_definite, event_dim=2)

RULES: dict[object, Rule] = {  # by the functions that make constraints
    greater_than: _is_above, greater_than_eq: _is_from, less_than: _is_below, interval: _is_within,
    half_open_interval: _is_within_half, integer_interval: _is_whole_within, multinomial: _are_counts,
}  # fmt: skip


# ---- looking ----
def satisfied(owner: str, name: str, constraint: Constraint, value: Tensor | float, wholly: bool) -> Tensor | float:
    """Returns a parameter or value of a distribution, after checking it as far as the host knows it.

    Args:
      owner:   name of the distribution
      name:    name of the parameter
      wholly:  a value that the host does not know gets a check of each element, in the kernel that reads it

    Raises:
      ArgumentError: known values violate the constraint; else, if `wholly`, when the value is computed.
    """
    if isinstance(constraint, _Dependent):
        return value
    fact = f"{owner}: {name} must be {constraint.words}"
    if isinstance(constraint, _Ruled):
        rule, others = constraint.rule, constraint.bounds
        known = _broken(constraint, value)
        for one in known or ():
            is_short = one.size <= SHOWN_ELEMENTS_MAX
            shown = f"got {one}" if not one.ndim else f"got {one.tolist()}" if is_short else "one is not"
            raise ArgumentError(f"{fact}, {shown}.", HINT)
        wholly = wholly and known is None
    if not wholly or not isinstance(value, Tensor):
        return value
    if not isinstance(constraint, _Ruled):
        rule, others = _is_true, (constraint.check(value.detach()),)
    operands = [value.read(), *[detached(_op(other)) for other in others]]
    return Tensor.from_op(_kept(*operands, rule=rule, fact=fact), value.cell.device)


def is_known(value: Tensor) -> bool:
    """Returns whether the host knows a value, so that it is checked at once."""
    return trace.get() is None and _known(value.op) is not None


@formula
def _kept(*operands: Op, rule: Rule, fact: str) -> Op:
    """Returns the first operand, with an error where a rule is false for it and the other operands, the bounds."""
    x = operands[0]
    holds = _holds(detached(x), *operands[1:], rule=rule)
    zeros, nbytes = filled(0, dtypes.int64, holds.shape), 0
    if len(holds.shape) < len(x.shape) or rule is _is_true:
        wrong, fact = zeros + 1, f"{fact}, one is not."
    else:  # element by element: the report is the number
        x = broadcast_to(x, holds.shape)
        wrong, fact, nbytes = _bits(detached(x)), f"{fact}, got {{}}.", _nbytes(x.dtype)
    passed = _equal(checked(where(holds, zeros, wrong), 1, Site(fact, HINT, of_values=True, float_nbytes=nbytes)), 0)
    passed = reshape(passed, (*passed.shape, *(1,) * (len(x.shape) - len(passed.shape))))
    return where(broadcast_to(passed, x.shape), x, 0)


def _is_true(x: Op, holds: Op) -> Op:
    return holds


def _holds(x: Op, *bounds: Op, rule: Rule) -> Op:
    """Returns where a rule is true for operands of one dtype and shape."""
    if rule is _is_true:
        return bounds[0]
    dtype = next((op.dtype for op in (x, *bounds) if op.dtype.is_float and op.shape), x.dtype)
    dtype = dtypes.default_float if dtype is dtypes.bool_ else dtype
    shape = broadcast_shapes("check", x.shape, *[bound.shape for bound in bounds])
    return rule(*[broadcast_to(cast(op, dtype), shape) for op in (x, *bounds)])


def _nbytes(dtype: DType) -> int:
    return 8 if dtype in (dtypes.float64, dtypes.int64) else 4


def _bits(x: Op) -> Op:
    """Returns the inverted bits of numbers as floats of 4 or 8 bytes, none of which is 0."""
    number, bits = (dtypes.float64, dtypes.int64) if _nbytes(x.dtype) == 8 else (dtypes.float32, dtypes.int32)
    return (cast(bitcast(cast(x, number), bits), dtypes.int64) + 1) * -1


# ---- values that the host knows ----
def _broken(constraint: _Ruled, value: Tensor | float) -> list[Array] | None:
    """Returns the members of a value that violate a constraint; None if they are not known."""
    if trace.get() is not None:
        return None
    known = [_known(one.op) if isinstance(one, Tensor) else np.asarray(one) for one in (value, *constraint.bounds)]
    arrays = [array for array in known if array is not None]
    if len(arrays) < len(known):
        return None
    dtype = value.dtype if isinstance(value, Tensor) else dtypes.float64
    if all(array.size == 1 for array in arrays) and (not constraint.event_dim or arrays[0].ndim == 0):
        return [] if _holds_for_number(constraint.rule, dtype, *[array.item() for array in arrays]) else arrays[:1]
    holds = _holds_for(constraint.rule, dtype, arrays)
    x = arrays[0] if holds.ndim < arrays[0].ndim else np.broadcast_to(arrays[0], holds.shape)
    return list(x[~holds])


@lru_cache(maxsize=256)
def _holds_for_number(rule: Rule, dtype: DType, *numbers: float) -> bool:
    return bool(_holds_for(rule, dtype, [np.asarray(number) for number in numbers]))


def _holds_for(rule: Rule, dtype: DType, arrays: Sequence[Array]) -> Array:
    """Returns where a rule is true, computed by NumPy."""
    kinds = tuple([(dtype if i == 0 else dtypes.float64, array.shape) for i, array in enumerate(arrays)])
    stands, holds = _graph(rule, kinds)
    (found,) = evaluate([holds], {op: array.astype(op.dtype.numpy, copy=False) for op, array in zip(stands, arrays)})
    return found


@lru_cache(maxsize=256)
def _graph(rule: Rule, kinds: tuple[tuple[DType, tuple[int, ...]], ...]) -> tuple[list[Op], Op]:
    """Returns placeholders for the operands of a rule, and the rule's graph."""
    stands = [Op(OpCode.BUFFER, dtype, (), (Buffer("", dtype, math.prod(shape)), shape)) for dtype, shape in kinds]
    return stands, _holds(*stands, rule=rule)


def _known(op: Op) -> Array | None:
    """Returns the value of an Op that is a view of host memory, or a short graph of constants."""
    if not all(isinstance(dim, int) for dim in op.shape) or op.numel > KNOWN_ELEMENTS_MAX:
        return None
    found = value_on_host(op)
    if found is None and op.depth < KNOWN_OPS_MAX:
        order = toposort([op])
        if len(order) <= KNOWN_OPS_MAX and not any(o.code in (OpCode.BUFFER, OpCode.COPY) for o in order):
            (found,) = evaluate([op], {})
    return found
