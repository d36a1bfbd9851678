"""Decides whether an integer of the linear form is never below zero: by intervals, and exactly where these do not tell.

In:    what the VARs of a Program name, and the conditions that hold at one place of it
Out:   `Known`: whether a polynomial of atoms is never negative there

An integer becomes a polynomial of numbered atoms: of its factors no normal form is needed, as it is for the expressions
that ir/symbolic.py builds, but products, and what is known of each atom. An atom is a loop's RANGE, a symbolic integer, a
quotient, remainder, minimum or maximum, or what memory holds. It brings facts: polynomials that are never negative and
speak of it and of atoms that were met before.

    i of a loop over e      i >= 0,  e - 1 - i >= 0
    q = x // c              x - c q >= 0,  c q + c - 1 - x >= 0
    r = x % c               r >= 0,  c - 1 - r >= 0,  x - r >= 0 where x >= 0,  and it is x - c q
    m = min(x, y)           x - m >= 0,  y - m >= 0,  and it is x or y

To see that p >= 0, its youngest atom is eliminated with a fact f >= 0, as Fourier and Motzkin do: where the factors of
the atom have one sign in both, s p - k f is free of it for some s, k > 0, and p >= (s p - k f) / s, rounded up, for p is
a whole number. At last a number is left. A fact speaks of older atoms only, so the search ends.

    block * 256 + thread <= 999, where block * 256 + thread < 1000:
        999 - 256 b - t,  fact 999 - 256 b - t >= 0:  their difference is 0
    start + i <= total - 1, where i < min(total - start, 64):
        total - 1 - start - i,  fact m - 1 - i >= 0:  total - start - m,  fact total - start - m >= 0:  0
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd

from picograd import dtype as dtypes
from picograd.ir.arithmetic import INTERVALS, TRUTHS, Interval, product_interval, whole_interval
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Record, Struct, field, replace

# ---- polynomials ----
Atoms = tuple[int, ...]  # a product of atoms: their numbers, in order; () is 1
Terms = dict[Atoms, int]  # a polynomial: each product with its factor, which is not 0
Operation = tuple[OpCode, frozenset[tuple[Atoms, int]], frozenset[tuple[Atoms, int]]]  # of two polynomials


def added(a: Terms, b: Terms, factor: int = 1) -> Terms:
    """Returns a + b * factor."""
    total = dict(a)
    for atoms, own in b.items():
        new = total.get(atoms, 0) + own * factor
        if new:
            total[atoms] = new
        else:
            total.pop(atoms, None)
    return total


def times(a: Terms, b: Terms) -> Terms:
    """Returns a * b."""
    total: Terms = {}
    for atoms, own in a.items():
        for others, factor in b.items():
            product = tuple(sorted(atoms + others))
            total[product] = total.get(product, 0) + own * factor
    return {atoms: factor for atoms, factor in total.items() if factor}


def factor_of(atom: int, terms: Terms) -> Terms | None:
    """Returns f where terms = f * atom + terms without the atom; None where they contain a square of it."""
    found: Terms = {}
    for atoms, own in terms.items():
        if atom in atoms:
            rest = tuple([other for other in atoms if other != atom])
            if len(rest) != len(atoms) - 1:
                return None
            found[rest] = own
    return found


def youngest(terms: Terms) -> int | None:
    """Returns the atom of a polynomial that was met last, or None for a number."""
    return max([atoms[-1] for atoms in terms if atoms], default=None)


# ---- integers as polynomials ----
INT64 = (-(1 << 63), (1 << 63) - 1)
TERMS_MAX = 16  # of a product that is multiplied out


class Sum(Record):
    """A polynomial, and an interval that contains it."""

    terms: Terms
    low: int
    high: int


class Atom(Struct):
    """An integer that is not a sum, with the facts about it.

    lows, highs:  polynomials that are never negative, in which its factor is above 0, below 0
    one_of:       it is one of these
    """

    low: int
    high: int
    lows: list[Terms] = field(default_factory=list)
    highs: list[Terms] = field(default_factory=list)
    one_of: tuple[Terms, ...] = ()


class Sums:
    """The integers of a Program as sums.

    named:    VAR -> the operation whose value it has; those that are loaded are not in it
    holds:    conditions, and whether they hold
    atoms:    by number; later ones speak of earlier ones
    sums:     of the Ops that were asked for
    met:      quotients, remainders, minima and maxima, by their operands: two that are equal are one atom
    divided:  atom that is a quotient -> dividend and divisor, a number
    divided_by: the youngest atom of a dividend -> that, and the numbers that divide it
    """

    def __init__(self, named: Mapping[Op, Op], holds: Mapping[Op, bool]):
        self.named, self.holds = named, holds
        self.atoms: list[Atom] = []
        self.sums: dict[Op, Sum] = {}
        self.met: dict[Operation, Sum] = {}
        self.divided: dict[int | None, tuple[Sum, int]] = {}
        self.divided_by: dict[int | None, list[tuple[Sum, Sum]]] = {}

    def in_parts(self, terms: Terms, choose: Callable[[int], int]) -> Terms:
        """Returns the same polynomial, with x // c * c + x % c in the place of each x that something divides by a number c.

        Args:
          choose: ranks the numbers that one x is divided by: the least is taken
        """
        seen: set[int] = set()
        while atoms := {number for atoms in terms for number in atoms} & self.divided_by.keys() - seen:
            seen.add(atom := max(atoms))
            a, b = min(self.divided_by[atom], key=lambda division: choose(division[1].low))
            own, factor, quotient = a.terms.get((atom,), 0), factor_of(atom, terms), _quotient(self, a, b)
            rest = _remainder(self, a, b)
            if factor and quotient and rest and abs(own) == 1 and factor_of(atom, a.terms) == {(): own}:
                # This is 0, and -own is the atom's factor in it: added own * factor times, it takes the atom out.
                parts = added(added(times(quotient.terms, b.terms), rest.terms), a.terms, -1)
                terms = added(terms, times(factor, parts), own)
        return terms

    def sum_of(self, op: Op) -> Sum:
        """Returns an integer as a sum of atoms; it is an atom itself where arithmetic on it might wrap."""
        found = self.sums.get(op)
        if found is not None:
            return found
        if op.code is OpCode.CONST:
            found = self.sums[op] = _constant(int(op.arg))
        else:
            meaning = self.named.get(op, op)
            rule = RULES.get(meaning.code)
            found = None if rule is None else rule(self, meaning)
            low, high = whole_interval(op.dtype)
            # NOTE: a value outside the range of its type may have wrapped, so nothing follows from its operands.
            if found is None or found.low < low or found.high > high:
                found = self.new(low, high)
            self.sums[op] = found
        return found

    def truth_of(self, condition: Op) -> bool | None:
        """Returns whether a condition holds, or None where neither its parts nor their intervals decide that."""
        if condition in self.holds:
            return self.holds[condition]
        op = self.named.get(condition, condition)
        if op.code is OpCode.EXPAND:
            return self.truth_of(op.src[0])
        if op.code is OpCode.CONST:
            return bool(op.arg)
        if op.code in (OpCode.AND, OpCode.OR):
            parts, decides = list(map(self.truth_of, op.src)), op.code is OpCode.OR
            return decides if decides in parts else None if None in parts else not decides
        if op.code not in TRUTHS or op.src[0].dtype.is_float:
            return None
        if op.src[0].dtype is dtypes.bool_:
            p, q = map(self.truth_of, op.src)
            return None if p is None or q is None else TRUTHS[op.code]((p, p), (q, q))
        a, b = map(self.sum_of, op.src)
        truth = TRUTHS[op.code]((a.low, a.high), (b.low, b.high))
        if truth is None and op.code is OpCode.CMPLT and self.is_never_negative(added(a.terms, b.terms, -1)):
            return False
        return truth

    def is_never_negative(self, terms: Terms) -> bool:
        """True where that was proved of the polynomial: by `Known`, which has the facts."""
        raise NotImplementedError

    def new(self, low: int, high: int) -> Sum:
        """Returns a new atom."""
        self.atoms.append(Atom(low, high))
        return Sum({(len(self.atoms) - 1,): 1}, low, high)

    def bounded(self, low: int, high: int, lows: tuple[Terms, ...], highs: tuple[Terms, ...]) -> Sum:
        """Returns a new atom that is at least each of `lows` and at most each of `highs`."""
        atom = self.new(low, high)
        self.atoms[-1].lows = [added(atom.terms, bound, -1) for bound in lows]
        self.atoms[-1].highs = [added(bound, atom.terms, -1) for bound in highs]
        return atom


def _interval(code: OpCode, *operands: Sum) -> Interval:
    """Returns the interval of an operation."""
    found = INTERVALS[code](*[(operand.low, operand.high) for operand in operands])
    assert found is not None, f"{code.name} has no rule of facts"
    return found


def _key(code: OpCode, a: Sum, b: Sum) -> Operation:
    return code, frozenset(a.terms.items()), frozenset(b.terms.items())


# ---- operations ----
def _constant(value: int) -> Sum:
    return Sum({(): value} if value else {}, value, value)


def _range(sums: Sums, op: Op) -> Sum:
    """0 up to the extent: that it runs at all says something of the extent."""
    extent = sums.sum_of(op.src[0])
    found = sums.new(0, extent.high - 1 if extent.high > 1 else 0)
    ((own, one),) = found.terms.items()
    atom = sums.atoms[-1]
    atom.lows.append(found.terms)
    atom.highs.append(added(extent.terms, {own: one, (): 1}, -1))
    return found


def _variable(sums: Sums, op: Op) -> Sum:
    _, low, high = op.arg
    return sums.bounded(low, high, ({(): low},) if low else ({},), ({(): high},) if high else ({},))


def _lanes(sums: Sums, op: Op) -> Sum:
    """0..n-1: one lane after the other, and the same one for all that is asked about."""
    if op not in sums.sums:
        sums.sums[op] = sums.bounded(0, op.arg - 1, ({},), ({(): op.arg - 1},)) if op.arg > 1 else _constant(0)
    return sums.sums[op]


def _add(sums: Sums, op: Op) -> Sum:
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    return Sum(added(a.terms, b.terms), *_interval(OpCode.ADD, a, b))


def _subtract(sums: Sums, op: Op) -> Sum:
    """a - b; of a remainder, x - x // c * c, a fact says that it is not negative, where intervals do not."""
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    terms = added(a.terms, b.terms, -1)
    low, high = _interval(OpCode.SUB, a, b)
    if low < 0 and op.dtype.kind == "u":
        last = youngest(terms)
        if (last is not None and terms in sums.atoms[last].highs) or sums.is_never_negative(terms):
            low = 0
    return Sum(terms, low, high)


