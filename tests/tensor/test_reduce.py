"""Reductions, running sums and softmax against PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import IndexingError, Tensor, dtypes
from picograd.look import watch
from tests.helpers import same_as_torch, same_value

DIMS = [None, 0, -1, (0, 2), (0, 1, 2)]


@pytest.mark.variants
@pytest.mark.req("C4")
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", ["sum", "mean", "amax", "amin", "var", "std", "logsumexp"])
def test_reductions(name, dim, keepdim, device, rng):
    if name == "logsumexp" and dim is None:
        dim = (0, 1, 2)
    axes = tuple(range(3)) if dim is None and name in ("amax", "amin") else dim
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    same_as_torch(
        lambda t: getattr(t, name)(dim=dim, keepdim=keepdim),
        x,
        reference=lambda t: getattr(t, name)(dim=axes, keepdim=keepdim),
    )


@pytest.mark.req("C4")
def test_the_other_names_of_arguments(device, rng):
    x = rng.standard_normal((2, 3)).astype(np.float32)
    same_as_torch(lambda t: t.sum(axis=1, keepdims=True), x)
    same_as_torch(lambda t: t.mean(axis=0), x)
    same_as_torch(lambda t: t.softmax(axis=0), x, reference=lambda t: t.softmax(0))


@pytest.mark.req("C4")
def test_products(device, rng):
    x = rng.uniform(0.5, 1.5, (3, 4)).astype(np.float32)
    same_as_torch(lambda t: t.prod(), x)
    same_as_torch(lambda t: t.prod(1), x)
    x[1, 2] = 0.0
    same_as_torch(lambda t: t.prod(1), x)


@pytest.mark.req("C4")
def test_sums_of_integers_and_bools_are_int64(device):
    for x in (np.array([200, 100], np.uint8), np.array([True, True]), np.array([1, 2], np.int32)):
        same_as_torch(lambda t: t.sum(), x)
    same_as_torch(lambda t: t.sum(), np.ones(3, np.float16), gradient=False)


@pytest.mark.req("C4")
@pytest.mark.parametrize("correction", [0, 1, 2])
def test_corrections_of_the_variance(correction, device, rng):
    x = rng.standard_normal((3, 5)).astype(np.float32)
    same_as_torch(lambda t: t.var(1, correction=correction), x)
    same_as_torch(lambda t: t.std(correction=correction), x)


@pytest.mark.req("G2")
def test_variance_of_1_2_3_4(device):
    assert Tensor([1.0, 2.0, 3.0, 4.0]).var().item() == pytest.approx(1.6666667)


@pytest.mark.req("C4")
def test_extremes_with_their_places(device, rng):
    x = rng.standard_normal((3, 5)).astype(np.float32)
    same_as_torch(lambda t: t.max(), x)
    same_as_torch(lambda t: tuple(t.max(1)), x)
    same_as_torch(lambda t: tuple(t.min(dim=0, keepdim=True)), x)
    same_as_torch(lambda t: t.argmax(), x)
    same_as_torch(lambda t: t.argmin(1), x)
    same_as_torch(lambda t: t.argmax(-1, keepdim=True), x)


def test_the_first_extreme_and_nan_win(device):
    assert Tensor([1, 3, 3, 0]).argmax().item() == 1
    assert Tensor([1.0, float("nan"), 3.0]).argmax().item() == 1
    assert np.isnan(Tensor([1.0, float("nan"), 3.0]).max().item())


@pytest.mark.req("C4")
def test_any_and_all(device):
    x = np.array([[0, 1, 2], [0, 0, 0]])
    for dim in (0, 1):
        same_as_torch(lambda t: t.any(dim), x)  # noqa: B023
        same_as_torch(lambda t: t.all(dim), x)  # noqa: B023
    same_as_torch(lambda t: t.any(), x)
    same_as_torch(lambda t: t.all(), x)


@pytest.mark.req("C4")
@pytest.mark.parametrize("p", [1, 2, 3, 0, float("inf"), -float("inf"), "fro"])
def test_norms(p, device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    same_as_torch(lambda t: t.norm(p), x, gradient=p != 0)
    same_as_torch(lambda t: t.norm(p, dim=1), x, gradient=p != 0)


@pytest.mark.req("C4")
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_softmax(name, dim, device, rng):
    same_as_torch(lambda t: getattr(t, name)(dim), rng.standard_normal((3, 4, 2)).astype(np.float32) * 3)


def test_softmax_of_large_numbers_does_not_overflow(device):
    same_as_torch(lambda t: t.softmax(0), np.array([1e4, 1e4 - 1, -1e4], np.float32))
    same_as_torch(lambda t: t.logsumexp(0), np.array([1e4, 1e4 - 1, -np.inf], np.float32), gradient=False)
    assert Tensor([-np.inf, -np.inf]).logsumexp(0).item() == -np.inf
    same_as_torch(lambda t: t.logsumexp(0), np.array([1, 2, 3]))


@pytest.mark.req("C4")
def test_running_sums(device, rng):
    x = rng.standard_normal((3, 4)).astype(np.float32)
    same_as_torch(lambda t: t.cumsum(0), x)
    same_as_torch(lambda t: t.cumsum(-1), x)
    same_as_torch(lambda t: t.cumprod(1), x)
    same_as_torch(lambda t: t.cumsum(0), np.array([200, 100], np.uint8))
    same_as_torch(lambda t: t.cumsum(0), np.array([True, True]))


def test_empty_tensors_reduce_to_the_neutral_element(device):
    x = Tensor.zeros(0, 3)
    assert x.sum().item() == 0
    assert x.prod(0).tolist() == [1.0] * 3
    assert x.any().item() is False and x.all().item() is True


def test_scalars_reduce_to_themselves(device):
    same_as_torch(lambda t: t.sum(), np.float32(2.5))
    same_as_torch(lambda t: t.softmax(0), np.float32(2.5))
    assert Tensor(2.5).argmax().item() == 0


@pytest.mark.req("C9")
def test_sixteen_bit_softmax_and_mean_match_pytorch(device, rng):
    x = rng.standard_normal((4, 64)).astype(np.float16)
    # one unit in the last place of float16 is 1e-3
    same_value(Tensor(x).softmax(-1), torch.tensor(x).softmax(-1), rtol=2e-3, atol=1e-4)
    same_value(Tensor(x).mean(1), torch.tensor(x).mean(1), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_mean_of_narrow_floats_whose_sum_is_too_large(device, rng, dtype):
    """float16 ends at 65504: neither the sum nor the number of elements must go through it."""
    halves = rng.standard_normal((300, 256)).astype(np.float16)
    x, expected = Tensor(halves).to(getattr(pg, dtype)), torch.tensor(halves).to(getattr(torch, dtype))
    for compute in (lambda t: (t + 20).mean(), lambda t: t.var(), lambda t: t.std(0), lambda t: (t * t).mean(1)):
        same_value(compute(x).float(), compute(expected).float(), rtol=1e-2, atol=1e-3)
    x, expected = x.requires_grad_(True), expected.requires_grad_(True)
    (x * x).mean().backward()
    (expected * expected).mean().backward()
    same_value(x.grad.float(), expected.grad.float(), rtol=2e-2, atol=2e-7)


@pytest.mark.req("C4")
def test_lengths_of_nothing_have_gradient_zero(device):
    zeros = np.zeros((2, 4), np.float32)
    same_as_torch(lambda t: t.std(-1), zeros)
    same_as_torch(lambda t: t.norm(dim=-1), zeros)
    same_as_torch(lambda t: t.norm(), zeros)


def test_a_tensor_without_axes_has_no_axis_1(device):
    assert Tensor(2.0).sum(-1).item() == Tensor(2.0).sum(0).item() == 2.0
    with pytest.raises(IndexingError, match="axis 1 is out of range"):
        Tensor(2.0).sum(1)


@pytest.mark.req("G2")
@pytest.mark.parametrize(
    "largest", [lambda x: x.max(1, keepdim=True)[0], lambda x: x.max(1).values[:, None], lambda x: x.amax(1, True)]
)
def test_softmax_by_hand_and_its_gradient_gather_nothing_by_any_maximum(largest: Callable[[Tensor], Tensor]) -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((16, 40)), dtypes.float32, "CPU", requires_grad=True)
    weights = pg.ones(16, 40, device="CPU").realize()
    pg.realize([x])

    def shares() -> Tensor:
        powers = (x - largest(x)).exp()
        return powers / powers.sum(1, keepdim=True)

    for make in (lambda: shares().detach(), lambda: pg.autograd.grad(shares(), [x], weights)[0]):
        value = make()
        with watch() as counts:
            value.realize()
        assert counts.launches <= 2  # what else is alive of the graph may have one of its own
    assert np.allclose(shares().detach().numpy(), x.detach().softmax(1).numpy(), rtol=1e-5)
