"""The collector while picograd is loaded: it waits, is then as it was, and leaves what a program has built before alone."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from picograd.loading import MADE_BETWEEN, collecting_later

ROOT = Path(__file__).resolve().parents[1]


def printed(code: str) -> list[str]:
    """Returns the words that a new process prints."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_importing_collects_nothing_and_freezes_what_it_made() -> None:
    count = "sum(generation['collections'] for generation in gc.get_stats())"
    code = f"import gc, numpy; n = {count}; import picograd; print({count} - n, gc.isenabled(), gc.get_freeze_count())"
    collections, is_on, num_frozen = printed(code)
    assert int(collections) <= 3, "of the youngest objects, where picograd begins and between two steps"
    assert is_on == "True" and int(num_frozen) > 20_000


@pytest.mark.parametrize(
    ("own", "then"),
    [
        ((700, 10, 10), (MADE_BETWEEN, 2, 2)), ((2000, 10, 0), (MADE_BETWEEN, 2, 0)),
        ((MADE_BETWEEN + 1, 7, 8), None), ((0, 7, 8), None),
    ],  # fmt: skip
)
def test_the_collector_looks_less_often_than_by_default_and_never_more(
    own: tuple[int, ...], then: tuple[int, ...] | None
) -> None:
    code = f"import gc; gc.set_threshold(*{own}); import picograd; print(*gc.get_threshold())"
    assert printed(code) == [str(number) for number in then or own]


def test_steps_of_a_training_loop_are_not_interrupted_by_collections() -> None:
    code = """
import gc, picograd as pg
model = pg.nn.MLP(4, [8, 8, 8, 1])
optimizer = pg.optim.Adam(model.parameters())
x = pg.ones(3, 4)
def step():
    optimizer.zero_grad()
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.item()
for _ in range(4):
    step()
gc.collect()
before = [generation["collections"] for generation in gc.get_stats()]
for _ in range(40):
    step()
print(*[generation["collections"] - n for generation, n in zip(gc.get_stats(), before)], gc.collect() < 40)
"""
    assert printed(code) == ["0", "0", "0", "True"]


def test_a_collector_that_is_off_stays_off() -> None:
    assert printed("import gc; gc.disable(); import picograd; print(gc.isenabled())") == ["False"]


def test_what_a_program_has_built_before_is_not_frozen() -> None:
    code = "import gc; built = [[] for _ in range(100_000)]; import picograd; print(gc.get_freeze_count(), gc.isenabled())"
    assert printed(code) == ["0", "True"]


def test_the_collector_goes_on_where_loading_fails() -> None:
    num_frozen = gc.get_freeze_count()
    with pytest.raises(ImportError), collecting_later():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled() and gc.get_freeze_count() == num_frozen
