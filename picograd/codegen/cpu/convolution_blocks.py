"""How a convolution is cut on a CPU: blocks of K, of output channels, and of vectors of positions.

In:    a CONV Op, Target
Out:   `Blocks`
Called by: codegen/cpu/convolution.py.    Next: picograd/codegen/cpu/convolution.py

Where one row of positions fills most lanes of its vectors, vectors start at its start: what they read lies side by side.
Else they run on over the positions of all images.
"""

from __future__ import annotations

from picograd.codegen.cpu.matmul import lanes_of
from picograd.codegen.cpu.register_tiles import rows_and_vectors
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import most_alike, most_rows, num_parts
from picograd.codegen.windows import Windows
from picograd.device import Target
from picograd.dtype import DType
from picograd.forks import cached_property
from picograd.ir.coordinates import unflatten
from picograd.ir.op import Dim, Op
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, both, floordiv, less, minimum, mod, mul, subtract
from picograd.record import Record

MOST_K = 288  # of one block: 32 channels of 3 x 3 taps
MOST_ROWS = 132  # output channels of one block: panels of 12, 6 or 4; 149 KiB of weights stay in the second-level cache
VECTORS = 8  # of positions in one block, at least
WELL_FILLED = 0.6  # of the lanes


class Blocks(Record, dict=True):
    """How a convolution is cut.

    windows:    the product
    lanes:      of a vector
    rows:       of the register tile
    vectors:    side by side in it
    dtype:      accumulated in
    has_fma:    an instruction multiplies and adds
    """

    windows: Windows
    lanes: int
    rows: int
    vectors: int
    dtype: DType
    has_fma: bool

    # ---- K: channels by taps ----
    @cached_property
    def taps(self) -> int:
        """Taps of a block: all, unless they are many."""
        return most_alike(self.windows.num_taps, MOST_K)

    @cached_property
    def channels(self) -> int:
        """Channels of a block: one, unless all taps are in it."""
        if not self.has_all_taps:
            return 1
        return most_alike(self.windows.channels, max(1, MOST_K // self.taps))

    @property
    def has_all_taps(self) -> bool:
        """True where each block has all taps, whose number is known."""
        return isinstance(self.windows.num_taps, int) and self.num_tap_blocks in (0, 1)

    @property
    def num_tap_blocks(self) -> Dim:
        return num_parts(self.windows.num_taps, self.taps)

    @property
    def num_k_blocks(self) -> Dim:
        return mul(num_parts(self.windows.channels, self.channels), self.num_tap_blocks)

    @property
    def depth(self) -> int:
        """Most of K in a block."""
        return self.channels * self.taps

    # ---- rows: output channels of a group ----
    @property
    def row_panels(self) -> int:
        return -(-self.windows.m // self.rows)

    @cached_property
    def panels(self) -> int:
        """Row panels of a block."""
        pieces = -(-self.row_panels // (MOST_ROWS // self.rows))
        return -(-self.row_panels // pieces)

    @property
    def num_pieces(self) -> int:
        return -(-self.row_panels // self.panels)

    # ---- columns: positions, a vector at a time ----
    @cached_property
    def first_inner(self) -> int:
        """The first of the last axes along which positions are elements of x one after the other."""
        w, arg = self.windows, self.windows.arg
        first = len(w.taps) - 1
        pointwise = [
            (taps, arg.stride[i], arg.padding[i], arg.input_dilation[i]) == (1, 1, (0, 0), 1)
            for i, taps in enumerate(w.taps)
        ]
        while first > 0 and all(pointwise[first - 1 :]):
            first -= 1
        return first

    @cached_property
    def inner(self) -> Dim:
        """Positions of a row: vectors start at its start."""
        return numel(self.windows.spatial[self.first_inner :])

    @cached_property
    def by_rows(self) -> bool:
        """True where vectors run along one row, or its length is no number; else along all positions of all images."""
        return not isinstance(self.inner, int) or self.inner >= WELL_FILLED * self.lanes * -(-self.inner // self.lanes)

    @property
    def num_positions(self) -> Dim:
        return mul(self.windows.anchor.shape[0], numel(self.windows.spatial))

    @property
    def vectors_of_a_row(self) -> Dim:
        return num_parts(self.inner, self.lanes)

    @property
    def num_vectors(self) -> Dim:
        """Vectors of positions."""
        if self.by_rows:
            rows = mul(self.windows.anchor.shape[0], numel(self.windows.spatial[: self.first_inner]))
            return mul(rows, self.vectors_of_a_row)
        return floordiv(add(self.num_positions, self.lanes - 1), self.lanes)

    @property
    def width(self) -> int:
        """Vectors of a block."""
        return self.vectors * -(-VECTORS // self.vectors)

    @property
    def num_columns(self) -> Dim:
        """Blocks side by side."""
        return floordiv(add(self.num_vectors, self.width - 1), self.width)

    def position(self, vector: Dim, lane: Dim) -> tuple[Dim, tuple[Dim, ...], Op | bool]:
        """Returns image and position of a lane of a vector, and where there is one."""
        spatial, images = self.windows.spatial, self.windows.anchor.shape[0]
        if not self.by_rows:
            n = add(mul(vector, self.lanes), lane)
            b, *at = unflatten(n, (images, *spatial))
            return b, tuple(at), less(n, self.num_positions)
        outer = spatial[: self.first_inner]
        b, *at = unflatten(floordiv(vector, self.vectors_of_a_row), (images, *outer))
        inner = add(mul(mod(vector, self.vectors_of_a_row), self.lanes), lane)
        known = less(vector, self.num_vectors)
        if self.first_inner == len(spatial) - 1:  # beyond the end of the row `Windows.column` finds nothing itself
            return b, (*at, inner), known
        return b, (*at, *unflatten(inner, spatial[self.first_inner :])), both(less(inner, self.inner), known)

    def count(self, vector: Dim) -> Dim:
        """Returns how many lanes of a vector are positions."""
        if self.by_rows:
            return minimum(subtract(self.inner, mul(mod(vector, self.vectors_of_a_row), self.lanes)), self.lanes)
        return minimum(subtract(self.num_positions, mul(vector, self.lanes)), self.lanes)


def blocks_of(anchor: Op, target: Target) -> Blocks:
    """Returns how the loops of `emit_convolution` cut a CONV."""
    windows, lanes = Windows(anchor), lanes_of(anchor, target)
    positions = mul(anchor.shape[0], numel(windows.spatial))
    rows, vectors = rows_and_vectors(windows.m, positions, lanes, most_rows(target))
    return Blocks(windows, lanes, rows, max(1, vectors), accumulator_dtype(anchor), target.has_fma)
