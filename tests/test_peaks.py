"""Peak bytes of tensors in a step of bench workloads: at most PyTorch's; in training even with what kernels work in."""

from __future__ import annotations

import gc

import pytest

import picograd as pg
from bench.peers import load
from bench.runner import make_runner
from bench.workloads import LAYOUTS, WORKLOADS

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
TORCH_CALL_NBYTES = {
    **{f"matmul_256_{layout}": 2_359_296 for layout in LAYOUTS},
    **{f"matmul_512_{layout}": 9_437_184 for layout in LAYOUTS},
    "chain_1": 41_984,
    "chain_10": 43_008,
    "chain_100": 43_008,
    "sum_10": 45_056,
    "sum_100": 137_216,
}


def peak_nbytes(name: str) -> tuple[int, int]:
    """Returns the peak of the third step, data and network included, in bytes; and the same with scratch."""
    gc.collect()
    before = pg.memory_allocated()
    peer = load("picograd")
    runner = make_runner(peer, WORKLOADS[name], "picograd")
    for _ in range(2):
        runner.step(runner.granularity)
    gc.collect()
    found = peer.tensor_nbytes(runner)
    assert found is not None
    return found - before, found - before + peer.scratch_nbytes()


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("name", TORCH_NBYTES)
def test_a_training_step_holds_at_most_what_pytorch_holds(name: str) -> None:
    tensors, whole = peak_nbytes(name)
    assert tensors <= whole <= TORCH_NBYTES[name]


@pytest.mark.variants(every=7)
@pytest.mark.parametrize("name", TORCH_CALL_NBYTES)
def test_a_call_holds_at_most_what_pytorch_holds(name: str) -> None:
    tensors, _ = peak_nbytes(name)
    assert tensors <= TORCH_CALL_NBYTES[name]
