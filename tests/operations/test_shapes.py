"""Shape rules: what a tensor states before anything has run is what PyTorch has, and what the evaluator computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from picograd import Tensor
from picograd.autodiff.gradient import written_out
from picograd.engine.realize import to_host
from picograd.evaluator import evaluate
from picograd.ir.op import Op, toposort
from picograd.ir.opcode import OpCode
from tests.helpers import every_nth
from tests.operations.table import Operation, Sample, all_operations, with_arrays
from tests.operations.test_operations import KINDS, _side, pair, tensors_of


def computed(op: Op) -> tuple[tuple[int, ...], str]:
    """Returns shape and dtype of what the evaluator makes of a graph, as it leaves it."""
    (op,) = written_out([op])
    buffers = {part: to_host(part) for part in toposort([op]) if part.code is OpCode.BUFFER}
    (array,) = evaluate([op], buffers)
    return np.shape(array), np.asarray(array).dtype.name


def check(row: Operation, call: Sample, dtype: str) -> None:
    """Holds all three for each tensor of one call."""
    args, kwargs = (with_arrays(part, lambda array: pair(array, dtype)) for part in (call.args, call.kwargs))
    results: list[list[Any]] = []
    for index, function in enumerate((row.ours(), row.theirs())):
        results.append(tensors_of(function(*_side(args, index), **_side(kwargs, index))))
    for ours, theirs in zip(*results, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert isinstance(ours, Tensor)
            stated = (ours.shape, str(ours.dtype))
            op = ours.read()
            assert stated == (op.shape, str(op.dtype)) == (tuple(theirs.shape), str(theirs.dtype).removeprefix("torch."))
            assert computed(op) == stated


@pytest.mark.variants(every=3)
@pytest.mark.req("C3")
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("row", list(enumerate(all_operations())), ids=lambda row: str(row[1]))
def test_stated_shapes_and_dtypes_are_pytorchs_and_those_computed(
    row: tuple[int, Operation], part: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sample, zero-size ones too, and the first in every dtype; a third of each row, another one for each."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    number, operation = row
    calls = operation.samples(rng)
    cases = [(call, "float32") for call in calls]
    cases += [(calls[0], dtype) for kind in operation.dtypes for dtype in KINDS[kind]]
    for call, dtype in every_nth(cases, (number + part) % 3, 3):
        check(operation, call, dtype)
