"""Formulas that are graphs only when their plan is made: until then one Op stands for all that a function builds.

In:    a function of Ops that gives Ops, and its operands
Out:   `Formula`; `by_formula`: its results;  `formula_results`: their graphs
Called by: tensor/formulas.py, autodiff/later.py.    Next: picograd/ir/symbolic.py

    p, m, v = by_formula(adam, None, [p, m, v, grad, 0.9, 0.999], kinds)     # FORMULA, and OUTPUTs 0, 1 and 2 of it

An eager step whose plan is known reads none of these graphs, so it makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.op import Op, Shape
from picograd.ir.opcode import OpCode
from picograd.record import Record

Kind = tuple[DType, Shape]
at_once: ContextVar[bool] = ContextVar("picograd_at_once", default=False)  # graphs are looked at as they are made


class Formula(Record):
    """A function, and what is known of its results before they have graphs.

    function:  (options, *operands) -> results
    options:   what decides which graphs they have
    kinds:     dtype and shape of each result
    numbers:   the operands that the function takes as Python's numbers
    """

    function: Callable[..., Sequence[Op]]
    options: Hashable
    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]


def by_formula(
    function: Callable[..., Sequence[Op]], options: Hashable, operands: Sequence[Op | float], kinds: tuple[Kind, ...]
) -> list[Op]:
    """Returns the results of a function, whose graphs are made later.

    Args:
      options:   its first argument
      operands:  the others: graphs, and numbers that may be others the next time
      kinds:     dtype and shape of each result
    """
    src, numbers = [], []
    for i, operand in enumerate(operands):
        if not isinstance(operand, Op):
            operand = Op(OpCode.CONST, dtypes.float64, (), float(operand))
            numbers.append(i)
        src.append(operand)
    formula = Op(OpCode.FORMULA, kinds[0][0], tuple(src), Formula(function, options, kinds, tuple(numbers)))
    return [Op(OpCode.OUTPUT, dtype, (formula,), i) for i, (dtype, _) in enumerate(kinds)]


def formula_results(formula: Formula, src: Sequence[Op]) -> list[Op]:
    """Returns the graphs of the results of a FORMULA Op over these sources."""
    operands: list[Any] = [*src]
    for i in formula.numbers:
        operands[i] = src[i].arg
    token = at_once.set(True)
    try:
        return list(formula.function(formula.options, *operands))
    finally:
        at_once.reset(token)
