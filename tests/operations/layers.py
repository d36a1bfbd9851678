"""What layers compute: the rows of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import picograd as pg
from tests.operations.table import Array, Operation, Rng, Sample, sample

Shapes = tuple[tuple[int, ...], ...]


def of_shapes(*calls: Shapes, **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns a call for each group of shapes, on numbers between -1 and 1."""
    return lambda rng: [Sample(tuple(rng.uniform(-1.0, 1.0, shape) for shape in shapes), kwargs) for shapes in calls]


LINEAR: tuple[Shapes, ...] = (
    ((4, 3), (5, 3), (5,)), ((4, 3), (5, 3)), ((3,), (5, 3), (5,)), ((2, 4, 3), (5, 3), (5,)), ((0, 3), (5, 3), (5,)),
    ((4, 0), (5, 0), (5,)), ((4, 3), (0, 3)),
)  # fmt: skip
BILINEAR: tuple[Shapes, ...] = (
    ((4, 3), (4, 2), (5, 3, 2), (5,)), ((2, 4, 3), (2, 4, 2), (1, 3, 2)), ((3,), (2,), (5, 3, 2), (5,)),
    ((0, 3), (0, 2), (5, 3, 2), (5,)),
)  # fmt: skip


def attention(rng: Rng) -> list[Sample]:
    """Calls of attention: plain, causal, with biases and masks, a scale, grouped heads, nothing to look at it."""

    def queries(*shapes: tuple[int, ...]) -> list[Array]:
        return [rng.uniform(-1.0, 1.0, shape) for shape in shapes]

    same, longer = ((2, 3, 4, 6),) * 3, ((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 2))
    mask = rng.random((4, 5)) < 0.6
    mask[:, 0] = True  # a row of nothing but False is compared in tests/nn/test_functional.py
    return [
        sample(*queries(*same)), sample(*queries(*longer)), sample(*queries(*same), is_causal=True),
        sample(*queries(*longer), attn_mask=rng.uniform(-1.0, 1.0, (4, 5))), sample(*queries(*longer), attn_mask=mask),
        sample(*queries(*same), scale=0.3), sample(*queries((4, 6), (5, 6), (5, 6))),
        sample(*queries((2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 6)), enable_gqa=True),
        sample(*queries((2, 3, 0, 6), (2, 3, 5, 6), (2, 3, 5, 6))),
        sample(*queries((0, 3, 4, 6), (0, 3, 4, 6), (0, 3, 4, 6))),
    ]  # fmt: skip


def plainly(*args: Any, **kwargs: Any) -> Any:
    """Returns PyTorch's attention as it is written down: of its other ways none has a second order."""
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(*args, **kwargs)


def looked_up(rng: Rng) -> list[Sample]:
    """Calls of embedding: rows of indices, one, none, with a row that has no gradient."""
    weight = rng.uniform(-1.0, 1.0, (5, 3))
    places = [rng.integers(0, 5, shape) for shape in ((4, 2), (3,), (0,), (2, 0, 3))]
    return [*(sample(index, weight) for index in places), sample(np.array(2), weight), sample(places[0], weight, 1)]


def bags(rng: Rng) -> list[Sample]:
    """Calls of embedding_bag: bags as rows, one after the other, an empty one, each mode."""
    weight, rows, flat = rng.uniform(-1.0, 1.0, (5, 3)), rng.integers(0, 5, (4, 2)), rng.integers(0, 5, 6)
    offsets = np.array([0, 2, 2, 5])
    calls = [sample(rows, weight, mode=mode) for mode in ("mean", "sum", "max")]
    calls += [sample(flat, weight, offsets, mode=mode) for mode in ("mean", "sum", "max")]
    return [*calls, sample(rows, weight, mode="sum", per_sample_weights=rng.uniform(0.5, 2.0, (4, 2)))]


def of_scores(package: Any) -> Callable[..., Any]:
    """Returns ctc_loss after log_softmax: PyTorch's gradient is right for what comes out of that alone."""
    found = package.nn.functional
    return lambda scores, *args, **kwargs: found.ctc_loss(found.log_softmax(scores, -1), *args, **kwargs)


def paths(rng: Rng) -> list[Sample]:
    """Calls of ctc_loss: several reductions, targets of several lengths in one row, an impossible one."""
    logs = rng.uniform(-2.0, 2.0, (6, 3, 5))
    targets, lengths, sizes = rng.integers(1, 5, (3, 3)), np.array([6, 6, 5]), np.array([3, 1, 2])
    calls = [sample(logs, targets, lengths, sizes, reduction=word) for word in ("mean", "sum", "none")]
    short = sample(logs, targets, np.array([2, 6, 1]), sizes, zero_infinity=True)
    return [*calls, short, sample(logs, targets[targets > 0][:6], lengths, sizes, blank=0)]


OPERATIONS = [
    Operation("nn.functional.linear", of_shapes(*LINEAR)),
    Operation("nn.functional.bilinear", of_shapes(*BILINEAR)),
    Operation("nn.functional.scaled_dot_product_attention", attention, plainly),
    Operation("nn.functional.embedding", looked_up),
    # PyTorch has no second order
    Operation("nn.functional.embedding_bag", bags, orders=1),
    Operation("nn.functional.ctc_loss", paths, of_scores(torch), of_scores(pg), "", 1, rtol=1e-4, atol=1e-5),
]
