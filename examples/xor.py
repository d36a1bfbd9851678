"""XOR by a network of one hidden layer: the smallest problem that a single layer cannot solve.

    python -m examples.xor        # a step as Python runs it
    python -m examples.xor --jit  # the step as one plan

Source: Rumelhart, Hinton, Williams 1986, "Learning internal representations by error propagation".
"""

import sys

import picograd as torch  # import torch: the same program on PyTorch

nn, F = torch.nn, torch.nn.functional


def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


def train(model, jit=False, num_epochs=5, num_steps=100):
    """Yields the epoch and the loss of each step; all four examples are one batch."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])  # (4, 2)
    y = torch.tensor([[0.0], [1.0], [1.0], [0.0]])  # (4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def step(x, y):
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if jit:
        step = torch.jit(step)
    for epoch in range(num_epochs):
        for _ in range(num_steps):
            yield epoch, step(x, y).item()


def main(jit=False):
    model = make()
    losses = [loss for _, loss in train(model, jit)]
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f}")
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    print(model(x).sigmoid().round().flatten().tolist())
    return losses


if __name__ == "__main__":
    main("--jit" in sys.argv)
