"""What kernels of an attention on a GPU store: results, or parts of them where blocks share keys, which are joined.

In:    sums over values of what a block has looked at, with the greatest score and the sum of weights of each row
Out:   `Results`;  `PartResults`, which a second phase joins:
           out = sum(out exp(peak - greatest)) / sum(total exp(peak - greatest))
Called by: codegen/gpu/attention.py, codegen/gpu/attention_few.py.    Next: picograd/codegen/gpu/attention.py

Parts are joined in their order, so that a sum has the same bits in every run.
"""

from __future__ import annotations

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.heads import Heads
from picograd.codegen.loops import grid_of_threads, split
from picograd.codegen.tile import multiply_add
from picograd.device import Target
from picograd.ir.build import cast, compare, maximum, unary, where
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import less

Row = tuple[Dim, Dim, Dim]  # position in the batch, head, query


class Results:
    """Stores averages and logarithms of sums; a query that sees nothing has 0, and -inf."""

    def __init__(self, heads: Heads, slots: dict[int, Op]):
        self.heads, self.slots = heads, slots

    def put(self, build: Builder, part: Dim, row: Row, feature: Dim, out: Op, total: Op) -> None:
        """Stores a feature of the average of a row, given its sum and that of the weights."""
        if 0 in self.slots:
            found = where(compare(OpCode.CMPEQ, total, 0.0), const(0, out.dtype), out / total)
            index = flatten((*row, feature), self.heads.anchor.shape)
            build.store(self.slots[0], index, cast(found, self.heads.anchor.dtype))

    def put_row(self, build: Builder, part: Dim, row: Row, peak: Op, total: Op) -> None:
        """Stores the logarithm of the sum of a row's powers."""
        if 1 in self.slots:
            build.store(self.slots[1], flatten(row, self.heads.anchor.shape[:3]), peak + unary(OpCode.LOG, total))


class PartResults:
    """What blocks leave of parts of the keys, in scratch memory.

    count:  parts
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
        """Writes the second phase: a thread an element of the result, which joins its parts in order."""
        with grid_of_threads(build, numel(self.shape[1:]), target) as position:
            b, head, query, feature = split(position, self.shape[1:])
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
