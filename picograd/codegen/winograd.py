"""Winograd's F(m, r): m neighbouring outputs of a filter with r taps from m + r - 1 multiplications, by Toom-Cook.

    out[a] = sum over k < r of x[a + k] w[k]                            m r multiplications
           = sum over points p of A[a, p] (B x)[p] (G w)[p]             m + r - 1

B transforms the input, G the filter, A the products into outputs (Lavin and Gray write B, G, A as Bᵀ, G, Aᵀ).

Toom's method multiplies polynomials u and w, with m and r coefficients, by their values at m + r - 1 points: u w = C ((E u)
* (G w)), where E and G are powers of the points and C interpolates. For fixed w this is a matrix, T[n, a] = w[n - a]. Its
transpose maps m + r - 1 numbers x to the sums over n of x[n] w[n - a], which are those of the window at a. So B is C
transposed, and A is E transposed.

B x is shared by all output channels, G w by all positions, and A is applied to the sum over all channels, so the cost of a
long sum is its multiplications: 6 instead of 10 (two outputs of 5 taps), or of 12 (four of 3). At the points 0, 1, -1, 2,
-2 and infinity float32 has about twice the error of the plain sum (2.0 for 3x3, 1.3 for 5x5, 32 channels; up to 3 in
gradients). All coefficients are integers; one division, by 24 or less, comes last: small integers give integer outputs, as
long as 24 times the sums stay below 2**24.

NOTE: outputs of a tile share their rounding. The error of each is relative to the largest of the m + r - 1 rows that they
read, not of its own r; inf or NaN in one of these rows, or a value above about 1e36, makes NaN of all of them.
Target.plain_sums, PICOGRAD_PLAIN_SUMS=1, disables Winograd, for example for a masked convolution that must not depend on
masked inputs.

Sources: Toom 1963; Winograd 1980, "Arithmetic Complexity of Computations"; for convolutions Lavin and Gray 2015,
arXiv:1509.09308; for the choice of points Barabasz et al. 2018, arXiv:1803.10986.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm, prod

from picograd.interrupts import cached_property
from picograd.ir.build import multiply_add
from picograd.ir.op import Op, const
from picograd.ir.opcode import OpCode
from picograd.ir.symbolic import ceildiv
from picograd.record import Record

POINTS = (Fraction(0), Fraction(1), Fraction(-1), Fraction(2), Fraction(-2))  # and infinity
MULTIPLICATIONS_LEFT_MAX = 0.8  # fraction of the plain multiplications: otherwise PLAIN

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]


class Winograd(Record, dict=True):
    """m results of r taps from m + r - 1 multiplications.

    outputs:  m
    taps:     r
    """

    outputs: int
    taps: int

    @property
    def num_points(self) -> int:
        return self.outputs + self.taps - 1

    @property
    def _finite(self) -> tuple[Fraction, ...]:
        return POINTS[: self.num_points - 1]

    @cached_property
    def _apart(self) -> tuple[Fraction, ...]:
        """The product of the distances of each finite point to the others."""
        others = [self._finite[:i] + self._finite[i + 1 :] for i in range(len(self._finite))]
        return tuple(prod((p - q for q in rest), start=Fraction(1)) for p, rest in zip(self._finite, others))

    @cached_property
    def input_transform(self) -> Matrix:
        """B: row i is the product of (x - xj) over all points j != i; for infinity over all points."""
        polynomials = [_with_roots(self._finite[:i] + self._finite[i + 1 :]) for i in range(len(self._finite))]
        polynomials.append(_with_roots(self._finite))
        return tuple(row + (Fraction(0),) * (self.num_points - len(row)) for row in polynomials)

    @cached_property
    def filter_transform(self) -> Matrix:
        """G: the powers of each point."""
        return (*(_powers(point, self.taps) for point in self._finite), _last(self.taps))

    @cached_property
    def divisor(self) -> int:
        """The common divisor of all outputs."""
        return lcm(*(int(abs(apart)) for apart in self._apart))

    @cached_property
    def output_transform(self) -> Matrix:
        """A: for each point its powers, divided by the product of its distances to the others, times `divisor`."""
        scales = [self.divisor / apart for apart in self._apart]
        columns = [tuple(scale * power for power in _powers(p, self.outputs)) for p, scale in zip(self._finite, scales)]
        return tuple(zip(*columns, tuple(self.divisor * value for value in _last(self.outputs))))


PLAIN = Winograd(1, 1)


def winograd_for(outputs: int, taps: int) -> Winograd:
    """Returns the scheme with the fewest multiplications: all taps of a few results, or all results of a few taps.

    >>> winograd_for(outputs=20, taps=5), winograd_for(outputs=5, taps=20)  # a convolution, and the gradient of its weight
    (Winograd(outputs=2, taps=5), Winograd(outputs=5, taps=2))
    """
    counts = range(1, len(POINTS) + 2)  # number of points
    choices = [Winograd(n - taps + 1, taps) for n in counts if taps <= n]
    choices += [Winograd(outputs, n - outputs + 1) for n in counts if outputs <= n]

    def multiplications(winograd: Winograd) -> int:
        return winograd.num_points * ceildiv(outputs, winograd.outputs) * ceildiv(taps, winograd.taps)

    best = min(choices, key=lambda winograd: (multiplications(winograd), winograd.num_points), default=PLAIN)
    return best if multiplications(best) <= MULTIPLICATIONS_LEFT_MAX * outputs * taps else PLAIN


def linear_combination(coefficients: Row, values: list[Op], has_fma: bool) -> Op:
    """Returns the sum of coefficient * value; terms with coefficient 0 are left out."""
    terms = [(float(c), value) for c, value in zip(coefficients, values) if c]
    terms.sort(key=lambda term: abs(term[0]) != 1.0)  # 1 and -1 need no multiplication
    (c, total), *others = terms
    total = total if c == 1.0 else Op(OpCode.MUL, total.dtype, (total, const(c, total.dtype)))
    for c, value in others:
        if abs(c) == 1.0:
            total = Op(OpCode.ADD if c == 1.0 else OpCode.SUB, total.dtype, (total, value))
        else:
            total = multiply_add(value, const(c, value.dtype), total, has_fma)
    return total


def _with_roots(roots: tuple[Fraction, ...]) -> Row:
    """Returns the coefficients, constant first, of the product of (x - root)."""
    row: Row = (Fraction(1),)
    for root in roots:
        row = tuple(low - root * high for low, high in zip((Fraction(0), *row), (*row, Fraction(0))))
    return row


def _powers(point: Fraction, count: int) -> Row:
    return tuple(point**i for i in range(count))


def _last(length: int) -> Row:
    """Returns the row of infinity: there, the value of a polynomial is its last coefficient."""
    return (Fraction(0),) * (length - 1) + (Fraction(1),)
