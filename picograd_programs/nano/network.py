"""The network of nano, sized by its depth: a decoder with the parts that small GPTs have converged on.

    x = norm(embedding[tokens])
    x = x + attention(norm(x));  x = x + mlp(norm(x))          in each block
    logits = 15 tanh(head(norm(x)) / 15)

Norms have no weights, linear layers no biases; queries and keys are rotated by position and normalized; the MLP squares its
ReLU; the head has its own matrix; logits have a soft limit of 15.

Source: Karpathy 2025, nanochat, `GPT`. Its parts: Zhang, Sennrich 2019, arXiv:1910.07467 (RMSNorm); Su et al. 2021,
       arXiv:2104.09864 (rotations); Henry et al. 2020, arXiv:2010.04245 (norm of queries and keys); So et al. 2021,
       arXiv:2109.08668 (ReLU squared); Gemma Team 2024, arXiv:2408.00118, section 2 (soft cap); Ainslie et al. 2023,
       arXiv:2305.13245 (shared heads of keys and values).

Letters: B batch, T positions, S positions of the cache, C width, H heads, G heads of keys and values, D features of a head,
V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd import nn
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F
from picograd.nn import init
from picograd.optim.adam import AdamW
from picograd.optim.matrix_steps import Muon
from picograd.optim.optimizer import Optimizer
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_programs.models.cache import Cache, KVCache, Position, Positions, at_each, rows_at
from picograd_programs.models.rotary import Rotation, angles, turned

FEATURES = 64  # D
BASE = 10000.0  # of the angles


# ---- the dial ----
@dataclass(frozen=True)
class NanoConfig:
    """The shape of a network.

    vocabulary:    V
    context:       largest number of positions
    layers:        number of blocks
    heads:         H, number of query heads
    shared_heads:  G; divides heads
    cap:           soft limit of the logits

    Raises:
      ArgumentError: a number is below 1, or heads are not a multiple of shared_heads.
    """

    vocabulary: int
    context: int
    layers: int
    heads: int
    shared_heads: int
    cap: float = 15.0

    def __post_init__(self) -> None:
        for name in ("vocabulary", "context", "layers", "heads", "shared_heads"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"NanoConfig: {name} must be at least 1, got {getattr(self, name)}.")
        if self.heads % self.shared_heads:
            raise ArgumentError(f"NanoConfig: {self.heads} heads must be a multiple of {self.shared_heads} shared ones.")

    @property
    def width(self) -> int:
        """C."""
        return self.heads * FEATURES


def dialled(depth: int, vocabulary: int, context: int) -> NanoConfig:
    """Returns the configuration for a depth: the number of blocks, and of heads of 64 features.

    Source: nanochat, `base_train`, whose width is also 64 times the depth.

    >>> dialled(4, 1024, 128).width
    256
    """
    if depth < 1:
        raise ArgumentError(f"--depth: got {depth}, it must be at least 1.")
    return NanoConfig(vocabulary, context, depth, depth, depth)


# ---- parts ----
def norm(x: Tensor) -> Tensor:
    """Returns x / RMS(x) along the last axis.

    >>> norm(Tensor([[3.0, 4.0]])).round(3)
    Tensor([[0.849, 1.131]])
    """
    return F.rms_norm(x, (int(x.shape[-1]),))


class SelfAttention(nn.Module):
    """Attention of each position to the positions up to its own."""

    def __init__(self, config: NanoConfig):
        inner, shared = config.heads * FEATURES, config.shared_heads * FEATURES
        self.q = nn.Linear(config.width, inner, bias=False)
        self.k = nn.Linear(config.width, shared, bias=False)
        self.v = nn.Linear(config.width, shared, bias=False)
        self.proj = nn.Linear(inner, config.width, bias=False)

    def heads_of(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries (B, H, T, D), and keys and values (B, G, T, D)."""
        batch, length, _ = x_BTC.shape
        q, k, v = (
            linear(x_BTC).reshape(batch, length, -1, FEATURES).transpose(1, 2) for linear in (self.q, self.k, self.v)
        )
        return norm(turned(q, cos, sin, True)), norm(turned(k, cos, sin, True)), v

    def joined(self, y_BHTD: Tensor) -> Tensor:
        """Returns the heads' results concatenated per position, (B, T, C), after the output layer."""
        batch, heads, length, features = y_BHTD.shape
        out_BTC: Tensor = self.proj(y_BHTD.transpose(1, 2).reshape(batch, length, heads * features))
        return out_BTC

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        q, k, v = self.heads_of(x_BTC, cos, sin)
        return self.joined(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))

    def read_on(
        self, x_BTC: Tensor, cos: Tensor, sin: Tensor, cache: Cache, layer: int, position: Positions, mask: Any
    ) -> Tensor:
        """As forward, for positions from `position` on; keys and values go to the cache; `mask` as in `Cache.attend`."""
        return self.joined(cache.attend(layer, *self.heads_of(x_BTC, cos, sin), position, mask, enable_gqa=True))


