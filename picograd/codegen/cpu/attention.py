"""The loops of an attention on a CPU: scores, softmax and averages of some queries against some keys at a time.

In:    Nest (kind ATTENTION), whose anchor is an ATTENTION
Out:   one phase of statements in the free form
Called by: codegen/emit.py.    Next: picograd/codegen/cpu/attention_grad.py

Lanes run over queries. Then the scores of a key are a vector, the maximum and the sum over keys are maxima and sums of
vectors, and no lane ever needs another one's value. Keys and values are read where they lie, an element at a time into all
lanes; only queries are packed, features side by side becoming queries side by side.

    peak, total, out = lowest, 0, 0                       of each query
    for each block of keys:
        C = cap(scale k q), -inf where not visible        (keys, queries), on the stack
        next = max(peak, C)
        P = exp(C - next);   total = total exp(peak - next) + P;   out = out exp(peak - next) + v.T P;   peak = next
    out / total,   logsumexp = peak + log(total)

Source: Milakov and Gimelshein 2018, arXiv:1805.02867 (the running maximum); Dao, Fu, Ermon, Rudra, Re 2022,
arXiv:2205.14135 (in blocks). FLOPs: 2 (D + E) for each query and each key that its strip sees any of.
"""

from __future__ import annotations

from picograd.codegen.builder import Builder, Context, read
from picograd.codegen.cpu.head_strips import HeadStrips, strips_of
from picograd.codegen.heads import Element, is_there, last_at, num_blocks
from picograd.codegen.loops import along, split
from picograd.codegen.runs import longest
from picograd.ir.build import cast, compare, maximum, unary, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

LOWEST = -float(2**127)  # below all scores that count: what a score of -inf is less than is no NaN


