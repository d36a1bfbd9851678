"""Layers of BART and Whisper by the names of their weights, in PyTorch's float64."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as TF


class NamedLayers:
    """The layers of a network, whose weights have names such as `encoder.layers.0.self_attn.q_proj.weight`."""

    def __init__(self, weights: dict[str, torch.Tensor], heads: int):
        self.weights, self.heads = {name.removeprefix("model."): value.double() for name, value in weights.items()}, heads

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return TF.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return TF.layer_norm(x, x.shape[1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-5)

    def attention(self, x: torch.Tensor, memory: torch.Tensor, name: str, is_causal: bool = False) -> torch.Tensor:
        """x (T, C), memory (S, C) -> (T, C)."""
        q, k, v = (
            self.linear(each, f"{name}.{part}_proj").unflatten(1, (self.heads, -1)).transpose(0, 1)
            for part, each in (("q", x), ("k", memory), ("v", memory))
        )
        scores = q @ k.transpose(1, 2) / (x.shape[1] / self.heads) ** 0.5
        if is_causal:
            scores = scores + torch.full(scores.shape[1:], -math.inf, dtype=torch.float64).triu(1)
        return self.linear((scores.softmax(-1) @ v).transpose(0, 1).flatten(1), f"{name}.out_proj")
