"""Small models for tests, written in ONNX's own notation."""

from __future__ import annotations

import onnx
from onnx import parser

HEADER = '<ir_version: 10, opset_import: ["": 21]>'


def model(text: str, header: str = HEADER) -> onnx.ModelProto:
    """Returns the model of a graph (and functions) in ONNX's notation."""
    return parser.parse_model(f"{header} {text}")


def data(text: str, header: str = HEADER) -> bytes:
    """Returns the bytes of such a model."""
    return bytes(model(text, header).SerializeToString())


NET = """
net (float[N, 2] x) => (float[N, 1] y)
<float[2, 3] w1 = {1, -2, 3, 4, 5, -6}, float[3] b1 = {0.5, 0.25, -1}, float[3, 1] w2 = {1, 2, 3}>
{ h = MatMul(x, w1)  a = Add(h, b1)  r = Relu(a)  y = MatMul(r, w2) }
"""
