"""Transforms of functions: the rows of the table. Each is applied to one function of both libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import picograd as pg
from tests.operations.table import Operation, Rng, Sample, sample


def curve(x: Any) -> Any:
    """Of any shape to the same."""
    return (x * x + 1).log() * x


def scalar(x: Any) -> Any:
    return curve(x).sum()


def arrays(*shapes: tuple[int, ...]) -> Callable[[Rng], list[Sample]]:
    return lambda rng: [sample(rng.uniform(-2.0, 2.0, shape)) for shape in shapes]


def pairs(*shapes: tuple[int, ...]) -> Callable[[Rng], list[Sample]]:
    return lambda rng: [sample(*(rng.uniform(-2.0, 2.0, shape) for _ in range(2))) for shape in shapes]


def transform(name: str, apply: Callable[[Any], Callable[..., Any]], samples: Any, **how: Any) -> Operation:
    """A row of what `apply` makes of picograd.func and of torch.func."""
    ours, theirs = (lambda *args: apply(pg.func)(*args)), (lambda *args: apply(torch.func)(*args))
    return Operation(name, samples, call=ours, torch=theirs, **how)


def dots(f: Any) -> Callable[..., Any]:
    return f.vmap(f.vmap(lambda x, y: (x * y).sum(), (None, 0)), (0, None))


def outside(x: Any) -> Any:
    return (x > 0) | (x < -1)


SHAPES = arrays((3, 2), (), (0,), (2, 0, 3))
ROWS = arrays((4, 3), (1, 2))  # PyTorch has no cumsum of no examples

OPERATIONS = [
    transform("grad", lambda f: f.grad(scalar), SHAPES),
    transform("func.grad_and_value", lambda f: f.grad_and_value(scalar), SHAPES),
    transform("vjp", lambda f: lambda x, v: f.vjp(curve, x)[1](v), pairs((3, 2), (), (0,))),
    transform("jacrev", lambda f: f.jacrev(curve), arrays((3, 2), (), (0,))),
    transform("jacrev", lambda f: f.jacrev(lambda x: curve(x).sum(0), chunk_size=2), arrays((3, 3)), variant="chunks"),
    transform("vmap", lambda f: f.vmap(lambda x: x.cumsum(0) + x.sum()), ROWS, dtypes="fi"),
    transform("vmap", lambda f: f.vmap(outside, in_dims=1, out_dims=-1), ROWS, dtypes="fi", orders=0, variant="axes"),
    transform("vmap", dots, pairs((4, 3), (2, 1)), variant="pairs"),
    transform("vmap", lambda f: f.vmap(f.grad(scalar)), ROWS, variant="grad"),
]
