"""Sequence to sequence: an encoder reads a whole text or sound, and a decoder writes another text from it.

    memory = encoder(text);    logits = decoder(tokens so far, memory)

The decoder's layers attend to their own text, as Decoder's do, then to the memory: keys and values of the encoder's output,
computed once. Models differ only in Seq2SeqConfig and their weights.

Source: Vaswani et al. 2017, arXiv:1706.03762 (both parts); Raffel et al. 2019, arXiv:1910.10683, section 2.1 (T5: a bias
for each distance, norms without means, unscaled scores); Shazeer 2020, arXiv:2002.05202 (gates);
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
from picograd_programs.models.encoder import bucket_of_distance, buckets_of


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The shape of a network.

    vocabulary:      V
    context:         largest number of positions of a text that is read or written
    encoder_layers:  number of layers; also decoder_layers
    width:           C
    hidden:          width of the feed-forward parts
    heads:           H
    features:        D
    buckets:         number of buckets of distances, each with a bias of scores per head; 0: no such biases
    positions:       rows of the decoder's table of positions; 0: no table
    text_positions:  the same for the encoder, which a sound does not use
    first:           row of a table for the first position
    eps:             eps of the norms, added to a mean square
    activation:      a key of ACTIVATIONS
    is_gated:        feed-forward parts are gated
    has_biases:      linear layers, except those of keys, have biases; norms subtract the mean and have biases, too
    key_biases:      linear layers of keys have biases
    norms_after:     norm(x + part(x)); otherwise x + part(norm(x))
    norms_embedding: sums of token and position vectors are normalized
    embedding_scale: factor of the tokens' vectors
    scale:           factor of scores; None: D^-0.5
    own_output:      logits have their own matrix; otherwise the token table
    logit_scale:     factor of the logits
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
    activation: str = "relu"
    is_gated: bool = False
    has_biases: bool = False
    key_biases: bool = False
    norms_after: bool = False
    norms_embedding: bool = False
    embedding_scale: float = 1.0
    scale: float | None = 1.0
    own_output: bool = False
    logit_scale: float = 1.0


class Attention(nn.Module):
    """Attention of a text's queries to keys and values of the same text, or of the memory."""

    def __init__(self, config: Seq2SeqConfig, weights: Weights, name: str):
        self.heads, inner, width, has_biases = config.heads, config.heads * config.features, config.width, config.has_biases
        self.q = weights.linear(f"{name}_q", inner, width, has_biases)
        self.k = weights.linear(f"{name}_k", inner, width, config.key_biases)
        self.v = weights.linear(f"{name}_v", inner, width, has_biases)
        self.output = weights.linear(f"{name}_output", width, inner, has_biases)

    def by_head(self, part: Linear, x_BTC: Tensor) -> Tensor:
        """Returns queries, keys or values, (B, H, T, D)."""
        return part(x_BTC).unflatten(2, (self.heads, -1)).transpose(1, 2)

    def joined(self, y_BHTD: Tensor) -> Tensor:
        """Returns the heads' values concatenated, (B, T, C)."""
        return self.output(y_BHTD.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """down(act(up(x))), or with a gate down(act(gate(x)) * up(x))."""

    def __init__(self, config: Seq2SeqConfig, weights: Weights, part: str):
        sides, has_biases = (config.hidden, config.width), config.has_biases
        self.activation = ACTIVATIONS[config.activation]
        self.gate = weights.linear(f"{part}.ffn_gate", *sides, has_biases) if config.is_gated else None
        self.up = weights.linear(f"{part}.ffn_up", *sides, has_biases)
        self.down = weights.linear(f"{part}.ffn_down", *sides[::-1], has_biases)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        up: Tensor = self.up(x_BTC)
        return self.down(self.activation(up) if self.gate is None else self.activation(self.gate(x_BTC)) * up)


class Layer(nn.Module):
    """x + attention(norm(x)), in a decoder then x + cross_attention(norm(x), memory), then x + feed_forward(norm(x)).

    With `norms_after` each step is norm(x + part(x)).
    """

    def __init__(self, config: Seq2SeqConfig, weights: Weights, part: str, has_memory: bool):
        def norm(name: str) -> nn.Module:
            return weights.norm(f"{part}.{name}", config.width, config.eps, config.has_biases)

        self.scale, self.norms_after = config.scale, config.norms_after
        self.attn_norm, self.attn = norm("attn_norm"), Attention(config, weights, f"{part}.attn")
        if has_memory:
            self.cross_norm, self.cross = norm("cross_attn_norm"), Attention(config, weights, f"{part}.cross_attn")
        self.ffn_norm, self.mlp = norm("ffn_norm"), FeedForward(config, weights, part)

    def added(self, x_BTC: Tensor, norm: nn.Module, part: Callable[[Tensor], Tensor]) -> Tensor:
        """Returns the input plus a part's output, stored, as the order of a norm's sums would depend on a fused formula."""
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
        """Returns the output for tokens from a position on, (B, T, C) -> (B, T, C); keys and values go to the cache.

        Args:
          memory:  keys and values (1, H, S, D), shared by all texts
          mask:    mask for `cache.attend`
        """
        attn, cross = self.attn, self.cross

        def attended(seen_BTC: Tensor) -> Tensor:
            q, k, v = (attn.by_head(part, seen_BTC) for part in (attn.q, attn.k, attn.v))
            return attn.joined(cache.attend(layer, q, k, v, position, mask, scale=self.scale))

        def remembered(seen_BTC: Tensor) -> Tensor:
            q = cross.by_head(cross.q, seen_BTC.reshape(1, -1, seen_BTC.shape[2]))  # (1, H, B * T, D)
            found = cross.joined(F.scaled_dot_product_attention(q, *memory, scale=self.scale))
            return found.reshape(*seen_BTC.shape)

        x_BTC = self.added(self.added(x_BTC, self.attn_norm, attended), self.cross_norm, remembered)
        return self.added(x_BTC, self.ffn_norm, self.mlp)


class Seq2Seq(nn.Module):
    """logits = norm(decoder(embedding[tokens], norm(encoder(embedding[text])))) @ output.T (+ bias)

    Args:
      config:   shape of the network
      tensors:  weights by GGUF's names, removed from the dict

    Raises:
      DataError: a tensor is missing, has another shape, or belongs to no part of the network.
    """

    def __init__(self, config: Seq2SeqConfig, tensors: dict[str, PackedTensor]):
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
        bias = weights.tensors.pop("logits.bias", None)
        self.register_buffer("bias", None if bias is None else Tensor(bias.unpacked()[: config.vocabulary]).realize())
        weights.check_empty()

    def _norms(self, weights: Weights, name: str, are_there: bool) -> list[nn.Module]:
        """Returns the norms of this name in encoder and decoder, or the identity twice."""
        config = self.config
        if not are_there:
            return [nn.Identity(), nn.Identity()]
        return [weights.norm(f"{side}.{name}", config.width, config.eps, config.has_biases) for side in ("enc", "dec")]

    def _take_positions(self, weights: Weights) -> None:
        config = self.config
        names = ("encoder_biases", "decoder_biases", "places", "position_embd", "text_positions")
        tables: dict[str, Tensor | None] = dict.fromkeys(names)
        tables["places"] = Tensor(np.arange(config.context, dtype=np.int32))
        if config.buckets:
            both, behind = (
                weights.take(f"{side}.blk.0.attn_rel_b.weight", config.buckets, config.heads).unpacked()
                for side in ("enc", "dec")
            )
            far_S = np.arange(config.context)
            tables["encoder_biases"] = Tensor(both)
            tables["decoder_biases"] = Tensor(behind[bucket_of_distance(far_S, config.buckets)])
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
        """Returns an empty memory, or an empty cache, with `length` positions for `num` texts."""
        shape = (num, self.config.heads, length, self.config.features)
        return KVCache.empty(self.config.decoder_layers, shape, shape)

    def read_text(self, tokens_BT: Tensor, is_text_BT: Tensor, memory: KVCache) -> Tensor:
        """Encodes a text into the memory, and returns the encoder's output (B, T, C).

        Args:
          is_text_BT:  bool, False for padding after a text
        """
        mask = is_text_BT[:, None, None, :]
        if self.config.buckets:
            bucket_TT = Tensor(buckets_of(tokens_BT.shape[1], self.config.buckets))
            mask = self.encoder_biases[bucket_TT].permute(2, 0, 1).where(mask, -math.inf)  # (B, H, T, T)
        x_BTC = self.embedding.rows(tokens_BT) * self.config.embedding_scale
        if self.config.text_positions:
            x_BTC = x_BTC + self.text_positions[: tokens_BT.shape[1]]
        return self.read(self.text_norm(x_BTC), mask, memory)

    def read(self, x_BTC: Tensor, mask: Mask, memory: KVCache) -> Tensor:
        """Encodes vectors (B, T, C) into the memory, and returns the encoder's output (B, T, C)."""
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

        All texts are about the one in the memory. With bound Variables as the position and the length, one plan serves
        every token of every text.

        Args:
          length:  number of filled positions of the memory
        """
        cache.check("Seq2Seq", tokens_BT, position)
        x_BTC = self.embedding.rows(tokens_BT) * self.config.embedding_scale
        if self.config.positions:
            x_BTC = x_BTC + rows_at(self.position_embd, position, tokens_BT.shape[1])
        x_BTC = self.written_norm(x_BTC)
        mask = self._mask_at(position, tokens_BT.shape[1])
        for number, layer in enumerate(self.decoder):
            held = memory.keys[number][:, :, :length], memory.values[number][:, :, :length]
            x_BTC = layer.write(x_BTC, cache, held, number, position, mask)
        logits: Tensor = self.output(self.decoder_norm(x_BTC) * self.config.logit_scale)
        return logits if self.bias is None else logits + self.bias

    def _mask_at(self, position: Position, length: int) -> Tensor | None:
        """Returns the biases of scores, (H, T, S): -inf for later positions; or the visible positions, bool (T, S).

        None for a single token without biases, which sees all positions.
        """
        if length == 1 and not self.config.buckets:
            return None
        now_T1 = self.places[position : position + length].unsqueeze(1)
        far_TS = now_T1 - self.places[: position + length]
        is_seen_TS: Tensor = far_TS >= 0
        if not self.config.buckets:
            return is_seen_TS
        added_HTS: Tensor = self.decoder_biases[far_TS.clamp(min=0)].permute(2, 0, 1)
        return added_HTS.where(is_seen_TS, -math.inf)
