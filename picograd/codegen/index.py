"""Turns a tensor graph into the value of one element: movement becomes arithmetic on indices. And merges axes.

In:    a value over PARAMs (movement and elementwise Ops) and integer coordinates
Out:   one scalar expression whose LOADs name memory and index;  for a domain: groups of axes

Example: PERMUTE(x, (1, 0)) at (i, j)  ->  LOAD(x, j * 3 + i)        # x: (2, 3)

Adjacent axes become one loop if every access walks them as one (`merge_axes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from picograd import dtype as dtypes
from picograd.codegen.builder import read, to_op_bool
from picograd.errors import UnsupportedOp
from picograd.ir.op import Dim, Op, Shape, const, toposort
from picograd.ir.opcode import ELEMENTWISE, IDENTITY, AxisKind, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import (
    INDEX_ARITHMETIC,
    Coords,
    add,
    affine,
    both,
    bounds,
    factors_of,
    flatten,
    from_op,
    less,
    move,
    mul,
    placeholder,
    placeholders,
    to_op,
    unflatten,
)

# ---- elements ----
FIRST_SEEN = -1000  # ids of RANGEs that stand for positions read from memory; nested ones count down from here
INDEX_ATOMS = (OpCode.RANGE, OpCode.CONST, OpCode.VARIABLE)

# One element of one Op: the Op, its coordinates, and the condition under which memory may be touched.
Point = tuple[Op, Coords, Op | bool]


def element(root: Op, coords: Coords, known: Mapping[Op, tuple[Coords, Op]] | None = None, valid: Op | bool = True) -> Op:
    """Returns the value of `root` at `coords` as a scalar expression.

    Args:
      known: results that the nest itself computes: Op -> (its coordinates, its value)
      valid: the condition under which the value matters; else no memory is touched

    After:  no movement, REDUCE or MATMUL is left; every LOAD has one index expression, and a condition where
            padding makes it conditional.
    Cost:   linear in Ops; iterative, so a chain may be longer than Python's stack.
    """
    return elements([root], coords, known, valid)[0]


def elements(
    roots: Sequence[Op], coords: Coords, known: Mapping[Op, tuple[Coords, Op]] | None = None, valid: Op | bool = True
) -> list[Op]:
    """Returns the value of each of `roots` at the same `coords`; see `element`.

    Cost:   linear in Ops: parts that several roots share, such as the steps of a chain, are done once.
    """
    known = known or {}
    done: dict[Point, Op] = {}
    waiting: dict[Point, list[Point]] = {}  # points on the stack -> the points from which they are computed
    starts = [(root, coords, valid) for root in roots]
    stack = starts[::-1]
    while stack:
        point = stack[-1]
        if point in done:
            stack.pop()
            continue
        sources = waiting.get(point)
        if sources is None or point[0].code is OpCode.GATHER:  # a GATHER's place depends on a value
            sources = waiting[point] = _sources(point, known, done)
        num_waiting = len(stack)
        for source in reversed(sources):
            if source not in done:
                stack.append(source)
        if len(stack) == num_waiting:
            done[point] = _value(point, known, list(map(done.__getitem__, sources)))
            stack.pop()
    return [done[start] for start in starts]


def element_within(root: Op, coords: Coords, results: Mapping[Op, Op] | None = None, axes: Sequence[int] = ()) -> Op:
    """Returns the value of `root` at coordinates that are certainly inside its shape.

    This cannot always be proved from `coords` (the last block of an axis is shorter), so the value is taken at
    placeholders, which have the bounds of their axes, and `coords` are put in afterwards.

    Args:
      results: values that the nest itself computes: of the root's shape, or of some of its axes
      axes:    the axes of the results, as numbers of coordinates
    """
    return elements_within([root], coords, results, axes)[0]


def elements_within(
    roots: Sequence[Op], coords: Coords, results: Mapping[Op, Op] | None = None, axes: Sequence[int] = ()
) -> list[Op]:
    """Returns the value of each of `roots`, which have one shape, at the same coordinates; see `element_within`."""
    own = placeholders(roots[0].shape)
    values = _anywhere(tuple(roots), tuple((results or {}).items()), tuple(axes))
    return put_in_all(values, {mark: coord for mark, coord in zip(own, coords) if isinstance(mark, Op)})


@lru_cache(maxsize=256)
def _anywhere(roots: tuple[Op, ...], results: tuple[tuple[Op, Op], ...], axes: tuple[int, ...]) -> list[Op]:
    """Returns the value of each of `roots` at placeholders of its axes; cached, since each part of a loop asks for it."""
    own = placeholders(roots[0].shape)
    here = tuple([own[axis] for axis in axes])
    known = {op: (own if op.shape == roots[0].shape else here, result) for op, result in results}
    return elements(roots, own, known)


def element_anywhere(root: Op) -> Op:
    """Returns the value of `root` at placeholders of its axes."""
    return _anywhere((root,), (), ())[0]


@lru_cache(maxsize=256)
def element_anywhere_valid(root: Op, valid: Op | bool) -> Op:
    """Returns the value of `root` at placeholders of its axes, whose memory is touched only where `valid` holds."""
    return element(root, placeholders(root.shape), None, valid)


def elements_anywhere(roots: Sequence[Op]) -> list[Op]:
    """Returns the value of each of `roots`, which have one shape, at placeholders of its axes."""
    return _anywhere(tuple(roots), (), ())


def put_in_all(roots: Sequence[Op], values: Mapping[Op, Dim]) -> list[Op]:
    """Returns expressions with RANGEs replaced and index arithmetic in normal form; shared parts are replaced once.

    Other int64 arithmetic is left as it is: a user's integers wrap, and expanding their products could take forever.
    """
    done: dict[Op, Op] = {}
    index: set[Op] = set()  # arithmetic on loop indices alone
    decided: set[Op] = set()  # conditions that are known at these values
    for op in toposort(roots, stop=values):
        made_of_index = (op.code in INDEX_ATOMS or op.code in INDEX_ARITHMETIC) and index.issuperset(op.src)
        if op.dtype is dtypes.int64 and (made_of_index or op in values):
            index.add(op)
        if op in values:
            done[op] = to_op(values[op])
        else:
            src = tuple(map(done.__getitem__, op.src))
            if src == op.src:
                done[op] = op
            elif op in index:
                done[op] = to_op(INDEX_ARITHMETIC[op.code](*map(from_op, src)))
            elif op.code is OpCode.CMPLT and index.issuperset(op.src):
                done[op] = to_op_bool(less(*map(from_op, src)))
            else:
                done[op] = op.replace(src=src)
                if decided and not decided.isdisjoint(op.src):
                    done[op] = _decided(done[op])
            if op.dtype is dtypes.bool_ and done[op].code is OpCode.CONST:
                decided.add(op)
    return [done[root] for root in roots]


def _decided(op: Op) -> Op:
    """Returns an expression without the conditions that are decided."""
    if op.code is OpCode.LOAD:
        return op.replace(src=op.src[:2]) if op.src[2].arg else const(0, op.dtype)
    if op.code is OpCode.WHERE and op.src[0].code is OpCode.CONST:
        return op.src[1] if op.src[0].arg else op.src[2]
    if op.code is OpCode.AND:
        return to_op_bool(both(*(bool(s.arg) if s.code is OpCode.CONST else s for s in op.src)))
    return op


def _sources(point: Point, known: Mapping[Op, tuple[Coords, Op]], done: Mapping[Point, Op]) -> list[Point]:
    """Returns the points from which `point` is computed."""
    op, coords, valid = point
    if op in known or not op.src or op.code is OpCode.BIND:
        return []
    if op.code in ELEMENTWISE or op.code in IDENTITY:
        return [(s, coords, valid) for s in op.src]
    if op.code is OpCode.GATHER:
        return _gather_sources(point, done)
    moved, inside = move(op, coords)
    return [] if inside is False else [(op.src[0], moved, both(valid, inside))]


def _gather_sources(point: Point, done: Mapping[Point, Op]) -> list[Point]:
    """Returns the points that a GATHER reads: the index, then the element of x that it names, if it is in range."""
    op, coords, valid = point
    (axis, batch), (x, index) = op.arg, op.src
    num_index = len(index.shape) - batch
    at = (index, coords[:batch] + coords[axis : axis + num_index], valid)
    if at not in done:
        return [at]
    place, inside = _place(op, done[at])
    return [at, (x, coords[:axis] + (_seen_place(point, place),) + coords[axis + num_index :], both(valid, inside))]


def _seen_place(point: Point, place: Dim) -> Dim:
    """Returns a placeholder of the place that a GATHER reads: a RANGE as long as the axis.

    It proves, for (16, 784) seen as (16, 28, 28), that any place of row c is in row c; an unbounded place would not be.
    """
    op, coords, valid = point
    length = op.src[0].shape[op.arg[0]]
    low, high = bounds(place)
    if (low >= 0 and less(high, length) is True) or not isinstance(length, int):
        return place
    around = [dim for dim in (place, *coords, valid) if isinstance(dim, Op)]
    last = min([op.arg[0] for op in toposort(around) if op.code is OpCode.RANGE], default=0)
    return Op(OpCode.RANGE, dtypes.int64, (to_op(length),), (min(last - 1, FIRST_SEEN), AxisKind.LOOP))


def _place(op: Op, index: Op) -> tuple[Dim, Op | bool]:
    """Returns the position along the axis that a GATHER reads, and the condition that it is inside."""
    place = from_op(index if index.dtype is dtypes.int64 else Op(OpCode.CAST, dtypes.int64, (index,)))
    return place, both(less(-1, place), less(place, op.src[0].shape[op.arg[0]]))


def _value(point: Point, known: Mapping[Op, tuple[Coords, Op]], sources: list[Op]) -> Op:
    """Returns the value at a point from the values of its sources."""
    op, coords, valid = point
    if op in known:
        expected, value = known[op]
        for dim, coord, own in zip(op.shape, coords, expected):
            if dim != 1 and coord != own:  # symbolic lengths may be equal without a proof
                raise UnsupportedOp(f"{op} is requested at {coords}, but the nest computes it at {expected}.")
        return value
    if op.code is OpCode.PARAM:
        memory = Op(OpCode.PARAM, op.dtype, (), (op.arg[0], (numel(op.shape),)))  # as `emit` declares it
        return read(memory, flatten(coords, op.shape), valid)
    if op.code is OpCode.CONST or op.code is OpCode.VARIABLE:
        return op
    if op.code is OpCode.BIND:
        return op.src[0]
    if op.code is OpCode.IOTA:
        value = to_op(coords[0])
        return value if op.dtype is dtypes.int64 else Op(OpCode.CAST, op.dtype, (value,))
    if op.code is OpCode.CHECK:
        return _check(op, sources[0], valid)
    if op.code in ELEMENTWISE:
        if op.code is OpCode.WHERE and sources[0].code is OpCode.CONST:
            return sources[1] if sources[0].arg else sources[2]
        if op.code is OpCode.ADD and op.dtype.is_int and (is_zero(sources[0]) or is_zero(sources[1])):
            return sources[is_zero(sources[0])]  # joined values are sums in which all pieces but one are 0
        return Op(op.code, op.dtype, tuple(sources), op.arg)
    if op.code is OpCode.PAD:
        _, inside = move(op, coords)
        return zero_unless(inside, sources[0]) if inside is not False else const(0, op.dtype)
    if op.code is OpCode.GATHER:
        index, value = sources
        place, inside = _place(op, index)
        if isinstance(seen := _seen_place(point, place), Op) and seen is not place:
            value = put_in_all([value], {seen: place})[0]
        if not is_loaded(value):
            value = zero_unless(inside, value)
        return _still_checked(value, index)
    return sources[-1]


def is_zero(value: Op) -> bool:
    """True for the constant 0."""
    return value.code is OpCode.CONST and value.arg == 0


def zero_unless(inside: Op | bool, value: Op) -> Op:
    """Returns `value` if it is `inside`, else 0."""
    if inside is True:
        return value
    return Op(OpCode.WHERE, value.dtype, (to_op_bool(inside), value, const(0, value.dtype)))


def element_or_zero(root: Op, coords: Coords, inside: Op | bool) -> Op:
    """Returns the value of `root` at `coords` if that is `inside`; else 0, and no memory is touched."""
    if inside is False:
        return const(0, root.dtype)
    value = element(root, coords, None, inside)
    return value if is_loaded(value) else zero_unless(inside, value)


def is_loaded(value: Op) -> bool:
    """True for a LOAD or its cast: it is 0 already if memory is not touched, unlike 1 / x or x + 1."""
    return value.code is OpCode.LOAD or (value.code is OpCode.CAST and is_loaded(value.src[0]))


def _still_checked(value: Op, index: Op) -> Op:
    """Returns a gathered value that depends on the index's CHECK, even if it is the same at any index."""
    checks = {op for op in toposort([index]) if op.code is OpCode.CHECK}
    if not checks or not checks.isdisjoint(toposort([value])):
        return value
    wide = index if index.dtype is dtypes.int64 else Op(OpCode.CAST, dtypes.int64, (index,))
    never = Op(OpCode.CMPLT, dtypes.bool_, (wide, const(0, dtypes.int64)))
    return Op(OpCode.WHERE, value.dtype, (never, const(0, value.dtype), value))


