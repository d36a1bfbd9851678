"""An encoder: the Transformer of BERT and its successors, in which each position attends to the whole text.

Source: Devlin et al. 2018, arXiv:1810.04805 (BERT); Liu et al. 2019, arXiv:1907.11692 (RoBERTa); Conneau et al. 2019,
       arXiv:1911.02116 (XLM-R); Sanh et al. 2019, arXiv:1910.01108 (DistilBERT); Song et al. 2020, arXiv:2004.09297
       (MPNet); Raffel et al. 2019, arXiv:1910.10683, section 2.1 (distances in buckets); Nussbaum et al. 2024,
       arXiv:2402.01613, section 3 (nomic).

Letters: B texts, T positions, C width, H heads, D features of a head, F width of the feed-forward part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.nn import functional as F
from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_file import PackedTensor
from picograd_programs.models.decoder import ACTIVATIONS, Weights
from picograd_programs.models.rotary import Rotation, angles, turned

DISTANCE_MAX = 128  # larger distances share a bucket


@dataclass(frozen=True)
class EncoderConfig:
    """The shape of a network.

    vocabulary:  number of tokens
    positions:   rows of the table of positions; with a rotation the largest length of a text
    first:       row of a text's first position
    types:       rows of the table of segment types, of which the first is used; 0: no table
    buckets:     number of buckets of distances, each with a bias of a head's scores; 0: none
    layers:      number of layers
    width:       C
    hidden:      F
    heads:       H; divides C
    eps:         eps of the norms, added to a mean square
    activation:  a key of ACTIVATIONS
    rotation:    rotation of queries and keys, instead of a table of positions
    is_gated:    the feed-forward part is gated
    has_biases:  linear layers have biases
    """

    vocabulary: int
    positions: int
    layers: int
    width: int
    hidden: int
    heads: int
    first: int = 0
    types: int = 0
    buckets: int = 0
    eps: float = 1e-12
    activation: str = "gelu"
    rotation: Rotation | None = None
    is_gated: bool = False
    has_biases: bool = True

    @property
    def longest(self) -> int:
        """Largest number of positions of a text."""
        return self.positions - self.first


def buckets_of(length: int, num: int) -> NDArray[np.int32]:
    """Returns the bucket of the distance between each pair of positions, (T, T) int32.

    Half of the buckets are for later positions.

    >>> buckets_of(3, 4).tolist()
    [[0, 3, 3], [1, 0, 3], [1, 1, 0]]
    """
    distance = np.arange(length)[None, :] - np.arange(length)[:, None]
    return np.asarray(bucket_of_distance(np.abs(distance), num // 2) + np.where(distance > 0, num // 2, 0), np.int32)


def bucket_of_distance(far: NDArray[np.int64], num: int) -> NDArray[np.int32]:
    """Returns the bucket of each distance: half of the buckets have one distance each, the others grow logarithmically.

    >>> bucket_of_distance(np.array([0, 1, 2, 3, 9, 100]), 4).tolist()
    [0, 1, 2, 2, 2, 3]
    """
    each = num // 2
    share = np.log(np.maximum(far, 1).astype(np.float32) / np.float32(each)) / np.float32(math.log(DISTANCE_MAX / each))
    beyond = np.minimum(each + (share * np.float32(num - each)).astype(np.int32), num - 1)
    return np.asarray(np.where(far < each, far, beyond), np.int32)


class Layer(nn.Module):
    """x = norm(x + attention(x)), then norm(x + down(act(up(x)))), or with a gate norm(x + down(act(gate(x)) * up(x)))"""

    def __init__(self, config: EncoderConfig, weights: Weights, part: str):
        self.config, width, has_biases = config, config.width, config.has_biases
        self.q, self.k, self.v, self.output = (
            weights.linear(f"{part}.attn_{name}", width, width, has_biases) for name in ("q", "k", "v", "output")
        )
        self.gate = weights.linear(f"{part}.ffn_gate", config.hidden, width, has_biases) if config.is_gated else None
        self.up = weights.linear(f"{part}.ffn_up", config.hidden, width, has_biases)
        self.down = weights.linear(f"{part}.ffn_down", width, config.hidden, has_biases)
        self.attn_norm, self.ffn_norm = (
            weights.norm(f"{part}.{name}", width, config.eps, True) for name in ("attn_output_norm", "layer_output_norm")
        )

    def forward(self, x_BTC: Tensor, seen: Tensor, turns: tuple[Tensor, Tensor] | None) -> Tensor:
        """x (B, T, C), a mask of scores (B, H, T, T), cosine and sine of angles (T, D/2) -> (B, T, C)."""
        batch, length, width = x_BTC.shape
        q, k, v = (
            part(x_BTC).reshape(batch, length, self.config.heads, -1).transpose(1, 2) for part in (self.q, self.k, self.v)
        )
        if turns is not None:
            q, k = (turned(each, *turns, pairs_are_halves=True) for each in (q, k))
        y_BHTD = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        x_BTC = self.attn_norm(x_BTC + self.output(y_BHTD.transpose(1, 2).reshape(batch, length, width)))
        act, up_BTF = ACTIVATIONS[self.config.activation], self.up(x_BTC)
        opened_BTF = act(up_BTF) if self.gate is None else act(self.gate(x_BTC)) * up_BTF
        out_BTC: Tensor = self.ffn_norm(x_BTC + self.down(opened_BTF))
        return out_BTC


class Encoder(nn.Module):
    """hidden = layers(norm(embedding[tokens] + position + type))

    Args:
      config:   shape of the network
      tensors:  weights by GGUF's names, removed from the dict

    Raises:
      DataError: a tensor is missing, has another shape, or belongs to no part of the network.
    """

    def __init__(self, config: EncoderConfig, tensors: dict[str, PackedTensor]):
        weights, self.config = Weights(tensors), config
        self.embedding = weights.table("token_embd", config.vocabulary, config.width)
        places, rotation = np.zeros((1, config.width), np.float32), config.rotation
        if rotation is None:
            places = weights.take("position_embd.weight", config.positions, config.width).unpacked()[config.first :]
        self.angles = None if rotation is None else angles(rotation, config.positions)
        if config.types:
            places = places + weights.take("token_types.weight", config.types, config.width).unpacked()[0]
        self.register_buffer("places", Tensor(places).realize())
        table = weights.take("attn_rel_b.weight", config.buckets, config.heads) if config.buckets else None
        self.register_buffer("distances", None if table is None else Tensor(table.unpacked()).realize())
        self.norm = weights.norm("token_embd_norm", config.width, config.eps, True)
        self.layers = nn.ModuleList(Layer(config, weights, f"blk.{layer}") for layer in range(config.layers))
        weights.check_empty()

    def hidden(self, tokens_BT: Tensor, is_text_BT: Tensor) -> Tensor:
        """Returns the last layer's output, (B, T, C).

        Args:
          tokens_BT:   integers
          is_text_BT:  bool, False for padding
        """
        length = tokens_BT.shape[1]
        x_BTC: Tensor = self.norm(self.embedding.rows(tokens_BT) + self.places[:length])  # one row is for all positions
        turns = None if self.angles is None else (self.angles[0][:length], self.angles[1][:length])
        seen = is_text_BT[:, None, None, :]
        if self.distances is not None:
            near_HTT = self.distances[Tensor(buckets_of(length, self.config.buckets))].permute(2, 0, 1)
            seen = near_HTT.where(seen, -math.inf)  # (B, H, T, T)
        for layer in self.layers:
            x_BTC = layer(x_BTC, seen, turns)
        return x_BTC
