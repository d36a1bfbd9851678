"""makemore, parts 2 to 4: a perceptron of characters with batch norm written out.

    python -m examples.makemore_mlp [--jit] [names.txt]

Source: Bengio et al. 2003, "A neural probabilistic language model"; Ioffe, Szegedy 2015, arXiv:1502.03167;
Karpathy, makemore.
"""

import random
import sys

import picograd as torch  # import torch: the same program on PyTorch
from examples.words import CHARACTERS, windows, words

nn, F = torch.nn, torch.nn.functional
V, T, C, H = len(CHARACTERS), 3, 10, 100  # characters, context, features of a character, hidden units


class BatchNorm(nn.Module):
    def __init__(self, H, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.gamma, self.beta = nn.Parameter(torch.ones(H)), nn.Parameter(torch.zeros(H))
        self.register_buffer("running_mean", torch.zeros(H))
        self.register_buffer("running_var", torch.ones(H))

    def forward(self, x):  # (B, H)
        if self.training:
            mean, var = x.mean(0), x.var(0)
            with torch.no_grad():
                self.running_mean += self.momentum * (mean - self.running_mean)
                self.running_var += self.momentum * (var - self.running_var)
        else:
            mean, var = self.running_mean, self.running_var
        return self.gamma * (x - mean) / torch.sqrt(var + self.eps) + self.beta


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.C = nn.Embedding(V, C)
        self.hidden, self.norm = nn.Linear(T * C, H, bias=False), BatchNorm(H)
        self.head = nn.Linear(H, V)

    def forward(self, x):  # (B, T)
        emb = self.C(x)  # (B, T, C)
        h = torch.tanh(self.norm(self.hidden(emb.view(emb.shape[0], -1))))  # (B, H)
        return self.head(h)  # (B, V)


def make():
    torch.manual_seed(2147483647)
    return MLP()


def train(model, jit=False, num_epochs=4, num_steps=50, B=32, names=None):
    """Yields the epoch and the loss of each step, and after each epoch that of the names it does not learn from."""
    names = list(names or words())
    random.Random(42).shuffle(names)
    cut = len(names) * 9 // 10
    Xtr, Ytr = map(torch.tensor, windows(names[:cut], T))  # (N, T), (N,)
    Xdev, Ydev = map(torch.tensor, windows(names[cut:], T))
    parameters = list(model.parameters())

    def step(Xb, Yb, lr):
        logits = model(Xb)
        loss = F.cross_entropy(logits, Yb)
        for p in parameters:
            p.grad = None
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= lr * p.grad
        return loss

    if jit:
        step = torch.jit(step)
    for epoch in range(num_epochs):
        model.train()
        lr = torch.tensor(0.1 if epoch < num_epochs - 1 else 0.01)
        for _ in range(num_steps):
            ix = torch.randint(0, Xtr.shape[0], (B,))
            yield epoch, step(Xtr[ix], Ytr[ix], lr).item()
        model.eval()
        with torch.no_grad():
            yield epoch, F.cross_entropy(model(Xdev), Ydev).item()


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
    print(f"loss {losses[0]:.4f}, at the end {losses[-1]:.4f} of new names")
    print([sample(model) for _ in range(5)])
    return losses


if __name__ == "__main__":
    files = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    main("--jit" in sys.argv, *files)
