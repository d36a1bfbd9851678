"""Every row of the table of operations against PyTorch: values, dtypes, layouts, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import picograd as pg
from picograd import Tensor
from tests.conftest import DEVICES
from tests.helpers import every_nth
from tests.operations.table import Array, Operation, Sample, all_operations, with_arrays

OPERATIONS = all_operations()
KINDS = {
    "f": ("float64", "float16", "bfloat16"),
    "i": ("int8", "int16", "int32", "int64"),
    "u": ("uint8",),
    "b": ("bool",),
}
# Half an ulp of the widest result, with room for a few roundings on the way: 2^-10 and 2^-7 are theirs.
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2}


# ---- both libraries on one call ----
def converted(array: Array, dtype: str) -> Array:
    """Returns an array in the dtype under test, and one of integers or bools as it is."""
    if array.dtype != np.float64:
        return array
    if dtype == "bool":
        return array > 0
    if dtype.startswith("uint"):
        array = np.abs(array)
    with np.errstate(all="ignore"):
        return array.astype("float32" if dtype == "bfloat16" else dtype)


def pair(array: Array, dtype: str, grad: bool = False) -> tuple[Tensor, torch.Tensor]:
    """Returns an array as a tensor of either library."""
    values = converted(array, dtype)
    ours, theirs = Tensor(values), torch.tensor(values)
    if dtype == "bfloat16" and array.dtype == np.float64:
        ours, theirs = ours.bfloat16(), theirs.bfloat16()
    if grad and array.dtype == np.float64:
        ours.requires_grad_(), theirs.requires_grad_()
    return ours, theirs


def tensors_of(result: Any) -> list[Any]:
    """Returns the tensors of a result, in tuples or not."""
    if isinstance(result, (tuple, list)):
        return [tensor for part in result for tensor in tensors_of(part)]
    return [result]


def host(tensor: Any) -> Array:
    """Returns the values of a tensor of either library, 16-bit floats as float32."""
    if isinstance(tensor, torch.Tensor):
        tensor = tensor.detach()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy(force=True)  # zeros without memory, too
    if isinstance(tensor, Tensor):
        return (tensor.float() if tensor.dtype is pg.bfloat16 else tensor).detach().numpy()
    return np.asarray(tensor)


def same(ours: Any, theirs: Any, rtol: float, atol: float) -> None:
    """Fails unless both results have the same tensors: number, dtypes, shapes and, within bounds, values.

    Dtypes and shapes are those a tensor states before anything has run.
    """
    mine, reference = tensors_of(ours), tensors_of(theirs)
    assert len(mine) == len(reference)
    for a, b in zip(mine, reference):
        if isinstance(b, torch.Tensor):
            assert isinstance(a, Tensor)
            assert (a.shape, str(a.dtype)) == (tuple(b.shape), str(b.dtype).removeprefix("torch."))
        x, y = host(a), host(b)
        assert x.shape == y.shape
        np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)


def compare(row: Operation, call: Sample, dtype: str, layout: Callable[[Any], Any] = lambda x: x) -> None:
    """Runs one call in both libraries."""
    pairs = [with_arrays(part, lambda array: pair(array, dtype)) for part in (call.args, call.kwargs)]
    mine, other = (_side(pairs, index, layout) for index in (0, 1))
    loose = TOLERANCE.get(dtype, 0.0)
    rtol, atol = max(row.rtol, loose), max(row.atol, loose)
    if dtype == "float64" and not row.is_single:
        rtol, atol = rtol * 1e-6, atol * 1e-6
    same(row.ours()(*mine[0], **mine[1]), row.theirs()(*other[0], **other[1]), rtol, atol)


def _side(value: Any, index: int, layout: Callable[[Any], Any] = lambda x: x) -> Any:
    """Returns arguments with each pair of tensors replaced by the one of library `index`."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], Tensor) and isinstance(value[1], torch.Tensor):
        return layout(value[index])
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_side(part, index, layout) for part in value)
    if isinstance(value, dict):
        return {name: _side(part, index, layout) for name, part in value.items()}
    return value


def backwards(tensor: Any) -> Any:
    """Returns the same values in memory that runs the other way: turned, flipped, every second element."""
    if tensor.ndim == 0:
        return tensor
    axes, order = tuple(range(tensor.ndim)), tuple(reversed(range(tensor.ndim)))
    stored = tensor.flip(axes).permute(order).contiguous()
    joined = (pg.stack if isinstance(stored, Tensor) else torch.stack)([stored, stored], 1)  # (N, 2, ...): each twice
    return joined.flatten(0, 1)[::2].permute(order).flip(axes)


