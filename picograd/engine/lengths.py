"""Lengths that change from run to run: shapes as polynomials of symbolic integers.

In:    the shapes of a form, of several graphs
Out:   `lengths_of`, `with_lengths`: those in an argument; `Lengths`: what they are of each other; `Sizes`: of one graph
Called by: engine/scalars.py.    Next: picograd/engine/offsets.py

    for episode in episodes:                    # 23 steps, then 31, then 18
        step(states, actions, returns)          # (n, 4), (n,), (n,): a plan for all n from 16 to 31

The first two lengths of a form have plans of their own, the first alone where lengths grow by one. From then on,
graphs of a form are samples: what differs is a polynomial of what differs elsewhere, equal in all samples, or a
symbolic integer of its own. Each new graph puts the polynomials to the test; where they give another length than it
has, it is one more sample. The bounds of a symbolic integer are powers of two, so that kernels are as good as those
of one length, and add up in the same order. Lengths of 0 and 1 belong to a form.

A plan for each length is still made of convolutions of images whose sizes change, not their number alone: they would lose
the values at points (codegen/cpu/toom.py), and take 1.6 to 1.9 of the time (32 channels of 28 x 28, kernels of 3 x 3); of
gradients of convolutions with a stride along a line of changing length; and of attention and its gradients on a GPU.

A sum on a CPU has the bits of a plan of its length, but for three kinds whose last bits may differ: a sum over several axes
that do not merge, the last of them symbolic, gradients of a norm's weights where bounds leave open whether there are rows
enough for blocks (codegen/cpu/reduce_both.py), and convolutions: gradients of their weights, and all along lines of other
lengths, whose windows are packed. On a GPU threads of a row follow from its length: any sum may differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache
from itertools import combinations, combinations_with_replacement
from math import prod
from typing import Any

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import ATTENTIONS, OpCode
from picograd.ir.symbolic import add, mul
from picograd.record import Record, Struct, field

OWN_PLANS = 2  # lengths of a form that have plans of their own, such as those of a batch and of the last, short one
MOST_SAMPLES = 8  # of a form: where they make no polynomials by then, it has a plan for each length
MOST_VARIABLES = 2  # of a form
STARTS = (2, 8, 16, 32, 64, *(1 << power for power in range(12, 63, 6)))  # from each to the next lengths share their bounds
MOST_FACTOR = 4  # of a length to which another number is added
SHAPES = frozenset({OpCode.RESHAPE, OpCode.EXPAND})
LAST_IS_LENGTH = frozenset({OpCode.IOTA, OpCode.CHECK, OpCode.LOOP})  # in their arguments

Sample = tuple[int, ...]
Polynomial = tuple[tuple[tuple[int, ...], int], ...]  # monomials: symbolic integers by number, and their factor


# ---- arguments ----
@lru_cache(4096)
def shape_of(shape: tuple[Any, ...]) -> tuple[tuple[Hashable, ...], Sample]:
    """Returns a shape without its lengths, and these; what is 0, 1 or symbolic already stays in it.

    >>> shape_of((5, 1, 7))
    ((None, 1, None), (5, 7))
    """
    rest = tuple([None if dim.__class__ is int and dim > 1 else dim for dim in shape])
    return rest, tuple([dim for dim in shape if dim.__class__ is int and dim > 1])


def with_dims(shape: tuple[Any, ...], dims: Iterator[Dim]) -> tuple[Any, ...]:
    """Returns a shape with others in the place of its lengths."""
    return tuple([next(dims) if dim.__class__ is int and dim > 1 else dim for dim in shape])


def lengths_of(op: Op, is_leaf: bool, part: Any, found: list[int]) -> Any:
    """Returns a part of a form's key without the lengths in it, which are added to `found`; blocks are left to offsets.py.

    The words of a CHECK, which have its length, are no part of a plan.
    """
    if is_leaf or op.code in SHAPES:
        rest, lengths = shape_of(part[2])
        found += lengths
        return (*part[:2], rest, *part[3:])
    if op.code in LAST_IS_LENGTH:
        *others, length = part[2] if isinstance(part[2], tuple) else (part[2],)
        rest, lengths = shape_of((length,))
        found += lengths
        return (*part[:2], None if op.code is OpCode.CHECK else (*others,), rest, *part[3:])
    return part


def needs_numbers(op: Op, is_gpu: bool) -> bool:
    """Returns whether graphs with an Op have a plan for each length: their symbolic kernels have other bits, or none."""
    return is_gpu and op.code in ATTENTIONS and len(op.src) != 4


def with_lengths(op: Op, is_leaf: bool, dims: Iterator[Dim]) -> Any:
    """Returns the argument of an Op, or the shape of a leaf, with others in the place of its lengths."""
    if is_leaf:
        return with_dims(op.shape, dims)
    if op.code in LAST_IS_LENGTH:
        return (*op.arg[:-1], *with_dims(op.arg[-1:], dims)) if isinstance(op.arg, tuple) else with_dims((op.arg,), dims)[0]
    return with_dims(op.arg, dims)


# ---- polynomials ----
def _constant(value: int) -> Polynomial:
    return (((), value),) if value else ()


def _sum(*parts: Polynomial) -> Polynomial:
    total: dict[tuple[int, ...], int] = {}
    for part in parts:
        for variables, factor in part:
            total[variables] = total.get(variables, 0) + factor
    return tuple(sorted((variables, factor) for variables, factor in total.items() if factor))


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    return _sum(*[((tuple(sorted(v + w)), f * g),) for v, f in a for w, g in b])


def _value(polynomial: Polynomial, values: Sequence[int]) -> int:
    return sum(factor * prod([values[v] for v in variables]) for variables, factor in polynomial)


def _dim(polynomial: Polynomial, symbols: Sequence[Op]) -> Dim:
    total: Dim = 0
    for variables, factor in polynomial:
        term: Dim = factor
        for variable in variables:
            term = mul(term, symbols[variable])
        total = add(total, term)
    return total


# ---- samples -> polynomials ----
class Solution(Record):
    """Polynomials that give the numbers of a form from a few of them.

    parts:  a polynomial for each number; None for a start of a block that is none, or does not change
    roots:  for each symbolic integer the number that it stands for
    """

    parts: tuple[Polynomial | None, ...]
    roots: tuple[int, ...]

    def holds(self, sample: Sample) -> bool:
        """Returns whether the polynomials give the numbers of a graph."""
        values = self.values(sample)
        numbers = {part: _value(part, values) for part in {*self.parts} if part is not None}
        return all(part is None or numbers[part] == number for part, number in zip(self.parts, sample))

    def values(self, sample: Sample) -> list[int]:
        """Returns the values of the symbolic integers in a graph."""
        return [sample[root] for root in self.roots]


def solve(samples: Sequence[Sample], num_lengths: int) -> Solution | None:
    """Returns polynomials that give the numbers of all samples; None where that takes too many symbolic integers.

    Args:
      num_lengths:  how many numbers are lengths; behind them stand starts of blocks, which may be anything, and rooms

    >>> solve([(5, 40, 4), (7, 56, 6)], 2).parts
    ((((0,), 1),), (((0,), 8),), (((), -1), ((0,), 1)))
    """
    columns = list(zip(*samples))
    known: dict[Sample, Polynomial] = {}
    roots: list[int] = []
    spreads = [max(column) - min(column) for column in columns]
    for place in sorted(range(num_lengths), key=spreads.__getitem__):  # a length before its multiples
        column = columns[place]
        if column not in known and not _is_fixed(column):
            known[column] = _related(column, known) or (((len(roots),), 1),)
            roots += [place] if known[column] == (((len(roots),), 1),) else []
    if len(roots) > MOST_VARIABLES:
        return None
    parts: list[Polynomial | None] = []
    for place, column in enumerate(columns):
        if place < num_lengths and _is_fixed(column):
            parts.append(_constant(column[0]))
        else:  # of a start that does not change engine/offsets.py sees whether it moves by itself
            parts.append(known.get(column) or (None if _is_fixed(column) else _related(column, known)))
    return Solution(tuple(parts), tuple(roots))


def _is_fixed(column: Sample) -> bool:
    return all(number == column[0] for number in column)


def _related(column: Sample, known: dict[Sample, Polynomial]) -> Polynomial | None:
    """Returns what a number is of those that are known: the plainest that fits all samples."""
    for rule in (_multiple, _shifted, _multiple_of_two, _joined, _scaled):
        found = rule(column, known)
        if found is not None:
            return found
    return None


def _multiple(column: Sample, known: dict[Sample, Polynomial]) -> Polynomial | None:
    for other, part in known.items():
        factor = column[0] // other[0] if other[0] else 0
        if factor and all(number == factor * of for number, of in zip(column, other)):
            return _product(part, _constant(factor))
    return None


def _shifted(column: Sample, known: dict[Sample, Polynomial], factors: Sequence[int] = (1, -1)) -> Polynomial | None:
    for factor in factors:
        for other, part in known.items():
            rest = column[0] - factor * other[0]
            if all(number == factor * of + rest for number, of in zip(column, other)):
                return _sum(_product(part, _constant(factor)), _constant(rest))
    return None


def _scaled(column: Sample, known: dict[Sample, Polynomial]) -> Polynomial | None:
    return _shifted(column, known, [sign * factor for factor in range(2, MOST_FACTOR + 1) for sign in (1, -1)])


def _multiple_of_two(column: Sample, known: dict[Sample, Polynomial]) -> Polynomial | None:
    for (a, part_a), (b, part_b) in combinations_with_replacement(known.items(), 2):
        products = tuple([x * y for x, y in zip(a, b)])
        found = _multiple(column, {products: _product(part_a, part_b)})
        if found is not None:
            return found
    return None


def _joined(column: Sample, known: dict[Sample, Polynomial]) -> Polynomial | None:
    for (a, part_a), (b, part_b) in combinations(known.items(), 2):
        for sign in (1, -1):
            sums = tuple([x + sign * y for x, y in zip(a, b)])
            found = _shifted(column, {sums: _sum(part_a, _product(part_b, _constant(sign)))})
            if found is not None:
                return found
    return None


# ---- a form ----
class Sizes(Record):
    """The numbers of a graph, as a plan for many of them has them.

    dims:    of each number; None for a start of a block that does not follow from lengths
    values:  of symbolic integers by name
    key:     what a plan depends on
    """

    dims: tuple[Dim | None, ...]
    values: dict[str, int]
    key: Hashable


class Lengths(Struct):
    """The graphs of one form, as far as they differed in lengths.

    num_lengths:  of the numbers of a sample; behind them stand the starts of blocks and their rooms
    is_refused:   all have plans of their own
    """

    num_lengths: int
    samples: list[Sample]
    is_refused: bool = False
    solution: Solution | None = None
    kept: dict[Sample, Sizes] = field(default_factory=dict)

    def sizes(self, sample: Sample, prefix: str) -> Sizes | None:
        """Returns symbolic lengths for a graph; None where it keeps its own.

        Args:
          prefix:  of the names of symbolic integers
        """
        kept = self.kept.get(sample)
        if kept is not None:
            return kept
        if self.is_refused:
            return None
        if any(sample[: self.num_lengths] == own[: self.num_lengths] for own in self.samples[: self._num_own()]):
            return None
        if self.solution is None or not self.solution.holds(sample):
            self._learn(sample)
        if self.solution is None:
            return None
        if len(self.kept) >= MOST_KEPT:
            self.kept.clear()
        found = self.kept[sample] = _sizes(self.solution, sample, self.num_lengths, prefix)
        return found

    def refuse(self) -> None:
        """Remembers that graphs of this form have no plan with symbolic lengths."""
        self.is_refused, self.solution = True, None
        self.kept.clear()

    def _num_own(self) -> int:
        """Returns how many lengths have plans of their own: one where they grow by one, as where a text is written."""
        if len(self.samples) < OWN_PLANS:
            return OWN_PLANS
        steps = {b - a for a, b in zip(self.samples[0][: self.num_lengths], self.samples[1])}
        return 1 if steps <= {0, 1} else OWN_PLANS

    def _learn(self, sample: Sample) -> None:
        self.samples.append(sample)
        self.kept.clear()
        if len(self.samples) > self._num_own():
            self.solution = solve(self.samples, self.num_lengths)
            if self.solution is None or len(self.samples) > MOST_SAMPLES:
                self.refuse()


MOST_KEPT = 256  # graphs of a form whose sizes are remembered


def _sizes(solution: Solution, sample: Sample, num_lengths: int, prefix: str) -> Sizes:
    values = solution.values(sample)
    bounds = [bucket(value) for value in values]
    for least, parts in ((2, solution.parts[:num_lengths]), (0, solution.parts[num_lengths:])):
        for part in dict.fromkeys(parts):
            _narrow(bounds, part, least)
    symbols = [Op(OpCode.VARIABLE, dtypes.int64, (), (f"{prefix}{i}", *ends)) for i, ends in enumerate(bounds)]
    shown = {part: None if part is None else _dim(part, symbols) for part in {*solution.parts}}
    dims = tuple(map(shown.__getitem__, solution.parts))
    named = {f"{prefix}{i}": value for i, value in enumerate(values)}
    return Sizes(dims, named, (solution.parts, tuple(map(tuple, bounds))))


def bucket(length: int) -> list[int]:
    """Returns the bounds of the lengths that share a plan with this one.

    >>> bucket(5), bucket(31), bucket(64)
    ([2, 7], [16, 31], [64, 4095])
    """
    number = bisect_right(STARTS, length)
    return [STARTS[number - 1], STARTS[number] - 1]


def _narrow(bounds: list[list[int]], part: Polynomial | None, least: int) -> None:
    """Narrows bounds so that a length, start or room is no less than it ever is; of one symbolic integer alone."""
    factors = dict(part or ())
    constant = factors.pop((), 0)
    if len(factors) != 1:
        return
    ((variables, factor),) = factors.items()
    if len(variables) == 1:
        ends = bounds[variables[0]]
        if factor > 0:
            ends[0] = max(ends[0], -((constant - least) // factor))
        else:
            ends[1] = min(ends[1], (constant - least) // -factor)
