"""Grids against ONNX's reference: cubic places within half an element of the edge, and batches of one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import picograd as pg

pytestmark = pytest.mark.req("C10")


@pytest.fixture(autouse=True)
def evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")


def both(operator: str, *arrays: np.ndarray[Any, Any], **attributes: Any) -> tuple[Any, Any]:
    """Returns the result of a model of one node, and the reference's."""
    names = [f"x{number}" for number in range(len(arrays))]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays)
    ]
    node = helper.make_node(operator, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (wanted,) = ReferenceEvaluator(model).run(None, dict(zip(names, arrays)))
    return pg.onnx.load(model.SerializeToString())(*arrays).numpy(), wanted


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_is_the_references(mode: str, padding_mode: str, align_corners: int, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 2, 4, 5)).astype(np.float32)
    grid = rng.uniform(-1.5, 1.5, (1, 7, 7, 2)).astype(np.float32)
    grid[0, 0, :, 0] = np.linspace(-1, -0.8, 7)  # before the first element, behind the outer edge
    ours, theirs = both("GridSample", x, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [(1, 3, 2, 4), (2, 3, 2, 4), (1, 3, 2, 4, 5), (2, 3, 2, 4, 5)])
@pytest.mark.parametrize("align_corners", [0, 1])
def test_affine_grid_is_the_references(size: tuple[int, ...], align_corners: int, rng: np.random.Generator) -> None:
    axes = len(size) - 2
    theta = rng.standard_normal((size[0], axes, axes + 1)).astype(np.float32)
    ours, theirs = both("AffineGrid", theta, np.array(size), align_corners=align_corners)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
