"""Products, convolutions and attentions, which arithmetic limits: picograd, and PyTorch in turns with it.

    python -m bench.contractions
    python -m bench.contractions --only attention,convolution --threads 1 --rounds 15

In:    nothing
Out:   a row for each case: GFLOP/s, and PyTorch's time over picograd's

FLOPs are those of the mathematics: a causal attention counts half the scores, its gradient the five products that a kernel
without stored scores needs; the gradients of a convolution, two products, are timed with a forward that may be left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tyro

from bench.driver import bind_to_cores
from bench.turns import Arguments, Bytes, Case, Compile, measure

ATTENTIONS = [  # batch, heads, length, features
    (12, 4, 64, 32), (4, 8, 256, 64), (1, 8, 1024, 64), (1, 4, 2048, 128), (1, 2, 4096, 64), (1, 2, 8192, 32),
]  # fmt: skip
CONVOLUTIONS = {  # x, w, stride, padding
    "3x3, 64 of 56x56": ((8, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    "3x3, 256 of 14x14": ((8, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    "7x7, 3 of 224x224": ((8, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    "5x5, 32 of 24x24": ((128, 32, 24, 24), (32, 32, 5, 5), 1, 0),
}
PRODUCTS = [(256, 256, 256), (768, 768, 3072), (256, 768, 50257)]  # m, k, n
BATCH = 128


def _attention(is_causal: bool) -> Callable[..., Any]:
    return lambda m, F, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


def _attentions() -> dict[str, Case]:
    found = {}
    for B, H, T, D in ATTENTIONS:
        for is_causal in (False, True):
            pairs = B * H * T * T / (2 if is_causal else 1)
            name, shape = f"attention {B}x{H}x{T}x{D}{' causal' * is_causal}", (B, H, T, D)
            found[name] = Case(4.0 * pairs * D, (shape,) * 3, _attention(is_causal))
            found[f"{name}, gradients"] = Case(14.0 * pairs * D, (shape,) * 4, _attention(is_causal), is_pull=True)
    return found


def _convolutions() -> dict[str, Case]:
    """Returns each convolution of `CONVOLUTIONS`, and its gradients, with the operations of its products."""
    found = {}
    for name, (x, w, stride, padding) in CONVOLUTIONS.items():
        side = (x[2] + 2 * padding - w[2]) // stride + 1
        out = (x[0], w[0], side, side)
        flops = 2.0 * np.prod(out) * np.prod(w[1:])

        def compute(m: Any, F: Any, x: Any, w: Any, stride: int = stride, padding: int = padding) -> Any:
            return F.conv2d(x, w, stride=stride, padding=padding)

        found[f"convolution {name}"] = Case(flops, (x, w), compute)
        found[f"convolution {name}, gradients"] = Case(2 * flops, (x, w, out), compute, is_pull=True)
    return found


def network_step(m: Any, compiled: Compile) -> Callable[[], Any]:
    """Returns a step of training of a network for MNIST: convolutions of 32, 32, 64 and 64 channels, Adam."""
    nn = m.nn
    network = nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(576, 10),
    )  # fmt: skip
    optimizer = m.optim.Adam(network.parameters(), 1e-3)
    rng = np.random.default_rng(0)
    x = m.tensor(rng.standard_normal((BATCH, 1, 28, 28)).astype(np.float32))
    y = m.tensor(rng.integers(0, 10, BATCH))

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return compiled(step)


NETWORK_FLOPS = 6.0 * BATCH * (24**2 * 32 * 25 + 20**2 * 32 * 800 + 8**2 * 64 * 288 + 6**2 * 64 * 576 + 5760)
CASES: dict[str, Case] = {
    **_attentions(),
    **_convolutions(),
    "network of convolutions, a step": Case(NETWORK_FLOPS, make=network_step),
    **{
        f"product {m}x{k} @ {k}x{n}": Case(2.0 * m * k * n, ((m, k), (k, n)), lambda m, F, a, b: a @ b)
        for m, k, n in PRODUCTS
    },
    "vector, int8 weight": Case(
        2.0 * 4096**2, (Bytes((4096, 4096)), (4096, 1), (4096,)), lambda m, F, w, scale, x: (w.float() * scale) @ x
    ),
}  # fmt: skip


def row(name: str, seconds: dict[str, float]) -> str:
    """Returns the line of one case."""
    own = seconds["picograd"]
    rate = CASES[name].work / own / 1e9
    return f"{name:45} {own * 1e3:9.2f} ms {rate:7.1f} GFLOP/s   torch {seconds['torch'] / own:5.2f}x"


def main(arguments: Arguments) -> None:
    """Prints a row for each case."""
    bind_to_cores(arguments.threads)
    measure("bench.contractions", arguments.names(CASES), arguments.threads, arguments.rounds, row)


if __name__ == "__main__":
    main(tyro.cli(Arguments, prog="python -m bench.contractions"))
