"""Calls on matrices of a kind, and rows of functions of linear algebra: what the families of such functions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

import picograd
from tests.operations.table import Array, Operation, Rng, Sample


def given(*shapes: tuple[int, ...], **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns one call on normal numbers."""
    return lambda rng: [Sample(tuple(rng.standard_normal(shape) for shape in shapes), kwargs)]


def calls(*each: tuple[Any, ...], **kwargs: Any) -> Callable[[Rng], list[Sample]]:
    """Returns a call for each tuple: a shape among its parts becomes normal numbers, all else is passed on."""

    def samples(rng: Rng) -> list[Sample]:
        return [Sample(tuple(drawn(part, rng) for part in parts), kwargs) for parts in each]

    return samples


class Shape(tuple):
    """A shape of normal numbers."""


def drawn(part: Any, rng: Rng) -> Any:
    return rng.standard_normal(part) if isinstance(part, Shape) else part


def S(*shape: int) -> Shape:
    return Shape(shape)


# ---- matrices of a kind ----
def regular(rng: Rng, *shape: int) -> Array:
    """Far from singular, the rows in need of an order."""
    return rng.standard_normal(shape) + 4 * np.eye(shape[-1])[::-1]


def positive(rng: Rng, *shape: int) -> Array:
    a = rng.standard_normal(shape)
    return a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1])


def spread(rng: Rng, *shape: int) -> Array:
    """Matrices of different real eigenvalues that are not symmetric."""
    return 0.1 * rng.standard_normal(shape) + np.diag(np.arange(2.0, 2.0 + shape[-1]))


def real_parts(a: torch.Tensor) -> torch.Tensor:
    """Returns eigenvalues that are real, rising; PyTorch has complex ones in any order."""
    return torch.linalg.eigvals(a).real.sort(-1).values


def squared_vectors(a: torch.Tensor) -> torch.Tensor:
    """Returns the squares of eigenvectors of real eigenvalues, in their rising order."""
    values, vectors = torch.linalg.eig(a)
    order = values.real.argsort(-1)
    return vectors.real.square().gather(-1, order.unsqueeze(-2).expand(vectors.shape))


def lower(rng: Rng, *shape: int) -> Array:
    return np.tril(rng.standard_normal(shape)) + 3 * np.eye(shape[-1])


SQUARES = ((3, 3), (2, 4, 4), (0, 2, 2), (0, 0), (1, 1))


def squares(make: Callable[..., Array] = regular, shapes: Sequence[tuple[int, ...]] = SQUARES, *args: Any) -> Any:
    """Returns calls on square matrices."""
    return lambda rng: [Sample((make(rng, *shape), *args)) for shape in shapes]


def systems(make: Callable[..., Array] = regular, **kwargs: Any) -> Any:
    """Returns calls on square matrices and right sides."""

    def samples(rng: Rng) -> list[Sample]:
        shapes = (((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 1)), ((3, 3), (2, 3, 2)), ((0, 2, 2), (0, 2, 1)), ((0, 0), (0, 3)))
        return [Sample((make(rng, *a), rng.standard_normal(b)), kwargs) for a, b in shapes]

    return samples


RECTANGLES = (S(3, 3), S(2, 4, 2), S(2, 4), S(0, 2, 3), S(0, 3), S(3, 0))


def rectangles(*args: Any, shapes: Sequence[Shape] = RECTANGLES, **kwargs: Any) -> Any:
    """Returns calls on matrices of any sides."""
    return calls(*((shape, *args) for shape in shapes), **kwargs)


def numeric(name: str, samples: Any, *args: Any, **kwargs: Any) -> Operation:
    """A row of a function of LAPACK's: of float32 and float64, whose errors are those of the conditions of matrices."""
    return Operation(name, samples, *args, **{"dtypes": "", "rtol": 1e-3, "atol": 1e-4, **kwargs})


def symmetric(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function of the symmetric part: what PyTorch's gradients are about."""
    return lambda a, *args: function((a + a.mT) / 2, *args)


def theirs(name: str, *picked: int, squared: Sequence[int] = ()) -> Callable[..., Any]:
    return results_of(lambda: getattr(torch.linalg, name), picked, squared)


def ours(name: str, *picked: int, squared: Sequence[int] = ()) -> Callable[..., Any]:
    return results_of(lambda: getattr(picograd.linalg, name), picked, squared)


def results_of(find: Callable[[], Any], picked: Sequence[int], squared: Sequence[int]) -> Callable[..., Any]:
    """Returns some of the results of a function, squared where a sign is free."""

    def call(*args: Any, **kwargs: Any) -> Any:
        results = find()(*args, **kwargs)
        return tuple(results[i] * results[i] if i in squared else results[i] for i in picked)

    return call


def free_of_signs(name: str, samples: Any, *picked: int, squared: Sequence[int] = (), **kwargs: Any) -> Operation:
    """A row of a function with several results."""
    mine, other = ours(name, *picked, squared=squared), theirs(name, *picked, squared=squared)
    if name == "eigh":
        mine, other = symmetric(mine), symmetric(other)
    return Operation(f"linalg.{name}", samples, other, mine, rtol=1e-4, atol=1e-4, **kwargs)
