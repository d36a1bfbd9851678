"""Nests while they grow: the values that each stores, its Ops with their coordinates, and the nests that it needs.

Each nest has a level, the length of the longest chain of nests that it needs. It needs none of its own level or above, so
most questions about dependence need no search. A search that meets more than SEARCHED_NESTS_MAX nests is given up with the
safe answer, and the nest is not joined. Everything else looks at one nest, or at the expression of one value, whose
length is limited; so fusing a graph takes time linear in its Ops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import lru_cache

from picograd.ir.op import Dim, Op, Shape, greatest_numel, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SOURCES, OpCode
from picograd.ir.stages import NestKind, WithRows
from picograd.ir.symbolic import Coords, affine, flatten, is_length, move, placeholders, with_values
from picograd.record import Record, Struct, field

# ---- a nest and the Ops in it ----
KINDS = {
    OpCode.REDUCE: NestKind.REDUCE, OpCode.MATMUL: NestKind.MATMUL, OpCode.CONV: NestKind.CONV,
    OpCode.SCATTER: NestKind.SCATTER, OpCode.SCAN: NestKind.SCAN, OpCode.SORT: NestKind.SORT,
    OpCode.UPDATE: NestKind.UPDATE, OpCode.CUSTOM: NestKind.HOST, OpCode.ATTENTION: NestKind.ATTENTION,
    OpCode.ATTENTION_GRAD: NestKind.ATTENTION, OpCode.KERNEL: NestKind.HOST,
}  # fmt: skip
Coordinates = tuple[tuple[int, Dim], ...]  # (axis of the domain, its coordinate as a function of an Op's own), by axis


class Draft(WithRows, Struct, eq=False):
    """A nest while it grows.

    number:   order in which nests were begun
    reduced:  axes of `domain` that are reduced
    anchors:  the reductions, or the one product, scatter, scan or sort
    stored:   values it writes to memory
    members:  Ops attached to it
    num_ops:  number of Ops that it computes, attached or not; an Op that is computed twice may count twice
    needs:    nests whose memory it reads; they must run before it
    readers:  nests that need it; emptied when all nests are finished
    level:    1 + the largest level of the nests it needs; 0 if it needs none
    """

    kind: NestKind
    number: int
    domain: Shape
    reduced: tuple[int, ...]
    anchors: list[Op] = field(default_factory=list)
    stored: list[Op] = field(default_factory=list)
    members: list[Op] = field(default_factory=list)
    num_ops: int = 0
    needs: dict[Draft, None] = field(default_factory=dict)
    readers: dict[Draft, None] = field(default_factory=dict)
    level: int = 0


class Attached(Record):
    """An Op's nest, and for each of its elements the element of the domain that computes it."""

    nest: Draft
    where: Coordinates


class Fused(Record):
    """The nests in order, and for each stored value its nest."""

    nests: tuple[Draft, ...]
    home: dict[Op, Draft]


def in_memory(op: Op) -> bool:
    """True for values that need no nest: buffers and parameters."""
    return op.code in (OpCode.BUFFER, OpCode.PARAM)


def is_block(op: Op) -> bool:
    """True for a block of rows of a value in memory, such as x[k : k + 1]."""
    if op.code is not OpCode.SHRINK or not in_memory(op.src[0]):
        return False
    return all(start == 0 and end == length for (start, end), length in zip(op.arg[1:], op.src[0].shape[1:]))


READ_IN_PLACE = {OpCode.CUSTOM: slice(None), OpCode.ATTENTION: slice(1, 4), OpCode.ATTENTION_GRAD: slice(0, 4)}


def sources_in_memory(op: Op) -> list[Op]:
    """Returns the values that an Op needs in memory: of sources that it reads in place, the value below their movement.

    A CUSTOM's sources are moved by the host. An attention reads keys and values many times, so a view whose addresses need
    divisions is stored. A convolution with gaps in x would compute the elements of a moved x again for each tap.
    """
    if op.code is OpCode.KERNEL:  # reads contiguous arrays; numbers are arguments
        return [s.src[0] if _is_whole(s) else s for s in op.src if s.shape or not is_length(s)]
    found: list[Op] = []
    read = op.src[READ_IN_PLACE[op.code]] if op.code in READ_IN_PLACE else ()
    if op.code is OpCode.CONV and max(op.arg.input_dilation) > 1:
        read = op.src[:1]
    for source in read:
        base = source
        while base.code in MOVEMENT and base.code is not OpCode.PAD:
            base = base.src[0]
        base = base if op.code is OpCode.CUSTOM or _is_strided(source, base) else source
        if base.code not in SOURCES or in_memory(base):
            found.append(base)
    return found


