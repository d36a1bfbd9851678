"""What the character models and the single calls have to compute: NumPy, float64, gradients by hand.

In:    a `Language`, a `Generation` or an `Overhead`
Out:   the first losses; judges of a framework's figures

Each operation returns its result and a function from the result's gradient to those of its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf, pi, sqrt
from typing import Any

import numpy as np

from bench.language import (
    Array,
    Language,
    Recurrent,
    Transformer,
    Weights,
    flat,
    is_decayed,
    language_batches,
    mapped,
    network_weights,
)
from bench.singles import Generation, Overhead, generation_weights, overhead_operands, prompts
from bench.workloads import LAYER_NORM_EPS

Backward = Callable[..., Any]


# ---- operations ----


def _linear(x: Array, weight: Array) -> tuple[Array, Backward]:
    """x @ weight.T; its gradients: (of x, of weight)."""

    def backward(grad: Array) -> tuple[Array, Array]:
        return grad @ weight, grad.reshape(-1, grad.shape[-1]).T @ x.reshape(-1, x.shape[-1])

    return x @ weight.T, backward


def _norm(x: Array, weight: Array) -> tuple[Array, Backward]:
    """Returns the layer norm without a bias, and what gives the gradients of x and of the weight."""
    centred = x - x.mean(-1, keepdims=True)
    scale = 1.0 / np.sqrt((centred**2).mean(-1, keepdims=True) + LAYER_NORM_EPS)
    normal = centred * scale

    def backward(grad: Array) -> tuple[Array, Array]:
        inner = grad * weight
        along = (inner * normal).mean(-1, keepdims=True)
        grad_x = scale * (inner - inner.mean(-1, keepdims=True) - normal * along)
        return grad_x, (grad * normal).reshape(-1, weight.size).sum(0)

    return normal * weight, backward


# erf at steps of 1/1024, beyond 6 it is 1: a cubic through values and slopes of two neighbours is off by 1e-14.
_ERF_STEP = 2.0**-10
_ERF_AT = np.arange(6145) * _ERF_STEP
_ERF = np.array([erf(at) for at in _ERF_AT])
_ERF_RISE = 2.0 / sqrt(pi) * np.exp(-(_ERF_AT**2)) * _ERF_STEP


def _erf(x: Array) -> Array:
    at = np.minimum(np.abs(x), 5.999) / _ERF_STEP
    left = at.astype(np.int64)
    t = at - left
    low, high, rise, rise_after = _ERF[left], _ERF[left + 1], _ERF_RISE[left], _ERF_RISE[left + 1]
    curve = low + t * (rise + t * (3 * (high - low) - 2 * rise - rise_after + t * (2 * (low - high) + rise + rise_after)))
    return np.sign(x) * curve


def _gelu(x: Array) -> tuple[Array, Backward]:
    below = 0.5 * (1.0 + _erf(x / sqrt(2.0)))  # the share of the normal distribution below x
    return x * below, lambda grad: grad * (below + x * np.exp(-0.5 * x * x) / sqrt(2.0 * pi))


def _attention(qkv: Array, num_heads: int) -> tuple[Array, Backward]:
    """Causal attention of all heads; qkv (B, T, 3C)."""
    batch, length, width = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = qkv.reshape(batch, length, 3, num_heads, -1).transpose(2, 0, 3, 1, 4)  # each (B, H, T, D)
    scale = 1.0 / sqrt(width // num_heads)
    scores = q @ k.swapaxes(-1, -2) * scale + np.triu(np.full((length, length), -np.inf), 1)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    out = (shares @ v).transpose(0, 2, 1, 3).reshape(batch, length, width)

    def backward(grad: Array) -> Array:
        grad = grad.reshape(batch, length, num_heads, -1).transpose(0, 2, 1, 3)
        grad_shares = grad @ v.swapaxes(-1, -2)
        grad_scores = shares * (grad_shares - (grad_shares * shares).sum(-1, keepdims=True)) * scale
        grads = grad_scores @ k, grad_scores.swapaxes(-1, -2) @ q, shares.swapaxes(-1, -2) @ grad
        return np.stack(grads).transpose(1, 3, 0, 2, 4).reshape(qkv.shape)

    return out, backward


def _block(x: Array, layer: Weights, num_heads: int) -> tuple[Array, Backward]:
    """One layer; its gradients: (of x, of the layer's weights)."""
    normal1, norm1_back = _norm(x, layer["norm1"])
    qkv, qkv_back = _linear(normal1, layer["qkv"])
    mixed, attention_back = _attention(qkv, num_heads)
    projected, proj_back = _linear(mixed, layer["proj"])
    middle = x + projected
    normal2, norm2_back = _norm(middle, layer["norm2"])
    wide, up_back = _linear(normal2, layer["up"])
    bent, gelu_back = _gelu(wide)
    narrow, down_back = _linear(bent, layer["down"])

    def backward(grad: Array) -> tuple[Array, Weights]:
        grads = {}
        inner, grads["down"] = down_back(grad)
        inner, grads["up"] = up_back(gelu_back(inner))
        inner, grads["norm2"] = norm2_back(inner)
        grad = grad + inner
        inner, grads["proj"] = proj_back(grad)
        inner, grads["qkv"] = qkv_back(attention_back(inner))
        inner, grads["norm1"] = norm1_back(inner)
        return grad + inner, {key: grads[key] for key in layer}

    return middle + narrow, backward


def _cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """The mean loss, and the gradient of the logits."""
    shares = np.exp(logits - logits.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    places = *np.indices(labels.shape), labels
    loss = float(-np.log(shares[places]).mean())
    shares[places] -= 1.0
    return loss, shares / labels.size


# ---- networks: the loss and the gradient of every weight ----


def _transformer(network: Transformer, weights: Weights, x: Array, y: Array) -> tuple[float, Weights]:
    """Returns the loss of one batch, and its gradient by each weight."""
    stream = weights["token"][x] + weights["position"]
    backs = []
    for layer in weights["layers"]:
        stream, back = _block(stream, layer, network.num_heads)
        backs.append(back)
    normal, norm_back = _norm(stream, weights["norm"])
    logits, head_back = _linear(normal, weights["token"])
    loss, grad_logits = _cross_entropy(logits, y)
    grad, grad_token = head_back(grad_logits)
    grad, grad_norm = norm_back(grad)
    layers = []
    for back in reversed(backs):
        grad, of_layer = back(grad)
        layers.append(of_layer)
    np.add.at(grad_token, x, grad)
    return loss, {"token": grad_token, "position": grad.sum(0), "layers": layers[::-1], "norm": grad_norm}


def _recurrent(network: Recurrent, weights: Weights, x: Array, y: Array) -> tuple[float, Weights]:
    """Returns the loss of one batch, and its gradient by each weight: an LSTM, step by step."""
    inputs = weights["token"][x]  # (B, T, C)
    hidden = cell = np.zeros((len(x), network.width))
    bias = weights["input_bias"] + weights["hidden_bias"]
    states, outs = [], []
    for t in range(network.length):
        gates = inputs[:, t] @ weights["input"].T + hidden @ weights["hidden"].T + bias
        i, f, g, o = np.split(gates, 4, -1)
        i, f, o, g = _sigmoid(i), _sigmoid(f), _sigmoid(o), np.tanh(g)
        states.append((hidden, cell, i, f, g, o))
        cell = f * cell + i * g
        hidden = o * np.tanh(cell)
        outs.append(hidden)
        states[-1] = (*states[-1], np.tanh(cell))
    logits, head_back = _linear(np.stack(outs, 1), weights["head"])
    loss, grad_logits = _cross_entropy(logits + weights["head_bias"], y)
    grad_outs, grad_head = head_back(grad_logits)
    grads = _recurrent_back(weights, inputs, states, grad_outs)
    grads |= {"head": grad_head, "head_bias": grad_logits.sum((0, 1))}
    grad_token = np.zeros_like(weights["token"])
    np.add.at(grad_token, x, grads.pop("inputs"))
    return loss, {key: {"token": grad_token, **grads}[key] for key in weights}


def _recurrent_back(weights: Weights, inputs: Array, states: list[Any], grad_outs: Array) -> Weights:
    """Back through time: the gradients of the gates' weights and of the inputs (B, T, C)."""
    grads = {name: np.zeros_like(weights[name]) for name in ("input", "hidden", "input_bias", "hidden_bias")}
    grad_inputs = np.zeros_like(inputs)
    grad_hidden = grad_cell = np.zeros_like(inputs[:, 0])
    for t in reversed(range(len(states))):
        hidden, cell, i, f, g, o, bent = states[t]
        grad_out = grad_outs[:, t] + grad_hidden
        grad_cell = grad_cell + grad_out * o * (1.0 - bent**2)
        of_i, of_f = grad_cell * g * i * (1.0 - i), grad_cell * cell * f * (1.0 - f)
        of_g, of_o = grad_cell * i * (1.0 - g**2), grad_out * bent * o * (1.0 - o)
        gates = np.concatenate([of_i, of_f, of_g, of_o], -1)
        grads["input"] += gates.T @ inputs[:, t]
        grads["hidden"] += gates.T @ hidden
        grads["input_bias"] += gates.sum(0)
        grads["hidden_bias"] += gates.sum(0)
        grad_inputs[:, t] = gates @ weights["input"]
        grad_hidden, grad_cell = gates @ weights["hidden"], grad_cell * f
    return {**grads, "inputs": grad_inputs}


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def language_losses(workload: Language, count: int) -> list[float]:
    """Returns the losses of the first `count` steps of AdamW in float64."""
    weights = mapped(lambda array: array.astype(np.float64), network_weights(workload.network, workload.name))
    params = flat(weights)
    means, squares = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    xs, ys = language_batches(workload)
    b1, b2 = workload.betas
    found = []
    for step in range(count):
        x, y = xs[step % len(xs)], ys[step % len(ys)]
        network = workload.network
        run = _transformer if isinstance(network, Transformer) else _recurrent
        loss, grads = run(network, weights, x, y)  # type: ignore[operator]
        found.append(loss)
        for param, grad, mean, square in zip(params, flat(grads), means, squares):
            mean += (1 - b1) * (grad - mean)
            square += (1 - b2) * (grad**2 - square)
            if is_decayed(param):
                param *= 1 - workload.learning_rate * workload.weight_decay
            root = np.sqrt(square / (1 - b2 ** (step + 1))) + workload.eps
            param -= workload.learning_rate * mean / (1 - b1 ** (step + 1)) / root
    return found


# ---- single calls ----


def overhead_result(workload: Overhead) -> Array:
    """Returns the result (16, 16) on operand 0 in float64."""
    xs, ws = overhead_operands(workload)
    out = xs[0].astype(np.float64)
    for number in range(workload.num_kernels if workload.op == "chain" else workload.num_arguments):
        w = ws[number % len(ws)].astype(np.float64)
        out = out @ w if workload.op == "chain" else out + w
    return out


def generation_logits(workload: Generation, tokens: Array) -> Array:
    """Returns the logits (tokens + 1, V) of the last position of the prompt and of each of `tokens` after it."""
    network = workload.network
    weights = generation_weights(workload)
    x = np.concatenate([prompts(workload)[0][0], tokens.astype(np.int32)])[None]
    stream = weights["token"][x].astype(np.float64) + weights["position"][: x.shape[1]]
    for layer in weights["layers"]:
        stream, _ = _block(stream, mapped(lambda array: array.astype(np.float64), layer), network.num_heads)
    normal, _ = _norm(stream[:, workload.prompt - 1 :], weights["norm"].astype(np.float64))
    return (normal @ weights["token"].astype(np.float64).T)[0]
