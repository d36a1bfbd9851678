"""The choice of a product's tile for warpgroups, held against what each tile took on an H100."""

from __future__ import annotations

import json
import re
from math import exp, log
from pathlib import Path
from statistics import mean, median

import pytest

from bench.gpu_products_list import Problem, problems
from bench.gpu_products_work import kernel_of, short_name
from picograd.codegen.hopper import (
    BARRIER_NBYTES,
    GRADIENTS,
    attention_tiles,
    clocks_of,
    fitted,
    in_parts,
    is_worth_it,
    product_tiles,
)
from picograd.device import Target
from picograd.engine.choose import written_candidates
from picograd.ir.opts import HeadsShape, HeadsTile, Matrix, PlainProduct, Written
from picograd.record import replace

MEDIANS = Path(__file__).parents[2] / "bench" / "results" / "2026-11-26-h100-products.json"
ATTENTION = MEDIANS.with_name("2026-11-27-h100-attention.json")
WIDE_RATES = MEDIANS.with_name("2026-11-27-h100-products-float32.json")
H100 = Target(
    "CUDA", "cuda", "sm_90a", block_threads=256, shared_bytes=227 * 1024, has_warpgroups=True, multiprocessors=132
)
TIMED = [problem for problem in problems(False, "square,forward,dX,dW") if problem.is_timed]


def chosen_together(problem: Problem) -> Written:
    """Returns the choice among tiles that both warpgroups multiply: of products alone in turn there are no samples."""
    found = written_candidates(kernel_of(problem), H100)
    return next(choice for choice in found if isinstance(choice, Written) and not choice.tile.in_turn)


def shares() -> dict[str, float]:
    """Returns the speed of the tile chosen for each product, as a share of the fastest measured one of its group size."""
    medians_us = json.loads(MEDIANS.read_text())["medians"]
    found = {}
    for problem in TIMED:
        chosen = short_name(chosen_together(problem))
        of_group = [us for name, us in medians_us[problem.name].items() if " g8" in name]
        found[problem.name] = min(of_group) / medians_us[problem.name][chosen]
    return found


def test_the_choice_is_among_the_fastest_tiles_of_an_h100() -> None:
    found = shares()
    assert len(found) == 22
    assert min(found.values()) > 0.86, found
    assert exp(mean(log(share) for share in found.values())) > 0.97, found
    assert sum(share > 0.96 for share in found.values()) >= 18, found


def test_the_choice_is_among_the_fastest_tiles_of_float32() -> None:
    """The samples are the fastest variants of each product, and the one that was chosen before the model was fitted."""
    tflops = json.loads(WIDE_RATES.read_text())["tflops"]
    found = {}
    for problem in problems(False, "tf32,float32"):
        rates = {name: rate for name, rate in tflops[problem.name].items() if name not in ("torch", "generated")}
        found[problem.name] = rates[short_name(chosen_together(problem))] / max(rates.values())
    assert len(found) == 36
    assert min(found.values()) > 0.9, found
    assert exp(mean(log(share) for share in found.values())) > 0.97, found


@pytest.mark.parametrize("name", ["dW 768 768"])
def test_blocks_share_k_where_there_are_few_tiles(name: str) -> None:
    (problem,) = [each for each in TIMED if each.name == name]
    assert written_candidates(kernel_of(problem), H100)[0].product.parts == 4


def product(batch: int, m: int, n: int, k: int, dtype: str = "bfloat16") -> PlainProduct:
    return PlainProduct(Matrix(0, 0, k, False, m * k), Matrix(1, 0, n, False, k * n), 2, batch, m, n, k, dtype, dtype)


@pytest.mark.parametrize(
    ("batch", "m", "n", "k", "is_large"),
    [(8, 64, 64, 64, True), (7, 64, 64, 64, False), (64, 56, 64, 64, False), (64, 64, 56, 64, False)],
)
def test_a_product_has_64_of_each_extent_and_two_million_multiplications(
    batch: int, m: int, n: int, k: int, is_large: bool
) -> None:
    assert is_worth_it(product(batch, m, n, k)) == is_large


