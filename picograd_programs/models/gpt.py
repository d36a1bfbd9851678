"""GPT: a Transformer that reads text from left to right and returns logits of the next token at every position.

In:    token numbers
Out:   logits and loss; new tokens
Source: Radford et al. 2019, "Language models are unsupervised multitask learners" (GPT-2: the norm before each block,
smaller initial residual projections); Karpathy, nanoGPT (names, settings); Vaswani et al. 2017,
arXiv:1706.03762 (attention); Press, Wolf 2016, arXiv:1608.05859 (the token table is also the output layer).

Letters: B batch, T positions, C width, H heads, D features of a head, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from picograd import nn
from picograd.errors import ArgumentError, ShapeError
from picograd.nn import functional as F
from picograd.nn import init
from picograd.optim.adam import AdamW
from picograd.tensor.generator import Generator
from picograd.tensor.modes import no_grad
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length, Variable
from picograd.transforms.jit import jit
from picograd_programs.models.cache import Cache, KVCache, Position, Positions, at_each, rows_at


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a GPT; the defaults are GPT-2's smallest.

    vocabulary:  V
    block:       largest number of positions
    layers:      number of blocks
    heads:       H; divides width
    width:       C
    dropout:     probability, in training
    bias:        linear layers and norms have biases
    gelu:        "none" for the exact one, "tanh" for the approximation of GPT-2's published weights
    start_std:   standard deviation of initial matrices; 0.02 is that of GPT-2's code

    Raises:
      ArgumentError: a number is below 1, a probability outside [0, 1], or the width not divisible by heads.
    """

    vocabulary: int = 50257
    block: int = 1024
    layers: int = 12
    heads: int = 12
    width: int = 768
    dropout: float = 0.0
    bias: bool = True
    gelu: str = "none"
    start_std: float = 0.02

    def __post_init__(self) -> None:
        for name in ("vocabulary", "block", "layers", "heads", "width"):
            if getattr(self, name) < 1:
                raise ArgumentError(f"GPTConfig: {name} must be at least 1, got {getattr(self, name)}.")
        if self.width % self.heads:
            raise ArgumentError(f"GPTConfig: heads must divide width, got {self.heads} heads and width {self.width}.")
        if not 0.0 <= self.dropout <= 1.0:
            raise ArgumentError(f"GPTConfig: dropout must be a probability, got {self.dropout}.")


class SelfAttention(nn.Module):
    """Attention of each position to the positions up to its own."""

    def __init__(self, config: GPTConfig):
        self.heads, self.dropout = config.heads, config.dropout
        self.c_attn = nn.Linear(config.width, 3 * config.width, config.bias)
        self.c_proj = nn.Linear(config.width, config.width, config.bias)

    def heads_of(self, x_BTC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values, each (B, H, T, D)."""
        batch, length, width = x_BTC.shape
        joined: Tensor = self.c_attn(x_BTC)
        q, k, v = joined.reshape(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind()
        return q, k, v

    def joined(self, y_BHTD: Tensor) -> Tensor:
        """Returns the heads' results concatenated per position, (B, T, C), after the output layer."""
        batch, heads, length, features = y_BHTD.shape
        y_BTC: Tensor = self.c_proj(y_BHTD.transpose(1, 2).reshape(batch, length, heads * features))
        return F.dropout(y_BTC, self.dropout, self.training)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        dropout = self.dropout if self.training else 0.0
        return self.joined(F.scaled_dot_product_attention(*self.heads_of(x_BTC), dropout_p=dropout, is_causal=True))

    def read_on(self, x_BTC: Tensor, cache: Cache, layer: int, position: Positions, mask: Any) -> Tensor:
        """As forward, for positions from `position` on; keys and values go to the cache; `mask` as for its `attend`."""
        return self.joined(cache.attend(layer, *self.heads_of(x_BTC), position, mask))


class FeedForward(nn.Module):
    """Two linear layers, with four times the width between them."""

    def __init__(self, config: GPTConfig):
        self.dropout, self.gelu = config.dropout, config.gelu
        self.c_fc = nn.Linear(config.width, 4 * config.width, config.bias)
        self.c_proj = nn.Linear(4 * config.width, config.width, config.bias)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        hidden: Tensor = F.gelu(self.c_fc(x_BTC), approximate=self.gelu)
        y_BTC: Tensor = self.c_proj(hidden)
        return F.dropout(y_BTC, self.dropout, self.training)


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, config: GPTConfig):
        self.ln_1 = nn.LayerNorm(config.width, bias=config.bias)
        self.attn = SelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = FeedForward(config)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        x_BTC = x_BTC + self.attn(self.ln_1(x_BTC))
        out_BTC: Tensor = x_BTC + self.mlp(self.ln_2(x_BTC))
        return out_BTC


