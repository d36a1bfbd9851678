"""One expression, run by picograd and by PyTorch, values and gradients compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from picograd import Tensor
from picograd.engine import pieces, realize
from tests.conftest import DEVICES


def forgotten() -> None:
    """Forgets all plans, the lengths and numbers that graphs have had, and how often a line had graphs planned."""
    realize._scalars = type(realize._scalars)()
    realize._families = type(realize._families)()
    pieces.forget()
    realize._plans.clear()


in_full = pytest.mark.variants(every=2, first=1)  # of a long test whose subject shorter ones have: not by default


def every_nth(cases: Sequence[Any], first: int, n: int) -> Sequence[Any]:
    """Returns every n-th case from one on, of few cases at least one: a test that compares nothing cannot fail."""
    return cases[first % len(cases) :: n]


def mostly_evaluated(every: int, evaluated: int = 1) -> pytest.MarkDecorator:
    """The fixture `device` of a test: the evaluator, which compiles nothing; on other devices its rows are variants.

    `evaluated` of 3: of the evaluator's rows two of three are variants, too.
    """
    marks = {device: [pytest.mark.variants(every=every)] for device in DEVICES}
    marks["NUMPY"] = [pytest.mark.variants(every=evaluated)] if evaluated > 1 else []
    devices = [pytest.param(device, marks=marks[device]) for device in DEVICES]
    return pytest.mark.parametrize("device", devices, indirect=True)


def as_arrays(result: Any) -> list[np.ndarray[Any, Any]]:
    """Returns the arrays of a tensor, or of a tuple of tensors, of either library."""
    if isinstance(result, (tuple, list)):
        return [array for part in result for array in as_arrays(part)]
    return [np.asarray(result.detach().numpy()) if hasattr(result, "detach") else np.asarray(result)]


def same_value(ours: Any, theirs: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """Fails unless both have the same shapes, dtypes and, within the tolerances, values."""
    mine, reference = as_arrays(ours), as_arrays(theirs)
    assert len(mine) == len(reference)
    for a, b in zip(mine, reference):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def same_as_torch(
    function: Callable[..., Any],
    *arrays: Any,
    reference: Callable[..., Any] | None = None,
    gradient: bool = True,
    rtol: float = 1e-5,
    atol: float = 1e-6,
) -> None:
    """Runs `function` on tensors of both libraries (`reference` on PyTorch's, where it is written otherwise).

    Values agree to 1e-5 relative, 1e-6 absolute, gradients to ten times that: float32 has 6e-8 and sums of a few
    hundred terms in another order lose up to a hundredfold.
    """
    copies = [np.asarray(array) for array in arrays]
    floats = [gradient and array.dtype.kind == "f" for array in copies]
    ours = [Tensor(array, requires_grad=is_float) for array, is_float in zip(copies, floats)]
    theirs = [torch.tensor(array, requires_grad=is_float) for array, is_float in zip(copies, floats)]
    result, expected = function(*ours), (reference or function)(*theirs)
    same_value(result, expected, rtol, atol)
    if not any(floats):
        return
    for index, (mine, other) in enumerate(zip(_parts(result), _parts(expected))):
        if other.requires_grad:
            weights = np.random.default_rng(index).standard_normal(tuple(other.shape)).astype(as_arrays(other)[0].dtype)
            if mine.requires_grad:  # a step function has none here, and zeros in PyTorch
                mine.backward(Tensor(weights))
            other.backward(torch.tensor(weights), retain_graph=True)
    for mine, other in zip(ours, theirs):
        if mine.grad is None:
            assert other.grad is None or not other.grad.any()
        else:
            same_value(mine.grad, other.grad, 10 * rtol, 10 * atol)


def _parts(result: Any) -> list[Any]:
    return [part for item in result for part in _parts(item)] if isinstance(result, (tuple, list)) else [result]