def _negate(sums: Sums, op: Op) -> Sum:
    a = sums.sum_of(op.src[0])
    return Sum({atoms: -factor for atoms, factor in a.terms.items()}, *_interval(OpCode.NEG, a))


def _multiply(sums: Sums, op: Op) -> Sum | None:
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    if 0 < b.low == b.high:
        return Sum({atoms: own * b.low for atoms, own in a.terms.items()}, a.low * b.low, a.high * b.low)
    return _product(a, b)


def _product(a: Sum, b: Sum) -> Sum | None:
    if len(a.terms) * len(b.terms) > TERMS_MAX:
        return None
    return Sum(times(a.terms, b.terms), *_interval(OpCode.MUL, a, b))


def _divide(sums: Sums, op: Op) -> Sum | None:
    return _quotient(sums, sums.sum_of(op.src[0]), sums.sum_of(op.src[1]))


def _quotient(sums: Sums, a: Sum, b: Sum) -> Sum | None:
    """a // b, rounded to minus infinity, for b > 0; x // m // n is x // (m n)."""
    if not 1 <= b.low <= b.high:  # bounds that exclude each other are of a branch that is never taken
        return None
    low, high = _interval(OpCode.IDIV, a, b)
    if b.low < b.high:
        high = _highest(sums, a, b, high)
    if low == high:
        return _constant(low)
    key = _key(OpCode.IDIV, a, b)
    if key not in sums.met:
        if b.low == b.high:
            sums.divided_by.setdefault(youngest(a.terms), []).append((a, b))
        inner = sums.divided.get(_only_atom(a))
        if inner is not None and b.low == b.high:
            nested = _quotient(sums, inner[0], _constant(inner[1] * b.low))
            assert nested is not None, "both divisors are above 0"
            sums.met[key] = nested
        else:
            sums.met[key] = _new_quotient(sums, a, b, (low, high))
    return sums.met[key]


