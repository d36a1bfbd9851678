"""The tiles and blocks of a direct convolution on a CPU, which codegen/convolution_direct.py computes.

An image of known lengths is cut into groups of whole rows, or runs of positions; one of symbolic lengths into blocks of at
most a few rows and a vector's windows, whose lengths a run divides evenly.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Self

from picograd.codegen.builder import read
from picograd.codegen.convolution import FILLED_LANES_MIN, ITERATIONS_MIN, Windows
from picograd.codegen.loops import longest
from picograd.codegen.matmul import Tile, is_plain, most_alike, most_rows
from picograd.codegen.winograd import PLAIN, Winograd, winograd_for
from picograd.device import Target
from picograd.dtype import DType
from picograd.interrupts import cached_property
from picograd.ir.build import static_shape
from picograd.ir.op import Dim, Op, Shape
from picograd.ir.shape import numel, of_numbers
from picograd.ir.symbolic import add, bounds, ceildiv, flatten, maximum, minimum, mul, subtract, unflatten
from picograd.record import Record, replace

BLOCK_K_MAX = 512  # per block
STAGED_ELEMENTS_MAX = 1 << 15  # of x copied together: the second-level cache holds them and the weight
TRANSFORMED_ELEMENTS_MAX = 1 << 16  # of transformed x, for a block of taps
OWN_WEIGHT_ELEMENTS_MAX = 1 << 17  # of a block of a weight that an iteration packs for itself
SUM_ELEMENTS_MAX = 1 << 17  # of sums at all points
SHARED_WEIGHT_BYTES_MAX = 5 << 20  # of a weight packed once for all; a larger one is packed by each iteration
PARTS_BYTES_MAX = 1 << 20  # of the parts of split sums
POSITIONS_MAX = 96  # per GRID iteration
OWN_WEIGHT_POSITIONS_MAX = 288  # per GRID iteration that packs the weight for itself
PANELS_MAX = 4  # per GRID iteration
SHARING_MIN = 12  # channels, positions or images: with fewer, transforms cost more than they save
GRADIENT_TAPS_MIN = 128  # more than a kernel of 11 x 11 has
POSITIONS_MIN = 4  # of an image: fewer do not fill a tile
BLOCK_LENGTH_MIN = 12  # the same, where windows fill whole vectors
BLOCK_LENGTH_MAX = 16  # positions of a block along an axis, of an image with symbolic lengths
STACK_BYTES_MAX = 1 << 20


def is_direct(anchor: Op, target: Target) -> bool:
    """True for a CONV whose output channels fill lanes and positions tiles, whose x has no gaps, and that fits a stack.

    In a weight's gradient lanes may be empty: packing its windows, as long as images, takes longer than multiplying.
    """
    arg, windows, lanes = anchor.arg, Windows(anchor), target.sum_lanes(anchor.dtype)
    if max(arg.input_dilation) > 1 or min(min(pair) for pair in arg.padding) < 0 or not anchor.dtype.is_float:
        return False
    width = lanes if windows.m <= lanes else 2 * lanes
    filled, positions = windows.m / max(1, ceildiv(windows.m, width) * width), numel(windows.spatial)
    if filled < FILLED_LANES_MIN and not arg.of_weight:
        return False
    if windows.k == 0 or longest(positions) < POSITIONS_MIN:
        return False
    is_fixed = of_numbers(windows.spatial)
    if not is_fixed and (arg.of_weight or len(windows.taps) == 1 or bounds(positions)[0] < 1):
        return False
    if not is_fixed and (longest(windows.channels) < SHARING_MIN or windows.num_taps == 1):
        return False
    if len(windows.taps) > 1 and not (of_numbers(windows.taps) and of_numbers(anchor.src[0].shape[2:]) == is_fixed):
        return False
    direct = direct_of(anchor, target)
    return direct.of_many.numel_on_stack * direct.dtype.itemsize <= STACK_BYTES_MAX


def direct_of(anchor: Op, target: Target) -> DirectTiles:
    """Returns the blocking of a CONV for `emit_direct`."""
    return DirectTiles.of(anchor, target, PLAIN if target.plain_sums else _winograd_of(Windows(anchor)))


def _winograd_of(windows: Windows) -> Winograd:
    """Returns F(m, r) for windows that are neighbours in x, if many products share each transform; else PLAIN.

    With a single axis there are no rows along which lanes could run during a transform.
    """
    arg = windows.arg
    if len(windows.taps) == 1 or arg.stride[0] > 1 or arg.dilation[0] > 1 or windows.m < SHARING_MIN:
        return PLAIN
    length, *inner = [n if isinstance(n, int) else POSITIONS_MAX for n in windows.spatial]
    (taps, *_), (num_taps,) = map(static_shape, (windows.taps, (windows.num_taps,)))
    scheme = winograd_for(length, taps)
    # All input channels share an output transform; all positions, or images, a filter transform. The number of images
    # counts only in a weight's gradient, where they are channels: an image has the same bits alone or among others.
    if scheme.taps == taps:
        shared = minimum(windows.channels, ceildiv(length, scheme.outputs) * prod(inner))
    else:
        shared = windows.anchor.shape[0] if arg.of_weight and num_taps >= GRADIENT_TAPS_MIN else 0
    return scheme if isinstance(shared, int) and shared >= SHARING_MIN else PLAIN


class Blocking(Record, dict=True):
    """A convolution and the facts of its machine that size tiles and blocks. A unit is a GRID iteration.

    windows:        the convolution
    batch:          number of images
    lanes:          lanes per vector
    tile_rows_max:  rows of a tile of two vectors
    dtype:          dtype of the sums
    has_fma:        the target has fused multiply-add
    """

    windows: Windows
    batch: Dim
    lanes: int
    tile_rows_max: int
    dtype: DType
    has_fma: bool

    @classmethod
    def of(cls, anchor: Op, target: Target, *more: Any) -> Self:
        """Returns the blocking of a CONV for a target; a subclass has more fields."""
        dtype, lanes = anchor.dtype, target.sum_lanes(anchor.dtype)
        machine = most_rows(target), dtype.compute_dtype, target.has_fma
        return cls(Windows(anchor), anchor.shape[0], lanes, *machine, *more)


class DirectTiles(Blocking, dict=True):
    """The tiles and blocks for `emit_direct`.

    scheme:  F(m, r) along the first axis: m outputs, or all r taps, together
    """

    scheme: Winograd

    @cached_property
    def tile(self) -> Tile:
        """Register tile whose height (in positions) wastes least at the end of an image, or of a group of whole rows."""
        vectors = 1 if self.windows.m <= self.lanes else 2
        most = self.tile_rows_max * 2 // vectors
        count = self.positions if self.scheme == PLAIN else self.unit_rows * self.inner
        if self.is_blocked:
            count *= self.unit_images
        rows = min(range(most, 2, -1), key=lambda rows: ceildiv(count, rows) * rows)
        return Tile(rows, vectors, self.lanes, self.dtype, self.has_fma)

    @property
    def of_many(self) -> DirectTiles:
        """The blocking for a large batch: K is as for one image, so an image has the same bits alone or among others.

        Several images together take more of the stack.
        """
        return self if self.windows.arg.of_weight else replace(self, batch=OWN_WEIGHT_POSITIONS_MAX)

    # ---- output channels of a group ----
    @cached_property
    def num_panels(self) -> int:
        return ceildiv(self.windows.m, self.tile.columns)

    @cached_property
    def unit_panels(self) -> int:
        """Panels of output channels per unit."""
        most = PANELS_MAX
        if self.scheme != PLAIN:  # a unit has a whole row of them, however long
            of_panel = self.scheme.num_points * self.of_many.unit_images * self.unit_positions * self.tile.columns
            most = max(1, min(most, SUM_ELEMENTS_MAX // of_panel))
        return ceildiv(self.num_panels, ceildiv(self.num_panels, most))

    @property
    def num_pieces(self) -> int:
        return ceildiv(self.num_panels, self.unit_panels)

    @cached_property
    def is_shared(self) -> bool:
        """True if the whole weight is packed once, for all GRID iterations."""
        packed = self.scheme.num_points * self.windows.groups * self.num_panels * self.tile.columns * longest(self.k)
        return packed * self.dtype.itemsize <= SHARED_WEIGHT_BYTES_MAX

    # ---- positions ----
    @property
    def is_blocked(self) -> bool:
        """True where images have symbolic lengths: a unit has a block of positions, of at most `spatial`."""
        return not of_numbers(self.windows.spatial)

    @cached_property
    def lengths(self) -> Shape:
        """Positions of an image along each axis."""
        first, *inner = self.windows.spatial
        return (ceildiv(first, self.scheme.outputs), *inner)

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        """Positions along each axis, of an image or at most of a block."""
        if not self.is_blocked:
            return static_shape(self.lengths)
        found, left, limit = list[int](), POSITIONS_MAX, self.block_length_max
        for length in reversed(self.lengths):
            least, most = bounds(length)  # lengths tend to be near the least, and small images share a unit
            found.append(min(1 << (2 * least - 1).bit_length(), limit, most, left))
            left, limit = left // found[-1], BLOCK_LENGTH_MAX
        return tuple(reversed(found))

    @property
    def block_length_max(self) -> int:
        """Positions of a block along the last axis, at most: those whose windows fill whole vectors."""
        arg = self.windows.arg
        step, reach = arg.stride[-1], (self.inner_taps[-1] - 1) * arg.dilation[-1] + 1
        vectors = ((BLOCK_LENGTH_MAX - 1) * step + reach) // self.lanes
        filled = (vectors * self.lanes - reach) // step + 1
        return filled if filled >= BLOCK_LENGTH_MIN else BLOCK_LENGTH_MAX

    @cached_property
    def num_blocks(self) -> Shape:
        """Blocks of an image along each axis."""
        return tuple([ceildiv(length, most) for length, most in zip(self.lengths, self.spatial)])

    def block(self, number: Dim) -> tuple[Shape, Shape]:
        """Returns the first position of a block along each axis, and its lengths, which are about equal for all blocks."""
        first, own = list[Dim](), list[Dim]()
        for i, length, count, most in zip(unflatten(number, self.num_blocks), self.lengths, self.num_blocks, self.spatial):
            each = ceildiv(length, count)
            first.append(mul(i, each))
            own.append(maximum(minimum(minimum(subtract(length, first[-1]), each), most), 1))  # length > (count - 1) * most
        return tuple(first), tuple(own)

    @cached_property
    def positions(self) -> int:
        """Output positions of an image, or at most of a block."""
        return prod(self.spatial)

    @cached_property
    def inner(self) -> int:
        """Positions of a row of the first axis."""
        return prod(self.spatial[1:])

    @property
    def unit_positions_max(self) -> int:
        return POSITIONS_MAX if self.is_shared else OWN_WEIGHT_POSITIONS_MAX

    @cached_property
    def unit_rows(self) -> int:
        """Maximum of a unit's rows of positions along the first axis; with PLAIN a unit may begin within a row."""
        first = self.spatial[0]
        if self.is_blocked:
            return first
        if self.scheme != PLAIN:  # whole rows: neighbouring results are not neighbouring positions
            return ceildiv(first, ceildiv(first, max(1, POSITIONS_MAX // self.inner)))
        return min(first, ceildiv(self.unit_positions - 1, self.inner) + 1)

    @cached_property
    def unit_tiles(self) -> int:
        """Tiles of an image per unit."""
        if self.is_blocked:
            return ceildiv(self.positions * self.unit_images, self.tile.rows)
        if self.scheme != PLAIN:
            return ceildiv(self.unit_rows * self.inner, self.tile.rows)
        count = ceildiv(self.positions, self.tile.rows)
        return ceildiv(count, ceildiv(count * self.tile.rows, self.unit_positions_max))

    @property
    def unit_positions(self) -> int:
        """Positions of an image per unit."""
        is_cut = self.scheme == PLAIN and not self.is_blocked
        return self.unit_tiles * self.tile.rows if is_cut else self.unit_rows * self.inner

    @property
    def num_chunks(self) -> Dim:
        return numel(self.num_blocks) if self.is_blocked else ceildiv(self.positions, self.unit_positions)

    @property
    def unit_images(self) -> int:
        """Images per unit: several small ones read the same block of the weight."""
        if self.is_blocked:
            images = POSITIONS_MAX // self.positions
        else:
            images = max(1, self.unit_positions_max // self.unit_positions) if self.num_chunks == 1 else 1
        return min(images, max(1, self.batch)) if isinstance(self.batch, int) else images

    @property
    def num_image_blocks(self) -> Dim:
        return ceildiv(self.batch, self.unit_images)

    # ---- K ----
    @cached_property
    def tap_extents(self) -> Shape:
        """Taps along each axis; along the first, in groups of a Winograd tile's taps."""
        first, *inner = self.windows.taps
        return (ceildiv(first, self.scheme.taps), *inner)

    @property
    def inner_taps(self) -> tuple[int, ...]:
        """Taps along each axis except the first."""
        return static_shape(self.windows.taps[1:])

    @property
    def has_all_taps(self) -> bool:
        """True if a tile has all taps along the first axis."""
        return self.tap_extents[0] == 1

    @property
    def k(self) -> Dim:
        return mul(self.windows.channels, numel(self.tap_extents))

    @cached_property
    def taps(self) -> int:
        """Taps of a block of K along the first axis: all, unless they or their transforms are many."""
        most = BLOCK_K_MAX // prod(self.inner_taps)
        if self.scheme != PLAIN:
            of_tap = self.of_many.unit_images * self.scheme.num_points * prod(self.padded)
            most = min(most, TRANSFORMED_ELEMENTS_MAX // of_tap)
        return most_alike(self.tap_extents[0], max(1, most))

    @cached_property
    def channels(self) -> int:
        """Input channels of a block of K: one, unless the block has all taps."""
        num_taps = longest(numel(self.tap_extents))
        if longest(self.num_tap_blocks) > 1:
            return 1
        most = max(1, min(BLOCK_K_MAX // num_taps, STAGED_ELEMENTS_MAX // self.of_many.numel_of_channel))
        if not self.is_shared:
            columns = self.scheme.num_points * self.unit_panels * self.tile.columns
            most = max(1, min(most, OWN_WEIGHT_ELEMENTS_MAX // (columns * num_taps)))
        return most_alike(self.windows.channels, most)

    @property
    def num_tap_blocks(self) -> Dim:
        return ceildiv(self.tap_extents[0], self.taps)

    @property
    def pitch(self) -> Dim:
        """Taps along the first axis from one channel to the next in a block of the weight."""
        return self.taps if longest(self.num_tap_blocks) > 1 else self.tap_extents[0]

    @property
    def num_channel_blocks(self) -> Dim:
        return ceildiv(self.windows.channels, self.channels)

    @property
    def num_k_blocks(self) -> Dim:
        return mul(self.num_channel_blocks, self.num_tap_blocks)

    @cached_property
    def splits(self) -> int:
        """Number of parts of the sum over K, from shapes only, so that its bits do not depend on threads.

        1 if axis 0 is a batch: an image has the same bits alone or among others.
        """
        units = self.num_image_blocks
        if not isinstance(units, int) or not self.windows.arg.of_weight:
            return 1
        units *= self.windows.groups * self.num_pieces * ceildiv(self.positions, self.unit_positions)
        most = PARTS_BYTES_MAX // max(1, units * self.numel * self.dtype.itemsize)
        return max(1, min(ceildiv(ITERATIONS_MIN, max(1, units)), longest(self.num_k_blocks) // 2, most))

    @property
    def depth(self) -> int:
        """Maximum of K per block."""
        return self.channels * self.taps * prod(self.inner_taps)

    # ---- the windows of an image ----
    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Extents of x under a block of taps, per channel: rows of the first axis, padding included."""
        arg = self.windows.arg
        return ((self.unit_rows - 1) * arg.stride[0] + (self.taps - 1) * arg.dilation[0] + 1, *self.padded)

    @cached_property
    def padded(self) -> tuple[int, ...]:
        """Lengths of x along all axes except the first, padding included."""
        arg = self.windows.arg
        if self.is_blocked:
            each = zip(self.spatial[1:], arg.stride[1:], self.inner_taps, arg.dilation[1:])
            return tuple([(n - 1) * step + (taps - 1) * apart + 1 for n, step, taps, apart in each])
        lengths = static_shape(self.windows.anchor.src[0].shape[3:])
        return tuple([length + sum(pair) for length, pair in zip(lengths, arg.padding[1:])])

    @property
    def numel_of_rows(self) -> int:
        """Elements of `rows` as staged: a vector may end past the last row."""
        return prod(self.rows) + self.lanes

    @property
    def numel_of_channel(self) -> int:
        """Staged elements per channel, for all points and images."""
        return self.unit_images * self.scheme.num_points * self.numel_of_rows

    @property
    def step(self) -> int:
        """Rows of x from one of `rows` to the next: the results of a Winograd tile are consecutive, or its taps are."""
        return self.scheme.outputs if self.has_all_taps else self.scheme.taps

    @cached_property
    def is_computed(self) -> bool:
        """True if x has padding, or has to be computed or converted."""
        x = self.windows.anchor.src[0]
        has_padding = any(pair != (0, 0) for pair in self.windows.arg.padding)
        return has_padding or self.is_blocked or x.dtype is not self.dtype or not is_plain(x)

    @property
    def is_staged(self) -> bool:
        """True if x, or its input transform, is copied to the stack first."""
        return self.is_computed or self.scheme != PLAIN

    @property
    def plane(self) -> tuple[int, ...]:
        """Rows of x, padding included, whose input transform gives `rows`."""
        return ((self.rows[0] - 1) * self.step + self.scheme.num_points, *self.rows[1:])

    @property
    def numel_of_plane(self) -> int:
        """Elements of a channel of x computed before their transform."""
        return prod(self.plane) + self.lanes if self.is_computed and self.scheme != PLAIN else 0

    @property
    def numel_on_stack(self) -> int:
        """Elements on the stack: sums, and blocks of the weight and of x that are there."""
        points = self.scheme.num_points
        weight = 0 if self.is_shared else points * self.unit_panels * self.tile.columns * self.depth
        x = self.channels * self.numel_of_channel if self.is_staged else 0
        return self.numel_of_sums + prod(self.transposed) + weight + x + self.numel_of_plane

    # ---- sums ----
    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the sums of a unit, for one point. Positions of blocks are counted through all images of the unit."""
        images = 1 if self.is_blocked else self.unit_images
        return (images, self.unit_panels, self.unit_tiles * self.tile.rows, self.tile.columns)

    @property
    def transposed(self) -> tuple[int, int]:
        """Shape of one result of each tile, for an image and a panel: contiguous positions, in whole vectors."""
        return (self.tile.columns, ceildiv(self.shape[2], self.lanes) * self.lanes)

    @property
    def numel_of_sums(self) -> int:
        """Elements of the sums at all points; the last transposed square may end past them."""
        return self.scheme.num_points * prod(self.shape) + (self.transposed[1] - self.shape[2]) * self.tile.columns

    @property
    def numel(self) -> int:
        """Number of results per unit."""
        return self.scheme.outputs * prod(self.shape)

    def sum_of(self, memory: Op, start: Dim, place: Sequence[Dim]) -> Op:
        """Returns a sum, or an output of a Winograd tile, of a unit, in memory from `start` on; indices as in `shape`."""
        return read(memory, add(start, flatten(place, (self.scheme.outputs, *self.shape))))


class Block(Record):
    """A block of K: input channels of a group from `channel` on, by taps of the first axis from `tap` on."""

    direct: DirectTiles
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
        """The first k of the block; the others are consecutive, for the block has all taps, or one channel."""
        inner = prod(self.direct.inner_taps)
        return add(mul(self.channel, mul(self.direct.tap_extents[0], inner)), mul(self.tap, inner))
