"""The loops of an attention on a GPU: a block of threads for some queries of a head, and tile after tile of keys.

In:    Nest (kind ATTENTION), whose anchor is an ATTENTION of known lengths
Out:   one or two phases of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/gpu/attention_few.py

    peak, total, out = lowest, 0, 0                       of each query, in registers
    for each tile of keys and values:                     in shared memory, the next one on its way
        C = cap(scale q k), -inf where not visible        in registers
        next = max(peak, C)
        P = exp(C - next);   total = total exp(peak - next) + P;   out = out exp(peak - next) + P v;   peak = next
    out / total,   logsumexp = peak + log(total)

Where keys are many times the queries, several blocks share them, and a second phase joins what they know.
The sum of a row stays apart in the threads that share it until the end; its maximum is joined for each tile.

Source: Milakov and Gimelshein 2018, arXiv:1805.02867 (the running maximum); Dao, Fu, Ermon, Rudra, Re 2022,
arXiv:2205.14135 (in tiles). FLOPs: 2 (D + E) for each query and each key whose tile its block sees any of.
"""

from __future__ import annotations

from picograd.codegen.builder import Builder, Context
from picograd.codegen.gpu.attention_results import PartResults, Results
from picograd.codegen.gpu.block_rows import BlockRows, Panel, walk
from picograd.codegen.gpu.thread_rows import ThreadRows
from picograd.codegen.gpu.warp_rows import WarpRows
from picograd.codegen.heads import Heads, is_there, num_blocks
from picograd.codegen.loops import over_registers, split
from picograd.device import Target
from picograd.ir.attention import Cut, as_it_is_cut, cut_of_averages, padded, part_of_keys
from picograd.ir.build import cast, compare, maximum, static_shape, unary, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, at_least_0, both, floordiv, less, minimum, mul, subtract

LOWEST = -float(2**127)  # below all scores that count, and finite: of a row that sees nothing -inf - -inf would be NaN


