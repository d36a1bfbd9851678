"""Integers of the linear form as polynomials of atoms, each atom with what is known of it.

In:    what the VARs of a Program name
Out:   `Sums`: the `Sum` of an Op
Called by: codegen/passes/inequalities.py.    Next: picograd/codegen/passes/terms.py

An atom is a loop's RANGE, a symbolic integer, a quotient, remainder, minimum or maximum, or what memory holds. It brings
facts: polynomials that are never negative and speak of it and of atoms that were met before.

    i of a loop over e      i >= 0,  e - 1 - i >= 0
    q = x // c              x - c q >= 0,  c q + c - 1 - x >= 0
    r = x % c               r >= 0,  c - 1 - r >= 0,  x - r >= 0 where x >= 0,  and it is x - c q
    m = min(x, y)           x - m >= 0,  y - m >= 0,  and it is x or y
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from picograd import dtype as dtypes
from picograd.codegen.passes.terms import Atoms, Terms, added, factor_of, times, youngest
from picograd.ir.intervals import TRUTHS, Interval, product_interval
from picograd.ir.op import Op
from picograd.ir.opcode import OpCode
from picograd.record import Struct, field

INT64 = (-(1 << 63), (1 << 63) - 1)
MOST_TERMS = 16  # of a product that is multiplied out


class Sum(NamedTuple):
    """A polynomial and an interval that it lies in."""

    terms: Terms
    low: int
    high: int


class Atom(Struct):
    """What is known of an integer that is no sum.

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
    prove:    True where it can show that a polynomial is never negative
    atoms:    by number; later ones speak of earlier ones
    sums:     of the Ops that were asked for
    quotients: by dividend and divisor
    remainders: by dividend and divisor
    divided:  atom that is a quotient -> dividend and divisor, a number
    divided_by: the youngest atom of a dividend -> that, and the numbers that divide it
    """

    def __init__(self, named: Mapping[Op, Op], holds: Mapping[Op, bool], prove: Callable[[Terms], bool]):
        self.named, self.holds, self.prove = named, holds, prove
        self.atoms: list[Atom] = []
        self.sums: dict[Op, Sum] = {}
        self.quotients: dict[tuple[frozenset[tuple[Atoms, int]], ...], Sum] = {}
        self.remainders: dict[tuple[frozenset[tuple[Atoms, int]], ...], Sum] = {}
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
            low, high = INT64 if op.dtype is dtypes.int64 else whole(op)
            # NOTE: what leaves the range of its type may have wrapped, so nothing follows from what it is made of.
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
        truth = TRUTHS[op.code](a[1:], b[1:])
        if truth is None and op.code is OpCode.CMPLT and self.prove(added(a.terms, b.terms, -1)):
            return False
        return truth

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


def whole(op: Op) -> Interval:
    """Returns the interval of all values of a type."""
    return (int(op.dtype.min), int(op.dtype.max)) if op.dtype.is_int else (0, 1)


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
    return Sum(added(a.terms, b.terms), a.low + b.low, a.high + b.high)


def _subtract(sums: Sums, op: Op) -> Sum:
    """a - b; of a remainder, x - x // c * c, a fact says that it is not negative, where intervals do not."""
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    terms, low = added(a.terms, b.terms, -1), a.low - b.high
    if low < 0 and op.dtype.kind == "u":
        last = youngest(terms)
        if (last is not None and terms in sums.atoms[last].highs) or sums.prove(terms):
            low = 0
    return Sum(terms, low, a.high - b.low)


def _negate(sums: Sums, op: Op) -> Sum:
    a = sums.sum_of(op.src[0])
    return Sum({atoms: -factor for atoms, factor in a.terms.items()}, -a.high, -a.low)


def _multiply(sums: Sums, op: Op) -> Sum | None:
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    if 0 < b.low == b.high:
        return Sum({atoms: own * b.low for atoms, own in a.terms.items()}, a.low * b.low, a.high * b.low)
    return _product(a, b)


def _product(a: Sum, b: Sum) -> Sum | None:
    if len(a.terms) * len(b.terms) > MOST_TERMS:
        return None
    return Sum(times(a.terms, b.terms), *product_interval(a[1:], b[1:]))


def _divide(sums: Sums, op: Op) -> Sum | None:
    return _quotient(sums, sums.sum_of(op.src[0]), sums.sum_of(op.src[1]))


def _quotient(sums: Sums, a: Sum, b: Sum) -> Sum | None:
    """a // b, rounded to minus infinity, for b > 0; x // m // n is x // (m n)."""
    if b.low < 1:
        return None
    corners = [x // y for x in a[1:] for y in b[1:]]
    low, high = min(corners), max(corners)
    if b.low < b.high:
        high = _highest(sums, a, b, high)
    if low == high:
        return _constant(low)
    key = frozenset(a.terms.items()), frozenset(b.terms.items())
    if key not in sums.quotients:
        if b.low == b.high:
            sums.divided_by.setdefault(youngest(a.terms), []).append((a, b))
        inner = sums.divided.get(_only_atom(a))
        if inner is not None and b.low == b.high:
            nested = _quotient(sums, inner[0], _constant(inner[1] * b.low))
            assert nested is not None, "both divisors are above 0"
            sums.quotients[key] = nested
        else:
            sums.quotients[key] = _new_quotient(sums, a, b, (low, high))
    return sums.quotients[key]


def _highest(sums: Sums, a: Sum, b: Sum, high: int) -> int:
    """Returns what a // b is at most: k - 1 where a fact says that a < k b."""
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
    key = frozenset(a.terms.items()), frozenset(b.terms.items())
    if key not in sums.remainders:
        last = added(b.terms, {(): -1})
        if a.low < 0:
            atom = sums.bounded(0, b.high - 1, ({},), (last,))
        else:
            atom = sums.bounded(0, min(a.high, b.high - 1), ({},), (last, a.terms))
        sums.atoms[-1].one_of = (added(a.terms, times(quotient.terms, b.terms), -1),)
        sums.remainders[key] = atom
    return sums.remainders[key]


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
    low = min(a.low, b.low)
    if low < 0 and all(x.low >= 0 or sums.prove(x.terms) for x in (a, b)):
        low = 0
    atom = sums.bounded(low, min(a.high, b.high), (), (a.terms, b.terms))
    sums.atoms[-1].one_of = a.terms, b.terms
    return atom


def _maximum(sums: Sums, op: Op) -> Sum:
    a, b = sums.sum_of(op.src[0]), sums.sum_of(op.src[1])
    if a.high <= b.low or b.high <= a.low:
        return b if a.high <= b.low else a
    atom = sums.bounded(max(a.low, b.low), max(a.high, b.high), (a.terms, b.terms), ())
    sums.atoms[-1].one_of = a.terms, b.terms
    return atom


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
    if found is not None and found.low < 0 and sums.prove(found.terms):
        found = found._replace(low=0)
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
