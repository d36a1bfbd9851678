"""Losses: the values and gradients of PyTorch's, and of cases where it has none."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as reference

import picograd as pg
import picograd.nn.functional as functional
from picograd import Tensor, Variable, dtypes
from tests.helpers import same_as_torch, same_value


@pytest.mark.variants
@pytest.mark.req("C4")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(5, 4), (2, 4, 3), (2, 4, 3, 2), (4,)])
def test_cross_entropy(shape, weighted, smoothing, reduction, device, rng):
    x = rng.standard_normal(shape).astype(np.float32) * 2
    rows = shape[:1] + shape[2:] if len(shape) > 1 else ()
    target = rng.integers(0, 4, rows)
    arrays = [x, target] + ([rng.uniform(0.5, 2.0, 4).astype(np.float32)] if weighted else [])

    def loss(library):
        def function(t, labels, *weight):
            return library.cross_entropy(t, labels, *weight, reduction=reduction, label_smoothing=smoothing)

        return function

    if not weighted:
        same_as_torch(loss(functional), *arrays, reference=loss(reference))
        return
    weight = arrays.pop()  # not differentiated: PyTorch gives no gradient of it
    same_as_torch(
        lambda t, labels: loss(functional)(t, labels, Tensor(weight)),
        *arrays,
        reference=lambda t, labels: loss(reference)(t, labels, torch.tensor(weight)),
    )


@pytest.mark.req("C4")
@pytest.mark.parametrize("ignored", [-100, 2])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_cross_entropy_leaves_out_ignored_rows(ignored, reduction, device, rng):
    x, target = rng.standard_normal((6, 4)).astype(np.float32), np.array([0, ignored, 3, ignored, 1, 1])
    same_as_torch(
        lambda t, y: functional.cross_entropy(t, y, ignore_index=ignored, reduction=reduction),
        x,
        target,
        reference=lambda t, y: reference.cross_entropy(t, y, ignore_index=ignored, reduction=reduction),
    )


def test_cross_entropy_that_counts_every_row(device, rng):
    x, target = rng.standard_normal((6, 4)).astype(np.float32), np.array([0, 2, 3, 1, 1, 1])
    same_as_torch(
        lambda t, y: functional.cross_entropy(t, y, ignore_index=None), x, target, reference=reference.cross_entropy
    )


@pytest.mark.req("C4")
def test_cross_entropy_with_probabilities(device, rng):
    x = rng.standard_normal((5, 4)).astype(np.float32)
    p = rng.uniform(size=(5, 4)).astype(np.float32)
    for smoothing in (0.0, 0.2):
        same_as_torch(
            lambda t, q: functional.cross_entropy(t, q, label_smoothing=smoothing),  # noqa: B023
            x,
            p,
            reference=lambda t, q: reference.cross_entropy(t, q, label_smoothing=smoothing),  # noqa: B023
        )


def test_cross_entropy_with_probabilities_of_other_classes_each_time(rng):
    for classes in (3, 4, 5, 6, 7, 4):  # from the third on the formula is tried for many lengths, and needs a number
        x, p = (rng.uniform(size=(5, classes)).astype(np.float32) for _ in range(2))
        ours = functional.cross_entropy(Tensor(x), Tensor(p), label_smoothing=0.2)
        same_value(ours, reference.cross_entropy(torch.tensor(x), torch.tensor(p), label_smoothing=0.2))


def test_cross_entropy_of_huge_scores_is_finite(device):
    x = np.array([[1e4, -1e4, 0.0], [3e38, 0.0, -3e38]], np.float32)
    same_as_torch(functional.cross_entropy, x, np.array([1, 0]), reference=reference.cross_entropy)


@pytest.mark.req("C4")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_other_losses(reduction, device, rng):
    a, b = rng.standard_normal((2, 4, 3)).astype(np.float32)
    p, q = rng.uniform(0.1, 0.9, (2, 4, 3)).astype(np.float32)
    labels = rng.integers(0, 3, (4,))
    pairs = [
        ("mse_loss", a, b), ("l1_loss", a, b), ("binary_cross_entropy", p, q),
        ("binary_cross_entropy_with_logits", a * 20, q), ("nll_loss", np.log(p), labels),
    ]  # fmt: skip
    for name, x, y in pairs:
        same_as_torch(
            lambda s, t: getattr(functional, name)(s, t, reduction=reduction),  # noqa: B023
            x,
            y,
            reference=lambda s, t: getattr(reference, name)(s, t, reduction=reduction),  # noqa: B023
        )


@pytest.mark.req("C4")
def test_binary_cross_entropy_of_certain_predictions(device):
    p = Tensor([0.0, 1.0, 0.0, 1.0, 1e-20, 0.25], requires_grad=True)
    t = Tensor([0.0, 1.0, 1.0, 0.0, 1.0, 0.5])
    losses = functional.binary_cross_entropy(p, t, reduction="none")
    same_value(losses, reference.binary_cross_entropy(*[torch.tensor(x.tolist()) for x in (p, t)], reduction="none"))
    losses.sum().backward()
    # d/dp = (1 - t) / (1 - p) - t / p: 1 where a certain prediction is right, where PyTorch's bound leaves 0.
    np.testing.assert_allclose(p.grad.numpy(), [1.0, -1.0, -1e12, 1e12, -1e12, -4 / 3], rtol=1e-5)


@pytest.mark.req("C4")
def test_the_mean_loss_of_no_rows_is_nan(device):
    x = Tensor.zeros(0, 3)
    assert np.isnan(functional.cross_entropy(x, Tensor.zeros(0, dtype=dtypes.int64)).item())
    assert np.isnan(functional.cross_entropy(x, Tensor.zeros(0, dtype=dtypes.int64), ignore_index=None).item())
    assert np.isnan(functional.cross_entropy(x, x).item())


@pytest.mark.req("G4")
def test_the_mean_is_over_the_rows_there_are_where_their_number_is_symbolic(device, rng):
    x, p = (Tensor(rng.uniform(0.1, 0.9, (8, 5)).astype(np.float32)) for _ in range(2))
    labels, n = Tensor(np.arange(8) % 5), Variable("n", 1, 8).bind(3)
    for loss in (
        functional.cross_entropy,
        functools.partial(functional.cross_entropy, ignore_index=None),
        functools.partial(functional.cross_entropy, ignore_index=None, label_smoothing=0.1),
        functional.nll_loss,
        functools.partial(functional.nll_loss, ignore_index=None),
    ):
        same_value(loss(x[:n], labels[:n]), loss(x[:3], labels[:3]))
    for loss in (functional.cross_entropy, functional.mse_loss, functional.l1_loss, functional.binary_cross_entropy):
        same_value(loss(x[:n], p[:n]), loss(x[:3], p[:3]))


def test_pairs_of_rows_that_are_kept_belong_to_no_trace() -> None:
    x = Tensor(np.random.default_rng(0).standard_normal((13, 3)).astype(np.float32))
    traced = pg.jit(functional.pdist)
    expected = reference.pdist(torch.tensor(x.numpy())).numpy()
    for found in (traced(x), traced(x), functional.pdist(x), pg.func.vmap(functional.pdist)(x[None])[0], traced(x)):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6)
