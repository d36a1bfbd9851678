"""Normalisation: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import picograd as pg
from tests.operations.table import Operation, Rng, Sample, sample

STATISTICS = ("running_mean", "running_var")


def without_gradient(package: Any, name: str) -> Callable[..., Any]:
    """Returns a function whose running statistics need no gradient, as PyTorch demands."""
    function = getattr(package.nn.functional, name)

    def called(*args: Any, **kwargs: Any) -> Any:
        fixed = {key: kwargs[key].detach() for key in STATISTICS if kwargs.get(key) is not None}
        return function(*args, **{**dict.fromkeys(STATISTICS), **kwargs, **fixed})

    return called


def channels(name: str, *shapes: tuple[int, ...], variant: str = "", running: bool = False, **kwargs: Any) -> Operation:
    """A row of a normalisation of channels, with weight and bias."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape in shapes:
            count = shape[1]
            given = {name: rng.uniform(0.5, 2, count) for name in STATISTICS} if running else {}
            affine = {"weight": rng.uniform(0.5, 2, count), "bias": rng.uniform(-1, 1, count)}
            calls.append(sample(rng.uniform(-2, 2, shape), **given, **affine, **kwargs))
        return calls

    ours, theirs = (without_gradient(package, name) for package in (pg, torch))
    return Operation(f"nn.functional.{name}", samples, theirs, ours, variant=variant)


def last_axes(*more: str, **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns samples of layer_norm and rms_norm."""

    def samples(rng: Rng) -> list[Sample]:
        calls = []
        for shape, ends in (((4, 5), (5,)), ((2, 3, 4), (3, 4)), ((0, 3), (3,)), ((3,), (3,))):
            given = {name: rng.uniform(0.5, 2.0, ends) for name in more}
            calls.append(sample(rng.uniform(-2, 2, shape), ends, **given, **kwargs))
        return [*calls, sample(rng.uniform(-2, 2, (4, 5)), (5,), **kwargs)]

    return samples


OPERATIONS = [
    Operation("nn.functional.layer_norm", last_axes("weight", "bias")),
    Operation("nn.functional.rms_norm", last_axes("weight")),
    Operation("nn.functional.rms_norm", last_axes("weight", eps=0.1), variant="eps"),
    Operation(
        "nn.functional.group_norm",
        lambda rng: [
            sample(rng.uniform(-2, 2, s), n, rng.uniform(0.5, 2, s[1]), rng.uniform(-1, 1, s[1]))
            for s, n in (((4, 6), 2), ((2, 6, 3), 3), ((2, 4, 3, 2), 1), ((2, 4, 3, 2), 4))
        ],
    ),
    channels("batch_norm", (4, 3), (2, 3, 4), (2, 3, 2, 2), (2, 2, 2, 1, 3), training=True),
    channels("batch_norm", (4, 3), (2, 3, 4), running=True, training=True, momentum=0.3, variant="tracked"),
    channels("batch_norm", (4, 3), (2, 3, 4), (0, 3, 2), running=True, variant="running"),
    channels("instance_norm", (2, 3, 4), (2, 3, 2, 2), (1, 2, 2, 1, 3)),
    channels("instance_norm", (2, 3, 4), running=True, use_input_stats=False, variant="running"),
    Operation(
        "nn.functional.local_response_norm",
        lambda rng: [
            sample(rng.uniform(-2, 2, (2, 5, 3)), n, alpha=0.5, k=2.0, beta=beta) for n, beta in ((3, 0.75), (2, 0.5))
        ],
    ),
]
