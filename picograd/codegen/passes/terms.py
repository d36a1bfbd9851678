"""Arithmetic on polynomials of numbered atoms: what an index is while its bounds are proved.

In:    polynomials with whole factors
Out:   `added`, `times`, `factor_of`, `youngest`
Called by: codegen/passes/sums.py, codegen/passes/inequalities.py.    Next: picograd/codegen/passes/narrow_indices.py

Example: 16 x0 + x0 x1 - 3 is {(0,): 16, (0, 1): 1, (): -3}
"""

from __future__ import annotations

Atoms = tuple[int, ...]  # a product of atoms: their numbers, in order; () is 1
Terms = dict[Atoms, int]  # a polynomial: each product with its factor, which is not 0


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
    """Returns f where terms = f * atom + what is free of the atom; None where a square of it stands in them."""
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
