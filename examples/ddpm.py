"""Diffusion: a small U-Net learns to take noise out of images, and draws new ones from noise alone.

    python -m examples.ddpm [--jit]

Source: Ho, Jain, Abbeel 2020, arXiv:2006.11239; the U-Net: Ronneberger, Fischer, Brox 2015, arXiv:1505.04597.
"""

import copy
import math
import sys

import picograd as torch  # import torch: the same program on PyTorch
from examples.images import images

nn, F = torch.nn, torch.nn.functional
C, E, STEPS = 16, 32, 50  # channels, features of a time, times of the diffusion


def time_features(t):  # (B,) -> (B, E)
    frequencies = torch.exp(-math.log(10000) * torch.arange(E // 2) / (E // 2))
    angles = t[:, None].float() * frequencies[None]
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Residual(nn.Module):
    def __init__(self, fan_in, fan_out):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, fan_in), nn.Conv2d(fan_in, fan_out, 3, padding=1)
        self.time = nn.Linear(E, fan_out)
        self.norm2, self.conv2 = nn.GroupNorm(4, fan_out), nn.Conv2d(fan_out, fan_out, 3, padding=1)
        self.skip = nn.Conv2d(fan_in, fan_out, 1) if fan_in != fan_out else nn.Identity()

    def forward(self, x, features):  # (B, C, Y, X), (B, E)
        h = self.conv1(F.silu(self.norm1(x)))
        h = h + self.time(features)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(E, E), nn.SiLU(), nn.Linear(E, E))
        self.first = nn.Conv2d(1, C, 3, padding=1)
        self.down1, self.shrink1 = Residual(C, C), nn.Conv2d(C, C, 3, stride=2, padding=1)
        self.down2, self.shrink2 = Residual(C, 2 * C), nn.Conv2d(2 * C, 2 * C, 3, stride=2, padding=1)
        self.middle = Residual(2 * C, 2 * C)
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.up2, self.up1 = Residual(4 * C, C), Residual(2 * C, C)
        self.last = nn.Conv2d(C, 1, 3, padding=1)

    def forward(self, x, t):  # (B, 1, 16, 16), (B,)
        features = self.time(time_features(t))
        a = self.down1(self.first(x), features)  # (B, C, 16, 16)
        b = self.down2(self.shrink1(a), features)  # (B, 2C, 8, 8)
        h = self.middle(self.shrink2(b), features)  # (B, 2C, 4, 4)
        h = self.up2(torch.cat([self.grow(h), b], dim=1), features)  # (B, C, 8, 8)
        h = self.up1(torch.cat([self.grow(h), a], dim=1), features)  # (B, C, 16, 16)
        return self.last(h)


def schedule():
    """Returns the variance added at each time, and the share of the image left by then: (STEPS,) each."""
    betas = torch.linspace(1e-4, 0.1, STEPS)
    return betas, torch.cumprod(1 - betas, dim=0)


def make():
    torch.manual_seed(0)
    return UNet()


def train(model, jit=False, num_epochs=5, num_steps=10, B=32, count=4):
    """Yields the epoch and the loss of each step; after each epoch it draws `count` images."""
    x = 2 * torch.tensor(images(1000, pixels=16)[0]) - 1  # (N, 1, 16, 16)
    alphas = schedule()[1]
    ema = copy.deepcopy(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def step(x0):
        t = torch.randint(0, STEPS, (len(x0),))
        noise = torch.randn_like(x0)
        a = alphas[t][:, None, None, None]
        xt = a.sqrt() * x0 + (1 - a).sqrt() * noise
        loss = F.mse_loss(model(xt, t), noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for average, p in zip(ema.parameters(), model.parameters()):
                average.lerp_(p, 0.05)
        return loss

    denoise = ema
    if jit:
        step, denoise = torch.jit(step), torch.jit(lambda x, t: ema(x, t))
    for epoch in range(num_epochs):
        for _ in range(num_steps):
            x0 = x[torch.randint(0, len(x), (B,))]
            yield epoch, step(x0).item()
        drawn = sample(denoise, count)
        yield epoch, drawn.mean().item()


@torch.no_grad()
def sample(denoise, count):
    """Returns new images (count, 1, 16, 16): noise that is made less, time by time."""
    betas, alphas = schedule()
    x = torch.randn(count, 1, 16, 16)
    for t in reversed(range(STEPS)):
        noise = denoise(x, torch.full((count,), t))
        x = (x - betas[t] / (1 - alphas[t]).sqrt() * noise) / (1 - betas[t]).sqrt()
        if t > 0:
            x = x + betas[t].sqrt() * torch.randn_like(x)
    return x


def main(jit=False):
    losses = [loss for _, loss in train(make(), jit)]
    print(f"loss {losses[0]:.4f}, at the end {losses[-2]:.4f}")
    return losses


if __name__ == "__main__":
    main("--jit" in sys.argv)
