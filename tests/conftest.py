"""Fixtures every test may use: devices, seeded numbers, and the published data sets."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import picograd as pg
from picograd.data import Mnist, load_mnist, load_names, load_text
from picograd.errors import DataError
from tests.selection import *  # noqa: F403 - its hooks

# TEST_DEVICES="CUDASIM" has other devices run the tests that ask for each device in turn.
DEVICES = os.environ.get("TEST_DEVICES", "CPU NUMPY").split()


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


@pytest.fixture(autouse=True, scope="session")
def verify_every_pass() -> Iterator[None]:
    """The spec is checked after every pass."""
    before = os.environ.get("PICOGRAD_VERIFY")
    os.environ["PICOGRAD_VERIFY"] = "1"
    yield
    if before is None:
        del os.environ["PICOGRAD_VERIFY"]


@pytest.fixture(autouse=True, scope="session")
def ctrl_c_is_heard() -> None:
    """A shell that starts the tests in the background has Ctrl-C ignored, by them and by all that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# ---- published data sets: found or fetched once, else the test is skipped ----
BESIDE_CHECKOUT = Path(__file__).resolve().parents[1].parent / "shared" / "data"


@cache
def _load_mnist() -> Mnist | str:
    try:
        return load_mnist()
    except DataError as error:
        return error.fact


@cache
def _beside_checkout(load: Callable[[], Any]) -> Any:
    """Returns what `load` finds, or why it finds nothing; the folder beside the checkout counts as PICOGRAD_DATA."""
    before = os.environ.get("PICOGRAD_DATA")
    if before is None and BESIDE_CHECKOUT.is_dir():
        os.environ["PICOGRAD_DATA"] = str(BESIDE_CHECKOUT)
    try:
        return load()
    except DataError as error:
        return error
    finally:
        if before is None:
            os.environ.pop("PICOGRAD_DATA", None)


@pytest.fixture
def published_mnist() -> Mnist:
    """MNIST from PICOGRAD_DATA, the cache, its address or its carrier package."""
    data = _load_mnist()
    if isinstance(data, str):
        pytest.skip(f"MNIST is not here: {data}")
    return data


@pytest.fixture
def published_names() -> list[str]:
    """The names from PICOGRAD_DATA, the folder beside the checkout, the cache or their address."""
    data = _beside_checkout(load_names)
    if isinstance(data, DataError):
        pytest.skip(f"names.txt is not here: {data.fact}")
    return data


@pytest.fixture
def published_shakespeare() -> str:
    """Tiny Shakespeare from PICOGRAD_DATA, the folder beside the checkout, the cache or its address."""
    data = _beside_checkout(_load_shakespeare)
    if isinstance(data, DataError):
        pytest.skip(f"tinyshakespeare.txt is not here: {data.fact}")
    return data


def _load_shakespeare() -> str:
    return load_text("shakespeare")
