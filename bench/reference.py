"""What every framework has to compute: the same workloads in NumPy, float64, and the tolerances.

In:    a workload
Out:   its first losses, or its result at sampled places; a verdict on a framework's figures
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf, sqrt

import numpy as np

from bench.language import Language
from bench.reference_language import generation_logits, language_losses, overhead_result
from bench.singles import TINY, Generation, Overhead
from bench.workloads import (
    LAYER_NORM_EPS,
    Array,
    Forward,
    Training,
    Workload,
    batches,
    operands,
    start_embedding,
    start_weights,
)

NUM_LOSSES = 10
NUM_SAMPLED = 2048

# Unit roundoff of float32 (2^-24). Each tolerance below is a count of roundings, so that a TF32 (2^-11) or
# bfloat16 (2^-8) product, a wrong gradient or a missed update all fail by orders of magnitude.
ROUNDOFF = 2.0**-24


@dataclass(frozen=True)
class Verdict:
    """How far a framework's figures are from float64.

    error:      the largest |got - expected| / tolerance; fine up to 1
    tolerance:  in words
    """

    error: float
    tolerance: str

    @property
    def is_right(self) -> bool:
        return bool(self.error <= 1.0)


def make_judge(workload: Workload) -> Callable[[list[float]], Verdict]:
    """Returns the judge of a workload's figures, which are `bench.runner.Runner.values`."""
    if isinstance(workload, Training):
        expected = losses(workload)
        return lambda got: _judge_losses(got, expected)
    if isinstance(workload, Language):
        wanted = language_losses(workload, NUM_LOSSES)
        return lambda got: _judge_adam_losses(got, wanted)
    if isinstance(workload, Overhead):
        return _judge_of_overhead(workload)
    if isinstance(workload, Generation):
        return lambda got: _judge_generation(workload, np.array(got))
    values, tolerance, words = _FORWARD[workload.op](workload)
    return lambda got: Verdict(_worst(np.abs(np.array(got) - values) / tolerance), words)


def _worst(errors: Array) -> float:
    return float(np.nan_to_num(np.max(errors), nan=np.inf))


# ---- training ----


def losses(workload: Training, count: int = NUM_LOSSES) -> list[float]:
    """Returns the losses of the first `count` SGD steps, computed in float64 by hand-written gradients."""
    layers = [[weight.astype(np.float64), bias.astype(np.float64)] for weight, bias in start_weights(workload)]
    table = start_embedding(workload)
    table = None if table is None else table.astype(np.float64)
    xs, ys = batches(workload)
    return [
        sgd_step(workload, layers, table, xs[step % len(xs)], ys[step % len(ys)]) for step in range(count)
    ]


def sgd_step(workload: Training, layers: list[list[Array]], table: Array | None, x: Array, y: Array) -> float:
    """Updates the layers, and the table of an embedding, in place, in their own dtype; returns the loss before it."""
    inputs = x.astype(layers[0][0].dtype, copy=False) if table is None else table[x].reshape(len(x), -1)
    activations = _forward(workload, layers, inputs)
    loss, grad = _loss_and_grad(workload, activations[-1], y)
    grad_input = _backward(workload, layers, activations, grad)
    if table is not None:
        np.subtract.at(table, x, workload.learning_rate * grad_input.reshape(*x.shape, -1))
    return loss


def _forward(workload: Training, layers: list[list[Array]], x: Array) -> list[Array]:
    activations = [x]
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight.T + bias
        if number < len(layers) - 1:
            x = np.tanh(x) if workload.activation == "tanh" else np.maximum(x, 0.0)
        activations.append(x)
    return activations


def _loss_and_grad(workload: Training, out: Array, y: Array) -> tuple[float, Array]:
    if workload.loss == "mse":
        return float(np.mean((out - y) ** 2)), 2.0 * (out - y) / out.size
    shifted = out - out.max(1, keepdims=True)
    log_probs = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    picked = np.arange(len(y)), y
    grad = np.exp(log_probs)
    grad[picked] -= 1.0
    return float(-log_probs[picked].mean()), grad / len(y)


def _backward(workload: Training, layers: list[list[Array]], activations: list[Array], grad: Array) -> Array:
    """Updates the layers in place and returns the gradient of the network's input."""
    for number in reversed(range(len(layers))):
        weight, bias = layers[number]
        if number < len(layers) - 1:
            out = activations[number + 1]
            grad = grad * (1.0 - out**2) if workload.activation == "tanh" else grad * (out > 0)
        grad_weight, grad_bias, grad = grad.T @ activations[number], grad.sum(0), grad @ weight
        layers[number][0] = weight - workload.learning_rate * grad_weight
        layers[number][1] = bias - workload.learning_rate * grad_bias
    return grad


def _judge_losses(got: list[float], expected: list[float]) -> Verdict:
    """Compares ten losses with float64's, relative tolerance 64 roundings (3.8e-6).

    A logit sums up to 784 products: its error is some sqrt(784) = 28 roundings, more in a plain sequential sum; the
    error of the weights adds up over ten updates, which are 0.02 to 0.1 of a gradient each. 64 leaves room for any
    order of summation, and is far below what one wrong update does to the loss (1e-3 and more).
    """
    scale = 64 * ROUNDOFF * np.maximum(np.abs(expected), 1e-2)
    return Verdict(_worst(np.abs(np.subtract(got, expected)) / scale), "relative 3.8e-6 (64 roundings of float32)")


