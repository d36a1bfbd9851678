"""Lengths and offsets that change from run to run, as symbolic integers.

In:    the shapes of a form, of several graphs; its SHRINKs and PADs
Out:   `lengths_of`, `with_lengths`: those in an argument; `Lengths`: what they are of each other; `Sizes`: of one graph
       `Offset`, `offsets_of`; `Moving`: which offsets change, and their expressions

    for i in range(0, 2048, 64):
        step(x[i : i + 64], y[i : i + 64])      # SHRINK (i, i + 64) of two buffers: one symbolic integer, i

Offsets that have moved by equal amounts so far are one symbolic integer plus constants, so that a block is still seen to be
the one that is written, or its neighbour. Where they part they become two.

    for episode in episodes:                    # 23 steps, then 31, then 18
        step(states, actions, returns)          # (n, 4), (n,), (n,): a plan for all n from 16 to 31

The first two lengths of a form have plans of their own, the first alone where lengths grow by one. From then on,
graphs of a form are samples: a number that differs is a polynomial of others, equal in all samples, or a symbolic integer
of its own. Each new graph puts the polynomials to the test; where they give another length than it has, it is one more
sample. The bounds of a symbolic integer are powers of two, so that kernels are as good as those of one length, and add up
in the same order. Lengths of 0 and 1 belong to a form.

A plan for each length is still made of convolutions of images whose sizes change, not their number alone: they would lose
the values at points (codegen/winograd.py), and take 1.6 to 1.9 of the time (32 channels of 28 x 28, kernels of 3 x 3); of
gradients of convolutions with a stride along a line of changing length; and of attention and its gradients on a GPU.

A sum on a CPU has the bits of a plan of its length, but for three kinds whose last bits may differ: a sum over several axes
that do not merge, the last of them symbolic, gradients of a norm's weights where bounds leave open whether there are rows
enough for blocks (codegen/reduce_cpu.py), and convolutions: gradients of their weights, and all along lines of other
lengths, whose windows are packed. On a GPU threads of a row follow from its length: any sum may differ.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, zip_longest
from math import gcd, prod
from types import MappingProxyType
from typing import Any

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.ir.symbolic import add, bounds, ceildiv, floordiv, mul, subtract, to_op
from picograd.record import Record, Struct, field

# ---- offsets ----
BLOCKS = frozenset({OpCode.SHRINK, OpCode.PAD})
FIXED = 0  # the group of offsets that have not changed


class Offset(Record):
    """Elements of an axis before a block: those that a SHRINK leaves out, or that a PAD adds.

    op, axis:  where
    value:     now
    room:      its greatest value
    """

    op: Op
    axis: int
    value: int
    room: int

    def block(self) -> Hashable:
        """Returns a key that tells the block from others of its line; None if no line is known."""
        return (self.op.lines[0], self.op.code, self.op.src[0].shape, self.axis, self.room) if self.op.lines else None


def offsets_of(op: Op, arg: Sequence[tuple[Any, Any]], found: list[Offset], lengths: list[int]) -> Hashable:
    """Returns the argument of a SHRINK or PAD without its offsets and lengths, which are added to `found` and `lengths`.

    Args:
      arg:  the argument, with symbolic integers unbound
    """
    rest: list[Hashable] = []
    is_shrink = op.code is OpCode.SHRINK
    for axis, ((start, end), length) in enumerate(zip(arg, op.src[0].shape if is_shrink else op.shape)):
        if start.__class__ is not int or end.__class__ is not int or length.__class__ is not int:
            rest.append((start, end))
            continue
        held = end - start if is_shrink else start + end
        room = length - held if is_shrink else held
        if room:
            found.append(Offset(op, axis, start, room))
        if held > 1:
            lengths.append(held)
        rest.append((room > 0, held if held < 2 else None))
    return tuple(rest)


def with_held(op: Op, dims: Iterator[Dim]) -> list[tuple[Dim, Dim]]:
    """Returns the argument of a SHRINK or PAD with other lengths of its blocks, or other numbers of zeros."""
    is_shrink, found = op.code is OpCode.SHRINK, []
    for (start, end), length in zip(op.arg, op.src[0].shape):
        if start.__class__ is int and end.__class__ is int and length.__class__ is int:
            number = end - start if is_shrink else start + end
            held = next(dims) if number > 1 else number
            end = add(start, held) if is_shrink else subtract(held, start)
        found.append((start, end))
    return found


AxisOfValue = tuple[int, int]  # an axis and a value


def regrouped(groups: Sequence[int], before: Sequence[AxisOfValue], now: Sequence[AxisOfValue]) -> tuple[int, ...]:
    """Returns the groups of offsets that have moved alike along one axis, once more values are known.

    >>> regrouped((0, 0, 0, 0), ((0, 5), (0, 6), (0, 7), (1, 8)), ((0, 5), (0, 8), (0, 9), (1, 10)))
    (0, 1, 1, 2)
    """
    numbers: dict[Hashable, int] = {}
    found = []
    for group, (axis, a), (_, b) in zip(groups, before, now):
        moved = group != FIXED or a != b
        found.append(numbers.setdefault((group, axis, b - a), len(numbers) + 1) if moved else FIXED)
    return tuple(found)


class Moving(Record):
    """The offsets of a form, and those of them that change.

    offsets:  all of them
    groups:   of each, by number; FIXED where it does not change by itself
    prefix:   of the names of their symbolic integers
    starts:   of each, where it follows from symbolic lengths, else None
    rooms:    of each, where lengths are symbolic
    """

    offsets: tuple[Offset, ...] = ()
    groups: tuple[int, ...] = ()
    prefix: str = "offset"
    starts: tuple[Dim | None, ...] = ()
    rooms: tuple[Dim | None, ...] = ()

    def constants(self) -> tuple[int, ...]:
        """Returns the values of fixed offsets, and how far each of the others is from the first of its group."""
        firsts = self._firsts()
        found = [o.value - firsts.get(group, 0) for o, group in zip(self.offsets, self.groups)]
        return tuple([0 if start is not None else value for value, start in zip_longest(found, self.starts)])

    def values(self) -> dict[str, int]:
        """Returns the values of the symbolic integers by name."""
        return {self.name(group): value for group, value in self._firsts().items()}

    def arguments(self, lengths: Mapping[Op, Any] = MappingProxyType({})) -> dict[Op, Any]:
        """Returns the arguments with symbolic offsets, for the Ops that have any.

        Args:
          lengths:  arguments of Ops that have symbolic lengths
        """
        found = dict(lengths)
        members: dict[int, list[tuple[Offset, int, Dim]]] = {}
        for offset, group, constant, start, room in zip_longest(
            self.offsets, self.groups, self.constants(), self.starts, self.rooms
        ):
            if start is not None:
                _begin(found, offset, start)
            members.setdefault(group, []).append((offset, constant, offset.room if room is None else room))
        members.pop(FIXED, None)
        for group, places in members.items():
            least, greatest = max(-c for _, c, _ in places), min(bounds(room)[1] - c for _, c, room in places)
            variable = Op(OpCode.VARIABLE, dtypes.int64, (), (self.name(group), least, greatest))
            for offset, constant, _ in places:
                _begin(found, offset, add(variable, constant))
        return {op: tuple(arg) if op.code in BLOCKS else arg for op, arg in found.items()}

    def _firsts(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for offset, group in zip(self.offsets, self.groups):
            if group != FIXED:
                found.setdefault(group, offset.value)
        return found

    def named(self) -> dict[tuple[Op, int], tuple[str, int]]:
        """Returns for each offset that changes the name of its symbolic integer, and how far it is from that."""
        return {
            (offset.op, offset.axis): (self.name(group), constant)
            for offset, group, constant in zip(self.offsets, self.groups, self.constants())
            if group != FIXED
        }

    def name(self, group: int) -> str:
        """Returns the name of the symbolic integer of a group."""
        return f"{self.prefix}{group}"


def _begin(arguments: dict[Op, Any], offset: Offset, at: Dim) -> None:
    """Has a block begin at another place."""
    op = offset.op
    arg = arguments[op] = list(arguments.get(op, op.arg))
    start, end = arg[offset.axis]
    if op.code is OpCode.SHRINK:
        arg[offset.axis] = at, add(at, subtract(end, start))
    else:
        arg[offset.axis] = at, subtract(add(start, end), at)


def free_prefix(names: Iterable[str] | Mapping[str, int], prefix: str = "offset") -> str:
    """Returns a beginning of names that none of the user's symbolic integers has.

    >>> free_prefix(["n", "offset2"])
    'offset_'
    """
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


# ---- lengths ----
OWN_PLANS = 2  # lengths of a form that have plans of their own, such as those of a batch and of the last, short one
SAMPLES_MAX = 8  # of a form: where they make no polynomials by then, it has a plan for each length
VARIABLES_MAX = 32  # of a form, such as the rows that each expert of several layers gets
STARTS = (2, 8, 16, 32, 64, *(1 << power for power in range(12, 63, 6)))  # from each to the next lengths share their bounds
FACTOR_MAX = 4  # of a length to which another number is added
DIVISOR_MAX = 64  # of a length, as the greatest stride of windows
CHANCE = 16  # one in so many numbers, about, may be taken for a quotient
SHAPES = frozenset({OpCode.RESHAPE, OpCode.EXPAND})
LAST_IS_LENGTH = frozenset({OpCode.IOTA, OpCode.CHECK, OpCode.LOOP})  # in their arguments
WITH_LENGTHS = SHAPES | LAST_IS_LENGTH

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
    """Returns the part of a leaf or of one of WITH_LENGTHS in a form's key, without lengths, which are added to `found`.

    The words of a CHECK, which have its length, are not part of a plan.
    """
    if is_leaf or op.code in SHAPES:
        rest, lengths = shape_of(part[2])
        found += lengths
        return (*part[:2], rest, *part[3:])
    *others, length = part[2] if isinstance(part[2], tuple) else (part[2],)
    rest, lengths = shape_of((length,))
    found += lengths
    return (*part[:2], None if op.code is OpCode.CHECK else (*others,), rest, *part[3:])


def with_channels(op: Op, part: Any) -> Any:
    """Returns the part of a CONV, or a formula of one, in a form's key, with the channels that kernels are made for."""
    arg = op.arg
    if op.code is OpCode.FORMULA:
        groups = [given for given in arg.options if isinstance(given, tuple)]
        arg = next((given for group in groups for given in group if isinstance(given, ConvArg)), None)
    return part if arg is None else (*part, op.src[1].shape[: 1 if arg.of_weight else 2])


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
class Root(Record):
    """A symbolic integer v that one of the numbers is made of: step * v + rest."""

    place: int
    step: int
    rest: int


