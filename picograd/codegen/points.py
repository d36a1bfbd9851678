"""What a convolution with several results or taps together computes besides its products: weights at points, results.

In:    a `Direct`, where its operands and sums are
Out:   statements in the free form
Called by: codegen/convolution_direct.py.    Next: picograd/codegen/convolution_direct.py

The matrices are those of codegen/toom.py. The weight's is applied while the weight is packed, that of the results to the
sums, in place; that of x while x is staged (codegen/convolution_direct.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from picograd.codegen.builder import Builder, Scratch, read
from picograd.codegen.direct import Block, Direct
from picograd.codegen.loops import along, in_squares, split
from picograd.codegen.toom import combined
from picograd.ir.build import cast
from picograd.ir.coordinates import flatten
from picograd.ir.op import Dim, Op, const
from picograd.ir.opcode import AxisKind, MemorySpace, OpCode
from picograd.ir.symbolic import add, floordiv, minimum, mul, subtract

MOST_TURNED = 128  # elements of a row of the weight that are turned together


def pack_weight(direct: Direct, pack: Builder, scratch: Scratch) -> Callable[[Dim, Dim, Dim, Dim, Dim], Op]:
    """Packs the values of the whole weight at all points, output channels side by side, and returns how to read them."""
    windows, each = direct.windows, _channels_of_a_run(direct)
    shape = (direct.toom.num_points, windows.groups, direct.num_panels, direct.k, direct.tile.columns)
    memory, (taps, *inner) = scratch(direct.dtype, prod(shape)), direct.num_taps
    runs = -(-windows.channels // each)
    with pack.loop(windows.groups * runs, AxisKind.GRID) as number:
        group, run = split(number, [windows.groups, runs])
        channel = mul(run, each)
        count = minimum(subtract(windows.channels, channel), each)
        with pack.loop(direct.num_panels, AxisKind.LOOP) as panel, pack.loop(taps, AxisKind.LOOP) as tap:

            def put(point: Dim, c: Dim, beside: Dim, o: Dim, value: Op) -> None:
                k = add(mul(add(mul(add(channel, c), taps), tap), prod(inner)), beside)
                pack.store(memory, flatten((point, group, panel, k, o), shape), value)

            weight_at_points(direct, (group, panel, channel, tap), count, put, pack)
    return lambda point, group, panel, o, k: read(memory, flatten((point, group, panel, k, o), shape))


def pack_own_weight(
    direct: Direct, group: Dim, first_panel: Dim, panels: Dim, block: Block, memory: Op, build: Builder
) -> Callable[[Dim, Dim, Dim, Dim], Op]:
    """Packs the values of a block of K, and returns how to read them."""
    each, inner = _channels_of_a_run(direct), prod(direct.num_taps[1:])
    shape = (direct.toom.num_points, direct.panels, direct.depth, direct.tile.columns)
    with (
        build.loop(floordiv(add(block.num_channels, each - 1), each), AxisKind.LOOP) as run,
        build.loop(panels, AxisKind.LOOP) as panel,
        build.loop(block.num_taps, AxisKind.LOOP) as tap,
    ):
        channel = mul(run, each)
        count = minimum(subtract(block.num_channels, channel), each)

        def put(point: Dim, c: Dim, beside: Dim, o: Dim, value: Op) -> None:
            k = add(mul(add(mul(add(channel, c), direct.taps), tap), inner), beside)
            build.store(memory, flatten((point, panel, k, o), shape), value)

        at = (group, add(first_panel, panel), add(block.channel, channel), add(block.tap, tap))
        weight_at_points(direct, at, count, put, build)
    return lambda point, panel, o, k: read(memory, flatten((point, panel, k, o), shape))


def _channels_of_a_run(direct: Direct) -> int:
    """Returns how many input channels are turned together: elements of the weight that lie behind each other."""
    return max(1, MOST_TURNED // prod(direct.windows.taps)) if direct.num_taps[0] == 1 else 1


def weight_at_points(
    direct: Direct, at: Sequence[Dim], count: Dim, put: Callable[[Dim, Dim, Dim, Dim, Op], None], build: Builder
) -> None:
    """Computes the values of a panel of output channels for some input channels and the taps that stand together.

    Args:
      at:    group, panel, first input channel, number of the taps along the first axis
      count: of input channels; one, unless all taps stand together
      put:   (point, channel from the first on, tap along the other axes, column, value), lanes over columns
    """
    windows, toom, columns = direct.windows, direct.toom, direct.tile.columns
    group, panel, first_channel, tap = at
    inner = prod(windows.taps[1:])
    size = toom.taps * inner
    turned = build.alloc(direct.dtype, _channels_of_a_run(direct) * size * columns, MemorySpace.SHARED)
    first = mul(tap, toom.taps)
    there = minimum(subtract(windows.taps[0], first), toom.taps)
    start = add(mul(first_channel, windows.num_taps), mul(first, inner))
    own = minimum(subtract(windows.m, mul(panel, columns)), columns)

    def element(o: Dim, i: Dim) -> Op:
        return windows.weight_row(add(mul(group, windows.m), add(mul(panel, columns), o)), add(start, i))

    def place(o: Dim, i: Dim) -> Dim:
        return add(mul(i, columns), o)

    def square(o: Dim, i: Dim) -> None:
        load = element(o, i)
        build.transpose(turned, place(o, i), columns, load.src[0], load.src[1], windows.k, direct.lanes)

    def one(o: Dim, i: Dim) -> None:
        build.store(turned, place(o, i), cast(element(o, i), direct.dtype))

    run = mul(mul(count, there), inner)
    lanes = direct.lanes if windows.has_lines and windows.anchor.src[1].dtype is direct.dtype else 1
    in_squares(build, own, run, lanes, square if lanes > 1 else one, one)
    with build.loop(subtract(columns, own), AxisKind.LOOP) as o:  # columns without a channel of their own
        behind_last = add(own, o)
        with build.loop(run, AxisKind.LOOP) as i:
            build.store(turned, place(behind_last, i), const(0, direct.dtype))
    with build.loop(mul(subtract(toom.taps, there), inner), AxisKind.LOOP) as i:  # behind the last tap
        behind = mul(add(mul(there, inner), i), columns)
        along(build, 0, columns, direct.lanes, lambda o: build.store(turned, add(behind, o), const(0, direct.dtype)))
    with build.loop(count, AxisKind.LOOP) as c, build.loop(inner, AxisKind.LOOP) as i:

        def values(o: Dim) -> None:
            places = [add(mul(c, size), add(number * inner, i)) for number in range(toom.taps)]
            elements = [read(turned, add(mul(place, columns), o)) for place in places]
            for point, row in enumerate(toom.of_taps):
                put(point, c, i, o, combined(row, elements, direct.has_fma))

        along(build, 0, columns, direct.lanes, values)


def join_results(direct: Direct, memory: Op, build: Builder) -> None:
    """Puts the results of each `Toom` in the place of the sums at its first points."""
    toom, size = direct.toom, prod(direct.shape)
    # Of 3 q the product with the float nearest to 1/3 is q, rounded; so it is of 6 q and 24 q.
    scale = const(1.0 / toom.divisor, direct.dtype)

    def join(i: Dim) -> None:
        sums = [build.load(memory, add(point * size, i)) for point in range(toom.num_points)]
        for which, row in enumerate(toom.of_results):
            total = combined(row, sums, direct.has_fma)
            build.store(memory, add(which * size, i), Op(OpCode.MUL, total.dtype, (total, scale)))

    along(build, 0, size, direct.lanes, join)
