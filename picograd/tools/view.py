"""Draws the graph of a tensor with values and gradients, as SVG or DOT text; no other program is needed.

In:    a Tensor
Out:   a `Drawing`, which notebooks show by themselves

Constants are in the title of the Op that reads them, broadcasts on the edge. A function of several Ops is one box, and so
are random numbers. Drawing changes no tensor: what is shown and has no value yet is computed by the evaluator, all at once,
and compiles nothing.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from picograd.autodiff.gradient import gradient, written_out
from picograd.dtype import DType
from picograd.engine.realize import realized, to_host
from picograd.errors import ArgumentError, GradientError
from picograd.evaluator.graph import evaluate
from picograd.files import write_whole
from picograd.ir.lines import lines_of
from picograd.ir.op import Op, Shape, const_value, filled, toposort
from picograd.ir.opcode import SEVERAL_RESULTS, OpCode
from picograd.nn.module import Module
from picograd.notebook import escaped
from picograd.record import Record, Struct
from picograd.tensor.cell import trace
from picograd.tensor.tensor import Tensor
from picograd.tools.folding import Folds, folds_of, name_of, names_of
from picograd.tools.layout import Point, lay_out

MOST_NODES = 1500
MOST_ELEMENTS = 9  # of a tensor whose value is shown
MOST_LETTERS = 44  # of a line of numbers
MANY_RESULTS = SEVERAL_RESULTS | {OpCode.SINK}  # no one value

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

    text:       SVG or DOT
    format:     "svg" or "dot"
    num_nodes:  boxes
    num_edges:  arrows
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
        """Returns the picture a notebook shows; None for DOT."""
        return self.text if self.format == "svg" else None


class _Node(Struct):
    """A box.

    op:       the Op, or the last one of several
    kind:     "leaf", "data", "root" or "box"
    sources:  (number of the node an arrow comes from, shape it is broadcast to or "")
    rows:     (kind of text, text) of each line
    note:     the text under the mouse
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
    """Draws the graph that `tensor` is computed by, from leaves at the top to the result at the bottom.

    A box shows the opcode, the name of a function or that of a leaf; dtype and shape; of up to 9 elements, the value and
    the gradient of the result by it. Operands arrive from left to right; a "·" in a title is one of them.

    Args:
      tensor:     any shape; of a tensor that is no scalar, the gradients are those of its sum
      format:     "svg", or "dot" for Graphviz and the tools that read its language
      values:     show values
      gradients:  show gradients
      names:      name -> tensor: names for leaves and results; those that are not in the graph are left out. Or a model:
                  each of its modules is a box with its parameters in it
      fold:       False draws each Op: those that functions such as cross_entropy and randn consist of, too

    Returns:   the drawing; a notebook shows it when it is the last line of a cell
    Raises:
      ArgumentError: `tensor` or a named thing is no Tensor, the format is unknown, or the graph has over 1500 nodes.
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
                    hint="draw an intermediate result, or cut the graph above one: y = Tensor(y.detach().numpy())",
                )
            numbers[op] = -1
            sources = [] if op in folds.random else _sources(op, names, folds)
            stack.append((op, sources))
            stack.extend((source, None) for source, _ in reversed(sources) if source not in numbers)
    return nodes


def _sources(op: Op, names: Mapping[Op, str], folds: Folds) -> list[tuple[Op, str]]:
    """Returns the sources that arrows come from, each with the shape it is broadcast to or ""; a box, of its parts."""
    if op.code is OpCode.LEAF and not op.src[0].needs_grad:
        return []  # how a leaf was filled is not a part of the graph
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
    """Returns the values of Ops, together; what a device has already computed is read from it.

    By the evaluator: a kernel with a result for each Op of a graph would take minutes to compile.
    """
    ops = written_out(ops)
    held = {op: op.realized or op for op in toposort(ops, stop=realized)}
    known = {op: to_host(buffer) for op, buffer in held.items() if buffer.code is OpCode.BUFFER}
    return evaluate(ops, known)


def _lines(numbers: str) -> list[str]:
    """Returns one line for each row of a matrix, more if the row is long."""
    rows = numbers.replace("], [", "],\n[").split("\n")
    return [line for row in rows for line in textwrap.wrap(row, MOST_LETTERS)]


def _numbers(array: np.ndarray[Any, Any], dtype: DType) -> str:
    if array.ndim:
        return f"[{', '.join(_numbers(part, dtype) for part in array)}]"
    return _number(float(array) if dtype.is_float else array.item())


def _number(value: Any) -> str:
    """Returns a number with up to four decimals.

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
    """Returns the path through points that are joined by a straight line and a curve in turn."""
    path = f"M{route[0][0]:.1f} {route[0][1]:.1f}"
    for i, ((x0, y0), (x1, y1)) in enumerate(zip(route, route[1:])):
        middle = (y0 + y1) / 2
        curve = f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
        path += f"L{x1:.1f} {y1:.1f}" if i % 2 == 0 else curve
    return path


def _escaped(text: str) -> str:
    """Returns text for XML, without the control characters XML cannot hold."""
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
