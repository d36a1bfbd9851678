"""Functions whose graphs are made when their plan is, where nobody looks at graphs before.

In:    a function of Ops, and its operands
Out:   `by_formula`;  `formula`, which makes a function of Ops one Op
Called by: nn/functions/, and functions of Ops in tensor/.    Next: picograd/tensor/build.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any, ParamSpec

from picograd.dtype import DType
from picograd.ir import formula as later
from picograd.ir.formula import Kind
from picograd.ir.op import Op
from picograd.tensor.cell import trace

P = ParamSpec("P")
PLAIN = frozenset({Op, bool, int, float, str, type(None), tuple, DType})  # what one Op may stand for, and stays as it is


def formula(function: Callable[P, Op]) -> Callable[P, Op]:
    """Lets a function give one Op whose graph is made later, in a trace the graph itself.

    It takes Ops by position, and what else decides its graph (hashable; of 0.0 and -0.0 the graph is the same), and reads
    nothing else: no mode, no value. It gives an Op through which gradients flow where they flow through one of its results.
    What it says of dtypes and shapes it says at the call: the first one with such operands makes the graph on trial.
    """

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Op:
        if trace.get() is None and not later.at_once.get() and PLAIN.issuperset(map(type, args)):
            return later.one_op(function, args, named)
        return function(*args, **named)

    return call


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
