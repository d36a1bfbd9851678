"""A decoder: the Transformer of most open language models, each with its settings.

Compared with GPT (gpt.py): positions rotate queries and keys pairwise (RoPE); several query heads share a head of keys and
values; the feed-forward part is gated. DecoderConfig has the differences between models.
It reads any number of tokens after those in its cache, so that no text is read twice.

Source: Touvron et al. 2023, arXiv:2302.13971 (Llama); Zhang, Sennrich 2019, arXiv:1910.07467 (RMSNorm); Su et al. 2021,
       arXiv:2104.09864 (angles); Ainslie et al. 2023, arXiv:2305.13245 (shared keys and values); Shazeer 2020,
       arXiv:2002.05202 (gates); Gemma team 2024, arXiv:2408.00118 (soft caps) and 2025, arXiv:2503.19786 (two bases);
       Yang et al. 2024, arXiv:2407.10671 (Qwen 2) and 2025, arXiv:2505.09388 (Qwen 3); Grattafiori et al. 2024,
       arXiv:2407.21783 (Llama 3.1); Black et al. 2022, arXiv:2204.06745 (GPT-NeoX: both parts read the same input); OLMo
       team 2024, arXiv:2501.00656 (norms only after parts); Li et al. 2023, arXiv:2305.06161 (one head of keys, values);
       Almazrouei et al. 2023, arXiv:2311.16867 (Falcon: one norm for both parts); DeepSeek 2024, arXiv:2405.04434,
       section 2.1 (latents of keys and values); OpenAI 2025, arXiv:2508.10925, section 2 (sinks, clamped gates);
       Warner et al. 2024, arXiv:2412.13663 (ModernBERT); Press et al. 2021, arXiv:2108.12409 (ALiBi).

Letters: B batch, T positions, S visible positions, C width, H heads, D features of a head, V vocabulary, L features of
a latent, R rotated features of a head, N other features.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from picograd import nn
from picograd.errors import ArgumentError, DataError
from picograd.nn import functional as F
from picograd.tensor.core import realize
from picograd.tensor.tensor import Tensor
from picograd_formats.gguf_blocks import repacked
from picograd_formats.gguf_file import PackedTensor
from picograd_programs.models.cache import Cache, KVCache, NoCache, Position, Positions, at_each, rows_at
from picograd_programs.models.experts import Expert, Experts, Router, Routing
from picograd_programs.models.packed import PackedMatrix
from picograd_programs.models.rotary import Rotation, angles, turned

SWIGLU_SLOPE = 1.702  # slope in the sigmoid of a clamped gate
LATENT_EPS = 1e-6  # eps of latents' norms, which files omit
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "relu2": lambda x: F.relu(x).square(),
}


# ---- settings ----
@dataclass(frozen=True)
class Sight:
    """The positions that a layer sees, and its rotation.

    window:    largest number of visible positions up to and including its own; with `sees_ahead` also after it; 0: all
    rotation:  rotation of queries and keys; None: none
    """

    window: int = 0
    rotation: Rotation | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a network.

    vocabulary:    V
    context:       largest number of positions in the training
    layers:        number of blocks
    width:         C
    hidden:        width of the feed-forward part
    heads:         H, number of query heads
    shared_heads:  number of heads of keys and values; divides heads
    features:      D, even
    sights:        one per layer
    eps:           eps of the norms, added to a mean square
    """

    vocabulary: int
    context: int
    layers: int
    width: int
    hidden: int
    heads: int
    shared_heads: int
    features: int
    sights: tuple[Sight, ...]
    eps: float = 1e-5
    positions: int = 0  # rows of a table of positions, added to the tokens' vectors; 0: none
    pairs_are_halves: bool = True  # pairs are features i and i + D/2; otherwise adjacent ones
    attention_biases: bool = False  # of queries, keys and values
    output_bias: bool = False  # of the output projection of attention
    feed_forward_biases: bool = False
    logit_biases: bool = False  # of the output layer
    subtracts_mean: bool = False  # norms subtract the mean
    norm_biases: bool = True  # norms that subtract the mean have a bias
    norms_before: bool = True  # a part's input is normalized
    norms_after: bool = False  # a part's output is normalized
    norms_heads: bool = False  # queries and keys are normalized, head by head
    norms_each_head: bool = False  # also, with separate weights for each head
    norms_queries: bool = False  # queries and keys are normalized, all heads as one vector
    is_parallel: bool = False  # both parts of a block read its input; otherwise in sequence
    norms_once: bool = False  # also one norm of it
    norms_embedding: bool = False  # the embedding is normalized, which replaces the first attention's norm
    is_gated: bool = True  # the feed-forward part
    experts: int = 0  # feed-forward parts of a layer; 0: one without routing
    routing: Routing = Routing()  # routing of positions to experts
    expert_hidden: int = 0  # width of each expert
    expert_biases: bool = False  # biases of experts and of their router
    shared_hidden: int = 0  # width of an additional expert for every position; 0: none
    gates_shared: bool = True  # the shared expert's output is multiplied by a gate
    gate_limit: float = 0.0  # clamps gates from above, and values, to which 1 is added, on both sides; 0: neither
    latent: int = 0  # L, of keys and values of all heads; 0: no latent
    query_latent: int = 0  # the same for queries
    turned: int = 0  # R, a head's last features beside a latent; all heads' keys share them
    value_features: int = 0  # features of a head's values beside a latent
    sees_ahead: bool = False  # positions also see later ones: the network encodes texts, and writes none
    has_slopes: bool = False  # scores decrease with distance, by a slope per head (ALiBi)
    sinks: bool = False  # each head's softmax has an additional score without a value
    plain_layers: frozenset[int] = frozenset()  # layers without experts
    activation: str = "silu"  # a key of ACTIVATIONS
    attention_scale: float | None = None  # factor of scores; None: D^-0.5
    attention_cap: float = 0.0  # soft limit of scores; 0: none
    logit_cap: float = 0.0  # the same for logits
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # factor of each part's output
    logit_scale: float = 1.0

    @property
    def norm(self) -> tuple[float, bool, bool]:
        """The settings of norms: eps, whether they subtract the mean, and whether they then have a bias."""
        return self.eps, self.subtracts_mean, self.norm_biases

    @property
    def rows(self) -> dict[str, int]:
        """The rows of matrices that a file may store as one."""
        inner, shared = self.heads * self.features, self.shared_heads * self.features
        return {"attn_q": inner, "attn_k": shared, "attn_v": shared, "ffn_gate": self.hidden, "ffn_up": self.hidden}


