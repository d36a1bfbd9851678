"""What every device is asked, as a table; the tests of each run its rows, whose names are the tests' ids.

    @pytest.mark.parametrize("check", checks(without=("tf32",)))
    @pytest.mark.parametrize("device", device_params("OPENCL"))
    def test_it_computes_what_the_evaluator_does(device, check, rng, monkeypatch):
        check(device, rng, monkeypatch)

A row is asked of all devices but those whose tests leave it out. What the rows do stands in tests/on_devices.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest

import picograd as pg
from tests.drawn import OWN, check_draw
from tests.on_devices import (
    CALLS_OF_HOST,
    EXPRESSIONS,
    MORE_EXPRESSIONS,
    check_attention,
    check_decoding,
    check_expression,
    check_loops,
    check_memory_that_begins_anywhere,
    check_permutation,
    check_remainder,
    check_report,
    check_tf32,
    check_training,
)

Check = Callable[[str, np.random.Generator, pytest.MonkeyPatch], None]


def alone(check: Callable[[str], None]) -> Check:
    return lambda device, rng, monkeypatch: check(device)


def drawn(check: Callable[..., None], *first: Any) -> Check:
    """Returns a check of `first`, a device and what is drawn for it."""
    return lambda device, rng, monkeypatch: check(*first, device, rng)


FLOATS = (pg.float32, pg.float16, pg.bfloat16)
CHECKS: dict[str, Check] = {
    **{f"expression: {name}": drawn(check_expression, EXPRESSIONS[name]) for name in EXPRESSIONS},
    **{f"call of the host: {name}": drawn(check_expression, CALLS_OF_HOST[name]) for name in CALLS_OF_HOST},
    **{f"more: {name}": drawn(check_expression, MORE_EXPRESSIONS[name]) for name in MORE_EXPRESSIONS},
    **{f"remainder: {dtype}": drawn(check_remainder, dtype) for dtype in (pg.float32, pg.float64)},
    **{f"attention: {dtype}": drawn(check_attention, dtype) for dtype in FLOATS},
    **{f"decoding: {dtype}": drawn(check_decoding, dtype) for dtype in FLOATS},
    "tf32": drawn(check_tf32),
    "training": alone(check_training),
    "loops": alone(check_loops),
    "index outside": alone(check_report),
    "memory that begins anywhere": alone(check_memory_that_begins_anywhere),
    **{f"draws: {name}": alone(partial(check_draw, name)) for name in OWN},
    "permutation": lambda device, rng, monkeypatch: check_permutation(device, monkeypatch),
}
MARKS = {"tf32": [pytest.mark.req("G13")], "draws": [pytest.mark.req("C1")]}  # by kind


def checks(without: Sequence[str] = ()) -> list[Any]:
    """Returns the rows as parameters of a test.

    Args:
      without:  kinds of rows, what stands before the colon of their names, that a device is not asked
    """
    kinds = {name: name.partition(":")[0] for name in CHECKS}
    assert {*without} <= {*kinds.values()}, "a kind of rows that there is none of"
    return [
        pytest.param(check, id=name, marks=MARKS.get(kinds[name], []))
        for name, check in CHECKS.items()
        if kinds[name] not in without
    ]
