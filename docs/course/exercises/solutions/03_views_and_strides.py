"""A solution of exercise 3."""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """Element (i, j, ...) is at address offset + strides[0] * i + strides[1] * j + ..."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0


def contiguous(shape: tuple[int, ...]) -> View:
    """Each stride is the product of the lengths after it."""
    strides: list[int] = []
    step = 1
    for length in reversed(shape):
        strides.insert(0, step)
        step *= length
    return View(shape, tuple(strides))


def every(view: View, axis: int, n: int) -> View:
    """Steps are n times as long, and there are as many as fit, rounded up."""
    shape, strides = list(view.shape), list(view.strides)
    shape[axis] = -(-shape[axis] // n)
    strides[axis] *= n
    return View(tuple(shape), tuple(strides), view.offset)


def reshape(view: View, shape: tuple[int, ...]) -> View | None:
    """Merges axes as far as possible, then cuts them into the new lengths."""
    merged: list[list[int]] = []  # (length, stride), from the last axis to the first
    for length, stride in reversed([*zip(view.shape, view.strides)]):
        if length == 1:
            continue
        if merged and stride == merged[-1][0] * merged[-1][1]:
            merged[-1][0] *= length
        else:
            merged.append([length, stride])
    strides: list[int] = []
    for length in reversed(shape):
        if length == 1:
            strides.insert(0, 0)
            continue
        if not merged or merged[0][0] % length:
            return None
        strides.insert(0, merged[0][1])
        merged[0][0] //= length
        merged[0][1] *= length
        if merged[0][0] == 1:
            merged.pop(0)
    return None if merged else View(shape, tuple(strides), view.offset)
