"""Sequences, which are lists, and optionals, which may be None.

In:    lists of values
Out:   `OPERATORS`
Next:  picograd/onnx/operators/random.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

from picograd.errors import ArgumentError, IndexingError
from picograd.onnx.kinds import of_joined
from picograd.onnx.operators.movement import concat
from picograd.onnx.record import row
from picograd.onnx.values import Array, numpy_of
from picograd.tensor.tensor import Tensor

PIECES_MAX = 1 << 16  # of a tensor


def construct(*values: Any) -> list[Any]:
    """Returns a sequence of the values."""
    return [*values]


def empty(*, dtype: int = 1) -> list[Any]:
    """Returns a sequence with nothing in it."""
    numpy_of(dtype)  # there is such a type
    return []


def _place(sequence: list[Any], position: int, most: int) -> int:
    if not -len(sequence) <= position <= most:
        raise IndexingError(f"position {position} is outside a sequence of {len(sequence)}.")
    return position + len(sequence) if position < 0 else position


def insert(sequence: list[Any], value: Any, position: int | None = None) -> list[Any]:
    """Returns a sequence with a value put in, by default at the end."""
    place = len(sequence) if position is None else _place(sequence, position, len(sequence))
    return [*sequence[:place], value, *sequence[place:]]


def erase(sequence: list[Any], position: int = -1) -> list[Any]:
    """Returns a sequence without one value, by default the last."""
    place = _place(sequence, position, len(sequence) - 1)
    return [*sequence[:place], *sequence[place + 1 :]]


def at(sequence: list[Any], position: int) -> Any:
    """Returns a value of a sequence."""
    return sequence[_place(sequence, position, len(sequence) - 1)]


def length(sequence: list[Any]) -> Array:
    """Returns how many values there are."""
    return np.array(len(sequence), np.int64)


def concat_from(sequence: list[Any], *, axis: int, new_axis: int = 0) -> Any:
    """Returns the values one after the other along an axis, or stacked along a new one."""
    if not sequence:
        raise ArgumentError("ConcatFromSequence: the sequence is empty.")
    if new_axis:
        sequence = [value.reshape((*value.shape[:axis], 1, *value.shape[axis:])) for value in sequence]
    return concat(*sequence, axis=axis)


def split_to(x: Tensor, split: Array | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    """Returns pieces along an axis: of one length each, of length `split`, or of several."""
    if split is not None and split.ndim:
        return [*x.split(split.tolist(), axis)]
    each = 1 if split is None else int(split)
    if each < 1 or x.shape[axis] > each * PIECES_MAX:
        raise ArgumentError(f"SplitToSequence: {x.shape[axis]} elements by {each} are not 1 to {PIECES_MAX} pieces.")
    pieces = x.split(each, axis)
    return [*pieces] if keepdims or split is not None else [piece.squeeze(axis) for piece in pieces]


def optional(value: Any = None, *, type: Any = None) -> Any:  # noqa: A002
    """Returns a value, or None of a type."""
    if value is None and type is None:
        raise ArgumentError("Optional: needs an input or a type.")
    return value


def has_element(value: Any = None) -> Array:
    """Returns whether there is a value."""
    return np.array(value is not None)


def get_element(value: Any) -> Any:
    """Returns the value of an optional.

    Raises:
      ArgumentError: it is empty.
    """
    if value is None:
        raise ArgumentError("OptionalGetElement: the optional is empty.")
    return value


OPERATORS = [
    row("SequenceConstruct", 11, construct, hosts=True), row("SequenceEmpty", 11, empty),
    row("SequenceInsert", 11, insert, "x x one", hosts=True), row("SequenceErase", 11, erase, "x one", hosts=True),
    row("SequenceAt", 11, at, "x one", hosts=True), row("SequenceLength", 11, length, hosts=True),
    row("ConcatFromSequence", 11, concat_from, span=of_joined, hosts=True),
    row("SplitToSequence", 11, split_to, "x 0-1!"),
    row("Optional", 15, optional, hosts=True), row("OptionalHasElement", 15, has_element, hosts=True),
    row("OptionalGetElement", 15, get_element, hosts=True),
]  # fmt: skip
