"""Losses and distances: the rows of the table."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import picograd as pg
from tests.operations.table import Array, Operation, Rng, Sample, broadcasting, sample

Make = Callable[[Rng, tuple[int, ...]], Array]
REDUCTIONS = ("mean", "sum", "none")


def numbers(low: float = -2.0, high: float = 2.0) -> Make:
    """Makes numbers evenly from a range."""
    return lambda rng, shape: rng.uniform(low, high, shape)


def signs(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Makes 1 and -1: whole numbers, which have no gradient."""
    return rng.choice([-1, 1], shape).astype(np.int64)


def sign_of_rows(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Makes 1 and -1, one for each row."""
    return signs(rng, shape[:-1])


def bits(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Makes 0 and 1."""
    return rng.integers(0, 2, shape)


def loss(name: str, *makes: Make, dtypes: str = "f", variant: str = "", orders: int = 2, **kwargs: Any) -> Operation:
    """A row of a loss of elements: each reduction, matrices, a single number, nothing."""

    def samples(rng: Rng) -> list[Sample]:
        shapes = ((4, 5), (4, 5), (4, 5), (), (0, 3))
        words = (*REDUCTIONS, "mean", "sum")
        return [sample(*(make(rng, s) for make in makes), reduction=word, **kwargs) for s, word in zip(shapes, words)]

    return Operation(f"nn.functional.{name}", samples, fixed(torch, name), dtypes=dtypes, orders=orders, variant=variant)


def fixed(package: Any, name: str, *fixed: str) -> Callable[..., Any]:
    """Returns a function whose weights have no gradient, as most have none in PyTorch; and without its warnings."""

    def called(*args: Any, **kwargs: Any) -> Any:
        function = getattr(package.nn.functional, name)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "reduction: 'mean' divides")
            return function(*args, **{key: value.detach() if key in fixed else value for key, value in kwargs.items()})

    return called


def weighted(name: str, *makes: Make, weight: str = "weight", **kwargs: Any) -> Operation:
    """A row of a loss of elements with a weight of each."""

    def samples(rng: Rng) -> list[Sample]:
        parts = [[make(rng, (4, 5)) for make in makes] for _ in REDUCTIONS]
        given = [{weight: rng.uniform(0.5, 2.0, (4, 5))} for _ in REDUCTIONS]
        return [sample(*p, reduction=word, **w, **kwargs) for p, word, w in zip(parts, REDUCTIONS, given)]

    ours, theirs = (fixed(package, name, weight) for package in (pg, torch))
    return Operation(f"nn.functional.{name}", samples, theirs, ours, variant=weight)


def of_classes(name: str, samples: Callable[[Rng], list[Sample]], **kwargs: Any) -> Operation:
    """A row of a loss of classes with weights."""
    ours, theirs = (fixed(package, name, "weight") for package in (pg, torch))
    return Operation(f"nn.functional.{name}", samples, theirs, ours, variant="weight", **kwargs)


