"""Cuts a graph into loop nests: what is computed together, and what has to be stored in between.

In:    a simplified graph without identities (LEAF, DETACH), and what to store of it
Out:   `Fused`: nests in an order that works, each with the values it stores

Ops are visited sources first. Each is one of
  free      a function of stored values at any point: it costs nothing until it is read
  attached  a function of the values that one nest computes (a reduction, a product), at matching coordinates:
            the nest can compute it, too
  stored    a nest writes it to memory; from then on it is free
An Op that reads two nests, or a nest at coordinates that do not match, makes the earlier value stored ("cut").

A value is stored if that moves fewer bytes than computing it again at each reader. Bytes are counted, not elements: each
computation of a narrow copy reads all bytes of the wide value. Random bits are the exception, since each element takes a
hundred instructions: a mask of dropout, which the forward step and its gradient read, is stored where the paths to its
readers part (`drawn_for_several`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import or_

from picograd.device import Target
from picograd.errors import UnsupportedOp
from picograd.ir.bodies import WITH_BODY
from picograd.ir.op import CODE, Op, greatest, toposort
from picograd.ir.opcode import ELEMENTWISE, MOVEMENT, SOURCES, TRANSCENDENTAL, OpCode
from picograd.ir.origin import line_of
from picograd.ir.stages import NestKind
from picograd.ir.symbolic import ceildiv
from picograd.schedule.loops import memory_sources
from picograd.schedule.nest_draft import (
    EXPRESSION_OPS_MAX,
    KINDS,
    Draft,
    Fused,
    Nests,
    can_require,
    depends,
    fits,
    in_memory,
    is_element,
    is_row,
    meet,
    moved,
    require,
    sources_in_memory,
)
from picograd.schedule.recompute import OPS_PER_BYTE, compute_again

# ---- what it costs to compute a value again ----
BYTES_READ_RATIO_MAX = 2  # times its own bytes: a value is computed again at each reader only if that reads no more
TILE_ROWS = 128  # rows and columns of a GPU's product that a block computes
LAUNCH_BYTES = 1 << 22  # bytes that a GPU could move in the time it takes to start a kernel


def bytes_read(nests: Nests, value: Op, stored: Collection[Op] = ()) -> int:
    """Returns the bytes of the large values that a value is computed from, as if `stored` were in memory as well.

    A block of rows x[k : k + 1] counts as that block, not as all of x, so a row costs as much in a batch as alone.
    """
    leaves = nests.leaves([value], stored, blocks=True)
    return sum(leaf.nbytes for leaf in leaves if 2 * leaf.numel > value.numel)


def reads_few(nests: Nests, value: Op) -> bool:
    """True for a value that is computed from few bytes; a chain of sums through a network would read more and more."""
    return bytes_read(nests, value) <= BYTES_READ_RATIO_MAX * value.nbytes


def costly_operands(nests: Nests, product: Op, target: Target | None) -> list[Op]:
    """Returns the operands that a product's tiles on a GPU would recompute at a higher cost than storing and reading them.

    Each column of tiles reads the whole left operand, each row of tiles the right one. Only stored values can be copied in
    the background; computed ones pass through registers, which costs as much as reading them once more. A CPU computes
    operands while it packs them.
    """
    if product.code is not OpCode.MATMUL or target is None or not target.is_gpu:
        return []
    *_, rows, columns = product.shape
    found = []
    for operand, across in zip(product.src, (columns, rows)):
        value = operand
        while value.code in MOVEMENT and value.code is not OpCode.PAD:
            value = value.src[0]
        readers = ceildiv(greatest(across), TILE_ROWS) * max(1, operand.numel // max(1, value.numel))
        is_computed = value.code in ELEMENTWISE or value.code is OpCode.GATHER
        is_costly = is_computed and readers > 1 and value not in nests.home
        if is_costly and _cost_to_recompute(nests, value) * readers > _cost_to_store(nests, value, readers):
            found.append(value)
    return found


def _cost_to_recompute(nests: Nests, value: Op) -> int:
    """Returns the cost, in bytes, of computing a value in a tile."""
    return bytes_read(nests, value) + value.nbytes + nests.num_ops(value) * value.numel // OPS_PER_BYTE


def _cost_to_store(nests: Nests, value: Op, readers: int) -> int:
    """Returns the cost, in bytes, of storing a value, by the kernel that computes it or one of its own, and reading it."""
    is_at_hand = nests.is_bound(value) and nests.is_storable(value)
    return (0 if is_at_hand else _cost_to_recompute(nests, value) + LAUNCH_BYTES) + (1 + readers) * value.nbytes


# ---- random numbers that several readers draw ----
# A mask of dropout is read by the forward step and by its gradient; the choice of hidden words by an embedding, by its
# gradient and by the loss. Drawing it again at each of them would be most of their work.
#
#     bits = THREEFRY(IOTA, key);  mask = 0.1 <= bits * 2**-64;  y = WHERE(mask, x, 0);  dx = WHERE(mask, dy, 0)
#
# A value computed from random bits, constants and scalars alone is drawn. It is stored where the paths to its readers part
# and lead to different sums, products or results; here that is the mask, one byte an element. A value that is made of
# draws and other values is stored, too, if each element is read many times: as an index, or repeated along an axis. A GPU
# computes while it waits for memory: there everything but keys is drawn again at each reader.
WAYS_MAX, NUM_BITS = 8, 256  # paths from one Op, and results, that are distinguished
_OF_DRAWS = ELEMENTWISE | MOVEMENT | {OpCode.GATHER}  # computed again together with the values that they read


def drawn_for_several(roots: Sequence[Op], order: Sequence[Op], is_gpu: bool) -> set[Op]:
    """Returns the values that are drawn once and stored: on a GPU keys alone."""
    drawn = set() if is_gpu else _drawn(order)
    if not drawn:
        return _keys(order) if is_gpu else set()
    found, apart, spread = _keys(order), _read_apart(roots, order), _spread(order)
    draws: set[Op] = set()  # Ops that are computed from bits that are not stored
    for op in order:
        if _is_draw(op) or (op.code in _OF_DRAWS and any(s in draws for s in op.src)):
            (found if op in apart and (op in drawn or op in spread) else draws).add(op)
    return found


def _keys(order: Sequence[Op]) -> set[Op]:
    """Returns the keys of draws if there are several: draws that differ only in keys are then one kernel."""
    found: set[Op] = set()
    for op in order:
        if _is_draw(op):
            key = op.src[1]
            while key.code in MOVEMENT:
                key = key.src[0]
            found |= {key} if key.code is OpCode.THREEFRY and key.shape == () else set()
    return found if len(found) > 1 else set()


def _is_draw(op: Op) -> bool:
    return op.code is OpCode.THREEFRY and op.shape != ()


def _drawn(order: Sequence[Op]) -> set[Op]:
    """Returns the values computed from nothing but random bits, scalars and constants.

    A value that is repeated along an axis is left out: reading it is cheaper there.
    """
    found: set[Op] = set()
    known: set[Op] = set()
    for op in order:
        if _is_draw(op):
            found.add(op)
        elif op.shape == () or (op.code in SOURCES and not in_memory(op)):
            known.add(op)
        elif op.code in ELEMENTWISE or op.code in MOVEMENT:
            own = [s for s in op.src if s not in known]
            if not own:
                known.add(op)
            elif op.code is not OpCode.EXPAND and all(s in found for s in own):
                found.add(op)
    return found


def _read_apart(roots: Sequence[Op], order: Sequence[Op]) -> set[Op]:
    """Returns elementwise values from which several paths lead to different results.

    Results are the roots, and values that are not elementwise: sums, products. With more than NUM_BITS some share a bit.
    """
    found: set[Op] = set()
    ways: dict[Op, set[int]] = {}  # Op -> for each path from it the set of results that it leads to, as bits
    is_root = set(roots)
    for number, op in enumerate(reversed(order)):
        own = ways.pop(op, set())
        bit = 1 << number % NUM_BITS
        if op.code in MOVEMENT and op not in is_root:
            passed = own
        elif op.code in _OF_DRAWS:
            found |= {op} if len(own) > 1 and op.code in ELEMENTWISE else set()
            passed = {reduce(or_, own, bit if op in is_root else 0)}
        else:
            passed = {bit}
        for s in op.src:
            if len(known := ways.setdefault(s, set())) < WAYS_MAX:
                known |= passed
    return found


def _spread(order: Sequence[Op]) -> set[Op]:
    """Returns the sources of indices and repeated values: each of their elements is read many times."""
    found: set[Op] = set()
    for op in reversed(order):
        if op.code in (OpCode.GATHER, OpCode.SCATTER):
            found.add(op.src[1])
        elif op.code is OpCode.EXPAND or (op in found and (op.code in ELEMENTWISE or op.code in MOVEMENT)):
            found.update(op.src)
    return found


# ---- fusion ----
CHAIN_OPS_MAX = 96  # a longer chain is stored in between, so that kernels stay small
POINTS_MAX = 16  # reads of stored values for one element of a value that each reader needs at several places
REPEATED_POINTS_MAX = 32  # reads for one element of values that it reads at other points as well
# The nests of these compute nothing from the values they store.
STORES_ITSELF = frozenset({OpCode.SCATTER, OpCode.SCAN, OpCode.SORT, OpCode.UPDATE, OpCode.CUSTOM})
READ_THROUGH = MOVEMENT | {OpCode.CHECK, OpCode.GATHER}
STORED_PIECES_MIN = 8  # pieces of a joined value that is stored if several Ops read it: each would search for the piece
ALONE_IN_MEMORY = STORES_ITSELF | {OpCode.CONTIGUOUS, OpCode.OUTPUT}
WITH_ELEMENTS = (NestKind.ELEMENTWISE, NestKind.MATMUL, NestKind.CONV)  # may compute more from each element they store
ReadPoint = tuple[Op | OpCode, int]  # a stored value, or CONST for any constant; a number for the movements that lead there


def unshaped(roots: Sequence[Op]) -> list[Op]:
    """Returns roots without a RESHAPE of a value of ALONE_IN_MEMORY: its memory is that of the value.

    Two roots stay two values, each with memory of its own: the second keeps its RESHAPE.
    """
    found = list(roots)
    for number, root in enumerate(roots):
        if root.code is OpCode.RESHAPE and root.src[0].code in ALONE_IN_MEMORY and root.src[0] not in found:
            found[number] = root.src[0]
    return found


def fuse(roots: Sequence[Op], target: Target | None = None) -> Fused:
    """Cuts the graph of `roots` into nests that store every root that is not in memory yet.

    Args:
      target:  whose kernels they become; None: a CPU's

    After:  each stored value belongs to one nest; a nest reads only memory and what it computes itself; the order
            of the nests respects what they read.
    """
    return _Fuser(roots, target).run()


class _Fuser:
    """One visit of the graph, sources first; `nests` holds what is decided."""

    def __init__(self, roots: Sequence[Op], target: Target | None):
        self.roots = list(roots)
        self.target = target
        self.order = toposort(roots)
        self.nests = Nests()
        self.depth: dict[Op, int] = {}
        self.loops: dict[Op, Draft] = {}  # the nest of each CALL and LOOP
        self.cuts: list[Op] = []  # values that are stored because the path to a reader was cut
        self.wanted = set(roots)  # values that have to be in memory
        self.points: dict[Op, frozenset[ReadPoint]] = {}  # the places of stored values that are read for one element
        self.num_moved, self.num_read = _readers(self.order)
        self.num_users = _users(self.order)
        draws = OpCode.THREEFRY in map(CODE, self.order)
        self.drawn = drawn_for_several(roots, self.order, target is not None and target.is_gpu) if draws else set()

    def run(self) -> Fused:
        """Visits every Op, stores the roots, and returns the nests in order."""
        # Stored when they are visited: a nest that computes one of them itself would later read it from memory instead.
        self.wanted.update(source for op in self.order if op.code in WITH_BODY for source in memory_sources(op))
        self.wanted.update(source for op in self.order for source in sources_in_memory(op))
        for op in self.order:
            num_ops = self.nests.count(op)
            self.visit(op)
            # After the visit, which may have stored its sources: chains begin at stored values and at anchors.
            going_on = [self.depth[s] for s in op.src if s not in self.nests.home and s.code not in KINDS]
            self.depth[op] = 1 + max(going_on, default=0)
            self.points[op] = self.points_of(op)
            if op in self.wanted or self.is_long(op, num_ops) or self.is_read_around(op) or self.is_for_several(op):
                self.store(op)
                self.points[op] = frozenset(((op, 0),))
        if not self.wanted.issuperset(self.cuts):
            compute_again(self.nests, [op for op in self.cuts if op not in self.wanted], self.order)
        return Fused(self.nests.finished(), self.nests.home)

    def is_long(self, op: Op, num_ops: int) -> bool:
        """True if the expression of `op` should not become longer."""
        if op.code in ELEMENTWISE:
            return self.depth[op] >= CHAIN_OPS_MAX or num_ops >= EXPRESSION_OPS_MAX
        return self.depth[op] >= 2 * CHAIN_OPS_MAX and op.code in MOVEMENT  # a chain of nothing else

    def points_of(self, op: Op) -> frozenset[ReadPoint]:
        """Returns the places of stored values that are read for one element of `op`; only some if there are many."""
        if op.code is OpCode.CONST:
            return frozenset(((op.code, 0),))
        if not op.src or op in self.nests.home or in_memory(op) or self.nests.is_bound(op):
            return frozenset(((op, 0),))
        if op.code in MOVEMENT:
            moving, is_pad = (op.code, op.arg), op.code is OpCode.PAD  # a constant is the same everywhere, but for its edge
            return frozenset(
                [(value, hash((moving, by)) if value is not OpCode.CONST or is_pad else by)
                 for value, by in self.points[op.src[0]]]
            )  # fmt: skip
        points: frozenset[ReadPoint] = frozenset()
        for s in op.src:
            points = points | self.points[s] if len(points) <= 2 * REPEATED_POINTS_MAX else points
        return points

    def is_read_around(self, op: Op) -> bool:
        """True if one element of `op` needs many of a stored value, and readers of `op` may need many of its elements.

        A step of a simulation reads the neighbours of a cell. Ten steps in one nest would read all cells up to ten away,
        along every path that leads there.
        """
        if op.code not in ELEMENTWISE or self.nests.is_bound(op):
            return False
        points = self.points[op]
        num_places = self.num_moved.get(op, 0) + (op in self.num_read)
        if num_places > 1 and num_places * len(points) > POINTS_MAX:
            return True
        return len(points) > REPEATED_POINTS_MAX and len(points) - len({value for value, _ in points}) > REPEATED_POINTS_MAX

    def is_for_several(self, op: Op) -> bool:
        """True for draws and joined values that several readers would each compute again.

        On a CPU each reader of a joined value searches for the piece of each element: even one of two pieces is stored if
        it has three readers, as in a U-Net.
        """
        num_users, num_pieces = self.num_users.get(op, 0), _num_pieces(op)
        is_cpu = self.target is None or not self.target.is_gpu
        is_costly = (num_users > 1 and num_pieces >= STORED_PIECES_MIN) or (is_cpu and num_users > 2 and num_pieces > 1)
        return (op in self.drawn or is_costly) and not self.nests.is_bound(op)

    # ---- one Op ----
    def visit(self, op: Op) -> None:
        """Decides about one Op by its kind."""
        if op.code in SOURCES:
            return
        if op.code in KINDS:
            self.visit_anchor(op)
        elif op.code in MOVEMENT:
            self.visit_movement(op)
        elif op.code in ELEMENTWISE:
            self.visit_elementwise(op)
        elif op.code is OpCode.GATHER:
            for s in op.src:
                self.cut(s)
        elif op.code is OpCode.CONTIGUOUS:
            self.visit_contiguous(op)
        elif op.code in WITH_BODY:
            self.visit_loop(op)
        elif op.code is OpCode.OUTPUT:
            loop = self.loops.get(op.src[0])
            self.nests.put(op, self.nests.attached[op.src[0]].nest if loop is None else loop)
        else:
            fact = f"{op.code.name}: no kernel can be generated for it."
            raise UnsupportedOp(fact, "PICOGRAD_DEVICE=NUMPY runs every operation", line_of(op))

    def visit_contiguous(self, op: Op) -> None:
        """Stores a value: by the nest of rows that computes it for each element, if there is one."""
        source = op.src[0]
        if self.nests.is_bound(source):
            at = self.nests.attached[source]
            if at.nest.kind is NestKind.REDUCE and is_element(source, at.nest, at.where) and at.nest.domain == source.shape:
                self.nests.attach(op, at.nest, at.where)
                self.nests.put(op, at.nest)
                return
        self.cut(source)
        self.store(op)

    def visit_loop(self, op: Op) -> None:
        """Stores the values that a CALL or a LOOP reads; it stores its OUTPUTs itself."""
        sources = memory_sources(op)
        for s in sources:
            self.store(s)
        nest = self.loops[op] = self.nests.new(NestKind.LOOP, (), ())
        nest.anchors.append(op)
        require(nest, self.nests.needs_of(sources))

    def visit_anchor(self, op: Op) -> None:
        """Lets a reduction join a nest with its rows; begins a nest for any other, and for a product, a sort, ..."""
        if op.code is OpCode.REDUCE and self.join_rows(op):
            return
        for s in (*sources_in_memory(op), *costly_operands(self.nests, op, self.target)):
            self.store(s)
        for s in op.src:
            self.cut(s)
        kind = KINDS[op.code]
        domain = op.src[0].shape if kind is NestKind.REDUCE else op.shape
        reduced = tuple(sorted(op.arg[1])) if kind is NestKind.REDUCE else ()
        nest = self.nests.new(kind, domain, reduced)
        self.nests.add_anchor(nest, op)
        if op.code in STORES_ITSELF:
            self.nests.put(op, nest)

    def visit_movement(self, op: Op) -> None:
        """Attaches a movement of an attached value, at the coordinates it moves to."""
        source = op.src[0]
        if not self.nests.is_bound(source):
            return
        at = self.nests.attached[source]
        if op.code is OpCode.PAD or not self.nests.has_room(at.nest, 1):
            self.cut(source)
            return
        self.nests.attach(op, at.nest, moved(op, at.where))

    def visit_elementwise(self, op: Op) -> None:
        """Attaches `op` where the coordinates of its sources match; cuts at sources that do not match."""
        while True:
            bound = [s for s in dict.fromkeys(op.src) if self.nests.is_bound(s)]
            if not bound:
                return
            nests = list(dict.fromkeys(self.nests.attached[s].nest for s in bound))
            if len(nests) > 1:
                if not self.nests.merge(nests[0], nests[1]):
                    self.cut(self.earlier(bound, nests))
                continue
            nest = nests[0]
            places = {self.nests.attached[s].where for s in bound}
            where = meet(places)
            free_needs = self.nests.needs_of([s for s in op.src if s not in bound])
            has_room = self.nests.has_room(nest, self.nests.added_ops(op))
            if where is None or not has_room or not fits(op, nest, where) or not can_require(nest, free_needs):
                self.cut(bound[0])
                continue
            require(nest, free_needs)
            self.nests.attach(op, nest, where)
            return

    def earlier(self, bound: list[Op], nests: list[Draft]) -> Op:
        """Returns the source to store if two nests cannot merge: one that the other needs, one of rows, or the earliest."""

        def rank(s: Op) -> tuple[bool, bool, int, int]:
            nest = self.nests.attached[s].nest
            needed = any(depends(other.needs, nest) for other in nests)
            needs_other = any(depends(nest.needs, other) for other in nests)
            return (needs_other and not needed, nest.kind is not NestKind.REDUCE, nest.level, nest.number)

        return min(bound, key=rank)

    def join_rows(self, op: Op) -> bool:
        """Adds a reduction to a nest with the same rows: one its source is attached to, or one that reads the same."""
        source, reduced = op.src[0], tuple(sorted(op.arg[1]))
        if self.nests.is_bound(source):
            at = self.nests.attached[source]
            joins = at.nest.reduced == reduced and is_element(source, at.nest, at.where)
            joins = joins and at.nest.domain == source.shape and at.nest.kind is NestKind.REDUCE
            if joins := joins and self.nests.has_room(at.nest, 1):
                self.nests.add_anchor(at.nest, op)
            return joins
        nest = self.nests.reduce_nest_for(source, reduced)
        if nest is not None:
            self.nests.add_anchor(nest, op)
        return nest is not None

    # ---- storing ----
    def cut(self, op: Op) -> None:
        """Cuts at `op`, which becomes free: stores it, or a smaller value from which it is cheap to compute again."""
        if not self.nests.is_bound(op):
            return
        at = self.nests.attached[op]
        rows = self.row_frontier(op, at.nest)
        if rows and sum(r.nbytes for r in rows) * 2 <= op.nbytes and reads_few(self.nests, op):
            for r in rows:
                self.nests.put(r, at.nest)
            return
        while not self.nests.is_storable(op):
            op = next(s for s in op.src if self.nests.is_bound(s))
        best = op
        # Where a product stores an activation, one more value is enough for all of its gradient: the product itself.
        or_equal = at.nest.kind is NestKind.MATMUL and bool(at.nest.stored)
        while True:
            bound = [s for s in dict.fromkeys(op.src) if self.nests.is_bound(s)]
            if len(bound) != 1 or op.code in KINDS or (op.code in TRANSCENDENTAL and not or_equal):
                break
            op = bound[0]
            is_smaller = op.nbytes < best.nbytes + or_equal and bytes_read(self.nests, best, (op,)) <= best.nbytes
            if self.nests.is_storable(op) and (is_smaller or self.is_costlier(op, best)):
                best = op
        self.nests.put(best, at.nest)
        self.cuts.append(best)

    def is_costlier(self, op: Op, best: Op) -> bool:
        """True if other readers of `op` would compute a costly function again, and `best` is cheap to compute from it."""
        num_readers = self.num_moved.get(op, 0) + self.num_read.get(op, 0)
        if op.code not in TRANSCENDENTAL or num_readers < 2 or op.nbytes > best.nbytes:
            return False
        between = toposort([best], stop={op, *self.nests.home})
        return not any(step.code in TRANSCENDENTAL for step in between if step is not op)

    def row_frontier(self, op: Op, nest: Draft) -> list[Op]:
        """Returns the values of rows from which `op` is computed; [] if it needs more than those."""
        found: dict[Op, None] = {}
        stack, seen = [op], set()
        while stack:
            here = stack.pop()
            if here in seen or not self.nests.is_bound(here):
                continue
            seen.add(here)
            if is_row(here, nest, self.nests.attached[here].where) and here.code not in MOVEMENT:
                found[here] = None
            elif here.code in KINDS:
                return []
            else:
                stack.extend(here.src)
        return list(found)

    def store(self, op: Op) -> None:
        """Makes sure `op` itself is in memory."""
        self.wanted.add(op)
        if in_memory(op) or op in self.nests.home:
            return
        if self.nests.is_bound(op) and self.nests.is_storable(op):
            self.nests.put(op, self.nests.attached[op].nest)
            return
        self.cut(op)
        if op not in self.nests.home:
            self.put_free(op)

    def put_free(self, op: Op) -> None:
        """Stores a free value: in a nest that computes it from values it stores already, or in a new one.

        On a GPU that may be a product's: a weight is stored with the averages of its gradient, which are not read again.
        """
        is_gpu = self.target is not None and self.target.is_gpu
        nest = self.nests.nest_for(op, WITH_ELEMENTS if is_gpu else WITH_ELEMENTS[:1])
        if nest is None:
            nest = self.nests.new(NestKind.ELEMENTWISE, op.shape, ())
            require(nest, self.nests.needs_of([op]))
        self.nests.put(op, nest)


def _readers(order: Sequence[Op]) -> tuple[dict[Op, int], dict[Op, int]]:
    """Returns how many movements read each Op, and how many other Ops do."""
    num_moved: dict[Op, int] = {}
    num_read: dict[Op, int] = {}
    for op in order:
        counts = num_moved if op.code in MOVEMENT else num_read
        for s in op.src:
            counts[s] = counts.get(s, 0) + 1
    return num_moved, num_read


def _users(order: Sequence[Op]) -> dict[Op, int]:
    """Returns how many Ops read an element of each Op, in place, moved, or by index."""
    found: dict[Op, int] = {}
    for op in reversed(order):
        num_users = found.get(op, 0) if op.code in READ_THROUGH else 1
        for s in op.src:
            found[s] = found.get(s, 0) + num_users
    return found


def _num_pieces(op: Op) -> int:
    """Returns the number of consecutive values in one; 1 for any other."""
    count = 1
    while op.code is OpCode.WHERE and op.src[0].code is op.src[1].code is OpCode.PAD:
        op, count = op.src[2], count + 1
    return count
