"""A decoder: the Transformer of most open language models, each of which is a setting of it.

Against GPT (gpt.py): positions are angles by which queries and keys are turned, pair by pair; several heads of queries
share one of keys and values; the feed-forward part multiplies by a gate. Models differ in DecoderConfig.
It reads any number of tokens after those in its cache, so that a text is never read twice.

Source: Touvron et al. 2023, arXiv:2302.13971 (Llama); Zhang, Sennrich 2019, arXiv:1910.07467 (RMSNorm); Su et al. 2021,
       arXiv:2104.09864 (angles); Ainslie et al. 2023, arXiv:2305.13245 (shared keys and values); Shazeer 2020,
       arXiv:2002.05202 (gates); Gemma team 2024, arXiv:2408.00118 (soft caps) and 2025, arXiv:2503.19786 (two bases);
       Yang et al. 2024, arXiv:2407.10671 (Qwen 2) and 2025, arXiv:2505.09388 (Qwen 3); Grattafiori et al. 2024,
       arXiv:2407.21783 (Llama 3.1); Black et al. 2022, arXiv:2204.06745 (GPT-NeoX: both parts read the same input); OLMo
       team 2024, arXiv:2501.00656 (norms after parts alone); Li et al. 2023, arXiv:2305.06161 (one head of keys, values);
       Almazrouei et al. 2023, arXiv:2311.16867 (Falcon: one norm for both parts); DeepSeek 2024, arXiv:2405.04434,
       section 2.1 (latents of keys and values); OpenAI 2025, arXiv:2508.10925, section 2 (sinks, clamped gates);
       Warner et al. 2024, arXiv:2412.13663 (ModernBERT); Press et al. 2021, arXiv:2108.12409 (ALiBi).

Letters: B batch, T positions, S positions seen, C width, H heads, D features of a head, V vocabulary, L features of a
         latent, R of a head that are turned, N that are not.
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

SWIGLU_SLOPE = 1.702  # with which a clamped gate opens
LATENT_EPS = 1e-6  # of the norms of latents, which no file says
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
    """The positions that a layer sees, and how it turns them.

    window:    most positions that it sees, up to its own and with it; with `sees_ahead` as many from its own on; 0: all
    rotation:  of queries and keys; None: they are not turned
    """

    window: int = 0
    rotation: Rotation | None = None


@dataclass(frozen=True)
class DecoderConfig:
    """The shape of a network.

    vocabulary:    V
    context:       most positions that it was trained with
    layers:        blocks, one after the other
    width:         C
    hidden:        width of the feed-forward part
    heads:         H, of queries
    shared_heads:  of keys and values; divides heads
    features:      D, even
    sights:        one for each layer
    eps:           of the norms, in the units of a square
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
    positions: int = 0  # rows of a table of positions, which is added to the tokens'; 0: there is none
    pairs_are_halves: bool = True  # a pair is features i and i + D/2; else neighbours
    attention_biases: bool = False  # of queries, keys and values
    output_bias: bool = False  # of what joins the heads
    feed_forward_biases: bool = False
    logit_biases: bool = False  # of the output layer
    subtracts_mean: bool = False  # norms do
    norm_biases: bool = True  # those that subtract the mean have a bias
    norms_before: bool = True  # a part's input is normalised
    norms_after: bool = False  # a part's output is normalised
    norms_heads: bool = False  # queries and keys are normalised, head by head
    norms_each_head: bool = False  # the same, with weights of their own for each head
    norms_queries: bool = False  # queries and keys are normalised, all heads as one vector
    is_parallel: bool = False  # both parts of a block read its input; else one reads what the other has added
    norms_once: bool = False  # and one norm of it
    norms_embedding: bool = False  # what the blocks read is normalised, and not again before the first one's attention
    is_gated: bool = True  # the feed-forward part
    experts: int = 0  # feed-forward parts of a layer; 0: there is one
    routing: Routing = Routing()  # of positions to experts
    expert_hidden: int = 0  # width of each
    expert_biases: bool = False  # of experts and of what chooses them
    shared_hidden: int = 0  # width of one more, which every position has; 0: there is none
    gates_shared: bool = True  # the output of that one is multiplied by a share, too
    gate_limit: float = 0.0  # no gate is beyond it, and values are within it, to which 1 is added; 0: neither
    latent: int = 0  # L, of keys and values of all heads; 0: these have features of their own
    query_latent: int = 0  # the same of queries
    turned: int = 0  # R, of a head's features beside a latent: the last ones, which all heads' keys share
    value_features: int = 0  # of a head's values beside a latent
    sees_ahead: bool = False  # a position sees those behind it, too: the network reads texts, and writes none
    has_slopes: bool = False  # scores fall with the distance, head by head (ALiBi)
    sinks: bool = False  # each head has a score that takes part in its softmax and adds nothing
    plain_layers: frozenset[int] = frozenset()  # layers without experts
    activation: str = "silu"  # a key of ACTIVATIONS
    attention_scale: float | None = None  # of scores; None: D^-0.5
    attention_cap: float = 0.0  # no score is beyond it; 0: scores stay as they are
    logit_cap: float = 0.0  # the same for logits
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what a part adds
    logit_scale: float = 1.0

    @property
    def norm(self) -> tuple[float, bool, bool]:
        """The settings of norms: eps, whether they subtract the mean, and whether they have a bias then."""
        return self.eps, self.subtracts_mean, self.norm_biases

    @property
    def rows(self) -> dict[str, int]:
        """The rows of matrices of which files may have several as one."""
        inner, shared = self.heads * self.features, self.shared_heads * self.features
        return {"attn_q": inner, "attn_k": shared, "attn_v": shared, "ffn_gate": self.hidden, "ffn_up": self.hidden}


