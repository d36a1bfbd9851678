"""Integer expressions of loop variables: always in normal form, so that equal ones are the same Op. And coordinates made of
them.

In:    int or scalar int64 Ops over RANGE, VARIABLE, BIND, LOAD and VAR
Out:   `add`, `subtract`, `mul`, `floordiv`, `mod`, `minimum`, `maximum`, `less`, `both`; `bounds`; `affine`;
       `factors_of`; `with_values`;
       `to_op` and `from_op`, between int64 Ops and Python's integers; `forget_sums`;
       `dim_value`: the number of a length whose variables have values;
       `flatten`, `unflatten`, `move`: coordinates of an element, and what movement does to them

An expression is a sum `constant + coefficient * atom + ...`, its atoms in a fixed order. An atom is a RANGE, a VARIABLE, a
product of atoms, or a quotient or remainder that no rule below can simplify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, islice, repeat
from math import gcd, lcm
from operator import attrgetter
from typing import cast, overload

from picograd import dtype as dtypes
from picograd.errors import UnsupportedOp, VerifyError
from picograd.ir.arithmetic import ARITHMETIC, Interval
from picograd.ir.op import Dim, Op, Shape, const, toposort
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.ranges import from_sources

Terms = dict[Op, int]
TEXT = attrgetter("text")
KNOWN_RESULTS_MAX = 1 << 12  # results that are kept of each function, until `forget_sums`
DEGREE_MAX = 3  # of a polynomial that is divided by another
LARGE = 1 << 62  # stands for "unbounded" in `bounds`


def to_op(value: Dim) -> Op:
    """Returns an integer expression as an Op."""
    return value if isinstance(value, Op) else _integer(value)


@lru_cache(4096)
def _integer(value: int) -> Op:
    return const(value, dtypes.int64) if abs(value) >= LARGE else Op(OpCode.CONST, dtypes.int64, (), value)


def from_op(op: Op) -> Dim:
    """Returns a constant of int64 as a Python int, any other Op unchanged.

    A constant of another dtype stays an Op: it may be below a CAST, and `to_op` would turn it into an int64.
    """
    return int(op.arg) if op.code is OpCode.CONST and op.dtype is dtypes.int64 else op


def forget_sums() -> None:
    """Forgets the results of these functions, which keep Ops alive; called after each plan, within which many are equal."""
    for function in (add, mul, bounds, floordiv, mod):
        function.cache_clear()


def affine(value: Dim) -> tuple[Terms, int]:
    """Returns (terms, constant) with value = constant + sum(coefficient * atom)."""
    if isinstance(value, int):
        return {}, value
    code = value.code
    if code is OpCode.CONST:
        return {}, int(value.arg)
    if code is not OpCode.ADD and code is not OpCode.MUL:
        if code is OpCode.RANGE and value.src[0].arg == 1 and value.src[0].code is OpCode.CONST:
            return {}, 0  # a loop that runs once
        return {value: 1}, 0
    try:
        return value.terms  # kept as long as the expression lives
    except AttributeError:
        found = _take_apart(value)
        if value not in found[0]:  # else the product would refer to itself
            value.terms = found
        return found


def _take_apart(op: Op) -> tuple[Terms, int]:
    """Returns (terms, constant) of a sum or a product in normal form."""
    if op.code is OpCode.ADD:
        terms: Terms = {}
        constant = 0
        for part in op.src:
            part_terms, part_constant = affine(part)
            constant += part_constant
            for atom, coefficient in part_terms.items():
                terms[atom] = terms.get(atom, 0) + coefficient
        return terms, constant
    if op.src[1].code is OpCode.CONST:
        factor = int(op.src[1].arg)
        terms, constant = affine(op.src[0])
        return {atom: c * factor for atom, c in terms.items()}, constant * factor
    return {op: 1}, 0


def _text(op: Op) -> str:
    """Returns a key to sort atoms by that is the same in every process."""
    try:
        return op.text
    except AttributeError:
        found = f"{op.code.name}{op.arg}({','.join(_text(s) for s in op.src)})"
        if len(found) > 200:  # the text of a graph with shared parts would double at each level
            found = found[:100] + blake2b(found.encode()).hexdigest()
        op.text = found
        return found


def _assemble(terms: Terms, constant: int) -> Dim:
    """Builds the normal form; x // c * (k * c) + x % c * k becomes x * k on the way."""
    if 0 in terms.values():
        terms = {atom: c for atom, c in terms.items() if c}
    several = len(terms) > 1
    for atom in terms if several else ():
        factors = factors_of(atom) if atom.code is OpCode.MUL else [atom]
        for i, part in enumerate(factors):
            if part.code is not OpCode.MOD:
                continue
            factor, divisor, others = terms[atom], from_op(part.src[1]), factors[:i] + factors[i + 1 :]
            if isinstance(divisor, int) and factor * divisor not in terms.values():
                continue
            times = mul(_product(others), factor) if others else factor
            whole, start = affine(mul(mul(floordiv(from_op(part.src[0]), divisor), divisor), times))
            if start == 0 and whole and all(terms.get(other) == c for other, c in whole.items()):
                rest = {other: c for other, c in terms.items() if other is not atom and other not in whole}
                return add(_assemble(rest, constant), mul(from_op(part.src[0]), times))
    result: Op | None = None
    ordered: Terms = {}
    for atom in _in_order(terms) if several else terms:
        factor = ordered[atom] = terms[atom]
        part = atom if factor == 1 else Op(OpCode.MUL, dtypes.int64, (atom, _integer(factor)))
        result = part if result is None else Op(OpCode.ADD, dtypes.int64, (result, part))
    if result is None:
        return constant
    if constant:
        result = Op(OpCode.ADD, dtypes.int64, (result, _integer(constant)))
    if result not in ordered:  # else the sum is a single atom
        result.terms = ordered, constant
    return result


