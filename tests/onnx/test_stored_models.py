"""The small models that onnx's wheel holds: single operators as PyTorch exported them, and sequences of nodes."""

from __future__ import annotations

import os

import pytest

import picograd.onnx
from picograd.errors import UnsupportedOp
from picograd.onnx.backend import Prepared
from tests.onnx.suite import assert_similar, stored_cases, stored_data
from tests.onnx.test_backend import unsupported_operator

pytestmark = pytest.mark.req("C10")
KINDS = ("simple", "pytorch-converted", "pytorch-operator")
CASES = {f"{kind}-{name}": folder for kind in KINDS for name, folder in sorted(stored_cases(kind).items())}
UNSUPPORTED: dict[str, str] = {}  # by case, the operator


@pytest.mark.parametrize("name", CASES)
def test_a_stored_model_gives_what_it_expects(name: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    folder, missing = CASES[name], None
    try:
        prepared = Prepared(picograd.onnx.load(os.path.join(folder, "model.onnx")))
        results = [(prepared.run(inputs), expected) for inputs, expected in stored_data(folder)]
    except UnsupportedOp as error:
        missing = unsupported_operator(error)
    assert missing == UNSUPPORTED.get(name)
    if missing is None:
        assert results
        for got, expected in results:
            assert_similar(expected, [*got], 1e-3, 1e-5)
