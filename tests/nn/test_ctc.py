"""CTC against PyTorch's, and against all ways to read a label."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as reference

import picograd as pg
from picograd import Tensor
from picograd.nn import functional
from tests.helpers import same_value


def both(rng, steps=7, batch=3, classes=5, labels=3):
    scores = rng.standard_normal((steps, batch, classes)).astype(np.float32)
    drawn = rng.integers(1, classes, (batch, labels))
    return Tensor(scores, requires_grad=True), torch.tensor(scores, requires_grad=True), drawn


CASES = [([7, 5, 6], [3, 2, 1]), ([7, 7, 7], [3, 3, 3]), ([7, 4, 1], [2, 0, 1])]


@pytest.mark.variants(every=4)
@pytest.mark.req("C4")
@pytest.mark.parametrize(("steps", "counts"), CASES)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_equals_pytorch(steps, counts, reduction, device, rng):
    mine, other, labels = both(rng)
    ours = functional.ctc_loss(mine.log_softmax(-1), Tensor(labels), steps, counts, reduction=reduction)
    theirs = reference.ctc_loss(
        other.log_softmax(-1), torch.tensor(labels), torch.tensor(steps), torch.tensor(counts), reduction=reduction
    )
    same_value(ours, theirs, rtol=1e-5)
    ours.sum().backward(), theirs.sum().backward()
    same_value(mine.grad, other.grad, rtol=1e-4, atol=1e-5)


def test_labels_one_after_the_other_and_repeated_ones(device, rng):
    mine, other, _ = both(rng, batch=2)
    flat = np.array([1, 1, 2, 4, 4])
    ours = functional.ctc_loss(mine.log_softmax(-1), Tensor(flat), Tensor([7, 6]), Tensor([3, 2]), blank=3)
    arrays = (torch.tensor(array) for array in (flat, [7, 6], [3, 2]))
    theirs = reference.ctc_loss(other.log_softmax(-1), *arrays, blank=3)
    same_value(ours, theirs)


def test_one_sequence(device, rng):
    mine, other, labels = both(rng, batch=1)
    ours = functional.ctc_loss(mine[:, 0].log_softmax(-1), Tensor(labels[0]), [7], [3], reduction="none")
    theirs = reference.ctc_loss(
        other[:, 0].log_softmax(-1), torch.tensor(labels[0]), torch.tensor(7), torch.tensor(3), reduction="none"
    )
    same_value(ours, theirs)


def test_labels_that_do_not_fit(device, rng):
    mine, _, _ = both(rng, steps=3, batch=2)
    labels = Tensor([[1, 1, 1], [1, 2, 3]])  # two blanks must stand between the first three
    losses = functional.ctc_loss(mine.log_softmax(-1), labels, [3, 3], [3, 3], reduction="none")
    assert math.isinf(losses[0].item()) and math.isfinite(losses[1].item())
    losses = functional.ctc_loss(mine.log_softmax(-1), labels, [3, 3], [3, 3], reduction="none", zero_infinity=True)
    losses.sum().backward()
    assert losses[0].item() == 0 and not mine.grad[:, 0].numpy().any() and np.isfinite(mine.grad.numpy()).all()


def test_is_the_sum_over_all_ways(rng):
    probs = rng.dirichlet(np.ones(3), 4)  # 4 steps, classes blank 1 2
    total = 0.0
    for way in itertools.product(range(3), repeat=4):
        read = [a for a, _ in itertools.groupby(way) if a]
        if read == [1, 2]:
            total += math.prod(probs[t, c] for t, c in enumerate(way))
    loss = functional.ctc_loss(Tensor(np.log(probs)[:, None]), Tensor([[1, 2]]), [4], [2], reduction="sum")
    assert loss.item() == pytest.approx(-math.log(total), rel=1e-12)


def test_labels_of_any_dtype():
    """Labels are often padded as floats; PyTorch casts them."""
    log_probs = np.random.default_rng(1).standard_normal((5, 2, 4)).astype(np.float32)
    labels = np.array([[1, 2, 0], [3, 0, 0]])
    for kind in (np.float32, np.float64, np.int8):
        for targets in (labels, labels[labels > 0]):
            ours = functional.ctc_loss(Tensor(log_probs).log_softmax(-1), Tensor(targets.astype(kind)), [5, 4], [2, 1])
            theirs = reference.ctc_loss(torch.tensor(log_probs).log_softmax(-1), torch.tensor(targets), [5, 4], [2, 1])
            assert ours.item() == pytest.approx(theirs.item(), rel=1e-6)


def test_errors():
    x = Tensor.zeros(4, 2, 3)
    for call, fact in (
        (lambda: functional.ctc_loss(x, Tensor([[1], [2]]), [4], [1, 1]),
         "ctc_loss: input_lengths must be (2,), got (1,)."),
        (lambda: functional.ctc_loss(x, Tensor([[1], [2]]), [4, 4], [1, 1], blank=3),
         "ctc_loss: blank must be one of the 3 classes, got 3."),
        (lambda: functional.ctc_loss(x, Tensor([[1]]), [4, 4], [1, 1]),
         "ctc_loss: targets (1, 1) must have a row for each of 2 sequences."),
        (lambda: functional.ctc_loss(x, Tensor([1]), [4, 4], [1, 1]),
         "ctc_loss: targets (1,) must have the 2 of target_lengths."),
    ):  # fmt: skip
        with pytest.raises(pg.PicogradError) as caught:
            call()
        assert caught.value.fact == fact and caught.value.line.file == __file__
    with pytest.raises(pg.IndexingError):
        functional.ctc_loss(x, Tensor([[1], [3]]), [4, 4], [1, 1]).realize()
