"""Graphs that Ops hold or stand for: putting Ops in the place of others, bodies, and formulas.

A body is a SINK over PARAMs: PARAM i is source i of the CALL; of a LOOP it is source i as step r sees it, the carry
from the step before or row r of a stacked input. A gradient that a user has written for a body is kept beside the
graphs, under a mark that the body carries: a short text, so a body prints, reads back and is compared like any other.
Equal gradients have one mark, which holds the gradient: it lives as long as the last body.

A FORMULA is one Op for all that a function of Ops builds, until a plan is made. An eager step whose plan is known reads
none of these graphs, so it makes none.

    p, m, v = by_formula(adam, None, [p, m, v, grad, 0.9, 0.999], kinds)     # FORMULA, and OUTPUTs 0, 1 and 2 of it
    y = gelu_op(x, False)      # a @formula (tensor/formulas.py)          FORMULA: what has one result is that
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from operator import attrgetter
from typing import Any

from picograd import dtype as dtypes
from picograd.dtype import DType
from picograd.interrupts import LivingValues
from picograd.ir.op import Buffer, Dim, Op, Shape, greatest_numel, memory_op, toposort, unshared
from picograd.ir.opcode import COSTLY, OpCode
from picograd.ir.origin import copy_lines, of_formula
from picograd.record import Record, replace


def substitute(roots: Sequence[Op], places: Mapping[Op, Op]) -> list[Op]:
    """Returns the roots with each Op in `places` replaced; below such an Op nothing is looked at.

    >>> x, y = (Op(OpCode.PARAM, dtypes.float32, (), (slot, ())) for slot in (0, 1))
    >>> substitute([x * x], {x: y}) == [y * y]
    True
    """
    became = dict(places)
    for op in toposort(roots, stop=places):
        if op not in became:
            src = tuple(became[s] for s in op.src)
            became[op] = op.replace(src=src)
            copy_lines(op, became[op])
    return [became[root] for root in roots]


def param(like: Op, slot: int, rows: bool = False) -> Op:
    """Returns PARAM `slot` in place of `like`, or of one of its rows."""
    return Op(OpCode.PARAM, like.dtype, (), (slot, like.shape[1:] if rows else like.shape))


def numbered(roots: Sequence[Op], inputs: Sequence[Op]) -> tuple[Op, ...]:
    """Returns the roots with PARAM i for the i-th of `inputs`."""
    return tuple(substitute(roots, {op: param(op, slot) for slot, op in enumerate(inputs)}))


# ---- bodies of CALLs and LOOPs ----
WITH_BODY = frozenset({OpCode.CALL, OpCode.LOOP})
Change = Callable[[Sequence[Op]], Sequence[Op]]


def body_of(op: Op) -> Op:
    """Returns the body of a CALL or a LOOP."""
    return op.arg if isinstance(op.arg, Op) else op.arg[0]


def sink(roots: Sequence[Op], mark: str | None = None) -> Op:
    """Returns a body with these roots."""
    return Op(OpCode.SINK, roots[0].dtype, tuple(roots), mark)


def output(producer: Op, number: int) -> Op:
    """Returns a result of a CALL or a LOOP."""
    return Op(OpCode.OUTPUT, body_of(producer).src[number].dtype, (producer,), number)


def with_body(op: Op, body: Op, src: tuple[Op, ...] | None = None) -> Op:
    """Returns a CALL or LOOP with another body, and perhaps other sources."""
    return op.replace(src, body if isinstance(op.arg, Op) else (body, *op.arg[1:]))


def carry_and_steps(op: Op) -> tuple[int, Dim]:
    """Returns how many of its sources a LOOP carries, and its number of steps; a CALL is one step that carries none."""
    if op.code is OpCode.CALL:
        return 0, 1
    _, num_carry, steps = op.arg
    return num_carry, steps


def bodies_in(order: Sequence[Op]) -> list[Op]:
    """Returns the bodies that the Ops of `order` hold, each once, and those within them; inner ones first."""
    found: dict[Op, None] = {}
    stack = [(body_of(op), False) for op in reversed(order) if op.code in WITH_BODY]
    while stack:
        body, ready = stack.pop()
        if ready:
            found[body] = None
        elif body not in found:
            stack.append((body, True))
            stack += [(body_of(op), False) for op in toposort(body.src) if op.code in WITH_BODY]
    return list(found)


def map_bodies(roots: Sequence[Op], change: Change) -> list[Op]:
    """Returns graphs in which `change` has rewritten the roots of every body, inner bodies first and each once.

    Cost: nothing where no CALL and no LOOP is.
    """
    order = toposort(roots)
    bodies = bodies_in(order)
    if not bodies:
        return list(roots)
    became: dict[Op, Op] = {}
    for body in bodies:
        inside = _replaced(toposort(body.src), became)
        became[body] = body.replace(src=tuple(change([inside[root] for root in body.src])))
    outside = _replaced(order, became)
    return [outside[root] for root in roots]


def _replaced(order: Sequence[Op], bodies: dict[Op, Op]) -> dict[Op, Op]:
    """Returns each Op of `order` after bodies are replaced."""
    became: dict[Op, Op] = {}
    for op in order:
        src = tuple(became[s] for s in op.src)
        if op.code in WITH_BODY:
            became[op] = with_body(op, bodies[body_of(op)], src)
        else:
            became[op] = op.replace(src=src)
        copy_lines(op, became[op])
    return became


# ---- gradients that a user has written for a body ----
class CustomGradient(Record):
    """The computation of the gradients of a CALL's sources.

    backward:     a SINK over PARAMs: what it reads, then a gradient for each of the first results of the CALL; None: the
                  number of the CALL's last source, a LEAF, has gradients(call, grads, needed), which computes them
    reads:        of the CALL: ("source", slot) or ("result", number)
    num_results:  results of the CALL that have gradients by it; further ones are kept for it, and have their own
    places:       for each source of the CALL the root of `backward` that is its gradient, or None
    """

    backward: Op | None
    reads: tuple[tuple[str, int], ...]
    num_results: int
    places: tuple[int | None, ...]


class Mark(str):
    """The text under which a gradient is known; the gradient lives as long as a body that carries it."""

    gradient: CustomGradient


_marks: LivingValues[CustomGradient, Mark] = LivingValues()
_by_text: LivingValues[str, Mark] = LivingValues()  # for a body that was read back
_numbers = itertools.count()


def mark_of(gradient: CustomGradient) -> Mark:
    """Returns the mark of a gradient."""
    mark = _marks.get(gradient)
    if mark is None:
        mark = Mark(f"custom {next(_numbers)}")
        mark.gradient = gradient
        _marks[gradient] = _by_text[str(mark)] = mark
    return mark


def custom_gradient(body: Op) -> CustomGradient | None:
    """Returns the gradient that a user has written for a body, or None."""
    mark = body.arg if isinstance(body.arg, Mark) else _by_text.get(body.arg)
    return None if mark is None else mark.gradient


def changed_mark(body: Op, change: Callable[[Op], Op]) -> Any:
    """Returns a body's argument after `change` has rewritten the backward body of its own gradient, if it has one."""
    gradient = custom_gradient(body)
    if gradient is None or gradient.backward is None:
        return body.arg
    return mark_of(replace(gradient, backward=change(gradient.backward)))