def _highest(sums: Sums, a: Sum, b: Sum, high: int) -> int:
    """Returns an upper bound of a // b: k - 1 if a fact says that a < k b."""
    atom = _only_atom(a)
    for fact in sums.atoms[atom].highs if atom is not None else ():
        bound = added(added(fact, a.terms), {(): 1})
        atoms, factor = next(iter(b.terms.items()))
        times_b = bound.get(atoms, 0) // factor
        if times_b > 0 and bound == {product: f * times_b for product, f in b.terms.items()}:
            high = min(high, times_b - 1)
    return high


def _new_quotient(sums: Sums, a: Sum, b: Sum, interval: Interval) -> Sum:
    low, high = interval
    atom = sums.bounded(low, high, ({(): low} if low else {},), ({(): high} if high else {},))
    rest = added(a.terms, times(atom.terms, b.terms), -1)
    sums.atoms[-1].highs.append(rest)
    sums.atoms[-1].lows.append(added(added(b.terms, rest, -1), {(): -1}))
    if b.low == b.high:
        sums.divided[len(sums.atoms) - 1] = a, b.low
    return atom


def _remainder_of(sums: Sums, op: Op) -> Sum | None:
    return _remainder(sums, sums.sum_of(op.src[0]), sums.sum_of(op.src[1]))


