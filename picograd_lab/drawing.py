"""Draws the graph of a tensor with values and gradients, as SVG or DOT text, without other programs.

In:    a Tensor
Out:   a `Drawing`, which notebooks display

Constants are in the title of the Op that reads them, broadcasts on the edge. A function of several Ops is one box, and so
are random numbers: an Op with a line of the user's code has its own box; a function's intermediate Ops have no line and
belong to the box of their reader. A drawing changes no tensor: missing values are computed together by the evaluator,
which compiles nothing.

The boxes form a layered graph that reads from top to bottom:

    layers   a box is one layer below its lowest source; a box without sources just above its first reader
    bends    an edge over several layers has a bend in each layer between; edges of one source share their bends
    order    within a layer, by the mean of the neighbours' places (barycenter); the sweep with fewest crossings wins
    x        as near to the mean of the neighbours' as order and gaps allow

Source: Sugiyama, Tagawa, Toda 1981, IEEE Trans. SMC 11(2), sections III and IV.
Cost:   linear in boxes, edges and bends for each of SWEEPS sweeps, apart from sorting the layers.
"""

from __future__ import annotations

import textwrap
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from picograd.autodiff.gradient import gradient, written_out
from picograd.dtype import DType
from picograd.engine.realize import to_host
from picograd.errors import ArgumentError, GradientError
from picograd.evaluator.graph import evaluate
from picograd.files import write_whole
from picograd.ir.op import Op, Shape, const_value, filled, realized, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.ir.origin import lines_of
from picograd.nn.module import Module
from picograd.record import Record, Struct, field
from picograd.tensor.cell import trace
from picograd.tensor.printing import escaped
from picograd.tensor.tensor import Tensor

# ---- boxes for several Ops ----
KEPT = SEVERAL_RESULTS | {OpCode.LEAF, OpCode.OUTPUT, OpCode.BUFFER}  # never random, never a part of another box
NAMES_MAX = 3  # of Ops in a title
BITS = "bits_of"  # the function that random numbers are drawn by


class Folds(Record):
    """Ops that are drawn inside other boxes.

    random:  Ops of random bits and constants alone, which are boxes without sources
    inside:  Ops inside the box of their reader
    owners:  by parameter, the module that it belongs to, as "0 Linear"
    names:   by Op, the user's names
    """

    random: frozenset[Op] = frozenset()
    inside: frozenset[Op] = frozenset()
    owners: Mapping[Op, str] = {}
    names: Mapping[Op, str] = {}

    def below(self, op: Op) -> Op:
        """Returns the operand of a broadcast, or the Op itself; broadcasts have no box of their own."""
        while op not in self.names and is_broadcast(op):
            op = op.src[0]
        return op

    def parts(self, op: Op) -> list[Op]:
        """Returns the Ops inside a box; the last is the box's own."""
        return toposort([op], sources=lambda each: [s for s in map(self.below, each.src) if s in self.inside])

    def title(self, op: Op, own: str) -> str | None:
        """Returns the title of a box with several Ops or with parameters; None for other boxes.

        Args:
          own:  the name of the Op alone
        """
        if op in self.random:
            return "RANDOM"
        parts = self.parts(op)
        owners = dict.fromkeys(self.owners[s] for part in parts for s in map(self.below, part.src) if s in self.owners)
        if len(owners) == 1:
            return next(iter(owners))
        names = [name_of(part) for part in parts[:-1]]
        if not names:
            return None
        shown = names if len(names) <= NAMES_MAX else [*names[:NAMES_MAX], "..."]
        return f"{own} of {', '.join(shown)}"


def folds_of(root: Op, names: Mapping[Op, str], model: Module | None) -> Folds:
    """Returns the Ops of a graph that are drawn inside other boxes."""
    order = toposort([root])
    random = _random(order)
    own = {root, *names, *random}
    inside = {op for op in order if op.src and not op.lines and op.code not in KEPT and not is_broadcast(op)} - own
    return Folds(frozenset(random), frozenset(inside), {} if model is None else _owners(model), names)