def _judge_adam_losses(got: list[float], expected: list[float]) -> Verdict:
    """Compares ten losses of AdamW with float64's, relative tolerance 2e-5 (336 roundings).

    Adam divides by the root of the squared gradient: where a gradient is as small as its error, the first updates have
    any sign. Those are a few weights that hardly change the loss; a wrong or missed update changes it by 1e-3 and more.
    """
    scale = 2e-5 * np.maximum(np.abs(expected), 1e-2)
    return Verdict(_worst(np.abs(np.subtract(got, expected)) / scale), "relative 2e-5 (AdamW)")


# ---- single calls ----


def compared(workload: Forward | Overhead | Generation, *parts: Array) -> list[float]:
    """Returns of a result what is judged: sampled places; all of a tiny one; every token written and sampled logits."""
    if isinstance(workload, Overhead):
        return [float(value) for value in parts[0].reshape(-1, TINY * TINY)[0]]
    if isinstance(workload, Generation):
        logits = parts[-1].reshape(-1)[sampled_tokens(workload)]
        return [float(value) for value in (*(parts[0].reshape(-1) if len(parts) == 2 else ()), *logits)]
    return [float(value) for value in parts[0][sampled_places(workload)]]


def _judge_of_overhead(workload: Overhead) -> Callable[[list[float]], Verdict]:
    """A chain keeps the length of each row: each product adds a few roundings of it."""
    expected = overhead_result(workload)
    length = np.linalg.norm(expected, axis=1, keepdims=True) * np.ones_like(expected)
    count = 4 * (workload.num_kernels + workload.num_arguments)
    scale = (count * ROUNDOFF * length).ravel()
    words = "4 roundings of |row| a product or sum"
    return lambda got: Verdict(_worst(np.abs(np.array(got) - expected.ravel()) / scale), words)


def sampled_tokens(workload: Generation) -> Array:
    """Returns the tokens whose logits are compared."""
    return np.random.default_rng(7).integers(0, workload.network.vocabulary, NUM_SAMPLED)


def _judge_generation(workload: Generation, got: Array) -> Verdict:
    """Reads back in float64 what was written: each token must have the largest logit, the last logits must be right.

    Logits spread by some 0.5; a sum of 768 products in each of 12 layers is off by 1e-6 or so of that. 2e-5 is far
    below what a missed position or layer changes (0.1).
    """
    tokens, logits = got[: workload.count], got[workload.count :]
    expected = generation_logits(workload, tokens)
    short = [row.max() - row[int(token)] for row, token in zip(expected, tokens)]
    errors = np.abs(logits - expected[-1][sampled_tokens(workload)])
    return Verdict(_worst(np.array([*errors, *short])) / 2e-5, "2e-5 of logits that spread by 0.5")


# ---- forward ----


def sampled_places(workload: Forward) -> tuple[Array, Array]:
    """Returns the rows and the columns at which the result on operand set 0 is compared."""
    rng = np.random.default_rng(7)
    return rng.integers(0, workload.shape[0], NUM_SAMPLED), rng.integers(0, workload.shape[1], NUM_SAMPLED)


def _matmul(workload: Forward) -> tuple[Array, Array, str]:
    lhs, rhs = (operand.astype(np.float64) for operand in operands(workload, 0))
    rows, cols = sampled_places(workload)
    lhs = lhs.T if workload.layout[0] == "T" else lhs
    rhs = rhs if workload.layout[1] == "T" else rhs.T
    a, b = lhs[rows], rhs[cols]  # (NUM_SAMPLED, K) each
    # Even a plain sequential float32 sum of K random products is off by about 0.7 * roundoff * K, one sigma.
    bound = 4 * ROUNDOFF * np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.einsum("sk,sk->s", a, b), bound, "4 roundings of |row| * |column|"


def _gelu_scaled(workload: Forward) -> tuple[Array, Array, str]:
    x, a, b, c = (operand.astype(np.float64) for operand in operands(workload, 0))
    rows, cols = sampled_places(workload)
    inner = x[rows, cols] * a[cols] + b[cols]
    expected = 0.5 * inner * (1.0 + np.array([erf(value / sqrt(2.0)) for value in inner])) * c[cols]
    # 1.5e-7 is the published error of the usual polynomial for erf (Abramowitz and Stegun 7.1.26), times |inner * c|.
    bound = 16 * ROUNDOFF * np.maximum(np.abs(inner), 1.0) * np.maximum(np.abs(c[cols]), 1.0)
    return expected, bound, "16 roundings of |x * a + b| * |c|"


def _softmax(workload: Forward) -> tuple[Array, Array, str]:
    (x,) = operands(workload, 0)
    rows, cols = sampled_places(workload)
    exps = np.exp(x[rows].astype(np.float64))
    expected = exps[np.arange(NUM_SAMPLED), cols] / exps.sum(1)
    # A rounding of the exponential's argument, up to 10 in size, becomes 10 relative ones; the sum adds a few.
    return expected, 64 * ROUNDOFF * expected, "relative, 64 roundings"


def _layer_norm(workload: Forward) -> tuple[Array, Array, str]:
    x, weight, bias = (operand.astype(np.float64) for operand in operands(workload, 0))
    rows, cols = sampled_places(workload)
    picked = x[rows]
    mean, variance = picked.mean(1), picked.var(1)
    normal = (picked[np.arange(NUM_SAMPLED), cols] - mean) / np.sqrt(variance + LAYER_NORM_EPS)
    expected = normal * weight[cols] + bias[cols]
    bound = 32 * ROUNDOFF * (np.maximum(np.abs(normal), 1.0) * np.abs(weight[cols]) + np.abs(bias[cols]))
    return expected, bound, "32 roundings of |normal * weight| + |bias|"


_FORWARD = {"matmul": _matmul, "gelu_scaled": _gelu_scaled, "softmax": _softmax, "layer_norm": _layer_norm}
