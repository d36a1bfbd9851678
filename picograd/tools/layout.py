"""Where the boxes of a layered graph stand and how its edges run, so that it reads from top to bottom.

In:    the measures of the boxes, and for each the boxes its edges come from
Out:   `Layout`

    layers   a box stands one layer below its lowest source; one without sources just above its first reader
    bends    an edge over several layers has a bend in each between; the edges of one source share theirs
    order    in each layer, by the mean of the neighbours' places (barycenter), the sweep with fewest crossings
    x        as near to the mean of the neighbours' as the order and the gaps allow

Source: Sugiyama, Tagawa, Toda 1981, IEEE Trans. SMC 11(2), sections III and IV.
Cost:   linear in boxes, edges and bends for each of SWEEPS sweeps, but for the sorting of a layer.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence

from picograd.record import Record, Struct, field

SWEEPS = 12
COLUMN_GAP, MARGIN = 26.0, 20.0  # pixels
LEAST_GAP, MOST_GAP, STEEPNESS = 40.0, 90.0, 0.08  # between layers, in pixels: more where edges run far to the side
BEND_WIDTH, BEND_WEIGHT = 2.0, 4.0  # a bend is thin, and moves little: long edges stay straight

Point = tuple[float, float]


class Layout(Record):
    """A laid out graph, in pixels from the top left corner.

    width:   of the whole
    height:  of the whole
    places:  for each box, the middle of its upper edge
    routes:  for each box and each of its sources, the points an edge runs through: straight, curved, straight, ...
    """

    width: float
    height: float
    places: list[Point]
    routes: list[list[list[Point]]]


class _Grid(Struct):
    """Boxes and bends, numbered in this order, by layer.

    rows:    the cells of each layer, from left to right
    widths:  of each cell
    above:   for each cell: (cell in the layer above, port: where its edge arrives, from the middle of this cell)
    below:   for each cell: (cell in the layer below, port of that cell)
    bends:   for each box, the bends of its edges, downwards
    """

    rows: list[list[int]]
    widths: list[float]
    above: list[list[tuple[int, float]]]
    below: list[list[tuple[int, float]]]
    bends: list[list[int]] = field(default_factory=list)

    def join(self, upper: int, lower: int, port: float) -> None:
        self.above[lower].append((upper, port))
        self.below[upper].append((lower, port))


def lay_out(boxes: Sequence[Point], sources: Sequence[Sequence[int]]) -> Layout:
    """Returns places for boxes and routes for their edges.

    Args:
      boxes:    (width, height) of each, in pixels; sources before readers
      sources:  for each box the boxes its edges come from, in the order in which they arrive from left to right

    >>> lay_out([(40, 20), (40, 20)], [[], [0]]).routes[1]
    [[(40.0, 40.0), (40.0, 40.0), (40.0, 80.0)]]
    """
    layer = _layers(sources)
    grid = _grid([width for width, _ in boxes], sources, layer)
    _order(grid)
    x = _columns(grid)
    tops = [MARGIN]
    heights = [max((boxes[cell][1] for cell in row if cell < len(boxes)), default=0.0) for row in grid.rows]
    for row, height in zip(grid.rows, heights):
        reach = max((abs(x[lower] + port - x[cell]) for cell in row for lower, port in grid.below[cell]), default=0.0)
        tops.append(tops[-1] + height + min(LEAST_GAP + STEEPNESS * reach, MOST_GAP))
    routes: list[list[list[Point]]] = []
    for box, found in enumerate(sources):
        routes.append([])
        for source, (_, port) in zip(found, _ports(boxes[box][0], found)):
            first, last = layer[source], layer[box]
            points = [(x[source], tops[first] + boxes[source][1]), (x[source], tops[first] + heights[first])]
            for between, bend in zip(range(first + 1, last), grid.bends[source]):
                points += [(x[bend], tops[between]), (x[bend], tops[between] + heights[between])]
            routes[-1].append([*points, (x[box] + port, tops[last])])
    width = max(x[cell] + grid.widths[cell] / 2 for row in grid.rows for cell in row) + MARGIN
    places = [(x[box], tops[layer[box]]) for box in range(len(boxes))]
    return Layout(width, tops[-1] - LEAST_GAP + MARGIN, places, routes)


def _ports(width: float, sources: Sequence[int]) -> list[tuple[int, float]]:
    """Returns (source, where its edge arrives, from the middle of the box)."""
    return [(source, width * ((i + 1) / (len(sources) + 1) - 0.5)) for i, source in enumerate(sources)]


def _layers(sources: Sequence[Sequence[int]]) -> list[int]:
    layer: list[int] = []
    for found in sources:
        layer.append(1 + max((layer[source] for source in found), default=-1))
    first = [len(sources)] * len(sources)
    for box, found in enumerate(sources):
        for source in found:
            first[source] = min(first[source], layer[box] - 1)
    return [layer[box] if found or first[box] == len(sources) else first[box] for box, found in enumerate(sources)]


def _grid(widths: list[float], sources: Sequence[Sequence[int]], layer: list[int]) -> _Grid:
    """Returns the layers with their bends, joined from box to box."""
    rows: list[list[int]] = [[] for _ in range(max(layer) + 1)]
    grid = _Grid(rows, widths, [[] for _ in widths], [[] for _ in widths])
    last = list(layer)
    for box, found in enumerate(sources):
        rows[layer[box]].append(box)
        for source in found:
            last[source] = max(last[source], layer[box])
    for box in range(len(sources)):
        grid.bends.append([])
        upper = box
        for row in range(layer[box] + 1, last[box]):
            bend = len(grid.widths)
            grid.widths.append(BEND_WIDTH)
            grid.above.append([])
            grid.below.append([])
            rows[row].append(bend)
            grid.bends[box].append(bend)
            grid.join(upper, bend, 0.0)
            upper = bend
    for box, found in enumerate(sources):
        for source, port in _ports(widths[box], found):
            between = layer[box] - layer[source] - 1
            grid.join(grid.bends[source][between - 1] if between else source, box, port)
    return grid


# ---- order within layers ----
def _order(grid: _Grid) -> None:
    """Sorts each layer by where its neighbours stand, sweep by sweep, and keeps the order with fewest crossings."""
    best, fewest = [list(row) for row in grid.rows], _crossings(grid)
    place = [0.0] * len(grid.widths)
    for row in grid.rows:
        _number(row, place)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for row in grid.rows if downwards else reversed(grid.rows):
            wish = {}
            for cell in row:
                near = grid.above[cell] if downwards else grid.below[cell]
                # A port counts as a part of its box's place, so that operands come to stand in their order.
                seen = [place[other] + (0.0 if downwards else port / grid.widths[other]) for other, port in near]
                wish[cell] = sum(seen) / len(seen) if seen else place[cell]
            row.sort(key=wish.__getitem__)
            _number(row, place)
        crossings = _crossings(grid)
        if crossings < fewest:
            best, fewest = [list(row) for row in grid.rows], crossings
    grid.rows = best


def _number(row: list[int], place: list[float]) -> None:
    for number, cell in enumerate(row):
        place[cell] = float(number)


def _crossings(grid: _Grid) -> int:
    """Returns how many pairs of edges cross, by counting inversions of their lower ends."""
    count = 0
    for upper, lower in zip(grid.rows, grid.rows[1:]):
        rank = {cell: i for i, cell in enumerate(lower)}
        ends: list[tuple[int, float]] = []
        for cell in upper:
            arriving = sorted((rank[other], port) for other, port in grid.below[cell])
            count += sum(len(ends) - bisect_right(ends, end) for end in arriving)
            for end in arriving:
                insort(ends, end)
    return count


# ---- columns ----
def _columns(grid: _Grid) -> list[float]:
    """Returns the middle of each cell."""
    x = [0.0] * len(grid.widths)
    for row in grid.rows:
        _settle(grid, row, dict.fromkeys(row, 0.0), x)
    for sweep in range(SWEEPS):
        for row in grid.rows if sweep % 2 == 0 else reversed(grid.rows):
            _settle(grid, row, {cell: _wish(grid, cell, sweep % 2 == 0, x) for cell in row}, x)
    left = min(x[cell] - grid.widths[cell] / 2 for row in grid.rows for cell in row)
    return [MARGIN + middle - left for middle in x]


def _wish(grid: _Grid, cell: int, downwards: bool, x: list[float]) -> float:
    """Returns where a cell would stand if it were alone: a bend straight below or above the next cell of its edge."""
    upper = [x[other] - port for other, port in grid.above[cell]]
    lower = [x[other] + port for other, port in grid.below[cell]]
    if grid.widths[cell] == BEND_WIDTH:
        onward = [x[other] for other, _ in grid.below[cell] if grid.widths[other] == BEND_WIDTH]
        near = upper if downwards else onward or lower
    else:
        near = upper + lower
    return sum(near) / len(near) if near else x[cell]


def _settle(grid: _Grid, row: list[int], wish: dict[int, float], x: list[float]) -> None:
    """Sets `x` of a layer as near to the wishes, in squares, as order and gaps allow: isotonic regression."""
    offset, offsets = 0.0, []
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, cells) of neighbours that touch
    for i, cell in enumerate(row):
        if i:
            offset += (grid.widths[row[i - 1]] + grid.widths[cell]) / 2 + COLUMN_GAP
        offsets.append(offset)
        weight = BEND_WEIGHT if grid.widths[cell] == BEND_WIDTH else 1.0
        mean, cells = wish[cell] - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, more, others = blocks.pop()
            mean, weight, cells = (before * more + mean * weight) / (more + weight), more + weight, cells + others
        blocks.append((mean, weight, cells))
    starts = [mean for mean, _, cells in blocks for _ in range(cells)]
    for cell, start, step in zip(row, starts, offsets):
        x[cell] = start + step
