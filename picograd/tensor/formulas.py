"""Formulas: functions whose graph is built with its plan; until then a single Op stands for it (ir/bodies.py).

In:    a function of Ops, or of Tensors
Out:   `formula`: a function that returns that Op, or one per result;  `by_formula`: the same for one call;
       `of_tensors`: the same for a function of Tensors
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar, cast

from picograd import dtype as dtypes
from picograd.autodiff.unrolled import OPERANDS_MAX
from picograd.dtype import DType
from picograd.engine.lengths import Lengths, shape_of, with_dims
from picograd.interrupts import Latest, lock
from picograd.ir import bodies
from picograd.ir.bodies import Formula, Kind
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.origin import record
from picograd.ir.shape import ConvArg
from picograd.ir.symbolic import dim_value, with_variables
from picograd.record import replace
from picograd.tensor.cell import grad_mode, own_places, trace
from picograd.tensor.core import TensorCore
from picograd.tensor.modes import float32_mode, precision_mode

P = ParamSpec("P")
R = TypeVar("R")
Results = TypeVar("Results", Op, tuple[Op, ...])
OPERANDS = frozenset({"Tensor", "Tensor | None", "T", "Operand", "Any"})  # annotations of arguments that may be Tensors
_lengths: Latest[Hashable, Lengths] = Latest(1024)  # lengths of the operands of calls that differ in nothing else
_lock = lock()
PLAIN = frozenset({bool, int, float, str, type(None), tuple, DType, ConvArg})  # types of arguments of formulas besides Ops


def formula(function: Callable[P, Results]) -> Callable[P, Results]:
    """Makes a function return an Op per result, whose graph is built later; in a trace it returns the graph itself.

    The function takes Ops first, by position, then everything else that decides its graph (hashable; 0.0 and -0.0 must give
    the same graph), and depends on nothing else: no mode, no value. Gradients flow through the Op if they flow through one
    of the graph's results. Errors of dtypes and shapes are raised at the call: the first call with such operands builds the
    graph on trial.
    """
    count, gives_several = _num_ops(function), function.__annotations__["return"] != "Op"

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        others = args[count:]
        if trace.get() is not None or bodies.at_once.get() or not PLAIN.issuperset(map(type, others)):
            return function(*args, **named)
        src = args[:count]
        kinds, depth, needs_grad = [], 0, False  # one loop, since every function of several Ops passes here
        for s in src:
            kinds.append((s.dtype, s.shape))
            if s.depth > depth:
                depth = s.depth
            if s.needs_grad:
                needs_grad = True
        known = _formula_of((function, others, tuple(named.items()) if named else ()), tuple(kinds))
        if known.num_ops == 1:  # one of the operands
            return function(*args, **named)
        dtype, shape = known.kinds[0]
        op = object.__new__(Op)  # `unshared` written out
        op.code, op.dtype, op.src, op.arg, op.lines = OpCode.FORMULA, dtype, src, known, ()
        op.realized, op.times_computed, op.is_read = None, 0, False
        op.shape, op.needs_grad, op.depth = shape, needs_grad and dtype.kind == "f", depth + known.depth
        if not gives_several:
            return op
        if len(known.kinds) > 1:
            record(op)  # its results have lines of their own
        return bodies.outputs_of(op, known.kinds, needs_grad)

    return call


@lru_cache(maxsize=1024)
def _formula_of(options: tuple[Any, ...], kinds: tuple[Kind, ...]) -> Formula:
    """Returns the formula of a call with such operands; from the third length on, one trial serves many lengths.

    Raises:
      PicogradError: the function does not accept the operands.
    """
    parts = [shape_of(shape) for _, shape in kinds]
    sample = tuple([length for _, lengths in parts for length in lengths])
    family = options, tuple([(dtype, rest) for (dtype, _), (rest, _) in zip(kinds, parts)])
    with _lock:
        known = _lengths.get(family)
        if known is None:
            known = Lengths(len(sample))
            _lengths.put(family, known)
        sizes = known.sizes(sample, "length")
        if sizes is None:
            return bodies.formula_of(options, kinds)
        dims = iter(cast("tuple[Dim, ...]", sizes.dims))
        try:
            found = bodies.formula_of(options, tuple([(dtype, with_dims(shape, dims)) for dtype, shape in kinds]))
        except Exception as error:  # it needs a number; the trial of these lengths raises the user's error
            known.refuse(getattr(error, "unequal", ()))
            return bodies.formula_of(options, kinds)
    has_symbols = any(isinstance(dim, Op) for _, shape in kinds for dim in shape)  # the user's symbols stay
    number = with_variables if has_symbols else dim_value
    shapes = [tuple([number(dim, sizes.values) for dim in shape]) for _, shape in found.kinds]
    lengths = [dim for shape in shapes for dim in shape if isinstance(dim, int)]
    if lengths and min(lengths) < 1:  # a trial of these very lengths names the one that is too short
        return bodies.formula_of(options, kinds)
    return replace(found, kinds=tuple([(dtype, shape) for (dtype, _), shape in zip(found.kinds, shapes)]))


def _num_ops(function: Callable[..., Any]) -> int:
    """Returns the number of Ops that a function takes, before its other arguments."""
    count = 0
    for parameter in inspect.signature(function).parameters.values():
        if parameter.annotation != "Op":
            break
        if parameter.kind is parameter.VAR_POSITIONAL:
            return sys.maxsize
        count += 1
    return count


def by_formula(
    function: Callable[..., Sequence[Op]], options: Hashable, operands: Sequence[Op | float], kinds: tuple[Kind, ...]
) -> Sequence[Op]:
    """Returns function(options, *operands) as graphs that are built later; in most traces as the graphs themselves.

    Args:
      operands:  a single one may be the result, so nothing waits then
      kinds:     dtype and shape of each result
    """
    active = trace.get()
    waits = len(operands) > 1 and (active is None or (active.waits and len(operands) > OPERANDS_MAX))
    if waits and not bodies.at_once.get():
        return bodies.by_formula(function, options, operands, kinds)
    return function(options, *operands)


# ---- functions of Tensors ----
def of_tensors(function: Callable[P, R], container: Callable[..., Any] | None = None) -> Callable[P, R]:
    """Makes a function of Tensors return a Tensor whose graph is built later, as `formula` does for Ops.

    The graph must follow from dtypes, shapes and the other arguments: the function reads no value, makes no tensor of host
    data, gives no warning and returns no view. For arguments that formulas do not take, operands on several devices, in a
    trace and in modes of precision the function itself is called.

    Args:
      container:  joins several results in one object; default: a tuple
    """

    parameters = inspect.signature(function).parameters
    order, operands = tuple(parameters), {name for name, one in parameters.items() if one.annotation in OPERANDS}

    def graph(*ops: Op, form: tuple[Any, ...]) -> tuple[Op, ...]:
        names, classes, others, device, _ = form
        tensors, rest = iter(ops), iter(others)
        given = (next(rest) if cls in PLAIN else cls.from_op(next(tensors), device) for cls in classes)
        return _plainly(lambda: function(**dict(zip(names, given))))  # type: ignore[call-arg]

    graph.__name__ = function.__name__
    as_formula = formula(graph)

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> Any:
        names: tuple[str, ...] = (*order[: len(args)], *named.keys())
        values = (*args, *named.values()) if named else args
        found = None if _at_once() else _tensors_and_others(names, values, operands)
        if found is None:
            return function(*args, **named)
        tensors, others, device = found
        form = names, tuple([value.__class__ for value in values]), others, device, dtypes.default_float
        first = tensors[0]
        made = [first.from_op(op, device) for op in as_formula(*[tensor.read() for tensor in tensors], form=form)]
        return container(*made) if container is not None else made[0] if len(made) == 1 else tuple(made)

    return call


def _at_once() -> bool:
    """True while graphs depend on more than their operands: in a trace, or in a mode of precision."""
    if trace.get() is not None or bodies.at_once.get():
        return True
    return precision_mode.get() is not None or float32_mode.get() != "highest"


def _tensors_and_others(
    names: Sequence[str], values: Sequence[Any], operands: Collection[str]
) -> tuple[list[TensorCore], tuple[Any, ...], str | None] | None:
    """Returns Tensors, other arguments, and the one device; None if the graph must be built at once.

    Args:
      operands:  names of arguments that may be Tensors; a Tensor in another argument is read as a value
    """
    tensors: list[TensorCore] = []
    others, device = [], None
    for name, value in zip(names, values):
        if isinstance(value, TensorCore):
            place = value.cell.device
            if name not in operands or (place != device and place is not None and device is not None):
                return None
            device = device or place
            tensors.append(value)
        elif not _is_plain(value):
            return None
        else:
            others.append(value)
    return (tensors, tuple(others), device) if tensors and len(names) == len(values) else None


def _is_plain(value: Any) -> bool:
    return value.__class__ in PLAIN and (value.__class__ is not tuple or all(map(_is_plain, value)))


def _plainly(function: Callable[[], Any]) -> tuple[Op, ...]:
    """Returns the graphs of a function's results with gradients recorded, without a trace or a mode of precision."""
    variables: Any = {grad_mode: True, own_places: False, trace: None, precision_mode: None, float32_mode: "highest"}
    outer = {variable: variable.get() for variable in variables}
    try:
        for variable, value in variables.items():
            variable.set(value)
        made = function()
        return tuple([tensor.read() for tensor in (made if isinstance(made, tuple) else (made,))])
    finally:
        for variable, value in outer.items():
            variable.set(value)
