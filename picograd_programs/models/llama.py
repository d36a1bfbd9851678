"""Llama: the Transformer of most open models today, with the weights of a GGUF file.

Against GPT (gpt.py): norms without mean and bias; positions are angles by which queries and keys are turned, pair by
pair; several heads of queries share one of keys and values; the feed-forward part multiplies by a gate. Qwen 2, Qwen 3
and Gemma 3 are settings of the same network: biases of queries, keys and values; queries and keys normalised, norms after
a part as well as before, layers that see a window only. It reads any number of tokens after those in its cache, so that a
text is never read twice.

Source: Touvron et al. 2023, arXiv:2302.13971 (Llama); Zhang, Sennrich 2019, arXiv:1910.07467 (RMSNorm); Su et al. 2021,
       arXiv:2104.09864 (angles); Ainslie et al. 2023, arXiv:2305.13245 (shared keys and values); Shazeer 2020,
       arXiv:2002.05202 (gates); Gemma team 2025, arXiv:2503.19786; Yang et al. 2024, arXiv:2407.10671 (Qwen 2); Yang et al.
       2025, arXiv:2505.09388 (Qwen 3); Grattafiori et al. 2024, arXiv:2407.21783 (Llama 3.1).

Letters: B batch, T positions, S positions seen, C width, H heads, D features of a head, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from picograd import nn
from picograd.errors import ArgumentError, DataError
from picograd.nn import functional as F
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd.tensor.variable import Length
from picograd_formats.gguf_file import GGUF, Array, PackedTensor
from picograd_programs.data.vocabulary import check_rows
from picograd_programs.models.gpt import KVCache
from picograd_programs.models.packed import PackedMatrix
from picograd_programs.models.rotary import angles, turned


# ---- settings ----
@dataclass(frozen=True)
class LlamaConfig:
    """The shape of a network.

    vocabulary:    V
    context:       most positions that it was trained with
    layers:        blocks, one after the other
    width:         C
    hidden:        width of the feed-forward part
    heads:         H, of queries
    shared_heads:  of keys and values; divides heads
    features:      D, even
    eps:           of the norms, in the units of a square
    base:          angles of pair i grow by base^(-2i/D) radians a position
    """

    vocabulary: int
    context: int
    layers: int
    width: int
    hidden: int
    heads: int
    shared_heads: int
    features: int
    eps: float = 1e-5
    base: float = 10000.0
    scaling: float = 1.0  # angles of layers that see everything are divided by it
    has_biases: bool = False  # of queries, keys and values
    pairs_are_halves: bool = False  # a pair is features i and i + D/2; else neighbours
    norms_heads: bool = False  # queries and keys are normalised
    norms_after: bool = False  # a part's output is normalised, too
    is_gelu: bool = False  # of the gate; else SiLU
    embedding_scale: float = 1.0
    window: int = 0  # positions that layers of a window see; 0: there are none
    window_every: int = 0  # every so many layers, one sees everything
    window_base: float = 10000.0  # base of layers of a window

    def sees_all(self, layer: int) -> bool:
        """Returns whether a layer has no window."""
        return not self.window or (layer + 1) % self.window_every == 0


ARCHITECTURES: dict[str, dict[str, Any]] = {  # what a name in the metadata says beyond them
    "llama": {},
    "qwen2": {"has_biases": True, "pairs_are_halves": True},
    "qwen3": {"norms_heads": True, "pairs_are_halves": True},
    "gemma3": {
        "norms_heads": True, "pairs_are_halves": True, "norms_after": True, "is_gelu": True, "window_every": 6,
    },
}  # fmt: skip


def config_of(file: GGUF) -> LlamaConfig:
    """Returns the settings that the metadata of a file describe.

    Raises:
      DataError: they describe another network, or lack something.
    """
    name = file.metadata.get("general.architecture")
    if name not in ARCHITECTURES:
        raise DataError(f"the file has a network of type {str(name)[:40]!r}; {', '.join(ARCHITECTURES)} are run.")

    def number(key: str, default: float | None = None) -> Any:
        value = file.metadata.get(f"{name}.{key}", default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 2**31:
            raise DataError(f"the file says {name}.{key} is {str(value)[:40]}; it must be a number above 0.")
        return value

    heads, width = number("attention.head_count"), number("embedding_length")
    features = number("attention.key_length", width // heads)
    table, scaling = file.tensors.get("token_embd.weight"), file.metadata.get(f"{name}.rope.scaling.type", "none")
    shape, tokens = (0,) if table is None else table.shape, file.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, list):
        check_rows("token_embd.weight", shape, len(tokens))
    config = LlamaConfig(
        vocabulary=len(tokens) if isinstance(tokens, list) else shape[0],
        context=number("context_length"),
        layers=number("block_count"),
        width=width,
        hidden=number("feed_forward_length"),
        heads=heads,
        shared_heads=number("attention.head_count_kv", heads),
        features=features,
        eps=number("attention.layer_norm_rms_epsilon"),
        base=number("rope.freq_base", 10000.0),
        scaling=number("rope.scaling.factor") if scaling == "linear" else 1.0,
        embedding_scale=width**0.5 if name == "gemma3" else 1.0,
        window=number("attention.sliding_window") if name == "gemma3" else 0,
        **ARCHITECTURES[name],
    )
    whole = (config.context, config.layers, config.width, config.hidden, heads, config.shared_heads, features)
    if not all(isinstance(each, int) for each in whole):
        names = "context, layers, width, hidden width, heads, heads of keys and values, features of a head"
        raise DataError(f"the file says {whole} of {names}; all must be whole.")
    if features % 2 or heads % config.shared_heads or f"{name}.attention.key_length" not in file.metadata and width % heads:
        raise DataError(
            f"the file says {heads} heads of {features} features, {config.shared_heads} of keys and values, for a width of"
            f" {width}: heads must divide the width, shared heads the heads, and features must be even."
        )
    if number("rope.dimension_count", features) != features or scaling not in ("none", "linear"):
        raise DataError(f"the file turns some of the features, or scales angles by {str(scaling)[:40]}; that is not done.")
    return config


# ---- weights ----
class Weights:
    """The tensors of a file, each taken once and checked."""

    def __init__(self, tensors: Mapping[str, PackedTensor]):
        self.tensors = dict(tensors)

    def take(self, name: str, *shape: int) -> PackedTensor:
        """Returns a tensor by its whole name.

        Raises:
          DataError: it is not there, or has another shape.
        """
        tensor = self.tensors.pop(name, None)
        if tensor is None or tensor.shape != shape:
            found = "none" if tensor is None else f"one of {tensor.shape}"
            raise DataError(f"the file has to have a tensor {name} of {shape}, it has {found}.")
        return tensor

    def matrix(self, name: str, rows: int, columns: int) -> PackedMatrix:
        """Returns a matrix, packed as in the file."""
        return PackedMatrix(self.take(f"{name}.weight", rows, columns))

    def table(self, name: str, rows: int, columns: int) -> PackedMatrix:
        """Returns the matrix of a vector for each token, without what fills it up behind them."""
        tensor = self.tensors.get(f"{name}.weight")
        if tensor is not None and len(tensor.shape) == 2 and tensor.shape[0] > rows:
            blocks = tensor.blocks[: rows * len(tensor.blocks) // tensor.shape[0]]
            self.tensors[f"{name}.weight"] = PackedTensor((rows, tensor.shape[1]), tensor.packing, blocks)
        return self.matrix(name, rows, columns)

    def linear(self, name: str, rows: int, columns: int, has_bias: bool) -> Linear:
        """Returns a matrix, and a bias if there is one."""
        return Linear(self.matrix(name, rows, columns), self.take(f"{name}.bias", rows) if has_bias else None)

    def norm(self, name: str, width: int, eps: float) -> nn.RMSNorm:
        """Returns a norm."""
        norm = nn.RMSNorm(width, eps).requires_grad_(False)
        norm.load_state_dict({"weight": Tensor(self.take(f"{name}.weight", width).unpacked())})
        return norm

    def check_empty(self) -> None:
        """Checks that the network has taken all of them.

        Raises:
          DataError: one is left, so the file is of another network.
        """
        if self.tensors:
            raise DataError(f"the file has a tensor {next(iter(self.tensors))!r:.60}, which this network does not have.")


# ---- parts ----
class Linear(nn.Module):
    """x @ matrix.T + bias"""

    def __init__(self, matrix: PackedMatrix, bias: PackedTensor | None):
        self.matrix = matrix
        self.register_buffer("bias", None if bias is None else Tensor(bias.unpacked()).realize())

    def forward(self, x: Tensor) -> Tensor:
        """x (..., K) -> (..., R)."""
        out: Tensor = self.matrix(x)
        return out if self.bias is None else out + self.bias


class SelfAttention(nn.Module):
    """Each position takes in what the positions up to its own hold."""

    def __init__(self, config: LlamaConfig, weights: Weights, part: str):
        self.config = config
        inner, shared = config.heads * config.features, config.shared_heads * config.features
        self.q = weights.linear(f"{part}.attn_q", inner, config.width, config.has_biases)
        self.k = weights.linear(f"{part}.attn_k", shared, config.width, config.has_biases)
        self.v = weights.linear(f"{part}.attn_v", shared, config.width, config.has_biases)
        self.output = weights.matrix(f"{part}.attn_output", config.width, inner)
        if config.norms_heads:
            self.q_norm = weights.norm(f"{part}.attn_q_norm", config.features, config.eps)
            self.k_norm = weights.norm(f"{part}.attn_k_norm", config.features, config.eps)

    def forward(self, x_BTC: Tensor, keys_BHSD: Tensor, values_BHSD: Tensor, position: Length | int, view: View) -> Tensor:
        """The positions from `position` on; their keys and values go to the cache. x (B, T, C) -> (B, T, C)."""
        (batch, length, _), config = x_BTC.shape, self.config
        q, k, v = (
            each.reshape(batch, length, -1, config.features).transpose(1, 2)
            for each in (self.q(x_BTC), self.k(x_BTC), self.v(x_BTC))
        )
        if config.norms_heads:
            q, k = self.q_norm(q), self.k_norm(k)
        now, seen = slice(position, position + length), slice(0, position + length)
        keys_BHSD[:, :, now] = turned(k, view.cos, view.sin, config.pairs_are_halves)
        values_BHSD[:, :, now] = v
        q = turned(q, view.cos, view.sin, config.pairs_are_halves)
        y_BHTD = F.scaled_dot_product_attention(
            q, keys_BHSD[:, :, seen], values_BHSD[:, :, seen], attn_mask=view.mask, enable_gqa=True
        )
        out: Tensor = self.output(y_BHTD.transpose(1, 2).reshape(batch, length, -1))
        return out


class FeedForward(nn.Module):
    """down(gate(x) * up(x)), the gate through SiLU or GELU."""

    def __init__(self, config: LlamaConfig, weights: Weights, part: str):
        self.is_gelu = config.is_gelu
        self.gate = weights.matrix(f"{part}.ffn_gate", config.hidden, config.width)
        self.up = weights.matrix(f"{part}.ffn_up", config.hidden, config.width)
        self.down = weights.matrix(f"{part}.ffn_down", config.width, config.hidden)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        gate: Tensor = self.gate(x_BTC)
        opened = F.gelu(gate, approximate="tanh") if self.is_gelu else F.silu(gate)
        out: Tensor = self.down(opened * self.up(x_BTC))
        return out


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); with norms_after, a part's output is normalised, too."""

    def __init__(self, config: LlamaConfig, weights: Weights, layer: int):
        part = f"blk.{layer}"
        self.sees_all = config.sees_all(layer)
        self.attn_norm = weights.norm(f"{part}.attn_norm", config.width, config.eps)
        self.attn = SelfAttention(config, weights, part)
        self.ffn_norm = weights.norm(f"{part}.ffn_norm", config.width, config.eps)
        self.mlp = FeedForward(config, weights, part)
        names = ("post_attention_norm", "post_ffw_norm") if config.norms_after else ()
        self.after = nn.ModuleList(weights.norm(f"{part}.{name}", config.width, config.eps) for name in names)

    def forward(self, x_BTC: Tensor, *where: Any) -> Tensor:
        """x (B, T, C) -> (B, T, C); `where` as in SelfAttention."""
        read = self.attn(self.attn_norm(x_BTC), *where)
        x_BTC = x_BTC + (self.after[0](read) if self.after else read)
        thought = self.mlp(self.ffn_norm(x_BTC))
        out_BTC: Tensor = x_BTC + (self.after[1](thought) if self.after else thought)
        return out_BTC


