"""Whole graphs by PTX: what NVRTC and LLVM make of kernels gives the evaluator's results, with no GPU.

TEST_DEVICES="PTX_OF_NVRTC PTX_OF_LLVM" has every row of the table of operations run, and every dtype of it; else a few of
them do.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.conftest import DEVICES
from tests.device_checks import Check, checks
from tests.operations.table import Operation
from tests.operations.test_operations import OPERATIONS, compare_values
from tests.operations.test_operations import test_dtypes as check_dtypes
from tests.operations.test_operations import test_gradients_on_a_device as check_gradients
from tests.operations.test_operations import test_values_of_views as check_views
from tests.ptx.device import LLVM, NVRTC, installed

BOTH = (NVRTC, LLVM)
ASKED = [name for name in BOTH if name in DEVICES]
SPARSE = [(row, BOTH[i % 2]) for i, row in enumerate(OPERATIONS[::41])]  # a few rows, each on one of both
ROWS = [(row, name) for name in ASKED for row in OPERATIONS] or SPARSE


@pytest.fixture(autouse=True, scope="module")
def both_devices() -> Iterator[None]:
    with installed():
        yield


# Attention and TF32 are those of tests/ptx/test_matrix_kernels.py.
@pytest.mark.variants(every=31)
@pytest.mark.parametrize("check", checks(without=("attention", "decoding", "tf32", "draws")))
@pytest.mark.parametrize("device", BOTH)
def test_it_computes_what_the_evaluator_does(
    device: str, check: Check, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(device, rng, monkeypatch)


# ---- the table of operations ----
def named(pair: object) -> str:
    return str(pair)


@pytest.mark.variants(every=4, first=1)
@pytest.mark.parametrize(("row", "road"), ROWS, ids=named)
def test_operations_give_what_pytorch_gives(
    row: Operation, road: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", road)
    compare_values(row, rng)


@pytest.mark.variants(every=3)
@pytest.mark.parametrize(("row", "road"), ROWS if ASKED else ROWS[::3], ids=named)
def test_operations_of_every_dtype_and_layout(
    row: Operation, road: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", road)
    check_views(row, road, rng)
    check_dtypes(row, road, rng)


@pytest.mark.parametrize(("row", "road"), [pair for pair in ROWS if pair[0].orders][:: 1 if ASKED else 3], ids=named)
def test_gradients(row: Operation, road: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", road)
    for part in range(3):
        check_gradients(row, part, road, rng)