# ---- formulas ----
Kind = tuple[DType, Shape]
NEEDS_GRAD = attrgetter("needs_grad")
at_once: ContextVar[bool] = ContextVar("picograd_at_once", default=False)  # graphs are looked at as they are made


class Formula(Record, cache_hash=True):
    """A function, and facts about its results that are known before these have graphs.

    function:  (options, *operands) -> results
    options:   what decides which graphs they have
    kinds:     dtype and shape of each result
    numbers:   places of operands that the function takes as Python's numbers; these are the last sources, in order
    is_costly: it has one result, worth keeping where two graphs read it: drawn, or by a graph with an Op of COSTLY
    is_drawn:  the result is data drawn at random, not bits that another graph draws by
    num_ops:   of the graph, where that has been made once
    depth:     of the graph above the operands
    """

    function: Callable[..., Sequence[Op]]
    options: Hashable
    kinds: tuple[Kind, ...]
    numbers: tuple[int, ...]
    is_costly: bool = False
    is_drawn: bool = False
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
    return [*outputs_of(formula, kinds, needs_grad)]


def outputs_of(formula: Op, kinds: tuple[Kind, ...], needs_grad: bool) -> tuple[Op, ...]:
    """Returns the results of a FORMULA Op: of one result itself."""
    if len(kinds) == 1:
        return (formula,)
    made, outputs = (formula,), []
    for i, (dtype, shape) in enumerate(kinds):
        outputs.append(unshared(OpCode.OUTPUT, dtype, made, i, shape, needs_grad and dtype.kind == "f"))
    return tuple(outputs)


@lru_cache(maxsize=1024)
def formula_of(options: tuple[Any, ...], kinds: tuple[Kind, ...]) -> Formula:
    """Returns the formula of a call with operands of such dtypes and shapes: a trial says what it gives, or raises."""
    stand_ins = [memory_op(Buffer("", dtype, greatest_numel(s)), s) for dtype, s in kinds]
    results = _at_once(_called, options, stand_ins)
    kinds = tuple([(op.dtype, op.shape) for op in results])
    graph = toposort(results)
    assert all(op in stand_ins for op in graph if op.code is OpCode.BUFFER), f"{options[0].__name__} has its own memory"
    codes = {op.code for op in graph}
    is_drawn = COSTLY.isdisjoint(codes) and OpCode.THREEFRY in codes and kinds[0][0] is not dtypes.uint64
    is_costly = len(kinds) == 1 and (is_drawn or not COSTLY.isdisjoint(codes))
    depth = max([1, *(op.depth for op in results)])  # a graph may be one of its operands; an Op is deeper than these
    return Formula(_called, options, kinds, (), is_costly, is_drawn, len(graph), depth)


def _called(options: tuple[Any, ...], *operands: Op) -> list[Op]:
    """Returns the results of a function of Ops and other arguments."""
    function, others, named = options
    made = function(*operands, *others, **dict(named))
    return [made] if isinstance(made, Op) else [*made]


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