@dataclass(frozen=True)
class View:
    """The positions as the layers of a kind know them.

    cos, sin:  (T, D/2), of the angles
    mask:      (T, S), True where a position sees another; None where all see all
    """

    cos: Tensor
    sin: Tensor
    mask: Tensor | None


# ---- the network ----
class Llama(nn.Module):
    """logits = norm(blocks(embedding[tokens])) @ output.T

    Args:
      config:   its shape
      tensors:  weights by the names of GGUF; without `output.weight` the table of embeddings is the output layer

    Raises:
      DataError: a tensor is missing, has another shape, or belongs to no part of the network.
    """

    def __init__(self, config: LlamaConfig, tensors: Mapping[str, PackedTensor]):
        weights = Weights(tensors)
        self.config = config
        self.embedding = weights.table("token_embd", config.vocabulary, config.width)
        self.blocks = nn.ModuleList(Block(config, weights, layer) for layer in range(config.layers))
        self.norm = weights.norm("output_norm", config.width, config.eps)
        is_tied = "output.weight" not in weights.tensors
        self.output = self.embedding if is_tied else weights.table("output", config.vocabulary, config.width)
        slower: Array | float = config.scaling
        if "rope_freqs.weight" in weights.tensors:  # as Llama 3.1 stretches slow pairs to longer texts
            slower = slower * weights.take("rope_freqs.weight", config.features // 2).unpacked()
        weights.check_empty()
        features, length = config.features, config.context
        self.angles = [angles(features, length, config.base, slower), angles(features, length, config.window_base)]
        self.places = Tensor(np.arange(config.context, dtype=np.int32))
        realize([self.places, *self.angles[0], *self.angles[1]])

    def cache(self, batch: int = 1, length: int | None = None) -> KVCache:
        """Returns an empty cache for texts of up to `length` tokens: by default as many as the context has.

        Raises:
          ArgumentError: the length is below 1 or beyond the context.
        """
        config = self.config
        length = config.context if length is None else length
        if not 1 <= length <= config.context:
            raise ArgumentError(f"Llama.cache: length must be from 1 to {config.context}, got {length}.")
        shape = (batch, config.shared_heads, length, config.features)
        keys, values = (tuple(Tensor.zeros(*shape).clone() for _ in self.blocks) for _ in range(2))
        realize([*keys, *values])
        return KVCache(keys, values)

    def view(self, position: Length | int, length: int, sees_all: bool) -> View:
        """Returns the positions from `position` on, for layers with or without a window."""
        cos, sin = (each[position : position + length] for each in self.angles[not sees_all])
        if sees_all and length == 1:
            return View(cos, sin, None)
        now_T1, seen_S = self.places[position : position + length].unsqueeze(1), self.places[: position + length]
        mask_TS = seen_S <= now_T1
        return View(cos, sin, mask_TS if sees_all else mask_TS & (seen_S > now_T1 - self.config.window))

    def read_on(self, tokens_BT: Tensor, cache: KVCache, position: Length | int = 0) -> Tensor:
        """Returns the blocks' output for tokens from `position` on, with the cache as context.

        With a bound Variable as the position, one plan serves every position for a number of tokens.

        Returns:   (B, T, C), normalised

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or do not fit into it.
        """
        cache.check("Llama", tokens_BT, position)
        length = tokens_BT.shape[1]
        x_BTC = self.embedding.rows(tokens_BT) * self.config.embedding_scale
        views = {sees_all: self.view(position, length, sees_all) for sees_all in {block.sees_all for block in self.blocks}}
        for block, keys_BHSD, values_BHSD in zip(self.blocks, cache.keys, cache.values):
            x_BTC = block(x_BTC, keys_BHSD, values_BHSD, position, views[block.sees_all])
        out_BTC: Tensor = self.norm(x_BTC)
        return out_BTC

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits (..., V) of the next token, for hidden (..., C)."""
        logits: Tensor = self.output(hidden)
        return logits

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Returns the logits after each token, (B, T) -> (B, T, V), as of a text's beginning."""
        return self.logits(self.read_on(tokens_BT, self.cache(*tokens_BT.shape)))
