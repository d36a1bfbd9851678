"""How a CPU cuts the heads of an attention: strips of positions that two vectors hold, and how they are packed.

In:    an ATTENTION or ATTENTION_GRAD, Target
Out:   `HeadStrips`
Called by: codegen/cpu/attention.py, codegen/cpu/attention_grad.py.    Next: picograd/codegen/cpu/attention.py

A strip is as many positions as two vectors have lanes, side by side; a block is a few strips.
"""

from __future__ import annotations

from picograd.codegen.builder import Builder
from picograd.codegen.cpu.matmul import lanes_of
from picograd.codegen.cpu.panels import lines_apart
from picograd.codegen.heads import Element, Heads
from picograd.codegen.loops import along, in_squares, split
from picograd.codegen.tile import Tile, most_rows
from picograd.device import Target
from picograd.ir.build import static_shape, swap_last
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace
from picograd.ir.symbolic import add, at_least_0, minimum, mul, subtract

BLOCK = 64  # queries, or keys, that are looked at together; a little more where they are cut into tiles


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

    # ---- packing ----
    def pack(self, build: Builder, source: int, x: Element, first: Dim, count: Dim, memory: Op) -> None:
        """Copies `count` strips of positions from `first` on: of each feature, the positions of a strip side by side.

        A place without a position of its own gets the last one's. Square by square where features lie side by side.
        """
        length, (features,) = self.anchor.src[source].shape[2], static_shape(self.anchor.src[source].shape[3:])

        def where(place: Dim, feature: Dim) -> Dim:
            strip, column = split(place, [count, self.width])
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
    return HeadStrips(anchor, lanes_of(anchor, target), most_rows(target), target.has_fma)


def columns_of(extent: int, lanes: int) -> list[tuple[int, int, int, int]]:
    """Returns how tiles cover an extent exactly with vectors: (start, number of tiles, vectors, lanes)."""
    found, start = [], 0
    for vectors, width in ((2, lanes), (1, lanes), (1, 1)):
        count = (extent - start) // (vectors * width)
        found += [(start, count, vectors, width)] * (count > 0)
        start += count * vectors * width
    return found
