"""Thousands of training steps hold no more than the first ones: buffers, memory of plans, plans, Ops, the process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.engine import realize
from picograd.engine.devices import compiler_for
from picograd.ir.op import Buffer, Op
from picograd.look import watch

pytestmark = pytest.mark.req("G8")
F = pg.nn.functional
ROOT = Path(__file__).resolve().parents[1]
RESIDENT_NBYTES = 2 << 20  # what a process may grow by: Python's own heap is not quite still


def training() -> Callable[[Tensor, Tensor], Tensor]:
    """Returns a step of a tiny network, with momentum."""
    pg.manual_seed(0)
    layers = pg.nn.Sequential(pg.nn.Linear(4, 6), pg.nn.ReLU(), pg.nn.Linear(6, 3))
    optimizer = pg.optim.SGD(layers.parameters(), lr=1e-3, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(layers(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def counted() -> dict[str, int]:
    """Returns how many Buffers, plans and Ops there are, and the bytes of tensors, held and kept for reuse."""
    gc.collect()
    pool = compiler_for("CPU").device.memory
    return {
        "buffers": sum(type(found) is Buffer for found in gc.get_objects()),
        "plans": len(realize._plans),
        "ops": len(Op.interned),
        "held": pool.in_use,
        "blocks and arenas": pool.in_use + pool.kept,  # type: ignore[attr-defined]
    }


def resident_nbytes() -> int:
    """Returns the bytes of this process that are in memory now; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def run_alone(check: str) -> None:
    """Runs one of the checks below in a process of its own: in one with what other tests left, memory is never still."""
    code = f"from tests.test_steady_memory import *; {check}"
    environment = {**os.environ, "PICOGRAD_DEVICE": "CPU", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("is_jitted", "num_steps"), [(True, 8_000), (False, 1_000)], ids=["jit", "eager"])
def test_nothing_grows_over_thousands_of_steps(is_jitted: bool, num_steps: int) -> None:
    run_alone(f"check_steady({is_jitted}, {num_steps})")


def check_steady(is_jitted: bool, num_steps: int) -> None:
    rng = np.random.default_rng(0)
    xs = [Tensor(rng.standard_normal((16, 4)).astype(np.float32)) for _ in range(4)]
    ys = [Tensor(rng.integers(0, 3, 16).astype(np.int32)) for _ in range(4)]
    step = pg.jit(training()) if is_jitted else training()

    def run(count: int) -> list[float]:
        return [step(xs[number % 4], ys[number % 4]).item() for number in range(count)][-4:]

    first = run(100)
    before, resident = counted(), resident_nbytes()
    last = run(num_steps)
    after, grown = counted(), resident_nbytes() - resident
    assert after == before, f"{before} became {after}"
    assert grown <= RESIDENT_NBYTES, f"{grown} bytes more are resident"
    assert sum(last) < sum(first)


# ---- what is kept ----
def new_shape(number: int) -> None:
    (Tensor(np.ones(number + 2, np.float32)) * 2 + 1).sum().item()


def new_function(_: int) -> None:
    weight, x = Tensor.ones(4, 4), Tensor.ones(4, 4).realize()
    function = pg.jit(lambda x: (x @ weight + 1).relu().sum())
    for _ in range(3):
        function(x)


@pytest.mark.parametrize(("what", "count", "most_nbytes"), [("new_shape", 300, 16 << 10), ("new_function", 100, 4 << 10)])
def test_a_plan_and_a_kernel_that_are_kept_take_little_and_dropped_ones_nothing(
    what: str, count: int, most_nbytes: int
) -> None:
    run_alone(f"check_kept({what}, {count}, {most_nbytes})")


def check_kept(make: Callable[[int], None], count: int, most_nbytes: int) -> None:
    """Fails where a process grows by more than `most_nbytes` for each of the things made."""
    warnings.simplefilter("ignore")
    for number in range(30):
        make(number)
    gc.collect()
    resident = resident_nbytes()
    for number in range(30, 30 + count):
        make(number)
    gc.collect()
    grown = resident_nbytes() - resident
    assert grown <= count * most_nbytes, f"{grown / count} bytes each"


def test_of_plans_the_oldest_go_first() -> None:
    run_alone("check_oldest_go_first()")


def check_oldest_go_first() -> None:
    realize._plans.most = 3
    for length in (5, 6, 7, 8, 9):
        (Tensor(np.ones(length, np.float32)) * length).tolist()
    assert len(realize._plans) == 3
    with watch() as counts:
        (Tensor(np.ones(9, np.float32)) * 9).tolist()
        (Tensor(np.ones(5, np.float32)) * 5).tolist()
    assert counts.scheduled == 1
