"""Random indices, read and written: every kind of part in any order, as PyTorch or NumPy takes them, with gradients.

To look for more than a test run has time for:  python -m tests.fuzz.test_indexing 1000 3000 [CPU|NUMPY ...]
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor
from tests.fuzz.seeds import run_seeds

SEEDS = range(120)
Rng = np.random.Generator


def an_array(dim: int, common: tuple[int, ...], rng: Rng) -> Any:
    """An integer array, list or vector of places, some counted from the end, of a shape that repeats to `common`."""
    shape = tuple(1 if rng.random() < 0.2 else n for n in common[int(rng.integers(len(common) + 1)) :])
    places = rng.integers(-dim, dim, shape)
    return places.tolist() if shape and rng.random() < 0.3 else np.asarray(places)


def an_index(shape: tuple[int, ...], rng: Rng) -> tuple[Any, ...]:
    """Parts for some of the axes: ints, slices, arrays, masks, None, ... and truths."""
    common = tuple(int(n) for n in rng.integers(1, 4, int(rng.integers(3))))
    parts: list[Any] = []
    axis = 0
    has_mask = False
    while axis < len(shape) and rng.random() < 0.9:
        dim = shape[axis]
        kind = rng.choice(["int", "slice", "slice", "array", "mask", "none", "whole"])
        if kind == "int" and dim:
            parts.append(int(rng.integers(-dim, dim)))
        elif kind == "array" and dim:
            parts.append(an_array(dim, common, rng))
        elif kind == "mask" and not has_mask and not common and dim:
            covered = int(rng.integers(1, min(2, len(shape) - axis) + 1))
            parts.append(rng.random(shape[axis : axis + covered]) < 0.5)
            has_mask, axis = True, axis + covered - 1
        elif kind == "none":
            parts.append(None)
            continue
        else:
            bounds = [None if rng.random() < 0.3 else int(rng.integers(-dim - 1, dim + 2)) for _ in range(2)]
            parts.append(slice(None) if kind == "whole" else slice(*bounds, int(rng.choice([1, 1, 2, 3]))))
        axis += 1
    if rng.random() < 0.3:
        parts.insert(int(rng.integers(len(parts) + 1)) if axis == len(shape) else len(parts), Ellipsis)
    return tuple(parts)


def index_of(parts: tuple[Any, ...], make: Any) -> tuple[Any, ...]:
    return tuple(make(part) if isinstance(part, np.ndarray) else part for part in parts)


def names_a_place_twice(shape: tuple[int, ...], parts: tuple[Any, ...]) -> bool:
    """True where a gradient of PyTorch counts every value stored at one place, though only the last is there."""
    places = torch.arange(int(np.prod(shape))).reshape(shape)[index_of(parts, torch.tensor)].flatten().tolist()
    return len({*places}) != len(places)


def check(seed: int, device: str) -> None:
    os.environ["PICOGRAD_DEVICE"] = device
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(0 if rng.random() < 0.1 else 1, 5, int(rng.integers(1, 5))))
    parts = an_index(shape, rng)
    said = f"seed {seed}, {device}: {shape}{list(parts)}"
    data = rng.standard_normal(shape)
    ours, theirs = Tensor(data, requires_grad=True), torch.tensor(data, requires_grad=True)
    mine, other = index_of(parts, Tensor), index_of(parts, torch.tensor)
    found, expected = ours[mine], theirs[other]
    assert found.shape == tuple(expected.shape), said
    np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy(), said)
    weights = rng.standard_normal(tuple(expected.shape))
    if expected.requires_grad:
        (expected * torch.tensor(weights)).sum().backward()
        grad = pg.grad((found * Tensor(weights)).sum(), [ours])[0]
        np.testing.assert_allclose(grad.numpy(), theirs.grad.numpy(), rtol=1e-12, atol=1e-12, err_msg=said)
    check_write(ours, theirs, mine, other, weights, rng.random() < 0.5, names_a_place_twice(shape, parts), said)


def check_write(ours: Tensor, theirs: Any, mine: Any, other: Any, values: Any, adds: bool, twice: bool, said: str) -> None:
    """Writes through an index of a view, with gradients of what is written to and of what is written."""
    leaf, reference = Tensor(values, requires_grad=True), torch.tensor(values, requires_grad=True)
    written, copy = ours.detach().clone(), theirs.detach().clone()
    x, y = (ours * 1).flip(0).flip(0), (theirs * 1).flip(0).flip(0)
    if adds:
        written[mine] += Tensor(values)
        copy[other] += torch.tensor(values)
        x[mine] += leaf
        y[other] += reference
    else:
        written[mine] = Tensor(values)
        copy[other] = torch.tensor(values)
        x[mine] = leaf
        y[other] = reference
    np.testing.assert_array_equal(written.numpy(), copy.numpy(), said)
    np.testing.assert_array_equal(x.detach().numpy(), y.detach().numpy(), said)
    if twice:
        return
    theirs.grad = None
    (y * y).sum().backward()
    mine = pg.grad((x * x).sum(), [ours, leaf], materialize_grads=True)
    for found, expected in zip(mine, (theirs.grad, reference.grad)):  # None is one of zeros
        wanted = np.zeros(found.shape) if expected is None else expected.numpy()
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12, err_msg=said)


@pytest.mark.variants(every=2)
@pytest.mark.req("B7")
@pytest.mark.parametrize("seed", SEEDS)
def test_any_index_reads_and_writes_as_in_pytorch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")  # and put back afterwards
    check(seed, "CPU" if seed % 6 == 0 else "NUMPY")


if __name__ == "__main__":
    run_seeds(check, "NUMPY")
