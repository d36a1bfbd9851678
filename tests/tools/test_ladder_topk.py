"""The ladder of the K greatest: its order is that of Tensor.topk; what each idea saves, in counts; bugs that are found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from picograd import Tensor
from picograd.devices.cudasim.device import TARGET
from picograd_lab.ladder import gpu
from picograd_lab.ladder.topk import LADDER, topk
from tests.host_compilers import needs_compiler
from tests.ladders import counts_of_rung, found_with_bug


def test_the_order_is_that_of_tensors() -> None:
    lengths = {"ROWS": 1, "COLS": 9, "K": 9}
    x = np.array([[1.0, -np.nan, -0.0, 0.0, np.nan, np.inf, -np.inf, 1.0, 2.0]], np.float32)
    values, indices = topk(lengths, x)
    same = Tensor(x).topk(9)
    assert indices.tolist() == same.indices.tolist() == [[1, 4, 5, 8, 0, 7, 2, 3, 6]]
    assert np.array_equal(values, same.values.numpy(), equal_nan=True)


def test_operands_have_all_that_makes_an_order_hard() -> None:
    (x,) = LADDER.inputs({"ROWS": 5, "COLS": 300, "K": 1}, np.random.default_rng(0))
    assert np.isnan(x[0]).sum() > 1 and np.isposinf(x[0]).any() and np.isneginf(x[0]).any()
    assert {*np.signbit(x[0][x[0] == 0])} == {False, True} and len(np.unique(x[0])) < 100


# ---- counts ----
@needs_compiler
def test_lists_of_warps_take_the_place_of_barriers_and_of_shared_memory() -> None:
    sort, lists = (counts_of_rung("topk", rung, 2, 512, 16) for rung in ("sort", "lists"))
    assert sort["global_loads"] == lists["global_loads"]
    steps = 9 * 10 // 2  # of a network of 2**9 keys
    assert sort["barriers"] == 2 * 8 * (1 + steps) and lists["barriers"] == 2 * 8
    # 20 for each of 16 groups and 5 for each of 7 lists of other warps, of each row
    assert sort["shuffles"] == 0 and lists["shuffles"] == 2 * (16 * 20 + 7 * 5)


@needs_compiler
@pytest.mark.variants
def test_only_a_row_in_registers_is_read_once_whatever_k_is() -> None:
    of_x = 2 * 512 // 8
    for k in (16, 256):
        passes, select, registers = (
            counts_of_rung("topk", rung, 2, 512, k)["loaded_sectors"] for rung in ("passes", "radix select", "registers")
        )
        assert k * of_x <= passes and 3 * of_x <= select <= 9 * of_x + 2 * k and of_x <= registers <= of_x + 2 * k


def test_lengths_that_a_rung_does_not_take_are_refused() -> None:
    says = [gpu.why_not(LADDER, rung, {"ROWS": 1, "COLS": 8193, "K": 33}, TARGET) for rung in LADDER.rungs]
    assert says == ["", "COLS must be at most 4096", "K must be at most 32", "", "COLS must be a multiple of 4"]
    assert gpu.why_not(LADDER, LADDER.rungs[0], {"ROWS": 1, "COLS": 3, "K": 4}, TARGET) == "K must be at most COLS"


# ---- planted bugs: the rung, what is replaced, by what, what is said of it; "" for a wrong result ----
BUGS = {
    "no barrier in the network": ("sort", r"      __syncthreads\(\);\n", "", "race"),
    "digits are chosen twice": ("radix select", r"above < wanted", "above <= wanted", "race|^$"),
    "an end too early": ("radix select", r"next.keys == wanted", "next.keys >= wanted", "which has 512 elements"),
    "zeros with a sign": ("registers", r"value == 0.0f \? 0u : ", "", "^$"),
    "NaN as it is": ("passes", r"value != value \? 0x7fc00000u : ", "", "^$"),
    "lists in the same order": ("lists", r"\(lane & size\) != 0", "(lane & size) == 0", "^$"),
    "a list of a warp that is not there": ("lists", r"  __syncthreads\(\);\n", "", "race|not written"),
    "no barrier before the next pass": ("passes", r"    __syncthreads\(\);  // others.*\n", "", "race"),
}  # fmt: skip


@needs_compiler
@pytest.mark.variants(every=8)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_rung_is_found(bug: str) -> None:
    name, pattern, becomes, says = BUGS[bug]
    found = found_with_bug(LADDER, name, {"ROWS": 1, "COLS": 600, "K": 32 if name == "lists" else 500}, pattern, becomes)
    assert any(re.search(says, each) for each in found), found
