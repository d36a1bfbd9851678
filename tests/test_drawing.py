"""The drawn graph: micrograd's README example with its published numbers, the text of both formats, and the layout."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest

import picograd as pg
from picograd import Tensor, draw
from picograd.errors import ArgumentError, GradientError, JitError
from picograd.ir.op import Op, realized
from picograd.ir.opcode import OpCode
from picograd.look import watch
from picograd_lab import drawing
from picograd_lab.drawing import lay_out

pytestmark = pytest.mark.req("A10")
SVG = "{http://www.w3.org/2000/svg}"


def readme_graph() -> tuple[Tensor, dict[str, Tensor]]:
    """Returns g of micrograd's README, and a, b and g by their names."""
    a, b = (Tensor(value, pg.float64, requires_grad=True) for value in (-4.0, 2.0))
    c = a + b
    d = a * b + b**3
    c = c + (c + 1)
    c = c + (1 + c + (-a))
    d = d + (d * 2 + (b + a).relu())
    d = d + (3 * d + (b - a).relu())
    e = c - d
    f = e**2
    g = f / 2.0 + 10.0 / f
    return g, {"a": a, "b": b, "g": g}


def boxes(svg: str) -> list[list[str]]:
    """Returns the lines of each box of an SVG drawing."""
    groups = ElementTree.fromstring(svg).iter(f"{SVG}g")
    return [[text.text or "" for text in group.iter(f"{SVG}text")] for group in groups]


def labels(dot: str) -> dict[str, list[str]]:
    """Returns the lines of each node of a DOT drawing."""
    found = re.findall(r'^  (n\d+) \[label="(.*)"\];$', dot, re.MULTILINE)
    return {name: label.split("\\n") for name, label in found}


# ---- micrograd's README ----
def test_svg_of_micrograds_readme(device: str) -> None:
    g, names = readme_graph()
    shown = {lines[0]: lines[1:] for lines in boxes(draw(g, names=names).text)}
    assert shown["g = ADD"] == ["float64 ()", "value 24.7041", "grad  1"]
    assert shown["a"] == ["float64 ()", "value -4", "grad  138.8338"]
    assert shown["b"] == ["float64 ()", "value 2", "grad  645.5773"]
    assert shown["DIV(10, ·)"] == ["float64 ()", "value 0.2041", "grad  1"]


def test_dot_of_micrograds_readme(device: str) -> None:
    g, names = readme_graph()
    drawing = draw(g, "dot", names=names, fold=False)
    nodes = labels(drawing.text)
    edges = re.findall(r"^  (n\d+) -> (n\d+);$", drawing.text, re.MULTILINE)
    assert drawing.text.startswith("digraph picograd {\n") and drawing.text.endswith("\n}")
    assert (len(nodes), len(edges)) == (drawing.num_nodes, drawing.num_edges) == (30, 47)
    by_name = {lines[0]: name for name, lines in nodes.items()}
    assert nodes[by_name["a"]] == ["a", "float64 ()", "value -4", "grad  138.8338"]
    assert not [edge for edge in edges if edge[1] in (by_name["a"], by_name["b"]) or edge[0] == by_name["g = ADD"]]
    assert [source for source, result in edges if result == by_name["g = ADD"]] == [
        by_name["DIV(·, 2)"], by_name["DIV(10, ·)"],
    ]  # fmt: skip
    assert all(int(source[1:]) < int(result[1:]) for source, result in edges)


def test_drawing_compiles_nothing_and_leaves_the_graph_as_it_was(device: str) -> None:
    g, names = readme_graph()
    before = g.op
    with watch() as counts:
        draw(g)
    assert counts.plans == counts.scheduled == counts.compiled == 0
    assert g.op is before and before not in realized and names["a"].grad is None


# ---- what a box shows ----
def test_broadcasts_stand_on_edges_and_constants_in_titles(device: str) -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    bias = Tensor([10.0, 20.0], requires_grad=True)
    text = draw(1.0 - (x + bias), "dot", names={"x": x, "bias": bias}).text
    assert list(labels(text).values()) == [
        ["x", "float32 (2, 2)", "value [[1, 2],", "      [3, 4]]", "grad  [[-1, -1],", "      [-1, -1]]"],
        ["bias", "float32 (2,)", "value [10, 20]", "grad  [-2, -2]"],
        ["ADD", "float32 (2, 2)", "value [[11, 22],", "      [13, 24]]", "grad  [[-1, -1],", "      [-1, -1]]"],
        ["SUB(1, ·)", "float32 (2, 2)", "value [[-10, -21],", "      [-12, -23]]", "grad  [[1, 1],", "      [1, 1]]"],
    ]
    assert '  n1 -> n2 [label="(2, 2)"];' in text and "  n0 -> n2;" in text
    assert ">(2, 2)</text>" in draw(1.0 - (x + bias)).text


