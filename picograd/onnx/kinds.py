"""Kinds of inputs: the words in which a row of the table says how many axes each has, and in which form it is taken.

In:    words
Out:   `Kind`, `kinds_of`; `of_input` and the others: which axes the numbers of axes among inputs and attributes mean
Next:  picograd/onnx/record.py

One word an input, and "x" for all that follow:

    x             a tensor of any number of axes
    2, 2+, 1-2    a tensor of two axes, at least two, one or two
    like          as many axes as the first input
    single        a tensor of one element; the function gets it without axes
    x!, 2!        an array of the host, as the shape of the result depends on its elements; so for all words below
    scalar, one   one element: as an array without axes, as a number
    row, each     a list of numbers; one for each axis of the first input
    axis, axes    numbers of axes; the function gets them counted from the first, and different ones
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from picograd.onnx.values import Value
from picograd.record import Record

NDIM_MAX = 64
ELEMENT = {"single", "scalar", "one", "axis"}  # forms of one element
KNOWN = {"array", "scalar", "one", "row", "each", "axis", "axes"}  # forms that are taken of an array


class Kind(Record):
    """The form in which an operator takes an input.

    form:         one of the words; "tensor" and "array" for those of a number of axes
    least, most:  axes it may have
    """

    form: str
    least: int = 0
    most: int = NDIM_MAX

    @property
    def is_known(self) -> bool:
        """True where it is taken as an array of the host."""
        return self.form in KNOWN


ANY = Kind("tensor")
WORDS = {word: Kind(word) for word in ("like", "single", "scalar", "one", "axis")}
WORDS |= {"row": Kind("row", 1, 1), "each": Kind("each", 1, 1), "axes": Kind("axes", 0, 1)}


def kinds_of(words: str) -> tuple[Kind, ...]:
    """Returns the kinds that words name.

    >>> kinds_of("2+ row")
    (Kind(form='tensor', least=2, most=64), Kind(form='row', least=1, most=1))
    """
    return tuple(WORDS[word] if word in WORDS else _of_axes(word) for word in words.split())


def _of_axes(word: str) -> Kind:
    """Returns the kind of a word that is a number of axes."""
    found = re.fullmatch(r"(?:x|(\d+)(\+|-(\d+))?)(!?)", word)
    assert found is not None, word
    form = "array" if found[4] else "tensor"
    if found[1] is None:
        return Kind(form) if found[4] else ANY
    least = int(found[1])
    return Kind(form, least, least if not found[2] else int(found[3] or NDIM_MAX))


# ---- which axes numbers mean ----
# How many axes a negative number counts from the end of, and the largest number there is; None: it means nothing.
Span = tuple[int, int] | None
SpanOf = Callable[[Sequence[Value], Mapping[str, Any]], Span]


def of_input(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the first input; of a sequence, those of its first element."""
    first = inputs[0] if inputs else None
    first = first[0] if isinstance(first, list) and first else first
    if first is None or isinstance(first, list):
        return None
    return len(first.shape), len(first.shape) - 1


def of_gaps(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the first input and the end behind them."""
    ndim = len(inputs[0].shape)
    return ndim, ndim


def of_more(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the result: those of the first input, and those that are named."""
    more = len(attributes["axes"]) if "axes" in attributes else math.prod(inputs[1].shape)
    ndim = len(inputs[0].shape) + more
    return ndim, ndim - 1


def of_one_more(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the result: those of the first input, and one more."""
    ndim = len(inputs[0].shape) + 1
    return ndim, ndim - 1


def of_joined(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the joined elements of a sequence: one more with new_axis."""
    span = of_input(inputs, attributes)
    more = 1 if attributes.get("new_axis") else 0
    return None if span is None else (span[0] + more, span[1] + more)


def of_scaled(inputs: Sequence[Value], attributes: Mapping[str, Any]) -> Span:
    """The axes of the first input, where its scale or zero point, the inputs behind it, have several elements."""
    several = any(value is not None and math.prod(value.shape) != 1 for value in inputs[1:3])
    return of_input(inputs, attributes) if several else None
