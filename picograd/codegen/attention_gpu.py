"""Attention on a GPU, for many queries or few, and its gradients; scores stay in registers.

Results: if blocks share keys, each stores a partial result: sums over values, and each row's largest score and sum of
weights. A second phase combines the parts in order, so the result has the same bits in every run:

    out = sum(out exp(peak - greatest)) / sum(total exp(peak - greatest))

Attention: a block of threads for some queries of a head, tile after tile of keys. If there are many more keys than queries,
several blocks share them. Each thread keeps a partial sum of a row until the end; the maximum is combined for each tile.

    peak, total, out = lowest, 0, 0                       of each query, in registers
    for each tile of keys and values:                     in shared memory, the next one in flight
        C = cap(scale q k), -inf where not visible        in registers
        next = max(peak, C)
        P = exp(C - next);   total = total exp(peak - next) + P;   out = out exp(peak - next) + P v;   peak = next
    out / total,   logsumexp = peak + log(total)

Source: Milakov and Gimelshein 2018, arXiv:1805.02867 (the running maximum); Dao, Fu, Ermon, Rudra, Re 2022,
arXiv:2205.14135 (in tiles). FLOPs: 2 (D + E) for each query and each key in a tile that its block sees.

Few queries: a block of threads for some of them and a part of the keys, whose number may be symbolic.

    phase 1    each team of threads takes keys of its own, with all its rows:
                   peak, total, out = lowest, 0, 0                  in registers, with a thread's own features of out
                   for a few keys at a time:                        each read once, 16 bytes a thread, coalesced
                       C = cap(scale q k) + mask, -inf where not visible   summed over features by shuffles
                       next = max(peak, C)
                       P = exp(C - next);   total = total exp(peak - next) + P;   out = out exp(peak - next) + P v
               the teams of a block combine results: by shuffles, then by shared memory; partial ones keep peak, total, out
    phase 2    combines the parts of a query, in order

No thread waits for another while keys are read, and scores stay in a team. Source: Dao, Haziza, Massa, Sizov 2023,
"Flash-Decoding for long-context inference". FLOPs: 2 (D + E) for each query and key.

Gradients: blocks of keys walk over queries, then blocks of queries over keys.

    phase 1, a block of keys:       for each head that shares them, for each tile of queries:
        P = exp(cap(scale k q) - logsumexp), 0 where not visible;   dS = scale P (v grad - delta) (1 - tanh^2 where capped)
        dv += P grad;   dk += dS q
    phase 2, a block of queries:    for each tile of keys:          P and dS as above, rows and columns exchanged
        dq += dS k
    phase 3, if there are many more keys than queries, so that blocks share them in phase 2:   dq is the sum of the parts

These are seven products. Adding to dq from blocks of keys would take five, but either its bits would depend on the order in
which blocks run, or memory would hold a dq per block.

Source: Dao 2023, arXiv:2307.08691, algorithm 2. FLOPs: 2 (4 D + 3 E) for each query and key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from picograd.codegen.attention import DK, DQ, DV, LOWEST, Dropout, Heads, Stored, is_there, last_at, num_blocks, results_of
from picograd.codegen.block_rows import Accumulators, BlockRows, Panel, ThreadRows, WarpRows, over_threads, walk
from picograd.codegen.builder import Builder, Context, Scratch, read
from picograd.codegen.index import element_within
from picograd.codegen.loops import grid_of_threads, over_registers
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.attention import (
    Cut,
    Parts,
    as_it_is_cut,
    cut_of_averages,
    cut_of_keys,
    cut_of_queries,
    has_one_mask,
    padded,
    part_of_keys,
    parts_of,
)
from picograd.ir.build import cast, equal, maximum, multiply_add, static_shape, unary, where
from picograd.ir.op import Dim, Op, Shape, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import (
    add,
    at_least_0,
    both,
    ceildiv,
    flatten,
    floordiv,
    less,
    minimum,
    mod,
    mul,
    subtract,
    unflatten,
)
from picograd.record import Record

# ---- results, whole or of a part of the keys ----
Row = tuple[Dim, Dim, Dim]  # position in the batch, head, query


class Results:
    """Stores averages and log-sums; a query that sees no key has 0 and -inf."""

    def __init__(self, heads: Heads, slots: dict[int, Stored]):
        self.heads, self.slots = heads, slots

    def put(self, build: Builder, part: Dim, row: Row, feature: Dim, out: Op, total: Op) -> None:
        """Stores a feature of a row's average, from its sum and that of the weights."""
        if 0 in self.slots:
            found = where(equal(total, 0.0), const(0, out.dtype), out / total)
            anchor = self.heads.anchor
            self.slots[0].store(build, (*row, feature), anchor.shape, cast(found, anchor.dtype))

    def put_row(self, build: Builder, part: Dim, row: Row, peak: Op, total: Op) -> None:
        """Stores the logarithm of a row's sum of exponentials."""
        if 1 in self.slots:
            self.slots[1].store(build, row, self.heads.anchor.shape[:3], peak + unary(OpCode.LOG, total))


