"""The character models and GPT-2's size in tinygrad: the LSTM unrolled, decoding with a bound symbolic position.

In:    a `Language` or a `Generation`
Out:   a training step; a prefill; a decoder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinygrad.dtype import dtypes
from tinygrad.engine.jit import TinyJit
from tinygrad.nn.optim import AdamW, OptimizerGroup
from tinygrad.tensor import Tensor
from tinygrad.uop.ops import UOp

from bench.language import Array, Language, Transformer, flat, is_decayed, mapped, network_weights
from bench.singles import Generation, generation_weights, prompts
from bench.workloads import LAYER_NORM_EPS

Weights = dict[str, Any]


def own(array: Array) -> Tensor:
    """A tensor that does not alias the array."""
    return Tensor(array).contiguous().realize()


def make_step(workload: Language) -> Callable[[Tensor, Tensor], Tensor]:
    """One step of AdamW, captured at its second call and replayed from the third."""
    weights = mapped(lambda array: own(array).is_param_(), network_weights(workload.network, workload.name))
    params = flat(weights)
    rate, (b1, b2), eps = workload.learning_rate, workload.betas, workload.eps
    optimizer = OptimizerGroup(
        AdamW([p for p in params if is_decayed(p)], rate, b1, b2, eps, workload.weight_decay),
        AdamW([p for p in params if not is_decayed(p)], rate, b1, b2, eps, 0.0),
    )
    run = _transformer if isinstance(workload.network, Transformer) else _recurrent

    @TinyJit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        logits = run(workload.network, weights, x)  # type: ignore[operator]
        loss = logits.flatten(0, 1).sparse_categorical_crossentropy(y.flatten()).backward()
        return loss.realize(*optimizer.schedule_step())

    return step


def _transformer(network: Transformer, weights: Weights, x: Tensor) -> Tensor:
    stream = weights["token"][x] + weights["position"]
    for layer in weights["layers"]:
        q, k, v = _qkv(network, layer, stream)
        stream = _rest(layer, stream, q.scaled_dot_product_attention(k, v, is_causal=True))
    return _logits(weights, stream)


def _recurrent(network: Any, weights: Weights, x: Tensor) -> Tensor:
    joint = weights["token"][x].linear(weights["input"].T, weights["input_bias"] + weights["hidden_bias"])
    hidden = cell = Tensor.zeros(x.shape[0], network.width)
    outs = []
    for t in range(network.length):
        i, f, g, o = (joint[:, t] + hidden @ weights["hidden"].T).chunk(4, dim=-1)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outs.append(hidden)
    return Tensor.stack(*outs, dim=1).linear(weights["head"].T, weights["head_bias"])


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x.layernorm(eps=LAYER_NORM_EPS) * weight


def _qkv(network: Transformer, layer: Weights, stream: Tensor) -> Any:
    """Queries, keys and values, stacked (3, B, H, T, D)."""
    joint = _norm(stream, layer["norm1"]) @ layer["qkv"].T
    return joint.reshape(*stream.shape[:2], 3, network.num_heads, -1).permute(2, 0, 3, 1, 4)


def _rest(layer: Weights, stream: Tensor, mixed: Tensor) -> Tensor:
    """The layer after its attention; mixed (B, H, T, D)."""
    stream = stream + mixed.transpose(1, 2).reshape(stream.shape) @ layer["proj"].T
    wide = _norm(stream, layer["norm2"]) @ layer["up"].T
    bent = wide * 0.5 * (1 + (wide * 0.5**0.5).erf())  # tinygrad's gelu is the tanh form
    out: Tensor = stream + bent @ layer["down"].T
    return out


def _logits(weights: Weights, stream: Tensor) -> Tensor:
    return _norm(stream, weights["norm"]) @ weights["token"].T


# ---- generation ----


class Generator:
    """Weights, and for each layer a cache of keys and values (2, 1, H, T, D), T what is needed in all."""

    def __init__(self, workload: Generation) -> None:
        self.workload, self.network = workload, workload.network
        self.weights = mapped(own, generation_weights(workload))
        network, self.length = self.network, workload.prompt + workload.count
        shape = (2, 1, network.num_heads, self.length, network.width // network.num_heads)
        self.caches = [Tensor.zeros(shape).contiguous().realize() for _ in range(network.num_layers)]
        self.prefill = TinyJit(lambda tokens: self.read(tokens, 0).realize())
        self.next_token = TinyJit(self._next)

    def read(self, tokens: Tensor, start: Any) -> Tensor:
        """Returns the logits (1, V) of the last of `tokens` (1, T), which stand from `start` on."""
        num_tokens = tokens.shape[1]
        stream = self.weights["token"][tokens] + self.weights["position"][start : start + num_tokens]
        for layer, cache in zip(self.weights["layers"], self.caches):
            q, k, v = _qkv(self.network, layer, stream)
            cache[:, :, :, start : start + num_tokens].assign(Tensor.stack(k, v)).realize()
            k, v = cache[0, :, :, : start + num_tokens], cache[1, :, :, : start + num_tokens]
            stream = _rest(layer, stream, q.scaled_dot_product_attention(k, v, is_causal=num_tokens > 1))
        return _logits(self.weights, stream[:, -1])

    def _next(self, logits: Tensor, position: UOp) -> tuple[Tensor, Tensor]:
        token = logits.argmax(-1, keepdim=True).cast(dtypes.int32)
        logits = self.read(token, position)
        return token.realize(logits), logits

    def decode(self) -> tuple[Tensor, Tensor]:
        """Returns `count` tokens after the prompt, which was read before, and the logits (1, V) after them."""
        logits, written = self.after_prompt, []
        for position in range(self.workload.prompt, self.length):
            bound = UOp.variable("position", 1, self.length - 1).bind(position)
            token, logits = self.next_token(logits.clone().realize(), bound)
            written.append(token.clone().realize())
        return Tensor.cat(*written, dim=1).realize(), logits

    def read_prompt(self) -> None:
        """Fills the cache, for `decode`."""
        self.after_prompt = self.read(own(prompts(self.workload)[0]), 0).realize()