def _random(order: list[Op]) -> set[Op]:
    """Returns the Ops that are made only of random bits, constants and generators' keys."""
    constant, random = set[Op](), set[Op]()
    for op in order:
        others = [s for s in op.src if s not in constant]
        if op.code in (OpCode.CONST, OpCode.IOTA) or (op.src and not others):
            constant.add(op)
            continue
        draws = op.code is OpCode.THREEFRY or (op.code is OpCode.FORMULA and name_of(op) == BITS)
        may_be = op.code is OpCode.FORMULA or op.code not in KEPT
        if draws or (others and may_be and random.issuperset(others)):
            random.add(op)
    return random


def _owners(model: Module) -> dict[Op, str]:
    """Returns the module of each parameter."""
    found: dict[Op, str] = {}
    for path, module in model.named_modules():
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            found[tensor.op] = f"{path} {type(module).__name__}".strip()
    return found


def is_broadcast(op: Op) -> bool:
    """True for an Op that repeats its source, or adds or removes axes of length 1."""
    if op.code is OpCode.RESHAPE:
        return [dim for dim in op.shape if dim != 1] == [dim for dim in op.src[0].shape if dim != 1]
    return op.code is OpCode.EXPAND


def name_of(op: Op) -> str:
    """Returns the opcode of an Op, or the name of its function."""
    formula = op.src[0] if op.code is OpCode.OUTPUT else op
    if formula.code is not OpCode.FORMULA:
        return op.code.name
    options = formula.arg.options
    is_called = isinstance(options, tuple) and options and callable(options[0])
    function: Any = options[0] if is_called else formula.arg.function
    return str(getattr(function, "__name__", "FORMULA")).strip("_").removesuffix("_op")


def names_of(names: Mapping[str, Tensor] | Module | None) -> Mapping[str, Tensor]:
    """Returns the user's names; in a model, the names of its parameters."""
    return dict(names.named_parameters()) if isinstance(names, Module) else names or {}


# ---- places of boxes and edges ----
SWEEPS = 12
COLUMN_GAP, MARGIN = 26.0, 20.0  # pixels
LEAST_GAP, MOST_GAP, STEEPNESS = 40.0, 90.0, 0.08  # pixels between layers: more if edges run far sideways
BEND_WIDTH, BEND_WEIGHT = 2.0, 4.0  # pixels; bends move little, so that long edges stay straight

Point = tuple[float, float]


class Layout(Record):
    """The layout of a graph, in pixels from the top left corner.

    width:   width of the whole drawing
    height:  height of the whole drawing
    places:  middle of the upper edge of each box
    routes:  points of the edge from each source of each box, joined by lines and curves in turn
    """

    width: float
    height: float
    places: list[Point]
    routes: list[list[list[Point]]]


class _Grid(Struct):
    """Boxes and bends, numbered in this order, by layer.

    rows:    the cells of each layer, from left to right
    widths:  width of each cell
    above:   for each cell: (cell in the layer above, port: the edge's end relative to the middle of this cell)
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
    """Returns places of boxes and routes of their edges.

    Args:
      boxes:    (width, height) of each box, in pixels; sources before readers
      sources:  sources of each box, in the order of their edges from left to right

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
    """Returns (source, the edge's end relative to the middle of the box)."""
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
    """Returns the layers, with bends and edges from cell to cell."""
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
    """Sorts each layer by the places of its neighbours in several sweeps; keeps the order with fewest crossings."""
    best, fewest = [list(row) for row in grid.rows], _crossings(grid)
    place = [0.0] * len(grid.widths)
    for row in grid.rows:
        _renumber(row, place)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for row in grid.rows if downwards else reversed(grid.rows):
            wish = {}
            for cell in row:
                near = grid.above[cell] if downwards else grid.below[cell]
                # A port counts towards the place of its box, so that operands keep their order.
                seen = [place[other] + (0.0 if downwards else port / grid.widths[other]) for other, port in near]
                wish[cell] = sum(seen) / len(seen) if seen else place[cell]
            row.sort(key=wish.__getitem__)
            _renumber(row, place)
        crossings = _crossings(grid)
        if crossings < fewest:
            best, fewest = [list(row) for row in grid.rows], crossings
    grid.rows = best


def _renumber(row: list[int], place: list[float]) -> None:
    for number, cell in enumerate(row):
        place[cell] = float(number)


