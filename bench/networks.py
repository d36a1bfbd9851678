"""Steps of training of the networks of `picograd train` in picograd and in PyTorch, in turns.

    python -m bench.networks                      all of them, at the sizes of `picograd train`
    python -m bench.networks --only cnn,bert --threads 1 --rounds 15

In:    nothing
Out:   a row of Markdown for each network: its weights, the time of a step of AdamW in PyTorch, and of torch.compile,
       picograd jitted and picograd as written over it; how far the losses of the first steps are apart, and the gradients
       of the first

Both start from the same weights and read the same batch; PyTorch's AdamW is fused. The networks of PyTorch are those that
tests hold beside ours (tests/models/twins.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import tyro

import picograd as pg
from bench.driver import bind_to_cores
from bench.turns import Arguments, Case, Compile, as_written, measure
from tests.models.twins import TWINS, loss_of, with_weights_of

STEPS_COMPARED = 5
VARIANTS: dict[str, dict[str, str]] = {"torch": {}, "torch.compile": {}, "picograd": {}, "eager": {}}


def start(name: str, framework: Any) -> tuple[Any, list[Any]]:
    """Returns a network with the weights that both begin with, and the batch that both read."""
    twin = TWINS[name]
    torch.manual_seed(0)
    network: Any = twin.theirs(twin.whole)
    if framework is not torch:
        network = with_weights_of(twin.ours(twin.whole), network)
    return network, [framework.tensor(part) for part in twin.batch(np.random.default_rng(0), twin.whole)]


def make_step(name: str, framework: Any, compiled: Compile) -> Callable[[], float]:
    """Returns a step of AdamW on one batch, whose loss it returns."""
    twin, (network, batch) = TWINS[name], start(name, framework)
    adamw = partial(torch.optim.AdamW, fused=True) if framework is torch else pg.optim.AdamW
    optimizer = adamw(network.parameters(), lr=1e-3)

    @compiled
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = loss_of(twin.forward(network, x), y, framework.nn.functional)
        loss.backward()
        optimizer.step()
        return loss

    return lambda: float(step(*batch).item())


CASES = {name: Case(0.0, make=partial(make_step, name)) for name in TWINS}


@cache
def num_weights(name: str) -> int:
    """Returns the number of weights of a network."""
    return sum(weight.numel() for weight in TWINS[name].theirs(TWINS[name].whole).parameters())


def distance(name: str) -> float:
    """Returns the largest relative distance of the losses of the first steps."""
    ours, theirs = make_step(name, pg, pg.jit), make_step(name, torch, as_written)
    return max(abs(ours() / theirs() - 1.0) for _ in range(STEPS_COMPARED))


def gradients(name: str, framework: Any) -> dict[str, Any]:
    """Returns the gradients of the first step by the names of weights, float32 arrays."""
    network, (x, y) = start(name, framework)
    loss_of(TWINS[name].forward(network, x), y, framework.nn.functional).backward()
    return {of: np.asarray(p.grad.numpy()) for of, p in network.named_parameters() if p.grad is not None}


def gradient_distance(name: str) -> float:
    """Returns the largest distance of an element of the gradients, over the largest element of its weight's."""
    ours, theirs = gradients(name, pg), gradients(name, torch)
    return max(float(np.abs(ours[of] - found).max() / np.abs(found).max()) for of, found in theirs.items() if found.any())


def row(name: str, seconds: dict[str, float]) -> str:
    """Returns the line of one network."""
    ratios = " | ".join(f"{seconds[variant] / seconds['torch']:.2f}" for variant in VARIANTS if variant != "torch")
    apart = f"{distance(name):.0e} | {gradient_distance(name):.0e}"
    return f"| {name} | {num_weights(name):,} | {seconds['torch'] * 1e3:.2f} | {ratios} | {apart} |"


def main(arguments: Arguments) -> None:
    """Prints the table."""
    bind_to_cores(arguments.threads)
    print("| network | weights | PyTorch, ms | torch.compile | picograd, jitted | as written | losses apart | gradients |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|", flush=True)
    measure("bench.networks", arguments.names(CASES), arguments.threads, arguments.rounds, row, variants=VARIANTS)


if __name__ == "__main__":
    main(tyro.cli(Arguments))
