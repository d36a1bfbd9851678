"""Compares chain rules with slopes: each operation with a gradient, alone, in float64.

In:    the Ops that are differentiated while a block runs
Out:   a `Mismatch` for each chain rule whose gradient is not the operation's slope

    <gradient of <out, w> by x, d>  =  (<out(x + h d), w> - <out(x - h d), w>) / 2h        for any d, w

An Op is compared once for each form: its opcode, argument, dtypes and shapes. Its sources become inputs with random
numbers, so that the error of one rule does not spread to the next; a long elementwise Op or product gets short sources.
If two steps h disagree, a kink is near, and other numbers are drawn; the same if a function has no value. A function of a
symmetric matrix reads half of it, so its matrix and d are symmetric. The gradient at constant rank differs from the slope
if singular values are dropped, so none are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from picograd.autodiff import modes
from picograd.autodiff.chain_rules import chain_rules
from picograd.dtype import float64
from picograd.errors import Line
from picograd.evaluator import evaluate
from picograd.evaluator.elementwise import Array
from picograd.ir.checks import Refused
from picograd.ir.op import Op, const_value, filled, toposort
from picograd.ir.opcode import ATTENTIONS, COMPARE, ELEMENTWISE, IDENTITY, OpCode
from picograd.ir.origin import line_of, lines_of
from picograd.ir.pattern import PatternMatcher
from picograd.ir.text import format_graph
from picograd_lab.fuzz.check import Wrong
from picograd_lab.verify.graphs import reads_back
from picograd_lab.verify.passes import in_double
from picograd_lab.verify.verdict import Mismatch

STEP = 1e-6
TOLERANCE = 1e-5  # of a slope with two agreeing steps: h**2 of the third derivative, 1e-16 / h of rounding
ELEMENTS_MAX = 1 << 16
SHORT = (7,)
WEIGHTS = 100  # slots of the incoming gradients
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]
SCRIPT = '''"""{said}"""

from picograd.ir.text import parse_graph
from picograd_lab.verify.slopes import check_gradient

(op,) = parse_graph("""
{text}
""")
check_gradient(op, {results}, {needed})
'''
DRAWS: tuple[Draw, ...] = (  # the first one where the operation is smooth decides
    lambda rng, shape: rng.standard_normal(shape),
    lambda rng, shape: rng.uniform(0.5, 1.5, shape),
    lambda rng, shape: rng.uniform(-0.9, 0.9, shape),
)
SYMMETRIC = frozenset({"cholesky", "eigh", "eigvalsh"})  # host functions of symmetric matrices
OF_CONSTANT_RANK = frozenset({"pinv"})  # sources after the first choose the dropped singular values
MODES: Any = modes  # its functions are replaced while rules are recorded


class Asked(NamedTuple):
    """An Op that was differentiated, over PARAMs in float64.

    results:  numbers of its results with gradients; () for a single result
    needed:   sources that need gradients
    rules:    the derivative table
    """

    op: Op
    shown: Op
    results: tuple[int, ...]
    needed: tuple[int, ...]
    rules: PatternMatcher
    lines: tuple[Line, ...]


class Slopes:
    """The differentiated Ops, by their forms.

    skipped:  forms that are too large
    """

    def __init__(self) -> None:
        self.asked: dict[Any, Asked] = {}
        self.skipped: set[Any] = set()

    def note(self, op: Op, results: tuple[int, ...], needed: Sequence[int], rules: PatternMatcher) -> None:
        """Records an Op once for each form."""
        row = rules.find(op)
        name = row[0].name if row is not None else ""
        key = (name, op.arg, results, *needed, *((s.dtype, s.shape, const_value(s)) for s in op.src))
        if key in self.asked or op.code in IDENTITY or not all(isinstance(d, int) for s in op.src for d in s.shape):
            return
        shown = _alone(op)
        if shown is None:
            self.skipped.add(key)
            return
        (double,) = in_double([shown])
        nearest = line_of(op)
        lines = lines_of(op) or ((nearest,) if nearest is not None else ())
        self.asked[key] = Asked(double, shown, results, tuple(needed), rules, lines)

    def mismatches(self) -> Iterator[Mismatch]:
        """Yields the rules whose gradients are not slopes."""
        for asked in self.asked.values():
            if (found := _mismatch(asked)) is not None:
                yield found


def check_gradient(op: Op, results: Sequence[int], needed: Sequence[int]) -> None:
    """Compares the gradients of an Op over PARAMs with its slopes.

    Args:
      results, needed:  as those of `Asked`

    Raises:
      Wrong: a gradient differs from its slope.
    """
    (double,) = in_double([op])
    found = _mismatch(Asked(double, op, tuple(results), tuple(needed), chain_rules, ()))
    if found is not None:
        raise Wrong(f"{found.what}: {found.fact}")


def _mismatch(asked: Asked) -> Mismatch | None:
    """Returns the mismatch of a rule for the first numbers that decide."""
    rng = np.random.default_rng(0)
    for draw in DRAWS:
        try:
            found, is_decided = _held(asked, draw, rng)
        except Refused:
            continue
        if is_decided:
            return found
    return None


@contextmanager
def recorded_rules() -> Iterator[Slopes]:
    """Records every Op that is differentiated inside the block."""
    found, one, several = Slopes(), MODES.source_gradients, MODES.several_gradients

    def of_one(op: Op, grad: Op, needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
        found.note(op, (), needed, rules)
        return one(op, grad, needed, rules)

    def of_several(op: Op, grads: Mapping[int, Op], needed: Sequence[int], rules: PatternMatcher) -> list[Op | None]:
        if op.code in ATTENTIONS:
            found.note(op, tuple(grads), needed, rules)
        return several(op, grads, needed, rules)

    MODES.source_gradients, MODES.several_gradients = of_one, of_several
    try:
        yield found
    finally:
        MODES.source_gradients, MODES.several_gradients = one, several


def _alone(op: Op) -> Op | None:
    """Returns an Op over PARAMs and constants, short ones if the rule does not depend on shapes; None: too large."""
    shapes = [tuple(map(int, s.shape)) for s in op.src]
    if max([op.numel, *(s.numel for s in op.src)]) > ELEMENTS_MAX:
        if op.code in ELEMENTWISE:
            shapes = [SHORT] * len(shapes)
        elif op.code is OpCode.MATMUL:
            batch = (2,) * min(1, len(shapes[0]) - 2)
            shapes = [(*batch, 3, 5), (*batch, 5, 4)]
        else:
            return None
    src: list[Op] = []
    for source, shape in zip(op.src, shapes):
        if src and op.code is OpCode.CUSTOM and op.arg.name in OF_CONSTANT_RANK:
            src.append(filled(0, source.dtype, shape))
        else:
            src.append(_number(source, shape) or Op(OpCode.PARAM, source.dtype, (), (len(src), shape)))
    own = dict(zip(reversed(op.src), reversed(src)))
    for i, source in enumerate(op.src):
        if source.code in COMPARE:  # a rule may depend on the compared values, such as relu's
            compared: list[Op] = []
            for s in source.src:
                given = _number(s, shapes[i]) or own.get(s)
                compared.append(given or Op(OpCode.PARAM, s.dtype, (), (len(src) + i + len(compared), shapes[i])))
            src[i] = source.replace(src=tuple(compared))
    return Op(op.code, op.dtype, tuple(src), op.arg)


def _number(source: Op, shape: tuple[int, ...]) -> Op | None:
    """Returns a constant broadcast to a shape, if the source is one."""
    value = const_value(source)
    return None if value is None or not np.isfinite(value) else filled(value, source.dtype, shape)


def _held(asked: Asked, draw: Draw, rng: np.random.Generator) -> tuple[Mismatch | None, bool]:
    """Returns the mismatch for some numbers, and whether they decide."""
    op = asked.op
    outputs = [Op(OpCode.OUTPUT, float64, (op,), i) for i in asked.results] or [op]
    arrays = {s: _numbers(op, s, draw, rng) for s in toposort([op]) if s.code is OpCode.PARAM}
    weights = [Op(OpCode.PARAM, float64, (), (WEIGHTS + i, out.shape)) for i, out in enumerate(outputs)]
    given = {weight: rng.standard_normal(weight.shape) for weight in weights}
    if asked.results:
        parts = modes.several_gradients(op, dict(zip(asked.results, weights)), asked.needed, asked.rules)
    else:
        parts = modes.source_gradients(op, weights[0], asked.needed, asked.rules)
    for i, part in zip(asked.needed, parts):
        if part is None or op.src[i] not in arrays:
            continue
        (gradient,) = evaluate([part], {**arrays, **given})
        direction = np.asarray(rng.standard_normal(gradient.shape))
        if _is_of_symmetric(op):
            direction = direction + direction.swapaxes(-1, -2)
        slope = partial(_slope, outputs, [given[weight] for weight in weights], arrays, op.src[i], direction)
        near, far = slope(STEP), slope(4 * STEP)
        along = float((gradient * direction).sum())
        allowed = TOLERANCE * (1.0 + float(np.abs(gradient * direction).sum()))
        if not abs(near - far) <= allowed:
            return None, False
        if not abs(along - near) <= allowed:
            found = asked.rules.find(op)
            name = op.arg.name if op.code is OpCode.CUSTOM else found[0].name if found is not None else op.code.name
            fact = f"the gradient of its source {i} along a direction is {along:.6g}, the slope is {near:.6g}."
            text = format_graph([asked.shown])
            script = SCRIPT.format(said=f"{name}: {fact}", text=text.strip(), results=asked.results, needed=asked.needed)
            shown = script if reads_back(text) else ""
            return Mismatch(f'the chain rule "{name}"', fact, text, asked.lines, shown), True
    return None, True


def _slope(
    outputs: Sequence[Op], weights: Sequence[Array], arrays: Mapping[Op, Array], source: Op, direction: Array, step: float
) -> float:
    """Returns the slope of the weighted sum of results; results are subtracted separately, since some may be huge."""
    ends = [evaluate(outputs, {**arrays, source: arrays[source] + h * direction}) for h in (step, -step)]
    return sum(float(((a - b) * weight).sum()) for a, b, weight in zip(*ends, weights)) / (2 * step)


def _is_of_symmetric(op: Op) -> bool:
    return op.code is OpCode.CUSTOM and op.arg.name in SYMMETRIC


def _numbers(op: Op, source: Op, draw: Draw, rng: np.random.Generator) -> Array:
    shape: Any = source.shape
    if source.dtype.is_float:
        drawn = np.asarray(draw(rng, shape))
        return drawn @ drawn.swapaxes(-1, -2) + np.eye(shape[-1]) if _is_of_symmetric(op) else drawn
    if source.dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape), np.bool_)
    axis = {OpCode.GATHER: 0, OpCode.SCATTER: 1}.get(op.code)  # the argument's position of an index's axis
    length = 4 if axis is None else max(1, int(str(op.src[0].shape[op.arg[axis]])))
    return np.asarray(rng.integers(0, length, shape), source.dtype.numpy)