class PartResults:
    """Partial results for parts of the keys, one per block, in scratch memory.

    count:  number of parts
    """

    def __init__(self, heads: Heads, count: Dim, scratch: Scratch):
        self.count, self.dtype = count, heads.dtype
        self.shape = (count, *heads.anchor.shape)  # (parts, B, H, T, E)
        self.out = scratch(heads.dtype, numel(self.shape))
        self.peaks, self.totals = (scratch(heads.dtype, numel(self.shape[:4])) for _ in range(2))

    def put(self, build: Builder, part: Dim, row: Row, feature: Dim, out: Op, total: Op) -> None:
        build.store(self.out, flatten((part, *row, feature), self.shape), out)

    def put_row(self, build: Builder, part: Dim, row: Row, peak: Op, total: Op) -> None:
        place = flatten((part, *row), self.shape[:4])
        build.store(self.peaks, place, peak)
        build.store(self.totals, place, total)

    def emit_joined(self, build: Builder, target: Target, results: Results) -> None:
        """Writes the second phase: a thread per element of the result combines its parts in order."""
        with grid_of_threads(build, numel(self.shape[1:]), target) as position:
            b, head, query, feature = unflatten(position, self.shape[1:])
            peak, total, out = (build.alloc(self.dtype, 1, MemorySpace.REGISTER) for _ in range(3))
            for memory, start in ((peak, -self.dtype.largest), (total, 0.0), (out, 0.0)):
                build.store(memory, 0, const(start, self.dtype))
            with build.loop(self.count, AxisKind.LOOP) as part:
                place = flatten((part, b, head, query), self.shape[:4])
                build.store(peak, 0, maximum(build.load(peak, 0), read(self.peaks, place)))
            with build.loop(self.count, AxisKind.LOOP) as part:
                place = flatten((part, b, head, query), self.shape[:4])
                factor = results.heads.power(read(self.peaks, place) - build.load(peak, 0))
                build.store(total, 0, multiply_add(read(self.totals, place), factor, build.load(total, 0)))
                of_part = read(self.out, flatten((part, b, head, query, feature), self.shape))
                build.store(out, 0, multiply_add(of_part, factor, build.load(out, 0)))
            row = (b, head, query)
            results.put(build, 0, row, feature, build.load(out, 0), build.load(total, 0))
            with build.when(less(feature, 1)):
                results.put_row(build, 0, row, build.load(peak, 0), build.load(total, 0))


# ---- attention ----


