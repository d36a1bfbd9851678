"""Chooses the loops of a domain: adjacent axes that every access walks alike become one.

In:    the shape of a domain and the expressions evaluated over it
Out:   `merge_axes`: groups of axes;  `vector_lanes`: how many elements go side by side;  `rest_in_vectors`
Called by: the emitters.    Next: picograd/codegen/loops.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from picograd import dtype as dtypes
from picograd.device import Target
from picograd.ir.coordinates import Coords, placeholder, unflatten
from picograd.ir.op import Dim, Op, Shape, toposort
from picograd.ir.opcode import TRANSCENDENTAL, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import INDEX_ARITHMETIC, add, affine, mod, mul

Groups = tuple[tuple[int, ...], ...]


def index_roots(values: Iterable[Op]) -> list[Op]:
    """Returns every integer expression that something other than index arithmetic reads."""
    roots: dict[Op, None] = {}
    for value in (values := list(values)):
        if value.dtype is dtypes.int64:
            roots[value] = None
    for op in toposort(values):
        if op.code in INDEX_ARITHMETIC and op.dtype is dtypes.int64:
            continue
        for s in op.src:
            if s.dtype is dtypes.int64 and op.code is not OpCode.RANGE:
                roots[s] = None
    return list(roots)


def coefficients(root: Op, ranges: Sequence[Op]) -> list[Dim] | None:
    """Returns the factor of each range in an index, or None where a range stands inside another term."""
    terms, _ = affine(root)
    found: dict[Op, Dim] = dict.fromkeys(ranges, 0)
    for atom, number in terms.items():
        factors = _factors(atom)
        inside = [factor for factor in factors if factor in found]
        others = [factor for factor in factors if factor not in found]
        if len(inside) > 1 or any(op in found for factor in others for op in toposort([factor])):
            return None
        if inside:
            factor: Dim = number
            for other in others:
                factor = mul(factor, other)
            found[inside[0]] = add(found[inside[0]], factor)
    return list(found.values())


def _factors(atom: Op) -> list[Op]:
    """Returns the factors of a product."""
    return [f for s in atom.src for f in _factors(s)] if atom.code is OpCode.MUL else [atom]


def steps_by_one(index: Op, place: Op) -> bool:
    """True where an index grows by one with a RANGE, whatever else it depends on."""
    terms, _ = affine(index)
    return terms.get(place) == 1 and all(atom is place or place not in toposort([atom]) for atom in terms)


def merge_axes(
    domain: Shape, values: Sequence[Op], apart: frozenset[int] = frozenset()
) -> tuple[Groups, list[list[Dim] | None]]:
    """Groups adjacent axes of `domain` that can run as one loop.

    Axes a and a + 1 merge when every index moves as far along a as along the whole of a + 1.

    Args:
      values: the expressions (values and store positions) at `placeholders(domain)`
      apart:  axes that only merge among themselves (those a nest reduces)

    Returns: groups of axes in order (axes of length 1 are in none), and for every index expression its factor for
             each group, or None where it has none.
    """
    axes = [axis for axis, dim in enumerate(domain) if dim != 1]
    roots = index_roots(values)
    order = [placeholder(axis, domain[axis]) for axis in axes]
    factors = [coefficients(root, order) for root in roots]
    blocked = {r for root, f in zip(roots, factors) if f is None for r in toposort([root]) if r.code is OpCode.RANGE}
    groups: list[list[int]] = []
    for i, axis in enumerate(axes):
        extent = domain[axis]
        joins = bool(groups) and not {order[i - 1], order[i]} & blocked
        joins = joins and (axes[i - 1] in apart) == (axis in apart)
        if joins and all(f is None or f[i - 1] == mul(f[i], extent) for f in factors):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    last = [axes.index(group[-1]) for group in groups]
    by_group = [None if f is None else [f[i] for i in last] for f in factors]
    return tuple(tuple(group) for group in groups), by_group


def spread(groups: Groups, positions: Sequence[Dim], domain: Shape) -> Coords:
    """Returns the coordinates in `domain` of a position in each group."""
    coords: list[Dim] = [0] * len(domain)
    for group, position in zip(groups, positions):
        for axis, coord in zip(group, unflatten(position, tuple(domain[axis] for axis in group))):
            coords[axis] = coord
    return tuple(coords)


def group_extents(groups: Groups, domain: Shape) -> list[Dim]:
    """Returns how many iterations each group has."""
    return [numel(domain[axis] for axis in group) for group in groups]


def rest_in_vectors(computed: Callable[[], Iterable[Op]], extent: Dim, lanes: int) -> Dim:
    """Returns how many elements lie behind the whole vectors of an axis, where they are to go in vectors of fewer lanes.

    0: one by one, in less code. What is computed of each decides: 14 tanh took as long as 56 in vectors.
    """
    rest = mod(extent, lanes)
    return rest if rest != 0 and any(op.code in TRANSCENDENTAL for op in computed()) else 0


def vector_lanes(values: Iterable[Op], target: Target) -> int:
    """Returns how many elements fill one vector register, for the widest element that is computed.

    Indices do not count, and so nothing does that only a GATHER's index is made of.
    """
    widest, order = 4, toposort(values := list(values))
    if OpCode.GATHER in {op.code for op in order}:
        order = toposort(values, sources=lambda op: op.src[:1] if op.code is OpCode.GATHER else op.src)
    for op in order:
        if op.code in (OpCode.RANGE, OpCode.PARAM) or (op.dtype is dtypes.int64 and op.code in INDEX_ARITHMETIC):
            continue
        if not (op.dtype is dtypes.int64 and op.code in (OpCode.CONST, OpCode.VARIABLE)):
            widest = max(widest, op.dtype.itemsize)
    return max(1, target.vector_bytes // widest)