# ---- weights ----
def rows_of(tensor: PackedTensor, first: int, past: int) -> PackedTensor:
    """Returns some rows of a tensor, without a copy."""
    each = len(tensor.blocks) // tensor.shape[0]
    return PackedTensor((past - first, *tensor.shape[1:]), tensor.packing, tensor.blocks[first * each : past * each])


class Weights:
    """The tensors of a file, each removed from the dict when it is taken and checked, so that memory can be freed.

    Args:
      packing:  name of the block format of matrices; "": the file's. A token table keeps at least eight bits, as it is read
      for each token and its error affects all layers
    """

    def __init__(self, tensors: dict[str, PackedTensor], packing: str = ""):
        self.tensors, self.packing = tensors, packing

    def take(self, name: str, *shape: int) -> PackedTensor:
        """Takes a tensor by its full name.

        Raises:
          DataError: the tensor is missing, or has another shape.
        """
        tensor = self.tensors.pop(name, None)
        if tensor is None or tensor.shape != shape:
            found = "none" if tensor is None else f"one of {tensor.shape}"
            raise DataError(f"the file must have a tensor {name} of {shape}, it has {found}.")
        return tensor

    def matrix(self, name: str, rows: int, columns: int, packing: str = "") -> PackedMatrix:
        """Takes a matrix; `packing` overrides that of the others."""
        return PackedMatrix(repacked(self.take(f"{name}.weight", rows, columns), packing or self.packing))

    def experts(self, name: str, num: int, rows: int, columns: int, has_biases: bool) -> Expert:
        """Takes several matrices, with their rows concatenated, and their biases, if any."""
        tensor = self.take(f"{name}.weight", num, rows, columns)
        biases = Tensor(self.take(f"{name}.bias", num, rows).unpacked()).realize() if has_biases else None
        flat = PackedTensor((num * rows, columns), tensor.packing, tensor.blocks)
        return Expert(PackedMatrix(repacked(flat, self.packing)), biases, num)

    def table(self, name: str, rows: int, columns: int) -> PackedMatrix:
        """Takes the token table without its padding rows; the same for its bias."""
        for part, axes in (("weight", 2), ("bias", 1)):
            tensor = self.tensors.get(f"{name}.{part}")
            if tensor is not None and len(tensor.shape) == axes and tensor.shape[0] > rows:
                self.tensors[f"{name}.{part}"] = rows_of(tensor, 0, rows)
        return self.matrix(name, rows, columns, "Q8_0" if self.packing.startswith("Q") else "")

    def linear(self, name: str, rows: int, columns: int, has_bias: bool) -> Linear:
        """Takes a matrix, with its bias if there is one."""
        return Linear(self.matrix(name, rows, columns), self.take(f"{name}.bias", rows) if has_bias else None)

    def norm(
        self, name: str, width: int, eps: float, subtracts_mean: bool, has_bias: bool = True
    ) -> nn.LayerNorm | nn.RMSNorm:
        """Takes a norm; norms that do not subtract the mean have no bias."""
        norm = nn.LayerNorm(width, eps, bias=has_bias) if subtracts_mean else nn.RMSNorm(width, eps)
        norm.requires_grad_(False)
        parts = ("weight", "bias") if subtracts_mean and has_bias else ("weight",)
        norm.load_state_dict({part: Tensor(self.take(f"{name}.{part}", width).unpacked()) for part in parts})
        return norm

    def check_empty(self) -> None:
        """Checks that the network has taken all tensors.

        Raises:
          DataError: a tensor is left, so the file is of another network.
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


def opened_by(config: DecoderConfig) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the function act(gate) * values of a gate and values (..., F)"""
    limit, activation = config.gate_limit, ACTIVATIONS[config.activation]

    def clamped(gate: Tensor, up: Tensor) -> Tensor:
        gate = gate.clamp(max=limit)
        return gate * (gate * SWIGLU_SLOPE).sigmoid() * (up.clamp(-limit, limit) + 1)

    return clamped if limit else lambda gate, up: activation(gate) * up


class HeadNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight for each head: weights (H, D)"""

    def __init__(self, weights: PackedTensor, eps: float):
        self.eps = eps
        self.register_buffer("weight", Tensor(weights.unpacked()[:, None]).realize())  # (H, 1, D)

    def forward(self, x_BHTD: Tensor) -> Tensor:
        """x (B, H, T, D) -> (B, H, T, D)."""
        return F.layer_norm(x_BHTD, x_BHTD.shape[3:], eps=self.eps) * self.weight


def norm_of_heads(config: DecoderConfig, weights: Weights, name: str, heads: int) -> nn.Module:
    """Returns the norm of queries or keys."""
    if config.norms_each_head:
        return HeadNorm(weights.take(f"{name}.weight", heads, config.features), config.eps)
    if config.norms_heads or config.norms_queries:
        return weights.norm(name, config.features * (1 if config.norms_heads else heads), *config.norm)
    return nn.Identity()


class SelfAttention(nn.Module):
    """Attention of each position to the positions up to its own."""

    def __init__(self, config: DecoderConfig, weights: Weights, part: str):
        self.config = config
        inner, shared = config.heads * config.features, config.shared_heads * config.features
        self.q = weights.linear(f"{part}.attn_q", inner, config.width, config.attention_biases)
        self.k = weights.linear(f"{part}.attn_k", shared, config.width, config.attention_biases)
        self.v = weights.linear(f"{part}.attn_v", shared, config.width, config.attention_biases)
        self.output = weights.linear(f"{part}.attn_output", config.width, inner, config.output_bias)
        self.q_norm = norm_of_heads(config, weights, f"{part}.attn_q_norm", config.heads)
        self.k_norm = norm_of_heads(config, weights, f"{part}.attn_k_norm", config.shared_heads)
        sinks = weights.take(f"{part}.attn_sinks.weight", config.heads) if config.sinks else None
        self.register_buffer("sinks", None if sinks is None else Tensor(sinks.unpacked()).realize())

    def forward(self, x_BTC: Tensor, cache: Cache, layer: int, position: Positions, view: View) -> Tensor:
        """Reads the positions from `position` on; their keys and values go to the cache. x (B, T, C) -> (B, T, C)."""
        (batch, length, _), config = x_BTC.shape, self.config
        q, k, v = self.q(x_BTC), self.k(x_BTC), self.v(x_BTC)
        if config.norms_queries:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (each.reshape(batch, length, -1, config.features).transpose(1, 2) for each in (q, k, v))
        if config.norms_heads or config.norms_each_head:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (view.turned(each, config.pairs_are_halves) for each in (q, k))
        mask = view.mask if self.sinks is None else view.with_sinks(self.sinks)
        y_BHTD = cache.attend(
            layer, q, k, v, position, mask, scale=config.attention_scale, enable_gqa=True, soft_cap=config.attention_cap
        )
        return self.output(y_BHTD.transpose(1, 2).reshape(batch, length, -1))


class LatentAttention(nn.Module):
    """Self-attention whose keys and values are products of one latent per position, the only contents of the cache.

    score = q_N . (K l) + rotated(q_R) . rotated(k_R) = (q_N K) . l + ...;    out = V (weighted sum of l)
    """

    def __init__(self, config: DecoderConfig, weights: Weights, part: str):
        self.config, has_biases = config, config.attention_biases
        inner, plain = config.heads * config.features, config.features - config.turned
        if config.query_latent:
            self.q_a = weights.linear(f"{part}.attn_q_a", config.query_latent, config.width, has_biases)
            self.q_norm = weights.norm(f"{part}.attn_q_a_norm", config.query_latent, LATENT_EPS, False)
        name = "attn_q_b" if config.query_latent else "attn_q"
        self.q = weights.linear(f"{part}.{name}", inner, config.query_latent or config.width, False)
        self.kv_a = weights.linear(f"{part}.attn_kv_a_mqa", config.latent + config.turned, config.width, has_biases)
        self.kv_norm = weights.norm(f"{part}.attn_kv_a_norm", config.latent, LATENT_EPS, False)
        self.kv = weights.matrix(f"{part}.attn_kv_b", config.heads * (plain + config.value_features), config.latent)
        inner = config.heads * config.value_features
        self.output = weights.linear(f"{part}.attn_output", config.width, inner, config.output_bias)

    def forward(self, x_BTC: Tensor, cache: Cache, layer: int, position: Positions, view: View) -> Tensor:
        """As in SelfAttention."""
        (batch, length, _), config = x_BTC.shape, self.config
        plain, halves = config.features - config.turned, config.pairs_are_halves
        q = self.q(self.q_norm(self.q_a(x_BTC)) if config.query_latent else x_BTC)
        q_BHTD = q.reshape(batch, length, config.heads, -1).transpose(1, 2)
        latent, key = self.kv_a(x_BTC).unsqueeze(1).split([config.latent, config.turned], 3)  # (B, 1, T, ...)
        weight_H = self.kv.weight().unflatten(0, (config.heads, -1))  # (H, N + values, L)
        latent = self.kv_norm(latent)
        q_BHTL = q_BHTD[..., :plain] @ weight_H[:, :plain]
        q, k = (
            Tensor.cat([q_BHTL, view.turned(q_BHTD[..., plain:], halves)], 3),
            Tensor.cat([latent, view.turned(key, halves)], 3),
        )
        y_BHTL = cache.attend(layer, q, k, latent, position, view.mask, scale=config.attention_scale, enable_gqa=True)
        y_BHTD = y_BHTL @ weight_H[:, plain:].transpose(1, 2)
        return self.output(y_BHTD.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """down(act(gate(x)) * up(x)), or without a gate down(act(up(x)))"""

    def __init__(self, config: DecoderConfig, weights: Weights, part: str, hidden: int, ending: str = ""):
        self.activation, self.opened = ACTIVATIONS[config.activation], opened_by(config)
        sides, has_biases = (hidden, config.width), config.feed_forward_biases
        self.gate = weights.linear(f"{part}.ffn_gate{ending}", *sides, has_biases) if config.is_gated else None
        self.up = weights.linear(f"{part}.ffn_up{ending}", *sides, has_biases)
        self.down = weights.linear(f"{part}.ffn_down{ending}", *sides[::-1], has_biases)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        up: Tensor = self.up(x_BTC)
        opened = self.activation(up) if self.gate is None else self.opened(self.gate(x_BTC), up)
        return self.down(opened)


class Mixture(nn.Module):
    """experts(x), experts(x) + shared(x), or experts(x) + sigmoid(x @ gate) * shared(x)"""

    def __init__(self, config: DecoderConfig, weights: Weights, part: str):
        sides, num = (config.expert_hidden, config.width), config.experts
        router = weights.linear(f"{part}.ffn_gate_inp", num, config.width, config.expert_biases)
        correction = weights.take(f"{part}.exp_probs_b.bias", num) if config.routing.corrects else None
        added = None if correction is None else Tensor(correction.unpacked()).realize()
        gate, up = (
            weights.experts(f"{part}.ffn_{name}_exps", num, *sides, config.expert_biases) for name in ("gate", "up")
        )
        down = weights.experts(f"{part}.ffn_down_exps", num, *sides[::-1], config.expert_biases)
        self.experts = Experts(Router(router, added, config.routing), gate, up, down, opened_by(config))
        self.has_shared, self.gates_shared = config.shared_hidden > 0, config.gates_shared
        if self.has_shared:
            self.shared = FeedForward(config, weights, part, config.shared_hidden, "_shexp")
        if self.has_shared and self.gates_shared:
            self.share = weights.matrix(f"{part}.ffn_gate_inp_shexp", 1, config.width)

    def forward(self, x_BTC: Tensor) -> Tensor:
        """x (B, T, C) -> (B, T, C)."""
        out: Tensor = self.experts(x_BTC)
        if not self.has_shared:
            return out
        shared = self.shared(x_BTC)
        return out + (self.share(x_BTC).sigmoid() * shared if self.gates_shared else shared)


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x)); norms are before a part, after it, or both."""

    def __init__(self, config: DecoderConfig, weights: Weights, layer: int):
        part = f"blk.{layer}"
        self.config, self.sight = config, config.sights[layer]

        def norm(name: str, is_there: bool) -> nn.Module:
            return weights.norm(f"{part}.{name}", config.width, *config.norm) if is_there else nn.Identity()

        self.attn_norm = norm("attn_norm", config.norms_before and not (config.norms_embedding and layer == 0))
        self.ffn_norm = norm("ffn_norm", config.norms_before and not config.norms_once)
        self.attn = (LatentAttention if config.latent else SelfAttention)(config, weights, part)
        is_mixed = config.experts and layer not in config.plain_layers
        self.mlp = Mixture(config, weights, part) if is_mixed else FeedForward(config, weights, part, config.hidden)
        names = ("post_attention_norm", "post_ffw_norm")
        self.after_attn, self.after_mlp = (norm(name, config.norms_after) for name in names)

    def forward(self, x_BTC: Tensor, *where: Any) -> Tensor:
        """x (B, T, C) -> (B, T, C); `where` as in SelfAttention.

        The input of a norm is stored: in a fused kernel the order of its sum of squares would depend on that formula.
        """
        config, scale = self.config, self.config.residual_scale
        seen_BTC: Tensor = self.attn_norm(x_BTC)
        read_BTC: Tensor = (x_BTC + self.after_attn(self.attn(seen_BTC, *where)) * scale).contiguous()
        if not config.norms_once:
            seen_BTC = self.ffn_norm(x_BTC if config.is_parallel else read_BTC)
        out_BTC: Tensor = (read_BTC + self.after_mlp(self.mlp(seen_BTC)) * scale).contiguous()
        return out_BTC


