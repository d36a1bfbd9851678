"""The ladder of a convolution: Winograd's matrices; what each idea saves, in counts; bugs that are found."""

from __future__ import annotations

import re

import numpy as np
import pytest

from picograd import Tensor
from picograd.devices.cudasim.device import TARGET
from picograd.nn.functional import conv2d
from picograd_lab.ladder import gpu
from picograd_lab.ladder.conv import A_T, B_T, LADDER, G, bound, convolution, winograd, winograd_bound
from tests.host_compilers import needs_compiler
from tests.ladders import counts_of_rung, found_with_bug, rung_of


def lengths_of(*values: int) -> dict[str, int]:
    return dict(zip(LADDER.lengths, values, strict=True))


@pytest.mark.variants(every=3)
@pytest.mark.parametrize("values", [(2, 3, 7, 6, 4, 3, 1), (1, 2, 9, 8, 3, 5, 2), (1, 2, 5, 4, 3, 2, 1)])
def test_the_meaning_is_that_of_tensors(values: tuple[int, ...]) -> None:
    lengths = lengths_of(*values)
    x, w = LADDER.inputs(lengths, np.random.default_rng(0))
    (y,) = convolution(lengths, x, w)
    same = conv2d(Tensor(x), Tensor(w), stride=lengths["STRIDE"], padding=lengths["R"] // 2)
    assert np.allclose(y, same.numpy())


# ---- Winograd ----
def test_winograd_is_the_convolution_and_its_bound_is_wider() -> None:
    lengths = lengths_of(2, 3, 7, 6, 4, 3, 1)
    x, w = LADDER.inputs(lengths, np.random.default_rng(0))
    assert np.allclose(winograd(lengths, x, w), *convolution(lengths, x, w), atol=1e-14)
    (most,), (own,) = (each(lengths, 2.0**-24, x, w) for each in (bound, winograd_bound))
    assert (own > most).all()


def test_the_file_has_these_matrices() -> None:
    text = LADDER.text(rung_of(LADDER, "winograd")).replace("f", "")
    for name, matrix in (("A_T", A_T), ("B_T", B_T), ("G", G)):
        (inner,) = re.findall(rf"{name}\[\d]\[\d] = {{{{(.*)}}}};", text)
        assert [[float(each) for each in row.split(",")] for row in inner.split("}, {")] == matrix.tolist()


# ---- counts ----
@needs_compiler
def test_winograd_multiplies_16_times_where_the_definition_has_36() -> None:
    values = (2, 8, 8, 8, 32, 3, 1)  # 32 tiles, of 32 filters: a block
    assert counts_of_rung("conv", "winograd", *values)["multiply_adds"] * 36 == LADDER.flops(lengths_of(*values)) // 2 * 16


@needs_compiler
@pytest.mark.variants
def test_what_a_block_shares_is_read_once_and_patches_need_not_be_stored() -> None:
    values = (2, 8, 16, 16, 16, 3, 1)
    direct, tile, im2col, implicit = (
        counts_of_rung("conv", rung, *values) for rung in ("direct", "shared tile", "im2col", "implicit product")
    )
    of_y, of_patches = 2 * 16 * 256 // 8, 8 * 9 * 2 * 256 // 8
    assert direct["stored_sectors"] == tile["stored_sectors"] == implicit["stored_sectors"] == of_y
    assert im2col["stored_sectors"] == of_y + of_patches
    assert tile["loaded_sectors"] * 20 < direct["loaded_sectors"] and implicit["loaded_sectors"] < im2col["loaded_sectors"]


@needs_compiler
@pytest.mark.variants
def test_matrix_instructions_take_the_place_of_shared_loads() -> None:
    values = (1, 32, 8, 8, 64, 3, 1)  # 64 pixels of 64 filters: a block
    implicit, mma = (counts_of_rung("conv", rung, *values) for rung in ("implicit product", "mma"))
    assert mma["mmas"] * 16 * 8 * 16 == implicit["multiply_adds"] == 64 * 64 * 9 * 32
    assert mma["shared_loads"] * 16 == implicit["shared_loads"] and not mma["bank_conflicts"] + implicit["bank_conflicts"]


def test_lengths_that_a_rung_does_not_take_are_refused() -> None:
    for values, says in (
        ((1, 9, 8, 8, 1, 5, 1), {"winograd": "R must be 3 and STRIDE 1", "mma": "C must be a multiple of 8"}),
        ((1, 8, 8, 8, 1, 3, 2), {"winograd": "R must be 3 and STRIDE 1"}),
        ((0, 8, 8, 8, 1, 3, 1), {rung.name: "N must be at least 1" for rung in LADDER.rungs}),
    ):
        reasons = {rung.name: gpu.why_not(LADDER, rung, lengths_of(*values), TARGET) for rung in LADDER.rungs}
        assert {name: reason for name, reason in reasons.items() if reason} == says


# ---- planted bugs: the rung, what is replaced, by what, what is said of it; "" for a wrong result ----
BUGS = {
    "no barrier before the next channel": ("shared tile", r"    __syncthreads\(\);\n  }\n", "  }\n", "race"),
    "a row runs into the next": ("implicit product", r"0 <= x_at && x_at < W && ", "", "^$|reads p0"),
    "rows and columns of a filter exchanged": ("im2col", r"k / R % R - PAD", "k % R - PAD", "^$|reads p0"),
    "a sign of a transform": ("winograd", r"{0, 1, 0, -1}", "{0, 1, 0, 1}", "^$"),
    "tiles that do not overlap": ("winograd", r"% HIGH \* 2 - 1", "% HIGH * 2", "^$"),
    "no barrier before the products": ("winograd", r"    __syncthreads\(\);\n    // -", "    // -", "race|written"),
    "half a row of a matrix": ("mma", r"lane / 16 \* 8", "lane / 16 * 4", "no multiple of 8"),
    "no barrier before the next tile": ("mma", r"    __syncthreads\(\);\n  }\n", "  }\n", "race"),
}  # fmt: skip


@needs_compiler
@pytest.mark.variants(every=8)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_in_a_rung_is_found(bug: str) -> None:
    name, pattern, becomes, says = BUGS[bug]
    found = found_with_bug(LADDER, name, lengths_of(2, 16, 7, 9, 5, 3, 1), pattern, becomes)
    assert any(re.search(says, each) for each in found), found
