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

A length that follows from others in another way, as the half that a stride leaves of an image, is a symbolic integer of
its own at first. An Op that needs it equal to what the others make of it says so, and it is that expression from then on.
Where neither can be what the other is, a polynomial was a guess from too few samples, and is given up. Where two halves
make up a length, and it has been even in all samples, it is twice a symbolic integer.

    for image in images:                    # 480 x 640 pixels, then 333 x 500
        network(image)                      # a plan for all of 64 x 64 to 4095 x 4095

Convolutions of such images go by boxes whose lengths are numbers (codegen/convolution_boxes.py), without values at points
(codegen/winograd.py): they take 1.0 to 1.3 of the time of a plan of one size that has none, 1.5 to 1.9 of one that has. A
plan for each length is still made of attention and its gradients on a GPU. Where there is no memory for the temporaries of
the largest lengths within these bounds, bounds are powers of two; where there is none for these, lengths stay numbers.

A sum on a CPU has the bits of a plan of its length, but for three kinds whose last bits may differ: a sum over several axes
that do not merge, the last of them symbolic, gradients of a norm's weights where bounds leave open whether there are rows
enough for blocks (codegen/reduce_cpu.py), and convolutions: gradients of their weights, and all of lines and images of
other lengths, whose boxes are others. On a GPU threads of a row follow from its length: any sum may differ.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, zip_longest
from math import gcd
from types import MappingProxyType
from typing import Any, cast

from picograd import dtype as dtypes
from picograd.ir.op import Dim, Op, const, toposort
from picograd.ir.opcode import OpCode
from picograd.ir.shape import ConvArg
from picograd.ir.symbolic import LARGE, add, affine, bounds, ceildiv, dim_value, factors_of, mul, subtract, with_values
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


def _with_held(op: Op, dims: Iterator[Dim]) -> list[tuple[Dim, Dim]]:
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
    """Moves the beginning of a block."""
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
OFTEN = 64  # times that a graph with convolutions comes before it has a plan of its own, whose kernels are faster
OFTEN_MAX = 16  # such graphs of a form
SAMPLES_MAX = 8  # of a form: where they make no polynomials by then, it has a plan for each length
VARIABLES_MAX = 32  # of a form, such as the rows that each expert of several layers gets
STARTS = (2, 8, 16, 32, 64, *(1 << power for power in range(12, 63, 6)))  # from each to the next lengths share their bounds
VALUES_MIN = 3  # different ones of a number before a formula with a constant is taken for its own; one more of images
FACTOR_MAX = 4  # of a length to which another number is added
SHAPES = frozenset({OpCode.RESHAPE, OpCode.EXPAND})
LAST_IS_LENGTH = frozenset({OpCode.IOTA, OpCode.CHECK, OpCode.LOOP})  # in their arguments
WITH_LENGTHS = SHAPES | LAST_IS_LENGTH | BLOCKS

Sample = tuple[int, ...]
Pairs = Sequence[tuple[Dim, Dim]]  # of lengths that an Op needs equal


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
    """Returns the part of a leaf, or of an Op other than BLOCKS, in a form's key; its lengths are added to `found`.

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
        groups = [given for given in arg.options if isinstance(given, tuple)] if isinstance(arg.options, tuple) else []
        arg = next((given for group in groups for given in group if isinstance(given, ConvArg)), None)
    return part if arg is None else (*part, op.src[1].shape[: 1 if arg.of_weight else 2])


def with_lengths(op: Op, is_leaf: bool, dims: Iterator[Dim]) -> Any:
    """Returns the argument of one of WITH_LENGTHS, or the shape of a leaf, with others in the place of its lengths."""
    if is_leaf:
        return with_dims(op.shape, dims)
    if op.code in BLOCKS:
        return _with_held(op, dims)
    if op.code in LAST_IS_LENGTH:
        return (*op.arg[:-1], *with_dims(op.arg[-1:], dims)) if isinstance(op.arg, tuple) else with_dims((op.arg,), dims)[0]
    return with_dims(op.arg, dims)


def dims_in(arg: Any) -> list[Op]:
    """Returns the symbolic lengths in an argument."""
    if isinstance(arg, (tuple, list)):
        return [dim for part in arg for dim in dims_in(part)]
    return [arg] if isinstance(arg, Op) else []


def bound_to(values: Mapping[str, int], args: Sequence[Any]) -> list[Any]:
    """Returns arguments or shapes in which symbolic integers have values, as those of a user's Variables have."""
    symbols = [op for op in toposort(dims_in(args)) if op.code is OpCode.VARIABLE]
    binds: dict[Op, Dim] = {op: Op(OpCode.BIND, op.dtype, (op, const(values[op.arg[0]], op.dtype))) for op in symbols}
    return [_with_binds(arg, binds) for arg in args]