def _is_whole(view: Op) -> bool:
    return view.code is OpCode.RESHAPE and in_memory(view.src[0])


@lru_cache(maxsize=256)
def _is_strided(view: Op, base: Op) -> bool:
    """True if a view of `base` is strided: offset = sum of stride * coordinate. A stride may be a symbolic length."""
    coords: Coords = placeholders(view.shape)
    own = set(coords)
    while view is not base:
        coords, _ = move(view, coords)
        view = view.src[0]
    return _is_sum_of_multiples(flatten(coords, base.shape), own)


def _is_sum_of_multiples(place: Dim, own: set[Dim]) -> bool:
    for atom in affine(place)[0]:
        of_coordinates = own.intersection(toposort([atom]))
        if atom.code is OpCode.MUL and len(of_coordinates) == 1:
            if not all(_is_sum_of_multiples(factor, own) for factor in atom.src):
                return False
        elif of_coordinates and atom not in own:
            return False
    return True


# ---- coordinates ----
def meet(places: set[Coordinates]) -> Coordinates | None:
    """Returns the coordinates that all sources agree on, each knowing some axes; None if they contradict each other."""
    joined: dict[int, Dim] = {}
    for place in places:
        for axis, dim in place:
            if joined.setdefault(axis, dim) is not dim and joined[axis] != dim:
                return None
    return tuple(sorted(joined.items()))


def moved(op: Op, where: Coordinates) -> Coordinates:
    """Returns the coordinates of a movement Op whose source has coordinates `where`."""
    source = op.src[0]
    coordinates, _ = move(op, placeholders(op.shape))
    values = {old: new for old, new in zip(placeholders(source.shape), coordinates) if isinstance(old, Op)}
    return tuple((axis, with_values(dim, values)) for axis, dim in where)


# ---- values of every element, values of every row ----
def fits(op: Op, nest: Draft, where: Coordinates) -> bool:
    """True when `op` is a value of every element of the nest's domain, or of every row."""
    return is_element(op, nest, where) or is_row(op, nest, where)


def is_element(op: Op, nest: Draft, where: Coordinates) -> bool:
    """True when `op` has a single value for each element of the domain, in the same order."""
    if len(where) == len(nest.domain):
        return _same_position(where, nest.domain, tuple(range(len(nest.domain))), op.shape)
    return op.shape == nest.domain and all(dim == placeholders(op.shape)[axis] for axis, dim in where)


def is_row(op: Op, nest: Draft, where: Coordinates) -> bool:
    """True when `op` has a single value for each row of a reduce nest, in the same order."""
    if nest.kind is not NestKind.REDUCE or tuple(axis for axis, _ in where) != nest.row_axes:
        return False
    return _same_position(where, nest.row_shape, nest.row_axes, op.shape)


@lru_cache(maxsize=4096)  # the layers of a network ask the same questions
def _same_position(where: Coordinates, extents: Shape, axes: tuple[int, ...], shape: Shape) -> bool:
    """True when walking `shape` in order walks `extents` in order."""
    if tuple(axis for axis, _ in where) != axes:
        return False
    there = flatten([dim for _, dim in where], extents)
    here = flatten(placeholders(shape), shape)
    return greatest_numel(extents) == greatest_numel(shape) and (there is here or there == here)


# ---- which nest runs before which ----
SEARCHED_NESTS_MAX = 256  # nests that one search may visit


def depends(needs: Iterable[Draft], nest: Draft) -> bool:
    """True if one of `needs` is `nest` or needs it, or if the search was given up."""
    seen: set[Draft] = set()
    stack = list(needs)
    while stack:
        here = stack.pop()
        if here is nest:
            return True
        if here.level <= nest.level or here in seen:
            continue
        seen.add(here)
        if len(seen) > SEARCHED_NESTS_MAX:
            return True
        stack.extend(here.needs)
    return False


def can_require(nest: Draft, needs: Collection[Draft]) -> bool:
    """True if `nest` can run after `needs`, too: none of them depends on it, and the new levels are quickly found."""
    return not depends(needs, nest) and _raised([(nest, _above(needs))]) is not None