@dataclass(frozen=True)
class View:
    """The positions of layers with one sight.

    turns:  cosine and sine of the angles, (T, D/2) or (B, T, D/2) each; None: no rotation
    mask:   mask for the cache's `attend`
    """

    turns: tuple[Tensor, Tensor] | None
    mask: Any

    def turned(self, x_BHTD: Tensor, pairs_are_halves: bool) -> Tensor:
        """Returns rotated queries or keys."""
        return x_BHTD if self.turns is None else turned(x_BHTD, *self.turns, pairs_are_halves)

    def with_sinks(self, sinks_H: Tensor) -> Any:
        """Returns the mask with a zero key in front, whose score is each head's sink, (H, T, 1 + S)."""

        def each(mask_TS: Tensor) -> Tensor:
            scores_HTS = Tensor.zeros(sinks_H.shape[0], 1, 1).where(mask_TS, -math.inf)
            sinks_HT1 = sinks_H[:, None, None].expand(-1, mask_TS.shape[0], -1)
            return Tensor.cat([sinks_HT1, scores_HTS], 2)

        return tuple(map(each, self.mask)) if isinstance(self.mask, tuple) else each(self.mask)


def slopes(config: DecoderConfig) -> NDArray[np.float32]:
    """Returns the bias of each head's scores for each position, (H, S): slope times position / sqrt(D).

    Slopes are 2^(-8 i / H) for i from 1 to H, a power of two; other numbers of heads add slopes between them, from twice
    the power. Only differences of positions matter. Products are rounded to bfloat16, as in training.

    >>> slopes(DecoderConfig(1, 3, 1, 2, 1, 2, 2, 1, ())).tolist()
    [[0.0, 0.0625, 0.125], [0.0, 0.00390625, 0.0078125]]
    """
    most = 2 ** int(math.log2(config.heads))
    own, between = (2.0 ** (-8 * np.arange(1, num + 1) / num) for num in (most, 2 * most))
    of_head = np.concatenate([own, between[::2][: config.heads - most]]).astype(ml_dtypes.bfloat16)
    places = np.arange(config.context).astype(ml_dtypes.bfloat16)
    found = (of_head[:, None].astype(np.float32) * places.astype(np.float32)).astype(ml_dtypes.bfloat16)
    return found.astype(np.float32) / np.float32(math.sqrt(config.features))


