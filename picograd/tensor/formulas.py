"""Functions whose graphs are made when their plan is, where nobody looks at graphs before.

In:    a function of Ops, and its operands
Out:   `by_formula`;  `formula`, which makes a function of Ops one Op
Called by: nn/functions/, and functions of Ops in tensor/.    Next: picograd/tensor/build.py
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec

from picograd.dtype import DType
from picograd.ir import bodies as later
from picograd.ir.bodies import Kind
from picograd.ir.op import Op
from picograd.ir.shape import ConvArg
from picograd.tensor.cell import trace

P = ParamSpec("P")
PLAIN = frozenset({bool, int, float, str, type(None), tuple, DType, ConvArg})  # what formulas may take beside Ops


def formula(function: Callable[P, Op]) -> Callable[P, Op]:
    """Lets a function give one Op whose graph is made later, in a trace the graph itself.

    It takes Ops first, by position, and behind them what else decides its graph (hashable; of 0.0 and -0.0 the graph is the
    same), and reads nothing else: no mode, no value. It gives an Op through which gradients flow where they flow through
    one of its results. What it says of dtypes and shapes it says at the call: the first one with such operands makes the
    graph on trial.
    """
    count = _num_ops(function)

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Op:
        others = args[count:]
        if trace.get() is None and not later.at_once.get() and PLAIN.issuperset(map(type, others)):
            return later.one_op(function, args[:count], others, named)
        return function(*args, **named)

    return call


def _num_ops(function: Callable[..., Op]) -> int:
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
    """Returns function(options, *operands), as graphs that are made later: in a trace, which is read, now.

    Args:
      kinds:  dtype and shape of each result
    """
    if trace.get() is None and not later.at_once.get():
        return later.by_formula(function, options, operands, kinds)
    return function(options, *operands)
