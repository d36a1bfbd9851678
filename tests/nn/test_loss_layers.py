"""Losses and distances as modules: PyTorch's values, arguments and state."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor, nn
from picograd.nn import functional
from tests.helpers import same_value

X, Y = (np.random.default_rng(seed).uniform(0.1, 0.9, (4, 5)).astype(np.float32) for seed in (0, 1))
SIGNS = np.where(Y > 0.5, 1.0, -1.0).astype(np.float32)
CLASSES, WEIGHT = np.array([0, 4, 2, 2]), np.array([0.5, 1, 2, 1, 0.25], np.float32)

CASES = [
    ("MSELoss", {}, (X, Y)), ("L1Loss", {"reduction": "sum"}, (X, Y)), ("SmoothL1Loss", {"beta": 0.2}, (X, Y)),
    ("HuberLoss", {"delta": 0.2}, (X, Y)), ("BCELoss", {"weight": WEIGHT}, (X, Y)),
    ("BCEWithLogitsLoss", {"pos_weight": WEIGHT}, (X, Y)), ("KLDivLoss", {"reduction": "batchmean"}, (X, Y)),
    ("PoissonNLLLoss", {"full": True}, (X, Y * 4)), ("GaussianNLLLoss", {"full": True}, (X, Y, X + Y)),
    ("SoftMarginLoss", {}, (X, SIGNS)), ("CrossEntropyLoss", {"weight": WEIGHT, "label_smoothing": 0.1}, (X, CLASSES)),
    ("NLLLoss", {"weight": WEIGHT, "ignore_index": 2}, (X, CLASSES)), ("HingeEmbeddingLoss", {"margin": 0.5}, (X, SIGNS)),
    ("MarginRankingLoss", {"margin": 0.1}, (X, Y, SIGNS)), ("CosineEmbeddingLoss", {"margin": 0.1}, (X, Y, SIGNS[:, 0])),
    ("TripletMarginLoss", {"swap": True, "p": 1.0}, (X, Y, X * Y)), ("TripletMarginWithDistanceLoss", {}, (X, Y, X * Y)),
    ("MultiMarginLoss", {"p": 2, "weight": WEIGHT}, (X, CLASSES)),
    ("MultiLabelMarginLoss", {}, (X, np.tile([3, 0, -1, 1, 1], (4, 1)))),
    ("MultiLabelSoftMarginLoss", {"weight": WEIGHT}, (X, (Y > 0.5).astype(np.float32))),
    ("CosineSimilarity", {"dim": -1}, (X, Y)), ("PairwiseDistance", {"p": 3.0, "keepdim": True}, (X, Y)),
]  # fmt: skip


@pytest.mark.req("C4")
@pytest.mark.parametrize(("name", "settings", "arrays"), CASES)
def test_equals_pytorch(name, settings, arrays):
    def made(library, tensor):
        given = {key: tensor(value) if isinstance(value, np.ndarray) else value for key, value in settings.items()}
        module = getattr(library, name)(**given)
        return module, module(*map(tensor, arrays))

    (mine, ours), (other, theirs) = made(nn, Tensor), made(torch.nn, torch.tensor)
    same_value(ours, theirs)
    assert list(mine.state_dict()) == list(other.state_dict())


def test_ctc(rng):
    log_probs = np.log(rng.dirichlet(np.ones(4), (6, 2))).astype(np.float32)
    labels = np.array([[1, 2], [3, 3]])
    ours = nn.CTCLoss(zero_infinity=True)(Tensor(log_probs), Tensor(labels), [6, 5], [2, 2])
    theirs = torch.nn.CTCLoss(zero_infinity=True)(
        torch.tensor(log_probs), torch.tensor(labels), torch.tensor([6, 5]), torch.tensor([2, 2])
    )
    same_value(ours, theirs)


def test_shapes_that_differ_are_broadcast_with_a_warning_on_the_users_line():
    with pytest.warns(UserWarning, match=r"mse_loss: input \(3,\) and target \(3, 1\) differ in shape") as caught:
        functional.mse_loss(Tensor.zeros(3), Tensor.zeros(3, 1))
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("call", "kind", "fact"),
    [
        (lambda: functional.mse_loss(Tensor([1]), Tensor([1])), pg.DTypeError,
         "mse_loss: needs floats, got int64 and int64."),
        (lambda: functional.mse_loss(Tensor([1.0]), 1.0), pg.DTypeError, "mse_loss: target must be a Tensor, got float."),
        (lambda: functional.binary_cross_entropy(Tensor([0.5]), Tensor([[0.5]])), pg.ShapeError,
         "binary_cross_entropy: target (1, 1) must have the shape of input (1,)."),
        (lambda: functional.huber_loss(Tensor([0.5]), Tensor([0.5]), delta=0.0), pg.ArgumentError,
         "huber_loss: delta must be positive, got 0.0."),
        (lambda: functional.kl_div(Tensor([0.5]), Tensor([0.5]), "all"), pg.ArgumentError,
         "kl_div: reduction must be one of mean, batchmean, sum, none, got 'all'."),
        (lambda: functional.gaussian_nll_loss(Tensor([0.5]), Tensor([0.5]), -1.0), pg.ArgumentError,
         "gaussian_nll_loss: var must not be negative, got -1.0."),
        (lambda: functional.gaussian_nll_loss(Tensor.ones(2, 3), Tensor.ones(2, 3), Tensor.ones(3)), pg.ShapeError,
         "gaussian_nll_loss: var (3,) does not fit input (2, 3)."),
        (lambda: functional.multi_margin_loss(Tensor.ones(2, 3), Tensor([0, 1]), p=3), pg.ArgumentError,
         "multi_margin_loss: p must be 1 or 2, got 3."),
        (lambda: functional.multi_margin_loss(Tensor.ones(2, 3), Tensor([0, 1, 2])), pg.ShapeError,
         "multi_margin_loss: target (3,) must be (2,) for input (N, C) or (C,), got (2, 3)."),
        (lambda: functional.triplet_margin_loss(*[Tensor.ones(2)] * 3, margin=0.0), pg.ArgumentError,
         "triplet_margin_loss: margin must be positive, got 0.0."),
        (lambda: functional.multi_margin_loss(Tensor.ones(2, 3), Tensor([0, 3])).realize(), pg.IndexingError,
         "multi_margin_loss: target 3 is not one of the 3 classes."),
    ],
)  # fmt: skip
def test_errors(call, kind, fact):
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.fact == fact and caught.value.line.file == __file__
