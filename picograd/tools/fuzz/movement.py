"""Random movement: reshapes, orders, repeats, margins, cuts and flips.

In:    a Generator and a value it has made
Out:   a new value
Next:  picograd/tools/fuzz/axes.py
"""

from __future__ import annotations

from picograd.ir import build
from picograd.ir.op import Op
from picograd.tools.fuzz.generator import LENGTHS, Action, Generator
from picograd.tools.fuzz.values import Value


def move(g: Generator, v: Value) -> Value | None:
    return Value(moved(g, v.op), v.magnitude, v.error)


def moved(g: Generator, op: Op) -> Op:
    """Returns the Op seen through one random movement."""
    shape = [int(dim) for dim in op.shape]
    kind = g.pick(("reshape", "reshape", "permute", "permute", "expand", "pad", "shrink", "flip"))
    if kind == "reshape":
        return build.reshape(op, reshaped(g, shape))
    if not shape:
        return build.expand(op, (int(g.pick(LENGTHS)),))
    if kind == "permute":
        return build.permute(op, tuple(int(a) for a in g.rng.permutation(len(shape))))
    if kind == "expand":
        return build.expand(op, tuple(int(g.pick(LENGTHS)) if dim == 1 else dim for dim in shape))
    if kind == "pad":
        return build.pad(op, tuple((int(g.rng.integers(0, 3)), int(g.rng.integers(0, 3))) for _ in shape))
    if kind == "shrink":
        bounds = []
        for dim in shape:
            start = int(g.rng.integers(0, dim + 1)) if g.chance(0.5) else 0
            stop = int(g.rng.integers(start, dim + 1)) if g.chance(0.5) else dim
            bounds.append((start, stop) if stop > start or g.chance(0.02) else (0, dim))
        return build.shrink(op, tuple(bounds))
    return build.flip(op, tuple(a for a in range(len(shape)) if g.chance(0.5)))


def reshaped(g: Generator, shape: list[int]) -> tuple[int, ...]:
    """Merges neighbours, splits a length, or puts in and takes out axes of length 1."""
    new = list(shape)
    for _ in range(int(g.rng.integers(1, 4))):
        at = int(g.rng.integers(0, len(new) + 1))
        kind = g.pick(("one", "merge", "split", "drop"))
        if kind == "one" and len(new) < 5:
            new.insert(at, 1)
        elif kind == "merge" and at + 1 < len(new):
            new[at : at + 2] = [new[at] * new[at + 1]]
        elif kind == "split" and at < len(new) and len(new) < 5:
            factors = [f for f in range(2, new[at]) if new[at] % f == 0]
            if factors:
                factor = int(g.pick(factors))
                new[at : at + 1] = [new[at] // factor, factor]
        elif kind == "drop" and at < len(new) and new[at] == 1:
            del new[at]
    return tuple(new)


MOVEMENT: tuple[Action, ...] = (move, move, move, move)