# ---- weights ----
def rows_of(tensor: PackedTensor, first: int, past: int) -> PackedTensor:
    """Returns some rows of a tensor, without a copy."""
    each = len(tensor.blocks) // tensor.shape[0]
    return PackedTensor((past - first, *tensor.shape[1:]), tensor.packing, tensor.blocks[first * each : past * each])


class Weights:
    """The tensors of a file, each taken once and checked. The dict is emptied, so that one that was taken can be freed.

    Args:
      packing:  name of the blocks in which matrices are kept; "": those of the file. A table of tokens takes eight bits at
                least: it is read for each token, and an error there is in all that follows
    """

    def __init__(self, tensors: dict[str, PackedTensor], packing: str = ""):
        self.tensors, self.packing = tensors, packing

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

    def matrix(self, name: str, rows: int, columns: int, packing: str = "") -> PackedMatrix:
        """Returns a matrix; `packing` goes before that of the others."""
        return PackedMatrix(repacked(self.take(f"{name}.weight", rows, columns), packing or self.packing))

    def experts(self, name: str, num: int, rows: int, columns: int, has_biases: bool) -> Expert:
        """Returns some matrices, the rows of one after those of the other, and a bias for each if there is one."""
        tensor = self.take(f"{name}.weight", num, rows, columns)
        biases = Tensor(self.take(f"{name}.bias", num, rows).unpacked()).realize() if has_biases else None
        flat = PackedTensor((num * rows, columns), tensor.packing, tensor.blocks)
        return Expert(PackedMatrix(repacked(flat, self.packing)), biases, num)

    def table(self, name: str, rows: int, columns: int) -> PackedMatrix:
        """Returns the matrix of a vector for each token, without what fills it up behind them, as its bias is."""
        for part, axes in (("weight", 2), ("bias", 1)):
            tensor = self.tensors.get(f"{name}.{part}")
            if tensor is not None and len(tensor.shape) == axes and tensor.shape[0] > rows:
                self.tensors[f"{name}.{part}"] = rows_of(tensor, 0, rows)
        return self.matrix(name, rows, columns, "Q8_0" if self.packing.startswith("Q") else "")

    def linear(self, name: str, rows: int, columns: int, has_bias: bool) -> Linear:
        """Returns a matrix, and a bias if there is one."""
        return Linear(self.matrix(name, rows, columns), self.take(f"{name}.bias", rows) if has_bias else None)

    def norm(
        self, name: str, width: int, eps: float, subtracts_mean: bool, has_bias: bool = True
    ) -> nn.LayerNorm | nn.RMSNorm:
        """Returns a norm; one that subtracts no mean has no bias."""
        norm = nn.LayerNorm(width, eps, bias=has_bias) if subtracts_mean else nn.RMSNorm(width, eps)
        norm.requires_grad_(False)
        parts = ("weight", "bias") if subtracts_mean and has_bias else ("weight",)
        norm.load_state_dict({part: Tensor(self.take(f"{name}.{part}", width).unpacked()) for part in parts})
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


