"""How a convolution is cut that reads its windows where they lie: tiles of positions by output channels.

In:    a CONV, Target
Out:   `Direct`, `Block`; `is_direct`
Called by: codegen/cpu/convolution_direct.py, codegen/cpu/points.py, codegen/emit.py.
Next: picograd/codegen/cpu/points.py

Positions are counted through all spatial axes of an image, so that a tile goes on from row to row. An iteration of GRID has
some positions of one image, or all of several small ones, by some panels of output channels.

Along the first axis several results may stand together, or several taps (codegen/cpu/toom.py). Then a position is that of
all results of a `Toom`, a tap that of all its taps, and for each point there is such a convolution, of other values: the
same loops with one axis more. `PLAIN` has one of each.
"""

from __future__ import annotations

from math import prod

from picograd.codegen.builder import read
from picograd.codegen.cpu.matmul import lanes_of
from picograd.codegen.cpu.toom import PLAIN, Toom, toom_for
from picograd.codegen.loops import split
from picograd.codegen.operands import is_plain
from picograd.codegen.rows import accumulator_dtype
from picograd.codegen.runs import longest
from picograd.codegen.tile import Tile, most_alike, most_rows, num_parts
from picograd.codegen.windows import Windows
from picograd.device import Target
from picograd.dtype import DType
from picograd.forks import cached_property
from picograd.ir.build import static_shape
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract
from picograd.record import Record, replace

MOST_K = 512  # of a block
MOST_STAGED = 1 << 15  # elements of x that are copied together: the second-level cache holds them beside the weight
MOST_VALUES = 1 << 16  # the same of values at points for a block of taps
MOST_OWN = 1 << 17  # elements of a block of a weight that an iteration packs for itself
MOST_SUMS = 1 << 17  # elements, of values at points
MOST_SHARED = 5 << 20  # bytes of a weight that is packed for all; of a larger one each iteration packs what it needs
MOST_PARTS = 1 << 20  # bytes of the parts of split sums
MOST_POSITIONS = 96  # of an iteration of GRID
MANY_POSITIONS = 288  # of one that packs the weight for itself
MOST_PANELS = 4  # of an iteration of GRID
ENOUGH = 16  # iterations of GRID; with fewer, the long sum of a gradient by a weight is split
FEWEST_SHARED = 12  # channels, positions or images: with fewer, values at points cost more than they save
MANY_TAPS = 128  # more than a kernel of 11 x 11 has
FEWEST_POSITIONS = 4  # of an image: fewer fill no tile
WELL_FILLED = 0.6  # of the lanes
MOST_STACK = 1 << 20  # bytes