class Quotient(Record):
    """A number that is (another + shift) // divisor, as the positions of windows with a stride are.

    of:  variable, a Root or a Quotient before this one
    """

    of: int
    shift: int
    divisor: int


class Solution(Record):
    """Polynomials that give the numbers of a form from a few of them.

    parts:      a polynomial for each number; None for a start of a block that is not a polynomial, or does not change
    variables:  of the polynomials
    """

    parts: tuple[Polynomial | None, ...]
    variables: tuple[Root | Quotient, ...]

    def holds(self, sample: Sample) -> bool:
        """Returns whether the polynomials give the numbers of a graph."""
        values, numbers = self.values(sample), dict[Polynomial, int]()
        for part, number in zip(self.parts, sample):
            if part is not None:
                known = numbers.get(part)
                if known is None:
                    known = numbers[part] = _value(part, values)
                if known != number:
                    return False
        return True

    def values(self, sample: Sample) -> list[int]:
        """Returns the values of the variables in a graph."""
        values: list[int] = []
        for variable in self.variables:
            if isinstance(variable, Root):
                values.append((sample[variable.place] - variable.rest) // variable.step)
            else:
                values.append((values[variable.of] + variable.shift) // variable.divisor)
        return values

    def symbols(self, prefix: str, bounds: Sequence[Sequence[int]]) -> list[Op]:
        """Returns the variables as expressions of symbolic integers between some bounds."""
        symbols: list[Op] = []
        for i, (variable, ends) in enumerate(zip(self.variables, bounds)):
            if isinstance(variable, Root):
                symbols.append(Op(OpCode.VARIABLE, dtypes.int64, (), (f"{prefix}{i}", *ends)))
            else:
                symbols.append(to_op(floordiv(add(symbols[variable.of], variable.shift), variable.divisor)))
        return symbols


class Guess(Record):
    """Decisions where samples leave open how one number follows from another.

    is_ceil:        a quotient is rounded up rather than down
    has_multiples:  a number that has been a multiple of another, and a number more, always is; else it is by chance, and
                    the other one is its quotient
    has_common:     that a number has had the same remainder in all samples is no chance
    """

    is_ceil: bool = True
    has_multiples: bool = True
    has_common: bool = False


# Those that fail are followed by the next.
GUESSES = (Guess(), Guess(is_ceil=False), Guess(has_multiples=False), Guess(has_common=True))


def solve(samples: Sequence[Sample], num_lengths: int, guess: Guess = GUESSES[0]) -> Solution | None:
    """Returns polynomials that give the numbers of all samples; None where that takes too many symbolic integers.

    Args:
      num_lengths:  how many numbers are lengths; then come starts of blocks, which may be anything, and rooms

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
            known[column] = _related(column, known, guess) or (((len(roots),), 1),)
            roots += [place] if known[column] == (((len(roots),), 1),) else []
            if len(roots) > VARIABLES_MAX:
                return None
    variables, order = _variables(columns, roots, guess)
    numbers = [order.index(i) for i in range(len(roots))]
    steps = {i: v for i, v in enumerate(variables) if isinstance(v, Root)}
    parts: list[Polynomial | None] = []
    for place, column in enumerate(columns):
        if place < num_lengths and _is_fixed(column):
            parts.append(_constant(column[0]))
        else:  # of a start that does not change engine/lengths.py sees whether it moves by itself
            found = known.get(column) or (None if _is_fixed(column) else _related(column, known, guess))
            parts.append(found and _renumbered(found, numbers, steps))
    return Solution(tuple(parts), tuple(variables))


def _variables(columns: Sequence[Sample], roots: Sequence[int], guess: Guess) -> tuple[list[Root | Quotient], list[int]]:
    """Returns the variables for some numbers that are no polynomials of each other, and which of the numbers each is."""
    variables: list[Root | Quotient] = []
    order: list[int] = []
    for i in reversed(range(len(roots))):  # a length before its quotients
        column = columns[roots[i]]
        quotient = None
        for of in reversed(range(len(order))):
            quotient = quotient or _quotient(column, columns[roots[order[of]]], of, guess)
        step = gcd(*[number - column[0] for number in column]) if guess.has_common else 1
        variables.append(quotient or Root(roots[i], step, column[0] % step))
        order.append(i)
    return variables, order


def _quotient(column: Sample, other: Sample, of: int, guess: Guess) -> Quotient | None:
    """Returns how a number is another one divided in all samples; divisors that fit any number by chance are left out."""
    likelihood, power = (max(other) - min(other)) ** (len(column) - 1) // CHANCE, len(column)
    for divisor in range(2, DIVISOR_MAX + 1):
        if divisor**power > likelihood:
            break
        shifts = [number * divisor - whole for number, whole in zip(column, other)]
        least, most = max(shifts), min(shifts) + divisor - 1
        if least <= most:
            likely = divisor - 1 if guess.is_ceil else 0
            return Quotient(of, min(max(likely, least), most), divisor)
    return None


def _renumbered(part: Polynomial, numbers: Sequence[int], roots: Mapping[int, Root]) -> Polynomial:
    """Returns a polynomial of numbers as one of the variables that they are made of."""
    total: Polynomial = ()
    for factors, factor in part:
        term = _constant(factor)
        for i in factors:
            variable = numbers[i]
            root = roots.get(variable)
            step, rest = (1, 0) if root is None else (root.step, root.rest)
            term = _product(term, _sum((((variable,), step),), _constant(rest)))
        total = _sum(total, term)
    return total


def _is_fixed(column: Sample) -> bool:
    return all(number == column[0] for number in column)


def _related(column: Sample, known: dict[Sample, Polynomial], guess: Guess) -> Polynomial | None:
    """Returns the simplest formula that gives a number from known ones in all samples."""
    rules = (_multiple, _shifted, _multiple_of_two, _joined, _scaled)
    if not guess.has_multiples:  # the factors of a product are the largest that there are
        rules, known = rules[1:-1], dict(reversed(known.items()))
    for rule in rules:
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
    return _shifted(column, known, [sign * factor for factor in range(2, FACTOR_MAX + 1) for sign in (1, -1)])


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

    num_lengths:  of the numbers of a sample; then come the starts of blocks and their rooms
    is_refused:   all have plans of their own
    samples:      those from which the others were learned
    own:          lengths that have plans of their own: the first two, the first alone where they grow by one
    guess:        number of the one that the solution is made with
    solution:     what their numbers are of each other
    kept:         the sizes of those asked for last
    shown:        for the bounds of their symbolic lengths the numbers as these show them, and a key
    """

    num_lengths: int
    is_refused: bool = False
    samples: list[Sample] = field(default_factory=list)
    own: set[Sample] = field(default_factory=set)
    guess: int = 0
    solution: Solution | None = None
    kept: dict[Sample, Sizes] = field(default_factory=dict)
    shown: dict[Hashable, tuple[tuple[Dim | None, ...], Hashable]] = field(default_factory=dict)

    def sizes(self, sample: Sample, prefix: str) -> Sizes | None:
        """Returns symbolic lengths for a graph; None where it keeps its own.

        Args:
          prefix:  of the names of symbolic integers
        """
        kept = self.kept.get(sample)
        if kept is not None:
            return kept
        if self.is_refused or sample[: self.num_lengths] in self.own:
            return None
        if self.solution is None or not self.solution.holds(sample):
            self._learn(sample)
        if self.solution is None:
            return None
        if len(self.kept) >= KEPT_SIZES_MAX:
            self.kept.clear()
        values = self.solution.values(sample)
        ends = tuple([_ends(variable, sample) for variable in self.solution.variables])
        if ends not in self.shown:
            self.shown[ends] = _shown(self.solution, ends, self.num_lengths, prefix)
        dims, key = self.shown[ends]
        free = [i for i, variable in enumerate(self.solution.variables) if isinstance(variable, Root)]
        found = self.kept[sample] = Sizes(dims, {f"{prefix}{i}": values[i] for i in free}, key)
        return found

    def refuse(self) -> None:
        """Goes on to the next guess: graphs of this form have no plan with these symbolic lengths.

        Where no guess is left, graphs have plans of their own until another sample tells more.
        """
        failed = {self.solution}
        self._forget()
        while self.guess + 1 < len(GUESSES) and self.solution in failed:
            self.guess += 1
            self.solution = solve(self.samples, self.num_lengths, GUESSES[self.guess])
        if self.solution in failed:
            self.solution = None
        self.is_refused = self.solution is None and len(self.samples) >= SAMPLES_MAX

    def _learn(self, sample: Sample) -> None:
        if sample in self.samples:
            return
        own = sample[: self.num_lengths]
        if not self.samples or (len(self.samples) < OWN_PLANS and not self._grows_by_one(own)):
            self.own.add(own)
        self.samples.append(sample)
        self._forget()
        if len(self.samples) > len(self.own):
            self.guess = 0
            self.solution = solve(self.samples, self.num_lengths)
            if self.solution is None or len(self.samples) > SAMPLES_MAX:
                self.is_refused, self.solution = True, None

    def _forget(self) -> None:
        self.kept.clear()
        self.shown.clear()

    def _grows_by_one(self, second: Sample) -> bool:
        """True where lengths are the first ones, or one more, as where a text is written."""
        return {after - before for before, after in zip(self.samples[0], second)} <= {0, 1}


KEPT_SIZES_MAX = 256  # graphs of a form whose sizes are remembered


def _ends(variable: Root | Quotient, sample: Sample) -> tuple[int, int]:
    """Returns the bounds of a symbolic integer in graphs that share a plan with this one; (0, 0) of a quotient."""
    if isinstance(variable, Quotient):
        return 0, 0
    least, greatest = bucket(sample[variable.place])
    return ceildiv(least - variable.rest, variable.step), (greatest - variable.rest) // variable.step


def _shown(
    solution: Solution, ends: Sequence[tuple[int, int]], num_lengths: int, prefix: str
) -> tuple[tuple[Dim | None, ...], Hashable]:
    """Returns numbers as symbolic integers between some ends show them, and what a plan for them depends on."""
    bounds = [[*least_and_greatest] for least_and_greatest in ends]
    for least, parts in ((2, solution.parts[:num_lengths]), (0, solution.parts[num_lengths:])):
        for part in dict.fromkeys(parts):
            _narrow(solution.variables, bounds, part or (), least)
    symbols = solution.symbols(prefix, bounds)
    shown = {part: None if part is None else _dim(part, symbols) for part in {*solution.parts}}
    return tuple(map(shown.__getitem__, solution.parts)), (solution, tuple(map(tuple, bounds)))


def bucket(length: int) -> tuple[int, int]:
    """Returns the bounds of the lengths that share a plan with this one.

    >>> bucket(5), bucket(31), bucket(64)
    ((2, 7), (16, 31), (64, 4095))
    """
    number = bisect_right(STARTS, length)
    return STARTS[number - 1], STARTS[number] - 1


def _narrow(variables: Sequence[Root | Quotient], bounds: list[list[int]], part: Polynomial, least: int) -> None:
    """Narrows bounds so that a length, start or room is no less than it ever is; of one symbolic integer alone."""
    factors = dict(part)
    constant = factors.pop((), 0)
    if len(factors) != 1:
        return
    ((factors_of_term, factor),) = factors.items()
    if len(factors_of_term) != 1:
        return
    (number,) = factors_of_term
    variable, ends = variables[number], bounds[number]
    if isinstance(variable, Quotient):
        if factor > 0:
            whole = _sum((((variable.of,), 1),), _constant(variable.shift))
            _narrow(variables, bounds, whole, -((constant - least) // factor) * variable.divisor)
    elif factor > 0:
        ends[0] = max(ends[0], -((constant - least) // factor))
    else:
        ends[1] = min(ends[1], (constant - least) // -factor)