class GPT(nn.Module):
    """logits = norm(blocks(wte[tokens] + wpe[positions])) @ wte.T

    The parameters have GPT-2's names. Matrices are initialized from a normal distribution of deviation `start_std`, those
    that write to the residual stream from start_std / sqrt(2 layers); biases from 0, norms from 1.

    >>> model = GPT(GPTConfig(vocabulary=5, block=8, layers=1, heads=2, width=4))
    >>> model(Tensor([[1, 2, 3]]))[0].shape
    (1, 3, 5)
    """

    def __init__(self, config: GPTConfig):
        self.config = config
        self.wte = nn.Embedding(config.vocabulary, config.width)
        self.wpe = nn.Embedding(config.block, config.width)
        self.h = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.ln_f = nn.LayerNorm(config.width, bias=config.bias)
        for name, parameter in self.named_parameters():
            smaller = math.sqrt(2 * config.layers) if name.endswith("c_proj.weight") else 1.0
            if parameter.ndim == 2:
                init.normal_(parameter, 0.0, config.start_std / smaller)
            elif name.endswith("bias"):
                init.zeros_(parameter)

    def hidden(self, tokens_BT: Tensor) -> Tensor:
        """Returns the blocks' output for the tokens, (B, T, C), normalized.

        Raises:
          ShapeError: tokens are not (B, T), or T is 0 or longer than the block.
        """
        if tokens_BT.ndim != 2 or not 1 <= tokens_BT.shape[1] <= self.config.block:
            raise ShapeError(f"GPT: tokens must be (B, T) with T from 1 to {self.config.block}, got {tokens_BT.shape}.")
        x_BTC: Tensor = self.wte(tokens_BT) + self.wpe.weight[: tokens_BT.shape[1]]  # a view; its gradient needs no scatter
        x_BTC = F.dropout(x_BTC, self.config.dropout, self.training)
        for block in self.h:
            x_BTC = block(x_BTC)
        out_BTC: Tensor = self.ln_f(x_BTC)
        return out_BTC

    def cache(self, batch: int, length: int | None = None) -> KVCache:
        """Returns an empty cache for texts of up to `length` tokens, by default the block.

        Raises:
          ArgumentError: the length is below 1 or above the block.
        """
        config, weight = self.config, self.wte.weight
        length = config.block if length is None else length
        if not 1 <= length <= config.block:
            raise ArgumentError(f"GPT.cache: length must be from 1 to {config.block}, got {length}.")
        shape = (batch, config.heads, length, config.width // config.heads)
        return KVCache.empty(config.layers, shape, shape, dtype=weight.dtype, device=weight.device)

    def read_on(self, tokens_BT: Tensor, cache: Cache, position: Positions = 0) -> Tensor:
        """Returns the blocks' output for tokens from `position` on, with the cache as context.

        With a bound Variable as the position, one plan serves every position for a number of tokens.

        Returns:   (B, T, C), normalized

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or do not fit.

        >>> model = GPT(GPTConfig(vocabulary=5, block=8, layers=1, heads=2, width=4))
        >>> cache = model.cache(batch=1)
        >>> _ = model.read_on(Tensor([[1, 2]]), cache)
        >>> last = model.read_on(Tensor([[3]]), cache, 2)
        >>> bool((last[:, 0] - model.hidden(Tensor([[1, 2, 3]]))[:, 2]).abs().max() < 1e-5)
        True
        """
        cache.check("GPT", tokens_BT, position)
        length, most, device = tokens_BT.shape[1], self.config.block, self.wte.weight.device

        def mask_at(position: Position) -> Tensor | None:
            if length == 1 or isinstance(position, int) and position == 0:
                return None
            places = Tensor.arange(most, device=device)
            return places[: position + length] <= places[position : position + length].unsqueeze(1)

        mask = at_each(mask_at, position)
        x_BTC: Tensor = self.wte(tokens_BT) + rows_at(self.wpe.weight, position, length)
        for layer, block in enumerate(self.h):
            x_BTC = (x_BTC + block.attn.read_on(block.ln_1(x_BTC), cache, layer, position, mask)).contiguous()
            x_BTC = (x_BTC + block.mlp(block.ln_2(x_BTC))).contiguous()
        out_BTC: Tensor = self.ln_f(x_BTC)
        return out_BTC

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits (..., V) of the next token, for hidden (..., C)."""
        return F.linear(hidden, self.wte.weight)

    def forward(self, tokens_BT: Tensor, targets_BT: Tensor | None = None) -> tuple[Tensor, Any]:
        """Returns the logits (B, T, V), and with targets (B, T) the mean cross-entropy; targets of -1 are ignored.

        Raises:
          ShapeError: T is longer than the block, or targets have another shape than tokens.
        """
        logits_BTV = self.logits(self.hidden(tokens_BT))
        if targets_BT is None:
            return logits_BTV, None
        return logits_BTV, F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=-1)


def optimizer_of(model: nn.Module, lr: float, weight_decay: float = 0.1, betas: tuple[float, float] = (0.9, 0.95)) -> AdamW:
    """Returns AdamW with decay of matrices only, not of biases and norms.

    Args:
      model:         model whose parameters are trained
      weight_decay:  decay of parameters with two axes or more
      betas:         AdamW's; 0.95 as in Brown et al. 2020, arXiv:2005.14165, appendix B
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return AdamW([group for group in groups if group["params"]], lr=lr, betas=betas)


def generate(
    model: GPT,
    tokens_BT: Tensor,
    num: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Returns the tokens followed by `num` new ones, each drawn from softmax(logits / temperature): (B, T + num).

    The model reads at most the last `block` tokens. Two plans serve every length: one reads a text from its beginning, with
    padding after it, which causal attention ignores; one reads a further token, with the cached keys and values. In a text
    longer than the block, every new token moves all positions, so the first plan reads them all again.

    Args:
      tokens_BT:    (B, T) integers, T at least 1
      num:          number of tokens to draw, 0 or more
      temperature:  below 1 prefers likely tokens; 0 always takes the likeliest
      top_k:        draw only from this many of the likeliest tokens

    Raises:
      ArgumentError: num or temperature is negative, or top_k is below 1.
      ShapeError:    tokens are not (B, T) with T at least 1.
    """
    _check_generate(tokens_BT, num, temperature, top_k)
    block, training = model.config.block, model.training
    drawn, place = tokens_BT.tolist(), Variable("position", 0, model.config.block - 1)
    cache = model.cache(len(drawn))

    @jit
    def begun(window_BT: Tensor, last: Tensor) -> Tensor:
        hidden_BC = model.read_on(window_BT, cache).index_select(1, last).squeeze(1)
        return drawn_from(model.logits(hidden_BC), temperature, top_k, generator)

    @jit
    def continued(tokens_B1: Tensor, position: Length) -> Tensor:
        hidden_BC = model.read_on(tokens_B1, cache, position).squeeze(1)
        return drawn_from(model.logits(hidden_BC), temperature, top_k, generator)

    try:
        model.eval()
        for number in range(num):
            rows = [row[-block:] for row in drawn]
            last = len(rows[0]) - 1
            with no_grad():
                if number and len(drawn[0]) <= block:
                    tokens = continued(Tensor([row[-1:] for row in rows]), place.bind(last))
                else:
                    tokens = begun(Tensor([row + [0] * (block - len(row)) for row in rows]), Tensor([last]))
            for row, token in zip(drawn, tokens.tolist()):
                row.append(token)
    finally:
        model.train(training)
    return Tensor(drawn, dtype=tokens_BT.dtype, device=tokens_BT.device)


def _check_generate(tokens_BT: Tensor, num: int, temperature: float, top_k: int | None) -> None:
    if tokens_BT.ndim != 2 or 0 in tokens_BT.shape:
        raise ShapeError(f"generate: tokens must be (B, T) with B and T at least 1, got {tokens_BT.shape}.")
    if num < 0:
        raise ArgumentError(f"generate: num must not be negative, got {num}.")
    if not temperature >= 0 or math.isinf(temperature):
        raise ArgumentError(f"generate: temperature must be a finite number, 0 or more, got {temperature}.")
    if top_k is not None and top_k < 1:
        raise ArgumentError(f"generate: top_k must be at least 1, got {top_k}.")


# ---- drawing tokens ----
def drawn_from(
    logits_BV: Tensor, temperature: float = 1.0, top_k: int | None = None, generator: Generator | None = None
) -> Tensor:
    """Returns (B,) token numbers, drawn from softmax(logits / temperature) over the top_k likeliest.

    >>> drawn_from(Tensor([[0.0, 9.0, 1.0]]), temperature=0.0)
    Tensor([1])
    """
    if temperature == 0.0:
        return logits_BV.argmax(-1)
    scaled_BV = logits_BV / temperature
    if top_k is not None and top_k < logits_BV.shape[-1]:
        least_B1 = scaled_BV.topk(top_k).values[:, -1:]
        scaled_BV = scaled_BV.masked_fill(scaled_BV < least_B1, -math.inf)
    return scaled_BV.softmax(-1).multinomial(1, generator=generator).squeeze(1)
