"""Fixtures every test may use: devices and seeded numbers."""

from __future__ import annotations

import numpy as np
import pytest

import picograd as pg

DEVICES = ["NUMPY"]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each usable device in turn, as the default device of new tensors."""
    monkeypatch.setenv("PICOGRAD_DEVICE", request.param)
    return str(request.param)


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_seed() -> None:
    """The default generator starts anew for each test."""
    pg.manual_seed(0)
