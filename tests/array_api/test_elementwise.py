"""Rows of elementwise functions: each is NumPy's function of its name, takes just its kinds of dtype, has its own text."""

from __future__ import annotations

import inspect
import traceback
from types import FunctionType

import numpy as np
import pytest

import picograd.array_api as xp
from picograd.errors import DTypeError
from picograd_array_api import elementwise
from picograd_array_api.array import ANY, BITS, BOOL, FLOAT, INTEGER, NUMERIC, WORDS
from tests.helpers import same_value

ROWS = {
    name: found
    for name, found in vars(elementwise).items()
    if isinstance(found, FunctionType) and found.__code__.co_freevars == ("kinds", "method", "name")
}
OF_TWO = {name for name, row in ROWS.items() if len(inspect.signature(row).parameters) == 2}
KINDS = {WORDS[kinds]: kinds for kinds in (ANY, BITS, BOOL, FLOAT, INTEGER, NUMERIC)}
VALUES = {
    "f": (np.array([[0.25, 0.5], [0.75, 0.9]], np.float32), np.array([0.5, 2.0], np.float32)),
    "i": (np.array([[7, -7], [5, 0]], np.int32), np.array([2, 3], np.int32)),
    "u": (np.array([[7, 6], [5, 0]], np.uint8), np.array([2, 3], np.uint8)),
    "b": (np.array([[True, False], [True, True]]), np.array([True, False])),
}
ABOVE_ONE = {"acosh"}


def kinds_of(name: str) -> str:
    """Returns the kinds of dtype that the docstring of a row says it takes."""
    about = inspect.getdoc(ROWS[name]) or ""
    return KINDS[next(words for words in sorted(KINDS, key=len, reverse=True) if words in about.split("Takes")[1])]


def operands(name: str, kind: str) -> list[np.ndarray]:
    values = VALUES[kind][: 2 if name in OF_TWO else 1]
    return [x + 1 for x in values] if name in ABOVE_ONE else list(values)


def test_they_are_many() -> None:
    assert len(ROWS) == 63 and len(OF_TWO) == 28


@pytest.mark.req("C10")
@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_numpys_function_of_its_name(name: str) -> None:
    for kind in kinds_of(name):
        given = operands(name, kind)
        ours = ROWS[name](*map(xp.asarray, given))
        theirs = getattr(np, name)(*given)
        assert isinstance(ours, xp.Array) and str(ours.dtype) == str(theirs.dtype)
        same_value(ours, theirs)


@pytest.mark.parametrize("name", ROWS)
def test_other_kinds_of_dtype_are_refused_by_name(name: str) -> None:
    for kind in set(VALUES) - set(kinds_of(name)):
        with pytest.raises(DTypeError, match=rf"^{name}: needs {WORDS[kinds_of(name)]}, got "):
            ROWS[name](*map(xp.asarray, operands(name, kind)))


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_a_function_of_its_own(name: str) -> None:
    row = ROWS[name]
    assert row.__name__ == row.__qualname__ == name and row.__module__ == elementwise.__name__
    assert (inspect.getdoc(row) or "").startswith("Returns ")
    with pytest.raises(DTypeError) as caught:
        row(*["a"] * (2 if name in OF_TWO else 1))
    assert name in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