def _crossings(grid: _Grid) -> int:
    """Returns the number of crossing pairs of edges, by counting inversions of their lower ends."""
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
    """Returns the x of each cell's middle."""
    x = [0.0] * len(grid.widths)
    for row in grid.rows:
        _settle(grid, row, dict.fromkeys(row, 0.0), x)
    for sweep in range(SWEEPS):
        for row in grid.rows if sweep % 2 == 0 else reversed(grid.rows):
            _settle(grid, row, {cell: _wish(grid, cell, sweep % 2 == 0, x) for cell in row}, x)
    left = min(x[cell] - grid.widths[cell] / 2 for row in grid.rows for cell in row)
    return [MARGIN + middle - left for middle in x]


def _wish(grid: _Grid, cell: int, downwards: bool, x: list[float]) -> float:
    """Returns the place of a cell without its row: a bend is straight below or above the next cell of its edge."""
    upper = [x[other] - port for other, port in grid.above[cell]]
    lower = [x[other] + port for other, port in grid.below[cell]]
    if grid.widths[cell] == BEND_WIDTH:
        onward = [x[other] for other, _ in grid.below[cell] if grid.widths[other] == BEND_WIDTH]
        near = upper if downwards else onward or lower
    else:
        near = upper + lower
    return sum(near) / len(near) if near else x[cell]


def _settle(grid: _Grid, row: list[int], wish: dict[int, float], x: list[float]) -> None:
    """Sets `x` of a layer to the least squares fit of the wishes under order and gaps: isotonic regression."""
    offset, offsets = 0.0, []
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, number of cells) of adjacent cells
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


# ---- drawings ----
MOST_NODES = 1500
MOST_ELEMENTS = 9  # limit of elements of a tensor with a shown value
MOST_LETTERS = 44  # letters of a line of numbers
MANY_RESULTS = SEVERAL_RESULTS | {OpCode.SINK}  # without one value

LETTER, LINE, PADDING = 7.3, 17.0, 10.0  # pixels: width of a letter, height of a line, rim of a box
STYLE = """<style>
.picograd-graph text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace }
.picograd-graph text { fill: #1f2933 }
.picograd-graph .title { font-weight: bold }
.picograd-graph .type { fill: #7b8794 }
.picograd-graph .grad { fill: #b4380e }
.picograd-graph .on-edge { fill: #7b8794; font-size: 10px; stroke: #fff; stroke-width: 3px; paint-order: stroke }
.picograd-graph .box { fill: #fff; stroke: #9aa5b1 }
.picograd-graph .leaf { fill: #e8f5ec; stroke: #4c9a6a }
.picograd-graph .data { fill: #f1f3f5; stroke: #9aa5b1 }
.picograd-graph .root { fill: #fff6dd; stroke: #d29b1e; stroke-width: 1.6px }
.picograd-graph .edge { fill: none; stroke: #8593a1; stroke-width: 1.2px }
.picograd-graph .head { fill: #8593a1 }
</style>"""


