"""ONNX's own test cases, `onnx.backend.test`: what they give, what they expect, and how results are compared.

Ours is stricter than the suite's runner: dtypes and the forms of sequences must be equal, and 0-d arrays are compared.
"""

from __future__ import annotations

import glob
import importlib
import os
import pkgutil
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

Data = tuple[list[Any], list[Any]]
BFLOAT16_STEPS = 2.0**-6  # two steps of bfloat16: the suite's own tolerance


def node_modules() -> list[str]:
    """Returns the names of the suite's modules of node cases; only importing one makes its cases, some in seconds."""
    found = pkgutil.walk_packages(node.__path__, node.__name__ + ".")
    return sorted(module.name.removeprefix(node.__name__ + ".") for module in found)


@cache
def cases_of(module: str) -> list[TestCase]:
    """Returns the cases of a module."""
    count = len(node._NodeTestCases)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy computes infinities on purpose
        importlib.import_module(f"{node.__name__}.{module}")
    return node._NodeTestCases[count:]


@cache
def node_cases() -> dict[str, TestCase]:
    """Returns the cases of all modules by name."""
    return {case.name: case for module in node_modules() for case in cases_of(module)}


@cache
def stored_cases(kind: str) -> dict[str, str]:
    """Returns the folders of the stored models of a kind by name; models that would have to be downloaded are left out."""
    return {case.name: case.model_dir for case in load_model_tests(kind=kind) if case.model_dir and not case.url}


def decoded(value: Any) -> Any:
    """Returns a stored tensor as an array."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def stored_data(folder: str) -> Iterator[Data]:
    """Yields inputs and expected outputs of a stored model."""
    graph = onnx.load(os.path.join(folder, "model.onnx"), load_external_data=False).graph
    for data in sorted(glob.glob(os.path.join(folder, "test_data_set_*"))):
        yield _all(f"{data}/input", graph.input), _all(f"{data}/output", graph.output)


def _all(stem: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    paths = [f"{stem}_{i}.pb" for i in range(len(infos))]  # initializers among the inputs come last and have none
    return [_read(path, info) for path, info in zip(paths, infos) if os.path.exists(path)]


def _read(path: str, info: onnx.ValueInfoProto) -> Any:
    with open(path, "rb") as file:
        data = file.read()
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def assert_similar(expected: Any, got: Any, rtol: float, atol: float, values: bool = True) -> None:
    """Raises where results differ; without `values` only their forms, shapes and dtypes are compared."""
    if isinstance(expected, (list, tuple)):
        assert isinstance(got, (list, tuple)) and len(got) == len(expected), f"{len(expected)} expected, got {got!r}"
        for one, other in zip(expected, got):
            assert_similar(one, other, rtol, atol, values)
        return
    if expected is None or got is None:
        assert expected is None and got is None, f"{expected!r} expected, got {got!r}"
        return
    expected = np.asarray(expected)
    assert got.shape == expected.shape, f"shape {expected.shape} expected, got {got.shape}"
    if expected.dtype.kind in "OU":
        assert got.tolist() == expected.tolist()
        return
    assert got.dtype == expected.dtype, f"{expected.dtype} expected, got {got.dtype}"
    if values:
        rtol = max(rtol, BFLOAT16_STEPS) if expected.dtype.name == "bfloat16" else rtol
        if expected.dtype.kind not in "biu":
            expected, got = expected.astype(np.float64), got.astype(np.float64)
        elif expected.dtype.kind != "b":
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol)
