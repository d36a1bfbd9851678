"""Ranks, axes and counts that do not fit an operator are refused before its function runs, with the node's place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import picograd as pg
import picograd.onnx
from picograd.errors import DataError, PicogradError, UnsupportedOp
from picograd_onnx.operators import OPERATORS
from picograd_onnx.record import kinds_of
from tests.onnx.build import data

pytestmark = pytest.mark.req("C10")


def one(op: str, inputs: list[Any], outputs: int = 1, opset: int = 21, **attributes: Any) -> bytes:
    """Returns the model of one node whose inputs are constants."""
    names = [f"i{n}" if value is not None else "" for n, value in enumerate(inputs)]
    node = helper.make_node(op, names, [f"o{n}" for n in range(outputs)], **attributes)
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in zip(names, inputs) if value is not None]
    results = [helper.make_empty_tensor_value_info(name) for name in node.output]
    graph = helper.make_graph([node], "one", [], results, held)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return bytes(made.SerializeToString())


def fact_of(model: bytes) -> str:
    """Returns what the error says that loading and running raise."""
    with pytest.raises(PicogradError) as found:
        pg.onnx.load(model)()
    assert not isinstance(found.value, UnsupportedOp)
    return found.value.fact


@pytest.fixture(autouse=True)
def _on_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")


F23 = np.arange(6, dtype=np.float32).reshape(2, 3)
X4 = np.ones((1, 1, 3, 3), np.float32)


def i(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


@pytest.mark.parametrize("axis", [7, -3])
@pytest.mark.parametrize(
    ("op", "more", "name"),
    [
        ("Gather", [i(0)], "axis"), ("GatherElements", [i(0).reshape(1, 1)], "axis"), ("Hardmax", [], "axis"),
        ("Compress", [np.array([True])], "axis"), ("Flatten", [], "axis"), ("Softmax", [], "axis"), ("Concat", [], "axis"),
        ("ArgMax", [], "axis"), ("Split", [], "axis"), ("LpNormalization", [], "axis"), ("Unique", [], "axis"),
        ("LayerNormalization", [np.ones(3, np.float32)], "axis"), ("SplitToSequence", [], "axis"),
        ("CumSum", ["axis"], "input axis"), ("Squeeze", ["axis"], "input axes"), ("ReduceSum", ["axis"], "input axes"),
        ("ReduceMax", ["axis"], "input axes"), ("Pad", [i(0, 0), None, "axis"], "input axes"),
        ("Slice", [i(0), i(1), "axis"], "input axes"), ("QuantizeLinear", [np.ones(3, np.float32)], "axis"),
    ],
)  # fmt: skip
def test_no_axis_is_taken_modulo(op: str, more: list[Any], name: str, axis: int) -> None:
    inputs = [F23, *(i(axis) if isinstance(value, str) else value for value in more)]
    attributes = {} if name.startswith("input") else {"axis": axis}
    most = 2 if op == "Flatten" else 1
    expected = f"onnx: node 0 ({op}): {op}: {name} must be from -2 to {most}, got {axis}."
    assert fact_of(one(op, inputs, **attributes)) == expected


def test_axes_of_the_result_and_of_older_versions() -> None:
    ranged = "must be from -3 to 2, got 3."
    assert fact_of(one("Unsqueeze", [F23, i(3)])) == f"onnx: node 0 (Unsqueeze): Unsqueeze: input axes {ranged}"
    assert fact_of(one("Unsqueeze", [F23], opset=11, axes=[3])) == f"onnx: node 0 (Unsqueeze): Unsqueeze: axes {ranged}"
    depth = [i(0, 1).reshape(1, 2), i(3), np.array([0.0, 1.0], np.float32)]
    assert fact_of(one("OneHot", depth, axis=3)) == f"onnx: node 0 (OneHot): OneHot: axis {ranged}"
    assert fact_of(one("Softmax", [F23], opset=11, axis=2)).endswith("Softmax: axis must be from -2 to 1, got 2.")
    assert fact_of(one("ReduceSum", [F23], opset=11, axes=[0, -2])).endswith("axes must name different axes, got [0, -2].")
    assert fact_of(one("Squeeze", [F23[:1], i(0, 0)])).endswith("input axes must name different axes, got [0, 0].")
    assert fact_of(one("Softmax", [np.float32(1)], axis=0)) == "onnx: node 0 (Softmax): Softmax: axis: no axes."


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (one("Gather", [np.float32(1), i(0)]), "Gather: axis: no axes."),
        (one("Reshape", [F23, np.int64(6)]), "Reshape: input shape must have 1 axes, got shape ()."),
        (one("Tile", [F23, i(2)]), "Tile: input repeats must have a number for each axis of (2, 3), got shape (1,)."),
        (one("Trilu", [F23, i(0, 1)]), "Trilu: input k must have one element, got shape (2,)."),
        (one("TopK", [F23, i(1, 2)], 2), "TopK: input K must have one element, got shape (2,)."),
        (one("Conv", [F23, F23]), "Conv: input X must have 3 to 64 axes, got shape (2, 3)."),
        (one("Conv", [X4, X4[0]]), "Conv: input W must have as many axes as (1, 1, 3, 3), got shape (1, 3, 3)."),
        (one("Clip", [F23, F23]), "Clip: input min must have one element, got shape (2, 3)."),
        (one("Pad", [F23, i(1)]), "Pad: 1 pads must be two for each of 2 axes."),
        (one("Split", [F23], axis=0, num_outputs=7), "Split: num_outputs 7 must be the number of outputs, 1."),
        (one("Range", [np.float32(0), np.float32(np.nan), np.float32(1)]),
         "Range: from 0.0 to nan in steps of 1.0 has no finite number of steps."),
        (one("LpPool", [X4], kernel_shape=[1, 1], p=0), "LpPool: p must be at least 1, got 0."),
        (one("Multinomial", [F23], sample_size=-1), "Multinomial: sample_size must be at least 1, got -1."),
        (one("ReduceSum", [F23], keepdims=2), "ReduceSum: keepdims must be 0 or 1, got 2."),
        (one("PRelu", [F23, F23[None]]), "PRelu: slopes of shape (1, 2, 3) do not broadcast to (2, 3)."),
        (one("RandomNormalLike", [F23], dtype=6), "output output is a tensor of int32; it may be tensor(double), "
         "tensor(float), tensor(float16)."),
        (one("Add", [F23, F23[0]], opset=6), "shapes (2, 3) and (3,) do not fit with broadcast=0."),
        (one("Add", [F23[0], F23], opset=6, broadcast=1), "shapes (3,) and (2, 3) do not fit with broadcast=1."),
        (one("Split", [F23]), "Split: needs either split or num_outputs."),
        (one("Constant", [], value_int=1, value_ints=[1]), "Constant: needs exactly one value, got 2."),
        (one("Resize", [X4, None, np.ones(4, np.float32)], keep_aspect_ratio_policy="a"),
         "Resize: there is no keep_aspect_ratio_policy 'a'."),
        (one("ConvTranspose", [X4, X4], dilations=[1]),
         "ConvTranspose: dilations must have 2 numbers for 2 spatial axes, got [1]."),
        (one("MatMulInteger", [np.uint8([[1]]), np.uint8([[1]]), np.uint8([[[1]]])]),
         "MatMulInteger: zero points do not broadcast to (1, 1) and (1, 1)."),
        (one("Optional", []), "Optional: needs an input or a type."),
        (one("SequenceEmpty", [], dtype=99), "there is no element type 99."),
        (one("MaxUnpool", [X4, X4.astype(np.int64), i(1, 1, 3, -1)], kernel_shape=[1, 1]),
         "MaxUnpool: output_shape [1, 1, 3, -1] does not fit (1, 1, 3, 3) and windows that reach [3, 3]."),
    ],
)  # fmt: skip
def test_ranks_and_counts_are_checked(model: bytes, expected: str) -> None:
    fact = fact_of(model)
    assert fact.startswith("onnx") and " node 0 (" in fact and fact.endswith(expected)


def test_inputs_that_are_known_only_when_the_model_runs_are_checked_too() -> None:
    model = pg.onnx.load(data("sums (float[A, B] x, int64[1] axis) => (y) { y = CumSum(x, axis) }"))
    assert model(pg.Tensor(F23), i(-1)).tolist() == np.cumsum(F23, 1).tolist()
    with pytest.raises(pg.IndexingError, match=r"node 0 \(CumSum\): CumSum: input axis must be from -2 to 1, got 2\."):
        model(pg.Tensor(F23), i(2))


def test_an_error_that_is_none_of_picograds_becomes_one_with_the_nodes_place(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = OPERATORS["", "Abs"]

    def fails(x: Any) -> Any:
        raise {1: StopIteration(), 2: KeyError("weight"), 3: MemoryError()}[x.numel()]

    monkeypatch.setitem(OPERATORS, ("", "Abs"), [type(row)("Abs", 1, fails)])
    for count, error, text in (
        (1, DataError, "StopIteration."), (2, DataError, "'weight'."),
        (3, pg.OutOfMemoryError, "there is not enough memory for it."),
    ):  # fmt: skip
        with pytest.raises(error) as found:
            pg.onnx.load(data("net (float[N] x) => (y) { y = Abs(x) }"))(pg.Tensor.ones(count))
        assert found.value.fact == f"onnx: node 0 (Abs): {text}"
        assert "test_fit.py" in str(found.value)


def test_an_index_out_of_range_keeps_its_class_and_text() -> None:
    fact = fact_of(one("ScatterElements", [i(1, 2), i(9), i(3)]))
    assert fact.startswith("onnx: node 0 (ScatterElements): ") and "9" in fact


def test_every_row_declares_as_many_inputs_as_its_function_takes_at_most() -> None:
    for rows in OPERATORS.values():
        for row in rows:
            assert len(row.kinds) <= row.max_inputs, row.name
    assert [kind.form for kind in kinds_of("x 2! like single each axes")] == [
        "tensor", "array", "like", "single", "each", "axes",
    ]  # fmt: skip


def test_an_input_of_many_is_not_left_out() -> None:
    with pytest.raises(DataError, match=r"node 0 \(Sum\) leaves out the input 'data_0', which Sum needs\."):
        pg.onnx.load(one("Sum", [F23, None, F23]))


def test_older_versions_put_the_second_operand_at_an_axis_and_reduce_all_without_axes() -> None:
    added = pg.onnx.load(one("Add", [F23, np.array([10, 20], np.float32)], opset=6, broadcast=1, axis=0))()
    assert added.tolist() == (F23 + [[10], [20]]).tolist()
    assert pg.onnx.load(one("ReduceSum", [F23], opset=11, keepdims=0))().item() == 15.0


def test_an_index_is_not_taken_modulo_the_image() -> None:
    result = pg.onnx.load(one("MaxUnpool", [X4, 9 * X4.astype(np.int64)], kernel_shape=[1, 1]))()
    with pytest.raises(pg.IndexingError, match=r"MaxUnpool: index 9 is outside of \[1, 1, 3, 3\]\."):
        result.tolist()
