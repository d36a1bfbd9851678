"""Random writes through views of views are seen as NumPy's are, on either device and from jitted functions."""

from __future__ import annotations

import pytest

from picograd.tools.fuzz.writes import check_writes

SEEDS = range(80)


@pytest.mark.req("G10")
@pytest.mark.req("B7")
@pytest.mark.parametrize("seed", SEEDS)
def test_writes_through_views_of_views_are_seen_as_numpy_sees_them(seed: int) -> None:
    check_writes(seed, ("NUMPY", "CPU")[seed % 2], is_jitted=seed % 4 == 3)