def _in_order(terms: Terms) -> list[Op]:
    """Returns the atoms of a sum in an order that is the same in every process."""
    try:
        return sorted(terms, key=TEXT)
    except AttributeError:  # the text of one of them has not been made yet
        return sorted(terms, key=_text)


@lru_cache(KNOWN_RESULTS_MAX)
def add(a: Dim, b: Dim) -> Dim:
    """Returns a + b."""
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    terms, constant = affine(a)
    terms = dict(terms)
    other, other_constant = affine(b)
    for atom, coefficient in other.items():
        terms[atom] = terms.get(atom, 0) + coefficient
    return _assemble(terms, constant + other_constant)


@lru_cache(KNOWN_RESULTS_MAX)
def mul(a: Dim, b: Dim) -> Dim:
    """Returns a * b."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if isinstance(a, int):
        a, b = b, a
    terms, constant = affine(a)
    if isinstance(b, int):
        return _assemble({atom: c * b for atom, c in terms.items()}, constant * b)
    result: Dim = mul(b, constant)
    for atom, coefficient in terms.items():
        for other, factor in affine(b)[0].items():
            product = _product([*factors_of(atom), *factors_of(other)])
            result = add(result, _assemble({product: coefficient * factor}, 0))
        result = add(result, mul(atom, affine(b)[1] * coefficient))
    return result


def factors_of(atom: Op) -> list[Op]:
    """Returns the factors of a product, in order."""
    return [factor for source in atom.src for factor in factors_of(source)] if atom.code is OpCode.MUL else [atom]


def strides_in(index: Dim) -> dict[Op, Dim]:
    """Returns the loop variables of an index with their strides, which may be symbolic; other parts with their factors."""
    found: dict[Op, Dim] = {}
    for atom, step in affine(index)[0].items():
        factors = factors_of(atom) if atom.code is OpCode.MUL else []
        moving = [factor for factor in factors if any(op.code is OpCode.RANGE for op in toposort([factor]))]
        variable, stride = (moving[0], cast(Dim, step)) if len(moving) == 1 else (atom, step)
        for factor in factors if variable is not atom else ():
            stride = stride if factor is variable else mul(stride, factor)
        found[variable] = stride
    return found


def _product(factors: Iterable[Op]) -> Op:
    """Returns the product of atoms as one atom: loop variables, then all lengths as one factor."""
    *first, product = sorted(factors, key=_text)
    for factor in reversed(first):
        product = Op(OpCode.MUL, dtypes.int64, (factor, product))
    return product


def subtract(a: Dim, b: Dim) -> Dim:
    """Returns a - b."""
    return add(a, mul(b, -1))


def weighted_sum(parts: Iterable[tuple[Dim, int]]) -> Dim:
    """Returns the sum of value * factor, built in one step."""
    total: Terms = {}
    constant = 0
    for value, factor in parts:
        terms, own = affine(value)
        constant += own * factor
        for atom, coefficient in terms.items():
            total[atom] = total.get(atom, 0) + coefficient * factor
    return _assemble(total, constant)


def without(value: Dim, atoms: Iterable[Op]) -> tuple[Dim, int]:
    """Returns a sum without its terms in `atoms` and without its constant, and the constant; `plus` adds it again."""
    terms, constant = affine(value)
    rest = dict(terms)
    for atom in atoms:
        rest.pop(atom, None)
    return _assemble(rest, 0), constant


def plus(value: Dim, number: int) -> Dim:
    """Returns value + number for a result of `without`, which has no constant of its own."""
    if isinstance(value, int):
        return value + number
    return value if number == 0 else Op(OpCode.ADD, dtypes.int64, (value, _integer(number)))


@lru_cache(KNOWN_RESULTS_MAX)
def bounds(value: Dim) -> Interval:
    """Returns (least, greatest) of an integer expression; +-LARGE if nothing is known."""
    if isinstance(value, int):
        return value, value
    exact: Interval | None = None
    if value.code is OpCode.ADD or (value.code is OpCode.MUL and value.src[1].code is OpCode.CONST):
        terms, low = affine(value)  # in which terms have cancelled
        high = low
        for atom, coefficient in terms.items():
            ends = [end * coefficient for end in bounds(atom)]
            low, high = low + min(ends), high + max(ends)
        exact = low, high
        quotients: Terms = {}
        for atom, coefficient in terms.items() if len(terms) > 1 else ():
            divisor = atom.src[1].arg if atom.code is OpCode.IDIV and atom.src[1].code is OpCode.CONST else 0
            if divisor and coefficient % divisor == 0 and is_length(atom):
                quotients[atom] = coefficient
        for some in [{one: quotients[one]} for one in quotients] + [quotients] * (len(quotients) > 1):
            least, greatest = _bounds_apart(value, some)
            exact = max(exact[0], least), min(exact[1], greatest)
    elif value.code in OF_INDICES and value.dtype.is_int:
        exact = from_sources(value, bounds)
        if value.code is OpCode.MIN and exact is not None and value.src[1].code is not OpCode.CONST:
            # A minimum is at most the mean: min(j, n - j) <= n // 2.
            exact = exact[0], min(exact[1], bounds(add(*map(from_op, value.src)))[1] // 2)
        if value.code is OpCode.IDIV and exact is not None and value.src[0].code is OpCode.RANGE:
            last = add(from_op(value.src[0].src[0]), -1)  # an index of 3 n iterations, divided by n, is at most 2
            exact = exact[0], min(exact[1], bounds(floordiv(last, from_op(value.src[1])))[1])
    return (-LARGE, LARGE) if exact is None else (max(-LARGE, exact[0]), min(LARGE, exact[1]))


def _bounds_apart(value: Dim, quotients: Terms) -> Interval:
    """Returns bounds of a sum with each x // d * d written as x - x % d, whose x may cancel with another one."""
    low = high = 0
    for quotient, coefficient in quotients.items():
        x, divisor = from_op(quotient.src[0]), int(quotient.src[1].arg)
        value = add(value, subtract(mul(x, coefficient // divisor), mul(quotient, coefficient)))
        ends = [end * (coefficient // -divisor) for end in bounds(mod(x, divisor))]
        low, high = low + min(ends), high + max(ends)
    terms, constant = affine(value)
    for atom, coefficient in terms.items():
        ends = [end * coefficient for end in bounds(atom)]
        low, high = low + min(ends), high + max(ends)
    return low + constant, high + constant


# Nothing is known of other Ops in an index, such as a LOAD or a WHERE: an expression may be deep.
OF_INDICES = frozenset(
    {
        OpCode.CONST, OpCode.RANGE, OpCode.VARIABLE, OpCode.BIND, OpCode.CHECK, OpCode.MUL, OpCode.IDIV, OpCode.MOD,
        OpCode.MIN, OpCode.MAX, OpCode.NEG,
    }
)  # fmt: skip


@lru_cache(KNOWN_RESULTS_MAX)
def floordiv(a: Dim, divisor: Dim) -> Dim:
    """Returns a // divisor, rounding to minus infinity; a // 0 is 0."""
    if divisor == 1:
        return a
    if isinstance(divisor, int) and divisor <= 0:
        return 0 if divisor == 0 else floordiv(mul(a, -1), -divisor)
    if isinstance(a, int) and isinstance(divisor, int):
        return a // divisor
    quotient, rest = _divide(a, divisor)
    low, high = bounds(rest)
    if low >= 0 and _fits(rest, high, divisor):
        return quotient
    if isinstance(divisor, int):
        if isinstance(rest, int) or low // divisor == high // divisor:
            return add(quotient, low // divisor)
        unit, units, _ = _in_units(rest, divisor)
        if unit > 1:
            return add(quotient, floordiv(units, divisor // unit))
        atom, more = rest.src if rest.code is OpCode.ADD and is_length(rest) else (rest, None)
        if atom.code is OpCode.IDIV and atom.src[1].code is OpCode.CONST and (more is None or more.code is OpCode.CONST):
            inner = int(atom.src[1].arg)  # (x // a + b) // c is (x + a b) // (a c)
            shift = 0 if more is None else inner * int(more.arg)
            return add(quotient, floordiv(add(from_op(atom.src[0]), shift), inner * divisor))
    return add(quotient, Op(OpCode.IDIV, dtypes.int64, (to_op(rest), to_op(divisor))))


@lru_cache(KNOWN_RESULTS_MAX)
def mod(a: Dim, divisor: Dim) -> Dim:
    """Returns a - a // divisor * divisor, with the sign of the divisor; modulo 0 is 0."""
    if divisor == 1:
        return 0
    if isinstance(divisor, int) and divisor <= 0:
        return 0 if divisor == 0 else mul(mod(mul(a, -1), -divisor), -1)
    if isinstance(a, int) and isinstance(divisor, int):
        return a % divisor
    _, rest = _divide(a, divisor)
    low, high = bounds(rest)
    if low >= 0 and _fits(rest, high, divisor):
        return rest
    if isinstance(divisor, int):
        if isinstance(rest, int) or low // divisor == high // divisor:
            return subtract(rest, low // divisor * divisor)
        unit, units, below = _in_units(rest, divisor)
        if unit > 1:
            return add(mul(mod(units, divisor // unit), unit), below)
    return Op(OpCode.MOD, dtypes.int64, (to_op(rest), to_op(divisor)))


def _divide(a: Dim, divisor: Dim) -> tuple[Dim, Dim]:
    """Returns (quotient, rest) with a = quotient * divisor + rest: terms that divide exactly are in the quotient."""
    terms, constant = affine(a)
    if isinstance(divisor, int):
        whole = {atom: c // divisor for atom, c in terms.items() if c % divisor == 0}
        rest = {atom: c for atom, c in terms.items() if c % divisor}
        is_whole = not rest or constant % divisor == 0
        extra = constant // divisor if is_whole or all(map(is_length, rest)) else 0
        return _assemble(whole, extra), _assemble(rest, constant - extra * divisor)
    lead, times = max(affine(divisor)[0].items(), key=lambda term: len(factors_of(term[0])))
    among, quotient, below = Counter(factors_of(lead)), cast(Dim, 0), a
    for _ in range(DEGREE_MAX):  # as in a division of polynomials: removing one term may leave another
        parts: list[Dim] = []
        for atom, coefficient in affine(below)[0].items():
            factors = Counter(factors_of(atom))
            if coefficient % times == 0 and factors >= among:
                left = [*(factors - among).elements()]
                parts.append(mul(_product(left), coefficient // times) if left else coefficient // times)
        quotient = weighted_sum([(quotient, 1), *((part, 1) for part in parts)])
        below = weighted_sum([(below, 1), *((mul(divisor, part), -1) for part in parts)])
    if bounds(below)[0] < 0 <= bounds(a)[0]:
        quotient, below = add(quotient, -1), add(below, divisor)
        return (quotient, below) if bounds(below)[0] >= 0 else (0, a)
    return quotient, below


def _in_units(value: Op, divisor: int) -> tuple[int, Dim, Dim]:
    """Returns (unit, units, below): value = units * unit + below, below < unit, a divisor of the divisor; 1 if no other.

    A vector of 16 lanes that begins at a multiple of 16 is inside one row of 32: (i * 16 + lane) // 32 = i // 2.
    """
    terms, constant = affine(value)
    shared = gcd(divisor, *terms.values())
    if shared > 1:
        return shared, _assemble({atom: c // shared for atom, c in terms.items()}, constant // shared), constant % shared
    for unit in sorted(map(gcd, terms.values(), repeat(divisor)), reverse=True) if len(terms) > 1 else ():
        if unit == 1:
            break
        below = _assemble({atom: c for atom, c in terms.items() if c % unit}, constant % unit)
        low, high = bounds(below)
        if low >= 0 and high < unit:
            return unit, _assemble({a: c // unit for a, c in terms.items() if c % unit == 0}, constant // unit), below
    return 1, value, 0


def _fits(rest: Dim, high: int, divisor: Dim) -> bool:
    """True if rest < divisor is certain."""
    if isinstance(divisor, int):
        return high < divisor
    if isinstance(rest, Op) and rest.code is OpCode.RANGE and rest.src[0] is divisor:
        return True
    return bounds(_at_most(subtract(rest, divisor)))[1] < 0


def _at_most(value: Dim) -> Dim:
    """Returns an expression that is never below a value: with RANGEs of symbolic extent at an end, one side of each MIN.

    Intervals alone lose what an extent and the rest have in common: 2 i + 1 < n for i < n // 2.
    """
    parts = [factors_of(atom) if atom.code is OpCode.MUL else [atom] for atom in affine(value)[0]]
    indices = [op for factors in parts for op in factors if op.code is OpCode.RANGE and op.src[0].code is not OpCode.CONST]
    for index in dict.fromkeys(indices):
        slope = _factor_of(index, value)
        least, greatest = bounds(slope)
        if least >= 0 or greatest <= 0:
            last = plus(from_op(index.src[0]), -1) if least >= 0 else 0
            value = add(value, mul(slope, subtract(last, index)))
    for atom, factor in affine(value)[0].items():
        if atom.code is OpCode.MIN and factor > 0:
            value = min((add(value, mul(subtract(from_op(one), atom), factor)) for one in atom.src), key=_greatest)
    return value


def _factor_of(index: Op, value: Dim) -> Dim:
    """Returns the factor of an index in a sum, from the products that have it once."""
    found: list[tuple[Dim, int]] = []
    for atom, factor in affine(value)[0].items():
        factors = factors_of(atom)
        if factors.count(index) == 1:
            others = [other for other in factors if other is not index]
            found.append((_product(others) if others else 1, factor))
    return weighted_sum(found)


def _greatest(value: Dim) -> int:
    return bounds(value)[1]


def minimum(a: Dim, b: Dim) -> Dim:
    """Returns the smaller of a and b."""
    if a is b:
        return a
    if bounds(a)[1] <= bounds(b)[0]:
        return a
    if bounds(b)[1] <= bounds(a)[0]:
        return b
    if isinstance(a, Op) and isinstance(b, Op):
        low, high = bounds(subtract(*_without_quotients(a, b)))
        if low >= 0 or high <= 0:
            return a if high <= 0 else b
    return Op(OpCode.MIN, dtypes.int64, (to_op(a), to_op(b)))


def _without_quotients(*values: Dim) -> list[Dim]:
    """Returns values times the divisors of their terms, so that n // 2 and (n + 1) // 2 can be compared."""
    terms = [atom for value in values for atom in affine(value)[0] if atom.code is OpCode.IDIV and is_length(atom)]
    divisors = [int(atom.src[1].arg) for atom in terms if atom.src[1].code is OpCode.CONST]
    return [mul(value, max(1, lcm(*divisors))) for value in values]


@overload
def ceildiv(a: int, divisor: int) -> int: ...
@overload
def ceildiv(a: Dim, divisor: Dim) -> Dim: ...
def ceildiv(a: Dim, divisor: Dim) -> Dim:
    """Returns a / divisor, rounded up: the number of parts of `divisor` elements that cover `a`.

    >>> ceildiv(10, 4)
    3
    """
    if isinstance(a, int) and isinstance(divisor, int) and divisor:
        return -(-a // divisor)
    return floordiv(add(a, subtract(divisor, 1)), divisor)


def _negative(value: Dim) -> Dim:
    return mul(value, -1)


def maximum(a: Dim, b: Dim) -> Dim:
    """Returns the greater of a and b, written as a minimum, so that there is one kind of atom for both."""
    return mul(minimum(mul(a, -1), mul(b, -1)), -1)


def at_least_0(value: Dim) -> Dim:
    """Returns max(value, 0), in a form for which `bounds` proves that it is not negative."""
    return mul(minimum(mul(value, -1), 0), -1)


def less(a: Dim, b: Dim) -> bool | Op:
    """Returns a < b, decided now if the bounds allow it."""
    difference = subtract(a, b)
    low, high = bounds(difference)
    if high < 0 or (isinstance(difference, Op) and bounds(_at_most(difference))[1] < 0):
        return True
    if low >= 0:
        return False
    return Op(OpCode.CMPLT, dtypes.bool_, (to_op(a), to_op(b)))


def both(a: bool | Op, b: bool | Op) -> bool | Op:
    """Returns a and b."""
    if isinstance(a, bool):
        return b if a else False
    if isinstance(b, bool):
        return a if b else False
    return a if a is b else Op(OpCode.AND, dtypes.bool_, (a, b))


def with_values(value: Dim, values: Mapping[Op, Dim]) -> Dim:
    """Returns an expression with RANGEs and VARIABLEs replaced; integers around them are in normal form again.

    Cost: linear in the atoms; each sum is built once, for any number of replacements in it.
    """
    return _visited(value, values, {})


def _visited(value: Dim, values: Mapping[Op, Dim], done: dict[Op, Dim]) -> Dim:
    """Returns an expression with its replacements; `done` has earlier results."""
    if isinstance(value, int):
        return value
    found = values.get(value)
    if found is None:
        found = done.get(value)
    if found is None:
        found = done[value] = _substituted(value, values, done)
    return from_op(found) if isinstance(found, Op) else found


def _substituted(op: Op, values: Mapping[Op, Dim], done: dict[Op, Dim]) -> Dim:
    """Returns an expression rebuilt from the replacements of its parts."""
    if not op.src or op.code in (OpCode.RANGE, OpCode.BIND):
        return op
    if op.dtype is dtypes.int64 and op.code in SUMS:
        terms, constant = affine(op)
        if len(terms) > 1 or op not in terms:
            became = [(_visited(atom, values, done), factor) for atom, factor in terms.items()]
            same = all(new is atom for (new, _), atom in zip(became, terms))
            return op if same else weighted_sum([*became, (constant, 1)])
    src = [_visited(s, values, done) for s in op.src]
    if all(new is old for new, old in zip(src, op.src)):
        return op
    rebuild = INDEX_ARITHMETIC.get(op.code) if op.dtype is dtypes.int64 else None
    if rebuild is not None:
        return rebuild(*(from_op(s) if isinstance(s, Op) else s for s in src))
    return op.replace(src=tuple(to_op(s) for s in src))


SUMS = frozenset({OpCode.ADD, OpCode.MUL})
INDEX_ARITHMETIC: dict[OpCode, Callable[..., Dim]] = {
    OpCode.ADD: add, OpCode.MUL: mul, OpCode.IDIV: floordiv, OpCode.MOD: mod, OpCode.MIN: minimum,
    OpCode.MAX: maximum, OpCode.NEG: _negative,
}  # fmt: skip


def in_normal_form(value: Op) -> Dim:
    """Returns an expression of lengths that Python's operators have made, in normal form.

    >>> n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))
    >>> in_normal_form(n * 1) is n, in_normal_form(n + n - n) is n
    (True, True)
    """
    became: dict[Op, Dim] = {}
    for op in toposort([value], stop=_Bound()):
        rebuild = subtract if op.code is OpCode.SUB else INDEX_ARITHMETIC.get(op.code)
        became[op] = from_op(op) if rebuild is None else rebuild(*[became[s] for s in op.src])
    return became[value]


# ---- values of lengths ----
def is_length(op: Op) -> bool:
    """True for a number, a symbolic integer and arithmetic on some, which need no memory."""
    if op.code in INDEX_ARITHMETIC:
        return op.dtype is dtypes.int64 and all(map(is_length, op.src))
    return op.code is OpCode.CONST or op.code is OpCode.VARIABLE or op.code is OpCode.BIND


LEVELS_MAX = 6  # of a length that is evaluated recursively, parts that occur twice, twice


def dim_value(dim: Dim, variables: Mapping[str, int]) -> int:
    """Returns the number a dimension has; a bound symbolic integer that is not in `variables` has its own value.

    Raises:
      UnsupportedOp: a symbolic integer has no value.
      VerifyError:   it contains something else than integer arithmetic.

    >>> n = Op(OpCode.VARIABLE, dtypes.int64, (), ("n", 1, 8))
    >>> dim_value(Op(OpCode.MUL, dtypes.int64, (n, const(4, dtypes.int64))), {"n": 3})
    12
    """
    if isinstance(dim, int):
        return dim
    values: dict[Op, int] = {}
    if dim.depth > LEVELS_MAX:
        for op in toposort([dim], stop=_Bound()):
            values[op] = _value_of(op, variables, values)
    return _value_of(dim, variables, values)


def _value_of(op: Op, variables: Mapping[str, int], values: Mapping[Op, int]) -> int:
    """Returns the number of a length, given the values of some of its parts."""
    if op in values:
        return values[op]
    if op.code is OpCode.CONST:
        return int(op.arg)
    if op.code is OpCode.VARIABLE or op.code is OpCode.BIND:
        return _symbolic_value(op, variables)
    if op.code in ARITHMETIC:
        return ARITHMETIC[op.code](*[_value_of(s, variables, values) for s in op.src])
    raise VerifyError(f"{op} is in a length; lengths consist of numbers and symbolic integers.")


def with_variables(dim: Dim, variables: Mapping[str, int]) -> Dim:
    """Returns a dimension in which symbolic integers of these names have their values, and all others stay symbolic.

    >>> n, m = (Op(OpCode.VARIABLE, dtypes.int64, (), (name, 1, 8)) for name in "nm")
    >>> with_variables(Op(OpCode.MUL, dtypes.int64, (n, n)), {"n": 3, "m": 5})
    9
    >>> with_variables(m, {"n": 3}) is m
    True
    """
    if isinstance(dim, int):
        return dim
    atoms = [op for op in toposort([dim]) if op.code is OpCode.VARIABLE and op.arg[0] in variables]
    return with_values(dim, {op: variables[op.arg[0]] for op in atoms})


class _Bound:
    """The set of Ops below which there is no arithmetic."""

    def __contains__(self, op: Op) -> bool:
        return op.code is OpCode.BIND


def _symbolic_value(op: Op, variables: Mapping[str, int]) -> int:
    name = (op.src[0] if op.code is OpCode.BIND else op).arg[0]
    if name in variables:
        return variables[name]
    if op.code is OpCode.BIND:
        return int(op.src[1].arg)
    raise UnsupportedOp(f"the symbolic integer {name} has no value here.")


# ---- positions and coordinates ----
Coords = tuple[Dim, ...]


def placeholder(axis: int, extent: Dim) -> Op:
    """Returns a RANGE that stands for an axis while accesses are analysed; its id is negative, unlike that of a loop."""
    return Op(OpCode.RANGE, dtypes.int64, (to_op(extent),), (-1 - axis, AxisKind.LOOP))


@lru_cache(maxsize=1024)
def placeholders(shape: Shape) -> Coords:
    """Returns the coordinates of any element of a shape: a placeholder for each axis, 0 for axes of length 1."""
    return tuple(0 if dim == 1 else placeholder(axis, dim) for axis, dim in enumerate(shape))


def flatten(coords: Sequence[Dim], shape: Shape) -> Dim:
    """Returns the row-major position of `coords` in `shape`."""
    stride: Dim = 1
    parts: list[tuple[Dim, int]] = []
    for coord, dim in zip(reversed(coords), reversed(shape)):
        parts.append((coord, stride) if isinstance(stride, int) else (mul(coord, stride), 1))
        stride = mul(stride, dim)
    return weighted_sum(parts)


def unflatten(position: Dim, shape: Sequence[Dim]) -> Coords:
    """Returns the coordinates of a row-major position; the inverse of `flatten`."""
    coords: list[Dim] = []
    for dim in reversed(shape[1:]):
        coords.append(mod(position, dim))
        position = floordiv(position, dim)
    return (position, *reversed(coords)) if shape else ()


def reshape_coords(coords: Coords, new: Shape, old: Shape) -> Coords:
    """Returns the coordinates in shape `old` of element `coords` of shape `new`.

    Only axes that really split or merge need a division: those of length 1 are left out of the arithmetic, and of
    (n, h, w) and (n, h w) the last two are flattened alone.
    """
    kept = iter([coord for coord, dim in zip(coords, new) if dim != 1])
    found: list[Dim] = []
    for before, after in _runs(tuple(dim for dim in new if dim != 1), tuple(dim for dim in old if dim != 1)):
        own = list(islice(kept, len(before)))
        found += own if before == after else unflatten(flatten(own, before), after)
    values = iter(found)
    return tuple(0 if dim == 1 else next(values) for dim in old)


@lru_cache(maxsize=1024)
def _runs(new: Shape, old: Shape) -> list[tuple[Shape, Shape]]:
    """Returns two shapes of equally many elements in the shortest runs of axes with equally many.

    >>> _runs((2, 3, 20), (6, 4, 5))
    [((2, 3), (6,)), ((20,), (4, 5))]
    """
    ends = {product: end for end, product in enumerate(accumulate(new, mul), 1)}
    found: list[tuple[Shape, Shape]] = []
    first, own = 0, 0
    for end, product in enumerate(accumulate(old, mul), 1):
        if ends.get(product, 0) > first:
            found.append((new[first : ends[product]], old[own:end]))
            first, own = ends[product], end
    rest = new[first:], old[own:]
    return found if rest == ((), ()) else [*found, rest]


def move(op: Op, coords: Coords) -> tuple[Coords, Op | bool]:
    """Returns the source coordinates of element `coords` of a movement Op, and the condition that they exist."""
    shape = op.src[0].shape
    if op.code is OpCode.RESHAPE:
        return reshape_coords(coords, op.shape, shape), True
    if op.code is OpCode.PERMUTE:
        back = {axis: i for i, axis in enumerate(op.arg)}
        return tuple(coords[back[axis]] for axis in range(len(shape))), True
    if op.code is OpCode.EXPAND:
        return tuple(0 if dim == 1 else coord for coord, dim in zip(coords, shape)), True
    if op.code is OpCode.FLIP:
        last = [subtract(dim, 1) for dim in shape]
        return tuple(subtract(last[i], c) if i in op.arg else c for i, c in enumerate(coords)), True
    if op.code is OpCode.SHRINK:
        return tuple(add(coord, start) for coord, (start, _) in zip(coords, op.arg)), True
    assert op.code is OpCode.PAD, f"{op} has no value at a point: it must be computed by its own nest"
    inside: Op | bool = True
    moved: list[Dim] = []
    for coord, dim, (before, after) in zip(coords, shape, op.arg):
        source = subtract(coord, before)
        if before:
            inside = both(inside, less(-1, source))
        if after:
            inside = both(inside, less(source, dim))
        moved.append(source)
    return tuple(moved), inside