def emit_attention_gpu(nest: Nest, context: Context) -> None:
    """Writes an attention: GRID over parts of keys and blocks of queries.

    Of a causal attention the blocks that see most keys start first, so that no long one is left to run alone.
    """
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    assert nest.anchor is not None
    heads = Heads(as_it_is_cut(nest.anchor, target))
    H, G, T, S, _, _ = heads.lengths
    cut = cut_of_averages(heads.anchor, target)
    assert cut is not None, f"{nest.anchor} has no kernel on {target.device}"
    blocks = -(-T // cut.rows)
    slots = {output.arg: params[slot] for slot, output in nest.outputs}
    parts = PartsOfKeys(heads, cut)
    of_parts = PartResults(heads, parts.count, scratch) if parts.count > 1 else None
    if of_parts is not None:
        of_parts.emit_joined(after, target, Results(heads, slots))
    with build.loop(numel((parts.count, heads.batch, H, blocks)), AxisKind.GRID) as position:
        part, b, head, number = split(position, [parts.count, heads.batch, H, blocks])
        first = mul(subtract(blocks - 1, number), cut.rows)
        with build.loop(cut.threads, AxisKind.BLOCK) as thread:
            rows = rows_of(build, cut, heads, thread, target)
            averages = Averages(heads, rows, first, target)
            averages.q.hold((b, head), first)
            start, steps = tiles_of(parts.within(part, heads.keys_of(first, cut.rows)), cut)
            walk(rows, (averages.k, averages.v), (b, floordiv(head, H // G)), start, steps, averages.look_at)
            if of_parts is not None:
                averages.store_part(part, b, head, of_parts)
            else:
                averages.store(b, head, slots)


def rows_of(build: Builder, cut: Cut, heads: Heads, thread: Dim, target: Target) -> BlockRows:
    """Returns the rows of a block as a thread of it sees them."""
    kind = WarpRows if cut.by_warps else ThreadRows
    return kind(build, cut, heads.dtype, thread, over_registers(target))


def tiles_of(seen: tuple[Dim, Dim], cut: Cut) -> tuple[Dim, Dim]:
    """Returns the first position of the tiles that cover what is seen, and how many they are."""
    start, stop = seen
    start = mul(floordiv(start, cut.columns), cut.columns)
    return start, num_blocks(subtract(stop, start), cut.columns)


class PartsOfKeys:
    """The parts in which blocks share the keys that queries see.

    start:   the first key that any query sees, of a whole tile
    length:  keys of each part, a multiple of a tile
    count:   parts
    """

    def __init__(self, heads: Heads, cut: Cut):
        _, _, T, S, _, _ = heads.lengths
        (first,) = static_shape((heads.keys_of(0, T)[0],))
        self.start = first // cut.columns * cut.columns
        self.length = part_of_keys(heads.anchor, cut) or S
        self.count = max(1, -(-(S - self.start) // self.length))

    def within(self, part: Dim, seen: tuple[Dim, Dim]) -> tuple[Dim, Dim]:
        """Returns from which key on, and to which, a part has any of those that are seen."""
        if self.count == 1:
            return seen
        first = add(self.start, mul(part, self.length))
        start, stop = seen
        return add(first, at_least_0(subtract(start, first))), minimum(stop, add(first, self.length))


class Averages:
    """What a block knows of its queries so far.

    first:  query of the block
    peak:   greatest score of each row
    total:  a thread's part of the sum of its weights
    out:    averages so far, times the sum of the weights
    """

    def __init__(self, heads: Heads, rows: BlockRows, first: Dim, target: Target):
        q, k, v = heads.anchor.src[:3]
        self.heads, self.rows, self.first = heads, rows, first
        self.q = Panel(rows, q, rows.cut.rows, target)
        self.k, self.v = (Panel(rows, matrix, rows.cut.columns, target, is_walked=True) for matrix in (k, v))
        self.peak = rows.of_rows(lambda i: const(LOWEST, rows.dtype))
        self.total = rows.of_rows(lambda i: const(0, rows.dtype))
        self.out = rows.zeros(padded(heads.lengths[5]))

    def look_at(self, first_key: Dim) -> None:
        """Takes the tile of keys and values at hand into account."""
        rows, build, heads = self.rows, self.rows.build, self.heads
        scores = rows.scores(self.q, self.k)
        peak = rows.of_rows(lambda i: build.load(self.peak, i))

        def put_score(i: Dim, column: Dim, at: Dim) -> None:
            score, _ = heads.scaled(build.load(scores.memory, at))
            key = add(first_key, column)
            seen = heads.seen(add(self.first, rows.row(i)), key, is_there(key, heads.lengths[3], rows.cut.columns))
            score = score if seen is None else where(seen, score, const(float("-inf"), score.dtype))
            build.store(scores.memory, at, score)
            build.store(peak, i, maximum(build.load(peak, i), score))

        rows.each(scores, put_score)
        rows.join(peak, OpCode.MAX)
        factor = rows.of_rows(lambda i: heads.power(build.load(self.peak, i) - build.load(peak, i)))

        def move(i: Dim) -> None:
            build.store(self.total, i, build.load(self.total, i) * build.load(factor, i))
            build.store(self.peak, i, build.load(peak, i))

        def put_weight(i: Dim, _: Dim, at: Dim) -> None:
            weight = heads.power(build.load(scores.memory, at) - build.load(peak, i))
            build.store(scores.memory, at, weight)
            build.store(self.total, i, build.load(self.total, i) + weight)

        out = self.out.memory
        rows.each_row(move)
        rows.each(scores, put_weight)
        rows.each(self.out, lambda i, _, at: build.store(out, at, build.load(out, at) * build.load(factor, i)))
        rows.add_averages(self.out, scores, self.v)

    def store_part(self, part: Dim, b: Dim, head: Dim, results: PartResults) -> None:
        """Stores what is known after a part of the keys."""
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

    def store(self, b: Dim, head: Dim, slots: dict[int, Op]) -> None:
        """Stores averages and logarithms of sums; a query that sees nothing has 0, and -inf."""
        rows, build, heads = self.rows, self.rows.build, self.heads
        H, _, T, _, _, E = heads.lengths
        rows.join(self.total, OpCode.ADD)

        def put_sum(i: Dim) -> None:
            query = add(self.first, rows.row(i))
            with build.when(both(less(query, T), rows.is_first())):
                index = flatten((b, head, query), (heads.batch, H, T))
                build.store(slots[1], index, build.load(self.peak, i) + unary(OpCode.LOG, build.load(self.total, i)))

        def inverse(i: Dim) -> Op:
            total = build.load(self.total, i)
            return where(compare(OpCode.CMPEQ, total, 0.0), const(0, total.dtype), unary(OpCode.RECIPROCAL, total))

        def put(i: Dim, query: Dim, feature: Dim, value: Op) -> None:
            index = flatten((b, head, query, feature), (heads.batch, H, T, E))
            build.store(slots[0], index, cast(value * build.load(factor, i), heads.anchor.dtype))

        if 1 in slots:
            rows.each_row(put_sum)
        if 0 in slots:
            factor = rows.of_rows(inverse)
            rows.store(self.out, self.first, T, E, put)