# ---- values ----
@pytest.mark.req("C3")
@pytest.mark.parametrize("row", OPERATIONS, ids=str)
def test_values(row: Operation, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """All samples are compared, on the evaluator."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    compare_values(row, rng)


@pytest.mark.variants(every=5)
@pytest.mark.req("C3")
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("row", OPERATIONS, ids=str)
@pytest.mark.parametrize("device", [device for device in DEVICES if device != "NUMPY"], indirect=True)
def test_values_on_a_device(row: Operation, part: int, device: str, rng: np.random.Generator) -> None:
    """A fifth of the samples is compared, the first among them; the other parts are variants."""
    for call in every_nth(row.samples(rng), part, 5):
        compare(row, call, "float32")


def compare_values(row: Operation, rng: np.random.Generator) -> None:
    """Runs the samples of a row in both libraries."""
    for call in row.samples(rng):
        compare(row, call, "float32")


@pytest.mark.variants(every=17)
@pytest.mark.parametrize("row", OPERATIONS, ids=str)
def test_values_of_views(row: Operation, device: str, rng: np.random.Generator) -> None:
    compare(row, row.samples(rng)[0], "float32", backwards)


@pytest.mark.variants(every=23)
@pytest.mark.req("C9")
@pytest.mark.parametrize("row", OPERATIONS, ids=str)
def test_dtypes(row: Operation, device: str, rng: np.random.Generator) -> None:
    for dtype in (name for kind in row.dtypes for name in KINDS[kind]):
        compare(row, row.samples(rng)[0], dtype)


DRAWN = [row for row in OPERATIONS if row.drawn is not None]


@pytest.mark.variants
@pytest.mark.parametrize("row", DRAWN, ids=str)
def test_drawn_calls(row: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the evaluator: what a kernel makes of a graph is compared with that elsewhere."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    dtypes = ["float32", *(name for kind in row.dtypes for name in KINDS[kind])]

    @settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def drawn(data: st.DataObject) -> None:
        assert row.drawn is not None
        compare(row, data.draw(row.drawn), data.draw(st.sampled_from(dtypes)))

    drawn()


# ---- gradients ----
DIFFERENTIABLE = [row for row in OPERATIONS if row.orders]


@pytest.mark.req("A9")
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
def test_gradients(row: Operation, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    """All samples are compared, on the evaluator; in the second order, the first: the others are variants."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    for index, call in enumerate(row.samples(rng)):
        compare_gradients(row, call, row.orders if index == 0 else 1)


@pytest.mark.variants(every=5)
@pytest.mark.req("A9")
@pytest.mark.parametrize("row", [row for row in DIFFERENTIABLE if row.orders > 1], ids=str)
def test_second_gradients(row: Operation, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "NUMPY")
    for call in row.samples(rng)[1:]:
        compare_gradients(row, call, row.orders)


@pytest.mark.variants(every=61)
@pytest.mark.req("A9")
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("row", DIFFERENTIABLE, ids=str)
def test_gradients_on_a_device(row: Operation, part: int, device: str, rng: np.random.Generator) -> None:
    """A third of the samples; in the second order the first of them alone."""
    for index, call in enumerate(every_nth(row.samples(rng), part, 3)):
        compare_gradients(row, call, row.orders if index == 0 else 1)


def compare_gradients(row: Operation, call: Sample, orders: int) -> None:
    """Runs one call and its derivatives in both libraries."""
    mine, other = _gradients(row, call, orders)
    for ours, theirs in zip(mine, other, strict=True):
        if theirs is None or ours is None:  # no gradient is one of zeros
            known = theirs if ours is None else ours
            assert known is None or np.all(np.abs(host(known)) < 1e-12)  # what rounding leaves of zeros
        else:
            same(ours, theirs, 1e-7, 1e-9)


def _gradients(row: Operation, call: Sample, orders: int) -> tuple[list[Any], list[Any]]:
    """Returns the gradients of either library, of a weighted sum of results, and of a weighted sum of those."""
    pairs = [with_arrays(part, lambda array: pair(array, "float64", grad=True)) for part in (call.args, call.kwargs)]
    found: list[list[Any]] = []
    for index, function in enumerate((row.ours(), row.theirs())):
        args, kwargs = (_side(part, index) for part in pairs)
        leaves = [leaf for leaf in _leaves([args, kwargs]) if leaf.requires_grad]
        outputs, grads = tensors_of(function(*args, **kwargs)), []
        for order in range(1, orders + 1):
            total = _weighted(outputs)
            if total is None or not total.requires_grad:
                grads += [None] * len(leaves) * (orders + 1 - order)
                break
            if index == 0:
                outputs = list(pg.grad(total, leaves, create_graph=order < orders, allow_unused=True))
            else:
                outputs = list(torch.autograd.grad(total, leaves, create_graph=order < orders, allow_unused=True))
            grads += outputs
        found.append(grads)
    return found[0], found[1]


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (Tensor, torch.Tensor)):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else []
    return [leaf for part in parts for leaf in _leaves(part)]


def _weighted(tensors: list[Any]) -> Any:
    """Returns the sum of all elements that have gradients, each times a number of its own; None: there are none."""
    total = None
    for number, tensor in enumerate(tensors):  # what one library has no gradient for may be zeros in the other
        if tensor is None or not isinstance(tensor, (Tensor, torch.Tensor)):
            continue
        weights = np.random.default_rng(1 + number).standard_normal(tuple(tensor.shape))
        if tensor.requires_grad:
            part = (tensor * (Tensor if isinstance(tensor, Tensor) else torch.tensor)(weights)).sum()
            total = part if total is None else total + part
    return total
