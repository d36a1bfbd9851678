"""ONNX's own node cases: every one passes, or names what is not supported; none is wrong.

They run on the evaluator, which compiles nothing; a part of them on the CPU too.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from picograd.errors import UnsupportedOp
from picograd_onnx.backend import Backend
from tests.onnx.suite import assert_similar, decoded, node_cases

pytestmark = [
    pytest.mark.req("C10"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),  # of NumPy, where a case asks for infinities
]

# How many cases end in UnsupportedOp for each operator.
UNSUPPORTED = {"ImageDecoder": 9, "TreeEnsemble": 2}
# Random numbers: ONNX says how they are distributed, not which they are. Their dtypes and shapes are compared.
RANDOM = re.compile(r"test_(bernoulli|training_dropout(?!_zero_ratio))")


def unsupported_operator(error: UnsupportedOp) -> str:
    """Returns the operator that an error names."""
    found = re.search(r"\((\w+)\): ", str(error))
    return found[1] if found else str(error)


def run_case(name: str) -> str | None:
    """Runs a case; returns the operator that is not supported, or None."""
    case = node_cases()[name]
    try:
        prepared = Backend.prepare(case.model)
        results = [prepared.run([decoded(value) for value in inputs]) for inputs, _ in case.data_sets]
    except UnsupportedOp as error:
        return unsupported_operator(error)
    for got, (_, expected) in zip(results, case.data_sets):
        atol = ATOL.get(name, case.atol)
        assert_similar([decoded(value) for value in expected], [*got], case.rtol, atol, not RANDOM.match(name))
    return None


# What is expected was computed in float32 and is off by 2e-7 where the result is 0.
ATOL = {"test_dft_inverse": 1e-6, "test_dft_inverse_opset19": 1e-6}
ON_CPU = sorted(node_cases())[::8]  # what is compiled, too

outcomes: dict[str, str | None] = {}


@pytest.mark.parametrize("name", sorted(node_cases()))
def test_a_node_case_gives_what_onnx_expects_or_names_what_is_missing(name: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    outcomes[name] = run_case(name)


def test_unsupported_operators_are_those_listed() -> None:
    if len(outcomes) != len(node_cases()):
        pytest.skip("needs the outcomes of every case: run the whole file in one process")
    assert Counter(op for op in outcomes.values() if op is not None) == UNSUPPORTED


@pytest.mark.variants
@pytest.mark.parametrize("name", ON_CPU)
def test_a_node_case_gives_the_same_on_the_cpu(name: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    run_case(name)
