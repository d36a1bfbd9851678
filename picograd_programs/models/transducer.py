"""A transducer: an encoder that reads a whole text or sound, and a decoder that writes another text from what it has read.

    memory = encoder(text);    logits = decoder(tokens so far, memory)

The decoder's layers attend to its own text, as those of Decoder do, then to the memory: keys and values of the encoder's
output are computed once. What differs between models is in TransducerConfig.

Source: Vaswani et al. 2017, arXiv:1706.03762 (both parts); Raffel et al. 2019, arXiv:1910.10683, section 2.1 (T5: a bias
       for each distance, norms without means, scores that are not scaled); Shazeer 2020, arXiv:2002.05202 (gates);
       Radford et al. 2022, arXiv:2212.04356 (Whisper); Lewis et al. 2019, arXiv:1910.13461 (BART).

Letters: B batch, T positions, S positions of the memory, C width, H heads, D features of a head, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from picograd import nn
from picograd.nn import functional as F
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_file import PackedTensor
from picograd_programs.models.cache import KVCache, Mask, Position, rows_at
from picograd_programs.models.decoder import ACTIVATIONS, Linear, Weights
from picograd_programs.models.encoder import bucket_of, grown


@dataclass(frozen=True)
class TransducerConfig:
    """The shape of a network.

    vocabulary:      V
    context:         most positions of a text that is read or written
    encoder_layers:  one after the other
    decoder_layers:  the same
    width:           C
    hidden:          width of the feed-forward parts
    heads:           H
    features:        D
    buckets:         of distances, each of which adds something to the scores of a head; 0: none
    positions:       rows of the decoder's table of positions that are read; 0: there is none
    text_positions:  of the encoder's, for texts
    first:           row of a text's first position
    eps:             of the norms, in the units of a square
    """

    vocabulary: int
    context: int
    encoder_layers: int
    decoder_layers: int
    width: int
    hidden: int
    heads: int
    features: int
    buckets: int = 0
    positions: int = 0
    text_positions: int = 0
    first: int = 0
    eps: float = 1e-6
    activation: str = "relu"  # a key of ACTIVATIONS
    is_gated: bool = False  # the feed-forward part multiplies by a gate
    has_biases: bool = False  # linear layers have, but for keys; norms subtract the mean, too
    key_biases: bool = False  # keys have, too
    norms_after: bool = False  # what a part adds is normalised together with its input; else its input alone, before it
    norms_embedding: bool = False  # what the layers read is normalised
    embedding_scale: float = 1.0
    scale: float | None = 1.0  # of scores; None: D^-0.5
    own_output: bool = False  # logits have a matrix of their own; else the table of tokens
    logit_scale: float = 1.0


class Attention(nn.Module):
    """Queries of a text that look at keys and values of the same, or of the memory."""

    def __init__(self, config: TransducerConfig, weights: Weights, name: str):
        self.heads, inner, width, has_biases = config.heads, config.heads * config.features, config.width, config.has_biases
        self.q = weights.linear(f"{name}_q", inner, width, has_biases)
        self.k = weights.linear(f"{name}_k", inner, width, config.key_biases)
        self.v = weights.linear(f"{name}_v", inner, width, has_biases)
        self.output = weights.linear(f"{name}_output", width, inner, has_biases)

    def by_head(self, part: Linear, x_BTC: Tensor) -> Tensor:
        """Returns queries, keys or values, (B, H, T, D)."""
        return part(x_BTC).unflatten(2, (self.heads, -1)).transpose(1, 2)

    def joined(self, y_BHTD: Tensor) -> Tensor:
        """Returns the heads' values joined, (B, T, C)."""
        out: Tensor = self.output(y_BHTD.transpose(1, 2).flatten(2))
        return out


class FeedForward(nn.Module):
    """down(act(up(x))), or with a gate down(act(gate(x)) * up(x))"""

    def __init__(self, config: TransducerConfig, weights: Weights, part: str):
        sides, has_biases = (config.hidden, config.width), config.has_biases
        self.activation = ACTIVATIONS[config.activation]
        self.gate = weights.linear(f"{part}.ffn_gate", *sides, has_biases) if config.is_gated else None
        self.up = weights.linear(f"{part}.ffn_up", *sides, has_biases)
        self.down = weights.linear(f"{part}.ffn_down", *sides[::-1], has_biases)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        up: Tensor = self.up(x_BTC)
        out: Tensor = self.down(self.activation(up) if self.gate is None else self.activation(self.gate(x_BTC)) * up)
        return out


