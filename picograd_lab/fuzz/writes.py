"""Random writes through views of views: every view equals NumPy's, and values read before stay unchanged.

In:    a seed, and the executor of the writes: a device, or a jitted function
Out:   `Wrong`, or nothing
"""

from __future__ import annotations

from typing import Any

import numpy as np

from picograd.record import Record
from picograd.tensor.tensor import Tensor
from picograd.transforms.jit import jit
from picograd_lab.fuzz.check import Wrong
from picograd_lab.fuzz.values import Array

MOST = 8  # largest lengths of a cache (layers, 2, positions, width)
WRITES = ("add_", "mul_", "fill_", "copy_", "zero_", "all", "part", "augmented", "own")
VIEWS = ("index", "index", "slice", "slice", "transpose", "view", "unsqueeze", "narrow", "both")


class Pair(Record):
    """A tensor and an array that get the same writes."""

    tensor: Tensor
    array: Array

    def check(self, said: str) -> None:
        """Raises Wrong if they differ."""
        found = self.tensor.numpy()
        if found.shape != self.array.shape or not np.array_equal(found, self.array):
            raise Wrong(f"{said}, seen through a view of {self.array.shape}:\n{found}\nNumPy has\n{self.array}")


def check_writes(seed: int, device: str, is_jitted: bool) -> None:
    """Makes views of one storage, writes through them, and compares all of them with NumPy's.

    Raises:
      Wrong: a view, or a value read before a write, differs.
    """
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.integers(1, MOST, int(rng.integers(1, 5))))
    data = rng.integers(-9, 10, shape).astype(np.float32)
    views = [Pair(Tensor(data, device=device).realize(), data.copy())]
    read: list[Pair] = []
    said: list[str] = []
    for _ in range(int(rng.integers(4, 16))):
        pair = views[int(rng.integers(len(views)))]
        action = rng.random()
        if action < 0.45:
            made = a_view(pair, rng)
            views += [] if made is None else [made]
        elif action < 0.85:
            said.append(write(pair, rng, is_jitted and rng.random() < 0.5))
        elif action < 0.95:
            read.append(Pair(pair.tensor + 1.0, pair.array + 1.0))  # a graph of the present contents
        else:
            pair.check(f"seed {seed} on {device}: {said}")
    for other in [*views, *read]:
        other.check(f"seed {seed} on {device}: {said}")


def a_view(pair: Pair, rng: np.random.Generator) -> Pair | None:
    """Returns a view of a view, as users of a cache make them; None if NumPy would copy."""
    tensor, array = pair.tensor, pair.array
    kind, shape = str(rng.choice(VIEWS)), array.shape
    if not shape:
        return None
    axis = int(rng.integers(len(shape)))
    start = int(rng.integers(shape[axis]))
    stop = int(rng.integers(start + 1, shape[axis] + 1))
    index: Any
    if kind in ("index", "both"):
        index = (slice(None),) * axis + (int(rng.integers(-shape[axis], shape[axis])),)
        if kind == "both" and axis + 1 < len(shape):
            index = (*index, slice(0, int(rng.integers(1, shape[axis + 1] + 1))))
        return Pair(tensor[index], array[(*index, ...)])
    if kind == "slice":
        index = (..., slice(start, stop, int(rng.choice([1, 1, 2])))) if axis == len(shape) - 1 else slice(0, 1)
        return Pair(tensor[index], array[index])
    if kind == "narrow":
        index = (slice(None),) * axis + (slice(start, stop),)
        return Pair(tensor.narrow(axis, start, stop - start), array[index])
    if kind == "transpose":
        other = int(rng.integers(len(shape)))
        return Pair(tensor.transpose(axis, other), array.swapaxes(axis, other))
    if kind == "unsqueeze":
        return Pair(tensor.unsqueeze(axis), np.expand_dims(array, axis))
    rows = array.reshape(-1, shape[-1])
    return Pair(tensor.view(-1, shape[-1]), rows) if np.shares_memory(rows, array) else None


def write(pair: Pair, rng: np.random.Generator, is_jitted: bool) -> str:
    """Writes in place in one of many ways, or by a jitted function, three times; returns the way."""
    kind, shape = str(rng.choice(WRITES)), pair.array.shape
    step = jit(lambda value: write_tensor(pair.tensor, value, kind)) if is_jitted else None
    for _ in range(3 if step else 1):  # traced, traced and compared, replayed
        value = np.asarray(rng.integers(-9, 10, shape), np.float32)
        given = Tensor(value, device=pair.tensor.device)
        if step:
            step(given)
        else:
            write_tensor(pair.tensor, given, kind)
        write_array(pair.array, value, kind)
    return f"{'jit ' if is_jitted else ''}{kind} of {shape}"


def write_tensor(x: Tensor, value: Tensor, kind: str) -> None:
    """Writes to a tensor."""
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
        x[:1] = x[-1:] * 2.0


def write_array(x: Array, value: Array, kind: str) -> None:
    """Makes the same write to an array."""
    if kind == "add_":
        x += value
    elif kind == "mul_":
        x *= 2.0
    elif kind in ("fill_", "zero_"):
        x[...] = 3.0 if kind == "fill_" else 0.0
    elif kind in ("copy_", "all") or not value.shape:
        x[...] = value
    elif kind == "part":
        x[-1] = value[0]
    elif kind == "augmented":
        x[0] += value[-1]
    else:
        x[:1] = x[-1:] * np.float32(2.0)