def opened_by(config: DecoderConfig) -> Callable[[Tensor, Tensor], Tensor]:
    """Returns the function of a gate and of values (..., F) that lets these through: act(gate) * values"""
    limit, activation = config.gate_limit, ACTIVATIONS[config.activation]

    def clamped(gate: Tensor, up: Tensor) -> Tensor:
        gate = gate.clamp(max=limit)
        return gate * (gate * SWIGLU_SLOPE).sigmoid() * (up.clamp(-limit, limit) + 1)

    return clamped if limit else lambda gate, up: activation(gate) * up


class HeadNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight, of each head: weights (H, D)"""

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
    """Each position takes in what the positions up to its own hold."""

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
        """The positions from `position` on; their keys and values go to the cache. x (B, T, C) -> (B, T, C)."""
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
    """Self-attention whose keys and values are products of one latent of a position, which is all that the cache holds.

    score = q_N . (K l) + turned(q_R) . turned(k_R) = (q_N K) . l + ...;    out = V (sum of shares l)
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
        """As SelfAttention."""
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

        A norm's input is stored: in a fused kernel the order in which its squares are added up would depend on its formula.
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
    """Some positions as the layers of one sight know them.

    turns:  cosine and sine of their angles, (T, D/2) or (B, T, D/2) each; None: nothing is turned
    mask:   as the cache's `attend` takes it
    """

    turns: tuple[Tensor, Tensor] | None
    mask: Any

    def turned(self, x_BHTD: Tensor, pairs_are_halves: bool) -> Tensor:
        """Returns queries or keys, turned."""
        return x_BHTD if self.turns is None else turned(x_BHTD, *self.turns, pairs_are_halves)

    def with_sinks(self, sinks_H: Tensor) -> Any:
        """Returns the mask with a place in front, whose key is zero and whose score each head's sink is, (H, T, 1 + S)."""

        def each(mask_TS: Tensor) -> Tensor:
            scores_HTS = Tensor.zeros(sinks_H.shape[0], 1, 1).where(mask_TS, -math.inf)
            sinks_HT1 = sinks_H[:, None, None].expand(-1, mask_TS.shape[0], -1)
            return Tensor.cat([sinks_HT1, scores_HTS], 2)

        return tuple(map(each, self.mask)) if isinstance(self.mask, tuple) else each(self.mask)


def slopes(config: DecoderConfig) -> NDArray[np.float32]:
    """Returns the bias of each head's scores for each position, (H, S): a slope times the place / sqrt(D).

    Slopes are 2^(-8 i / H) for i from 1 to H, a power of two; other heads have those between, of twice as many. Only
    differences of places matter. Products are rounded to bfloat16, as they were in training.

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
      config:   its shape
      tensors:  weights by the names of GGUF, which are taken out; without `output.weight` the table of embeddings is the
                output layer
      packing:  as of Weights

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
        """Returns an empty cache for texts of up to `length` tokens: by default as many as the context has.

        Raises:
          ArgumentError: the length is below 1 or beyond the context.
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
        """Returns the positions from `position` on, for layers of a sight."""
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
        """Returns all positions of texts that are filled up behind, seen from both sides."""
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
        """Returns the blocks' output for whole texts, (B, T, C), normalised.

        Args:
          is_text_BT:  bool, False where a text is filled up behind
        """
        if not self.config.sees_ahead:
            return self.read_on(tokens_BT, self.cache(*tokens_BT.shape))
        return self._through(tokens_BT, NoCache(), 0, lambda sight: self.whole_view(is_text_BT, sight))

    def read_on(self, tokens_BT: Tensor, cache: Cache, position: Positions = 0) -> Tensor:
        """Returns the blocks' output for tokens from `position` on, with the cache as context.

        With a bound Variable as the position, one plan serves every position for a number of tokens. Beside `Several`, the
        position is a tuple: of each text one token is read.

        Returns:   (B, T, C), normalised

        Raises:
          ShapeError: tokens are not (B, T) with the cache's B, or do not fit into it.
        """
        cache.check("Decoder", tokens_BT, position)
        return self._through(tokens_BT, cache, position, lambda sight: self.view(position, tokens_BT.shape[1], sight))

    def _through(self, tokens_BT: Tensor, cache: Cache, position: Positions, view: Callable[[Sight], View]) -> Tensor:
        """Returns the blocks' output, normalised; `view` gives what the layers of a sight see."""
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
        """Returns the logits after each token, (B, T) -> (B, T, V), as of a text's beginning."""
        return self.logits(self.read_on(tokens_BT, self.cache(*tokens_BT.shape)))
