"""pg.checkpoint: what it saves, measured on a GPT of twelve layers."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch

import picograd as pg
from picograd.look import watch
from picograd_programs.models.gpt import GPT, GPTConfig
from tests.helpers import forgotten, same_value

B, T, C, V = 8, 32, 32, 16  # batch, length, width, vocabulary
STREAM_NBYTES = 4 * B * T * C
F = pg.nn.functional


def peak_of_step(layers: int, is_checkpointed: bool) -> tuple[int, list[float]]:
    """Returns the bytes that a jitted training step needs beyond network and data, and the losses of three steps."""
    pg.manual_seed(0)
    model = GPT(GPTConfig(vocabulary=V, block=T, layers=layers, heads=2, width=C))
    optimizer = pg.optim.SGD(model.parameters(), lr=0.1)
    rng = np.random.default_rng(0)
    x, y = (pg.Tensor(rng.integers(0, V, (B, T)).astype(np.int32)) for _ in range(2))

    @pg.jit
    def step() -> pg.Tensor:
        optimizer.zero_grad()
        stream = model.wte(x) + model.wpe.weight
        for block in model.h:
            stream = pg.checkpoint(block, stream) if is_checkpointed else block(stream)
        loss = F.cross_entropy((model.ln_f(stream) @ model.wte.weight.T).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        return loss

    losses = [step().item() for _ in range(3)]
    gc.collect()
    held = pg.memory_allocated()
    pg.reset_peak_memory_stats()
    step().realize()
    return pg.max_memory_allocated() - held, losses


def test_a_checkpointed_layer_keeps_its_input_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each further layer: one stream, where the plain network keeps some sixteen. Twelve layers: a fifth in all."""
    monkeypatch.setenv("PICOGRAD_DEVICE", "CPU")
    plain_2, _ = peak_of_step(2, False)
    plain_12, losses = peak_of_step(12, False)
    kept_2, _ = peak_of_step(2, True)
    kept_12, losses_again = peak_of_step(12, True)
    assert losses == losses_again
    assert (kept_12 - kept_2) / 10 <= 1.01 * STREAM_NBYTES
    assert (plain_12 - plain_2) / 10 >= 12 * STREAM_NBYTES
    assert kept_12 <= 0.25 * plain_12


NUMBERS: dict[str, Any] = {
    "factor": lambda L, h, a: h.tanh() * a + 0.5,
    "exponent": lambda L, h, a: (h.abs() + 0.1) ** a,
    "slope": lambda L, h, a: L.nn.functional.leaky_relu(h, a),
    "temperature": lambda L, h, a: (h / a).softmax(-1),
    "margin": lambda L, h, a: L.nn.functional.pad(h, (1, 1), value=a),
}


@pytest.mark.parametrize("how", ["checkpoint", "outline"])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_that_changes_at_each_call_is_an_input_of_a_plan(name: str, how: str) -> None:
    array = np.linspace(-1, 1, 9, dtype=np.float32).reshape(3, 3)
    (ours, theirs), planned = (lib.tensor(array, requires_grad=True) for lib in (pg, torch)), []
    function: Any = pg.checkpoint if how == "checkpoint" else lambda f, *args: pg.outline(f)(*args)
    forgotten()  # all cases plan at one line, and a line that plans too often has its graphs computed in pieces
    for number in (0.3, 0.5, 1.0, 0.01, 2.0, 0.5, 0.7, 0.9, 0.8, 0.6):  # 0.5 and 1.0 are elsewhere in the graphs, too
        ours.grad = theirs.grad = None
        with watch() as counts:
            result = function(lambda x, number: NUMBERS[name](pg, x @ x, number), ours, number)
            (result * result).sum().backward()
            result.detach().numpy()
        planned.append(counts.scheduled)
        expected = NUMBERS[name](torch, theirs @ theirs, number)
        (expected * expected).sum().backward()
        same_value(result, expected, 1e-4, 1e-5)
        same_value(ours.grad, theirs.grad, 1e-4, 1e-5)
    assert not any(planned[-2:])
