"""How a convolution is cut that reads its windows where they lie: tiles of positions by output channels.

In:    a CONV, Target
Out:   `Direct`, `Block`; `is_direct`
Called by: codegen/convolution_direct.py, codegen/lower.py.    Next: picograd/codegen/convolution_direct.py

Positions are counted through all spatial axes of an image, so that a tile goes on from row to row. An iteration of GRID has
some positions of one image, or all of several small ones, by some panels of output channels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from picograd.codegen.builder import read
from picograd.codegen.loops import split
from picograd.codegen.matmul import is_plain, lanes_of
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.tile import Tile, most_rows
from picograd.codegen.windows import Windows
from picograd.device import Target
from picograd.dtype import DType
from picograd.ir.build import static_shape
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

MOST_K = 512  # of a block
MOST_STAGED = 1 << 15  # elements of x that are copied together: the second-level cache holds them beside the weight
MOST_SHARED = 1 << 22  # bytes of a weight that is packed for all; of a larger one each iteration packs what it needs
MOST_PARTS = 1 << 20  # bytes of the parts of split sums
MOST_POSITIONS = 96  # of an iteration of GRID
MANY_POSITIONS = 288  # of one that packs the weight for itself
MOST_PANELS = 4  # of an iteration of GRID
ENOUGH = 16  # iterations of GRID; with fewer, a long sum is split
FEWEST_POSITIONS = 4  # of an image: fewer fill no tile
WELL_FILLED = 0.6  # of the lanes
MOST_STACK = 1 << 20  # bytes


def is_direct(anchor: Op, target: Target) -> bool:
    """True for a CONV whose output channels fill lanes, whose positions fill tiles, and whose x has no gaps."""
    arg, windows, lanes = anchor.arg, Windows(anchor), lanes_of(anchor, target)
    if max(arg.input_dilation) > 1 or min(min(pair) for pair in arg.padding) < 0 or not anchor.dtype.is_float:
        return False
    width = lanes if windows.m <= lanes else 2 * lanes
    filled = windows.m / max(1, -(-windows.m // width) * width)
    if filled < WELL_FILLED or prod(windows.spatial) < FEWEST_POSITIONS or windows.k == 0:
        return False
    direct = direct_of(anchor, target)
    return direct.numel_on_stack * direct.dtype.itemsize <= MOST_STACK


def direct_of(anchor: Op, target: Target) -> Direct:
    """Returns how the loops of `emit_direct` cut a CONV."""
    return Direct(Windows(anchor), lanes_of(anchor, target), most_rows(target), accumulator_dtype(anchor), target.has_fma)


@dataclass(frozen=True)
class Direct:
    """How such a convolution is cut.

    windows:  the product
    lanes:    of a vector
    most:     rows of a tile of two vectors
    dtype:    accumulated in
    has_fma:  an instruction multiplies and adds
    """

    windows: Windows
    lanes: int
    most: int
    dtype: DType
    has_fma: bool

    @property
    def batch(self) -> Dim:
        return self.windows.anchor.shape[0]

    @cached_property
    def tile(self) -> Tile:
        """Of as many positions as leave few over at the end of an image."""
        vectors = 1 if self.windows.m <= self.lanes else 2
        most = self.most * 2 // vectors
        rows = min(range(most, 3, -1), key=lambda rows: -(-self.positions // rows) * rows)
        return Tile(rows, vectors, self.lanes, self.dtype, self.has_fma)

    # ---- output channels of a group ----
    @cached_property
    def num_panels(self) -> int:
        return -(-self.windows.m // self.tile.columns)

    @cached_property
    def panels(self) -> int:
        """Panels of output channels of an iteration of GRID."""
        return -(-self.num_panels // -(-self.num_panels // MOST_PANELS))

    @property
    def num_pieces(self) -> int:
        return -(-self.num_panels // self.panels)

    @cached_property
    def is_shared(self) -> bool:
        """True where the whole weight is packed, for all iterations of GRID."""
        packed = self.windows.groups * self.num_panels * self.tile.columns * self.windows.k
        return packed * self.dtype.itemsize <= MOST_SHARED

    # ---- positions ----
    @cached_property
    def positions(self) -> int:
        """Of an image."""
        return prod(self.windows.spatial)

    @property
    def most_positions(self) -> int:
        return MOST_POSITIONS if self.is_shared else MANY_POSITIONS

    @cached_property
    def tiles(self) -> int:
        """Tiles of an image that an iteration of GRID does."""
        count = -(-self.positions // self.tile.rows)
        return -(-count // -(-count * self.tile.rows // self.most_positions))

    @property
    def length(self) -> int:
        """Positions of an image that an iteration of GRID does."""
        return self.tiles * self.tile.rows

    @property
    def num_chunks(self) -> int:
        return -(-self.positions // self.length)

    @property
    def images(self) -> int:
        """Images of an iteration of GRID: several small ones read the same block of the weight."""
        return max(1, self.most_positions // self.length) if self.num_chunks == 1 else 1

    @property
    def num_image_blocks(self) -> Dim:
        return floordiv(add(self.batch, self.images - 1), self.images)

    # ---- K ----
    @cached_property
    def taps(self) -> int:
        """Taps of a block of K along the first axis: all, unless they are many."""
        first, *others = self.windows.taps
        return -(-first // -(-first // max(1, MOST_K // prod(others))))

    @cached_property
    def channels(self) -> int:
        """Input channels of a block of K: one, unless all taps are in it."""
        if self.num_tap_blocks > 1:
            return 1
        most = max(1, min(MOST_K // self.windows.num_taps, MOST_STAGED // prod(self.rows)))
        return -(-self.windows.channels // -(-self.windows.channels // most))

    @property
    def num_tap_blocks(self) -> int:
        return -(-self.windows.taps[0] // self.taps)

    @property
    def num_channel_blocks(self) -> int:
        return -(-self.windows.channels // self.channels)

    @property
    def num_k_blocks(self) -> int:
        return self.num_channel_blocks * self.num_tap_blocks

    @cached_property
    def splits(self) -> int:
        """Into how many parts the sum over K is split: by shapes alone, so that its bits do not depend on threads."""
        units = self.num_image_blocks
        if not isinstance(units, int):
            return 1
        units *= self.windows.groups * self.num_pieces * self.num_chunks
        most = MOST_PARTS // max(1, units * prod(self.shape) * self.dtype.itemsize)
        return max(1, min(-(-ENOUGH // max(1, units)), self.num_k_blocks // 2, most))

    @property
    def depth(self) -> int:
        """Most of K in a block."""
        return self.channels * self.taps * prod(self.windows.taps[1:])

    # ---- what is read of an image ----
    @cached_property
    def rows(self) -> tuple[int, ...]:
        """What is read of a channel of x under a block of taps: rows of the first axis, padding included."""
        arg = self.windows.arg
        lengths = static_shape(self.windows.anchor.src[0].shape[2:])
        padded = [length + sum(pair) for length, pair in zip(lengths, arg.padding)]
        return ((self.height - 1) * arg.stride[0] + (self.taps - 1) * arg.dilation[0] + 1, *padded[1:])

    @cached_property
    def height(self) -> int:
        """Most rows of positions, along the first axis, of an iteration of GRID, which may begin anywhere in a row."""
        first, *inner = self.windows.spatial
        return min(first, -(-(self.length - 1) // prod(inner)) + 1)

    @cached_property
    def is_staged(self) -> bool:
        """True where x has padding, or has to be computed or widened: then what is read of it is copied first."""
        x = self.windows.anchor.src[0]
        has_padding = any(pair != (0, 0) for pair in self.windows.arg.padding)
        return has_padding or x.dtype is not self.dtype or not is_plain(x)

    @property
    def numel_on_stack(self) -> int:
        """Elements of sums, of a block of the weight and of x, as far as each lies on the stack."""
        weight = 0 if self.is_shared else self.panels * self.tile.columns * self.depth
        return prod(self.shape) + weight + self.is_staged * self.channels * prod(self.rows)

    # ---- sums ----
    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sums of an iteration of GRID."""
        return (self.images, self.panels, self.length, self.tile.columns)

    def sum_of(self, memory: Op, start: Dim, image: Dim, channel: Dim, position: Dim) -> Op:
        """Returns a sum among those of an iteration of GRID, which lie in memory from `start` on."""
        panel, column = split(channel, [self.panels, self.tile.columns])
        return read(memory, add(start, flatten((image, panel, position, column), self.shape)))


@dataclass(frozen=True)
class Block:
    """A block of K: input channels of a group from `channel` on, by taps of the first axis from `tap` on."""

    direct: Direct
    channel: Dim
    tap: Dim

    @property
    def num_channels(self) -> Dim:
        return minimum(subtract(self.direct.windows.channels, self.channel), self.direct.channels)

    @property
    def num_taps(self) -> Dim:
        return minimum(subtract(self.direct.windows.taps[0], self.tap), self.direct.taps)

    @property
    def first(self) -> Dim:
        """The first k of the block; the others follow, for it has all taps, or one channel."""
        _, *inner = self.direct.windows.taps
        return add(mul(self.channel, self.direct.windows.num_taps), mul(self.tap, prod(inner)))