@pytest.mark.parametrize(
    ("batch", "m", "k", "parts", "parts_of_float32"),
    [
        (1, 128 * 88, 4096, [1, 2, 4, 8], [1, 2, 3, 4, 5, 6, 7, 8]),  # 88 tiles of two thirds of 132 multiprocessors
        (1, 128 * 89, 4096, [1], [1]),
        (2, 128, 4096, [1], [1]),
        (1, 128, 1023, [1], [1]),
        (1, 128, 1536, [1, 2, 3], [1, 2, 3]),
        (1, 128, 1 << 16, [1, 2, 4, 8], [*range(1, 25)]),
    ],
)
def test_parts_of_k_are_whole_steps_of_512_or_more_where_tiles_are_few(
    batch: int, m: int, k: int, parts: list[int], parts_of_float32: list[int]
) -> None:
    for dtype, expected in (("bfloat16", parts), ("float32", parts_of_float32)):
        assert [each.parts for each in in_parts(product(batch, m, 128, k, dtype), H100)] == expected


@pytest.mark.parametrize(("dtype", "flops_of_clock"), [("float32", 256), ("bfloat16", 4096)])
def test_no_product_is_thought_to_take_less_than_its_multiplications(dtype: str, flops_of_clock: int) -> None:
    given = product(1, 4096, 4096, 4096, dtype)
    tiles = product_tiles(given, H100)
    assert tiles and all(clocks_of(given, tile) * tile.blocks >= 2 * 4096**3 / flops_of_clock for tile in tiles)


@pytest.mark.parametrize(("problem", "wide"), [("8x12x1024x64 causal", False), ("4x16x4096x128 causal", True)])
def test_the_first_tile_of_a_gradient_was_the_fastest_of_those_that_are_tried(problem: str, wide: bool) -> None:
    """A measured name is "k KEEPSxROWSxCOLUMNS lags", of keys or of queries ("q"): 64 rows are one warpgroup's."""
    medians = {}
    for name, measured in json.loads(ATTENTION.read_text())["gradients"]["results"].items():
        if name.startswith(f"gradient {problem}|"):
            for part, rows, columns, lags in re.findall(r"([kq]) \dx(\d+)x(\d+)( lags)?", name):
                key = (part == "k", (int(rows) // 64, int(columns), bool(lags)))
                medians[key] = min(median(measured["samples"]), medians.get(key, 1.0))
    for by_keys in (True, False):
        tried = [tile for tile in GRADIENTS[by_keys, wide] if (by_keys, tile) in medians]
        assert tried[0] == GRADIENTS[by_keys, wide][0] == min(tried, key=lambda tile: medians[by_keys, tile])  # noqa: B023


@pytest.mark.parametrize(("room", "expected"), [(2, []), (3, [(2, 1)]), (4, [(3, 1)]), (5, [(4, 1)]), (6, [(4, 2)])])
def test_shared_memory_holds_two_stages_or_more_then_two_sets_of_rows(room: int, expected: list[tuple[int, int]]) -> None:
    """Each takes 1,000 bytes here."""
    target = replace(H100, shared_bytes=BARRIER_NBYTES + 1000 * room)
    tiles = fitted(HeadsTile(2, 128, 4, 1, 1), lambda tile: 1000 * (tile.stages + tile.keeps), target)
    assert [(tile.stages, tile.keeps) for tile in tiles] == expected


@pytest.mark.parametrize(
    ("heads", "groups", "keys", "causal", "together"),
    [
        (64, 64, 4096, False, 12), (64, 16, 4096, False, 48), (8, 8, 4096, False, 8), (64, 64, 1 << 20, False, 1),
        (64, 64, 4096, True, 64),
    ],
)  # fmt: skip
def test_heads_whose_keys_and_values_fit_the_cache_are_looked_at_together(
    heads: int, groups: int, keys: int, causal: bool, together: int
) -> None:
    """24 MiB; of 4,096 keys and values of 128 features each group has 2. Of causal attentions all heads are."""
    shape = HeadsShape(1, heads, groups, 4096, keys, 128, 128, "bfloat16", 0.125, causal)
    assert {tile.together for tile in attention_tiles(shape, H100)} == {together}
