"""Functions are as exact as the table says, over their whole range, and right where they are infinite or not defined."""

from __future__ import annotations

import numpy as np
import pytest

from tests.numerics.table import FUNCTIONS, Accuracy, measure


@pytest.mark.variants(every=3)
@pytest.mark.req("C3")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("row", FUNCTIONS, ids=lambda row: row.name)
def test_a_function_is_within_its_bound(row: Accuracy, device: str, rng: np.random.Generator) -> None:
    found = measure(row, rng)
    assert found.ulp <= row.ulp, f"{found.ulp:.2f} ulp at {found.worst}"
    assert not found.different, f"infinite or not defined elsewhere: {found.different}"
