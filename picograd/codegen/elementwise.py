"""The loops of an elementwise nest, and of an update of a block: one pass over memory, any number of outputs.

Operands may be transposed: consecutive elements of the result are then far apart in the operand, each in a memory line
of its own. On both machines such an operand is read tile by tile, in the order of its memory.

On a CPU a vector of such an operand would need a cache line for each of its lanes, and at a distance that is a
power of two all of these map to a few sets of the cache and are evicted before their next element is read. So a tile
is copied to memory that stays in the first-level cache:

    y[i, j] = x[j, i]      for each 64 of i, for each 64 of j:
                               for j:  t[j, i] = x[j, i]     64 contiguous elements
                               for squares of as many i and j as a vector has lanes:  s[i, j] = t[j, i]     in registers
                               for i:  y[i, j] = s[i, j]     64 contiguous elements

On a GPU neighbouring threads would each read another memory line. So a block copies a tile to shared memory:

    y[i, j] = x[j, i] + b[j]     a block, of 32 i and 32 j:
                                     thread (i, j):   t[j, i] = x[j, i]           neighbours along i
                                     barrier
                                     thread (j, i):   y[i, j] = t[j, i] + b[j]    neighbours along j
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder, Context, read
from picograd.codegen.index import (
    Groups,
    coefficients,
    element_anywhere,
    element_within,
    elements_anywhere,
    elements_within,
    group_extents,
    merge_axes,
    put_in_all,
    spread,
)
from picograd.codegen.loops import access_lanes, along, each_element, rest_in_vectors, vector_lanes
from picograd.device import DECLARED_SHARED_BYTES, Target
from picograd.ir.op import Dim, Op, Shape, greatest, toposort
from picograd.ir.opcode import TRANSCENDENTAL, AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import (
    Coords,
    add,
    affine,
    both,
    ceildiv,
    flatten,
    floordiv,
    from_op,
    less,
    minimum,
    mod,
    mul,
    placeholder,
    placeholders,
    subtract,
    to_op,
    unflatten,
)


# ---- one pass over memory ----
def emit_elementwise(nest: Nest, context: Context) -> None:
    """Writes the loops of an elementwise nest: tile by tile if operands are transposed, else element by element."""
    params, target, domain = context.params, context.target, nest.domain
    build, roots = context.phase(0), [value for _, value in nest.outputs]

    def store(coords: Coords) -> None:
        for (slot, _), value in zip(nest.outputs, elements_within(roots, coords)):
            build.store(params[slot], flatten(coords, domain), value)

    values = [*elements_anywhere(roots), to_op(flatten(placeholders(domain), domain))]
    groups, factors = merge_axes(domain, values)
    extents = group_extents(groups, domain)
    if target.is_gpu:
        marks = placeholders(domain)
        along_last = {marks[axis] for axis in groups[-1]} if groups else set()
        lanes = access_lanes(values[:-1], [root.dtype for root in roots], along_last, target)
    else:
        lanes = _lanes(values, extents, target)
    if (lanes > 1 or target.is_gpu) and may_be_transposed(factors, extents):
        reads = TransposedReads(roots, groups, extents, domain)
        if target.is_gpu and fills_tiles(reads):
            emit_transposed_gpu(reads, nest, params, build, target)
            return
        if reads.loads and not target.is_gpu:
            emit_transposed_cpu(reads, nest, params, build, lanes)
            return
    if target.is_gpu:
        each_element(build, extents, lanes, target, lambda positions: store(spread(groups, positions, domain)))
    else:
        _emit_vectors(roots, values, groups, factors, domain, lanes, target, build, store)


def _emit_vectors(
    roots: Sequence[Op], values: Sequence[Op], groups: Groups, factors: Sequence[Sequence[Dim] | None], domain: Shape,
    lanes: int, target: Target, build: Builder, store: Callable[[Coords], None],
) -> None:  # fmt: skip
    """Writes the loops for a CPU: vectors along a row, in parts with even accesses; rows that share work go together."""
    extents = group_extents(groups, domain)
    fills_part = len(groups) > 1 and _fills_part(extents[-1], lanes)
    if fills_part:
        groups = _filling_lanes(groups, values, domain, lanes)
        extents = group_extents(groups, domain)
    has_rows = len(extents) > 1
    rest = rest_in_vectors(lambda: toposort(roots), extents[-1], lanes) if has_rows else 0
    is_uneven = has_rows and not fills_part and _may_be_uneven(values, factors)
    parts = even_parts(roots, groups, domain, lanes) if is_uneven else ()
    alike, num_rows = _alike(values[:-1], groups, domain) if has_rows and lanes > 1 else (0, 1)
    rows = extents[alike] if extents else 1

    def element(positions: list[Dim]) -> None:
        if num_rows == 1:
            store(spread(groups, positions, domain))
            return
        first = mul(positions[alike], num_rows)
        with build.loop(minimum(subtract(rows, first), num_rows), AxisKind.LOOP) as row:
            positions[alike] = add(first, row)
            store(spread(groups, positions, domain))

    if num_rows > 1:
        extents[alike] = ceildiv(rows, num_rows)
    each_element(build, extents, lanes, target, element, rest, parts)


# ---- work that rows share: weights and places of an image's channels ----
ALIKE_ROWS_MAX = 8  # rows written together: as many lines as a set of the cache, which they share if a power of two apart
ALIKE_PIECES_MIN = 4  # pieces of the first group that are left for threads to share
ALIKE_OPERATIONS_MIN = 24  # shared operations of an element, not of its index; a function counts as FUNCTION_OPERATIONS
FUNCTION_OPERATIONS = 12
INDEX_DTYPES = (dtypes.int64, dtypes.bool_)


def _alike(values: Sequence[Op], groups: Groups, domain: Shape) -> tuple[int, int]:
    """Returns the group whose rows share most computation, and the number of rows that share it; 1 if it does not pay.

    Only values that differ along the last group are shared: the loop over that group would compute them for each row.
    """
    order, marks = toposort(values), placeholders(domain)
    if len(order) < ALIKE_OPERATIONS_MIN and TRANSCENDENTAL.isdisjoint([op.code for op in order]):
        return 0, 1
    bit = {marks[axis]: 1 << number for number, group in enumerate(groups) for axis in group}
    alike, last, of_loops = [0] * (len(groups) - 1), 1 << len(groups) - 1, set[Op]()
    depends: dict[Op, int] = {}
    for op in order:
        on, is_index = bit.get(op, 0), op.dtype in INDEX_DTYPES and op.code is not OpCode.LOAD
        for source in op.src:
            on, is_index = on | depends[source], is_index and source in of_loops
        depends[op] = on
        if is_index:
            of_loops.add(op)
        elif on & last:
            cost = FUNCTION_OPERATIONS if op.code in TRANSCENDENTAL else 1
            alike = [total if on >> group & 1 else total + cost for group, total in enumerate(alike)]
    most = max(alike)
    number = alike.index(most)
    extents = group_extents(groups, domain)
    if most < ALIKE_OPERATIONS_MIN or greatest(extents[-1]) == 1:
        return number, 1
    rows = greatest(extents[number])
    return number, max(1, min(ALIKE_ROWS_MAX, rows if number else rows // ALIKE_PIECES_MIN))


# ---- operands that are read in parts: margins, joined and rolled tensors, tiles ----
PARTS_MAX = 8  # of a row: each is a loop of its own
PARTS_ELEMENTS_MIN = 1 << 12  # elements of a domain that is worth more code
ACCESS_ELEMENTS_MIN = 1.5  # elements of an access, on average
MASKED_ACCESS_PARTS_MAX = 4  # accesses that replace a masked vector


def even_parts(roots: Sequence[Op], groups: Groups, domain: Shape, lanes: int) -> Sequence[tuple[int, int]]:
    """Returns start and count of parts of a row within which every operand is read evenly; () if there are none.

    An index with a minimum, a remainder or a quotient of the place in the row is gathered, element by element, and a
    condition on that place makes a load a masked one. Between the places where these change, steps are even: min(j, 7)
    has even steps up to 7, and even ones behind it.
    """
    extents = group_extents(groups, domain)
    last, free = extents[-1], len(domain)  # numbers of axes that the domain does not have
    if not isinstance(last, int) or isinstance(total := numel(domain), Op) or total < PARTS_ELEMENTS_MIN:
        return ()
    places: list[Dim] = [placeholder(free + i, extent) for i, extent in enumerate(extents)]
    values = elements_within(roots, spread(groups, places, domain))
    parts: list[tuple[int, int]] = []
    waiting = [(0, last)]
    while waiting:
        first, count = waiting.pop()
        here = placeholder(free + len(extents), count)
        now = put_in_all(values, {places[-1]: add(first, here)})  # type: ignore[dict-item]
        cut = next((cut for op in toposort(_indices(now)) if 0 < (cut := _cut(op, here)) < count), 0)
        if cut:
            waiting += [(first + cut, count - cut), (first, cut)]
        elif any(coefficients(index, [here]) is None for index in _indices(now)):
            return ()
        else:
            parts.append((first, count))
        if len(parts) + len(waiting) > PARTS_MAX:
            return ()
    accesses = sum(count // lanes + (count % lanes).bit_count() for _, count in parts)
    row = [to_op(places[-1])]
    is_gathered = any(index.dtype is dtypes.int64 and coefficients(index, row) is None for index in _indices(values))
    most = last if is_gathered else MASKED_ACCESS_PARTS_MAX * (last // lanes) + last % lanes
    return parts if len(parts) > 1 and accesses <= min(most, last / ACCESS_ELEMENTS_MIN) else ()


def _may_be_uneven(values: Sequence[Op], factors: Sequence[object]) -> bool:
    return None in factors or bool([op for op in toposort(values) if op.code is OpCode.LOAD and len(op.src) > 2])


def _indices(values: Sequence[Op]) -> list[Op]:
    """Returns the indices of all loads, and the conditions on which they depend, without those read from memory."""
    return [s for op in toposort(values) if op.code is OpCode.LOAD for s in op.src[1:] if not _is_gathered(s)]


def _cut(op: Op, place: Op) -> int:
    """Returns the first place at which a minimum, comparison, quotient or remainder changes its steps, or 0."""
    if op.code not in (OpCode.MIN, OpCode.CMPLT, OpCode.IDIV, OpCode.MOD) or op.src[0].dtype is not dtypes.int64:
        return 0
    a, b = map(from_op, op.src)
    if op.code in (OpCode.MIN, OpCode.CMPLT):
        terms, low = affine(subtract(a, b))
        low -= op.code is OpCode.MIN  # where both are equal, either will do
        divisor: Dim = 0
    else:
        (terms, low), divisor = affine(a), b
    if set(terms) != {place} or not isinstance(divisor, int):
        return 0
    step = terms[place]
    if divisor == 0:  # the sign of step * place + low changes
        return -(low // step) if step > 0 else low // -step + 1
    to_next = divisor - low % divisor if step > 0 else low % divisor + 1
    return ceildiv(to_next, abs(step))


BYTE_VECTORS_MIN = 64  # vectors of bytes in a domain: few elements behind them are then done one by one


def _lanes(values: Sequence[Op], extents: Sequence[Dim], target: Target) -> int:
    """Returns the number of elements in a vector; for bytes alone all that fit, if whole vectors make up most of a row."""
    total = numel(tuple(extents))
    if isinstance(total, int) and total >= BYTE_VECTORS_MIN * target.vector_bytes:
        lanes = vector_lanes(values, target, narrowest=1)
        if lanes == target.vector_bytes and (len(extents) == 1 or mod(extents[-1], lanes) == 0):
            return lanes
    return vector_lanes(values, target)


PARTLY_GATHERED_MAX = 4  # masked loads of elements that are not contiguous: loops over single elements skip some


def _fills_part(extent: Dim, lanes: int) -> bool:
    """True for a row so short that a vector holds several."""
    return isinstance(extent, int) and extent > 1 and extent < lanes and lanes % extent == 0


def _filling_lanes(groups: Groups, values: Sequence[Op], domain: Shape, lanes: int) -> Groups:
    """Returns the groups, with rows of which a vector holds several, such as pairs, merged with the axes before them."""
    joined = groups
    while len(joined) > 1 and _fills_part(numel(domain[axis] for axis in joined[-1]), lanes):
        joined = (*joined[:-2], joined[-2] + joined[-1])
    row, inner = (placeholder(group[-1], domain[group[-1]]) for group in groups[-2:])
    ops, numel_row = toposort(values), greatest(numel(domain[axis] for axis in groups[-1]))

    def is_apart(load: Op) -> bool:
        """True if the elements of a vector span more than two vectors of memory."""
        steps = coefficients(load.src[1], [row, inner])
        return steps is None or not isinstance(steps[0], int) or abs(steps[0]) > 2 * numel_row

    apart = [op for op in ops if op.code is OpCode.LOAD and len(op.src) > 2 and is_apart(op)]
    is_few = len(apart) <= PARTLY_GATHERED_MAX or any(op.code in TRANSCENDENTAL for op in ops)
    return joined if is_few else groups


# ---- operands that are read across: transposed matrices ----
ELEMENTS_MIN = 1 << 15  # elements of a domain: smaller ones stay in the caches
EXTENT_MIN = 16  # elements of either group


def may_be_transposed(factors: Sequence[Sequence[Dim] | None], extents: Sequence[Dim]) -> bool:
    """True if an index takes steps of one along another group than the last, and both are long enough."""
    count = numel(tuple(extents))
    if not isinstance(count, int) or count < ELEMENTS_MIN or greatest(extents[-1]) < EXTENT_MIN:
        return False
    for steps in factors:
        if steps is not None and steps[-1] not in (-1, 0, 1) and _read_across(steps, extents) is not None:
            return True
    return False


def _read_across(steps: Sequence[Dim], extents: Sequence[Dim]) -> int | None:
    """Returns the group along which elements are contiguous, in either direction; None if that is the last group."""
    if steps[-1] in (-1, 0, 1):
        return None
    for group, step in enumerate(steps):
        if step in (-1, 1):
            return group if greatest(extents[group]) >= EXTENT_MIN else None
    return None


class TransposedReads:
    """An elementwise nest with operands that are transposed against the result.

    across:  the group of axes along which these operands are contiguous; the result is along the last one
    places:  placeholders of the position in each group
    loads:   loads of those operands, at `places`
    stored:  the index of a result in memory, then the results, at `places`
    """

    def __init__(self, roots: Sequence[Op], groups: Groups, extents: Sequence[Dim], domain: Shape):
        self.extents = extents
        free = len(domain)  # numbers of axes that the domain does not have
        self.places = [placeholder(free + i, extent) for i, extent in enumerate(extents)]
        coords = spread(groups, self.places, domain)
        self.stored = [to_op(flatten(coords, domain)), *elements_within(roots, coords)]
        self.across, self.loads = self._find()

    def _find(self) -> tuple[int, list[Op]]:
        """Returns the group along which most transposed operands are contiguous, and their loads."""
        found: dict[int, list[Op]] = {}
        for op in toposort(self.stored[1:]):
            if op.code is OpCode.LOAD and len(op.src) == 2 and not _is_gathered(op.src[1]):
                terms, _ = affine(op.src[1])
                steps = [terms.get(place, 0) for place in self.places]
                apart = all(atom in self.places for atom in terms)
                across = _read_across(steps, self.extents) if apart else None
                if across is not None:
                    found.setdefault(across, []).append(op)
        return max(found.items(), key=lambda item: len(item[1]), default=(-1, []))

    def there(self, before: Sequence[Dim], across: Dim, last: Dim) -> dict[Op, Dim]:
        """Returns the position in each group: `across` in the operands' one, `last` in the last, `before` in the others."""
        where = [*before, last]
        where[self.across] = across
        return dict(zip(self.places, where))

    def write(
        self, nest: Nest, params: Sequence[Op], build: Builder, there: Mapping[Op, Dim], copies: Sequence[Op]
    ) -> None:
        """Writes the results of a position, with `copies` in place of the first loads."""
        where, *values = put_in_all(self.stored, {**there, **dict(zip(self.loads, copies))})
        for (slot, _), value in zip(nest.outputs, values):
            build.store(params[slot], from_op(where), value)


