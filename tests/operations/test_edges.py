"""Rows of the table at its edges: zeros, infinities, NaN, ties, the smallest and the largest, one element and none.

Elementwise rows get all combinations of points, others arrays filled with a few. Values and two orders of gradients are
compared with PyTorch. Where both differ the name stands in `DIFFERS` with the reason, followed by '' if only second
derivatives do; the tests fail if they no longer do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from tests.operations import (
    activations,
    elementwise,
    indexing,
    losses,
    normalization,
    pooling,
    reductions,
    sorting,
    special,
)
from tests.operations.table import Array, Operation, Sample, arrays_of, with_arrays
from tests.operations.test_operations import host

SLOPE = "the slope at NaN is that of one of its branches: here another than in PyTorch"
SIDE = "a derivative at a corner is that of one side; PyTorch takes the other, or 0"
LIMIT = "here the limit; PyTorch computes inf - inf, 0 * inf or 0 / 0"
POLE = "at poles and infinities PyTorch has the limit or a large number, here NaN or one of its sides"
FAR = "beyond the largest that one of both approximations takes, or below the smallest"
SHARES = "equal candidates share a gradient, or one has it: PyTorch names another, or counts what takes no part"
NANS = "NaN wins here, and has the gradient of what it wins; in PyTorch it is skipped, or makes NaN of all gradients"
DIFFERS = {
    SLOPE: (
        "Tensor.relu Tensor.hardshrink Tensor.clamp Tensor.clamp_min Tensor.clamp_max Tensor.logit nn.functional.relu "
        "nn.functional.hardtanh nn.functional.relu6 nn.functional.hardsigmoid nn.functional.hardshrink "
        "nn.functional.softshrink nn.functional.elu nn.functional.selu nn.functional.celu special.i1 "
        "nn.functional.lp_pool1d nn.functional.lp_pool2d nn.functional.lp_pool3d nn.functional.hinge_embedding_loss "
        "nn.functional.margin_ranking_loss nn.functional.triplet_margin_loss"
    ),
    SIDE: (
        "nn.functional.huber_loss'' nn.functional.smooth_l1_loss'' nn.functional.pairwise_distance'' "
        "nn.functional.triplet_margin_with_distance_loss'' nn.functional.prelu'' Tensor.prelu''"
    ),
    LIMIT: (
        "Tensor.pow Tensor.float_power Tensor.logaddexp Tensor.logaddexp2 Tensor.atan2 Tensor.hypot Tensor.copysign "
        "Tensor.silu nn.functional.silu Tensor.gelu nn.functional.gelu nn.functional.hardswish special.erfcx "
        "special.log_ndtr special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1 "
        "special.modified_bessel_i0 special.modified_bessel_i1 Tensor.i0 special.i0 Tensor.acosh Tensor.addcdiv'' "
        "Tensor.atan'' Tensor.erf'' Tensor.erfc'' special.erf'' special.erfc'' special.ndtr'' Tensor.dist'' Tensor.norm'' "
        "nn.functional.normalize'' Tensor.prod Tensor.cumprod Tensor.logcumsumexp nn.functional.glu nn.functional.kl_div "
        "nn.functional.poisson_nll_loss nn.functional.soft_margin_loss nn.functional.binary_cross_entropy "
        "nn.functional.binary_cross_entropy_with_logits nn.functional.cross_entropy nn.functional.cosine_similarity"
    ),
    POLE: (
        "Tensor.lgamma special.gammaln Tensor.mvlgamma Tensor.digamma special.digamma special.psi Tensor.polygamma "
        "polygamma special.zeta special.i0e special.i1e special.entr'' Tensor.xlogy special.xlogy special.xlog1py "
        "Tensor.igamma Tensor.igammac Tensor.remainder Tensor.nextafter"
    ),
    FAR: (
        "Tensor.fmod Tensor.cosh Tensor.asinh Tensor.atanh'' Tensor.ldexp Tensor.sinc special.sinc Tensor.logsumexp "
        "nn.functional.mish Tensor.std Tensor.var std_mean var_mean nn.functional.batch_norm nn.functional.instance_norm "
        "nn.functional.mse_loss nn.functional.nll_loss nn.functional.gaussian_nll_loss Tensor.histogram"
    ),
    SHARES: (
        "Tensor.topk Tensor.kthvalue Tensor.quantile Tensor.nanquantile Tensor.index_reduce Tensor.index_reduce_ "
        "Tensor.scatter_reduce Tensor.scatter_reduce_"
    ),
    NANS: (
        "Tensor.amax Tensor.amin Tensor.aminmax Tensor.mode Tensor.searchsorted Tensor.unique Tensor.renorm "
        "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.multi_margin_loss "
        "nn.functional.multilabel_margin_loss"
    ),
}
REASONS = {name: reason for reason, names in DIFFERS.items() for name in names.split()}
ONE = np.array(
    [0.0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, 6, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 1.2e-38, 3e38, -3e38, 1e-20, 1e20]
)
TWO = np.array([0.0, -0.0, 1, -1, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e-30, 3e38])
THREE = np.array([0.0, 1, -1, np.inf, np.nan])
FILLS = {
    "equal": [0.5],
    "zero": [0.0, -0.0],
    "tied": [1.0, 2.0, 2.0, -1.0, 1.0],
    "infinite": [np.inf, 1.0, -np.inf, 0.0, np.inf],
    "all minus infinity": [-np.inf],
    "NaN": [1.0, np.nan, 0.0, 2.0, 2.0],
    "smallest": [1e-40, -1e-40, 1.2e-38, 0.0],
    "largest": [3e38, 1.0, 2e38],
}
FAMILIES = (reductions, sorting, indexing, activations, normalization, losses, pooling)
Named = tuple[str, Array]
# What counts as 0: second derivatives, and those along an axis, are differences of numbers near 1.
AT_POINTS = {"value": 1e-37, "first": 1e-37, "second": 1e-6, "refused": 0.0}
OF_FILLED = {"value": 1e-6, "first": 1e-5, "second": 1e-4, "refused": 0.0}


def points(num_operands: int) -> list[Array]:
    """Returns the operands: all combinations of the points."""
    each = {1: ONE, 2: TWO}.get(num_operands, THREE)
    return [grid.ravel() for grid in np.meshgrid(*[each] * num_operands)]


def places(row: Operation) -> tuple[Sample, list[int]] | None:
    """Returns the first call of a row and where its operands stand; None where it takes others than floats."""
    call = row.samples(np.random.default_rng(0))[0]
    found = [i for i, arg in enumerate(call.args) if isinstance(arg, np.ndarray)]
    is_plain = all(call.args[i].dtype == np.float64 for i in found)
    is_plain = is_plain and not any(isinstance(value, np.ndarray) for value in call.kwargs.values())
    return (call, found) if found and is_plain else None


def is_elementwise(row: Operation) -> bool:
    """True for a row that takes floats of any shape, and gives one tensor of their common shape."""
    found = places(row)
    if found is None or row.name.endswith(".prelu") or "max" in row.name and "softm" in row.name:
        return False
    args = [torch.ones(7) if isinstance(arg, np.ndarray) else arg for arg in found[0].args]
    try:
        result = row.theirs()(*args, **found[0].kwargs)
    except (IndexError, RuntimeError, TypeError, ValueError):
        return False
    return isinstance(result, torch.Tensor) and result.shape == (7,)


ROWS = [row for family in (elementwise, special, activations) for row in family.OPERATIONS if is_elementwise(row)]


def takes_arrays(row: Operation) -> bool:
    """True for a row of another kind, one of whose operands is of floats."""
    call = row.samples(np.random.default_rng(0))[0]
    return row not in ROWS and any(array.dtype == np.float64 for array in arrays_of([call.args, call.kwargs]))


COLLECTED = [row for family in FAMILIES for row in family.OPERATIONS if takes_arrays(row)]


# ---- what a row gives ----
def tensors_of(value: Any) -> list[Any]:
    """Returns the tensors among results, in order."""
    if hasattr(value, "requires_grad"):
        return [value]
    return [t for part in value for t in tensors_of(part)] if isinstance(value, (tuple, list)) else []


def parts(row: Operation, call: Sample, library: Any, arrays: Sequence[Array], orders: int) -> Iterator[Named]:
    """Yields the results of a call with these arrays in place of its own, and their gradients."""
    given, leaves = iter(arrays), []

    def convert(array: Array) -> Any:
        if array.dtype != np.float64:
            return library.tensor(array)
        leaves.append(library.tensor(next(given).astype(np.float32), requires_grad=True))
        return leaves[-1]

    args, kwargs = with_arrays(call.args, convert), with_arrays(call.kwargs, convert)
    results = tensors_of((row.ours() if library is pg else row.theirs())(*args, **kwargs))
    yield from (("value", result.detach().numpy()) for result in results)
    results = [result for result in results if result.requires_grad]
    orders = min(orders, row.orders)
    if not orders or not results:
        return
    weights = [library.tensor(np.resize(np.float32([1, 2, 3]), tuple(result.shape))) for result in results]
    total = sum((result * weight).sum() for result, weight in zip(results, weights))
    first = library.autograd.grad(total, leaves, create_graph=orders > 1, allow_unused=True)
    yield from (("first", np.zeros(leaf.shape) if g is None else host(g)) for g, leaf in zip(first, leaves))
    for grad in first if orders > 1 else ():
        second = [None] * len(leaves)
        if grad is not None and grad.requires_grad:
            second = library.autograd.grad(grad.sum(), leaves, allow_unused=True, retain_graph=True)
        yield from (("second", np.zeros(leaf.shape) if g is None else host(g)) for g, leaf in zip(second, leaves))


def attempt(*call: Any) -> list[Named]:
    """Returns those parts, or that the call is refused."""
    try:
        return list(parts(*call))
    except (RuntimeError, ValueError, TypeError, IndexError):
        return [("refused", np.zeros(0))]


def orders_that_differ(mine: list[Named], theirs: list[Named], least: dict[str, float]) -> set[str]:
    """Returns "value", "first", "second" or "refused": what is not the same."""
    if len(mine) != len(theirs):
        return {"refused"}
    return {order for (order, a), (_, b) in zip(mine, theirs) if not is_near(a, b, least[order])}


def is_near(a: Array, b: Array, least: float) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-4, atol=least, equal_nan=True)


@cache
def at_points(row: Operation, orders: int) -> set[str]:
    found = places(row)
    assert found is not None
    call, where = found
    mine, theirs = (attempt(row, call, library, points(len(where)), orders) for library in (pg, torch))
    return orders_that_differ(mine, theirs, AT_POINTS)


@cache
def of_filled(row: Operation) -> set[str]:
    found: set[str] = set()
    call = row.samples(np.random.default_rng(0))[0]
    own = [array for array in arrays_of([call.args, call.kwargs]) if array.dtype == np.float64]
    for fill in FILLS.values():
        filled = [np.roll(np.resize(fill, array.shape), 3 * n) for n, array in enumerate(own)]
        mine, theirs = (attempt(row, call, library, filled, 2) for library in (pg, torch))
        found |= orders_that_differ(mine, theirs, OF_FILLED)
    return found


def check(row: Operation, differs: set[str]) -> None:
    is_expected = not differs or row.name in REASONS or (differs == {"second"} and f"{row.name}''" in REASONS)
    assert is_expected, f"{row.name}: {differs} differ from PyTorch's; mend it, or list it in DIFFERS with a reason"


@pytest.mark.variants(every=3)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_values_and_gradients_at_the_edges(row: Operation) -> None:
    check(row, at_points(row, 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_second_derivatives_at_the_edges(row: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    check(row, at_points(row, 2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", COLLECTED, ids=str)
def test_rows_of_other_kinds_at_the_edges(row: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    check(row, of_filled(row))


@pytest.mark.filterwarnings("ignore")
def test_what_differs_does_so_in_one_of_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    differing: dict[str, set[str]] = {}
    for row in ROWS:
        differing.setdefault(row.name, set()).update(at_points(row, 2))
    for row in COLLECTED:
        differing.setdefault(row.name, set()).update(of_filled(row))
    named = {name if differs != {"second"} else f"{name}''" for name, differs in differing.items() if differs}
    assert named == set(REASONS)
