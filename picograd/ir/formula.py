"""Formulas that are graphs only when their plan is made: until then one Op stands for all that a function builds.

In:    a function of Ops that gives Ops, and its operands
Out:   `Formula`; `by_formula`, `one_op`: its results;  `formula_results`: their graphs
Called by: tensor/formulas.py, optim/updates.py, autodiff/gradient.py.    Next: picograd/ir/symbolic.py

    p, m, v = by_formula(adam, None, [p, m, v, grad, 0.9, 0.999], kinds)     # FORMULA, and OUTPUTs 0, 1 and 2 of it
    y = one_op(gelu, (x,), (False,), {})                               # FORMULA: what has one result is that

An eager step whose plan is known reads none of these graphs, so it makes none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from functools import lru_cache
from operator import attrgetter
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.ir.lines import of_formula
from picograd.ir.op import Buffer, Op, Shape, greatest_numel, toposort, unshared
from picograd.ir.opcode import COSTLY, OpCode
from picograd.record import Record

Kind = tuple[DType, Shape]
KIND, NEEDS_GRAD, DEPTH = attrgetter("dtype", "shape"), attrgetter("needs_grad"), attrgetter("depth")
at_once: ContextVar[bool] = ContextVar("picograd_at_once", default=False)  # graphs are looked at as they are made


class Formula(Record):
    """A function, and what is known of its results before they have graphs.

    function:  (options, *operands) -> results
    options:   what decides which graphs they have
    kinds:     dtype and shape of each result
    numbers:   places of operands that the function takes as Python's numbers; these are the last sources, in order
    is_costly: an Op of the graph is in COSTLY, where that has been made once
    num_ops:   of the graph, where that has been made once
    depth:     of the graph above the operands
    """

    function: Callable[..., Sequence[Op]]
    options: Hashable
    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]
    is_costly: bool = False
    num_ops: int = 1
    depth: int = 1

    @property
    def name(self) -> str:
        """The name of the function that builds the graph."""
        function = self.options[0] if self.function is _called else self.function  # type: ignore[index]
        return getattr(function, "__name__", "formula")


def by_formula(
    function: Callable[..., Sequence[Op]], options: Hashable, operands: Sequence[Op | float], kinds: tuple[Kind, ...]
) -> list[Op]:
    """Returns the results of a function, whose graphs are made later.

    Args:
      options:   its first argument
      operands:  the others: graphs, and numbers that may be others the next time
      kinds:     dtype and shape of each result
    """
    src = [operand for operand in operands if isinstance(operand, Op)]
    numbers = tuple([i for i, operand in enumerate(operands) if not isinstance(operand, Op)])
    src += [Op(OpCode.CONST, dtypes.float64, (), float(operands[i])) for i in numbers]
    dtype, shape = kinds[0]
    needs_grad = any(map(NEEDS_GRAD, src))
    kept = Formula(function, options, kinds, numbers)
    formula = unshared(OpCode.FORMULA, dtype, tuple(src), kept, shape, needs_grad and dtype.kind == "f")
    if len(kinds) == 1:
        return [formula]
    made = (formula,)
    return [
        unshared(OpCode.OUTPUT, dtype, made, i, shape, needs_grad and dtype.kind == "f")
        for i, (dtype, shape) in enumerate(kinds)
    ]


def one_op(function: Callable[..., Op], src: tuple[Op, ...], others: tuple[Any, ...], named: dict[str, Any]) -> Op:
    """Returns the result of a function, whose graph is made later, as one Op.

    Args:
      others, named:  what else it takes, of which 0.0 and -0.0 are one
    """
    formula = _formula((function, others, tuple(named.items()) if named else ()), tuple(map(KIND, src)))
    dtype, shape = formula.kinds[0]
    needs_grad = dtype.kind == "f" and any(map(NEEDS_GRAD, src))
    return unshared(OpCode.FORMULA, dtype, src, formula, shape, needs_grad, max(map(DEPTH, src)) + formula.depth)


@lru_cache(maxsize=1024)
def _formula(options: tuple[Any, ...], kinds: tuple[Kind, ...]) -> Formula:
    """Returns the formula of a call with operands of such dtypes and shapes: a trial says what it gives, or raises."""
    stand_ins = [Op(OpCode.BUFFER, dtype, (), (Buffer("", dtype, greatest_numel(s)), s)) for dtype, s in kinds]
    results = _at_once(_called, options, stand_ins)
    kinds = tuple([(op.dtype, op.shape) for op in results])
    graph = toposort(results)
    is_costly = any(op.code in COSTLY for op in graph)
    return Formula(_called, options, kinds, (), is_costly, len(graph), results[0].depth)


def _called(options: tuple[Any, ...], *operands: Op) -> list[Op]:
    """Returns what a function gives of Ops and what else it takes."""
    function, others, named = options
    return [function(*operands, *others, **dict(named))]


def formula_results(formula: Formula, src: Sequence[Op], lines: tuple[tuple[str, int], ...]) -> list[Op]:
    """Returns the graphs of the results of a FORMULA Op over these sources; what they note of lines is `lines`."""
    numbers = formula.numbers
    operands: list[Any] = [*src[: len(src) - len(numbers)]]
    for i, number in zip(numbers, src[len(operands) :]):
        operands.insert(i, number.arg)
    outer = of_formula.get()
    try:
        of_formula.set(lines)
        return _at_once(formula.function, formula.options, operands)
    finally:
        of_formula.set(outer)


def _at_once(function: Callable[..., Sequence[Op]], options: Hashable, operands: Sequence[Any]) -> list[Op]:
    outer = at_once.get()
    try:
        at_once.set(True)
        return list(function(options, *operands))
    finally:
        at_once.set(outer)
