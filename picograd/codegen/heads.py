"""What the kernels of an attention have in common: lengths, blocks, who sees whom, and how strips are packed.

In:    an ATTENTION or ATTENTION_GRAD, Target
Out:   `Heads`
Called by: codegen/attention.py, codegen/attention_grad.py.    Next: picograd/codegen/attention.py

Letters: B batch, H heads, G heads of keys and values (H / G heads share one), T queries, S keys, D features of queries and
keys, E of values. Query t stands at position t + S - T among the keys.

A strip is as many positions as two vectors have lanes, side by side; a block is a few strips.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from picograd import dtype as dtypes
from picograd.codegen.builder import Builder
from picograd.codegen.index import element_within
from picograd.codegen.loops import along, in_squares, split
from picograd.codegen.matmul import lanes_of
from picograd.codegen.panels import lines_apart
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import Tile, most_rows
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import both, cast, compare, static_shape, swap_last, unary
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import AttentionArg
from picograd.ir.symbolic import add, at_least_0, floordiv, less, minimum, mul, subtract, to_op

BLOCK = 64  # queries, or keys, that are looked at together; a little more where they are cut into tiles

Element = Callable[[Dim, Dim], Op]  # (position, feature) -> an element of q, k, v or a gradient, of one head


@dataclass(frozen=True)
class Heads:
    """The lengths of an ATTENTION or ATTENTION_GRAD, and how it is cut.

    anchor:   q (B, H, T, D), k (B, G, S, D), v (B, G, S, E), ...
    lanes:    of a vector
    most:     rows of a tile, of two vectors: 12 accumulators of 16 registers, 24 of 32
    has_fma:  an instruction multiplies and adds
    """

    anchor: Op
    lanes: int
    most: int
    has_fma: bool

    @property
    def arg(self) -> AttentionArg:
        found: AttentionArg = self.anchor.arg
        return found

    @property
    def batch(self) -> Dim:
        return self.anchor.src[0].shape[0]

    @cached_property
    def sizes(self) -> tuple[int, int, int, int, int, int]:
        """H, G, T, S, D, E."""
        (_, heads, queries, features), (_, groups, keys, _), (*_, values) = (s.shape for s in self.anchor.src[:3])
        found = (heads, groups, queries, keys, features, values)
        assert all(isinstance(length, int) for length in found), "an attention of unknown lengths has no kernel"
        return found  # type: ignore[return-value]

    @property
    def dtype(self) -> DType:
        """In which dtype all is computed."""
        return accumulator_dtype(self.anchor)

    @property
    def ahead(self) -> int:
        """At which position query 0 stands."""
        _, _, T, S, _, _ = self.sizes
        return S - T

    # ---- how it is cut ----
    @property
    def width(self) -> int:
        """Positions of a strip."""
        return 2 * self.lanes

    @property
    def strips(self) -> int:
        """Strips of a block of positions side by side."""
        return max(1, BLOCK // self.width)

    @property
    def block(self) -> int:
        """Positions of a block of strips."""
        return self.strips * self.width

    def tile(self, rows: int, vectors: int = 2, lanes: int = 0) -> Tile:
        return Tile(rows, vectors, lanes or self.lanes, self.dtype, self.has_fma)

    def tile_rows(self, extent: int) -> int:
        """Returns the rows of tiles that cover an extent, or a block of it, with few rows too many; not fewer than 4."""
        short = min(extent, BLOCK)
        return min(range(self.most, 3, -1), key=lambda rows: -(-short // rows) * rows) if short > 3 else short

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

    # ---- what is read ----
    def element(self, source: int, b: Dim, head: Dim) -> Element:
        """Returns how to read an element of one of the sources."""
        value = self.anchor.src[source]
        return lambda position, feature: cast(element_within(value, (b, head, position, feature)), self.dtype)

    def row(self, source: int, b: Dim, head: Dim) -> Callable[[Dim], Op]:
        """Returns how to read the one number of each query that one of the sources has."""
        value = self.anchor.src[source]
        return lambda query: cast(element_within(value, (b, head, query)), self.dtype)

    def pack(self, build: Builder, source: int, x: Element, first: Dim, count: Dim, memory: Op) -> None:
        """Copies `count` strips of positions from `first` on: of each feature, the positions of a strip side by side.

        A place without a position of its own gets the last one's. Square by square where features lie side by side.
        """
        length, features = static_shape(self.anchor.src[source].shape[2:])

        def where(place: Dim, feature: Dim) -> Dim:
            strip, column = split(place, [count, self.width])
            return self.place(strip, features, feature, column)

        def one(place: Dim, feature: Dim) -> None:
            build.store(memory, where(place, feature), x(minimum(add(first, place), length - 1), feature))

        apart = lines_apart(swap_last(self.anchor.src[source]), self.dtype, self.lanes)
        own = 0 if apart is None else minimum(subtract(length, first), mul(count, self.width))

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

    # ---- scores ----
    def scaled(self, product: Op) -> tuple[Op, Op | None]:
        """Returns the score of a product of a query and a key, and tanh(scale * product / cap) where there is a cap."""
        score, cap = product * self.arg.scale, self.arg.soft_cap
        if not cap:
            return score, None
        bent = unary(OpCode.TANH, score / cap)
        return bent * cap, bent

    def seen(self, query: Dim, key: Dim, is_inside: Op | bool) -> Op | None:
        """Returns where a query sees a key, compared in integers as wide as a float32; None: everywhere.

        Args:
          is_inside: both are there at all
        """
        t, s = (cast(to_op(position), dtypes.int32) for position in (query, key))
        conditions = [is_inside] if isinstance(is_inside, Op) else []
        if self.arg.causal:
            conditions.append(compare(OpCode.CMPLE, s, t + self.ahead))
        if self.arg.window:
            conditions.append(compare(OpCode.CMPLT, t + self.ahead, s + self.arg.window))
        found: Op | None = None
        for condition in conditions:
            found = condition if found is None else both(found, condition)
        return found

    def keys_of(self, first: Dim, count: int) -> tuple[Dim, Dim]:
        """Returns from which key on, and to which, some of these queries see any."""
        _, _, T, S, _, _ = self.sizes
        start: Dim = 0
        stop: Dim = S
        if self.arg.causal:
            stop = minimum(at_least_0(add(minimum(add(first, count), T), self.ahead)), S)
        if self.arg.window:
            start = minimum(at_least_0(add(first, self.ahead + 1 - self.arg.window)), S)
        return start, stop

    def queries_of(self, first: Dim, count: int) -> tuple[Dim, Dim]:
        """Returns from which query on, and to which, any sees some of these keys."""
        _, _, T, S, _, _ = self.sizes
        start: Dim = 0
        stop: Dim = T
        if self.arg.causal:
            start = minimum(at_least_0(subtract(first, self.ahead)), T)
        if self.arg.window:
            last = add(minimum(add(first, count), S), self.arg.window - 1 - self.ahead)
            stop = minimum(at_least_0(last), T)
        return start, stop


def heads_of(anchor: Op, target: Target) -> Heads:
    """Returns how the loops of an ATTENTION or ATTENTION_GRAD are cut."""
    return Heads(anchor, lanes_of(anchor, target), most_rows(target), target.has_fma)


def num_blocks(length: Dim, block: int) -> Dim:
    """Returns how many blocks it takes to cover a length; none for a negative one."""
    return floordiv(add(at_least_0(length), block - 1), block)


def last_at(position: Dim, length: int, step: int) -> Dim:
    """Returns a position, or the last there is for one behind it; none is in tiles of `step` that fit the length."""
    return position if length % step == 0 else minimum(position, length - 1)


def is_there(position: Dim, length: int, step: int) -> Op | bool:
    """Returns whether there is a position; all are in tiles of `step` that fit the length."""
    return length % step == 0 or less(position, length)


def columns_of(extent: int, lanes: int) -> list[tuple[int, int, int, int]]:
    """Returns how tiles cover an extent exactly with vectors: (start, number of tiles, vectors, lanes)."""
    found, start = [], 0
    for vectors, width in ((2, lanes), (1, lanes), (1, 1)):
        count = (extent - start) // (vectors * width)
        found += [(start, count, vectors, width)] * (count > 0)
        start += count * vectors * width
    return found
