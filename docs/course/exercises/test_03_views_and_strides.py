"""Tests of exercise 3: views are compared with NumPy's, element by element and copy by copy."""

from __future__ import annotations

from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest

LINE = np.arange(120)


def elements(view: Any) -> np.ndarray:
    """The elements of a view in order."""
    places = product(*map(range, view.shape))
    return np.array([LINE[view.offset + sum(s * i for s, i in zip(view.strides, place))] for place in places])


@pytest.mark.parametrize("shape,strides", [((5,), (1,)), ((3, 4), (4, 1)), ((2, 3, 4), (12, 4, 1)), ((2, 1, 7), (7, 7, 1))])
def test_strides_without_gaps(exercise: ModuleType, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    found = exercise.contiguous(shape)
    assert found == exercise.View(shape, strides, 0), f"{shape} has strides {strides} and offset 0; got {found}"


@pytest.mark.parametrize("axis,n", [(0, 2), (1, 3), (2, 2), (1, 5)])
def test_every_nth_element(exercise: ModuleType, axis: int, n: int) -> None:
    x = LINE.reshape(4, 5, 6)[1:, ::-1]  # begins at row 4 of block 1, and walks backwards
    wanted = x[(slice(None),) * axis + (slice(None, None, n),)]
    view = exercise.every(exercise.View((3, 5, 6), (30, -6, 1), 54), axis, n)
    assert view.shape == wanted.shape, (
        f"each element {n} of {x.shape} along axis {axis} is {wanted.shape}, not {view.shape}"
    )
    where = f"strides {view.strides} and offset {view.offset} lead to other elements; those of x were (30, -6, 1) and 54"
    assert elements(view).tolist() == wanted.flatten().tolist(), where


@pytest.mark.parametrize(
    "shape,axes,new",
    [
        ((4, 6), (0, 1), (2, 12)),
        ((4, 6), (0, 1), (3, 2, 4)),
        ((2, 3, 4), (1, 0, 2), (3, 8)),
        ((2, 3, 4), (2, 0, 1), (4, 6)),
        ((2, 3, 4), (2, 0, 1), (2, 2, 6)),
        ((2, 3, 4), (0, 2, 1), (8, 3)),
        ((4, 6), (1, 0), (24,)),
        ((4, 6), (1, 0), (3, 2, 2, 2)),
        ((1, 6), (1, 0), (2, 1, 3)),
        ((4, 6), (0, 1), (1, 24)),
        ((2, 3, 4), (2, 1, 0), (12, 2)),
    ],
)
def test_reshape_is_a_view_where_numpy_has_one(
    exercise: ModuleType, shape: tuple[int, ...], axes: tuple[int, ...], new: tuple[int, ...]
) -> None:
    x = LINE[7 : 7 + int(np.prod(shape))].reshape(shape).transpose(axes)
    wanted = x.reshape(new)
    found = exercise.reshape(exercise.View(x.shape, tuple(s // x.itemsize for s in x.strides), 7), new)
    if np.shares_memory(x, wanted):
        assert found is not None, "there is a view: which axes merge?"
        assert found.shape == new, f"the new shape is {new}, not {found.shape}"
        order = f"strides {found.strides} give another order"
        assert elements(found).tolist() == wanted.flatten().tolist(), order
    else:
        assert found is None, f"no strides give {wanted.flatten().tolist()}"


@pytest.mark.parametrize("new", [(2, 6), (5, 6), (4, 7), ()])
def test_a_shape_of_another_number_of_elements_has_no_view(exercise: ModuleType, new: tuple[int, ...]) -> None:
    found = exercise.reshape(exercise.View((4, 6), (6, 1)), new)
    assert found is None, f"(4, 6) has 24 elements, {new} has others; got {found}"