def emit_attention_gpu(nest: Nest, context: Context) -> None:
    """Writes an attention: GRID over parts of keys and blocks of queries.

    In a causal attention the blocks with most keys start first, so that no long one runs alone at the end.
    """
    target, scratch = context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    heads = Heads(as_it_is_cut(nest.anchor, target))
    H, G, T, S, _, _ = heads.lengths
    cut = cut_of_averages(heads.anchor, target)
    assert cut is not None, f"{nest.anchor} has no kernel on {target.device}"
    blocks = ceildiv(T, cut.rows)
    slots = results_of(nest, context)
    parts = PartsOfKeys(heads, cut)
    of_parts = PartResults(heads, parts.count, scratch) if parts.count > 1 else None
    if of_parts is not None:
        of_parts.emit_joined(after, target, Results(heads, slots))
    with build.loop(numel((parts.count, heads.batch, H, blocks)), AxisKind.GRID) as position:
        part, b, head, number = unflatten(position, [parts.count, heads.batch, H, blocks])
        first = mul(subtract(blocks - 1, number), cut.rows)
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            rows = rows_of(build, cut, heads, thread, target)
            averages = Averages(heads, rows, first, target, heads.dropout(b, head))
            averages.q.hold((b, head), first)
            start, steps = tiles_of(parts.within(part, heads.keys_of(first, cut.rows)), cut)
            walk(rows, (averages.k, averages.v), (b, floordiv(head, H // G)), start, steps, averages.look_at)
            if of_parts is not None:
                averages.store_part(part, b, head, of_parts)
            else:
                averages.store(b, head, slots)


def rows_of(build: Builder, cut: Cut, heads: Heads, thread: Dim, target: Target) -> BlockRows:
    """Returns the rows of a block, as one thread sees them."""
    kind = WarpRows if cut.by_warps else ThreadRows
    return kind(build, cut, heads.dtype, thread, over_registers(target))


def tiles_of(seen: tuple[Dim, Dim], cut: Cut) -> tuple[Dim, Dim]:
    """Returns the first position and the number of the tiles that cover the visible keys."""
    start, stop = seen
    start = mul(floordiv(start, cut.columns), cut.columns)
    return start, num_blocks(subtract(stop, start), cut.columns)


class PartsOfKeys:
    """The division of the visible keys among blocks.

    start:   the first visible key, rounded down to a tile
    length:  keys per part, a multiple of a tile
    count:   number of parts
    """

    def __init__(self, heads: Heads, cut: Cut):
        _, _, T, S, _, _ = heads.lengths
        (first,) = static_shape((heads.keys_of(0, T)[0],))
        self.start = first // cut.columns * cut.columns
        self.length = part_of_keys(heads.anchor, cut) or S
        self.count = max(1, ceildiv(S - self.start, self.length))

    def within(self, part: Dim, seen: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
        """Returns the first and the last bound of the visible keys in a part."""
        if self.count == 1:
            return seen
        first = add(self.start, mul(part, self.length))
        start, stop = seen
        return add(first, at_least_0(subtract(start, first))), minimum(stop, add(first, self.length))


class Averages:
    """The online softmax of a block's queries over the keys so far.

    first:  first query of the block
    peak:   largest score of each row
    total:  a thread's part of each row's sum of weights
    out:    averages so far, times the sum of the weights
    """

    def __init__(self, heads: Heads, rows: BlockRows, first: Dim, target: Target, drop: Dropout):
        q, k, v = heads.anchor.src[:3]
        self.heads, self.rows, self.first, self.drop = heads, rows, first, drop
        self.q = Panel(rows, q, rows.cut.rows, target)
        self.k, self.v = (Panel(rows, matrix, rows.cut.columns, target, is_walked=True) for matrix in (k, v))
        self.peak = rows.of_rows(lambda i: const(LOWEST, rows.dtype))
        self.total = rows.of_rows(lambda i: const(0, rows.dtype))
        self.out = rows.zeros(padded(heads.lengths[5]))

    def look_at(self, first_key: Dim) -> None:
        """Adds the current tile of keys and values."""
        rows, build, heads = self.rows, self.rows.build, self.heads
        scores = rows.scores(self.q, self.k)
        peak = rows.of_rows(lambda i: build.load(self.peak, i))

        def put_score(i: Dim, column: Dim, at: Dim) -> None:
            query, key = add(self.first, rows.row(i)), add(first_key, column)
            is_inside = is_there(key, heads.lengths[3], rows.cut.columns)
            score = heads.score(build.load(scores.memory, at), query, key, is_inside)
            build.store(scores.memory, at, score)
            build.store(peak, i, maximum(build.load(peak, i), score))

        rows.each(scores, put_score)
        rows.join(peak, OpCode.MAX)
        factor = rows.of_rows(lambda i: heads.power(build.load(self.peak, i) - build.load(peak, i)))

        def move(i: Dim) -> None:
            build.store(self.total, i, build.load(self.total, i) * build.load(factor, i))
            build.store(self.peak, i, build.load(peak, i))

        def put_weight(i: Dim, column: Dim, at: Dim) -> None:
            weight = heads.power(build.load(scores.memory, at) - build.load(peak, i))
            drop = self.drop(add(self.first, rows.row(i)), add(first_key, column))
            build.store(scores.memory, at, drop(weight))
            build.store(self.total, i, build.load(self.total, i) + weight)

        out = self.out.memory
        rows.each_row(move)
        rows.each(scores, put_weight)
        rows.each(self.out, lambda i, _, at: build.store(out, at, build.load(out, at) * build.load(factor, i)))
        rows.add_averages(self.out, scores, self.v)

    def store_part(self, part: Dim, b: Dim, head: Dim, results: PartResults) -> None:
        """Stores maximum, sum and average of a part of the keys."""
        rows, build = self.rows, self.rows.build
        _, _, T, _, _, E = self.heads.lengths
        rows.join(self.total, OpCode.ADD)

        def put_row(i: Dim) -> None:
            query = add(self.first, rows.row(i))
            with build.when(both(less(query, T), rows.is_first())):
                results.put_row(build, part, (b, head, query), build.load(self.peak, i), build.load(self.total, i))

        def put(i: Dim, query: Dim, feature: Dim, value: Op) -> None:
            results.put(build, part, (b, head, query), feature, value, build.load(self.total, i))

        rows.each_row(put_row)
        rows.store(self.out, self.first, T, E, put)

    def store(self, b: Dim, head: Dim, slots: dict[int, Stored]) -> None:
        """Stores averages and log-sums; a query that sees no key has 0 and -inf."""
        rows, build, heads = self.rows, self.rows.build, self.heads
        H, _, T, _, _, E = heads.lengths
        rows.join(self.total, OpCode.ADD)

        def put_sum(i: Dim) -> None:
            query = add(self.first, rows.row(i))
            with build.when(both(less(query, T), rows.is_first())):
                value = build.load(self.peak, i) + unary(OpCode.LOG, build.load(self.total, i))
                slots[1].store(build, (b, head, query), (heads.batch, H, T), value)

        def put(i: Dim, query: Dim, feature: Dim, value: Op) -> None:
            value = cast(value * build.load(factor, i), heads.anchor.dtype)
            slots[0].store(build, (b, head, query, feature), (heads.batch, H, T, E), value)

        if 1 in slots:
            rows.each_row(put_sum)
        if 0 in slots:
            factor = rows.of_rows(lambda i: heads.inverse(build.load(self.total, i)))
            rows.store(self.out, self.first, T, E, put)


# ---- few queries ----
def emit_attention_few(nest: Nest, context: Context) -> None:
    """Writes an attention of few queries: GRID over parts of the keys, heads of keys, and blocks of rows."""
    target, scratch = context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    parts = parts_of(nest.anchor, target)
    assert parts is not None, "emit.py asks for them"
    heads = Heads(nest.anchor)
    slots = results_of(nest, context)
    start, _ = heads.keys_of(0, heads.num_queries)
    stop = heads.num_keys  # the last query sees the last key
    # With a window the number of parts is the maximum, and some are empty: a smaller number could not be proved to fit.
    count = parts.most if parts.most == 1 or heads.arg.window else num_blocks(subtract(stop, start), parts.length)
    results = Results(heads, slots)
    of_parts = PartResults(heads, count, scratch) if parts.most > 1 else None
    if of_parts is not None:
        of_parts.emit_joined(after, target, results)
    groups = heads.anchor.src[1].shape[1]
    blocks = ceildiv(heads.num_rows, parts.rows)
    with build.loop(numel((count, heads.batch, groups, blocks)), AxisKind.GRID) as position:
        part, b, group, number = unflatten(position, [count, heads.batch, groups, blocks])
        first = add(start, mul(part, parts.length))
        with build.loop(parts.threads, AxisKind.BLOCK) as thread:
            few = _FewQueries(build, heads, parts, thread, over_registers(target), b, group, mul(number, parts.rows))
            steps = num_blocks(minimum(subtract(stop, first), parts.length), parts.num_teams * parts.at_once)
            with build.loop(steps, AxisKind.LOOP) as step:
                few.look_at(add(first, mul(step, parts.num_teams * parts.at_once)))
            few.join()
            few.store(part, of_parts or results)


class _FewQueries:
    """Rows of a block as a thread sees them, with the current keys of its team.

    b, group:  position in the batch, and the group of heads that share keys
    first:     first row of the block in that group
    q, out:    a thread's features of each row
    k, v:      the same for the current keys
    masks:     of each current key, and of each row unless all share one; None without a mask
    scores:    of each row and each current key
    """

    def __init__(
        self, build: Builder, heads: Heads, parts: Parts, thread: Dim, unrolled: AxisKind, b: Dim, group: Dim, first: Dim
    ):
        self.build, self.heads, self.parts, self.unrolled = build, heads, parts, unrolled
        self.thread, self.b, self.group, self.first = thread, b, group, first
        self.member, self.team = mod(thread, parts.team), floordiv(thread, parts.team)
        rows, dtype, narrow = parts.rows, heads.dtype, heads.anchor.dtype
        D, self.E = static_shape(tuple(source.shape[3] for source in heads.anchor.src[1:3]))
        self.of_d, self.of_e = (parts.steps(features) * parts.lanes for features in (D, self.E))
        self.q = self._registers(dtype, rows * self.of_d)
        self.k = self._registers(narrow, parts.at_once * self.of_d)
        self.v = self._registers(narrow, parts.at_once * self.of_e)
        self.mask_rows = 1 if heads.mask is None or has_one_mask(heads.anchor) else rows
        self.masks = None if heads.mask is None else self._registers(heads.mask.dtype, self.mask_rows * parts.at_once)
        self.scores = self._registers(dtype, rows * parts.at_once)
        self.peak, self.total = (self._registers(dtype, rows) for _ in range(2))
        self.out = self._registers(dtype, rows * self.of_e)
        with build.loop(rows, unrolled) as i:
            self._bring(self.q, mul(i, self.of_d), 0, self.row(i))
            build.store(self.peak, i, const(-dtype.largest, dtype))
            build.store(self.total, i, const(0, dtype))
        with build.loop(rows * self.of_e, unrolled) as place:
            build.store(self.out, place, const(0, dtype))

    def _registers(self, dtype: DType, length: int) -> Op:
        return self.build.alloc(dtype, length, MemorySpace.REGISTER)

    def row(self, i: Dim) -> Row:
        """Returns the coordinates of the i-th query; rows past the end get those of the last one and are not stored."""
        heads = self.heads
        row = minimum(add(self.first, i), heads.num_rows - 1)
        share, query = unflatten(row, [heads.num_rows // heads.num_queries, heads.num_queries])
        return self.b, add(mul(self.group, heads.num_rows // heads.num_queries), share), query

    def _bring(self, into: Op, place: Dim, source: int, at: Row) -> None:
        """Loads a thread's features of a position of a source into registers; 0 past the end."""
        build, lanes, matrix = self.build, self.parts.lanes, self.heads.anchor.src[source]
        (features,) = static_shape(matrix.shape[3:])
        with build.loop(self.parts.steps(features), self.unrolled) as step:
            access = add(mul(step, self.parts.team), self.member)
            inside = less(access, features // lanes)
            here = minimum(access, features // lanes - 1)
            with build.loop(lanes, AxisKind.VECTOR) as lane:
                value = cast(element_within(matrix, (*at, add(mul(here, lanes), lane))), into.dtype)
                value = where(inside, value, const(0, value.dtype)) if isinstance(inside, Op) else value
                build.store(into, add(place, add(mul(step, lanes), lane)), value)

    # ---- some keys ----
    def look_at(self, first: Dim) -> None:
        """Adds a few keys: the block's teams take consecutive keys, from `first` on."""
        build, parts = self.build, self.parts
        last = subtract(self.heads.num_keys, 1)
        for source, memory, length in ((1, self.k, self.of_d), (2, self.v, self.of_e)):
            with build.loop(parts.at_once, self.unrolled) as n:
                key = minimum(self.key(first, n), last)
                self._bring(memory, mul(n, length), source, (self.b, self.group, key))
        if self.masks is not None and self.heads.mask is not None:
            with build.loop(self.mask_rows, self.unrolled) as i, build.loop(parts.at_once, self.unrolled) as n:
                mask = element_within(self.heads.mask, (*self.row(i), minimum(self.key(first, n), last)))
                build.store(self.masks, add(mul(i, parts.at_once), n), mask)
        with build.loop(parts.rows, self.unrolled) as i:
            with build.loop(parts.at_once, self.unrolled) as n:
                self._put_score(i, n, self.key(first, n))
            self._add_values(i)

    def key(self, first: Dim, n: Dim) -> Dim:
        """Returns the n-th current key of a thread's team."""
        return add(add(first, mul(n, self.parts.num_teams)), self.team)

    def _put_score(self, i: Dim, n: Dim, key: Dim) -> None:
        """Computes the score of a row and a key; all threads of the team get it."""
        build, place = self.build, add(mul(i, self.parts.at_once), n)
        build.store(self.scores, place, const(0, self.scores.dtype))
        with build.loop(self.of_d, self.unrolled) as own:
            q, k = (build.load(m, add(mul(at, self.of_d), own)) for m, at in ((self.q, i), (self.k, n)))
            build.store(self.scores, place, multiply_add(q, k, build.load(self.scores, place)))
        product = over_threads(build, OpCode.ADD, build.load(self.scores, place), 1, self.parts.team)
        _, _, query = self.row(i)
        mask = None if self.masks is None else build.load(self.masks, place if self.mask_rows > 1 else n)
        build.store(self.scores, place, self.heads.score(product, query, key, less(key, self.heads.num_keys), mask))

    def _add_values(self, i: Dim) -> None:
        """Adds values to the average of a row, weighted by their scores."""
        build, at_once = self.build, self.parts.at_once
        old = build.load(self.peak, i)
        scores = [build.load(self.scores, add(mul(i, at_once), n)) for n in range(at_once)]
        peak = old
        for score in scores:
            peak = maximum(peak, score)
        build.store(self.peak, i, peak)
        peak = build.load(self.peak, i)
        factor, *weights = (self.heads.power(x - peak) for x in (old, *scores))
        total = build.load(self.total, i) * factor
        for weight in weights:
            total = total + weight
        build.store(self.total, i, total)
        with build.loop(self.of_e, self.unrolled) as own:
            place = add(mul(i, self.of_e), own)
            out = build.load(self.out, place) * factor
            for n, weight in enumerate(weights):
                out = multiply_add(weight, build.load(self.v, add(own, n * self.of_e)), out)
            build.store(self.out, place, out)

    # ---- the teams of a block ----
    def join(self) -> None:
        """Combines the results of each warp's teams, and stores them in shared memory, by warp and row."""
        build, parts, warps = self.build, self.parts, self.parts.num_warps
        peaks, self.totals = (build.alloc(self.heads.dtype, warps * parts.rows, MemorySpace.SHARED) for _ in range(2))
        self.sums = build.alloc(self.heads.dtype, warps * parts.rows * self.E, MemorySpace.SHARED)
        self.peaks = peaks
        warp, lane = floordiv(self.thread, WARP_THREADS), mod(self.thread, WARP_THREADS)
        with build.loop(parts.rows, self.unrolled) as i:
            peak = over_threads(build, OpCode.MAX, build.load(self.peak, i), parts.team, WARP_THREADS)
            factor = self.heads.power(build.load(self.peak, i) - peak)
            total = over_threads(build, OpCode.ADD, build.load(self.total, i) * factor, parts.team, WARP_THREADS)
            place = add(mul(warp, parts.rows), i)
            with build.when(less(lane, 1)):
                build.store(peaks, place, peak)
                build.store(self.totals, place, total)
            with build.loop(self.of_e // parts.lanes, self.unrolled) as step:
                access = add(mul(step, parts.team), self.member)
                with build.loop(parts.lanes, self.unrolled) as n:
                    out = build.load(self.out, add(mul(i, self.of_e), add(mul(step, parts.lanes), n))) * factor
                    out = over_threads(build, OpCode.ADD, out, parts.team, WARP_THREADS)
                    with build.when(both(less(lane, parts.team), less(access, self.E // parts.lanes))):
                        index = add(mul(place, self.E), add(mul(access, parts.lanes), n))
                        build.store(self.sums, index, out)
        build.barrier()

    def store(self, part: Dim, results: Results | PartResults) -> None:
        """Combines the warps in order, and stores the result of each existing row."""
        build, parts, E = self.build, self.parts, self.E
        count = ceildiv(parts.rows * E, parts.threads)
        with build.loop(count, AxisKind.LOOP) as number:
            place = add(mul(number, parts.threads), self.thread)
            i, feature = unflatten(place, [parts.rows, E])
            with build.when(both(less(i, parts.rows), less(add(self.first, i), self.heads.num_rows))):
                peak, factors = self._factors(i)
                total = self._sum(factors, self.totals, i, parts.rows)
                out = self._sum(factors, self.sums, place, parts.rows * E)
                results.put(build, part, self.row(i), feature, out, total)
                with build.when(less(feature, 1)):
                    results.put_row(build, part, self.row(i), peak, total)

    def _factors(self, i: Dim) -> tuple[Op, list[Op]]:
        """Returns the largest score of a row, and the factor of each warp's sums."""
        peaks = [read(self.peaks, add(i, warp * self.parts.rows)) for warp in range(self.parts.num_warps)]
        peak = peaks[0]
        for other in peaks[1:]:
            peak = maximum(peak, other)
        return peak, [self.heads.power(one - peak) for one in peaks]

    def _sum(self, factors: Sequence[Op], memory: Op, place: Dim, apart: int) -> Op:
        """Returns the sum over warps of factor times the warp's value."""
        total = const(0, memory.dtype)
        for warp, factor in enumerate(factors):
            total = multiply_add(read(memory, add(place, warp * apart)), factor, total)
        return total


# ---- gradients ----


def emit_attention_grad_gpu(nest: Nest, context: Context) -> None:
    """Writes the requested gradients of an attention: first of keys and values, then of queries."""
    target, scratch = context.target, context.scratch
    builders = [context.phase(number) for number in range(3)]
    build, after, last, *_ = builders
    heads = Heads(as_it_is_cut(nest.anchor, target))
    slots = results_of(nest, context)
    if DK in slots or DV in slots:
        _emit_keys(heads, slots, build, target)
    if DQ in slots:
        _emit_queries(heads, slots[DQ], after, last, target, scratch)


def _emit_keys(heads: Heads, slots: dict[int, Stored], build: Builder, target: Target) -> None:
    """Writes the gradients of keys and values: GRID over blocks of keys."""
    H, G, T, S, D, E = heads.lengths
    cut = cut_of_keys(heads.anchor, target)
    assert cut is not None, f"{heads.anchor} has no kernel on {target.device}"
    blocks = ceildiv(S, cut.rows)
    q, k, v, grad = heads.anchor.src[:4]
    with build.loop(numel((heads.batch, G, blocks)), AxisKind.GRID) as position:
        b, group, number = unflatten(position, [heads.batch, G, blocks])
        first = mul(number, cut.rows)
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            rows = rows_of(build, cut, heads, thread, target)
            keys, values = _held(rows, (k, v), (b, group), first, target)
            queries, grads = (Panel(rows, matrix, cut.columns, target, is_walked=True) for matrix in (q, grad))
            dk, dv = rows.zeros(padded(D)), rows.zeros(padded(E))
            start, steps = tiles_of(heads.queries_of(first, cut.rows), cut)
            with build.loop(H // G, AxisKind.LOOP) as index:
                head = add(mul(group, H // G), index)
                drop = heads.dropout(b, head)
                if H != G:
                    build.barrier()  # the queries of the previous head are still in use

                def look_at(first_query: Dim) -> None:
                    def point(i: Dim, column: Dim) -> Point:
                        query, key = add(first_query, column), add(first, rows.row(i))
                        seen = heads.seen(query, key, is_there(query, T, cut.columns))
                        return Point(heads, b, head, minimum(query, T - 1), seen, drop(query, key))

                    products, grad_weights = rows.scores(keys, queries), rows.scores(values, grads)
                    _weigh(rows, products, grad_weights, point, keeps_weights=True)
                    if DV in slots:
                        rows.add_averages(dv, products, grads)
                    if DK in slots:
                        rows.add_averages(dk, grad_weights, queries)

                walk(rows, (queries, grads), (b, head), start, steps, look_at)
            for result, sums, features in ((DK, dk, D), (DV, dv, E)):
                if result in slots:
                    _store(rows, sums, slots[result], first, (b, group), (heads.batch, G, S, features))


def _emit_queries(heads: Heads, dq: Stored, build: Builder, after: Builder, target: Target, scratch: Scratch) -> None:
    """Writes the gradients of queries: GRID over parts of keys and blocks of queries."""
    H, G, T, S, D, _ = heads.lengths
    cut = cut_of_queries(heads.anchor, target)
    assert cut is not None, f"{heads.anchor} has no kernel on {target.device}"
    blocks = ceildiv(T, cut.rows)
    q, k, v, grad = heads.anchor.src[:4]
    parts = PartsOfKeys(heads, cut)
    shape = (parts.count, heads.batch, H, T, D)
    result = dq if parts.count == 1 else Stored(scratch(heads.dtype, numel(shape)))
    if parts.count > 1:
        _emit_sums(result.memory, shape, dq, after, target)
    with build.loop(numel((parts.count, heads.batch, H, blocks)), AxisKind.GRID) as position:
        part, b, head, number = unflatten(position, [parts.count, heads.batch, H, blocks])
        first = mul(subtract(blocks - 1, number), cut.rows)  # those with most keys start first, as in the attention
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            rows = rows_of(build, cut, heads, thread, target)
            queries, grads = _held(rows, (q, grad), (b, head), first, target)
            keys, values = (Panel(rows, matrix, cut.columns, target, is_walked=True) for matrix in (k, v))
            sums, drop = rows.zeros(padded(D)), heads.dropout(b, head)

            def look_at(first_key: Dim) -> None:
                def point(i: Dim, column: Dim) -> Point:
                    query, key = add(first, rows.row(i)), add(first_key, column)
                    seen = heads.seen(query, key, is_there(key, S, cut.columns))
                    return Point(heads, b, head, last_at(query, T, cut.rows), seen, drop(query, key))

                products, grad_weights = rows.scores(queries, keys), rows.scores(grads, values)
                _weigh(rows, products, grad_weights, point)
                rows.add_averages(sums, grad_weights, keys)

            start, steps = tiles_of(parts.within(part, heads.keys_of(first, cut.rows)), cut)
            walk(rows, (keys, values), (b, floordiv(head, H // G)), start, steps, look_at)
            _store(rows, sums, result, first, (part, b, head), shape)


def _emit_sums(parts: Op, shape: Shape, dq: Stored, build: Builder, target: Target) -> None:
    """Writes the sums of partial gradients (parts, ...), in order, a thread per element."""
    with grid_of_threads(build, numel(shape[1:]), target) as position:
        total = build.alloc(parts.dtype, 1, MemorySpace.REGISTER)
        build.store(total, 0, const(0, parts.dtype))
        with build.loop(shape[0], AxisKind.LOOP) as part:
            build.store(total, 0, build.load(total, 0) + read(parts, add(mul(part, numel(shape[1:])), position)))
        dq.store(build, unflatten(position, shape[1:]), shape[1:], cast(build.load(total, 0), dq.memory.dtype))


class Point(Record):
    """A query and a key.

    query:  an existing query, whose numbers are read
    seen:   whether the query sees the key; None: always
    drop:   applies dropout to the weight, or to its gradient
    """

    heads: Heads
    b: Dim
    head: Dim
    query: Dim
    seen: Op | None
    drop: Callable[[Op], Op]

    def weight_and_grad(self, product: Op, grad_weight: Op) -> tuple[Op, Op]:
        """Returns M P, with M the dropout mask, and dS.

        Args:
          product:      product of the query and the key
          grad_weight:  product of the result's gradient and the value
        """
        logsumexp, delta = (self.heads.row(source, self.b, self.head)(self.query) for source in (4, 5))
        score, bent = self.heads.scaled(product)
        weight = self.heads.power(score - logsumexp)
        grad_score = weight * (self.drop(grad_weight) - delta) * self.heads.arg.scale
        weight = self.drop(weight)
        if bent is not None:
            grad_score = grad_score * (bent.filled(1) - bent * bent)
        if self.seen is None:
            return weight, grad_score
        return where(self.seen, weight, const(0, weight.dtype)), where(self.seen, grad_score, const(0, grad_score.dtype))


def _held(rows: BlockRows, matrices: Sequence[Op], head: Sequence[Dim], first: Dim, target: Target) -> list[Panel]:
    """Returns matrices whose rows, from `first` on, a block keeps."""
    panels = [Panel(rows, matrix, rows.cut.rows, target) for matrix in matrices]
    for panel in panels:
        panel.hold(head, first)
    return panels


def _weigh(
    rows: BlockRows, products: Accumulators, grad_weights: Accumulators, point: Callable[[Dim, Dim], Point],
    keeps_weights: bool = False,
) -> None:  # fmt: skip
    """Replaces the weights' gradients by the scores'; if weights are kept, these replace the products."""
    build = rows.build

    def put(i: Dim, column: Dim, at: Dim) -> None:
        here = point(i, column)
        loaded = build.load(products.memory, at), build.load(grad_weights.memory, at)
        weight, grad_score = here.weight_and_grad(*loaded)
        if keeps_weights:
            build.store(products.memory, at, weight)
        build.store(grad_weights.memory, at, grad_score)

    rows.each(products, put)


def _store(rows: BlockRows, sums: Accumulators, result: Stored, first: Dim, head: Sequence[Dim], shape: Shape) -> None:
    """Stores a block's gradients in memory with the shape (..., positions, features), whose first axes are `head`'s."""
    length, features = static_shape(shape[-2:])

    def put(i: Dim, position: Dim, feature: Dim, value: Op) -> None:
        result.store(rows.build, (*head, position, feature), shape, cast(value, result.memory.dtype))

    rows.store(sums, first, length, features, put)
