"""ONNX's own node cases: every one passes, or names what is not supported; none is wrong.

They run on the evaluator, which compiles nothing; a part of them on the CPU too.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from onnx.backend.test.case.test_case import TestCase

from picograd.errors import UnsupportedOp
from picograd_onnx.backend import Backend
from tests.helpers import in_full
from tests.onnx.suite import assert_similar, cases_of, decoded, node_cases, node_modules

pytestmark = [
    pytest.mark.req("C10"),
    pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning"),  # of NumPy, where a case asks for infinities
]

# How many cases of a module end in UnsupportedOp for each operator.
UNSUPPORTED = {"image_decoder": {"ImageDecoder": 9}, "ai_onnx_ml.tree_ensemble": {"TreeEnsemble": 2}}
# Modules that compute what they expect by loops in Python when they are imported, for 1 to 5 seconds.
SLOW = ["averagepool", "lppool", "maxpool"]
# Random numbers: ONNX says how they are distributed, not which they are. Their dtypes and shapes are compared.
RANDOM = re.compile(r"test_(bernoulli|training_dropout(?!_zero_ratio))")


def unsupported_operator(error: UnsupportedOp) -> str:
    """Returns the operator that an error names."""
    found = re.search(r"\((\w+)\): ", str(error))
    return found[1] if found else str(error)


def run_case(case: TestCase) -> str | None:
    """Runs a case; returns the operator that is not supported, or None."""
    try:
        prepared = Backend.prepare(case.model)
        results = [prepared.run([decoded(value) for value in inputs]) for inputs, _ in case.data_sets]
    except UnsupportedOp as error:
        return unsupported_operator(error)
    for got, (_, expected) in zip(results, case.data_sets):
        atol = ATOL.get(case.name, case.atol)
        assert_similar([decoded(value) for value in expected], [*got], case.rtol, atol, not RANDOM.match(case.name))
    return None


def run_cases(cases: list[TestCase]) -> list[str]:
    """Runs cases; returns the operators that are not supported, or raises the errors of all cases that fail."""
    unsupported, failed = [], []
    for case in cases:
        try:
            found = run_case(case)
        except Exception as error:
            error.add_note(case.name)
            failed.append(error)
        else:
            unsupported += [found] if found else []
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(cases)} cases", failed)
    return unsupported


# Where sums of up to 460 are 0, float32 is off by 2e-6 here, and by 2e-7 in what is expected of inverses.
ATOL = {f"test_dft{kind}{version}": 4e-6 for kind in ("", "_axis", "_inverse") for version in ("", "_opset19")}

NONE_OF_THEM = pytest.mark.variants(every=len(SLOW) + 1, first=len(SLOW))


@pytest.mark.parametrize(
    "module", [pytest.param(module, marks=NONE_OF_THEM if module in SLOW else ()) for module in node_modules()]
)
def test_the_node_cases_of_a_module_give_what_onnx_expects_or_name_what_is_missing(module: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    assert Counter(run_cases(cases_of(module))) == UNSUPPORTED.get(module, {})


@in_full
def test_no_case_is_lost() -> None:
    assert len(node_cases()) > 1800


@pytest.mark.variants
@pytest.mark.parametrize("module", node_modules())
def test_node_cases_give_the_same_on_the_cpu(module: str, monkeypatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    run_cases(cases_of(module)[::8])  # each is compiled
