"""A variational autoencoder: images as points of a plane of eight axes, and new images from points drawn there.

    python -m examples.vae [--jit]

Source: Kingma, Welling 2013, arXiv:1312.6114.
"""

import sys

import picograd as torch  # import torch: the same program on PyTorch
from examples.images import images

nn, F = torch.nn, torch.nn.functional
P, H, Z = 784, 128, 8  # pixels, hidden units, axes of the code


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.mean, self.logvar = nn.Linear(P, H), nn.Linear(H, Z), nn.Linear(H, Z)
        self.decoder = nn.Sequential(nn.Linear(Z, H), nn.ReLU(), nn.Linear(H, P))

    def forward(self, x):  # (B, P)
        h = F.relu(self.hidden(x))
        mean, logvar = self.mean(h), self.logvar(h)  # (B, Z)
        std = torch.exp(0.5 * logvar)
        z = mean + std * torch.randn_like(std)
        return self.decoder(z), mean, logvar


def make():
    torch.manual_seed(0)
    return VAE()


def train(model, jit=False, num_epochs=5, count=1000, B=64):
    """Yields the epoch and the loss of each step, an image's share of it."""
    x = torch.tensor(images(count)[0]).view(-1, P)  # (N, P)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(xb):
        logits, mean, logvar = model(xb)
        reconstruction = F.binary_cross_entropy_with_logits(logits, xb, reduction="sum")
        divergence = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        loss = (reconstruction + divergence) / len(xb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, reconstruction, divergence

    if jit:
        step = torch.jit(step)
    for epoch in range(num_epochs):
        order = torch.randperm(len(x))
        for i in range(0, len(x), B):
            loss, reconstruction, divergence = step(x[order[i : i + B]])
            yield epoch, loss.item()
        print(f"epoch {epoch}: reconstruction {reconstruction.item():.1f}, divergence {divergence.item():.1f}")


@torch.no_grad()
def sample(model, count):
    """Returns new images (count, 1, 28, 28)."""
    return model.decoder(torch.randn(count, Z)).sigmoid().view(-1, 1, 28, 28)


def main(jit=False):
    model = make()
    losses = [loss for _, loss in train(model, jit)]
    print("a new image:")
    for row in sample(model, 1)[0, 0, ::2].tolist():
        print("".join(" .:*#"[min(int(5 * pixel), 4)] for pixel in row))
    return losses


if __name__ == "__main__":
    main("--jit" in sys.argv)
