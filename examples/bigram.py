"""makemore, part 1: a table of how often a character follows another, learned by gradient descent.

    python -m examples.bigram [--jit] [names.txt]

Source: Karpathy, makemore, "The spelled-out intro to language modeling".
"""

import sys

import picograd as torch  # import torch: the same program on PyTorch
from examples.words import CHARACTERS, windows, words

nn, F = torch.nn, torch.nn.functional
V = len(CHARACTERS)


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        self.W = nn.Parameter(torch.randn(V, V))

    def forward(self, x):  # x: (N,)
        return F.one_hot(x, V).float() @ self.W  # (N, V)


def make():
    torch.manual_seed(2147483647)
    return Bigram()


def train(model, jit=False, num_epochs=5, num_steps=20, names=None):
    """Yields the epoch and the loss of each step, over all pairs of characters."""
    contexts, targets = windows(names or words(), 1)
    x, y = torch.tensor(contexts).flatten(), torch.tensor(targets)  # (N,), (N,)

    def step(x, y):
        logits = model(x)
        counts = logits.exp()
        probabilities = counts / counts.sum(1, keepdim=True)
        loss = -probabilities[torch.arange(len(y)), y].log().mean() + 0.01 * (model.W**2).mean()
        model.W.grad = None
        loss.backward()
        with torch.no_grad():
            model.W -= 50 * model.W.grad
        return loss

    if jit:
        step = torch.jit(step)
    for epoch in range(num_epochs):
        for _ in range(num_steps):
            yield epoch, step(x, y).item()


@torch.no_grad()
def sample(model):
    """Returns a name, drawn a character at a time."""
    ix, name = 0, []
    while True:
        probabilities = F.softmax(model(torch.tensor([ix])), 1)
        ix = torch.multinomial(probabilities, 1).item()
        if ix == 0 or len(name) == 20:
            return "".join(name)
        name.append(CHARACTERS[ix])


def main(jit=False, path=None):
    model = make()
    losses = [loss for _, loss in train(model, jit, names=words(path))]
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f}")
    print([sample(model) for _ in range(5)])
    return losses


if __name__ == "__main__":
    files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    main("--jit" in sys.argv, *files)