def _is_gathered(index: Op) -> bool:
    return any(op.code is OpCode.LOAD for op in toposort([index]))


# ---- their tiles on a CPU ----
TILE_ACROSS, TILE_ALONG = 64, 64  # elements of a tile
GAP_ELEMENTS = 1  # between the lines of a copy, so that they are in different banks of the cache


def emit_transposed_cpu(reads: TransposedReads, nest: Nest, params: Sequence[Op], build: Builder, lanes: int) -> None:
    """Writes the loops: GRID over the groups before the last one; in it, a loop over tiles."""
    *before, length = reads.extents
    before[reads.across] = ceildiv(before[reads.across], TILE_ACROSS)
    of_tile = TILE_ALONG * TILE_ACROSS
    buffers = [build.alloc(load.dtype, of_tile + TILE_ALONG * GAP_ELEMENTS, MemorySpace.SHARED) for load in reads.loads]
    squares = [build.alloc(load.dtype, of_tile, MemorySpace.SHARED) for load in reads.loads] if lanes > 1 else []
    with build.loop(numel(tuple(before)), AxisKind.GRID) as position:
        at = unflatten(position, before)
        first = mul(at[reads.across], TILE_ACROSS)
        height = minimum(subtract(reads.extents[reads.across], first), TILE_ACROSS)
        with build.loop(ceildiv(length, TILE_ALONG), AxisKind.LOOP) as tile:
            start = mul(tile, TILE_ALONG)
            width = minimum(subtract(length, start), TILE_ALONG)

            def copy(i: Dim, j: Dim) -> None:
                there = reads.there(at, add(first, i), add(start, j))
                for buffer, value in zip(buffers, put_in_all(reads.loads, there)):
                    build.store(buffer, _place(i, j), value)

            def store(i: Dim, j: Dim) -> None:
                across = [read(square, add(mul(i, TILE_ALONG), j)) for square in squares]
                copies = across or [read(buffer, _place(i, j)) for buffer in buffers]
                reads.write(nest, params, build, reads.there(at, add(first, i), add(start, j)), copies)

            with build.loop(width, AxisKind.LOOP) as j:
                along(build, 0, height, lanes, partial(copy, j=j))
            for buffer, square in zip(buffers, squares):  # whole squares, even if some elements are not needed
                with (
                    build.loop(TILE_ACROSS // lanes, AxisKind.LOOP) as row,
                    build.loop(TILE_ALONG // lanes, AxisKind.LOOP) as column,
                ):
                    top, left = mul(row, lanes), mul(column, lanes)
                    place = add(mul(top, TILE_ALONG), left)
                    build.transpose(square, place, TILE_ALONG, buffer, _place(top, left), TILE_ACROSS + GAP_ELEMENTS, lanes)
            with build.loop(height, AxisKind.LOOP) as i:
                along(build, 0, width, lanes, partial(store, i))


def _place(i: Dim, j: Dim) -> Dim:
    """Returns the place in a copy of the element i across and j along."""
    return add(mul(j, TILE_ACROSS + GAP_ELEMENTS), i)


# ---- their tiles on a GPU ----
TILE_ROWS = 32  # elements in each direction, and threads along a line
LINE_ELEMENTS = TILE_ROWS + 1  # of a line in shared memory, so that the elements of a column are in different banks
TILED_OPERANDS_MAX = DECLARED_SHARED_BYTES // (TILE_ROWS * LINE_ELEMENTS * 8)  # operands that are copied


def fills_tiles(reads: TransposedReads) -> bool:
    """True if an operand is transposed and tiles are not mostly empty: short lines are in caches anyway."""
    return bool(reads.loads) and all(greatest(reads.extents[group]) >= TILE_ROWS for group in (reads.across, -1))


def emit_transposed_gpu(reads: TransposedReads, nest: Nest, params: Sequence[Op], build: Builder, target: Target) -> None:
    """Writes the grid: a block a tile."""
    *before, length = reads.extents
    across, loads, high = before[reads.across], reads.loads[:TILED_OPERANDS_MAX], target.block_threads // TILE_ROWS
    before[reads.across] = ceildiv(across, TILE_ROWS)
    grid = [*before, ceildiv(length, TILE_ROWS)]
    with build.loop(numel(tuple(grid)), AxisKind.GRID) as block:
        *at, tile = unflatten(block, grid)
        top, left = mul(at[reads.across], TILE_ROWS), mul(tile, TILE_ROWS)
        copies = [build.alloc(load.dtype, TILE_ROWS * LINE_ELEMENTS, MemorySpace.SHARED) for load in loads]
        with build.loop(target.block_threads, AxisKind.BLOCK) as thread:
            side, line = mod(thread, TILE_ROWS), floordiv(thread, TILE_ROWS)

            def each_line(body: Callable[[Dim], None]) -> None:
                with build.loop(TILE_ROWS // high, AxisKind.LOOP) as step:
                    body(add(mul(step, high), line))

            def bring(j: Dim) -> None:
                i, last = add(top, side), add(left, j)
                with build.when(both(less(i, across), less(last, length))):
                    for copy, value in zip(copies, put_in_all(loads, reads.there(at, i, last))):
                        build.store(copy, add(mul(j, LINE_ELEMENTS), side), value)

            def leave(i: Dim) -> None:
                place, last = add(top, i), add(left, side)
                with build.when(both(less(place, across), less(last, length))):
                    brought = [build.load(copy, add(mul(side, LINE_ELEMENTS), i)) for copy in copies]
                    reads.write(nest, params, build, reads.there(at, place, last), brought)

            each_line(bring)
            build.barrier()
            each_line(leave)


# ---- a block of memory, written in place ----
def emit_update(nest: Nest, context: Context) -> None:
    """Writes `memory[block] = value`, for memory that already holds the base."""
    params, target = context.params, context.target
    build = context.phase(0)
    anchor = nest.anchor
    base, value = anchor.src
    memory = params[nest.outputs[0][0]]

    def place(coords: Coords) -> Dim:
        return flatten([add(start, coord) for (start, _), coord in zip(anchor.arg, coords)], base.shape)

    def store(coords: Coords) -> None:
        build.store(memory, place(coords), element_within(value, coords))

    values = [element_anywhere(value), to_op(place(placeholders(value.shape)))]
    groups, _ = merge_axes(value.shape, values)
    extents = group_extents(groups, value.shape)
    lanes = 1 if target.is_gpu else vector_lanes(values, target)
    each_element(build, extents, lanes, target, lambda positions: store(spread(groups, positions, value.shape)))
