"""Test of the exercise of chapter 16: a convolution beside picograd's."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import picograd as pg

CASES = [  # pictures, filters, padding, stride
    ((1, 1, 5, 5), (1, 1, 3, 3), 0, 1),
    ((2, 3, 8, 7), (4, 3, 3, 3), 1, 1),
    ((2, 2, 9, 12), (3, 2, 5, 2), 0, 1),
    ((1, 2, 11, 11), (2, 2, 3, 3), 2, 2),
    ((1, 1, 4, 4), (1, 1, 4, 4), 0, 3),
]


@pytest.mark.parametrize(("pictures", "filters", "padding", "stride"), CASES)
def test_it_gives_what_picograd_gives(
    exercise: ModuleType, pictures: tuple[int, ...], filters: tuple[int, ...], padding: int, stride: int
) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in (pictures, filters))
    expected = pg.nn.functional.conv2d(pg.Tensor(x), pg.Tensor(w), padding=padding, stride=stride).numpy()
    found = exercise.conv2d(x, w, padding=padding, stride=stride)
    assert found.shape == expected.shape, f"the shape is {found.shape}, not {expected.shape}"
    case = f"pictures {pictures}, filters {filters}, padding {padding}, stride {stride}"
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=case)
