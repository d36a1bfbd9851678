"""The small models that onnx's wheel holds: single operators as PyTorch exported them, and sequences of nodes."""

from __future__ import annotations

import os
from collections import Counter

import pytest

import picograd.onnx
from picograd.errors import UnsupportedOp
from picograd_onnx.backend import Prepared
from tests.onnx.suite import assert_similar, stored_cases, stored_data
from tests.onnx.test_backend import unsupported_operator

pytestmark = pytest.mark.req("C10")
KINDS = ("simple", "pytorch-converted", "pytorch-operator")
CASES = {f"{kind}-{name}": folder for kind in KINDS for name, folder in sorted(stored_cases(kind).items())}
UNSUPPORTED = {"Gradient": 2}  # how many of them end in UnsupportedOp, by operator

outcomes: dict[str, str | None] = {}


@pytest.mark.parametrize("name", CASES)
def test_a_stored_model_gives_what_it_expects_or_names_what_is_missing(name: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    folder, outcomes[name] = CASES[name], None
    try:
        prepared = Prepared(picograd.onnx.load(os.path.join(folder, "model.onnx")))
        results = [(prepared.run(inputs), expected) for inputs, expected in stored_data(folder)]
    except UnsupportedOp as error:
        outcomes[name] = unsupported_operator(error)
        return
    assert results
    for got, expected in results:
        assert_similar(expected, [*got], 1e-3, 1e-5)


def test_unsupported_operators_are_those_listed() -> None:
    if len(outcomes) != len(CASES):
        pytest.skip("needs the outcomes of every case: run the whole file in one process")
    assert Counter(op for op in outcomes.values() if op is not None) == UNSUPPORTED
