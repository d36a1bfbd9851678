"""Two half moons, told apart by a perceptron of two hidden layers: micrograd's demo.

    python -m examples.moons [--jit]

Source: Karpathy, micrograd, demo.ipynb: a max-margin loss, decay of the weights, a learning rate that falls with each step.
"""

import math
import sys

import numpy as np

import picograd as torch  # import torch: the same program on PyTorch

nn = torch.nn


def moons(N=100, noise=0.1, seed=0):
    """Points of two half circles, one turned into the other, and their side: (N, 2) and (N,) of 1 and -1."""
    rng = np.random.default_rng(seed)
    angle = np.linspace(0, math.pi, N // 2)
    upper = np.stack([np.cos(angle), np.sin(angle)], 1)
    points = np.concatenate([upper, [1, 0.5] - upper]) + noise * rng.standard_normal((N, 2))
    return torch.tensor(points, dtype=torch.float32), torch.tensor(np.repeat([-1.0, 1.0], N // 2), dtype=torch.float32)


def make():
    torch.manual_seed(1337)
    return nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))


def train(model, jit=False, num_epochs=5, num_steps=20):
    """Yields the epoch and the loss of each step, over all points."""
    x, y = moons()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def step(x, y):
        scores = model(x).squeeze(1)  # (N,)
        data_loss = (1 - y * scores).relu().mean()
        decay = 1e-4 * sum((p * p).sum() for p in model.parameters())
        loss = data_loss + decay
        accuracy = ((scores > 0) == (y > 0)).float().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, accuracy

    if jit:
        step = torch.jit(step)
    for k in range(num_epochs * num_steps):
        for group in optimizer.param_groups:
            group["lr"] = 1.0 - 0.9 * k / (num_epochs * num_steps)
        loss, accuracy = step(x, y)
        if k % num_steps == num_steps - 1:
            print(f"step {k}: loss {loss.item():.4f}, {accuracy.item():.0%} right")
        yield k // num_steps, loss.item()


def main(jit=False):
    return [loss for _, loss in train(make(), jit)]


if __name__ == "__main__":
    main("--jit" in sys.argv)