def require(nest: Draft, needs: Collection[Draft]) -> None:
    """Makes `nest`, and so all that need it, run after the nests in `needs`; `can_require` must be true."""
    _raise([(nest, _above(needs))])
    _connect(nest, needs)


def can_replace(old: Draft, new: Draft) -> bool:
    """True if `new` can take every place of `old`: neither depends on the other."""
    if depends([old], new) or depends([new], old):
        return False
    return _raised(_levels_without(old, new)) is not None


def replace(old: Draft, new: Draft) -> None:
    """Puts `new` in every place of `old`; `can_replace` must be true."""
    _raise(_levels_without(old, new))
    needs, readers = list(old.needs), list(old.readers)
    for need in needs:
        del need.readers[old]
    for reader in readers:
        del reader.needs[old]
        _connect(reader, [new])
    _connect(new, needs)


def _levels_without(old: Draft, new: Draft) -> list[tuple[Draft, int]]:
    level = max(old.level, new.level)
    return [(new, level), *((reader, level + 1) for reader in old.readers)]


def _above(needs: Iterable[Draft]) -> int:
    return max((need.level + 1 for need in needs), default=0)


def _connect(nest: Draft, needs: Iterable[Draft]) -> None:
    for need in needs:
        nest.needs[need] = need.readers[nest] = None


def _raise(least: list[tuple[Draft, int]]) -> None:
    levels = _raised(least)
    assert levels is not None, "fuse: more nests have to be raised than were allowed to be"
    for nest, level in levels.items():
        nest.level = level


def _raised(least: list[tuple[Draft, int]]) -> dict[Draft, int] | None:
    """Returns the levels that change if these nests get at least these levels; None if the search was given up."""
    levels: dict[Draft, int] = {}
    stack = list(least)
    steps = 0
    while stack:
        nest, level = stack.pop()
        if level <= levels.get(nest, nest.level):
            continue
        levels[nest] = level
        steps += len(nest.readers)
        if steps > SEARCHED_NESTS_MAX:
            return None
        stack.extend((reader, level + 1) for reader in nest.readers)
    return levels


def _position(nest: Draft) -> float:
    """Returns a nest's place in the order: its level; for a sum to one number that needs no nest just before its reader."""
    waits = nest.needs or nest.kind is not NestKind.REDUCE or nest.row_shape != ()
    return nest.level if waits else min((reader.level for reader in nest.readers), default=1) - 0.5


def _wait_alike(nest: Draft, needs: Collection[Draft]) -> bool:
    """False for two sums to one number of which only one needs other nests: the number of targets, and their losses' sum.

    The gradient of a loss, which is divided by that number, is computed where the loss is.
    """
    return nest.kind is not NestKind.REDUCE or nest.row_shape != () or bool(nest.needs) == bool(needs)


# ---- the nests made so far ----
EXPRESSION_OPS_MAX = 256  # a longer expression is stored in between
NEST_OPS_MAX = 512  # a longer nest is continued in another, so that kernels stay small
NEST_STORED_MAX = 32  # values that a nest stores
CANDIDATES_MAX = 16  # nests that are considered to join one
ACROSS = frozenset({OpCode.GATHER, OpCode.PERMUTE, OpCode.FLIP})  # a product's tile does not read memory through these

Leaves = dict[Op, None]  # an ordered set, so that every process decides alike
Rows = tuple[Shape, tuple[int, ...], Op]  # domain, reduced axes, and memory that is read


