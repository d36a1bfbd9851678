"""Random writes through views of views: every view sees what PyTorch's sees, and what was read before stays.

To look for more than a test run has time for:  python -m tests.fuzz.test_views 1000 2000 [CPU|NUMPY|JIT ...]
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd import Tensor

SEEDS = range(60)
MOST = 8  # lengths of a cache (layers, 2, positions, width)


class Pair:
    """A tensor of each library over storage written to alike."""

    def __init__(self, ours: Tensor, theirs: Any):
        self.ours, self.theirs = ours, theirs

    def check(self, said: str) -> None:
        np.testing.assert_array_equal(self.ours.numpy(), self.theirs.numpy(), said)


def a_view(pair: Pair, rng: np.random.Generator) -> Pair | None:
    """A view of a view, as users of a cache make them; None where PyTorch would copy."""
    shape = tuple(pair.theirs.shape)
    kind = rng.choice(["index", "index", "slice", "slice", "transpose", "view", "unsqueeze", "narrow", "both"])
    if not shape:
        return None
    axis = int(rng.integers(len(shape)))
    if kind in ("index", "both"):
        at = int(rng.integers(-shape[axis], shape[axis]))
        index = (slice(None),) * axis + (at,)
        if kind == "both" and axis + 1 < len(shape):
            index = (*index, slice(0, int(rng.integers(1, shape[axis + 1] + 1))))
        return Pair(pair.ours[index], pair.theirs[index])
    start = int(rng.integers(shape[axis]))
    stop = int(rng.integers(start + 1, shape[axis] + 1))
    if kind == "slice":
        index = (..., slice(start, stop, int(rng.choice([1, 1, 2])))) if axis == len(shape) - 1 else slice(0, 1)
        return Pair(pair.ours[index], pair.theirs[index])
    if kind == "narrow":
        return Pair(pair.ours.narrow(axis, start, stop - start), pair.theirs.narrow(axis, start, stop - start))
    if kind == "transpose":
        other = int(rng.integers(len(shape)))
        return Pair(pair.ours.transpose(axis, other), pair.theirs.transpose(axis, other))
    if kind == "unsqueeze":
        return Pair(pair.ours.unsqueeze(axis), pair.theirs.unsqueeze(axis))
    try:
        return Pair(pair.ours.view(-1, shape[-1]), pair.theirs.view(-1, shape[-1]))
    except RuntimeError:
        return None  # not of one stride


def write(pair: Pair, rng: np.random.Generator, is_jitted: bool) -> str:
    """Writes in place in one of many ways, or lets a jitted function do so, thrice; returns which."""
    shape = tuple(pair.theirs.shape)
    kind = str(rng.choice(["add_", "mul_", "fill_", "copy_", "zero_", "all", "part", "augmented", "own"]))
    step = pg.jit(lambda value: change(pair.ours, value, kind)) if is_jitted else None
    for _ in range(3 if step else 1):  # traced, traced and compared, replayed
        value = rng.integers(-9, 10, shape).astype(np.float32)
        if step:
            step(Tensor(value))
        else:
            change(pair.ours, Tensor(value), kind)
        change(pair.theirs, torch.tensor(value), kind)
    return f"{'jit ' if is_jitted else ''}{kind} of {shape}"


def change(x: Any, value: Any, kind: str) -> None:
    """Writes to a tensor of either library."""
    if kind in ("add_", "copy_"):
        getattr(x, kind)(value)
    elif kind == "mul_":
        x.mul_(2.0)
    elif kind == "fill_":
        x.fill_(3.0)
    elif kind == "zero_":
        x.zero_()
    elif kind == "all" or not value.shape:
        x[...] = value
    elif kind == "part":
        x[-1] = value[0]
    elif kind == "augmented":
        x[0] += value[-1]
    else:
        x[:1] = x[-1:] * 2.0 if isinstance(x, Tensor) else (x[-1:] * 2.0).clone()


def check(seed: int, way: str) -> None:
    os.environ["PICOGRAD_DEVICE"] = "CPU" if way == "JIT" else way
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, MOST, int(rng.integers(1, 5))))
    data = rng.integers(-9, 10, shape).astype(np.float32)
    views = [Pair(Tensor(data).realize(), torch.tensor(data))]
    read: list[Pair] = []
    said: list[str] = []
    for _ in range(int(rng.integers(4, 16))):
        pair = views[int(rng.integers(len(views)))]
        action = rng.random()
        if action < 0.45:
            made = a_view(pair, rng)
            views += [] if made is None else [made]
        elif action < 0.85:
            said.append(write(pair, rng, way == "JIT" and rng.random() < 0.5))
        elif action < 0.95:
            read.append(Pair(pair.ours + 1.0, pair.theirs + 1.0))  # a graph of what is there now
        else:
            pair.check(f"seed {seed}, {way}: {said}")
    for other in [*views, *read]:
        other.check(f"seed {seed}, {way}: {said}, seen through {tuple(other.theirs.shape)}")


@pytest.mark.req("G10")
@pytest.mark.parametrize("seed", SEEDS)
def test_writes_through_views_of_views_are_seen_as_in_pytorch(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")  # and put back afterwards
    check(seed, ("NUMPY", "CPU", "NUMPY", "JIT")[seed % 4])


def main() -> None:
    """Runs the seeds from the first argument up to the second, in the ways named behind."""
    failures = 0
    for seed in range(int(sys.argv[1]), int(sys.argv[2])):
        for way in sys.argv[3:] or ("NUMPY",):
            try:
                check(seed, way)
            except Exception as error:
                failures += 1
                print(f"seed {seed}, {way}: {type(error).__name__}: {error}"[:3000], flush=True)
    print(f"{failures} failures")


if __name__ == "__main__":
    main()