def test_large_tensors_show_shapes_only_and_numbers_can_be_left_out(device: str) -> None:
    x = Tensor.ones(4, 5).clone().requires_grad_()
    loss = (x * x).sum()
    assert list(labels(draw(loss, "dot").text).values()) == [
        ["LEAF", "float32 (4, 5)"],
        ["MUL", "float32 (4, 5)"],
        ["REDUCE ADD (0, 1)", "float32 ()", "value 20", "grad  1"],
    ]
    assert labels(draw(loss, "dot", values=False).text)["n2"][2:] == ["grad  1"]
    assert labels(draw(loss, "dot", gradients=False).text)["n2"][2:] == ["value 20"]
    assert labels(draw(loss.detach(), "dot").text)["n3"][2:] == ["value 20"]


def test_a_model_with_its_parameters_names(device: str) -> None:
    model = pg.nn.Linear(3, 2)
    loss = pg.nn.functional.cross_entropy(model(Tensor([[1.0, 2.0, 3.0]])), Tensor([1]))
    drawing = draw(loss, names={**dict(model.named_parameters()), "loss": loss})
    titles = [lines[0] for lines in boxes(drawing.text)]
    assert {"weight", "bias", "linear_with_bias"} <= set(titles) and titles[-1].startswith("loss = ")
    assert not any("THREEFRY" in title for title in titles)


DRAWN = ("RANDOM", "LEAF", "BUFFER", "rand", "randn", "randint")  # random numbers and memory


def test_functions_modules_and_random_numbers_are_one_box_each(device: str) -> None:
    model = pg.nn.Sequential(pg.nn.Linear(4, 8), pg.nn.ReLU(), pg.nn.Linear(8, 3))
    x, y = pg.randn(5, 4), pg.randint(0, 3, (5,))
    loss = pg.nn.functional.cross_entropy(model(x), y)
    titles = [label[0] for label in labels(draw(loss, "dot").text).values()]
    assert [title for title in titles if title not in DRAWN] == [
        "linear_with_bias", "relu", "linear_with_bias", "cross_entropy",
    ]  # fmt: skip
    found = labels(draw(loss, "dot", names=model).text)
    titles = [label[0] for label in found.values() if label[0] not in DRAWN]
    assert titles == ["0 Linear", "relu", "2 Linear", "cross_entropy"]
    assert draw(loss, fold=False).num_nodes > 60
    expected = labels(draw(loss, "dot", fold=False).text)
    assert list(found.values())[-1][1:] == list(expected.values())[-1][1:], "the same value and gradient"


