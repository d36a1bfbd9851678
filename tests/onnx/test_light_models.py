"""Nine image models of the suite, whose weights are constants that the file only describes."""

from __future__ import annotations

import glob
import os

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.backend.test.runner import Runner

import picograd as pg
import picograd.onnx

FOLDER = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data", "light")
# The small ones run always; the others (densenet121, inception_v2, resnet50, vgg19, ...) are of the same operators.
NAMES = ("bvlc_alexnet", "squeezenet", "zfnet512")


def test_the_models_are_there() -> None:
    found = {os.path.basename(path)[len("light_") : -len(".onnx")] for path in glob.glob(f"{FOLDER}/*.onnx")}
    assert len(found) == 9 and found >= {*NAMES}


@pytest.mark.variants(every=3)
@pytest.mark.req("C10")
@pytest.mark.parametrize("name", NAMES)
def test_a_light_model_gives_what_it_expects(name: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    model = picograd.onnx.load(f"{FOLDER}/light_{name}.onnx")
    graph = onnx.load(f"{FOLDER}/light_{name}.onnx").graph
    infos = {info.name: info for info in graph.input}
    feeds = {entry.name: Runner.generate_dummy_data(infos[entry.name], name=name) for entry in model.inputs}
    with open(f"{FOLDER}/light_{name}_output_0.pb", "rb") as file:
        expected = numpy_helper.to_array(onnx.TensorProto.FromString(file.read()))
    with pg.no_grad():
        np.testing.assert_allclose(model(**feeds).numpy(), expected, rtol=1e-3, atol=1e-5)
