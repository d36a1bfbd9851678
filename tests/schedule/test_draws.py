"""Draws of several readers are made once: kernels with random bits are counted; the numbers stay the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import picograd as pg
from picograd import Tensor
from picograd.ir.stages import ScheduleItem
from picograd.ir.text import format_kernel
from picograd.look import watch
from picograd.nn import functional as F
from picograd.record import replace
from picograd.road import schedule_graphs
from tests.null_gpu import null_gpu
from tests.same_meaning import GPU_TARGET


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=shape).astype(np.float32))


def num_drawing(tensors: Sequence[Tensor], on_gpu: bool = False) -> int:
    """Returns how many kernels make random bits, keys not counted."""
    schedule = schedule_graphs([tensor.op for tensor in tensors], GPU_TARGET if on_gpu else None)
    texts = [format_kernel(item.kernel) for item in schedule.items if isinstance(item, ScheduleItem)]
    return sum(any("THREEFRY" in line and not line.endswith("()") for line in text.splitlines()) for text in texts)


def dropped() -> list[Tensor]:
    w = numbers(16, 24).requires_grad_()
    loss = (F.dropout(F.relu(numbers(32, 16) @ w), 0.1) @ numbers(24, 8)).square().sum()
    loss.backward()
    return [loss, w.grad]


def test_a_mask_of_dropout_is_drawn_once_for_the_step_and_its_gradient():
    assert num_drawing(dropped()) == 1


def test_on_a_gpu_bits_are_drawn_again_where_they_are_read():
    assert num_drawing(dropped(), on_gpu=True) > 1


def test_an_index_that_is_made_of_draws_is_stored():
    """Words hidden by chance are looked up by an embedding, by its gradient and beside the loss."""
    words, table = pg.arange(60).reshape(4, 15) % 11, numbers(11, 8).requires_grad_()
    chosen = (pg.rand(4, 15) < 0.3) & (words != 0)
    loss = F.cross_entropy(table[words.masked_fill(chosen, 1)].view(-1, 8), words.masked_fill(~chosen, 3).view(-1) % 8)
    loss.backward()
    assert num_drawing([loss, table.grad]) == 1


@pytest.mark.parametrize(
    "function", [lambda x: x + pg.randn(64), lambda x: F.silu(x + pg.rand(64)), lambda _: pg.randn(64)]
)
def test_what_one_kernel_reads_is_drawn_in_it(function: Callable[[Tensor], Tensor]):
    with watch() as counts:
        function(numbers(64)).realize()
    assert counts.kernels == 1


def test_equal_draws_of_a_jitted_function_are_one_kernel():
    """Their keys, which differ, are computed beside each other before them."""

    def step(x: Tensor) -> Tensor:
        for _ in range(4):
            x = F.dropout(F.relu(x @ w), 0.5)
        return x.sum()

    w, x = numbers(16, 16), numbers(32, 16)
    pg.manual_seed(3)
    expected = [step(x).item() for _ in range(3)]
    jitted = pg.jit(step)
    pg.manual_seed(3)
    with watch() as counts:
        assert jitted(x).item() == expected[0]
    assert counts.compiled <= 5
    assert [jitted(x).item() for _ in range(2)] == expected[1:]


def test_equal_layers_with_dropout_are_equal_kernels_on_a_gpu() -> None:
    def train(num_layers: int) -> None:
        weights = [numbers(64, 64).requires_grad_() for _ in range(num_layers)]
        optimizer = pg.optim.SGD(weights, lr=0.1)

        @pg.jit
        def step(h: Tensor) -> Tensor:
            for weight in weights:
                h = h + F.dropout(F.gelu(F.layer_norm(h, (64,)) @ weight), 0.1)
            loss = h.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        step(numbers(32, 64))

    with null_gpu(replace(GPU_TARGET, device="CUDA", language="cuda", arch="sm_80")) as (_, made):
        train(3)
        num_kernels = len(made)
        train(6)
        assert num_kernels > 4 and len(made) - num_kernels <= 2, (num_kernels, len(made))  # one makes the keys