# ---- the network ----
class Decoder(nn.Module):
    """logits = norm(blocks(embedding[tokens])) @ output.T

    Args:
      config:   shape of the network
      tensors:  weights by GGUF's names, removed from the dict; without `output.weight` the token table is also the output
      layer
      packing:  as in Weights

    Raises:
      DataError: a tensor is missing, has another shape, or belongs to no part of the network.
    """

    def __init__(self, config: DecoderConfig, tensors: dict[str, PackedTensor], packing: str = ""):
        weights = Weights(tensors, packing)
        self.config = config
        self.embedding = weights.table("token_embd", config.vocabulary, config.width)
        table = weights.take("position_embd.weight", config.positions, config.width) if config.positions else None
        self.register_buffer("position_embd", None if table is None else Tensor(table.unpacked()).realize())
        names = ["token_embd_norm"] if config.norms_embedding else []
        self.embedding_norm = nn.Sequential(*(weights.norm(name, config.width, *config.norm) for name in names))
        self.blocks = nn.ModuleList(Block(config, weights, layer) for layer in range(config.layers))
        self.norm = weights.norm("output_norm", config.width, *config.norm)
        is_tied = "output.weight" not in weights.tensors
        self.output = self.embedding if is_tied else weights.table("output", config.vocabulary, config.width)
        biases = weights.take("output.bias", config.vocabulary) if config.logit_biases else None
        self.register_buffer("output_bias", None if biases is None else Tensor(biases.unpacked()).realize())
        weights.check_empty()
        rotations = {sight.rotation for sight in config.sights if sight.rotation is not None}
        self.angles = {rotation: angles(rotation, config.context) for rotation in rotations}
        self.places = Tensor(np.arange(config.context, dtype=np.int32))
        self.slopes = Tensor(slopes(config)) if config.has_slopes else None
        added = [] if self.slopes is None else [self.slopes]
        realize([self.places, *added, *(each for pair in self.angles.values() for each in pair)])

    def cache(self, batch: int = 1, length: int | None = None) -> KVCache:
        """Returns an empty cache for texts of up to `length` tokens, by default the context.

        Raises:
          ArgumentError: the length is below 1 or above the context.
        """
        config = self.config
        length = config.context if length is None else length
        if not 1 <= length <= config.context:
            raise ArgumentError(f"Decoder.cache: length must be from 1 to {config.context}, got {length}.")
        if config.latent:
            return KVCache.empty(config.layers, (batch, 1, length, config.latent + config.turned), None)
        shape = (batch, config.shared_heads, length + config.sinks, config.features)
        return KVCache.empty(config.layers, shape, shape, int(config.sinks))

    def view(self, position: Positions, length: int, sight: Sight) -> View:
        """Returns the view of the positions from `position` on, for layers with one sight."""
        turns = None
        if sight.rotation is not None:
            cos, sin = self.angles[sight.rotation]
            turns = rows_at(cos, position, length), rows_at(sin, position, length)

        def mask_at(position: Position) -> Tensor | None:
            if not sight.window and length == 1 and not self.config.sinks and self.slopes is None:
                return None
            now_T1 = self.places[position : position + length].unsqueeze(1)
            seen_S = self.places[: position + length]
            mask_TS = seen_S <= now_T1
            mask_TS = mask_TS & (seen_S > now_T1 - sight.window) if sight.window else mask_TS
            if self.slopes is None:
                return mask_TS
            return self.slopes[:, : position + length].unsqueeze(1).where(mask_TS, -math.inf)  # (H, T, S)

        return View(turns, at_each(mask_at, position))

    def whole_view(self, is_text_BT: Tensor, sight: Sight) -> View:
        """Returns the view of all positions of padded texts, seen from both sides."""
        length = is_text_BT.shape[1]
        mask_B1TS = is_text_BT[:, None, None, :]
        if sight.window:
            place_T = self.places[:length]
            mask_B1TS = mask_B1TS & ((place_T - place_T.unsqueeze(1)).abs() < sight.window)
        if sight.rotation is None:
            return View(None, mask_B1TS)
        cos, sin = self.angles[sight.rotation]
        return View((cos[:length], sin[:length]), mask_B1TS)

    def hidden(self, tokens_BT: Tensor, is_text_BT: Tensor) -> Tensor:
        """Returns the blocks' output for whole texts, (B, T, C), normalized.

        Args:
          is_text_BT:  bool, False for padding
        """
        if not self.config.sees_ahead:
            return self.read_on(tokens_BT, self.cache(*tokens_BT.shape))
        return self._through(tokens_BT, NoCache(), 0, lambda sight: self.whole_view(is_text_BT, sight))

    def read_on(self, tokens_BT: Tensor, cache: Cache, position: Positions = 0) -> Tensor:
        """Returns the blocks' output for tokens from `position` on, with the cache as context.

        With a bound Variable as the position, one plan serves all positions for a number of tokens. With `Several`, the
        position is a tuple, and one token of each text is read.

        Returns:   (B, T, C), normalized

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or do not fit.
        """
        cache.check("Decoder", tokens_BT, position)
        return self._through(tokens_BT, cache, position, lambda sight: self.view(position, tokens_BT.shape[1], sight))

    def _through(self, tokens_BT: Tensor, cache: Cache, position: Positions, view: Callable[[Sight], View]) -> Tensor:
        """Returns the blocks' output, normalized; `view` returns the view for a sight."""
        x_BTC = self.embedding.rows(tokens_BT) * self.config.embedding_scale
        if self.position_embd is not None:
            x_BTC = x_BTC + rows_at(self.position_embd, position, tokens_BT.shape[1])
        x_BTC = self.embedding_norm(x_BTC)
        views = {sight: view(sight) for sight in dict.fromkeys(self.config.sights)}
        for layer, block in enumerate(self.blocks):
            x_BTC = block(x_BTC, cache, layer, position, views[block.sight])
        out_BTC: Tensor = self.norm(x_BTC)
        return out_BTC

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns the logits (..., V) of the next token, for hidden (..., C)."""
        logits: Tensor = self.output(hidden)
        if self.output_bias is not None:
            logits = logits + self.output_bias
        logits = logits * self.config.logit_scale
        cap = self.config.logit_cap
        return (logits / cap).tanh() * cap if cap else logits

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Returns the logits after each token of a text from its beginning, (B, T) -> (B, T, V)."""
        return self.logits(self.read_on(tokens_BT, self.cache(*tokens_BT.shape)))
