"""An attention on a CPU, and its gradients: online softmax over blocks of keys, no score in memory.

A strip is as many positions as two vectors have lanes; a block is a few strips. Packed positions are contiguous.

Attention: lanes run over queries. So the scores of a key are a vector, the maximum and the sum over keys are maxima and
sums of vectors, and no lane needs the value of another. Keys and values are read from the memory that has them, one
element into all lanes; only queries are packed, that is transposed from contiguous features to contiguous queries.

    peak, total, out = lowest, 0, 0                       of each query
    for each block of keys:
        C = cap(scale k q), -inf where not visible        (keys, queries), on the stack
        next = max(peak, C)
        P = exp(C - next);   total = total exp(peak - next) + P;   out = out exp(peak - next) + v.T P;   peak = next
    out / total,   logsumexp = peak + log(total)

Source: Milakov and Gimelshein 2018, arXiv:1805.02867 (the running maximum); Dao, Fu, Ermon, Rudra, Re 2022,
arXiv:2205.14135 (in blocks). FLOPs: 2 (D + E) for each query and each key that its strip sees any of.

Gradients: lanes run over keys, and keys and values are packed. All three gradients come from one walk over blocks:

    for each head of keys, for each block of keys:  dk, dv = 0, 0       on the stack, packed
        for each head of queries that shares them, for each block of queries that see any:
            P = exp(cap(scale q k) - logsumexp), 0 where not visible    (queries, keys), on the stack
            dS = scale P (grad v - delta) (1 - tanh^2 where capped)
            dv += grad.T P;   dk += q.T dS;   dq += dS k                dq is in memory, a sum over blocks of keys

These are five products; a kernel that keeps the scores has four, and reads and writes the scores five times. Blocks of
keys add to dq one after the other, always in the same order.

Source: Dao, Fu, Ermon, Rudra, Re 2022, arXiv:2205.14135, algorithm 4. FLOPs: 2 (3 D + 2 E) a query and key.
"""

from __future__ import annotations

from collections.abc import Callable

from picograd.codegen.attention import DK, DQ, DV, LOWEST, Dropout, Element, Heads, is_there, last_at, num_blocks
from picograd.codegen.builder import Builder, Context, read
from picograd.codegen.loops import along, in_squares, longest
from picograd.codegen.matmul import Tile, most_rows
from picograd.codegen.panels import lines_apart
from picograd.codegen.reduce import PIECE_ELEMENTS
from picograd.device import Target
from picograd.ir.build import cast, differs, maximum, static_shape, swap_last, unary, where
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.stages import Nest
from picograd.ir.symbolic import add, at_least_0, ceildiv, flatten, floordiv, minimum, mul, subtract, unflatten

# ---- strips of positions ----
BLOCK_POSITIONS = 64  # queries, or keys, that are looked at together; a little more where they are cut into tiles