class Nests:
    """The part of the graph visited so far.

    drafts:   the nests, in the order in which they were begun
    home:     for each stored value the nest that stores it
    attached: for each attached Op the nest it is attached to, and its place there
    """

    def __init__(self) -> None:
        self.drafts: dict[Draft, None] = {}
        self.home: dict[Op, Draft] = {}
        self.attached: dict[Op, Attached] = {}
        self._num_made = 0
        self._bound: dict[Op, int] = {}  # an Op bound to a nest -> its number of bound sources; an anchor has one more
        self._readers: dict[Op, list[Op]] = {}  # an Op bound to a nest -> the attached Ops that read it
        self._num_ops: dict[Op, int] = {}  # at least the length of an expression; an Op used twice may count twice
        self._by_rows: dict[Rows, list[Draft]] = {}
        self._merged_into: dict[Draft, Draft] = {}

    def new(self, kind: NestKind, domain: Shape, reduced: tuple[int, ...]) -> Draft:
        """Returns an empty nest."""
        self._num_made += 1
        nest = Draft(kind, self._num_made, domain, reduced)
        self.drafts[nest] = None
        return nest

    def add_anchor(self, nest: Draft, op: Op) -> None:
        """Makes `op` one of the reductions of `nest`, or its product, scatter, scan or sort."""
        free = [s for s in op.src if not self.is_bound(s)]
        nest.anchors.append(op)
        require(nest, self.needs_of(free))
        axes = nest.row_axes if nest.kind is NestKind.REDUCE else tuple(range(len(nest.domain)))
        self.attach(op, nest, tuple(zip(axes, placeholders(op.shape))))
        if nest.kind is NestKind.REDUCE:
            for leaf in self.leaves(free):
                alike = self._by_rows.setdefault((nest.domain, nest.reduced, leaf), [])
                if not alike or alike[-1] is not nest:
                    alike.append(nest)

    def attach(self, op: Op, nest: Draft, where: Coordinates) -> None:
        """Lets `nest` compute `op` too; its sources are free, or bound to that nest."""
        self.attached[op] = Attached(nest, where)
        nest.members.append(op)
        nest.num_ops += self.added_ops(op)
        sources = [s for s in dict.fromkeys(op.src) if s in self._bound]
        self._bound[op] = len(sources) + (op.code in KINDS)
        for s in sources:
            self._readers.setdefault(s, []).append(op)

    def put(self, op: Op, nest: Draft) -> None:
        """Lets `nest` store `op`, which is attached to it or free."""
        if op not in self._bound:
            nest.num_ops += self._num_ops[op]
        nest.stored.append(op)
        self.home[op] = nest
        freed = [op] if self._bound.pop(op, None) is not None else []
        while freed:
            for reader in self._readers.pop(freed.pop(), ()):
                left = self._bound.get(reader)
                if left is not None:
                    self._bound[reader] = left - 1
                    if left == 1:
                        del self._bound[reader]
                        freed.append(reader)

    # ---- attached, free, stored ----
    def is_bound(self, op: Op) -> bool:
        """True when `op` is attached to a nest and can neither be read from memory nor computed from values there."""
        return op in self._bound

    def is_storable(self, op: Op) -> bool:
        """True when the nest `op` is attached to can store it."""
        at = self.attached[op]
        return fits(op, at.nest, at.where)

    # ---- how much there is to compute ----
    def count(self, op: Op) -> int:
        """Returns the number of Ops that compute `op` from memory and the anchors of nests; `num_ops` then knows it."""
        num_ops = 0
        if op.code not in SOURCES:
            num_ops = 1 if op.code in KINDS else 1 + sum(map(self._length, dict.fromkeys(op.src)))
        if num_ops > EXPRESSION_OPS_MAX:  # some may have been counted twice
            num_ops = len(self._expression(op))
        self._num_ops[op] = num_ops
        return num_ops

    def added_ops(self, op: Op) -> int:
        """Returns the number of Ops that a nest has to compute for `op`, without those of bound sources."""
        return 1 + sum([self._length(s) for s in dict.fromkeys(op.src) if s not in self._bound])

    def num_ops(self, op: Op) -> int:
        """Returns the number that `count` found."""
        return self._num_ops[op]

    def _length(self, op: Op) -> int:
        return 0 if op in self.home else self._num_ops[op]

    def _expression(self, op: Op) -> set[Op]:
        """Returns the Ops between `op` and memory or anchors; `op` itself in any case."""
        stack, seen = [op], {op}
        while stack:
            for s in stack.pop().src:
                if s not in seen and s not in self.home and s.code not in KINDS:
                    seen.add(s)
                    stack.append(s)
        return seen

    def has_room(self, nest: Draft, num_ops: int) -> bool:
        """True when `nest` may compute that many Ops more."""
        return nest.num_ops + num_ops <= NEST_OPS_MAX and len(nest.stored) < NEST_STORED_MAX

    # ---- values that are read, and nests that must run before ----
    def leaves(self, ops: Iterable[Op], stored: Collection[Op] = (), blocks: bool = False) -> Leaves:
        """Returns the memory that `ops` read; they are free, or would be if `stored` were in memory.

        Args:
          blocks:  a block of rows counts as its SHRINK, not as all of the memory below it
        """
        found: Leaves = {}
        stack, seen = list(ops), set()
        while stack:
            op = stack.pop()
            if op in seen:
                continue
            seen.add(op)
            if op in self.home or in_memory(op) or op in stored or (blocks and is_block(op)):
                found[op] = None
            else:
                stack.extend(op.src)
        return found

    def leaves_besides_own(self, op: Op, nest: Draft) -> Leaves | None:
        """Returns the memory that `op` reads if `nest` computes it from its own values; None if it also reads those."""
        rest: list[Op] = []
        stack, seen = [op], set()
        while stack:
            here = stack.pop()
            if here in seen or (self.home.get(here) is nest and here.code is not OpCode.CONTIGUOUS):
                continue
            seen.add(here)
            if here is op or (here.code in ELEMENTWISE and here not in self.home):
                stack.extend(here.src)
            else:
                rest.append(here)
        leaves = self.leaves(rest)
        return None if any(self.home.get(leaf) is nest for leaf in leaves) else leaves

    def needs_of(self, ops: Iterable[Op]) -> dict[Draft, None]:
        """Returns the nests that store what free `ops` read."""
        return {self.home[leaf]: None for leaf in self.leaves(ops) if leaf in self.home}

    # ---- nests to join ----
    def nest_for(self, op: Op, kinds: Collection[NestKind]) -> Draft | None:
        """Returns a nest of elements that computes the free value `op` from values it stores already, or None.

        It then runs after the other nests that `op` reads. If several elementwise nests store the sources of `op`, such as
        the two averages of Adam, they become one.
        """
        if any(step.code in ACROSS for step in self._expression(op)):
            kinds = {NestKind.ELEMENTWISE}
        alike = [nest for nest in self.needs_of([op]) if nest.kind in kinds and nest.domain == op.shape]
        near = {nest.number: nest for nest in alike if self.has_room(nest, self._num_ops[op])}
        nests = [nest for _, nest in sorted(near.items(), reverse=True)[:CANDIDATES_MAX]]
        for i, nest in enumerate(nests):
            rest = self.leaves_besides_own(op, nest)
            if rest is None or not can_require(nest, self.needs_of(rest)):
                continue
            for other in nests[i + 1 :]:
                others = self.leaves_besides_own(op, other)
                if others is not None and not depends([need for need in self.needs_of(others) if need is not nest], other):
                    self.merge(nest, other)
            rest = self.leaves_besides_own(op, nest) or {}
            needs = self.needs_of(rest)
            if can_require(nest, needs):
                require(nest, needs)
                return nest
        return None

    def reduce_nest_for(self, source: Op, reduced: tuple[int, ...]) -> Draft | None:
        """Returns a reduce nest over the rows of the free value `source` that reads some of the same memory, or None.

        It now runs after the other nests that `source` reads.
        """
        needs, alike = self.needs_of([source]), dict[int, Draft]()
        for leaf in self.leaves([source]):
            for nest in self._by_rows.get((source.shape, reduced, leaf), [])[-CANDIDATES_MAX:]:
                while nest in self._merged_into:
                    nest = self._merged_into[nest]
                if _wait_alike(nest, needs) and self.has_room(nest, 1 + self._length(source)):
                    alike[nest.number] = nest
        for _, nest in sorted(alike.items())[:CANDIDATES_MAX]:
            if can_require(nest, needs):
                require(nest, needs)
                return nest
        return None

    def merge(self, a: Draft, b: Draft) -> bool:
        """Joins two nests of elements, or two that reduce the same rows, if neither needs the other."""
        alike = a.kind is b.kind and a.kind in (NestKind.ELEMENTWISE, NestKind.REDUCE)
        alike = alike and a.domain == b.domain and a.reduced == b.reduced and _wait_alike(a, b.needs)
        small = a.num_ops + b.num_ops <= NEST_OPS_MAX and len(a.stored) + len(b.stored) <= NEST_STORED_MAX
        if not alike or not small or not can_replace(b, a):
            return False
        replace(b, a)
        for op in b.members:
            self.attached[op] = Attached(a, self.attached[op].where)
        for op in b.stored:
            self.home[op] = a
        a.anchors += b.anchors
        a.stored += b.stored
        a.members += b.members
        a.num_ops += b.num_ops
        del self.drafts[b]
        self._merged_into[b] = a
        return True

    def finished(self) -> tuple[Draft, ...]:
        """Returns the nests that store something, each after those it needs; the readers of nests are forgotten."""
        found = tuple(sorted([nest for nest in self.drafts if nest.stored], key=_position))
        for nest in self.drafts:
            nest.readers.clear()  # a reference cycle would keep graphs alive until the garbage collector runs
        return found
