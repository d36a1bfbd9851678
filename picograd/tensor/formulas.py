"""Formulas: functions whose graph is made with its plan; until then one Op stands for it (ir/bodies.py).

In:    a function of Ops
Out:   `formula`: the function that gives the one Op, or the results of one;  `by_formula`: the same at the call
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec, TypeVar

from picograd.autodiff.unrolled import OPERANDS_MAX
from picograd.dtype import DType
from picograd.ir import bodies
from picograd.ir.bodies import Kind
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.tensor.cell import trace

P = ParamSpec("P")
Results = TypeVar("Results", Op, tuple[Op, ...])
PLAIN = frozenset({bool, int, float, str, type(None), tuple, DType, ConvArg})  # arguments of formulas besides Ops


def formula(function: Callable[P, Results]) -> Callable[P, Results]:
    """Lets a function give an Op, or a tuple of them, whose graph is made later, in a trace the graph itself.

    It takes Ops first, by position, and behind them what else decides its graph (hashable; of 0.0 and -0.0 the graph is
    the same), and reads nothing else: no mode, no value. It gives an Op through which gradients flow where they flow
    through one of its results. Its errors of dtypes and shapes come at the call: the first one with such operands makes
    the graph on trial.
    """
    count, gives_several = _num_ops(function), function.__annotations__["return"] != "Op"

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        others = args[count:]
        if trace.get() is not None or bodies.at_once.get() or not PLAIN.issuperset(map(type, others)):
            return function(*args, **named)
        src = args[:count]
        kinds, depth, needs_grad = [], 0, False  # in one loop: every function of several Ops comes by here
        for s in src:
            kinds.append((s.dtype, s.shape))
            if s.depth > depth:
                depth = s.depth
            if s.needs_grad:
                needs_grad = True
        known = bodies.formula_of((function, others, tuple(named.items()) if named else ()), tuple(kinds))
        dtype, shape = known.kinds[0]
        op = object.__new__(Op)  # `unshared` written out
        op.code, op.dtype, op.src, op.arg, op.lines = OpCode.FORMULA, dtype, src, known, ()
        op.realized = op.was_computed = None
        op.shape, op.needs_grad, op.depth = shape, needs_grad and dtype.kind == "f", depth + known.depth
        return bodies.outputs_of(op, known.kinds, needs_grad) if gives_several else op

    return call


def _num_ops(function: Callable[..., Any]) -> int:
    """Returns how many Ops a function takes before anything else."""
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
    """Returns function(options, *operands), as graphs that are made later: in a trace, which is read, mostly now.

    Args:
      kinds:  dtype and shape of each result
    """
    active = trace.get()
    waits = active is None or (active.waits and len(operands) > OPERANDS_MAX)
    if waits and not bodies.at_once.get():
        return bodies.by_formula(function, options, operands, kinds)
    return function(options, *operands)
