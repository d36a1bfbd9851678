"""The same models in PyTorch, with parameters of the same names.

Letters: B batch, T positions, C width, H heads, D features of a head.
"""

from __future__ import annotations

import torch
from torch.nn import functional as F

from picograd import Tensor, nn
from picograd_programs.models.gpt import GPTConfig


class TorchBlock(torch.nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.heads = config.heads
        self.ln_1 = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.ln_2 = torch.nn.LayerNorm(config.width, bias=config.bias)
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.c_attn = torch.nn.Linear(config.width, 3 * config.width, config.bias)
        self.attn.c_proj = torch.nn.Linear(config.width, config.width, config.bias)
        self.mlp.c_fc = torch.nn.Linear(config.width, 4 * config.width, config.bias)
        self.mlp.c_proj = torch.nn.Linear(4 * config.width, config.width, config.bias)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        batch, length, width = x_BTC.shape
        parts = self.attn.c_attn(self.ln_1(x_BTC)).split(width, 2)
        q, k, v = (part.reshape(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y_BHTD = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x_BTC = x_BTC + self.attn.c_proj(y_BHTD.transpose(1, 2).reshape(batch, length, width))
        return x_BTC + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x_BTC))))


class TorchGPT(torch.nn.Module):
    def __init__(self, config: GPTConfig):
        super().__init__()
        self.wte = torch.nn.Embedding(config.vocabulary, config.width)
        self.wpe = torch.nn.Embedding(config.block, config.width)
        self.h = torch.nn.ModuleList(TorchBlock(config) for _ in range(config.layers))
        self.ln_f = torch.nn.LayerNorm(config.width, bias=config.bias)

    def forward(self, tokens_BT: torch.Tensor, targets_BT: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x_BTC = self.wte(tokens_BT) + self.wpe(torch.arange(tokens_BT.shape[1]))
        for block in self.h:
            x_BTC = block(x_BTC)
        logits_BTV = self.ln_f(x_BTC) @ self.wte.weight.T
        return logits_BTV, F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=-1)


def with_weights_of(ours: nn.Module, theirs: torch.nn.Module) -> nn.Module:
    """Gives our module the weights of the PyTorch one, and returns it."""
    ours.load_state_dict({name: Tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return ours


def torch_optimizer(model: torch.nn.Module, lr: float, weight_decay: float = 0.1) -> torch.optim.AdamW:
    """Returns nanoGPT's AdamW: matrices decay, vectors do not."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