def _remainder(sums: Sums, a: Sum, b: Sum) -> Sum | None:
    """a % b = a - a // b * b for b > 0."""
    if a.low >= 0 and a.high < b.low:
        return a
    quotient = _quotient(sums, a, b)
    if quotient is None:
        return None
    key = _key(OpCode.MOD, a, b)
    if key not in sums.met:
        last = added(b.terms, {(): -1})
        highs = (last,) if a.low < 0 else (last, a.terms)
        atom = sums.bounded(*_interval(OpCode.MOD, a, b), ({},), highs)
        sums.atoms[-1].one_of = (added(a.terms, times(quotient.terms, b.terms), -1),)
        sums.met[key] = atom
    return sums.met[key]


def _only_atom(a: Sum) -> int | None:
    """Returns the atom that a sum is, or None."""
    if len(a.terms) == 1:
        ((atoms, factor),) = a.terms.items()
        if factor == 1 and len(atoms) == 1:
            return atoms[0]
    return None


def _minimum(sums: Sums, op: Op) -> Sum:
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    if a.high <= b.low or b.high <= a.low:
        return a if a.high <= b.low else b
    key = _key(OpCode.MIN, a, b)
    if key in sums.met:
        return sums.met[key]
    low, high = _interval(OpCode.MIN, a, b)
    if low < 0 and all(x.low >= 0 or sums.is_never_negative(x.terms) for x in (a, b)):
        low = 0
    both = added(a.terms, b.terms)
    if not set(both) - {()}:  # at most the mean: min(j, n - j) <= n // 2
        high = min(high, both.get((), 0) // 2)
    sums.met[key] = sums.bounded(low, high, (), (a.terms, b.terms))
    sums.atoms[-1].one_of = a.terms, b.terms
    return sums.met[key]


def _maximum(sums: Sums, op: Op) -> Sum:
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    if a.high <= b.low or b.high <= a.low:
        return b if a.high <= b.low else a
    key = _key(OpCode.MAX, a, b)
    if key not in sums.met:
        sums.met[key] = sums.bounded(*_interval(OpCode.MAX, a, b), (a.terms, b.terms), ())
        sums.atoms[-1].one_of = a.terms, b.terms
    return sums.met[key]


def _shift_right(sums: Sums, op: Op) -> Sum | None:
    """x >> n = x // 2 ** n."""
    n = sums.sum_of(op.src[1])
    return _quotient(sums, sums.sum_of(op.src[0]), _constant(1 << n.low)) if 0 <= n.low == n.high < 63 else None


def _shift_left(sums: Sums, op: Op) -> Sum | None:
    """x << n = x * 2 ** n."""
    n = sums.sum_of(op.src[1])
    return _product(sums.sum_of(op.src[0]), _constant(1 << n.low)) if 0 <= n.low == n.high < 63 else None


def _and(sums: Sums, op: Op) -> Sum | None:
    """x & (2 ** n - 1) = x % 2 ** n."""
    mask = sums.sum_of(op.src[1])
    if op.dtype is dtypes.bool_ or not 0 <= mask.low == mask.high or mask.low & (mask.low + 1):
        return None
    return _remainder(sums, sums.sum_of(op.src[0]), _constant(mask.low + 1))


def _where(sums: Sums, op: Op) -> Sum:
    """One of two: which one, where the condition is decided."""
    condition, *values = op.src
    holds = sums.truth_of(condition)
    if holds is not None:
        return sums.sum_of(values[0] if holds else values[1])
    a, b = map(sums.sum_of, values)
    return sums.new(min(a.low, b.low), max(a.high, b.high))


def _same(sums: Sums, op: Op) -> Sum | None:
    """An integer in another type, where that holds it, or in every lane; a bool is 0 or 1."""
    source = op.src[0]
    return sums.sum_of(source) if source.dtype.is_int or source.dtype is dtypes.bool_ else None


def _same_bits(sums: Sums, op: Op) -> Sum | None:
    source = op.src[0]
    found = sums.sum_of(source) if source.dtype.is_int and source.dtype.itemsize == op.dtype.itemsize else None
    if found is not None and found.low < 0 and sums.is_never_negative(found.terms):
        found = replace(found, low=0)
    return found if found is not None and found.low >= 0 else None


RULES: dict[OpCode, Callable[[Sums, Op], Sum | None]] = {
    OpCode.RANGE: _range,
    OpCode.VARIABLE: _variable,
    OpCode.BIND: _same,
    OpCode.LANES: _lanes,
    OpCode.EXPAND: _same,
    OpCode.CAST: _same,
    OpCode.BITCAST: _same_bits,
    OpCode.ADD: _add,
    OpCode.SUB: _subtract,
    OpCode.NEG: _negate,
    OpCode.MUL: _multiply,
    OpCode.IDIV: _divide,
    OpCode.MOD: _remainder_of,
    OpCode.MIN: _minimum,
    OpCode.MAX: _maximum,
    OpCode.SHR: _shift_right,
    OpCode.SHL: _shift_left,
    OpCode.AND: _and,
    OpCode.WHERE: _where,
}


# ---- proofs ----
SHORT_SEARCH_STEPS_MAX, SEARCH_STEPS_MAX = 30, 400  # of a search: what takes longer is not proved
FAILED_SEARCHES_MAX = 16  # long searches for nothing, in a kernel: after them short ones have to do
SEARCH_DEPTH_MAX = 40
DERIVED_FACTS_MAX = 4  # facts after each other that follow from what a condition says
FACTS_MAX = 12  # that are looked through for sharper ones
ONE: Terms = {(): 1}
Facts = tuple[tuple[Op, bool], ...]  # conditions, and whether they hold


class Known(Sums):
    """The facts about integers at one place of a Program.

    named:       VAR -> the operation whose value it has; those that are loaded are not in it
    variables:   symbolic integers
    conditions:  those that hold there, and those that do not
    failed:      what long searches in the kernel have not proved; all its places share the list
    """

    def __init__(
        self, named: Mapping[Op, Op], variables: Sequence[Op], conditions: Facts = (), failed: list[Terms] | None = None
    ):
        super().__init__(named, dict(conditions))
        self.variables, self.conditions = variables, conditions
        self.failed: list[Terms] = [] if failed is None else failed
        self._also: dict[tuple[Op, bool], Known] = {}
        self._least: dict[frozenset[tuple[tuple[int, ...], int]], tuple[int, bool]] = {}
        self._learned: list[Terms] = []
        self._to_follow: list[Terms] = []
        self._sharp: dict[tuple[int, bool], list[Terms]] = {}
        self._steps = self._depth = 0
        self._is_never = False  # the conditions contradict each other: nothing runs here
        for op in variables:
            self.sum_of(op)
        for condition, holds in conditions:
            self._learn(condition, holds)
        self._least, self._sharp = {}, {}  # bounds found meanwhile did not use all facts

    def also(self, condition: Op) -> Known:
        """The facts with one more condition that holds."""
        return self._with(condition, True, (*self.conditions, (condition, True)))

    def chosen(self, condition: Op, holds: bool) -> Known:
        """The facts with `condition` decided. It is put first because other conditions may contain it."""
        return self._with(condition, holds, ((condition, holds), *self.conditions))

    def _with(self, condition: Op, holds: bool, conditions: Facts) -> Known:
        if (condition, holds) not in self._also:
            self._also[condition, holds] = Known(self.named, self.variables, conditions, self.failed)
        return self._also[condition, holds]

    def has_failed_often(self) -> bool:
        """True where long searches in the kernel have found nothing so often that only short ones are made."""
        return len(self.failed) >= FAILED_SEARCHES_MAX

    def choices(self, root: Op) -> list[Op]:
        """Returns the conditions of the WHEREs that an integer is made of, the innermost first, without those known."""
        found: dict[Op, None] = {}
        seen, order = {root}, [root]
        for op in order:  # which grows
            value = self.named.get(op, op)
            for s in value.src:
                if s not in seen:
                    seen.add(s)
                    order.append(s)
            if value.code is OpCode.WHERE and value.src[0] not in self.holds:
                found[value.src[0]] = None
        return list(found)[::-1]

    def is_never_negative(self, terms: Terms) -> bool:
        """True where that was proved: of the polynomial itself, or with dividends taken apart."""
        if self._is_never:
            return True
        if self._is_shown(terms):
            return True
        if self._to_follow:  # what follows from the conditions is worked out where it is needed
            for fact in self._to_follow:
                self._follow(fact, DERIVED_FACTS_MAX)
            self._to_follow, self._least, self._sharp = [], {}, {}
            return self._is_never or self._is_shown(terms)
        return False

    def _is_shown(self, terms: Terms) -> bool:
        """True where a search finds a proof: a short one, one with dividends taken apart, a long one."""
        if self._search(terms, SHORT_SEARCH_STEPS_MAX):
            return True
        if self.has_failed_often():
            return False
        was_cut = self._steps == 0
        for choose in (operator.pos, operator.neg):
            parts = self.in_parts(terms, choose)
            if parts != terms and self._search(parts, SEARCH_STEPS_MAX):
                return True
        if was_cut and self._search(terms, SEARCH_STEPS_MAX):
            return True
        self.failed.append(terms)
        return False

    # ---- conditions ----
    def _learn(self, condition: Op, holds: bool) -> None:
        """Notes the facts that follow from a condition, or from that it does not hold."""
        op = self.named.get(condition, condition)
        if op.code is OpCode.EXPAND:
            self._learn(op.src[0], holds)
        elif op.code is (OpCode.AND if holds else OpCode.OR):
            for part in op.src:
                self._learn(part, holds)
        elif op.code is OpCode.CMPNE and op.src[1].code is OpCode.CONST and op.src[1].arg is True:
            self._learn(op.src[0], not holds)
        elif op.code is OpCode.CMPLT and op.src[0].dtype.is_int:
            a, b = op.src if holds else op.src[::-1]
            self._learn_order(a, b, int(holds))
        elif op.code is (OpCode.CMPEQ if holds else OpCode.CMPNE) and op.src[0].dtype.is_int:
            a, b = op.src
            self._learn_order(a, b, 0)
            self._learn_order(b, a, 0)

    def _learn_order(self, a: Op, b: Op, gap: int) -> None:
        """Notes that a + gap <= b."""
        bits = self.named.get(a, a)
        if bits.code is OpCode.BITCAST and bits.dtype is dtypes.uint64 and bits.src[0].dtype is dtypes.int64:
            if self.sum_of(b).high > INT64[1]:
                return
            a = bits.src[0]  # small as an unsigned integer, so it is not negative
            self._note(self.sum_of(a).terms)
            self._narrow(a, 0, INT64[1])
        lhs, rhs = self.sum_of(a), self.sum_of(b)
        self._note(added(added(rhs.terms, lhs.terms, -1), ONE, -gap))
        self._narrow(a, lhs.low, rhs.high - gap)
        self._narrow(b, lhs.low + gap, rhs.high)

    def _note(self, fact: Terms) -> None:
        """Notes a polynomial that a condition says is never negative: it is looked at before other facts of its atom."""
        noted = self._kept(fact, first=True)
        if noted is not None:
            self._to_follow.append(noted)

    def _kept(self, fact: Terms, first: bool = False) -> Terms | None:
        """Notes a fact at the youngest of its atoms and returns it; None where it says nothing new."""
        last = youngest(fact)
        if last is None:
            self._is_never = self._is_never or fact.get((), 0) < 0
            return None
        factor = factor_of(last, fact)
        if self.interval_of(fact)[0] >= 0 or factor is None or factor.keys() != {()}:
            return None
        shared = gcd(*[own for atoms, own in fact.items() if atoms])
        fact = {atoms: own // shared for atoms, own in fact.items()}  # of the constant rounded down
        facts = self.atoms[last].lows if factor[()] > 0 else self.atoms[last].highs
        facts.insert(0 if first else len(facts), fact)
        self._learned.append(fact)
        return fact

    def _follow(self, fact: Terms, most_steps: int) -> None:
        """Notes what a fact and those of its youngest atom say of older ones."""
        last = youngest(fact)
        if last is None or most_steps == 0:
            return
        atom, factor = self.atoms[last], fact[(last,)]
        derived = [_without(last, fact, other) for other in (atom.highs if factor > 0 else atom.lows)]
        if len(atom.one_of) == 1:
            derived.append(added(fact, added(atom.one_of[0], {(last,): 1}, -1), factor))
        for one in derived:
            kept = None if one is None else self._kept(one)
            if kept is not None:
                self._follow(kept, most_steps - 1)

    def _narrow(self, op: Op, low: int, high: int) -> None:
        """Puts an integer between narrower bounds; an atom keeps them."""
        known = self.sum_of(op)
        low, high = max(low, known.low), min(high, known.high)
        if low > high:
            self._is_never = True
            return
        self.sums[op] = Sum(known.terms, low, high)
        if len(known.terms) == 1:
            ((atoms, factor),) = known.terms.items()
            if len(atoms) == 1 and factor == 1:
                self.atoms[atoms[0]].low, self.atoms[atoms[0]].high = low, high

    # ---- the search ----
    def _search(self, terms: Terms, most_steps: int) -> bool:
        self._steps = most_steps
        return self._least_of(terms, 0) >= 0

    def _least_of(self, terms: Terms, enough: int) -> int:
        """Returns a number that a polynomial is never below, `enough` or more where that was proved."""
        constant = terms.get((), 0)
        terms = {atoms: factor for atoms, factor in terms.items() if atoms}
        if not terms:
            return constant
        shared = gcd(*terms.values())
        if shared > 1:
            terms = {atoms: factor // shared for atoms, factor in terms.items()}
        return constant + shared * self._least_terms(terms, -((constant - enough) // shared))

    def _least_terms(self, terms: Terms, enough: int) -> int:
        """Returns such a number for a polynomial that has no constant, and factors with no common divisor."""
        key = frozenset(terms.items())
        best, was_all = self._least.get(key, (None, False))
        if best is not None and (was_all or best >= enough):
            return best
        best, most = self.interval_of(terms)
        if most < enough:
            return best
        if best < enough and self._steps > 0 and self._depth < SEARCH_DEPTH_MAX:
            self._steps, self._depth = self._steps - 1, self._depth + 1
            for found in self._eliminated(terms, enough):
                best = max(best, found)
                if best >= enough:
                    break
            self._depth -= 1
        self._least[key] = best, best < enough and self._steps > 0
        return best

    def _eliminated(self, terms: Terms, enough: int) -> Iterator[int]:
        """Yields lower bounds of a polynomial, one for each way to eliminate its youngest atom."""
        yield from self._without_shared(terms, enough)
        last = youngest(terms)
        assert last is not None, "a number has no atoms"
        atom, factor = self.atoms[last], factor_of(last, terms)
        if factor is None:
            return
        low, high = self.interval_of(factor)
        is_positive = low >= 0 or (high > 0 and self._least_of(factor, 0) >= 0)
        if not is_positive and high > 0 and self._least_of(times(factor, {(): -1}), 0) < 0:
            return
        facts = atom.lows if is_positive else atom.highs
        yield from self._combined(terms, factor, facts, last, enough)
        if atom.one_of and (len(atom.one_of) == 1 or not facts):
            own: Terms = {(last,): 1}
            cases = [added(terms, times(factor, added(case, own, -1))) for case in atom.one_of]
            yield min([self._least_of(case, enough) for case in cases])
        yield from self._combined(terms, factor, self._sharper(last, is_positive), last, enough)

    def _combined(self, terms: Terms, factor: Terms, facts: list[Terms], last: int, enough: int) -> Iterator[int]:
        """Yields lower bounds of a polynomial combined with each fact; the combination with the largest interval bound
        comes first."""
        found = [one for one in [self._goal(terms, factor, fact, last, enough) for fact in facts] if one is not None]
        if len(found) > 1:
            found.sort(key=lambda one: -self.interval_of(one[0])[0] / max(1, one[1]))
        for rest, scale, least in found:
            value = self._least_of(rest, least)
            if scale:
                yield -(-value // scale)
            elif value >= least:
                yield enough

    def _goal(self, terms: Terms, factor: Terms, fact: Terms, last: int, enough: int) -> tuple[Terms, int, int] | None:
        """Returns (rest, scale, least): the terms are never below rest / scale, and `least` of the rest is enough.

        A scale of 0: where the rest is never below `least`, the terms are never below `enough`.
        """
        own = factor_of(last, fact)
        assert own, "a fact is of its atom"
        if own.keys() == {()} and factor.keys() == {()}:
            shared = gcd(own[()], factor[()])
            scale, share = abs(own[()]) // shared, abs(factor[()]) // shared
            return added({atoms: f * scale for atoms, f in terms.items()}, fact, -share), scale, (enough - 1) * scale + 1
        if (ratio := _ratio(factor, own)) is not None:
            return added(terms, fact, -ratio), 1, enough
        if own.keys() == {()}:
            sign, scale = (1, own[()]) if own[()] > 0 else (-1, -own[()])
            scaled = {atoms: f * scale for atoms, f in terms.items()}
            return added(scaled, times(factor, fact), -sign), scale, (enough - 1) * scale + 1
        low, high = self.interval_of(own)
        if factor.keys() != {()} or low <= 0 <= high:
            return None
        sign = 1 if low > 0 else -1  # s p - k f > s (enough - 1) shows p > enough - 1
        scaled = {atoms: f * sign for atoms, f in times(own, added(terms, ONE, 1 - enough)).items()}
        return added(scaled, fact, -abs(factor[()])), 0, 1

    def _sharper(self, last: int, is_positive: bool) -> list[Terms]:
        """Returns facts of a quotient that hold of whole numbers: with 4 q <= x and x <= 63 - 20 i, q <= 15 - 5 i."""
        key = last, is_positive
        if key not in self._sharp:
            found: list[Terms] = []
            for most in (1, FACTS_MAX):  # the youngest atom besides, then any of them
                found += [fact for fact in self._rounded(last, is_positive, most) if fact not in found]
            self._sharp[key] = found
        return self._sharp[key]

    def _rounded(self, last: int, is_positive: bool, most_others: int) -> Iterator[Terms]:
        """Yields facts of an atom whose factors have a common divisor, made by eliminating other atoms from its own."""
        atom = self.atoms[last]
        facts = [f for f in (atom.lows if is_positive else atom.highs) if abs(f.get((last,), 1)) > 1]
        for fact in facts:  # which grows; a constant is rounded down
            shared = gcd(*[factor for atoms, factor in fact.items() if atoms])
            if shared > 1:
                yield {atoms: factor // shared for atoms, factor in fact.items()}
            older = sorted({number for atoms in fact for number in atoms} - {last}, reverse=True)
            for other in older[:most_others]:
                if len(facts) < FACTS_MAX:
                    facts += self._freed(last, is_positive, fact, other)

    def _freed(self, last: int, is_positive: bool, fact: Terms, other: int) -> list[Terms]:
        """Returns the facts about atom `last` after another atom is eliminated by the facts about that one."""
        sign, wanted = fact.get((other,), 0), 1 if is_positive else -1
        known = list(self.atoms[other].highs if sign > 0 else self.atoms[other].lows)
        known += [learned for learned in self._learned if learned.get((other,), 0) * sign < 0]
        derived = [_without(other, fact, one) for one in known]
        return [free for free in derived if free and free.get((last,), 0) * wanted > 0]

    def _without_shared(self, terms: Terms, enough: int) -> Iterator[int]:
        """Yields 0 where an atom that is not negative divides all terms, and the quotient is not negative."""
        if len(terms) > 1 and enough <= 0:
            for shared in set.intersection(*map(set, terms)):
                rest = factor_of(shared, terms)
                if rest and self.atoms[shared].low >= 0 and self._least_of(rest, 0) >= 0:
                    yield 0

    def interval_of(self, terms: Terms) -> tuple[int, int]:
        """Returns the interval of a polynomial from the intervals of its atoms."""
        known, least, greatest = self.atoms, 0, 0
        for atoms, factor in terms.items():
            low = high = 1
            if atoms:
                low, high = known[atoms[0]].low, known[atoms[0]].high
            for number in atoms[1:]:
                low, high = product_interval((low, high), (known[number].low, known[number].high))
            if factor < 0:
                low, high = high, low
            least, greatest = least + factor * low, greatest + factor * high
        return least, greatest


def _without(atom: int, fact: Terms, other: Terms) -> Terms | None:
    """Combines two facts in which an atom has factors of opposite signs into one without it; None if a factor is a
    product."""
    a, b = factor_of(atom, fact), factor_of(atom, other)
    if a is None or b is None or a.keys() != {()} or b.keys() != {()}:
        return None
    shared = gcd(a[()], b[()])
    scaled = {atoms: factor * (abs(b[()]) // shared) for atoms, factor in fact.items()}
    return added(scaled, other, abs(a[()]) // shared)


def _ratio(a: Terms, b: Terms) -> int | None:
    """Returns k > 0 where a = k b."""
    atoms, own = next(iter(b.items()))
    ratio, rest = divmod(a.get(atoms, 0), own)
    return ratio if rest == 0 and ratio > 0 and a == {part: f * ratio for part, f in b.items()} else None
