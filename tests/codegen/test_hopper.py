"""The choice of a product's tile for warpgroups, held against what each tile took on an H100."""

from __future__ import annotations

import json
from math import exp, log
from pathlib import Path
from statistics import mean

import pytest

from bench.gpu_products_list import problems
from bench.gpu_products_work import kernel_of, short_name
from picograd.device import Target
from picograd.engine.choose import written_candidates

MEDIANS = Path(__file__).parents[2] / "bench" / "results" / "2026-11-26-h100-products.json"
WIDE_RATES = MEDIANS.with_name("2026-11-27-h100-products-float32.json")
H100 = Target(
    "CUDA", "cuda", "sm_90a", block_threads=256, shared_bytes=227 * 1024, has_warpgroups=True, multiprocessors=132
)
TIMED = [problem for problem in problems(False, "square,forward,dX,dW") if problem.is_timed]


def shares() -> dict[str, float]:
    """Returns the speed of the tile chosen for each product, as a share of the fastest measured one of its group size."""
    medians_us = json.loads(MEDIANS.read_text())["medians"]
    found = {}
    for problem in TIMED:
        chosen = short_name(written_candidates(kernel_of(problem), H100)[0])
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
        found[problem.name] = rates[short_name(written_candidates(kernel_of(problem), H100)[0])] / max(rates.values())
    assert len(found) == 36
    assert min(found.values()) > 0.9, found
    assert exp(mean(log(share) for share in found.values())) > 0.97, found


@pytest.mark.parametrize("name", ["dW 768 768"])
def test_blocks_share_k_where_there_are_few_tiles(name: str) -> None:
    (problem,) = [each for each in TIMED if each.name == name]
    assert written_candidates(kernel_of(problem), H100)[0].product.parts == 4
