"""Peak bytes of tensors in a step of each bench workload: at most PyTorch's."""

from __future__ import annotations

import gc

import pytest

import picograd as pg
from bench.peers import load
from bench.runner import make_runner
from bench.workloads import WORKLOADS

pytestmark = pytest.mark.req("G8")

# What bench/peers/torch_.py's `tensor_nbytes` gives: torch 2.13.0+cpu, a step after four others, x86-64, 2026-11-21.
TORCH_NBYTES = {
    "mlp_2_16": 23_376,
    "mlp_300": 6_144_016,
    "mnist_b32": 5_694_592,
    "mnist_b512": 28_967_040,
    "names": 230_300,
    "nanogpt": 40_514_676,
    "lstm": 29_573_488,
}


def peak_nbytes(name: str) -> int:
    """Returns the peak of the third step, data and network included, in bytes."""
    gc.collect()
    before = pg.memory_allocated()
    peer = load("picograd")
    runner = make_runner(peer, WORKLOADS[name], "picograd")
    for _ in range(2):
        runner.step(runner.granularity)
    gc.collect()
    found = peer.tensor_nbytes(runner)
    assert found is not None
    return found - before


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


@pytest.mark.parametrize("name", TORCH_NBYTES)
def test_a_training_step_holds_at_most_what_pytorch_holds(name: str) -> None:
    assert peak_nbytes(name) <= TORCH_NBYTES[name]