def emit_attention(nest: Nest, context: Context) -> None:
    """Writes an attention: GRID over blocks of queries, of a causal one those first that see most keys."""
    params, target = context.params, context.target
    build = context.phase(0)
    assert nest.anchor is not None
    heads = strips_of(nest.anchor, target)
    H, G, _, _ = heads.known_lengths
    T, S = heads.num_queries, heads.num_keys
    blocks = num_blocks(T, heads.block)
    with build.loop(numel((heads.batch, H, blocks)), AxisKind.GRID) as position:
        b, head, number = split(position, [heads.batch, H, blocks])
        b = minimum(b, subtract(heads.batch, 1))  # as it is; of symbolic blocks and batches nobody could tell
        group = floordiv(head, H // G)
        first = mul(subtract(blocks - 1, number), heads.block)
        strips = Strips(heads, build, heads.element(0, b, head), first)
        k, v = heads.element(1, b, group), heads.element(2, b, group)
        start, stop = heads.keys_of(first, heads.block)
        start = mul(floordiv(start, strips.key_block), strips.key_block)
        steps = minimum(num_blocks(subtract(stop, start), strips.key_block), num_blocks(S, strips.key_block))
        with build.loop(steps, AxisKind.LOOP) as step, build.loop(strips.count, AxisKind.LOOP) as strip:
            strips.look_at(strip, add(start, mul(step, strips.key_block)), k, v)
        slots = {output.arg: params[slot] for slot, output in nest.outputs}
        with build.loop(strips.count, AxisKind.LOOP) as strip:
            strips.store(strip, b, head, slots)


class Strips:
    """A block of queries, strip by strip: packed, and what is known of them so far.

    first:      query of the block
    count:      strips that have a query
    rows:       keys of a tile
    key_block:  keys that are looked at together
    """

    def __init__(self, heads: HeadStrips, build: Builder, q: Element, first: Dim):
        _, _, D, E = heads.known_lengths
        T, most_keys = heads.num_queries, longest(heads.num_keys)
        self.heads, self.build, self.first = heads, build, first
        self.count = minimum(num_blocks(subtract(T, first), heads.width), heads.strips)
        self.rows = heads.tile_rows(most_keys)
        self.key_block = -(-min(most_keys, heads.block) // self.rows) * self.rows
        self.packed = heads.memory(build, heads.block * D)
        self.scores = heads.memory(build, self.key_block * heads.width)
        self.out = heads.memory(build, heads.block * E)
        self.peak, self.total, self.factor = (heads.memory(build, heads.block) for _ in range(3))
        heads.pack(build, 0, q, first, self.count, self.packed)
        heads.fill(build, self.out, 0, heads.block * E, 0)
        heads.fill(build, self.total, 0, heads.block, 0)
        heads.fill(build, self.peak, 0, heads.block, LOWEST)

    def _of_query(self, strip: Dim, column: Dim) -> Dim:
        """Returns where the one number of a query stands."""
        return add(mul(strip, self.heads.width), column)

    def _of_score(self, key: Dim, column: Dim) -> Dim:
        """Returns where a score of the strip at hand stands."""
        return add(mul(key, self.heads.width), column)

    def look_at(self, strip: Dim, first_key: Dim, k: Element, v: Element) -> None:
        """Takes a block of keys and values into account."""
        heads, E = self.heads, self.heads.known_lengths[3]
        _, stop = heads.keys_of(add(self.first, mul(strip, heads.width)), heads.width)
        tiles = minimum(num_blocks(subtract(stop, first_key), self.rows), self.key_block // self.rows)
        peak = self._score(strip, first_key, tiles, k)
        self._weigh(strip, mul(tiles, self.rows), peak)
        for start, count, rows in heads.tiles_of(E):
            with self.build.loop(count, AxisKind.LOOP) as index:
                self._average(strip, add(start, mul(index, rows)), rows, first_key, mul(tiles, self.rows), v)

    def _score(self, strip: Dim, first_key: Dim, tiles: Dim, k: Element) -> Op:
        """Stores the scores of some keys, and returns the greatest of each query, or what was greatest before."""
        build, heads = self.build, self.heads
        (_, _, D, _), S = heads.known_lengths, heads.num_keys
        peak = heads.tile(1).new(build, lambda _, c: build.load(self.peak, self._of_query(strip, c)))
        with build.loop(tiles, AxisKind.LOOP) as index:
            tile, row = heads.tile(self.rows), mul(index, self.rows)
            products = tile.multiply(
                build, tile.new(build), D,
                lambda i, d: k(last_at(add(first_key, add(row, i)), S, self.rows), d),
                lambda c, d: read(self.packed, heads.place(strip, D, d, c)),
            )  # fmt: skip

            def put(i: Dim, c: Dim, at: Dim) -> None:
                query, key = add(self.first, self._of_query(strip, c)), add(first_key, add(row, i))
                score, _ = heads.scaled(build.load(products, at))
                seen = heads.seen(query, key, is_there(key, S, self.rows))
                score = score if seen is None else where(seen, score, const(float("-inf"), score.dtype))
                build.store(self.scores, self._of_score(add(row, i), c), score)
                build.store(peak, c, maximum(build.load(peak, c), score))

            tile.each(build, put)
        return peak

    def _weigh(self, strip: Dim, count: Dim, peak: Op) -> None:
        """Turns the scores of some keys into weights, against a new greatest score."""
        build, single = self.build, self.heads.tile(1)
        total = single.new(build)

        def move(_: Dim, c: Dim, at: Dim) -> None:
            here = self._of_query(strip, c)
            factor = unary(OpCode.EXP, build.load(self.peak, here) - build.load(peak, at))
            build.store(self.total, here, build.load(self.total, here) * factor)
            build.store(self.factor, here, factor)
            build.store(self.peak, here, build.load(peak, at))

        single.each(build, move)
        with build.loop(count, AxisKind.LOOP) as key:

            def weigh(_: Dim, c: Dim, at: Dim) -> None:
                place = self._of_score(key, c)
                weight = unary(OpCode.EXP, build.load(self.scores, place) - build.load(peak, at))
                build.store(self.scores, place, weight)
                build.store(total, at, build.load(total, at) + weight)

            single.each(build, weigh)

        def put(_: Dim, c: Dim, at: Dim) -> None:
            here = self._of_query(strip, c)
            build.store(self.total, here, build.load(self.total, here) + build.load(total, at))

        single.each(build, put)

    def _average(self, strip: Dim, feature: Dim, rows: int, first_key: Dim, count: Dim, v: Element) -> None:
        """Adds the values of some keys to some features of the result."""
        build, heads = self.build, self.heads
        (_, _, _, E), S = heads.known_lengths, heads.num_keys
        tile = heads.tile(rows)

        def place(i: Dim, c: Dim) -> Dim:
            return heads.place(strip, E, add(feature, i), c)

        def put(i: Dim, c: Dim, at: Dim) -> None:
            before = build.load(self.out, place(i, c)) * build.load(self.factor, self._of_query(strip, c))
            build.store(self.out, place(i, c), before + build.load(sums, at))

        sums = tile.multiply(
            build, tile.new(build), count,
            lambda i, key: v(last_at(add(first_key, key), S, self.rows), add(feature, i)),
            lambda c, key: read(self.scores, self._of_score(key, c)),
        )  # fmt: skip
        tile.each(build, put)

    # ---- results ----
    def store(self, strip: Dim, b: Dim, head: Dim, slots: dict[int, Op]) -> None:
        """Stores averages and logarithms of sums; a query that sees nothing has 0, and -inf."""
        build, heads = self.build, self.heads
        (H, _, _, E), T = heads.known_lengths, heads.num_queries
        first = add(self.first, mul(strip, heads.width))
        valid = minimum(subtract(T, first), heads.width)
        if 1 in slots:

            def put_sum(c: Dim) -> None:
                total, peak = (read(memory, self._of_query(strip, c)) for memory in (self.total, self.peak))
                index = flatten((b, head, add(first, c)), (heads.batch, H, T))
                build.store(slots[1], index, peak + unary(OpCode.LOG, total))

            along(build, 0, valid, heads.lanes, put_sum)
        if 0 not in slots:
            return

        def invert(_: Dim, c: Dim, at: Dim) -> None:
            total = build.load(self.total, self._of_query(strip, c))
            inverse = where(compare(OpCode.CMPEQ, total, 0.0), const(0, total.dtype), unary(OpCode.RECIPROCAL, total))
            build.store(self.factor, self._of_query(strip, c), inverse)

        heads.tile(1).each(build, invert)
        with build.loop(valid, AxisKind.LOOP) as c:

            def put(feature: Dim) -> None:
                value = read(self.out, heads.place(strip, E, feature, c)) * read(self.factor, self._of_query(strip, c))
                index = flatten((b, head, add(first, c), feature), (heads.batch, H, T, E))
                build.store(slots[0], index, cast(value, heads.anchor.dtype))

            along(build, 0, E, heads.lanes, put)
