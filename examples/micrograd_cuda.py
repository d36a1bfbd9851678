"""micrograd-cuda's README script on picograd: an MLP of vectors, a step at a time, on any device.

    python examples/micrograd_cuda.py            # the default device
    python examples/micrograd_cuda.py cuda       # a GPU
"""

from __future__ import annotations

import sys

import picograd as pg
from picograd import Tensor
from picograd.nn import MLP


def train(device: str, steps: int = 20, width: int = 300, batch: int = 4) -> list[float]:
    """Returns the loss before each step."""
    pg.manual_seed(0)
    model = MLP(width, [width, width, 1]).to(device)
    xs = Tensor.randn(batch, width).to(device)  # batch first, as in PyTorch
    ys = Tensor([[1.0], [-1.0], [-1.0], [1.0]]).to(device)
    losses = []
    for _ in range(steps):
        prediction = model(xs)
        loss = ((prediction - ys) ** 2).sum()
        model.zero_grad()
        loss.backward()
        with pg.no_grad():
            for p in model.parameters():
                p -= 0.01 * p.grad
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    for step, loss in enumerate(train(chosen)):
        print(f"step {step}: loss {loss:.6f}")
