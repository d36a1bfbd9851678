"""The character models and GPT-2's size in JAX: pure functions of the weights; loops are lax.scan.

In:    a `Language` or a `Generation`
Out:   weights and a pure step; a prefill; a decoder
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array as JaxArray

from bench.language import Language, Transformer, is_decayed, network_weights
from bench.singles import Generation, generation_weights, prompts
from bench.workloads import LAYER_NORM_EPS

Weights = dict[str, Any]
Cache = tuple[JaxArray, JaxArray]


def make_step(workload: Language, is_layered: bool) -> tuple[Any, Callable[..., Any]]:
    """Returns the state, and a step of AdamW as a pure function of (state, x, y) that returns (state, loss).

    is_layered:  the layers' weights are stacked, and one scan runs over them
    """
    weights = jax.tree.map(jnp.array, network_weights(workload.network, workload.name))
    if is_layered:
        weights["layers"] = jax.tree.map(lambda *layers: jnp.stack(layers), *weights["layers"])
    run = _transformer if isinstance(workload.network, Transformer) else _recurrent

    def loss_of(weights: Weights, x: JaxArray, y: JaxArray) -> JaxArray:
        logits = run(workload.network, weights, x)  # type: ignore[operator]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1).mean()

    def step(state: Any, x: JaxArray, y: JaxArray) -> Any:
        weights, means, squares, count = state
        loss, grads = jax.value_and_grad(loss_of)(weights, x, y)
        b1, b2 = workload.betas
        count = count + 1
        means = jax.tree.map(lambda mean, grad: b1 * mean + (1 - b1) * grad, means, grads)
        squares = jax.tree.map(lambda square, grad: b2 * square + (1 - b2) * grad * grad, squares, grads)

        def updated(weight: JaxArray, mean: JaxArray, square: JaxArray) -> JaxArray:
            root = jnp.sqrt(square / (1 - b2**count)) + workload.eps
            kept = weight * (1 - workload.learning_rate * workload.weight_decay) if is_decayed(weight) else weight
            return kept - workload.learning_rate / (1 - b1**count) * mean / root

        return (jax.tree.map(updated, weights, means, squares), means, squares, count), loss

    zeros = [jax.tree.map(jnp.zeros_like, weights) for _ in range(2)]
    return (weights, *zeros, jnp.zeros((), jnp.float32)), step


def _transformer(network: Transformer, weights: Weights, x: JaxArray) -> JaxArray:
    """Returns the logits; blocks are scanned where their weights are stacked, else written out."""
    stream = weights["token"][x] + weights["position"]
    causal = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))

    def block(stream: JaxArray, layer: Weights) -> tuple[JaxArray, None]:
        q, k, v = _qkv(network, layer, stream)
        return _rest(layer, stream, _attention(q, k, v, causal)), None

    if isinstance(weights["layers"], list):
        for layer in weights["layers"]:
            stream, _ = block(stream, layer)
    else:
        stream, _ = jax.lax.scan(block, stream, weights["layers"])
    return _logits(weights, stream)


def _recurrent(network: Any, weights: Weights, x: JaxArray) -> JaxArray:
    """The products with the inputs are one for all times; the scan does what depends on the time before."""
    bias = weights["input_bias"] + weights["hidden_bias"]
    inputs = (weights["token"][x] @ weights["input"].T + bias).swapaxes(0, 1)  # (T, B, 4C)

    def cell_step(state: Cache, joint: JaxArray) -> tuple[Cache, JaxArray]:
        hidden, cell = state
        i, f, g, o = jnp.split(joint + hidden @ weights["hidden"].T, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (hidden, cell), hidden

    start = jnp.zeros((x.shape[0], network.width))
    _, outs = jax.lax.scan(cell_step, (start, start), inputs)
    return outs.swapaxes(0, 1) @ weights["head"].T + weights["head_bias"]


def _norm(x: JaxArray, weight: JaxArray) -> JaxArray:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + LAYER_NORM_EPS) * weight


def _qkv(network: Transformer, layer: Weights, stream: JaxArray) -> Any:
    """Queries, keys and values, stacked (3, B, H, T, D)."""
    joint = _norm(stream, layer["norm1"]) @ layer["qkv"].T
    return joint.reshape(*stream.shape[:2], 3, network.num_heads, -1).transpose(2, 0, 3, 1, 4)


def _attention(q: JaxArray, k: JaxArray, v: JaxArray, allowed: JaxArray) -> JaxArray:
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    return jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf)) @ v


def _rest(layer: Weights, stream: JaxArray, mixed: JaxArray) -> JaxArray:
    """The layer after its attention; mixed (B, H, T, D)."""
    stream = stream + mixed.swapaxes(1, 2).reshape(stream.shape) @ layer["proj"].T
    wide = jax.nn.gelu(_norm(stream, layer["norm2"]) @ layer["up"].T, approximate=False)
    return stream + wide @ layer["down"].T


def _logits(weights: Weights, stream: JaxArray) -> JaxArray:
    return _norm(stream, weights["norm"]) @ weights["token"].T


# ---- generation ----


class Generator:
    """Weights, and functions of a cache: for each layer keys and values (1, H, T, D), T what is needed in all."""

    def __init__(self, workload: Generation) -> None:
        self.workload, self.network = workload, workload.network
        self.weights = jax.tree.map(jnp.array, generation_weights(workload))
        self.length = workload.prompt + workload.count
        self.read_all = jax.jit(self._read, donate_argnums=3)
        self.next_token = jax.jit(self._next, donate_argnums=3)
        self.next_tokens = jax.jit(self._scan, donate_argnums=2)

    def _empty(self) -> list[Cache]:
        network = self.network
        shape = (1, network.num_heads, self.length, network.width // network.num_heads)
        return [(jnp.zeros(shape), jnp.zeros(shape)) for _ in range(network.num_layers)]

    def _read(self, weights: Weights, tokens: JaxArray, start: Any, caches: list[Cache]) -> tuple[JaxArray, list[Cache]]:
        """Returns the logits (1, V) of the last of `tokens` (1, T), which stand from `start` on, and the caches."""
        num_tokens = tokens.shape[1]
        position = jax.lax.dynamic_slice_in_dim(weights["position"], start, num_tokens)
        stream = weights["token"][tokens] + position
        allowed = jnp.arange(self.length) <= start + jnp.arange(num_tokens)[:, None]
        after = []
        for layer, (keys, values) in zip(weights["layers"], caches):
            q, k, v = _qkv(self.network, layer, stream)
            keys = jax.lax.dynamic_update_slice_in_dim(keys, k, start, axis=2)
            values = jax.lax.dynamic_update_slice_in_dim(values, v, start, axis=2)
            stream = _rest(layer, stream, _attention(q, keys, values, allowed))
            after.append((keys, values))
        return _logits(weights, stream[:, -1]), after

    def prefill(self, tokens: JaxArray) -> JaxArray:
        """Returns the last logits (1, V) of a prompt (1, T)."""
        logits, self.caches = self.read_all(self.weights, tokens, 0, self._empty())
        return logits

    def _next(self, weights: Weights, logits: JaxArray, position: Any, caches: list[Cache]) -> Any:
        token = logits.argmax(-1, keepdims=True)
        return token, *self._read(weights, token, position, caches)

    def _scan(self, weights: Weights, logits: JaxArray, caches: list[Cache]) -> Any:
        def body(state: Any, position: JaxArray) -> Any:
            token, *after = self._next(weights, state[0], position, state[1])
            return tuple(after), token

        positions = self.workload.prompt + jnp.arange(self.workload.count)
        (logits, caches), written = jax.lax.scan(body, (logits, caches), positions)
        return written, logits, caches

    def decode(self) -> tuple[JaxArray, JaxArray]:
        """Returns `count` tokens after the prompt, which was read before, and the logits (1, V) after them."""
        logits, written = self.after_prompt, []
        for position in range(self.workload.prompt, self.length):
            token, logits, self.caches = self.next_token(self.weights, logits, position, self.caches)
            written.append(token)
        return jnp.concatenate(written, 1), logits

    def decode_in_one(self) -> tuple[JaxArray, JaxArray]:
        """`decode` as one call: a scan over the tokens."""
        written, logits, self.caches = self.next_tokens(self.weights, self.after_prompt, self.caches)
        return written, logits

    def read_prompt(self) -> None:
        """Fills the cache, for `decode`."""
        self.after_prompt = self.prefill(jnp.array(prompts(self.workload)[0]))
