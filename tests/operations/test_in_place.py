"""Forms in place of the functions of the table: x.exp_() against PyTorch's, refused where PyTorch refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from picograd.errors import PicogradError
from tests.operations.table import Array, Operation, Sample, all_operations, arrays_of, with_arrays
from tests.operations.test_operations import KINDS, TOLERANCE, _side, pair, same

ROWS = all_operations()
NAMES = {row.name for row in ROWS}
RESIZED = {"addbmm_"}  # PyTorch gives a tensor of (4, 1) that is too small another shape; here it is refused, as by addmm_


def has_form(row: Operation) -> bool:
    """True for a method with one that ends in _ and has no row of its own."""
    method = row.name.removeprefix("Tensor.") + "_"
    both = hasattr(Tensor, method) and hasattr(torch.Tensor, method)
    is_method = method not in RESIZED and row.name.startswith("Tensor.") and both
    return is_method and f"{row.name}_" not in NAMES and row.call is None


def outcome(method: str, copy: Any, rest: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the tensor after the call, which returned it; or the error of either library."""
    try:
        result = getattr(copy, method)(*rest, **kwargs)
    except (PicogradError, RuntimeError, TypeError) as error:
        return error
    assert result is copy
    return copy


def compare(row: Operation, call: Sample, dtype: str) -> None:
    """Runs one call in both libraries, on copies."""

    def both(array: Array) -> tuple[Any, Any]:
        return pair(array, dtype)

    method = row.name.removeprefix("Tensor.") + "_"
    args, kwargs = with_arrays(call.args, both), with_arrays(call.kwargs, both)
    ours, theirs = (
        outcome(method, _side(args, i)[0].clone(), _side(args, i)[1:], _side(kwargs, i)) for i in (0, 1)
    )
    if method == "addbmm_" and theirs.shape != _side(args, 1)[0].shape:
        theirs = RuntimeError("PyTorch gives the tensor another shape, which it refuses for addmm_ and all others")
    said = f"{method} of {[a.shape for a in arrays_of(call.args)]} in {dtype}: ours {ours}, PyTorch's {theirs}"
    assert isinstance(ours, Exception) == isinstance(theirs, Exception), said
    if isinstance(ours, Exception):
        assert isinstance(ours, PicogradError), said
        return
    loose = TOLERANCE.get(dtype, 0.0)
    same(ours, theirs, max(row.rtol, loose), max(row.atol, loose))


FORMS = [row for row in ROWS if has_form(row)]


@pytest.mark.req("C3")
@pytest.mark.parametrize("row", FORMS, ids=str)
def test_it_stores_what_pytorch_stores(row: Operation, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the evaluator: kernels of the functions are compared elsewhere, writes in tests/tensor/test_inplace.py."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    calls = row.samples(rng)
    for call in calls:
        compare(row, call, "float32")
    for dtype in (name for kind in row.dtypes for name in KINDS[kind]):
        compare(row, calls[0], dtype)


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", [name for name in dir(pg.nn.functional) if name.endswith("_") and name[0] != "_"])
def test_a_function_of_networks_stores_what_pytorch_stores(name: str, rng: np.random.Generator) -> None:
    values, more = rng.uniform(-3.0, 3.0, (4, 5)).astype(np.float32), (0.5, -1.0) if name == "threshold_" else ()
    ours, theirs = Tensor(values), torch.tensor(values)
    assert getattr(pg.nn.functional, name)(ours, *more) is ours
    getattr(torch.nn.functional, name)(theirs, *more)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_there_are_many() -> None:
    assert len(FORMS) > 80
