"""The loops of an attention of few queries on a GPU: a block of threads for some of them and a part of the keys.

In:    Nest (kind ATTENTION), whose anchor is an ATTENTION of few queries; the number of keys may be symbolic
Out:   one or two phases of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/attention_grad.py

    phase 1    each team of threads looks at keys of its own, with all its rows:
                   peak, total, out = lowest, 0, 0                  in registers, a thread's own features of out
                   for each few keys:                               each read once, 16 bytes a thread, side by side
                       C = cap(scale q k) + mask, -inf where not visible   joined over features by shuffles
                       next = max(peak, C)
                       P = exp(C - next);   total = total exp(peak - next) + P;   out = out exp(peak - next) + P v
               the teams of a block join: by shuffles, then by shared memory; of several parts each leaves peak, total, out
    phase 2    the parts of a query join, in order:   out = sum(out exp(peak - greatest)) / sum(total exp(peak - greatest))

No thread waits for another while keys are read, and no score leaves a team.
Source: Dao, Haziza, Massa, Sizov 2023, "Flash-Decoding for long-context inference" (parts of the keys, joined at last).
FLOPs: 2 (D + E) for each query and each key.
"""

from __future__ import annotations

from collections.abc import Sequence

from picograd.codegen.builder import Builder, Context, read
from picograd.codegen.gpu.attention_results import PartResults, Results, Row
from picograd.codegen.heads import Heads, num_blocks
from picograd.codegen.index import element_within
from picograd.codegen.loops import over_registers, split
from picograd.codegen.scalar import combined
from picograd.codegen.tile import multiply_add
from picograd.dtype import DType
from picograd.ir.attention import Parts, has_one_mask, parts_of
from picograd.ir.build import cast, maximum, static_shape, where
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.statements import WARP_THREADS
from picograd.ir.symbolic import add, both, floordiv, less, minimum, mod, mul, subtract