class Block(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); the MLP has four times the width between its layers."""

    def __init__(self, config: NanoConfig):
        self.attn = SelfAttention(config)
        self.fc = nn.Linear(config.width, 4 * config.width, bias=False)
        self.proj = nn.Linear(4 * config.width, config.width, bias=False)

    def mlp(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        hidden: Tensor = self.fc(x_BTC).relu().square()
        out_BTC: Tensor = self.proj(hidden)
        return out_BTC

    def forward(self, x_BTC: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        x_BTC = x_BTC + self.attn(norm(x_BTC), cos, sin)
        return x_BTC + self.mlp(norm(x_BTC))

    def read_on(self, x_BTC: Tensor, *where: Any) -> Tensor:
        """As forward, with a cache; `where` as in SelfAttention."""
        x_BTC = (x_BTC + self.attn.read_on(norm(x_BTC), *where)).contiguous()
        return (x_BTC + self.mlp(norm(x_BTC))).contiguous()


# ---- the network ----
class Nano(nn.Module):
    """logits = cap tanh(head(norm(blocks(norm(embedding[tokens])))) / cap)

    The embedding is initialized from N(0, 1), matrices from N(0, 1 / C) (those with more inputs from less); the head and
    the matrices that write to the residual stream from 0, so that all tokens are equally likely at first.

    >>> model = Nano(NanoConfig(5, 8, 1, 1, 1))
    >>> model(Tensor([[1, 2, 3]])).shape
    (1, 3, 5)
    """

    def __init__(self, config: NanoConfig):
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if name == "head.weight" or name.endswith("proj.weight"):
                init.zeros_(parameter)
            elif name != "embedding.weight":
                init.normal_(parameter, 0.0, config.width**-0.5)
        self.angles = angles(Rotation(FEATURES, BASE), config.context)
        self.places = Tensor(np.arange(config.context, dtype=np.int32))
        realize([self.places, *self.angles])

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        """Returns the blocks' output for the tokens, (B, T, C), normalized.

        Raises:
          ShapeError: tokens are not (B, T), or T is 0 or longer than the context.
        """
        if tokens_BT.ndim != 2 or not 1 <= tokens_BT.shape[1] <= self.config.context:
            raise ShapeError(f"Nano: tokens must be (B, T) with T from 1 to {self.config.context}, got {tokens_BT.shape}.")
        cos, sin = (each[: tokens_BT.shape[1]] for each in self.angles)
        x_BTC = norm(self.embedding(tokens_BT))
        for block in self.blocks:
            x_BTC = block(x_BTC, cos, sin)
        return norm(x_BTC)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits (..., V) of the next token, for hidden (..., C)."""
        cap = self.config.cap
        logits: Tensor = self.head(hidden)
        return (logits / cap).tanh() * cap

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Returns the logits after each token, (B, T) -> (B, T, V)."""
        return self.logits(self.hidden(tokens_BT))

    # ---- beside a cache ----
    def cache(self, batch: int = 1, length: int | None = None) -> KVCache:
        """Returns an empty cache for texts of up to `length` tokens, by default the context.

        Raises:
          ArgumentError: the length is below 1 or above the context.
        """
        config = self.config
        length = config.context if length is None else length
        if not 1 <= length <= config.context:
            raise ArgumentError(f"Nano.cache: length must be from 1 to {config.context}, got {length}.")
        shape = (batch, config.shared_heads, length, FEATURES)
        return KVCache.empty(config.layers, shape, shape)

    def read_on(self, tokens_BT: Tensor, cache: Cache, position: Positions = 0) -> Tensor:
        """Returns the blocks' output for tokens from `position` on, with the cache as context.

        With a bound Variable as the position, one plan serves every position for a number of tokens.

        Returns:   (B, T, C), normalized

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or do not fit.
        """
        cache.check("Nano", tokens_BT, position)
        length = tokens_BT.shape[1]
        cos, sin = (rows_at(each, position, length) for each in self.angles)

        def mask_at(position: Position) -> Tensor | None:
            now = slice(position, position + length)
            return None if length == 1 else self.places[: position + length] <= self.places[now].unsqueeze(1)

        mask = at_each(mask_at, position)
        x_BTC = norm(self.embedding(tokens_BT))
        for layer, block in enumerate(self.blocks):
            x_BTC = block.read_on(x_BTC, cos, sin, cache, layer, position, mask)
        return norm(x_BTC)


# ---- what is trained how ----
def mean_loss(model: Nano, tokens_BT: Tensor, targets_BT: Tensor) -> Tensor:
    """Returns the mean cross-entropy, in nats; targets of -1 are ignored."""
    return F.cross_entropy(model(tokens_BT).flatten(0, 1), targets_BT.flatten(), ignore_index=-1)


def optimizers_of(model: Nano, rate: float = 1.0) -> tuple[Optimizer, Optimizer]:
    """Returns Muon for the matrices of the blocks, and AdamW for the embedding and the head, which have a row per token.

    Args:
      rate:  factor of all learning rates

    Source: Jordan et al. 2024, "Muon" (its parameters); nanochat, `GPT`: 0.02, and 0.2 and 0.004 times
           (width / 768)^-0.5, AdamW's betas and eps.
    """
    scale = rate * (model.config.width / 768) ** -0.5
    tables = [
        {"params": [model.embedding.weight], "lr": 0.2 * scale},
        {"params": [model.head.weight], "lr": 0.004 * scale},
    ]
    adam = AdamW(tables, betas=(0.8, 0.95), eps=1e-10, weight_decay=0.0)
    return Muon(model.blocks.parameters(), lr=0.02 * rate, weight_decay=0.0, momentum=0.95), adam