class Layer(nn.Module):
    """x + attention(norm(x)), in the decoder x + attention to the memory(norm(x)), then x + feed_forward(norm(x))

    With norms behind the sums each step is norm(x + part(x)).
    """

    def __init__(self, config: TransducerConfig, weights: Weights, part: str, has_memory: bool):
        def norm(name: str) -> nn.Module:
            return weights.norm(f"{part}.{name}", config.width, config.eps, config.has_biases)

        self.scale, self.norms_after = config.scale, config.norms_after
        self.attn_norm, self.attn = norm("attn_norm"), Attention(config, weights, f"{part}.attn")
        if has_memory:
            self.cross_norm, self.cross = norm("cross_attn_norm"), Attention(config, weights, f"{part}.cross_attn")
        self.ffn_norm, self.mlp = norm("ffn_norm"), FeedForward(config, weights, part)

    def added(self, x_BTC: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the input and the output of a part, added; what is normalised is in memory."""
        out: Tensor = norm((x_BTC + part(x_BTC)).contiguous()) if self.norms_after else x_BTC + part(norm(x_BTC))
        return out.contiguous()

    def read(self, x_BTC: Tensor, mask: Mask) -> Tensor:
        """Returns the output for a whole text, (B, T, C) -> (B, T, C)."""
        attn = self.attn

        def attended(seen_BTC: Tensor) -> Tensor:
            q, k, v = (attn.by_head(part, seen_BTC) for part in (attn.q, attn.k, attn.v))
            return attn.joined(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale))

        return self.added(self.added(x_BTC, self.attn_norm, attended), self.ffn_norm, self.mlp)

    def write(
        self, x_BTC: Tensor, cache: KVCache, memory: tuple[Tensor, Tensor], layer: int, position: Position, mask: Mask
    ) -> Tensor:
        """Returns the output for tokens from a position on, (B, T, C) -> (B, T, C); their keys and values go to the cache.

        Args:
          memory:  keys and values (B, H, S, D)
          mask:    as `cache.attend` takes it
        """
        attn, cross = self.attn, self.cross

        def attended(seen_BTC: Tensor) -> Tensor:
            q, k, v = (attn.by_head(part, seen_BTC) for part in (attn.q, attn.k, attn.v))
            return attn.joined(cache.attend(layer, q, k, v, position, mask, scale=self.scale))

        def remembered(seen_BTC: Tensor) -> Tensor:
            q = cross.by_head(cross.q, seen_BTC)
            return cross.joined(F.scaled_dot_product_attention(q, *memory, scale=self.scale))

        x_BTC = self.added(self.added(x_BTC, self.attn_norm, attended), self.cross_norm, remembered)
        return self.added(x_BTC, self.ffn_norm, self.mlp)


class Transducer(nn.Module):
    """logits = norm(decoder(embedding[tokens], norm(encoder(embedding[text])))) @ output.T

    Args:
      config:   its shape
      tensors:  weights by the names of GGUF, which are taken out

    Raises:
      DataError: a tensor is missing, has another shape, or belongs to no part of the network.
    """

    def __init__(self, config: TransducerConfig, tensors: dict[str, PackedTensor]):
        weights, self.config = Weights(tensors), config
        self.embedding = weights.table("token_embd", config.vocabulary, config.width)
        self._take_positions(weights)
        self.encoder = nn.ModuleList(
            Layer(config, weights, f"enc.blk.{layer}", False) for layer in range(config.encoder_layers)
        )
        self.decoder = nn.ModuleList(
            Layer(config, weights, f"dec.blk.{layer}", True) for layer in range(config.decoder_layers)
        )
        self.encoder_norm, self.decoder_norm = self._norms(weights, "output_norm", not config.norms_after)
        self.text_norm, self.written_norm = self._norms(weights, "token_embd_norm", config.norms_embedding)
        self.output = weights.table("output", config.vocabulary, config.width) if config.own_output else self.embedding
        weights.check_empty()

    def _norms(self, weights: Weights, name: str, are_there: bool) -> list[nn.Module]:
        """Returns the norms of this name of encoder and decoder, if there are any."""
        config = self.config
        if not are_there:
            return [nn.Identity(), nn.Identity()]
        return [weights.norm(f"{side}.{name}", config.width, config.eps, config.has_biases) for side in ("enc", "dec")]

    def _take_positions(self, weights: Weights) -> None:
        config = self.config
        names = ("far_behind", "near_both", "places", "position_embd", "text_positions")
        tables: dict[str, Tensor | None] = dict.fromkeys(names)
        if config.buckets:
            both, behind = (
                weights.take(f"{side}.blk.0.attn_rel_b.weight", config.buckets, config.heads).unpacked()
                for side in ("enc", "dec")
            )
            far_S = np.arange(config.context)
            tables |= {"near_both": Tensor(both), "far_behind": Tensor(behind[grown(far_S, config.buckets)])}
            tables["places"] = Tensor(far_S.astype(np.int32))
        for name, side, num in (
            ("position_embd", "dec", config.positions), ("text_positions", "enc", config.text_positions)
        ):  # fmt: skip
            if num:
                rows = weights.take(f"{side}.position_embd.weight", config.first + num, config.width)
                tables[name] = Tensor(rows.unpacked()[config.first :])
        for name, table in tables.items():
            self.register_buffer(name, table)
        realize([each for each in tables.values() if each is not None])

    # ---- the encoder ----
    def empty(self, length: int, num: int = 1) -> KVCache:
        """Returns an empty memory, or an empty cache, of so many positions."""
        shape = (num, self.config.heads, length, self.config.features)
        return KVCache.empty(self.config.decoder_layers, shape, shape)

    def read_text(self, tokens_BT: Tensor, is_text_BT: Tensor, memory: KVCache) -> Tensor:
        """Reads a text into the memory, and returns the encoder's output (B, T, C).

        Args:
          is_text_BT:  bool, False where the text is filled up behind
        """
        mask = is_text_BT[:, None, None, :]
        if self.config.buckets:
            bucket_TT = Tensor(bucket_of(tokens_BT.shape[1], self.config.buckets))
            mask = self.near_both[bucket_TT].permute(2, 0, 1).where(mask, -math.inf)  # (B, H, T, T)
        x_BTC = self.embedding.rows(tokens_BT) * self.config.embedding_scale
        if self.config.text_positions:
            x_BTC = x_BTC + self.text_positions[: tokens_BT.shape[1]]
        return self.read(self.text_norm(x_BTC), mask, memory)

    def read(self, x_BTC: Tensor, mask: Mask, memory: KVCache) -> Tensor:
        """Reads vectors of positions into the memory, and returns the encoder's output (B, T, C)."""
        for layer in self.encoder:
            x_BTC = layer.read(x_BTC, mask)
        out_BTC: Tensor = self.encoder_norm(x_BTC).contiguous()
        length = x_BTC.shape[1]
        for number, layer in enumerate(self.decoder):
            for part, held in ((layer.cross.k, memory.keys), (layer.cross.v, memory.values)):
                held[number][:, :, :length] = layer.cross.by_head(part, out_BTC)
        return out_BTC

    # ---- the decoder ----
    def write(self, tokens_BT: Tensor, cache: KVCache, position: Position, memory: KVCache, length: Position) -> Tensor:
        """Returns the logits (B, T, V) after tokens from a position on, with the cache and the memory as context.

        With bound Variables as the position and the length, one plan serves every token of every text.

        Args:
          length:  positions of the memory that have a text
        """
        cache.check("Transducer", tokens_BT, position)
        x_BTC = self.embedding.rows(tokens_BT) * self.config.embedding_scale
        if self.config.positions:
            x_BTC = x_BTC + rows_at(self.position_embd, position, tokens_BT.shape[1])
        x_BTC = self.written_norm(x_BTC)
        mask = self._mask_at(position, tokens_BT.shape[1]) if self.config.buckets else None
        for number, layer in enumerate(self.decoder):
            held = memory.keys[number][:, :, :length], memory.values[number][:, :, :length]
            x_BTC = layer.write(x_BTC, cache, held, number, position, mask)
        logits: Tensor = self.output(self.decoder_norm(x_BTC) * self.config.logit_scale)
        return logits

    def _mask_at(self, position: Position, length: int) -> Tensor:
        """Returns the numbers that are added to scores of positions up to each, (H, T, S)."""
        now_T1 = self.places[position : position + length].unsqueeze(1)
        far_TS = now_T1 - self.places[: position + length]
        added_HTS: Tensor = self.far_behind[far_TS.clamp(min=0)].permute(2, 0, 1)
        return added_HTS.where(far_TS >= 0, -math.inf)