def _with_binds(arg: Any, binds: Mapping[Op, Dim]) -> Any:
    if isinstance(arg, (tuple, list)):
        return tuple([_with_binds(part, binds) for part in arg])
    return with_values(arg, binds) if isinstance(arg, Op) else arg


# ---- samples -> expressions ----
class Root(Record):
    """A length that is step * v + rest, v a symbolic integer by itself."""

    place: int
    step: int = 1
    rest: int = 0


class Solution(Record):
    """Expressions that give the numbers of a form from a few of them.

    parts:    of each number, of `_symbol`s; None for a start of a block that has no expression, or does not change
    roots:    the lengths that each `_symbol` follows from, by its number
    guessed:  a place of each length whose expression samples alone have told, those that most values bear out first
    """

    parts: tuple[Dim | None, ...]
    roots: Mapping[int, Root]
    guessed: tuple[int, ...] = ()

    @property
    def key(self) -> Hashable:
        """The expressions and their roots, in plain tuples, as another process writes them."""
        return self.parts, tuple([(i, root.place, root.step, root.rest) for i, root in self.roots.items()])

    def holds(self, sample: Sample) -> bool:
        """Returns whether the expressions give the numbers of a graph."""
        named = {_symbol(i).arg[0]: value for i, value in self.integers(sample).items()}
        values = {part: dim_value(part, named) for part in {*self.parts} if part is not None}
        return all(part is None or values[part] == number for part, number in zip(self.parts, sample))

    def integers(self, sample: Sample) -> dict[int, int]:
        """Returns the values of the symbolic integers in a graph, by number."""
        return {i: (sample[root.place] - root.rest) // root.step for i, root in self.roots.items()}

    def shown(self, became: Mapping[Op, Dim]) -> tuple[Dim | None, ...]:
        """Returns the expressions with others in the place of `_symbol`s."""
        shown = {part: None if part is None else with_values(part, became) for part in {*self.parts}}
        return tuple(map(shown.__getitem__, self.parts))

    def replacing(self, number: int, value: Dim, root: Root | None = None) -> Solution:
        """Returns the same expressions with a value in the place of a symbolic integer, or of another one with its root."""
        roots = {i: old for i, old in self.roots.items() if i != number} | ({} if root is None else {number: root})
        return Solution(self.shown({_symbol(number): value}), roots, self.guessed)

    def freeing(self, place: int) -> Solution:
        """Returns the same expressions with a symbolic integer of its own for a length that was guessed."""
        number, wrong = max(self.roots) + 1, self.parts[place]
        parts = tuple([_symbol(number) if part is wrong else part for part in self.parts])
        return Solution(parts, {**self.roots, number: Root(place)}, tuple([i for i in self.guessed if i != place]))

    def by_largest(self, num_lengths: int, sample: Sample) -> Solution:
        """Returns the same expressions with each root at the largest multiple of its symbolic integer, which bounds it."""
        roots = dict(self.roots)
        numbers = {_symbol(i): i for i in roots}
        for place in sorted(range(num_lengths), key=sample.__getitem__):
            terms, rest = affine(cast(Dim, self.parts[place]))
            for symbol, step in terms.items() if len(terms) == 1 else ():
                if symbol in numbers:
                    roots[numbers[symbol]] = Root(place, step, rest)
        return Solution(self.parts, roots, self.guessed)


@lru_cache(VARIABLES_MAX)
def _symbol(number: int) -> Op:
    """Returns the symbolic integer of a Root, between any bounds."""
    return Op(OpCode.VARIABLE, dtypes.int64, (), (f"root{number}", 0, LARGE))


def solve(samples: Sequence[Sample], num_lengths: int, has_windows: bool = False) -> Solution | None:
    """Returns expressions that give the numbers of all samples; None where that takes too many symbolic integers.

    Args:
      num_lengths:  how many numbers are lengths; then come starts of blocks, which may be anything, and rooms
      has_windows:  there are images, whose features are quotients: small numbers of which many fit by chance

    >>> n, times_8, less = solve([(5, 40, 4), (7, 56, 6)], 2).parts
    >>> times_8 is mul(n, 8), less is subtract(n, 1)
    (True, True)
    """
    columns = list(zip(*samples))
    known: dict[Sample, Dim] = {}
    roots: dict[int, Root] = {}
    guessed: list[int] = []
    spreads = [max(column) - min(column) for column in columns]
    for place in sorted(range(num_lengths), key=spreads.__getitem__):  # a length before its multiples
        column = columns[place]
        if column not in known and not _is_fixed(column):
            found = next(_formulas(column, known, VALUES_MIN + has_windows), None)
            if found is None:
                found, roots[len(roots)] = _symbol(len(roots)), Root(place)
            else:
                guessed.append(place)
            known[column] = found
            if len(roots) > VARIABLES_MAX:
                return None
    parts: list[Dim | None] = []
    for place, column in enumerate(columns):
        if _is_fixed(column):  # of a start that does not change engine/known.py sees whether it moves by itself
            parts.append(column[0] if place < num_lengths else known.get(column))
        else:
            parts.append(known.get(column) or next(_formulas(column, known), None))
    solution = Solution(tuple(parts), roots, tuple(sorted(guessed, key=lambda place: -len({*columns[place]}))))
    return solution.by_largest(num_lengths, samples[-1]) if has_windows else solution


def _is_fixed(column: Sample) -> bool:
    return all(number == column[0] for number in column)


def _formulas(column: Sample, known: Mapping[Sample, Dim], values_min: int = VALUES_MIN) -> Iterator[Dim]:
    """Yields formulas that give a number from known ones in all samples, the simplest first.

    Args:
      values_min:  how many different numbers bear out a formula with a constant
    """
    for other, part in known.items():
        factor = _factor(column, other)
        if factor:
            yield mul(part, factor)
    is_told = len(column) <= OWN_PLANS or len({*column}) >= values_min  # lengths that grow by one have two samples
    if is_told:
        yield from _shifted(column, known, (1, -1))
    for (a, x), (b, y) in combinations_with_replacement(known.items(), 2):
        factor = _factor(column, [i * j for i, j in zip(a, b)])
        if factor:
            yield mul(mul(x, y), factor)
    for (a, x), (b, y) in combinations(known.items(), 2) if is_told else ():
        for sign in (1, -1):
            sums = tuple([i + sign * j for i, j in zip(a, b)])
            yield from _shifted(column, {sums: add(x, mul(y, sign))}, (1, -1))
    if is_told:
        yield from _shifted(column, known, [sign * factor for factor in range(2, FACTOR_MAX + 1) for sign in (1, -1)])


def _factor(column: Sample, other: Sequence[int]) -> int:
    """Returns how many times another number a number is in all samples; 0 where that differs."""
    factor = column[0] // other[0] if other[0] else 0
    return factor if all(number == factor * of for number, of in zip(column, other)) else 0


def _shifted(column: Sample, known: Mapping[Sample, Dim], factors: Sequence[int]) -> Iterator[Dim]:
    """Yields formulas that give a number as a multiple of a known one and a constant."""
    for factor in factors:
        for other, part in known.items():
            rest = column[0] - factor * other[0]
            if all(number == factor * of + rest for number, of in zip(column, other)):
                yield add(mul(part, factor), rest)


# ---- what graphs say of their lengths ----
# Few samples do not tell that a length is a quotient of another one, as the positions of windows with a stride are. An Op
# whose shapes differ then does: one of the two lengths is what the other is.
def _with_relation(solution: Solution, unequal: Pairs, samples: Sequence[Sample], prefix: str) -> Solution | None:
    """Returns a solution in which lengths that an Op needs equal are no longer shown as different ones; None if none is."""
    pairs = [[_of_roots(dim, solution, prefix) for dim in pair] for pair in unequal]
    differences = [subtract(*cast("list[Dim]", pair)) for pair in pairs if None not in pair and pair[0] != pair[1]]
    for difference in differences:
        for i in solution.roots:
            value = _solved(difference, _symbol(i))
            if value is not None:
                return solution.replacing(i, value)
        for i in solution.roots:  # one of two lengths whose product is that of two quotients
            quotient = _quotient_of(difference, i, [solution.integers(sample) for sample in samples])
            if quotient is not None:
                return solution.replacing(i, quotient)
    for difference in differences:
        for place in reversed(solution.guessed):
            if _symbols_in(difference) & _symbols_in(solution.parts[place]):
                return solution.freeing(place)
    for difference in differences:
        for i, root in solution.roots.items():  # an even length, as one of memory that two halves make up
            found = _divided(difference, i, root, [sample[root.place] for sample in samples])
            if found is not None:
                return solution.replacing(i, *found)
    return None


def _divided(difference: Dim, number: int, root: Root, column: Sequence[int]) -> tuple[Dim, Root] | None:
    """Returns a symbolic integer as a multiple of another one, by the least divisor of all samples with which a sum is 0.

    If it is 0 with none, by the greatest divisor. None if the samples have no divisor in common.
    """
    most, symbol = gcd(*[length - column[0] for length in column]), _symbol(number)
    steps = [step for step in range(2 * root.step, most + 1, root.step) if most % step == 0]
    if not steps or not _mentions(difference, symbol):
        return None
    for step in steps:
        rest = column[0] % step
        value = add(mul(symbol, step // root.step), (rest - root.rest) // root.step)
        if with_values(difference, {symbol: value}) == 0:
            break
    return value, Root(root.place, step, rest)


def _quotient_of(difference: Dim, number: int, samples: Sequence[Mapping[int, int]]) -> Dim | None:
    """Returns a quotient in a sum, or a multiple of it, that a symbolic integer of the sum has been in all samples."""
    if not _mentions(difference, _symbol(number)):
        return None
    for quotient in toposort([cast(Op, difference)]):
        if quotient.code is OpCode.IDIV and not _mentions(quotient, _symbol(number)):
            values = [dim_value(quotient, {_symbol(i).arg[0]: n for i, n in sample.items()}) for sample in samples]
            factor = samples[0][number] // max(1, values[0])
            if all(sample[number] == value * factor for sample, value in zip(samples, values)):
                return mul(quotient, factor)
    return None


def _of_roots(dim: Dim, solution: Solution, prefix: str) -> Dim | None:
    """Returns a length that an Op shows as one of `_symbol`s; None where it has symbolic integers of others."""
    became: dict[Op, Dim] = {}
    for op in toposort([dim]) if isinstance(dim, Op) else ():
        if op.code is OpCode.VARIABLE:
            number = op.arg[0].removeprefix(prefix)
            if not number.isdigit() or int(number) not in solution.roots:
                return None
            became[op] = _symbol(int(number))
        elif op.code is OpCode.BIND:
            became[op] = became[op.src[0]]
    return with_values(dim, became)


def _mentions(dim: Dim, symbol: Op) -> bool:
    return symbol in _symbols_in(dim)


def _symbols_in(dim: Dim | None) -> set[Op]:
    return {op for op in toposort([dim]) if op.code is OpCode.VARIABLE} if isinstance(dim, Op) else set()


def _solved(difference: Dim, symbol: Op) -> Dim | None:
    """Returns the value of a symbolic integer with which a sum of products is 0; None where that cannot be told."""
    terms, constant = affine(difference)
    holders = [atom for atom in terms if _mentions(atom, symbol)]
    if len(holders) != 1 or symbol not in factors_of(holders[0]):
        return None
    beside = Counter(factors_of(holders[0])) - Counter([symbol])
    if any(_mentions(factor, symbol) for factor in beside):
        return None
    divisor, total = -terms[holders[0]], cast(Dim, 0)
    for atom, factor in [*terms.items(), (None, constant)]:
        factors = Counter([] if atom is None else factors_of(atom))
        if atom is holders[0] or factor == 0:
            continue
        if factor % divisor or not factors >= beside:
            return None
        term: Dim = factor // divisor
        for other in (factors - beside).elements():
            term = mul(term, other)
        total = add(total, term)
    return total


# ---- a form ----
class Sizes(Record):
    """The numbers of a graph, as a plan for many of them has them.

    dims:    of each number; None for a start of a block that does not follow from lengths
    values:  of symbolic integers by name
    key:     what a plan depends on
    is_wide: of graphs with convolutions, whose bounds may be closer
    """

    dims: tuple[Dim | None, ...]
    values: dict[str, int]
    key: Hashable
    is_wide: bool = False


class TooWide(Exception):
    """Values are so large at the greatest lengths that kernels made for these do not fit those of a run."""


class Lengths(Struct):
    """The graphs of one form, as far as they differed in lengths.

    num_lengths:  of the numbers of a sample; then come the starts of blocks and their rooms
    is_refused:   all have plans of their own
    has_windows:  bounds are those of the largest multiples: images whose heights are 8 n share plans as others do
    is_close:     bounds are powers of two
    samples:      those from which the others were learned
    own:          lengths that have plans of their own: the first two, the first alone where they grow by one
    prefix:       of the names of symbolic integers
    solution:     what their numbers are of each other
    times:        how often graphs have come whose own kernels would be faster
    often:        those that have plans of their own for that
    kept:         the sizes of those asked for last
    shown:        for the bounds of their symbolic lengths the numbers as these show them, and a key
    """

    num_lengths: int
    is_refused: bool = False
    has_windows: bool = False
    is_close: bool = False
    samples: list[Sample] = field(default_factory=list)
    own: set[Sample] = field(default_factory=set)
    prefix: str = ""
    solution: Solution | None = None
    times: dict[Sample, int] = field(default_factory=dict)
    often: set[Sample] = field(default_factory=set)
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
        self.prefix = prefix
        integers = self.solution.integers(sample)
        ends = tuple([_ends(root, sample, self.is_close) for root in self.solution.roots.values()])
        if ends not in self.shown:
            self.shown[ends] = _shown(self.solution, integers, ends, self.num_lengths, prefix)
        dims, key = self.shown[ends]
        values, is_wide = {f"{prefix}{i}": value for i, value in integers.items()}, self.has_windows and not self.is_close
        found = self.kept[sample] = Sizes(dims, values, key, is_wide)
        return found

    def comes_often(self, sample: Sample) -> bool:
        """Counts a graph; True from the time on that it has come so often that a plan of its own pays."""
        if sample not in self.often:
            if len(self.times) >= KEPT_SIZES_MAX:
                self.times.clear()
            self.times[sample] = self.times.get(sample, 0) + 1
            if self.times[sample] >= OFTEN and len(self.often) < OFTEN_MAX:
                self.often.add(sample)
        return sample in self.often

    def refuse(self, unequal: Pairs = ()) -> None:
        """Learns that graphs of this form have no plan with these symbolic lengths.

        Where an Op has said which of them are equal, others are tried; else graphs have plans of their own until another
        sample tells more.
        """
        self._forget()
        if self.solution is not None:
            self.solution = _with_relation(self.solution, unequal, self.samples, self.prefix)
        if self.solution is not None and self.has_windows:
            self.solution = self.solution.by_largest(self.num_lengths, self.samples[-1])
        if self.solution is not None and not all(map(self.solution.holds, self.samples)):
            self.solution = None  # the Op would refuse other graphs of this form, too: it is not lengths that are wrong
        self.is_refused = self.solution is None and len(self.samples) >= SAMPLES_MAX

    def narrow_bounds(self) -> None:
        """Narrows the bounds from now on."""
        self._forget()
        self.is_close = True

    def _learn(self, sample: Sample) -> None:
        if sample in self.samples:
            return
        own = sample[: self.num_lengths]
        if not self.samples or (len(self.samples) < OWN_PLANS and not self._grows_by_one(own)):
            self.own.add(own)
        self.samples.append(sample)
        self._forget()
        if len(self.samples) > len(self.own):
            self.solution = solve(self.samples, self.num_lengths, self.has_windows)
            if self.solution is None or len(self.samples) > SAMPLES_MAX:
                self.keep_own()

    def keep_own(self) -> None:
        """Lets all graphs of this form keep their own lengths."""
        self._forget()
        self.is_refused, self.solution = True, None

    def _forget(self) -> None:
        self.kept.clear()
        self.shown.clear()

    def _grows_by_one(self, second: Sample) -> bool:
        """True where lengths are the first ones, or one more, as where a text is written."""
        return {after - before for before, after in zip(self.samples[0], second)} <= {0, 1}


KEPT_SIZES_MAX = 256  # graphs of a form whose sizes are remembered


def _ends(root: Root, sample: Sample, is_close: bool) -> tuple[int, int]:
    """Returns the bounds of a symbolic integer in graphs that share a plan with this one."""
    least, greatest = bucket(sample[root.place], is_close)
    return ceildiv(least - root.rest, root.step), (greatest - root.rest) // root.step


def _shown(
    solution: Solution, integers: Mapping[int, int], ends: Sequence[tuple[int, int]], num_lengths: int, prefix: str
) -> tuple[tuple[Dim | None, ...], Hashable]:
    """Returns numbers as symbolic integers between some ends show them, and what a plan for them depends on."""
    bounds = dict(zip(integers, ends))
    for least, parts in ((2, solution.parts[:num_lengths]), (0, solution.parts[num_lengths:])):
        for part in dict.fromkeys(parts):
            _narrow(bounds, 0 if part is None else part, least, integers)
    symbols = {_symbol(i): Op(OpCode.VARIABLE, dtypes.int64, (), (f"{prefix}{i}", *bounds[i])) for i in integers}
    return solution.shown(symbols), (solution.key, tuple(bounds.values()))


def bucket(length: int, is_close: bool = False) -> tuple[int, int]:
    """Returns the bounds of the lengths that share a plan with this one.

    >>> bucket(5), bucket(31), bucket(64), bucket(64, is_close=True)
    ((2, 7), (16, 31), (64, 4095), (64, 127))
    """
    if is_close:
        return 1 << length.bit_length() - 1, (1 << length.bit_length()) - 1
    number = bisect_right(STARTS, length)
    return STARTS[number - 1], STARTS[number] - 1


def _narrow(bounds: dict[int, tuple[int, int]], dim: Dim, least: int, integers: Mapping[int, int]) -> None:
    """Narrows bounds so that a length, start or room is no less than it ever is; of one symbolic integer alone.

    Args:
      integers:  values with which it is not less
    """
    of = [i for i in integers if _mentions(dim, _symbol(i))]
    if len(of) != 1 or not (_grows(dim) or _grows(mul(dim, -1))):
        return
    (i,) = of
    name, value, (low, high) = _symbol(i).arg[0], integers[i], bounds[i]

    def fits(number: int) -> bool:
        return dim_value(dim, {name: number}) >= least

    if not fits(low):
        low = bisect_left(range(low, value), True, key=fits) + low
    if not fits(high):
        high = value + bisect_left(range(value, high), True, key=lambda number: not fits(number)) - 1
    bounds[i] = low, high


def _grows(dim: Dim) -> bool:
    """True for a sum of products and quotients that is never less where a symbolic integer is more."""
    return all(factor > 0 and all(map(_factor_grows, factors_of(atom))) for atom, factor in affine(dim)[0].items())


def _factor_grows(factor: Op) -> bool:
    if factor.code is OpCode.IDIV and factor.src[1].code is OpCode.CONST:
        return _grows(factor.src[0])
    return factor.code is OpCode.VARIABLE
