"""Elementwise rows of the table at zeros, infinities, NaN, ties, the smallest and the largest: values and gradients.

Each is compared with PyTorch. Where both differ the name stands in `DIFFERS` with the reason, and the test fails if they no
longer do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from tests.operations import activations, elementwise, special
from tests.operations.table import Array, Operation
from tests.operations.test_operations import host

SLOPE = "the slope at NaN is that of one of its branches: here another than in PyTorch"
LIMIT = "here the limit; PyTorch computes inf - inf, 0 * inf or 0 / 0"
POLE = "at poles and infinities PyTorch has the limit or a large number, here NaN or one of its sides"
FAR = "beyond the largest that PyTorch's approximation takes, or below the smallest"
DIFFERS = {
    SLOPE: (
        "Tensor.relu Tensor.hardshrink Tensor.clamp Tensor.clamp_min Tensor.clamp_max Tensor.logit "
        "nn.functional.relu nn.functional.hardtanh nn.functional.relu6 nn.functional.hardsigmoid nn.functional.hardshrink "
        "nn.functional.softshrink nn.functional.elu nn.functional.selu nn.functional.celu special.i1"
    ),
    LIMIT: (
        "Tensor.pow Tensor.float_power Tensor.logaddexp Tensor.logaddexp2 Tensor.atan2 Tensor.hypot Tensor.copysign "
        "Tensor.silu nn.functional.silu Tensor.gelu nn.functional.gelu nn.functional.hardswish special.erfcx "
        "special.log_ndtr special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 "
        "special.modified_bessel_i0 special.modified_bessel_i1 Tensor.i0 special.i0 Tensor.acosh"
    ),
    POLE: (
        "Tensor.lgamma special.gammaln Tensor.mvlgamma Tensor.digamma special.digamma special.psi Tensor.polygamma "
        "polygamma special.zeta special.i0e special.i1e special.entr Tensor.xlogy special.xlogy special.xlog1py "
        "Tensor.igamma Tensor.igammac Tensor.remainder Tensor.lerp"
    ),
    FAR: "Tensor.fmod Tensor.cosh Tensor.asinh Tensor.sinc special.sinc nn.functional.mish",
}
REASONS = {name: reason for reason, names in DIFFERS.items() for name in names.split()}
ONE = np.array(
    [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, 6, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.2e-38, 3e38, -3e38, 1e-20, 1e20]
)
TWO = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3e38])
THREE = np.array([0.0, 1, -1, np.inf, np.nan])


def points(num_operands: int) -> list[Array]:
    """Returns the operands: all combinations of the points."""
    each = {1: ONE, 2: TWO}.get(num_operands, THREE)
    return [grid.ravel() for grid in np.meshgrid(*[each] * num_operands)]


def places(row: Operation) -> tuple[Any, list[int]] | None:
    """Returns the first call of a row and where its operands stand; None where it takes others than floats."""
    call = row.samples(np.random.default_rng(0))[0]
    found = [i for i, arg in enumerate(call.args) if isinstance(arg, np.ndarray)]
    is_plain = all(call.args[i].dtype == np.float64 for i in found)
    is_plain = is_plain and not any(isinstance(value, np.ndarray) for value in call.kwargs.values())
    return (call, found) if found and is_plain else None


def parts(row: Operation, library: Any) -> Iterator[Array]:
    """Yields the value and the gradients at the points."""
    found = places(row)
    assert found is not None
    call, where = found
    args, leaves = list(call.args), []
    for place, array in zip(where, points(len(where))):
        args[place] = library.tensor(array.astype(np.float32), requires_grad=True)
        leaves.append(args[place])
    result = (row.ours() if library is pg else row.theirs())(*args, **call.kwargs)
    yield result.detach().numpy()
    if row.orders and result.requires_grad:
        for leaf, grad in zip(leaves, library.autograd.grad(result.sum(), leaves, allow_unused=True)):
            yield np.zeros(leaf.shape) if grad is None else host(grad)


def is_elementwise(row: Operation) -> bool:
    """True for a row that takes floats of any shape, and gives one tensor of their common shape."""
    found = places(row)
    if found is None or row.name == "nn.functional.prelu" or "max" in row.name and "softm" in row.name:
        return False
    args = [torch.ones(7) if isinstance(arg, np.ndarray) else arg for arg in found[0].args]
    try:
        result = row.theirs()(*args, **found[0].kwargs)
    except (IndexError, RuntimeError, TypeError):
        return False
    return isinstance(result, torch.Tensor) and result.shape == (7,)


ROWS = [row for family in (elementwise, special, activations) for row in family.OPERATIONS if is_elementwise(row)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_values_and_gradients_at_the_edges(row: Operation) -> None:
    mine, theirs = list(parts(row, pg)), list(parts(row, torch))
    agree = len(mine) == len(theirs) and all(
        np.allclose(a, b, rtol=1e-4, atol=1e-37, equal_nan=True) for a, b in zip(mine, theirs)
    )
    assert agree or row.name in REASONS


def test_what_differs_does_so_in_one_of_its_rows() -> None:
    differing = {
        row.name
        for row in ROWS
        if row.name in REASONS
        for a, b in zip(parts(row, pg), parts(row, torch))
        if not np.allclose(a, b, rtol=1e-4, atol=1e-37, equal_nan=True)
    }
    assert differing == set(REASONS)
