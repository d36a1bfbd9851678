"""makemore, part 5: characters are joined by twos, pairs by twos, and so on, as in WaveNet.

    python -m examples.wavenet [--jit] [names.txt]

Source: van den Oord et al. 2016, arXiv:1609.03499; Karpathy, makemore.
"""

import random
import sys

import picograd as torch  # import torch: the same program on PyTorch
from examples.words import CHARACTERS, windows, words

nn, F = torch.nn, torch.nn.functional
V, T, C, H = len(CHARACTERS), 8, 10, 64  # characters, context, features of a character, hidden units


class FlattenConsecutive(nn.Module):
    def forward(self, x):  # (B, T, C)
        B, T, C = x.shape
        x = x.reshape(B, T // 2, C * 2)
        return x.squeeze(1) if x.shape[1] == 1 else x


class BatchNorm(nn.BatchNorm1d):
    def forward(self, x):  # (B, C), or (B, T, C) with statistics over B and T
        return super().forward(x) if x.dim() == 2 else super().forward(x.transpose(1, 2)).transpose(1, 2)


def join(fan_in):
    return [FlattenConsecutive(), nn.Linear(2 * fan_in, H, bias=False), BatchNorm(H), nn.Tanh()]


def make():
    torch.manual_seed(42)
    model = nn.Sequential(nn.Embedding(V, C), *join(C), *join(H), *join(H), nn.Linear(H, V))
    with torch.no_grad():
        model[-1].weight *= 0.1  # less sure at the start
    return model


def train(model, jit=False, num_epochs=4, num_steps=50, B=32, names=None):
    """Yields the epoch and the loss of each step; an epoch is a part of the examples, in a new order."""
    names = list(names or words())
    random.Random(42).shuffle(names)
    Xtr, Ytr = map(torch.tensor, windows(names, T))  # (N, T), (N,)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=num_epochs - 1, gamma=0.1)

    def step(Xb, Yb):
        loss = F.cross_entropy(model(Xb), Yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if jit:
        step = torch.jit(step)
    for epoch in range(num_epochs):
        order = torch.randperm(len(Xtr))
        Xep, Yep = Xtr[order], Ytr[order]
        for i in range(0, min(len(Xep), num_steps * B), B):
            Xb, Yb = Xep[i : i + B], Yep[i : i + B]
            yield epoch, step(Xb, Yb).item()
        scheduler.step()


@torch.no_grad()
def sample(model):
    """Returns a name, drawn a character at a time from a model that evaluates."""
    context = [0] * T
    name = ""
    while len(name) < 20:
        probabilities = F.softmax(model(torch.tensor([context])), dim=1)
        ix = torch.multinomial(probabilities, num_samples=1).item()
        if ix == 0:
            break
        context = context[1:] + [ix]
        name += CHARACTERS[ix]
    return name


def main(jit=False, path=None):
    model = make()
    losses = [loss for _, loss in train(model, jit, names=words(path))]
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f}")
    model.eval()
    print([sample(model) for _ in range(5)])
    return losses


if __name__ == "__main__":
    files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    main("--jit" in sys.argv, *files)