def emit_attention_few(nest: Nest, context: Context) -> None:
    """Writes an attention of few queries: GRID over parts of the keys, heads of keys, and blocks of rows."""
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    assert nest.anchor is not None
    parts = parts_of(nest.anchor, target)
    assert parts is not None, "emit.py asks for them"
    heads = Heads(nest.anchor)
    slots = {output.arg: params[slot] for slot, output in nest.outputs}
    start, _ = heads.keys_of(0, heads.num_queries)
    stop = heads.num_keys  # the last query sees the last key
    # Behind a window as many as there can be, some of no keys: how many it takes nobody could prove to fit the scratch.
    count = parts.most if parts.most == 1 or heads.arg.window else num_blocks(subtract(stop, start), parts.length)
    results = Results(heads, slots)
    of_parts = PartResults(heads, count, scratch) if parts.most > 1 else None
    if of_parts is not None:
        of_parts.emit_joined(after, target, results)
    groups = heads.anchor.src[1].shape[1]
    blocks = -(-heads.num_rows // parts.rows)
    with build.loop(numel((count, heads.batch, groups, blocks)), AxisKind.GRID) as position:
        part, b, group, number = split(position, [count, heads.batch, groups, blocks])
        first = add(start, mul(part, parts.length))
        with build.loop(parts.threads, AxisKind.BLOCK) as thread:
            few = _FewQueries(build, heads, parts, thread, over_registers(target), b, group, mul(number, parts.rows))
            steps = num_blocks(minimum(subtract(stop, first), parts.length), parts.num_teams * parts.at_once)
            with build.loop(steps, AxisKind.LOOP) as step:
                few.look_at(add(first, mul(step, parts.num_teams * parts.at_once)))
            few.join()
            few.store(part, of_parts or results)


class _FewQueries:
    """Rows of a block as a thread sees them, with the keys its team has looked at.

    b, group:  of the heads that share a head of keys
    first:     row of the block among theirs
    q, out:    of each row the features that are the thread's own
    k, v:      the same of the keys that are looked at
    masks:     of each of these keys, and of each row unless it is one for all; None without a mask
    scores:    of each row and each of these keys
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
        """Returns which query the i-th row is; the last one for a row that is not there, which nobody stores."""
        heads = self.heads
        row = minimum(add(self.first, i), heads.num_rows - 1)
        share, query = split(row, [heads.num_rows // heads.num_queries, heads.num_queries])
        return self.b, add(mul(self.group, heads.num_rows // heads.num_queries), share), query

    def _bring(self, into: Op, place: Dim, source: int, at: Row) -> None:
        """Reads a thread's own features of a position of a source into registers: 0 for those that are not there."""
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
        """Takes a few keys into account: those of the block's teams lie side by side, from `first` on."""
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
        """Returns the n-th key that a thread's team looks at."""
        return add(add(first, mul(n, self.parts.num_teams)), self.team)

    def _put_score(self, i: Dim, n: Dim, key: Dim) -> None:
        """Makes the score of a row and a key, which all threads of the team have then."""
        build, place = self.build, add(mul(i, self.parts.at_once), n)
        build.store(self.scores, place, const(0, self.scores.dtype))
        with build.loop(self.of_d, self.unrolled) as own:
            q, k = (build.load(m, add(mul(at, self.of_d), own)) for m, at in ((self.q, i), (self.k, n)))
            build.store(self.scores, place, multiply_add(q, k, build.load(self.scores, place)))
        product = self._over_threads(OpCode.ADD, build.load(self.scores, place), 1, self.parts.team)
        score, _ = self.heads.scaled(product)
        _, _, query = self.row(i)
        seen = self.heads.seen(query, key, less(key, self.heads.num_keys))
        if self.masks is not None:
            score = self.heads.masked(score, build.load(self.masks, place if self.mask_rows > 1 else n))
        score = score if seen is None else where(seen, score, const(float("-inf"), score.dtype))
        build.store(self.scores, place, score)

    def _add_values(self, i: Dim) -> None:
        """Adds values to the average of a row, with the weights that their scores give."""
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
    def _over_threads(self, code: OpCode, value: Op, distance: int, count: int) -> Op:
        """Returns the values of `count` threads joined, each with those `distance`, twice, four times as far away."""
        while distance < count:
            value = combined(code, value, self.build.shuffle(value, distance))
            distance *= 2
        return value

    def join(self) -> None:
        """Joins what the teams of each warp know, and leaves it in shared memory: by warps, for each row."""
        build, parts, warps = self.build, self.parts, self.parts.num_warps
        peaks, self.totals = (build.alloc(self.heads.dtype, warps * parts.rows, MemorySpace.SHARED) for _ in range(2))
        self.sums = build.alloc(self.heads.dtype, warps * parts.rows * self.E, MemorySpace.SHARED)
        self.peaks = peaks
        warp, lane = floordiv(self.thread, WARP_THREADS), mod(self.thread, WARP_THREADS)
        with build.loop(parts.rows, self.unrolled) as i:
            peak = self._over_threads(OpCode.MAX, build.load(self.peak, i), parts.team, WARP_THREADS)
            factor = self.heads.power(build.load(self.peak, i) - peak)
            total = self._over_threads(OpCode.ADD, build.load(self.total, i) * factor, parts.team, WARP_THREADS)
            place = add(mul(warp, parts.rows), i)
            with build.when(less(lane, 1)):
                build.store(peaks, place, peak)
                build.store(self.totals, place, total)
            with build.loop(self.of_e // parts.lanes, self.unrolled) as step:
                access = add(mul(step, parts.team), self.member)
                with build.loop(parts.lanes, self.unrolled) as n:
                    out = build.load(self.out, add(mul(i, self.of_e), add(mul(step, parts.lanes), n))) * factor
                    out = self._over_threads(OpCode.ADD, out, parts.team, WARP_THREADS)
                    with build.when(both(less(lane, parts.team), less(access, self.E // parts.lanes))):
                        index = add(mul(place, self.E), add(mul(access, parts.lanes), n))
                        build.store(self.sums, index, out)
        build.barrier()

    def store(self, part: Dim, results: Results | PartResults) -> None:
        """Joins the warps in order, and stores what was found of each row that is there."""
        build, parts, E = self.build, self.parts, self.E
        count = -(-parts.rows * E // parts.threads)
        with build.loop(count, AxisKind.LOOP) as number:
            place = add(mul(number, parts.threads), self.thread)
            i, feature = split(place, [parts.rows, E])
            with build.when(both(less(i, parts.rows), less(add(self.first, i), self.heads.num_rows))):
                peak, factors = self._factors(i)
                total = self._sum(factors, self.totals, i, parts.rows)
                out = self._sum(factors, self.sums, place, parts.rows * E)
                results.put(build, part, self.row(i), feature, out, total)
                with build.when(less(feature, 1)):
                    results.put_row(build, part, self.row(i), peak, total)

    def _factors(self, i: Dim) -> tuple[Op, list[Op]]:
        """Returns the greatest score of a row, and what the sums of each warp are multiplied by."""
        peaks = [read(self.peaks, add(i, warp * self.parts.rows)) for warp in range(self.parts.num_warps)]
        peak = peaks[0]
        for other in peaks[1:]:
            peak = maximum(peak, other)
        return peak, [self.heads.power(one - peak) for one in peaks]

    def _sum(self, factors: Sequence[Op], memory: Op, place: Dim, apart: int) -> Op:
        """Returns the sum over warps of factor times what each has left."""
        total = const(0, memory.dtype)
        for warp, factor in enumerate(factors):
            total = multiply_add(read(memory, add(place, warp * apart)), factor, total)
        return total