def test_what_a_function_computes_on_its_way_is_a_part_of_its_box(device: str) -> None:
    """Under jit, too, where functions are graphs at once."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    with pg.autograd.set_detect_anomaly(True):
        y = pg.nn.functional.hardswish(x * 3.0)
    found = list(labels(draw(y, "dot", names={"x": x}).text).values())
    assert found[0][0] == "x" and len(found) == 3 and " of " in found[2][0]
    assert found[2][2:] == list(labels(draw(y, "dot", names={"x": x}, fold=False).text).values())[-1][2:]


def test_text_is_escaped() -> None:
    x = Tensor(2.0, requires_grad=True)
    name = 'a<b> & "c" \\n\x00'
    shown = boxes(draw(x + x, names={name: x}).text)
    assert shown[0][0] == 'a<b> & "c" \\n\ufffd'
    dot = draw(x + x, "dot", names={'q"\\n': x, "same": x}).text
    assert '[label="q\\"\\\\n, same\\nfloat32' in dot


def test_where_an_op_was_made_is_its_tooltip() -> None:
    x = Tensor(2.0, requires_grad=True)
    y = x.exp()
    notes = [title.text or "" for title in ElementTree.fromstring(draw(y).text).iter(f"{SVG}title")]
    assert re.fullmatch(r"EXP\nmade at test_drawing.py:\d+    y = x.exp\(\)", notes[1])


# ---- notebooks, files, errors ----
def test_notebooks_and_files(tmp_path: Path) -> None:
    x = Tensor(3.0, requires_grad=True)
    drawing = draw(x * x)
    assert drawing._repr_svg_() == drawing.text and draw(x * x, "dot")._repr_svg_() is None
    assert repr(drawing) == "Drawing(format='svg', num_nodes=2, num_edges=2)"
    drawing.save(tmp_path / "graph.svg")
    assert ElementTree.parse(tmp_path / "graph.svg").getroot().tag == f"{SVG}svg"


def test_errors_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(3.0, requires_grad=True)
    with pytest.raises(ArgumentError) as error:
        draw(3.0)  # type: ignore[arg-type]
    assert (error.value.fact, error.value.hint) == ("draw: needs a Tensor, got float.", "draw(loss)")
    with pytest.raises(ArgumentError, match=r"draw: format must be \"svg\" or \"dot\", got 'png'\."):
        draw(x, "png")
    with pytest.raises(ArgumentError, match=re.escape("draw: names['x'] must be a Tensor, got int.")):
        draw(x, names={"x": 3})  # type: ignore[dict-item]
    monkeypatch.setattr(drawing, "MOST_NODES", 3)
    with pytest.raises(ArgumentError) as error:
        draw(x.exp().exp().exp())
    assert error.value.fact == "draw: the graph has more than 3 nodes."
    y = x.exp().exp()
    assert draw(Tensor(y.detach().numpy()).exp()).num_nodes == 2  # what the hint proposes


def test_an_op_without_a_chain_rule_can_be_drawn_without_gradients() -> None:
    x = Tensor(2.0, requires_grad=True)
    y = Tensor.from_op(Op(OpCode.BITCAST, pg.float32, (x.op,)), x.device)
    with pytest.raises(GradientError) as error:
        draw(y)
    assert error.value.fact.startswith("draw: BITCAST has no chain rule.")
    assert error.value.hint == "draw(x, gradients=False)"
    assert draw(y, gradients=False).num_nodes == 2


def test_inside_jit_there_is_nothing_to_draw() -> None:
    @pg.jit
    def step(x: Tensor) -> Tensor:
        draw(x * 2.0)
        return x * 2.0

    with pytest.raises(JitError, match="draw"):
        for _ in range(3):
            step(Tensor([1.0]))


# ---- layout ----
def test_boxes_do_not_overlap_and_edges_run_down() -> None:
    g, _ = readme_graph()
    root = ElementTree.fromstring(draw(g).text)
    rects = [
        tuple(float(rect.get(key, "")) for key in ("x", "y", "width", "height"))
        for group in root.iter(f"{SVG}g")
        for rect in group.iter(f"{SVG}rect")
    ]
    for i, (x, y, w, h) in enumerate(rects):
        assert x >= 0 and x + w <= float(root.get("width", "0")) and y + h <= float(root.get("height", "0"))
        for x2, y2, w2, h2 in rects[:i]:
            assert x + w < x2 or x2 + w2 < x or y + h < y2 or y2 + h2 < y
    for path in root.iter(f"{SVG}path"):
        if path.get("class") == "edge":
            heights = [float(pair.split()[1]) for pair in re.findall(r"[-\d.]+ [-\d.]+", path.get("d", ""))]
            assert all(a <= b for a, b in pairwise(heights))


def test_operands_stand_in_their_order() -> None:
    places = lay_out([(40, 20)] * 3, [[], [], [1, 0]]).places
    assert places[1][0] < places[0][0]


def test_work_is_linear_in_a_graph_of_500_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(0.5, requires_grad=True)
    placed: dict[int, int] = {}
    settle = drawing._settle

    def counted(grid: drawing._Grid, row: list[int], wish: dict[int, float], places: list[float]) -> None:
        placed[length] = placed.get(length, 0) + len(row)
        settle(grid, row, wish, places)

    monkeypatch.setattr(drawing, "_settle", counted)
    for length in (125, 250):  # x is read in every layer: its edges share their bends
        y = x
        for _ in range(length):
            y = (y * x).sin()
        drawn = draw(y, values=False, gradients=False)
        assert drawn.num_nodes == 2 * length + 1
    assert placed[250] < 2.1 * placed[125]
    assert len(boxes(draw(y).text)) == 501