def is_direct(anchor: Op, target: Target) -> bool:
    """True for a CONV whose output channels fill lanes and positions tiles, whose x has no gaps, and that fits a stack.

    Lanes may be empty in the gradient of a weight: its windows, as long as images, take longer to pack than to multiply.
    """
    arg, windows, lanes = anchor.arg, Windows(anchor), lanes_of(anchor, target)
    if max(arg.input_dilation) > 1 or min(min(pair) for pair in arg.padding) < 0 or not anchor.dtype.is_float:
        return False
    width = lanes if windows.m <= lanes else 2 * lanes
    filled, positions = windows.m / max(1, -(-windows.m // width) * width), numel(windows.spatial)
    if filled < WELL_FILLED and not arg.of_weight:
        return False
    if not isinstance(positions, int) or positions < FEWEST_POSITIONS or windows.k == 0:
        return False
    direct = direct_of(anchor, target)
    return direct.of_many.numel_on_stack * direct.dtype.itemsize <= MOST_STACK


def direct_of(anchor: Op, target: Target) -> Direct:
    """Returns how the loops of `emit_direct` cut a CONV."""
    windows = Windows(anchor)
    toom = PLAIN if target.plain_sums else _toom_of(windows)
    dtype = accumulator_dtype(anchor)
    return Direct(windows, toom, anchor.shape[0], lanes_of(anchor, target), most_rows(target), dtype, target.has_fma)


def _toom_of(windows: Windows) -> Toom:
    """Several results or taps together where they are neighbours in x, and what that takes is shared by many products.

    Along one axis alone there are no rows for lanes to run along while values are computed.
    """
    arg = windows.arg
    if len(windows.taps) == 1 or arg.stride[0] > 1 or arg.dilation[0] > 1 or windows.m < FEWEST_SHARED:
        return PLAIN
    (length, *inner), (taps, *_), (num_taps,) = map(static_shape, (windows.spatial, windows.taps, (windows.num_taps,)))
    toom = toom_for(length, taps)
    # Results are made of sums over input channels; values of the weight meet all positions, or all images. How many images
    # there are is asked of a weight's gradient alone, where they are channels: an image has the same bits alone or not.
    if toom.taps == taps:
        shared = minimum(windows.channels, -(-length // toom.results) * prod(inner))
    else:
        shared = windows.anchor.shape[0] if arg.of_weight and num_taps >= MANY_TAPS else 0
    return toom if isinstance(shared, int) and shared >= FEWEST_SHARED else PLAIN


class Direct(Record, dict=True):
    """How such a convolution is cut.

    windows:  the product
    toom:     results and taps along the first axis that stand together
    batch:    images
    lanes:    of a vector
    most:     rows of a tile of two vectors
    dtype:    accumulated in
    has_fma:  an instruction multiplies and adds
    """

    windows: Windows
    toom: Toom
    batch: Dim
    lanes: int
    most: int
    dtype: DType
    has_fma: bool

    @cached_property
    def tile(self) -> Tile:
        """Of as many positions as leave few over at the end of an image, or of a chunk of whole rows."""
        vectors = 1 if self.windows.m <= self.lanes else 2
        most = self.most * 2 // vectors
        count = self.positions if self.toom == PLAIN else self.height * self.inner
        rows = min(range(most, 2, -1), key=lambda rows: -(-count // rows) * rows)
        return Tile(rows, vectors, self.lanes, self.dtype, self.has_fma)

    @cached_property
    def of_many(self) -> Direct:
        """How a large batch is cut: K of one image likewise, so that it has the same bits alone or among others.

        Images that are together take more of the stack.
        """
        return self if self.windows.arg.of_weight else replace(self, batch=MANY_POSITIONS)

    # ---- output channels of a group ----
    @cached_property
    def num_panels(self) -> int:
        return -(-self.windows.m // self.tile.columns)

    @cached_property
    def panels(self) -> int:
        """Panels of output channels of an iteration of GRID."""
        most = MOST_PANELS
        if self.toom != PLAIN:  # of which an iteration has a whole row, however long
            of_panel = self.toom.num_points * self.of_many.images * self.length * self.tile.columns
            most = max(1, min(most, MOST_SUMS // of_panel))
        return -(-self.num_panels // -(-self.num_panels // most))

    @property
    def num_pieces(self) -> int:
        return -(-self.num_panels // self.panels)

    @cached_property
    def is_shared(self) -> bool:
        """True where the whole weight is packed, for all iterations of GRID."""
        packed = self.toom.num_points * self.windows.groups * self.num_panels * self.tile.columns * longest(self.k)
        return packed * self.dtype.itemsize <= MOST_SHARED

    # ---- positions ----
    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Positions along each axis."""
        first, *inner = static_shape(self.windows.spatial)
        return (-(-first // self.toom.results), *inner)

    @cached_property
    def positions(self) -> int:
        """Of an image."""
        return prod(self.spatial)

    @cached_property
    def inner(self) -> int:
        """Positions of a row of the first axis."""
        return prod(self.spatial[1:])

    @property
    def most_positions(self) -> int:
        return MOST_POSITIONS if self.is_shared else MANY_POSITIONS

    @cached_property
    def height(self) -> int:
        """Most rows of positions, along the first axis, of an iteration of GRID. One of PLAIN may begin within a row."""
        first = self.spatial[0]
        if self.toom != PLAIN:  # whole rows: neighbours in the result are not neighbours among positions
            return -(-first // -(-first // max(1, MOST_POSITIONS // self.inner)))
        return min(first, -(-(self.length - 1) // self.inner) + 1)

    @cached_property
    def tiles(self) -> int:
        """Tiles of an image that an iteration of GRID does."""
        if self.toom != PLAIN:
            return -(-self.height * self.inner // self.tile.rows)
        count = -(-self.positions // self.tile.rows)
        return -(-count // -(-count * self.tile.rows // self.most_positions))

    @property
    def length(self) -> int:
        """Positions of an image that an iteration of GRID does."""
        return self.tiles * self.tile.rows if self.toom == PLAIN else self.height * self.inner

    @property
    def num_chunks(self) -> int:
        return -(-self.positions // self.length)

    @property
    def images(self) -> int:
        """Images of an iteration of GRID: several small ones read the same block of the weight."""
        images = max(1, self.most_positions // self.length) if self.num_chunks == 1 else 1
        return min(images, max(1, self.batch)) if isinstance(self.batch, int) else images

    @property
    def num_image_blocks(self) -> Dim:
        return floordiv(add(self.batch, self.images - 1), self.images)

    # ---- K ----
    @cached_property
    def tap_extents(self) -> Shape:
        """Taps along each axis; along the first, how many times all those of a `Toom`."""
        first, *inner = self.windows.taps
        return (num_parts(first, self.toom.taps), *inner)

    @property
    def inner_taps(self) -> tuple[int, ...]:
        """Taps along each axis but the first."""
        return static_shape(self.windows.taps[1:])

    @property
    def has_all_taps(self) -> bool:
        """True where all taps along the first axis stand together."""
        return self.tap_extents[0] == 1

    @property
    def k(self) -> Dim:
        return mul(self.windows.channels, numel(self.tap_extents))

    @cached_property
    def taps(self) -> int:
        """Taps of a block of K along the first axis: all, unless they or their values at points are many."""
        most = MOST_K // prod(self.inner_taps)
        if self.toom != PLAIN:
            most = min(most, MOST_VALUES // (self.of_many.images * self.toom.num_points * prod(self.padded)))
        return most_alike(self.tap_extents[0], max(1, most))

    @cached_property
    def channels(self) -> int:
        """Input channels of a block of K: one, unless all taps are in it."""
        num_taps = longest(numel(self.tap_extents))
        if longest(self.num_tap_blocks) > 1:
            return 1
        most = max(1, min(MOST_K // num_taps, MOST_STAGED // self.of_many.numel_of_channel))
        if not self.is_shared:
            columns = self.toom.num_points * self.panels * self.tile.columns
            most = max(1, min(most, MOST_OWN // (columns * num_taps)))
        return most_alike(self.windows.channels, most)

    @property
    def num_tap_blocks(self) -> Dim:
        return num_parts(self.tap_extents[0], self.taps)

    @property
    def pitch(self) -> Dim:
        """From a channel to the next one in a block of the weight, along the first axis: taps."""
        return self.taps if longest(self.num_tap_blocks) > 1 else self.tap_extents[0]

    @property
    def num_channel_blocks(self) -> Dim:
        return num_parts(self.windows.channels, self.channels)

    @property
    def num_k_blocks(self) -> Dim:
        return mul(self.num_channel_blocks, self.num_tap_blocks)

    @cached_property
    def splits(self) -> int:
        """Into how many parts the sum over K is split: by shapes alone, so that its bits do not depend on threads.

        Not where axis 0 is a batch: an image has the same bits alone or among others.
        """
        units = self.num_image_blocks
        if not isinstance(units, int) or not self.windows.arg.of_weight:
            return 1
        units *= self.windows.groups * self.num_pieces * self.num_chunks
        most = MOST_PARTS // max(1, units * self.numel * self.dtype.itemsize)
        return max(1, min(-(-ENOUGH // max(1, units)), longest(self.num_k_blocks) // 2, most))

    @property
    def depth(self) -> int:
        """Most of K in a block."""
        return self.channels * self.taps * prod(self.inner_taps)

    # ---- what is read of an image ----
    @cached_property
    def rows(self) -> tuple[int, ...]:
        """What is read of a channel of x under a block of taps: rows of the first axis, padding included."""
        arg = self.windows.arg
        return ((self.height - 1) * arg.stride[0] + (self.taps - 1) * arg.dilation[0] + 1, *self.padded)

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """Lengths of x behind the first axis, padding included."""
        lengths = static_shape(self.windows.anchor.src[0].shape[3:])
        return tuple(length + sum(pair) for length, pair in zip(lengths, self.windows.arg.padding[1:]))

    @property
    def numel_of_rows(self) -> int:
        """Elements of `rows` as they are staged: a vector may end behind the last."""
        return prod(self.rows) + self.lanes

    @property
    def numel_of_channel(self) -> int:
        """Elements of a channel that are staged, for all points and images."""
        return self.images * self.toom.num_points * self.numel_of_rows

    @property
    def step(self) -> int:
        """Rows of x from one of `rows` to the next: all results of a `Toom` are behind each other, or all taps."""
        return self.toom.results if self.has_all_taps else self.toom.taps

    @cached_property
    def is_computed(self) -> bool:
        """True where x has padding, or has to be computed or widened."""
        x = self.windows.anchor.src[0]
        has_padding = any(pair != (0, 0) for pair in self.windows.arg.padding)
        return has_padding or x.dtype is not self.dtype or not is_plain(x)

    @property
    def is_staged(self) -> bool:
        """True where what is read of x, or its values at points, are put on the stack first."""
        return self.is_computed or self.toom != PLAIN

    @property
    def plane(self) -> tuple[int, ...]:
        """Rows of x, padding included, of which `rows` are the values at points."""
        return ((self.rows[0] - 1) * self.step + self.toom.num_points, *self.rows[1:])

    @property
    def numel_of_plane(self) -> int:
        """Elements of a channel of x that are computed before their values at points are."""
        return prod(self.plane) + self.lanes if self.is_computed and self.toom != PLAIN else 0

    @property
    def numel_on_stack(self) -> int:
        """Elements of sums, of a block of the weight and of x, as far as each lies on the stack."""
        points = self.toom.num_points
        weight = 0 if self.is_shared else points * self.panels * self.tile.columns * self.depth
        x = self.channels * self.numel_of_channel if self.is_staged else 0
        return points * prod(self.shape) + weight + x + self.numel_of_plane

    # ---- sums ----
    @property
    def shape(self) -> tuple[int, ...]:
        """Of the sums of an iteration of GRID, for a point."""
        return (self.images, self.panels, self.tiles * self.tile.rows, self.tile.columns)

    @property
    def numel(self) -> int:
        """Results of an iteration of GRID."""
        return self.toom.results * prod(self.shape)

    def sum_of(self, memory: Op, start: Dim, which: Dim, image: Dim, channel: Dim, position: Dim) -> Op:
        """Returns a sum, or one of a `Toom`'s results, among those of an iteration of GRID, in memory from `start` on."""
        panel, column = split(channel, [self.panels, self.tile.columns])
        return read(memory, add(start, flatten((which, image, panel, position, column), (self.toom.results, *self.shape))))


class Block(Record):
    """A block of K: input channels of a group from `channel` on, by taps of the first axis from `tap` on."""

    direct: Direct
    channel: Dim
    tap: Dim

    @property
    def num_channels(self) -> Dim:
        return minimum(subtract(self.direct.windows.channels, self.channel), self.direct.channels)

    @property
    def num_taps(self) -> Dim:
        return minimum(subtract(self.direct.tap_extents[0], self.tap), self.direct.taps)

    @property
    def first(self) -> Dim:
        """The first k of the block; the others follow, for it has all taps, or one channel."""
        inner = prod(self.direct.inner_taps)
        return add(mul(self.channel, mul(self.direct.tap_extents[0], inner)), mul(self.tap, inner))