def _check(op: Op, index: Op, valid: Op | bool) -> Op:
    """Returns the index with its CHECK, which holds if `valid` is false; without a CHECK if it is certainly inside."""
    low, high = bounds(from_op(index))
    if low >= 0 and less(high, op.arg[1]) is True:
        return index
    if isinstance(valid, Op):
        index = Op(OpCode.WHERE, op.dtype, (valid, index, const(0, op.dtype)))
    return op.replace(src=(index,)) if valid is not False else const(0, op.dtype)


# ---- axes that become one loop ----
Groups = tuple[tuple[int, ...], ...]


def index_roots(values: Iterable[Op]) -> list[Op]:
    """Returns the integer expressions that are read by other Ops than index arithmetic."""
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
    """Returns the factor of each range in an index; None if a range is inside another term."""
    terms, _ = affine(root)
    found: dict[Op, Dim] = dict.fromkeys(ranges, 0)
    for atom, number in terms.items():
        factors = factors_of(atom)
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


def steps_by_one(index: Op, place: Op) -> bool:
    """True if an index grows by one with a RANGE."""
    terms, _ = affine(index)
    return terms.get(place) == 1 and all(atom is place or place not in toposort([atom]) for atom in terms)


def merge_axes(
    domain: Shape, values: Sequence[Op], apart: frozenset[int] = frozenset()
) -> tuple[Groups, list[list[Dim] | None]]:
    """Groups adjacent axes of `domain` that can run as one loop.

    Axes a and a + 1 merge if one step along a moves every index as far as all of a + 1 does.

    Args:
      values: the expressions (values and store positions) at `placeholders(domain)`
      apart:  axes that only merge among themselves (reduced ones)

    Returns: groups of axes in order (without axes of length 1), and for every index expression its factor for
             each group, or None if it has none.
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
    """Returns the number of iterations of each group."""
    return [numel(domain[axis] for axis in group) for group in groups]