class Drawing(Record):
    """A drawn graph.

    text:       the drawing as SVG or DOT
    format:     "svg" or "dot"
    num_nodes:  number of boxes
    num_edges:  number of arrows
    """

    text: str
    format: str
    num_nodes: int
    num_edges: int

    def __repr__(self) -> str:
        return f"Drawing(format={self.format!r}, num_nodes={self.num_nodes}, num_edges={self.num_edges})"

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the text to a file, in UTF-8.

        Raises:
          DataError: the file cannot be written.
        """
        write_whole("Drawing.save", path, lambda file: file.write(self.text.encode()))

    def _repr_svg_(self) -> str | None:
        """Returns the SVG for notebooks; None for DOT."""
        return self.text if self.format == "svg" else None


class _Node(Struct):
    """A box.

    op:       the Op, or the last of several
    kind:     "leaf", "data", "root" or "box"
    sources:  (number of the arrow's source node, broadcast shape or "")
    rows:     (kind of text, text) for each line
    note:     the tooltip
    """

    op: Op
    kind: str
    sources: list[tuple[int, str]]
    rows: list[tuple[str, str]]
    note: str


def draw(
    tensor: Tensor,
    format: str = "svg",
    values: bool = True,
    gradients: bool = True,
    names: Mapping[str, Tensor] | Module | None = None,
    fold: bool = True,
) -> Drawing:
    """Draws the graph that computes `tensor`, from leaves at the top to the result at the bottom.

    A box shows the opcode or the name of a function or leaf; dtype and shape; for up to 9 elements, the value and the
    gradient of the result with respect to it. Operands arrive from left to right; a "·" in a title stands for an operand.

    Args:
      tensor:     any shape; for a tensor that is not a scalar, the gradients are those of its sum
      format:     "svg", or "dot" for Graphviz and other tools of its language
      values:     show values
      gradients:  show gradients
      names:      name -> tensor: names of leaves and results; tensors outside the graph are ignored. Or a model: each of
      its modules is a box that contains its parameters
      fold:       False draws each Op, including those inside functions such as cross_entropy and randn

    Returns:   the drawing, which a notebook displays as the last line of a cell
    Raises:
      ArgumentError: `tensor` or a named value is not a Tensor, the format is unknown, or the graph has over 1500 nodes.
      GradientError: an Op has no chain rule.

    Cost:      one pass of the evaluator over graph and gradient; the layout is about linear in nodes.

    >>> x = Tensor(3.0, requires_grad=True)
    >>> draw(x * x + 1.0)
    Drawing(format='svg', num_nodes=3, num_edges=3)
    >>> print(draw(x * 2.0, "dot", names={"x": x}).text)
    digraph picograd {
      node [shape=box, fontname="monospace"];
      n0 [label="x\\nfloat32 ()\\nvalue 3\\ngrad  2"];
      n1 [label="MUL(·, 2)\\nfloat32 ()\\nvalue 6\\ngrad  1"];
      n0 -> n1;
    }
    """
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"draw: needs a Tensor, got {type(tensor).__name__}.", hint="draw(loss)")
    if format not in ("svg", "dot"):
        raise ArgumentError(f'draw: format must be "svg" or "dot", got {format!r}.')
    if (active := trace.get()) is not None:
        active.on_host_read("draw")
    model = names if isinstance(names, Module) and fold else None
    named = {} if model is not None else _names(names_of(names))
    root, *ops = [tensor.op, *named] if fold else written_out([tensor.op, *named])
    named = dict(zip(ops, named.values()))
    nodes = _nodes(root, named, folds_of(root, named, model) if fold else Folds(names=named))
    _show_numbers(root, nodes, values, gradients)
    return Drawing(
        _svg(nodes) if format == "svg" else _dot(nodes), format, len(nodes), sum(len(node.sources) for node in nodes)
    )


# ---- what is drawn ----
def _names(names: Mapping[str, Tensor]) -> dict[Op, str]:
    named: dict[Op, str] = {}
    for name, tensor in names.items():
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"draw: names[{name!r}] must be a Tensor, got {type(tensor).__name__}.")
        named[tensor.op] = f"{named[tensor.op]}, {name}" if tensor.op in named else str(name)
    return named


def _nodes(root: Op, names: Mapping[Op, str], folds: Folds) -> list[_Node]:
    """Returns the boxes of a graph, sources first."""
    numbers: dict[Op, int] = {}
    nodes: list[_Node] = []
    stack: list[tuple[Op, list[tuple[Op, str]] | None]] = [(root, None)]
    while stack:
        op, sources = stack.pop()
        if sources is not None:
            numbers[op] = len(nodes)
            arrows = [(numbers[source], shape) for source, shape in sources]
            heading = _heading(op, names, folds)
            nodes.append(_Node(op, _kind(op, root, sources), arrows, heading, _note(op)))
        elif op not in numbers:
            if len(numbers) >= MOST_NODES:
                raise ArgumentError(
                    f"draw: the graph has more than {MOST_NODES} nodes.",
                    hint="draw an intermediate result, or cut the graph at one: y = Tensor(y.detach().numpy())",
                )
            numbers[op] = -1
            sources = [] if op in folds.random else _sources(op, names, folds)
            stack.append((op, sources))
            stack.extend((source, None) for source, _ in reversed(sources) if source not in numbers)
    return nodes


def _sources(op: Op, names: Mapping[Op, str], folds: Folds) -> list[tuple[Op, str]]:
    """Returns the sources of a box's arrows, each with its broadcast shape or ""; folded Ops are part of the box."""
    if op.code is OpCode.LEAF and not op.src[0].needs_grad:
        return []  # a leaf's initialization is not drawn
    parts, found = folds.parts(op), []
    for whole in (source for part in parts for source in part.src):
        source = folds.below(whole)
        if const_value(whole) is None and source not in folds.owners and source not in folds.inside:
            found.append((source, "" if whole is source or len(parts) > 1 else _shape(whole.shape)))
    return found if len(parts) == 1 else list(dict.fromkeys(found))


def _kind(op: Op, root: Op, sources: list[tuple[Op, str]]) -> str:
    if op is root:
        return "root"
    return "leaf" if op.code is OpCode.LEAF else "box" if sources else "data"


def _heading(op: Op, names: Mapping[Op, str], folds: Folds) -> list[tuple[str, str]]:
    """Returns the title of a box and the line below it."""
    title = folds.title(op, name_of(op)) or _title(op)
    if op in names:
        title = names[op] if op.code in (OpCode.LEAF, OpCode.BUFFER) else f"{names[op]} = {title}"
    return [("title", title), ("type", f"{op.dtype} {_shape(op.shape)}")]


def _title(op: Op) -> str:
    """Returns the name of an Op, with its constants."""
    title = name_of(op)
    if op.code is OpCode.FORMULA:
        return title
    constants = [const_value(source) for source in op.src] if op.code is not OpCode.LEAF else []
    if op.code is OpCode.CONST:
        title = f"CONST {_number(op.arg)}"
    elif op.code in (OpCode.REDUCE, OpCode.SCAN, OpCode.SCATTER):
        combine, *rest = op.arg
        title = f"{title} {combine.name if combine else 'store'} {rest[0]}"
    elif op.code in (OpCode.PERMUTE, OpCode.FLIP, OpCode.SHRINK, OpCode.PAD, OpCode.COPY, OpCode.OUTPUT):
        title = f"{title} {op.arg}"
    if any(value is not None for value in constants):
        title += f"({', '.join('·' if value is None else _number(value) for value in constants)})"
    return title


def _note(op: Op) -> str:
    return "\n".join([op.code.name, *(f"made at {line}" for line in lines_of(op))])


def _shape(shape: Shape) -> str:
    dims = [str(dim) if isinstance(dim, int) else str(dim.arg[0]) if dim.code is OpCode.VARIABLE else "?" for dim in shape]
    return f"({', '.join(dims)}{',' if len(dims) == 1 else ''})"


# ---- values and gradients ----
def _show_numbers(root: Op, nodes: list[_Node], values: bool, gradients: bool) -> None:
    """Adds the lines of values and gradients, computed together."""
    grads: dict[Op, Op] = {}
    root, *written = written_out([root, *(node.op for node in nodes)])
    if gradients and root.needs_grad:
        wanted = [op for op in written if op.needs_grad]
        try:
            grads = gradient(root, filled(1, root.dtype, root.shape), wanted)
        except GradientError as error:
            raise GradientError(error.fact.replace("backward:", "draw:", 1), hint="draw(x, gradients=False)") from None
    shown: list[tuple[_Node, str, Op]] = []
    for node, op in zip(nodes, written):
        small = all(isinstance(dim, int) for dim in op.shape) and op.numel <= MOST_ELEMENTS
        small = small and op.code not in MANY_RESULTS
        if values and small and op.code is not OpCode.CONST:
            shown.append((node, "value", op))
        if small and op in grads:
            shown.append((node, "grad", grads[op]))
    for (node, key, op), array in zip(shown, _evaluated([op for _, _, op in shown])):
        for i, line in enumerate(_lines(_numbers(array, op.dtype))):
            node.rows.append((key, f"{'' if i else key:<5} {line}"))


def _evaluated(ops: list[Op]) -> list[np.ndarray[Any, Any]]:
    """Returns the values of Ops, computed together; values that a device has already computed are read from it.

    Uses the evaluator: a kernel with a result for each Op of a graph would take minutes to compile.
    """
    ops = written_out(ops)
    held = {op: op.realized or op for op in toposort(ops, stop=realized)}
    known = {op: to_host(buffer) for op, buffer in held.items() if buffer.code is OpCode.BUFFER}
    return evaluate(ops, known)


def _lines(numbers: str) -> list[str]:
    """Returns a line for each row of a matrix, or several for a long row."""
    rows = numbers.replace("], [", "],\n[").split("\n")
    return [line for row in rows for line in textwrap.wrap(row, MOST_LETTERS)]


def _numbers(array: np.ndarray[Any, Any], dtype: DType) -> str:
    if array.ndim:
        return f"[{', '.join(_numbers(part, dtype) for part in array)}]"
    return _number(float(array) if dtype.is_float else array.item())


def _number(value: Any) -> str:
    """Formats a number with up to four decimals.

    >>> _number(24.70408), _number(2.0), _number(1e-7), _number(True)
    ('24.7041', '2', '1e-07', 'True')
    """
    if not isinstance(value, float):
        return str(value)
    if value and not 1e-3 <= abs(value) < 1e7:
        return f"{value:.5g}"
    return f"{value:.4f}".rstrip("0").rstrip(".")


# ---- as text ----
def _svg(nodes: list[_Node]) -> str:
    """Returns the drawing as SVG: edges first, boxes over them."""
    boxes = [_measure(node) for node in nodes]
    layout = lay_out(boxes, [[source for source, _ in node.sources] for node in nodes])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{layout.width:.0f}" height="{layout.height:.0f}" '
        f'viewBox="0 0 {layout.width:.0f} {layout.height:.0f}" class="picograd-graph">',
        STYLE,
        '<defs><marker id="picograd-arrow" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path class="head" d="M0 0.5 L8 4 L0 7.5 z"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for routes in layout.routes:
        parts += [f'<path class="edge" d="{_curve(route)}" marker-end="url(#picograd-arrow)"/>' for route in routes]
    for node, box, (x, y), routes in zip(nodes, boxes, layout.places, layout.routes):
        parts.append(_svg_node(node, box, x - box[0] / 2, y))
        for (_, shape), route in zip(node.sources, routes):
            if shape:
                parts.append(_svg_text("on-edge", shape, route[-1][0] + 5, route[-1][1] - 7))
    return "\n".join([*parts, "</svg>"])


def _measure(node: _Node) -> Point:
    letters = max(len(text) for _, text in node.rows)
    on_edges = sum(len(shape) + 2 for _, shape in node.sources if shape)
    return LETTER * max(letters, on_edges) + 2 * PADDING, LINE * len(node.rows) + 2 * PADDING - 5


def _svg_node(node: _Node, box: Point, left: float, top: float) -> str:
    rows = [
        f'<g class="node"><title>{_escaped(node.note)}</title>'
        f'<rect class="{node.kind}" x="{left:.1f}" y="{top:.1f}" width="{box[0]:.1f}" height="{box[1]:.1f}" rx="6"/>'
    ]
    for i, (kind, text) in enumerate(node.rows):
        rows.append(_svg_text(kind, text, left + PADDING, top + PADDING + LINE * i + 9))
    return "".join([*rows, "</g>"])


def _svg_text(kind: str, text: str, x: float, y: float) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" xml:space="preserve">{_escaped(text)}</text>'


def _curve(route: list[Point]) -> str:
    """Returns an SVG path through points, by lines and curves in turn."""
    path = f"M{route[0][0]:.1f} {route[0][1]:.1f}"
    for i, ((x0, y0), (x1, y1)) in enumerate(zip(route, route[1:])):
        middle = (y0 + y1) / 2
        curve = f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        path += f"L{x1:.1f} {y1:.1f}" if i % 2 == 0 else curve
    return path


def _escaped(text: str) -> str:
    """Escapes text for XML and removes control characters that XML cannot contain."""
    kept = "".join(letter if letter.isprintable() or letter == "\n" else "\ufffd" for letter in text)
    return escaped(kept)


def _dot(nodes: list[_Node]) -> str:
    lines = ["digraph picograd {", '  node [shape=box, fontname="monospace"];']
    for number, node in enumerate(nodes):
        label = "\\n".join(_quoted(text) for _, text in node.rows)
        lines.append(f'  n{number} [label="{label}"];')
    for number, node in enumerate(nodes):
        for source, shape in node.sources:
            lines.append(f"  n{source} -> n{number}" + (f' [label="{_quoted(shape)}"];' if shape else ";"))
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
