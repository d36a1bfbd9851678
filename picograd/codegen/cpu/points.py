"""What a direct convolution computes besides its products: the packed weight, its values at points, results from sums.

In:    a `Direct`, where its operands and sums are
Out:   statements in the free form
Called by: codegen/cpu/convolution_direct.py.    Next: picograd/codegen/cpu/convolution_direct.py

The matrices are those of codegen/cpu/toom.py. The weight's is applied while the weight is packed, that of the results to
the sums, in place; that of x while x is staged (codegen/cpu/convolution_direct.py). Of PLAIN, blocks of the weight are
packed here, the whole one by `pack_columns`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.cpu.direct_tiles import Block, Direct
from picograd.codegen.cpu.panels import fill_panel
from picograd.codegen.cpu.toom import linear_combination
from picograd.codegen.loops import along, split
from picograd.codegen.tile import num_parts
from picograd.ir.coordinates import Coords, flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.shape import numel
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

MOST_TURNED = 128  # elements of a row of the weight that are turned together


def pack_weight(direct: Direct, pack: Builder, scratch: Scratch) -> Callable[[Dim, Dim, Dim, Dim, Dim], Op]:
    """Packs the values of the whole weight at all points, output channels side by side, and returns how to read them."""
    windows, each = direct.windows, _channels_of_a_run(direct)
    shape = (direct.toom.num_points, windows.groups, direct.num_panels, direct.k, direct.tile.columns)
    memory, (taps, *inner) = scratch(direct.dtype, numel(shape)), direct.tap_extents
    runs = num_parts(windows.channels, each)
    with pack.loop(mul(windows.groups, runs), AxisKind.GRID) as number:
        group, run = split(number, [windows.groups, runs])
        channel = mul(run, each)
        count = minimum(subtract(windows.channels, channel), each)
        with pack.loop(direct.num_panels, AxisKind.LOOP) as panel, pack.loop(taps, AxisKind.LOOP) as tap:

            def put(point: Dim, c: Dim, beside: Dim, o: Dim, value: Op) -> None:
                k = add(mul(add(mul(add(channel, c), taps), tap), prod(inner)), beside)
                pack.store(memory, flatten((point, group, panel, k, o), shape), value)

            _weight_at_points(direct, (group, panel, channel, tap), count, put, pack)
    return lambda point, group, panel, o, k: read(memory, flatten((point, group, panel, k, o), shape))


def pack_own_weight(
    direct: Direct, group: Dim, first_panel: Dim, panels: Dim, block: Block, memory: Op, build: Builder
) -> Callable[[Dim, Dim, Dim, Dim], Op]:
    """Packs the values of a block of K, and returns how to read them."""
    each, inner = _channels_of_a_run(direct), prod(direct.inner_taps)
    shape = (direct.toom.num_points, direct.panels, direct.depth, direct.tile.columns)
    with (
        build.loop(floordiv(add(block.num_channels, each - 1), each), AxisKind.LOOP) as run,
        build.loop(panels, AxisKind.LOOP) as panel,
        build.loop(block.num_taps, AxisKind.LOOP) as tap,
    ):
        channel = mul(run, each)
        count = minimum(subtract(block.num_channels, channel), each)

        def put(point: Dim, c: Dim, beside: Dim, o: Dim, value: Op) -> None:
            k = add(mul(add(mul(add(channel, c), direct.pitch), tap), inner), beside)
            build.store(memory, flatten((point, panel, k, o), shape), value)

        at = (group, add(first_panel, panel), add(block.channel, channel), add(block.tap, tap))
        _weight_at_points(direct, at, count, put, build)
    return lambda point, panel, o, k: read(memory, flatten((point, panel, k, o), shape))


def _channels_of_a_run(direct: Direct) -> int:
    """Returns how many input channels are turned together: elements of the weight that lie behind each other."""
    return max(1, MOST_TURNED // prod(direct.windows.taps)) if direct.has_all_taps else 1


def _weight_at_points(
    direct: Direct, at: Sequence[Dim], count: Dim, put: Callable[[Dim, Dim, Dim, Dim, Op], None], build: Builder
) -> None:
    """Computes the values of a panel of output channels for some input channels and the taps that stand together.

    Args:
      at:    group, panel, first input channel, number of the taps along the first axis
      count: of input channels; one, unless all taps stand together
      put:   (point, channel from the first on, tap along the other axes, column, value), lanes over columns
    """
    toom, columns, inner = direct.toom, direct.tile.columns, prod(direct.inner_taps)
    taps = toom.taps * inner
    turned = build.alloc(direct.dtype, _channels_of_a_run(direct) * taps * columns, MemorySpace.SHARED)
    _turn_weight(direct, at, count, turned, build)
    with build.loop(count, AxisKind.LOOP) as c, build.loop(inner, AxisKind.LOOP) as i:

        def values(o: Dim) -> None:
            places = [add(mul(c, taps), add(number * inner, i)) for number in range(toom.taps)]
            elements = [read(turned, add(mul(place, columns), o)) for place in places]
            for point, row in enumerate(toom.of_taps):
                put(point, c, i, o, linear_combination(row, elements, direct.has_fma))

        along(build, 0, columns, direct.lanes, values)


def _turn_weight(direct: Direct, at: Sequence[Dim], count: Dim, turned: Op, build: Builder) -> None:
    """Copies a run of K of a panel's output channels, channels side by side; 0 where there is no channel, or no tap."""
    windows, columns, inner = direct.windows, direct.tile.columns, prod(direct.inner_taps)
    group, panel, first_channel, tap = at
    first, zero = mul(tap, direct.toom.taps), const(0, direct.dtype)
    there = minimum(subtract(windows.taps[0], first), direct.toom.taps)
    by_channel = not direct.has_all_taps and windows.lies_by_channel
    own, run = minimum(subtract(windows.m, mul(panel, columns)), columns), mul(mul(count, there), inner)

    def place(i: Dim, o: Dim) -> Dim:
        return add(mul(i, columns), o)

    def coords(i: Dim, o: Dim) -> Coords:
        column = add(mul(panel, columns), o)
        if by_channel:
            return group, first_channel, add(mul(first, inner), i), column
        return group, add(add(mul(first_channel, windows.num_taps), mul(first, inner)), i), column

    matrix = windows.by_channel if by_channel else windows.matrix
    fill_panel(matrix, turned, columns, direct.lanes, True, (own, run), place, coords, build)
    with build.loop(subtract(columns, own), AxisKind.LOOP) as o, build.loop(run, AxisKind.LOOP) as i:
        build.store(turned, place(i, add(own, o)), zero)
    with build.loop(mul(subtract(direct.toom.taps, there), inner), AxisKind.LOOP) as i:  # behind the last tap
        along(build, 0, columns, direct.lanes, lambda o: build.store(turned, place(add(mul(there, inner), i), o), zero))


def join_results(direct: Direct, memory: Op, build: Builder) -> None:
    """Puts the results of each `Toom` in the place of the sums at its first points."""
    toom, point_numel = direct.toom, prod(direct.shape)
    # The float nearest to 1/3 is off by 2**-25 of itself, less than half a step of any q: 3 q times it rounds to q. Powers
    # of two change nothing, so it is the same for 6 q and 24 q, as long as these are exact.
    scale = const(1.0 / toom.divisor, direct.dtype)

    def join(i: Dim) -> None:
        sums = [build.load(memory, add(point * point_numel, i)) for point in range(toom.num_points)]
        for which, row in enumerate(toom.of_results):
            total = linear_combination(row, sums, direct.has_fma)
            build.store(memory, add(which * point_numel, i), Op(OpCode.MUL, total.dtype, (total, scale)))

    along(build, 0, point_numel, direct.lanes, join)
