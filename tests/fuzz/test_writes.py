"""Random writes through views of views are seen as NumPy's are, on either device and from jitted functions."""

from __future__ import annotations

import numpy as np
import pytest

from picograd_lab.fuzz import writes
from picograd_lab.fuzz.writes import Pair, check_writes

SEEDS = range(80)


@pytest.mark.variants(every=2)
@pytest.mark.req("G10")
@pytest.mark.req("B7")
@pytest.mark.parametrize("seed", SEEDS)
def test_writes_through_views_of_views_are_seen_as_numpy_sees_them(seed: int) -> None:
    check_writes(seed, ("NUMPY", "CPU")[seed % 2], is_jitted=seed % 4 == 3)


def test_there_are_writes_of_every_kind_and_views_of_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the seeds above make: each way to write, from jitted functions too, through views several steps long."""
    said: list[str] = []
    views: list[bool] = []
    levels: dict[int, int] = {}  # by id of a tensor, how many views it stands behind; all are kept alive
    kept: list[object] = []

    def a_view(pair: Pair, rng: np.random.Generator) -> Pair | None:
        made = original_view(pair, rng)
        if made is not None:
            levels[id(made)] = levels.get(id(pair), 0) + 1
            kept.extend((pair, made))
        return made

    def write(pair: Pair, rng: np.random.Generator, is_jitted: bool) -> str:
        views.append(levels.get(id(pair), 0) > 1)
        said.append(original_write(pair, rng, is_jitted))
        return said[-1]

    original_view, original_write = writes.a_view, writes.write
    monkeypatch.setattr(writes, "a_view", a_view)
    monkeypatch.setattr(writes, "write", write)
    for seed in SEEDS[:40]:
        check_writes(seed, "NUMPY", is_jitted=seed % 4 == 3)
    assert {line.split(" of ")[0].removeprefix("jit ") for line in said} == set(writes.WRITES)
    assert sum(line.startswith("jit ") for line in said) > 10
    assert sum(views) > 20 and len(views) > 100