# ---- classes ----
def classes(scores: Make, *more: str, soft: bool = False, **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns samples of a loss of classes: rows, images, one row; `more`: "weight", "ignore"."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, word in zip(((4, 5), (4, 5), (4, 5), (2, 3, 4, 2), (5,)), (*REDUCTIONS, "mean", "sum")):
            axis = min(1, len(shape) - 1)
            x = scores(rng, shape)
            target = rng.integers(0, shape[axis], shape[:axis] + shape[axis + 1 :])
            given = dict(kwargs)
            if soft:
                target = rng.uniform(0.0, 1.0, shape)
                target /= target.sum(axis, keepdims=True)
            if "weight" in more:
                given["weight"] = rng.uniform(0.5, 2.0, shape[axis])
            if "ignore" in more and target.shape:
                target.flat[0] = -100
            calls.append(sample(x, np.array(target), reduction=word, **given))
        return calls

    return samples


def rows_of_a_layer(weight: bool = False, **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns samples of linear_cross_entropy: rows, one row, probabilities."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, word, soft in (((4,), "mean", False), ((4,), "none", False), ((), "sum", False), ((3,), "mean", True)):
            x, w, b = (rng.uniform(-2.0, 2.0, s) for s in ((*shape, 3), (5, 3), (5,)))
            target = rng.dirichlet(np.ones(5), shape) if soft else np.array(rng.integers(0, 5, shape))
            given = {**kwargs, "weight": rng.uniform(0.5, 2.0, 5)} if weight else kwargs
            calls.append(sample(x, w, target, linear_bias=b, reduction=word, **given))
        return calls

    return samples


def log_probabilities(rng: Rng, shape: tuple[int, ...]) -> Array:
    """Makes logarithms of probabilities."""
    return np.log(rng.uniform(0.1, 1.0, shape))


def margins(*more: str, **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns samples of multi_margin_loss."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for word in REDUCTIONS:
            given = {"weight": rng.uniform(0.5, 2.0, 5)} if more else {}
            calls.append(sample(rng.uniform(-1, 1, (4, 5)), rng.integers(0, 5, 4), reduction=word, **given, **kwargs))
        return [*calls, sample(rng.uniform(-1, 1, 5), np.array(3), **kwargs)]

    return samples


def several_classes(rng: Rng) -> list[Sample]:
    """Calls of multilabel_margin_loss: none, one, several right classes, and all."""
    target = np.array([[3, 0, -1, 1], [-1, 0, 0, 0], [0, 1, 2, 3], [2, 2, -1, -1]])
    calls = [sample(rng.uniform(-1, 1, (4, 4)), target, reduction=word) for word in REDUCTIONS]
    return [*calls, sample(rng.uniform(-1, 1, 4), target[0])]


# ---- pairs and triples of vectors ----
def vectors(count: int, target: Make | None = None, **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns samples of losses of rows of vectors."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, word in zip(((4, 5), (4, 5), (4, 5), (5,)), (*REDUCTIONS, "mean")):
            targets = [] if target is None else [target(rng, shape)]
            calls.append(sample(*(rng.uniform(-1, 1, shape) for _ in range(count)), *targets, reduction=word, **kwargs))
        return calls

    return samples


def pairs(*choices: dict[str, Any]) -> Callable[[Rng], list[Sample]]:
    """Returns samples of a function of two vectors."""
    shapes = (((4, 5), (4, 5)), ((2, 4, 5), (4, 5)), ((4, 1, 5), (3, 5)), ((0, 5), (0, 5)))
    return lambda rng: [
        sample(rng.uniform(-1, 1, a), rng.uniform(-1, 1, b), **kwargs) for kwargs in choices for a, b in shapes
    ]


def rows(rng: Rng) -> list[Sample]:
    """Calls of pdist by several norms."""
    x = rng.uniform(-1, 1, (5, 3))
    return [sample(x), sample(x, 1.0), sample(x, 3.0), sample(x, float("inf")), sample(x[:1])]


def lengths(rng: Rng) -> list[Sample]:
    """Calls of normalize by several norms."""
    x = rng.uniform(-1, 1, (3, 4, 5))
    return [sample(x), sample(x, 1.0, -1), sample(x, p=3.0, dim=0), sample(x[0, 0], dim=0), sample(x[:0])]


FAR, CHANCE = numbers(-3.0, 3.0), numbers(0.1, 0.9)

OPERATIONS = [
    loss("mse_loss", FAR, FAR),
    weighted("mse_loss", FAR, FAR),
    loss("l1_loss", FAR, FAR),
    weighted("l1_loss", FAR, FAR),
    loss("smooth_l1_loss", FAR, FAR),
    loss("smooth_l1_loss", FAR, FAR, beta=0.5, variant="beta"),
    loss("smooth_l1_loss", FAR, FAR, beta=0.0, variant="zero"),
    loss("huber_loss", FAR, FAR),
    loss("huber_loss", FAR, FAR, delta=1.5, variant="delta"),
    weighted("huber_loss", FAR, FAR),
    loss("binary_cross_entropy", CHANCE, CHANCE),
    weighted("binary_cross_entropy", CHANCE, CHANCE),
    loss("binary_cross_entropy_with_logits", numbers(-30.0, 30.0), CHANCE),
    weighted("binary_cross_entropy_with_logits", FAR, CHANCE),
    weighted("binary_cross_entropy_with_logits", FAR, CHANCE, weight="pos_weight"),
    loss("kl_div", FAR, CHANCE),
    loss("kl_div", FAR, FAR, log_target=True, variant="log"),
    loss("poisson_nll_loss", FAR, CHANCE),
    loss("poisson_nll_loss", CHANCE, numbers(0.1, 5.0), log_input=False, full=True, variant="full"),
    Operation(
        "nn.functional.gaussian_nll_loss",
        lambda rng: [
            sample(FAR(rng, (4, 5)), FAR(rng, (4, 5)), rng.uniform(0.1, 2.0, shape), reduction=word, full=full)
            for shape, word, full in (((4, 5), "mean", False), ((4,), "sum", True), ((4, 1), "none", False))
        ],
    ),
    loss("soft_margin_loss", FAR, signs),
    loss("hinge_embedding_loss", FAR, signs),
    loss("hinge_embedding_loss", FAR, signs, margin=0.5, variant="margin"),
    loss("margin_ranking_loss", FAR, FAR, signs, margin=0.25),
    Operation("nn.functional.cosine_embedding_loss", vectors(2, sign_of_rows, margin=0.1)),
    Operation("nn.functional.triplet_margin_loss", vectors(3)),
    Operation("nn.functional.triplet_margin_loss", vectors(3, p=1.0, swap=True, margin=0.5), variant="swap"),
    Operation("nn.functional.triplet_margin_with_distance_loss", vectors(3, swap=True)),
    Operation("nn.functional.cross_entropy", classes(FAR)),
    of_classes("cross_entropy", classes(FAR, "weight", "ignore", label_smoothing=0.1)),
    Operation("nn.functional.cross_entropy", classes(FAR, "weight", soft=True, label_smoothing=0.1), variant="soft"),
    Operation("nn.functional.linear_cross_entropy", rows_of_a_layer(), since=(2, 13)),
    of_classes("linear_cross_entropy", rows_of_a_layer(weight=True, label_smoothing=0.1), since=(2, 13)),
    Operation("nn.functional.nll_loss", classes(log_probabilities)),
    of_classes("nll_loss", classes(log_probabilities, "weight", "ignore")),
    # Of the next three PyTorch has neither 16 bits nor second gradients.
    Operation("nn.functional.multi_margin_loss", margins(), dtypes="", orders=1),
    of_classes("multi_margin_loss", margins("weight", p=2, margin=0.5), dtypes="", orders=1),
    Operation("nn.functional.multilabel_margin_loss", several_classes, dtypes="", orders=1),
    Operation("nn.functional.multilabel_soft_margin_loss", vectors(1, bits)),
    Operation("nn.functional.cosine_similarity", pairs({"dim": -1}, {"dim": 0, "eps": 0.1})),
    Operation("nn.functional.pairwise_distance", pairs({}, {"p": 1.0, "keepdim": True}, {"p": 3.0})),
    Operation("nn.functional.pdist", rows, dtypes="", orders=1),
    Operation("nn.functional.normalize", lengths, drawn=broadcasting((0.5, 2.0)).map(lambda s: sample(*s.args, dim=-1))),
]
