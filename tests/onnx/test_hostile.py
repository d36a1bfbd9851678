"""Files that are damaged, contradict themselves or reach for what is not theirs: refused before anything is computed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

import picograd as pg
import picograd.onnx
from picograd.errors import DataError, PicogradError, UnsupportedOp
from tests.onnx.build import NET, data, model
from tests.onnx.test_model import SCAN

pytestmark = pytest.mark.req("C10")


def fact_of(source, error: type[PicogradError] = DataError) -> str:
    """Returns what the error says that loading raises."""
    with pytest.raises(error) as found:
        picograd.onnx.load(source)
    return found.value.fact


# ---- what is no model ----
def test_sources_that_hold_no_model(tmp_path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    parts = {
        "onnx.load: the bytes given is not an intact ONNX model: its protobuf cannot be parsed.": b"not a model",
        "onnx.load: the bytes given is not an intact ONNX model: it has no graph.": b"",
        f"onnx.load: there is no file {tmp_path / 'none.onnx'}.": tmp_path / "none.onnx",
        f"onnx.load: there is no file {tmp_path}.": tmp_path,
        f"onnx.load: {tmp_path / 'empty.onnx'} is not an intact ONNX model: it has no graph.": tmp_path / "empty.onnx",
    }
    assert [fact_of(source) for source in parts.values()] == [*parts]
    garbled = data(NET).replace(b"MatMul", b"\x80atMul")
    expected = "onnx.load: the bytes given is not an intact ONNX model: a name in it is not UTF-8 text."
    assert fact_of(garbled) == expected
    assert fact_of(3, pg.ArgumentError) == "onnx.load: needs a path or bytes, got int."


# ---- structure ----
HEAD = "net (float[2] x) => (float[2] y)"
ALREADY = "which an earlier node made already."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (HEAD + " { y = Add(x, z) }", "onnx.load: node 0 (Add) reads 'z', which no node makes."),
        (
            HEAD + " { a = Add(x, b)  b = Neg(a)  y = Neg(b) }",
            "onnx.load: node 0 (Add) reads 'b', which is made after it, by node 1 (Neg): nodes must be in order, "
            "without cycles.",
        ),
        (HEAD + " { y = Add(x, y) }", "onnx.load: node 0 (Add) reads 'y', which it makes itself: the graph has a cycle."),
        (HEAD + " { z = Neg(x) }", "onnx.load: output 'y' is not made by any node."),
        (HEAD + " { y = Neg(x)  y = Abs(x) }", "onnx.load: node 1 (Abs) makes 'y', " + ALREADY),
        (HEAD + " { x = Neg(x)  y = Abs(x) }", "onnx.load: node 0 (Neg) makes 'x', " + ALREADY),
        (HEAD + " { y = Add(x) }", "onnx.load: node 0 (Add) has 1 inputs; Add takes 2 to 2."),
        (HEAD + " { y, z = Neg(x) }", "onnx.load: node 0 (Neg) has 2 outputs; Neg has 1 to 1."),
        (HEAD + " { y = Add(, x) }", "onnx.load: node 0 (Add) leaves out the input 'A', which Add needs."),
        (HEAD + " { y = Neg <k = 1> (x) }", "onnx.load: node 0 (Neg) has an attribute 'k', which Neg does not define."),
        (HEAD + " { y = Elu <alpha = 1> (x) }", "onnx.load: node 0 (Elu): attribute 'alpha' must be of type FLOAT."),
        (HEAD + " { y = Cast (x) }", "onnx.load: node 0 (Cast) lacks the attribute 'to'."),
        (
            HEAD + " { y = other.Neg (x) }",
            "onnx.load: node 0 (Neg) is of domain 'other', which the model does not import.",
        ),
        (HEAD + " { y = Swish (x) }", "onnx.load: node 0 (Swish): Swish does not exist in version 21 of its domain."),
        (
            HEAD + " { y = Scatter (x, x, x) }",
            "onnx.load: node 0 (Scatter): Scatter is deprecated since 11; the model uses 21.",
        ),
        (
            "net (float[2] x, float[2] x) => (float[2] y) { y = Neg(x) }",
            "onnx.load: inputs: the name 'x' occurs twice.",
        ),
    ],
)  # fmt: skip
def test_a_graph_that_is_none(text: str, expected: str) -> None:
    assert fact_of(data(text)) == expected


def test_what_is_not_supported_is_named() -> None:
    expected = "onnx.load: node 0 (ImageDecoder): ImageDecoder of version 20 is not supported."
    assert fact_of(data("net (uint8[N] x) => (uint8[A, B, C] y) { y = ImageDecoder(x) }"), UnsupportedOp) == expected
    expected = f"onnx.load: node 0 (Nonsense): Nonsense is not an operator that onnx {onnx.__version__} knows."
    assert fact_of(data(HEAD + " { y = Nonsense(x) }"), UnsupportedOp) == expected
    newest = onnx.defs.onnx_opset_version()
    header = f'<ir_version: 10, opset_import: ["": {newest + 1}]>'
    expected = f"onnx.load: the model uses opset {newest + 1}; onnx {onnx.__version__} knows up to {newest}."
    assert fact_of(data(HEAD + " { y = Neg(x) }", header), UnsupportedOp) == expected


# ---- functions ----
def with_functions(*bodies: str) -> bytes:
    text = HEAD + " { y = local.f0(x) } " + " ".join(
        f'<domain: "local", opset_import: ["": 21, "local": 1]> f{i} (a) => (b) {body}' for i, body in enumerate(bodies)
    )
    return data(text, '<ir_version: 10, opset_import: ["": 21, "local": 1]>')


def test_functions_that_call_themselves() -> None:
    assert fact_of(with_functions("{ b = local.f0(a) }")) == "onnx.load: the function local.f0 calls itself."
    two = with_functions("{ b = local.f1(a) }", "{ b = local.f0(a) }")
    assert fact_of(two) == "onnx.load: the function local.f0 calls itself."


def test_functions_that_multiply() -> None:
    bodies = [f"{{ c = local.f{i + 1}(a)  b = local.f{i + 1}(c) }}" for i in range(40)]
    fact = fact_of(with_functions(*bodies, "{ b = Neg(a) }"))
    assert fact.startswith("onnx.load: the model has ") and fact.endswith("at most 131072 are read.")


# ---- sizes ----
def with_tensor(**fields: object) -> bytes:
    found = model(HEAD + " <float[2] w = {1, 2}> { y = Add(x, w) }")
    tensor = found.graph.initializer[0]
    for name, value in fields.items():
        if isinstance(value, list):
            del getattr(tensor, name)[:]
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return bytes(found.SerializeToString())


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"dims": [3]}, "declares float of shape (3,), which is 3 elements of float_data; it holds 2."),
        ({"dims": [1 << 20]}, "declares float of shape (1048576,), which is 1048576 elements of float_data; it holds 2."),
        ({"dims": [1 << 62, 1 << 62, 1 << 62]}, "at most 68719476736 are read."),
        ({"dims": [-2]}, "has the shape (-2,); up to 64 lengths >= 0 are one."),
        ({"dims": [1] * 65}, "up to 64 lengths >= 0 are one."),
        ({"raw_data": b"1234567"}, "which is 8 bytes; it holds 7."),
        ({"data_type": 0}, "there is no element type 0."),
        ({"data_type": 999}, "there is no element type 999."),
        ({"data_type": TensorProto.INT64}, "which is 2 elements of int64_data; it holds 0."),
    ],
)
def test_a_tensor_that_is_not_what_it_declares(fields: dict[str, object], expected: str) -> None:
    assert expected in fact_of(with_tensor(**fields))


# ---- data in files of their own ----
@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "model"
    inner.mkdir()
    (inner / "w.bin").write_bytes(np.array([7, 1, 2], np.float32).tobytes())
    (tmp_path / "secret.bin").write_bytes(bytes(8))
    os.symlink(tmp_path / "secret.bin", inner / "link.bin")
    os.symlink(tmp_path, inner / "up")
    return inner


def external(folder: Path, **entries: str) -> Path:
    found = model(HEAD + " <float[2] w = {1, 2}> { y = Add(x, w) }")
    tensor = found.graph.initializer[0]
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "net.onnx").write_bytes(found.SerializeToString())
    return folder / "net.onnx"


def test_external_data_are_read_from_the_folder_of_the_model(folder: Path) -> None:
    path = external(folder, location="w.bin", offset="4", length="8")
    assert picograd.onnx.load(path)(pg.Tensor([0.0, 0.0])).tolist() == [1.0, 2.0]
    assert "the folder of the model is unknown." in fact_of(path.read_bytes())


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"location": "/etc/passwd"}, "that must be a path below the model's folder."),
        ({"location": "../secret.bin"}, "that must be a path below the model's folder."),
        ({"location": "a/../../secret.bin"}, "that must be a path below the model's folder."),
        ({"location": "..\\secret.bin"}, "that must be a path below the model's folder."),
        ({"location": "C:\\secret.bin"}, "that must be a path below the model's folder."),
        ({"location": ""}, "that must be a path below the model's folder."),
        ({"location": "a\0b"}, "that must be a path below the model's folder."),
        ({"location": "link.bin"}, "which links to outside the model's folder."),
        ({"location": "up/secret.bin"}, "which links to outside the model's folder."),
        ({"location": "none.bin"}, "where no file is."),
        ({"location": "."}, "where no file is."),
        ({"location": "w.bin", "offset": "8"}, "is at bytes 8 to 16 of w.bin, which has 12."),
        ({"location": "w.bin", "offset": "-1"}, "has external data with offset '-1'; that must be a count of bytes."),
        ({"location": "w.bin", "length": "12"}, "which is 8 bytes; its external data have length 12."),
        ({"location": "w.bin", "offset": "9" * 30}, "that must be a count of bytes."),
    ],
)
def test_external_data_that_are_refused(folder: Path, entries: dict[str, str], expected: str) -> None:
    assert expected in fact_of(external(folder, **entries))


# ---- constants that would fill memory ----
def test_a_long_constant_is_not_computed_ahead() -> None:
    text = """
    big (float[1] x) => (float[1] y) <int64[2] shape = {1048576, 1048576}, int64[2] start = {0, 0}, int64[2] end = {1, 1},
      int64[1] one = {1}>
    { huge = ConstantOfShape(shape)  corner = Slice(huge, start, end)  flat = Reshape(corner, one)  y = Add(x, flat) }
    """
    assert picograd.onnx.load(data(text))(pg.Tensor([2.0])).tolist() == [2.0]


# ---- anything ----
def survives(source: bytes) -> None:
    """Loads what may be damaged, and runs it where it is not: nothing but picograd's errors may come out."""
    try:
        found = picograd.onnx.load(source)
        found(*(pg.Tensor.ones(2, 2) for _ in found.inputs))
    except PicogradError:
        pass


SOURCES = [data(NET), data(SCAN), with_functions("{ b = local.f1(a) }", "{ b = Neg(a) }")]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SOURCES), st.data())
def test_a_file_cut_short_or_changed_gives_an_error_of_ours_or_a_model(source: bytes, draw) -> None:
    changed = bytearray(source[: draw.draw(st.integers(0, len(source)))] if draw.draw(st.booleans()) else source)
    for _ in range(draw.draw(st.integers(0, 4)) if changed else 0):
        changed[draw.draw(st.integers(0, len(changed) - 1))] = draw.draw(st.integers(0, 255))
    survives(bytes(changed))
