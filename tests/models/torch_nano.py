"""The network of nano in PyTorch, with parameters of the same names, and its optimizer of matrices."""

from __future__ import annotations

import torch
from torch.nn import functional as TF

from picograd_programs.nano.network import BASE, FEATURES, NanoConfig


class TorchAttention(torch.nn.Module):
    def __init__(self, heads: int, shared: int):
        super().__init__()
        self.shared, width = shared, heads * FEATURES
        self.q = torch.nn.Linear(width, width, bias=False)
        self.k = torch.nn.Linear(width, shared * FEATURES, bias=False)
        self.v = torch.nn.Linear(width, shared * FEATURES, bias=False)
        self.proj = torch.nn.Linear(width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, length, width = x.shape
        q, k, v = (linear(x).view(rows, length, -1, FEATURES).transpose(1, 2) for linear in (self.q, self.k, self.v))
        q, k = (TF.rms_norm(rotated(each), (FEATURES,)) for each in (q, k))
        k, v = (each.repeat_interleave(q.shape[1] // self.shared, 1) for each in (k, v))
        scores = (q @ k.transpose(2, 3) / FEATURES**0.5).masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
        return self.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, length, width))


def rotated(x: torch.Tensor) -> torch.Tensor:
    """Rotates by complex numbers: feature i is the real part, feature i + D/2 the imaginary one."""
    half, length = x.shape[-1] // 2, x.shape[-2]
    angle = torch.arange(length)[:, None] * BASE ** (-torch.arange(half) / half)
    turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


class TorchBlock(torch.nn.Module):
    def __init__(self, config: NanoConfig):
        super().__init__()
        self.attn = TorchAttention(config.heads, config.shared_heads)
        self.fc = torch.nn.Linear(config.width, 4 * config.width, bias=False)
        self.proj = torch.nn.Linear(4 * config.width, config.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        width = (x.shape[-1],)
        x = x + self.attn(TF.rms_norm(x, width))
        return x + self.proj(self.fc(TF.rms_norm(x, width)).relu() ** 2)


class TorchNano(torch.nn.Module):
    def __init__(self, config: NanoConfig):
        super().__init__()
        self.embedding = torch.nn.Embedding(config.vocabulary, config.width)
        self.blocks = torch.nn.ModuleList(TorchBlock(config) for _ in range(config.layers))
        self.head = torch.nn.Linear(config.width, config.vocabulary, bias=False)
        for parameter in self.parameters():
            torch.nn.init.normal_(parameter, 0.0, 0.1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = TF.rms_norm(self.embedding(tokens), (self.embedding.embedding_dim,))
        for block in self.blocks:
            x = block(x)
        return 15 * torch.tanh(self.head(TF.rms_norm(x, (x.shape[-1],))) / 15)


class Muon(torch.optim.Optimizer):
    """Jordan's Muon in float32, as its page has it: Nesterov momentum, five steps of Newton and Schulz.

    torch.optim.Muon makes these steps in bfloat16.
    """

    def __init__(self, groups: list[dict[str, object]]):
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                running = self.state[p].setdefault("running", torch.zeros_like(p))
                running.lerp_(p.grad, 1 - group["momentum"])
                x = p.grad.lerp(running, group["momentum"])
                tall = x.shape[0] > x.shape[1]
                x = x.T if tall else x
                x = x / (x.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.T
                    x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
                p -= group["lr"] * max(1, p.shape[0] / p.shape[1]) ** 0.5 * (x.T if tall else x)