class HeadStrips(Heads):
    """The lengths of an ATTENTION or ATTENTION_GRAD, and how it is cut.

    lanes:    of a vector
    most:     rows of a tile, of two vectors: 12 accumulators of 16 registers, 24 of 32
    has_fma:  an instruction multiplies and adds
    """

    lanes: int
    most: int
    has_fma: bool

    @property
    def known_lengths(self) -> tuple[int, int, int, int]:
        """H, G, D, E, which must be known; how many queries and keys there are need not."""
        q, k, v = (source.shape for source in self.anchor.src[:3])
        H, G, D, E = static_shape((q[1], k[1], q[3], v[3]))
        return H, G, D, E

    # ---- how it is cut ----
    @property
    def width(self) -> int:
        """Positions of a strip."""
        return 2 * self.lanes

    @property
    def strips(self) -> int:
        """Strips of a block."""
        return max(1, BLOCK_POSITIONS // self.width)

    @property
    def block(self) -> int:
        """Positions of a block of strips."""
        return self.strips * self.width

    def tile(self, rows: int, vectors: int = 2, lanes: int = 0) -> Tile:
        return Tile(rows, vectors, lanes or self.lanes, self.dtype, self.has_fma)

    def tile_rows(self, extent: int) -> int:
        """Returns the rows of tiles that cover an extent, or a block of it, with few rows too many; not fewer than 4."""
        short = min(extent, BLOCK_POSITIONS)
        return min(range(self.most, 3, -1), key=lambda rows: ceildiv(short, rows) * rows) if short > 3 else short

    def tiles_of(self, extent: int) -> list[tuple[int, int, int]]:
        """Returns how tiles cover an extent exactly: (start, number of tiles, rows of each)."""
        whole = extent // self.most
        found = [(0, whole, self.most), (whole * self.most, 1, extent - whole * self.most)]
        return [(start, count, rows) for start, count, rows in found if count and rows]

    def memory(self, build: Builder, numel: int) -> Op:
        """Makes memory on the stack."""
        return build.alloc(self.dtype, numel, MemorySpace.SHARED)

    def fill(self, build: Builder, memory: Op, start: Dim, count: Dim, value: float) -> None:
        """Stores a number `count` times, from `start` on."""
        number = const(value, memory.dtype)
        along(build, start, count, self.lanes, lambda i: build.store(memory, i, number))

    # ---- packing ----
    def pack(self, build: Builder, source: int, x: Element, first: Dim, count: Dim, memory: Op) -> None:
        """Copies `count` strips of positions from `first` on: the positions of a strip are contiguous for each feature.

        A place without a position of its own gets the last one's. Square by square where features are contiguous.
        """
        length, (features,) = self.anchor.src[source].shape[2], static_shape(self.anchor.src[source].shape[3:])

        def where(place: Dim, feature: Dim) -> Dim:
            strip, column = unflatten(place, [count, self.width])
            return self.place(minimum(strip, self.strips - 1), features, feature, column)

        def one(place: Dim, feature: Dim) -> None:
            build.store(memory, where(place, feature), x(minimum(add(first, place), subtract(length, 1)), feature))

        apart = lines_apart(swap_last(self.anchor.src[source]), self.dtype, self.lanes)
        own = 0 if apart is None else at_least_0(minimum(subtract(length, first), mul(count, self.width)))

        if apart is not None:

            def square(place: Dim, feature: Dim) -> None:
                load = x(add(first, place), feature)
                build.transpose(memory, where(place, feature), self.width, load.src[0], load.src[1], apart, self.lanes)

            in_squares(build, own, features, self.lanes, square, one)
        with build.loop(subtract(mul(count, self.width), own), AxisKind.LOOP) as place:
            along(build, 0, features, self.lanes, lambda feature: one(add(own, place), feature))

    def place(self, strip: Dim, features: int, feature: Dim, column: Dim) -> Dim:
        """Returns where packed strips have a feature of a position."""
        return add(mul(add(mul(strip, features), feature), self.width), column)


def strips_of(anchor: Op, target: Target) -> HeadStrips:
    """Returns how the loops of an ATTENTION or ATTENTION_GRAD are cut."""
    return HeadStrips(anchor, target.sum_lanes(anchor.dtype), most_rows(target), target.has_fma)


def columns_of(extent: int, lanes: int) -> list[tuple[int, int, int, int]]:
    """Returns how tiles cover an extent exactly with vectors: (start, number of tiles, vectors, lanes)."""
    found, start = [], 0
    for vectors, width in ((2, lanes), (1, lanes), (1, 1)):
        count = (extent - start) // (vectors * width)
        found += [(start, count, vectors, width)] * (count > 0)
        start += count * vectors * width
    return found


# ---- attention ----


def emit_attention(nest: Nest, context: Context) -> None:
    """Writes an attention: GRID over blocks of queries, of a causal one those first that see most keys."""
    params, target = context.params, context.target
    build = context.phase(0)
    heads = strips_of(nest.anchor, target)
    H, G, _, _ = heads.known_lengths
    T, S = heads.num_queries, heads.num_keys
    blocks = num_blocks(T, heads.block)
    with build.loop(numel((heads.batch, H, blocks)), AxisKind.GRID) as position:
        b, head, number = unflatten(position, [heads.batch, H, blocks])
        b = minimum(b, subtract(heads.batch, 1))  # as it is; of symbolic blocks and batches that cannot be told
        group = floordiv(head, H // G)
        first = mul(subtract(blocks - 1, number), heads.block)
        strips = Strips(heads, build, heads.element(0, b, head), first)
        k, v, drop = heads.element(1, b, group), heads.element(2, b, group), heads.dropout(b, head)
        start, stop = heads.keys_of(first, heads.block)
        start = mul(floordiv(start, strips.key_block), strips.key_block)
        steps = minimum(num_blocks(subtract(stop, start), strips.key_block), num_blocks(S, strips.key_block))
        with build.loop(steps, AxisKind.LOOP) as step, build.loop(strips.count, AxisKind.LOOP) as strip:
            strips.look_at(strip, add(start, mul(step, strips.key_block)), k, v, drop)
        slots = {output.arg: params[slot] for slot, output in nest.outputs}
        with build.loop(strips.count, AxisKind.LOOP) as strip:
            strips.store(strip, b, head, slots)


class Strips:
    """A block of queries, strip by strip: packed, with their running maxima, sums and averages.

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
        self.key_block = ceildiv(min(most_keys, heads.block), self.rows) * self.rows
        self.packed = heads.memory(build, heads.block * D)
        self.scores = heads.memory(build, self.key_block * heads.width)
        self.out = heads.memory(build, heads.block * E)
        self.peak, self.total, self.factor = (heads.memory(build, heads.block) for _ in range(3))
        heads.pack(build, 0, q, first, self.count, self.packed)
        heads.fill(build, self.out, 0, heads.block * E, 0)
        heads.fill(build, self.total, 0, heads.block, 0)
        heads.fill(build, self.peak, 0, heads.block, LOWEST)

    def _of_query(self, strip: Dim, column: Dim) -> Dim:
        """Returns the place of a number that each query has one of."""
        return add(mul(strip, self.heads.width), column)

    def _of_score(self, key: Dim, column: Dim) -> Dim:
        """Returns the place of a score of the current strip."""
        return add(mul(key, self.heads.width), column)

    def look_at(self, strip: Dim, first_key: Dim, k: Element, v: Element, drop: Dropout) -> None:
        """Takes a block of keys and values into account."""
        heads, E = self.heads, self.heads.known_lengths[3]
        _, stop = heads.keys_of(add(self.first, mul(strip, heads.width)), heads.width)
        tiles = minimum(num_blocks(subtract(stop, first_key), self.rows), self.key_block // self.rows)
        peak = self._score(strip, first_key, tiles, k)
        self._weigh(strip, first_key, mul(tiles, self.rows), peak, drop)
        for start, count, rows in heads.tiles_of(E):
            with self.build.loop(count, AxisKind.LOOP) as index:
                self._average(strip, add(start, mul(index, rows)), rows, first_key, mul(tiles, self.rows), v)

    def _score(self, strip: Dim, first_key: Dim, tiles: Dim, k: Element) -> Op:
        """Stores the scores of some keys, and returns the largest of each query, or what was greatest before."""
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
                score = heads.score(build.load(products, at), query, key, is_there(key, S, self.rows))
                build.store(self.scores, self._of_score(add(row, i), c), score)
                build.store(peak, c, maximum(build.load(peak, c), score))

            tile.each(build, put)
        return peak

    def _weigh(self, strip: Dim, first_key: Dim, count: Dim, peak: Op, drop: Dropout) -> None:
        """Turns the scores of some keys into weights, against a new greatest score; their sum has the dropped, too."""
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
                query = add(self.first, self._of_query(strip, c))
                weight = unary(OpCode.EXP, build.load(self.scores, place) - build.load(peak, at))
                build.store(self.scores, place, drop(query, add(first_key, key))(weight))
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
            place = self._of_query(strip, c)
            build.store(self.factor, place, heads.inverse(build.load(self.total, place)))

        heads.tile(1).each(build, invert)
        with build.loop(valid, AxisKind.LOOP) as c:

            def put(feature: Dim) -> None:
                value = read(self.out, heads.place(strip, E, feature, c)) * read(self.factor, self._of_query(strip, c))
                index = flatten((b, head, add(first, c), feature), (heads.batch, H, T, E))
                build.store(slots[0], index, cast(value, heads.anchor.dtype))

            along(build, 0, E, heads.lanes, put)


# ---- gradients ----
UNITS_MIN = 4  # iterations of GRID at least, where heads are few and keys are many


def emit_attention_grad(nest: Nest, context: Context) -> None:
    """Writes the gradients of an attention: GRID over heads of keys, and over parts of the keys of few heads.

    Each part has a dq of its own, and these are added up in order: in a second phase, or, where a batch makes iterations
    enough, by each of them, which takes one part after the other. The bits are the same.
    """
    params, target, scratch = context.params, context.target, context.scratch
    build, after = context.phase(0), context.phase(1)
    heads = strips_of(nest.anchor, target)
    (H, G, D, _), T = heads.known_lengths, heads.num_queries
    slots = {output.arg: params[slot] for slot, output in nest.outputs}
    parts, length, dq = num_parts(heads), numel((heads.batch, H, T, D)), slots.get(DQ)
    beside = parts if isinstance(heads.batch, int) and heads.batch * G < UNITS_MIN else 1  # parts in different iterations
    own = dq if dq is None or parts == 1 else scratch(heads.dtype, mul(length, beside))
    with build.loop(numel((heads.batch, G, beside)), AxisKind.GRID) as position:
        b, group, first_part = unflatten(position, [heads.batch, G, beside])
        start, count = flatten((b, mul(group, H // G), 0, 0), (heads.batch, H, T, D)), mul(T, H // G * D)
        offset = mul(first_part, length)
        keys = Keys(heads, build, b, group)
        if dq is not None and beside < parts:
            heads.fill(build, dq, start, count, 0)
        with build.loop(parts // beside, AxisKind.LOOP) as step:
            if own is not None:
                heads.fill(build, own, add(offset, start), count, 0)
            keys.take(add(first_part, step), parts, own, offset, slots)
            if dq is not None and own is not None and beside < parts:
                whole, part = dq, own
                along(build, start, count, heads.lanes, lambda i: build.store(whole, i, read(whole, i) + read(part, i)))
    if dq is not None and own is not None and beside > 1:
        _add_up(heads, after, own, parts, dq)


def num_parts(heads: HeadStrips) -> int:
    """Returns in how many parts the keys of a head are taken: bits depend on it, so neither threads nor a batch decide.

    Nor does a length that is no shorter than a block, so that a symbolic one has the same parts; those without keys add 0.
    """
    return 1 if longest(heads.num_keys) < heads.block else ceildiv(UNITS_MIN, heads.known_lengths[1])


def _add_up(heads: HeadStrips, build: Builder, partial: Op, parts: int, dq: Op) -> None:
    """Adds up the dq of the parts, some thousand elements in an iteration of GRID."""
    (H, _, D, _), T = heads.known_lengths, heads.num_queries
    length = numel((heads.batch, H, T, D))
    with build.loop(ceildiv(length, PIECE_ELEMENTS), AxisKind.GRID) as piece:
        first = mul(piece, PIECE_ELEMENTS)

        def put(i: Dim) -> None:
            total = read(partial, i)
            for part in range(1, parts):
                total = total + read(partial, add(mul(length, part), i))
            build.store(dq, i, cast(total, heads.anchor.dtype))

        along(build, first, minimum(subtract(length, first), PIECE_ELEMENTS), heads.lanes, put)


class Queries:
    """The operands of the queries of one head: q, the gradient of the result, logsumexp and delta; and memory for dq.

    offset:  of the dq of the part at hand
    """

    def __init__(self, heads: HeadStrips, b: Dim, head: Dim, dq: Op | None, offset: Dim):
        (H, _, D, _), T = heads.known_lengths, heads.num_queries
        self.q, self.grad = heads.element(0, b, head), heads.element(3, b, head)
        self.logsumexp, self.delta = heads.row(4, b, head), heads.row(5, b, head)
        self.drop = heads.dropout(b, head)
        self.dq = dq
        self.where: Callable[[Dim, Dim], Dim] = lambda t, d: add(offset, flatten((b, head, t, d), (heads.batch, H, T, D)))


class Keys:
    """A block of keys and values, strip by strip: packed, and the sums of their gradients so far.

    first:        key of the block
    count:        strips that have a key
    rows:         queries of a tile
    query_block:  queries that are looked at together
    """

    def __init__(self, heads: HeadStrips, build: Builder, b: Dim, group: Dim):
        _, _, D, E = heads.known_lengths
        most_queries = longest(heads.num_queries)
        self.heads, self.build, self.b, self.group = heads, build, b, group
        self.key, self.value = heads.element(1, b, group), heads.element(2, b, group)
        self.rows = heads.tile_rows(most_queries)
        self.query_block = ceildiv(min(most_queries, heads.block), self.rows) * self.rows
        self.k, self.dk = (heads.memory(build, heads.block * D) for _ in range(2))
        self.v, self.dv = (heads.memory(build, heads.block * E) for _ in range(2))
        self.weights = heads.memory(build, self.query_block * heads.width)  # P, of the strip at hand
        self.grad_scores = heads.memory(build, self.query_block * heads.block)  # dS, of the block
        self.sums = heads.memory(build, self.rows * heads.width)  # of a tile of dq

    def take(self, part: Dim, parts: int, dq: Op | None, offset: Dim, slots: dict[int, Op]) -> None:
        """Does every `parts`-th block of keys, from number `part` on.

        Args:
          dq, offset:  memory of the gradients of queries, and where those of the part at hand begin
        """
        build, heads = self.build, self.heads
        H, G, _, _ = heads.known_lengths
        blocks = num_blocks(heads.num_keys, heads.block)
        with build.loop(ceildiv(subtract(blocks, part), parts), AxisKind.LOOP) as number:
            self.begin(mul(add(mul(number, parts), part), heads.block))
            first, stop = heads.queries_of(self.first, heads.block)
            first = mul(floordiv(first, self.rows), self.rows)
            most = num_blocks(heads.num_queries, self.query_block)
            steps = minimum(num_blocks(subtract(stop, first), self.query_block), most)
            with build.loop(H // G, AxisKind.LOOP) as index:
                queries = Queries(heads, self.b, add(mul(self.group, H // G), index), dq, offset)
                with build.loop(steps, AxisKind.LOOP) as step:
                    self.look_at(queries, add(first, mul(step, self.query_block)))
            self.store(slots)

    def begin(self, first: Dim) -> None:
        """Packs the block of keys from `first` on."""
        build, heads = self.build, self.heads
        _, _, D, E = heads.known_lengths
        self.first = first
        self.count = minimum(num_blocks(subtract(heads.num_keys, first), heads.width), heads.strips)
        heads.pack(build, 1, self.key, first, self.count, self.k)
        heads.pack(build, 2, self.value, first, self.count, self.v)
        heads.fill(build, self.dk, 0, heads.block * D, 0)
        heads.fill(build, self.dv, 0, heads.block * E, 0)

    def _of_weight(self, query: Dim, column: Dim) -> Dim:
        return add(mul(query, self.heads.width), column)

    def _of_score(self, query: Dim, key: Dim) -> Dim:
        return add(mul(query, self.heads.block), key)

    def _inside(self, query: Dim) -> Dim:
        return last_at(query, self.heads.num_queries, self.rows)

    # ---- a block of queries ----
    def look_at(self, queries: Queries, first: Dim) -> None:
        """Adds what a block of queries gives to the gradients of this block of keys, and the other way round."""
        build, T = self.build, self.heads.num_queries
        tiles = minimum(num_blocks(subtract(T, first), self.rows), self.query_block // self.rows)
        with build.loop(self.count, AxisKind.LOOP) as strip:
            self._look_from(queries, first, tiles, strip)
        if queries.dq is not None:
            with build.loop(tiles, AxisKind.LOOP) as index:
                self._move_queries(queries, first, mul(index, self.rows))

    def _look_from(self, queries: Queries, first: Dim, tiles: Dim, strip: Dim) -> None:
        """Adds what those queries of a block give that see any key of a strip."""
        build, heads = self.build, self.heads
        column = mul(strip, heads.width)
        begin, _ = heads.queries_of(add(self.first, column), heads.width)
        unseen = minimum(floordiv(at_least_0(subtract(begin, first)), self.rows), tiles)
        seen = subtract(tiles, unseen)
        with build.loop(seen, AxisKind.LOOP) as index:
            self._weigh(queries, first, mul(add(unseen, index), self.rows), strip)
        start = mul(unseen, self.rows)

        def weight(c: Dim, t: Dim) -> Op:
            return read(self.weights, self._of_weight(add(start, t), c))

        def grad_score(c: Dim, t: Dim) -> Op:
            return read(self.grad_scores, self._of_score(add(start, t), add(column, c)))

        def grad(t: Dim, e: Dim) -> Op:
            return queries.grad(self._inside(add(first, add(start, t))), e)

        def q(t: Dim, d: Dim) -> Op:
            return queries.q(self._inside(add(first, add(start, t))), d)

        count = mul(seen, self.rows)
        self._add(self.dv, heads.known_lengths[3], grad, weight, count, strip)
        self._add(self.dk, heads.known_lengths[2], q, grad_score, count, strip)

    def _weigh(self, queries: Queries, first: Dim, row: Dim, strip: Dim) -> None:
        """Stores the weights of a tile of queries and keys, and the gradients of their scores."""
        build, heads = self.build, self.heads
        (_, _, D, E), T = heads.known_lengths, heads.num_queries
        tile, column = heads.tile(self.rows), mul(strip, heads.width)

        def query(i: Dim) -> Dim:
            return self._inside(add(first, add(row, i)))

        def put_weight(i: Dim, c: Dim, at: Dim) -> None:
            score, bent = heads.scaled(build.load(products, at))
            weight = unary(OpCode.EXP, score - queries.logsumexp(query(i)))
            t, s = add(first, add(row, i)), add(self.first, add(column, c))
            seen = heads.seen(t, s, is_there(t, T, self.rows))
            weight = weight if seen is None else where(seen, weight, const(0, weight.dtype))
            grad_score = weight * heads.arg.scale
            grad_score = grad_score if bent is None else grad_score * (bent.filled(1) - bent * bent)
            build.store(self.weights, self._of_weight(add(row, i), c), queries.drop(t, s)(weight))
            build.store(self.grad_scores, self._of_score(add(row, i), add(column, c)), grad_score)

        def put_slope(i: Dim, c: Dim, at: Dim) -> None:
            place = self._of_score(add(row, i), add(column, c))
            grad_weight = build.load(gradients, at)
            if heads.arg.dropout:  # a weight is 0 where it was dropped, or where its slope is 0 in any case
                weight = build.load(self.weights, self._of_weight(add(row, i), c))
                grad_weight = heads.where_kept(differs(weight, 0.0), grad_weight)
            slope = build.load(self.grad_scores, place) * (grad_weight - queries.delta(query(i)))
            build.store(self.grad_scores, place, slope)

        products = tile.multiply(
            build, tile.new(build), D,
            lambda i, d: queries.q(query(i), d),
            lambda c, d: read(self.k, heads.place(strip, D, d, c)),
        )  # fmt: skip
        tile.each(build, put_weight)
        gradients = tile.multiply(
            build, tile.new(build), E,
            lambda i, e: queries.grad(query(i), e),
            lambda c, e: read(self.v, heads.place(strip, E, e, c)),
        )  # fmt: skip
        tile.each(build, put_slope)

    def _add(self, memory: Op, features: int, x: Element, factor: Element, count: Dim, strip: Dim) -> None:
        """Adds the sum over `count` queries of x times their factors to the packed gradients of a strip."""
        for start, tiles, rows in self.heads.tiles_of(features):
            with self.build.loop(tiles, AxisKind.LOOP) as index:
                feature = add(start, mul(index, rows))
                self._add_tile(memory, features, x, factor, count, strip, feature, rows)

    def _add_tile(
        self, memory: Op, features: int, x: Element, factor: Element, count: Dim, strip: Dim, feature: Dim, rows: int
    ) -> None:
        """Adds the products of `count` rows to one register tile of the totals in `memory`."""
        build, tile = self.build, self.heads.tile(rows)

        def place(i: Dim, c: Dim) -> Dim:
            return self.heads.place(strip, features, add(feature, i), c)

        def put(i: Dim, c: Dim, at: Dim) -> None:
            build.store(memory, place(i, c), build.load(memory, place(i, c)) + build.load(sums, at))

        sums = tile.multiply(build, tile.new(build), count, lambda i, t: x(t, add(feature, i)), factor)
        tile.each(build, put)

    # ---- the gradients of queries ----
    def _move_queries(self, queries: Queries, first: Dim, row: Dim) -> None:
        """Adds what this block of keys gives to the gradients of a tile of queries."""
        D = self.heads.known_lengths[2]
        _, stop = self.heads.keys_of(add(first, row), self.rows)
        count = minimum(at_least_0(subtract(stop, self.first)), self.heads.block)
        for start, tiles, vectors, lanes in columns_of(D, self.heads.lanes):
            with self.build.loop(tiles, AxisKind.LOOP) as index:
                tile = self.heads.tile(self.rows, vectors, lanes)
                self._move_tile(queries, first, row, add(start, mul(index, tile.columns)), count, tile)

    def _move_tile(self, queries: Queries, first: Dim, row: Dim, feature: Dim, count: Dim, tile: Tile) -> None:
        """Adds to a tile of dq, by way of the stack: of its queries not all may be there."""
        build, heads, dq = self.build, self.heads, queries.dq
        assert dq is not None
        T, S = heads.num_queries, heads.num_keys
        sums = tile.multiply(
            build, tile.new(build), count,
            lambda i, s: read(self.grad_scores, self._of_score(add(row, i), s)),
            lambda c, s: self.key(minimum(add(self.first, s), subtract(S, 1)), add(feature, c)),
        )  # fmt: skip
        tile.each(build, lambda i, c, at: build.store(self.sums, at, build.load(sums, at)))
        with build.loop(minimum(subtract(T, add(first, row)), self.rows), AxisKind.LOOP) as i:

            def put(c: Dim) -> None:
                place = queries.where(add(first, add(row, i)), add(feature, c))
                build.store(dq, place, build.load(dq, place) + read(self.sums, add(mul(i, tile.columns), c)))

            along(build, 0, tile.columns, tile.lanes, put)

    # ---- the gradients of keys and values ----
    def store(self, slots: dict[int, Op]) -> None:
        """Stores the gradients of the block of keys."""
        _, _, D, E = self.heads.known_lengths
        for number, memory, features in ((DK, self.dk, D), (DV, self.dv, E)):
            if number in slots:
                self._store(memory, features, slots[number])

    def _store(self, memory: Op, features: int, out: Op) -> None:
        """Stores the totals of this block of keys in the result, in its dtype."""
        build, heads = self.build, self.heads
        G, S = heads.known_lengths[1], heads.num_keys
        with build.loop(minimum(subtract(S, self.first), heads.block), AxisKind.LOOP) as key:
            strip, column = unflatten(key, [heads.strips, heads.width])

            def put(feature: Dim) -> None:
                value = read(memory, heads.place(strip, features, feature, column))
                index = flatten((self.b, self.group, add(self.first, key), feature), (heads.batch, G, S, features))
                build.store(out, index, cast(value, heads.anchor.dtype))

            along(build, 0, features, heads.lanes, put)
